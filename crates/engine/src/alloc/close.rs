//! The end of a cache: everything goes back to the device, and what was still in use is reported.
//!
//! Once `closed` is set nobody is handed a block any more; a thread that got memory for a request at that moment gives it
//! back. What other threads are giving back is waited for: once closing returns they call the device no more about it. Once `seized` is set no block is active or pending; a thread that was making marks then leaves its block alone.

use std::collections::HashSet;

use super::arena::{Block, Life, NIL};
use super::cache::{DeviceCache, Guard, Leak};
use super::heap::Heap;
use super::ports::PortError;
use super::trim::note;
use crate::sync::Ordering;

impl Heap {
    fn leaks(&self) -> Vec<Leak> {
        let live = self.arena.iter().filter(|(_, b)| b.life == Life::Active);
        let mut leaks: Vec<Leak> = live
            .map(|(_, b)| {
                let raw = self.segs[b.seg as usize].raw;
                Leak {
                    addr: b.addr,
                    segment: raw.token,
                    offset: b.addr - raw.addr,
                    requested: b.requested,
                    size: b.size,
                    stream: self.shelves[b.shelf as usize].stream,
                }
            })
            .collect();
        leaks.sort_unstable_by_key(|leak| leak.addr);
        leaks
    }

    /// Blocks that somebody has or uses.
    fn held(&self) -> impl Iterator<Item = (u32, &Block)> {
        self.arena.iter().filter(|(_, b)| matches!(b.life, Life::Active | Life::Pending))
    }

    /// Takes every block from whoever has it or uses it.
    fn seize(&mut self) {
        self.seized = true;
        self.queues.iter_mut().for_each(std::collections::VecDeque::clear);
        self.waiting = 0;
        self.waiting_beyond = 0;
        self.parked.clear();
        self.capture_uses.clear();
        let ids: Vec<u32> = self.held().map(|(id, _)| id).collect();
        for id in ids {
            if self.arena[id].life == Life::Active {
                self.give_back(id, 0);
            }
            self.arena[id].events = 0;
            self.finish(id);
        }
    }
}

impl DeviceCache {
    pub(super) fn shut(&self) -> (Vec<Leak>, Result<(), PortError>) {
        self.drain_side();
        let mut heap = self.lock();
        if heap.closed {
            return (Vec::new(), Ok(()));
        }
        (heap.closed, heap.unusual) = (true, true);
        heap.captures.clear();
        self.capturing.store(false, Ordering::Release);
        let mut fault = None;
        let waited;
        (heap, waited) = self.wait_for_uses(heap);
        note(&mut fault, waited);
        heap = self.wait_for_held(heap, &mut fault);
        let leaks = heap.leaks();
        heap.seize();
        self.publish(&heap);
        heap = self.release_everything(heap, &mut fault);
        if heap.leaving > 0 {
            while heap.leaving > 0 {
                heap = self.wait_for_leaving(heap);
            }
            // What the device refused to take from another thread is on its shelf again.
            heap = self.release_everything(heap, &mut fault);
        }
        drop(heap);
        (leaks, fault.map_or(Ok(()), Err))
    }

    /// Waits for the uses of what is about to be seized: blocks in their users' hands, and those whose marks another
    /// thread is making. A block that changed meanwhile is waited for again.
    fn wait_for_held<'a>(&'a self, mut heap: Guard<'a>, fault: &mut Option<PortError>) -> Guard<'a> {
        let mut waited_for = HashSet::new();
        loop {
            let held = heap.held().map(|(id, b)| (id, b.generation, b.life == Life::Pending, b.links));
            let new: Vec<_> = held.filter(|&(.., uses)| uses != 0).filter(|&block| waited_for.insert(block)).collect();
            if new.is_empty() {
                return heap;
            }
            let users = heap.users(new.iter().fold(0, |all, &(.., uses)| all | uses));
            let outcome;
            (heap, outcome) = self.outside(heap, || {
                let wait = |&(stream, _): &(u64, u32)| {
                    let mark = self.ports.marks.mark(stream)?;
                    self.ports.marks.wait(stream, mark)
                };
                users
                    .iter()
                    .map(wait)
                    .filter(|waited| !matches!(waited, Err(PortError::DeviceLost(_))))
                    .collect::<Vec<_>>()
            });
            outcome.into_iter().for_each(|waited| note(fault, waited));
        }
    }

    /// Gives every free block back, of every pool. A call that fails is made once more.
    pub(super) fn release_everything<'a>(&'a self, mut heap: Guard<'a>, fault: &mut Option<PortError>) -> Guard<'a> {
        for pool in 0..heap.pools.len() as u32 {
            heap.pools[pool as usize].visitors += 1;
            for _ in 0..2 {
                heap = self.release_half(heap, pool, 1, fault);
                heap = self.release_half(heap, pool, 0, fault);
                let bare: Vec<u32> = (heap.arena.iter())
                    .filter(|(_, b)| b.life == Life::Unmapped && b.prev == NIL && b.next == NIL)
                    .map(|(id, _)| id)
                    .collect();
                for id in bare {
                    if heap.arena[id].life == Life::Unmapped {
                        heap = self.release_range(heap, id, fault);
                    }
                }
            }
            heap.pools[pool as usize].visitors -= 1;
        }
        heap
    }
}
