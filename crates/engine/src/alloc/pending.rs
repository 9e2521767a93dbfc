//! Blocks that streams still use after their user gave them back.
//!
//! Such a block gets one mark per stream, made without the lock. Its `events` counts the marks that have not ended, plus
//! one while it is parked. A queue per stream holds (mark, block) in the order of marks; what `completed` says of the
//! stream ends all entries up to there. Queues are looked at by an allocation before its search and by a trim, never
//! while a capture is under way.

use super::arena::Life;
use super::cache::{DeviceCache, Guard};
use super::heap::Heap;
use super::oom::AllocError;
use super::ports::PortError;
use super::recording::SIDE;
use super::slots::{BEYOND, DENSE, bit};
use crate::history::{Action, StackId};
use crate::sync::Ordering;

/// Answers of up to eight streams, collected before the lock is taken.
#[derive(Default)]
pub(super) struct Done {
    len: usize,
    /// (stream, slot, everything up to this mark has ended)
    items: [(u64, u32, u64); 8],
}

impl Done {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.len != 0
    }
}

impl Heap {
    /// Notes a use of a live block.
    pub(super) fn record(&mut self, id: u32, stream: u64) {
        if self.shelves[self.arena[id].shelf as usize].stream == stream {
            return;
        }
        let bit = bit(self.streams.slot(stream));
        self.arena[id].links |= bit;
        if self.capturing() {
            *self.capture_uses.entry(id).or_default() |= bit;
        }
    }

    /// Uses that are told only when a block is given back may be older than the capture that recorded the same streams:
    /// the end of that capture does not end them.
    pub(super) fn outlasts_capture(&mut self, id: u32, uses: u64) {
        if let Some(captured) = self.capture_uses.get_mut(&id) {
            *captured &= !uses;
        }
    }

    /// The streams of a set of uses, by id: (stream, slot).
    pub(super) fn users(&self, uses: u64) -> Vec<(u64, u32)> {
        let slots = (0..self.streams.len()).filter(|&slot| uses & bit(slot) != 0);
        let mut out: Vec<(u64, u32)> = slots.map(|slot| (self.streams.id(slot), slot)).collect();
        out.sort_unstable();
        out
    }

    /// Ends all entries of a queue up to a mark.
    pub(super) fn retire(&mut self, slot: u32, done: u64) {
        while let Some(queue) = self.queues.get_mut(slot as usize) {
            match queue.front() {
                Some(&(mark, id)) if mark <= done => {
                    queue.pop_front();
                    self.one_event_less(id);
                }
                Some(_) => return,
                None => {
                    // The shared bit may stand for other queues; those who poll it look at each.
                    if slot < DENSE || !self.queues.iter().skip(DENSE as usize).any(|q| !q.is_empty()) {
                        self.waiting &= !bit(slot);
                    }
                    return;
                }
            }
        }
    }

    fn one_event_less(&mut self, id: u32) {
        let block = &mut self.arena[id];
        block.events -= 1;
        if block.events == 0 {
            self.finish(id);
        }
    }

    fn enqueue(&mut self, slot: u32, mark: u64, id: u32) {
        let slot = slot as usize;
        if self.queues.len() <= slot {
            self.queues.resize_with(slot + 1, Default::default);
        }
        self.waiting |= bit(slot as u32);
        let queue = &mut self.queues[slot];
        queue.push_back((mark, id));
        // Two threads may come here in another order than that of their marks.
        let mut at = queue.len() - 1;
        while at > 0 && queue[at - 1].0 > mark {
            queue.swap(at - 1, at);
            at -= 1;
        }
    }
}

impl DeviceCache {
    /// Says in `attention` what the heap holds.
    pub(super) fn publish(&self, heap: &Heap) {
        let parked = if heap.parked.is_empty() { 0 } else { BEYOND };
        self.attention.store(heap.waiting | parked, Ordering::Release);
    }

    /// Queues a pending block behind a mark.
    fn enqueue(&self, heap: &mut Heap, slot: u32, mark: u64, id: u32) {
        heap.arena[id].events += 1;
        heap.enqueue(slot, mark, id);
        if let Some(name) = self.names.get(slot as usize) {
            name.store(heap.streams.id(slot), Ordering::Relaxed);
        }
    }

    /// A block given back that `uses` still use.
    #[cold]
    pub(super) fn defer(&self, mut heap: Guard<'_>, id: u32, uses: u64) {
        let (kind, size) = (heap.arena[id].kind(), heap.arena[id].size);
        if heap.recorder.is_some() {
            heap.note_given(id, &[Action::FreeRequested]);
        } else {
            // A recording may begin while the lock is away.
            heap.caller = StackId::EMPTY;
        }
        heap.counters.defer(kind, size);
        let block = &mut heap.arena[id];
        block.life = Life::Pending;
        block.links = uses;
        if heap.capturing() {
            heap.arena[id].events = 1;
            heap.parked.push(id);
            self.publish(&heap);
            return;
        }
        if !heap.capture_uses.is_empty() {
            heap.capture_uses.remove(&id);
        }
        if uses.is_power_of_two() && uses != BEYOND {
            // One stream, as nearly always.
            let slot = uses.trailing_zeros();
            let stream = heap.streams.id(slot);
            let (mut heap, mark) = self.outside(heap, || self.ports.marks.mark(stream));
            if heap.seized {
                return;
            }
            if let Ok(mark) = mark {
                self.enqueue(&mut heap, slot, mark, id);
            } else {
                self.enqueue_all(&mut heap, id, &[(stream, slot)], &[mark]);
                if heap.arena[id].events == 0 {
                    heap.finish(id);
                }
            }
            self.publish(&heap);
            return;
        }
        let users = heap.users(uses);
        let (mut heap, marks) = self.outside(heap, || self.mark_all(&users));
        if heap.seized {
            return;
        }
        self.enqueue_all(&mut heap, id, &users, &marks);
        if heap.arena[id].events == 0 {
            heap.finish(id);
        }
        self.publish(&heap);
    }

    fn mark_all(&self, users: &[(u64, u32)]) -> Vec<Result<u64, PortError>> {
        users.iter().map(|&(stream, _)| self.ports.marks.mark(stream)).collect()
    }

    /// Queues a pending block behind its marks. One whose mark failed is parked, to be marked later; on a lost device
    /// everything has ended.
    fn enqueue_all(&self, heap: &mut Heap, id: u32, users: &[(u64, u32)], marks: &[Result<u64, PortError>]) {
        let mut left = 0;
        for (&(_, slot), mark) in users.iter().zip(marks) {
            match mark {
                Ok(mark) => self.enqueue(heap, slot, *mark, id),
                Err(PortError::DeviceLost(_)) => {}
                Err(_) => left |= bit(slot),
            }
        }
        heap.arena[id].links = left;
        if left != 0 {
            heap.arena[id].events += 1;
            heap.parked.push(id);
        }
    }

    /// Marks what is parked, unless a capture is under way. Uses recorded under a capture ended with it: the capture
    /// joined those streams.
    pub(super) fn settle<'a>(&'a self, mut heap: Guard<'a>) -> Guard<'a> {
        if heap.capturing() || heap.parked.is_empty() {
            return heap;
        }
        let parked = std::mem::take(&mut heap.parked);
        let mut all = Vec::with_capacity(parked.len());
        for id in parked {
            let captured = heap.capture_uses.remove(&id).unwrap_or(0);
            let uses = heap.arena[id].links & !captured;
            all.push((id, heap.users(uses)));
        }
        let (mut heap, marks) =
            self.outside(heap, || all.iter().map(|(_, users)| self.mark_all(users)).collect::<Vec<_>>());
        if heap.seized {
            return heap;
        }
        for ((id, users), marks) in all.iter().zip(&marks) {
            self.enqueue_all(&mut heap, *id, users, marks);
            heap.one_event_less(*id);
        }
        self.publish(&heap);
        heap
    }

    /// Gives back what host functions left, if anything.
    pub(super) fn drain_side(&self) {
        // Most often there is nothing, and a load is cheaper than a swap.
        let full = |notice: u64| notice & SIDE != 0;
        if !full(self.notice.load(Ordering::Acquire)) || !full(self.notice.fetch_and(!SIDE, Ordering::AcqRel)) {
            return;
        }
        let left = std::mem::take(&mut *self.side.lock());
        for (handle, uses) in left {
            // A stale handle here is a double free by the host function, of which nobody is left to be told.
            let _ = self.give_recorded(self.lock(), handle, uses.0);
        }
    }

    /// Asks the streams with waiting blocks how far they are. Called without the lock, returns without it.
    #[cold]
    pub(super) fn poll(&self, done: &mut Done) -> Result<(), AllocError> {
        self.drain_side();
        if self.attention.load(Ordering::Acquire) & BEYOND != 0 {
            let heap = self.settle(self.lock());
            self.publish(&heap);
        }
        if self.capturing.load(Ordering::Acquire) {
            return Ok(());
        }
        let attention = self.attention.load(Ordering::Acquire);
        if attention & BEYOND == 0 && attention.count_ones() as usize <= done.items.len() {
            let mut left = attention;
            while left != 0 {
                let slot = left.trailing_zeros();
                left &= left - 1;
                let stream = self.names[slot as usize].load(Ordering::Relaxed);
                done.items[done.len] = (stream, slot, self.completed(stream)?);
                done.len += 1;
            }
            if done.len > 1 {
                done.items[..done.len].sort_unstable();
            }
            return Ok(());
        }
        // Many streams: not worth a hot path.
        let heap = self.lock();
        let waiting: Vec<u32> =
            (0..heap.queues.len()).filter(|&slot| !heap.queues[slot].is_empty()).map(|slot| slot as u32).collect();
        let mut streams: Vec<(u64, u32)> = waiting.iter().map(|&slot| (heap.streams.id(slot), slot)).collect();
        streams.sort_unstable();
        let (mut heap, answers) =
            self.outside(heap, || streams.iter().map(|&(stream, _)| self.completed(stream)).collect::<Vec<_>>());
        let mut fault = None;
        for (&(_, slot), answer) in streams.iter().zip(answers) {
            match answer {
                Ok(done) => heap.retire(slot, done),
                Err(e) => fault = fault.or(Some(e)),
            }
        }
        self.publish(&heap);
        fault.map_or(Ok(()), Err)
    }

    fn completed(&self, stream: u64) -> Result<u64, AllocError> {
        match self.ports.marks.completed(stream) {
            Ok(mark) => Ok(mark),
            Err(PortError::DeviceLost(_)) => Ok(u64::MAX),
            Err(fault) => Err(AllocError::Port { device: self.device, call: "completed", fault }),
        }
    }

    pub(super) fn apply(&self, heap: &mut Heap, done: &Done) {
        if heap.capturing() {
            return;
        }
        for &(_, slot, mark) in &done.items[..done.len] {
            heap.retire(slot, mark);
        }
        self.publish(heap);
    }

    /// Waits for everything that is pending. Returns the first call that failed; the blocks behind it stay pending.
    pub(super) fn wait_for_uses<'a>(&'a self, heap: Guard<'a>) -> (Guard<'a>, Result<(), PortError>) {
        let mut heap = self.settle(heap);
        let mut outcome = Ok(());
        let mut streams: Vec<(u64, u32)> =
            (0..heap.queues.len() as u32).map(|slot| (heap.streams.id(slot), slot)).collect();
        streams.sort_unstable();
        for (stream, slot) in streams {
            let Some(&(mark, _)) = heap.queues[slot as usize].back() else { continue };
            let result;
            (heap, result) = self.outside(heap, || self.ports.marks.wait(stream, mark));
            match result {
                Ok(()) => heap.retire(slot, mark),
                Err(PortError::DeviceLost(_)) => heap.retire(slot, u64::MAX),
                Err(fault) => outcome = outcome.and(Err(fault)),
            }
        }
        self.publish(&heap);
        (heap, outcome)
    }
}
