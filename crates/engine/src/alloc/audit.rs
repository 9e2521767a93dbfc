//! The invariants, checked from scratch.

use std::collections::BTreeSet;

use super::arena::{INDEXED, Life, NIL};
use super::cache::DeviceCache;
use super::heap::Heap;
use super::stats::{PoolStat, Stat};

macro_rules! hold {
    ($cond:expr, $($text:tt)*) => {
        if !$cond {
            return Err(format!($($text)*));
        }
    };
}

impl DeviceCache {
    /// Checks every invariant of the heap: lists, shelves, queues and counters must tell the same story. For tests and
    /// for `doctor`; takes time in proportion to the number of blocks. Meant for a moment when no other thread is
    /// inside the cache.
    ///
    /// # Errors
    /// The first contradiction found, in words.
    pub fn audit(&self) -> Result<(), String> {
        let stats = self.stats();
        let heap = self.lock();
        hold!(heap.in_flight == 0, "{} bytes in flight while nobody is inside", heap.in_flight);
        heap.audit_lists()?;
        heap.audit_shelves()?;
        let mut sums = [[0u64; 2]; 5];
        for (_, block) in heap.arena.iter() {
            let kind = block.kind();
            if block.life == Life::Active {
                sums[0][kind] += 1;
                sums[1][kind] += block.size;
            }
            if matches!(block.life, Life::Active | Life::Pending) {
                sums[2][kind] += 1;
                sums[3][kind] += block.size;
                sums[4][kind] += block.requested;
            }
        }
        let shown = [
            ("allocation", &stats.allocation),
            ("allocated_bytes", &stats.allocated_bytes),
            ("active", &stats.active),
            ("active_bytes", &stats.active_bytes),
            ("requested_bytes", &stats.requested_bytes),
        ];
        for ((name, stat), sum) in shown.iter().zip(sums) {
            hold!(
                (stat.small.current, stat.large.current) == (sum[0], sum[1]),
                "{name}: {stat:?}, but the blocks say {sum:?}"
            );
        }
        let mapped = |b: &super::arena::Block| b.life != Life::Unmapped;
        let reserved: u64 = heap.arena.iter().filter(|(_, b)| mapped(b)).map(|(_, b)| b.size).sum();
        hold!(stats.reserved_bytes.all.current == reserved, "reserved {:?}, blocks {reserved}", stats.reserved_bytes);
        let in_pools: u64 = heap.pools.iter().map(|p| p.reserved).sum();
        hold!(in_pools == reserved, "pools have {in_pools} reserved, blocks {reserved}");
        let split: Vec<_> = heap
            .arena
            .iter()
            .filter(|(_, b)| b.life == Life::Free && b.is_split() && !b.is(super::arena::GROWABLE))
            .collect();
        let bytes: u64 = split.iter().map(|(_, b)| b.size).sum();
        hold!(
            (stats.inactive_split.all.current, stats.inactive_split_bytes.all.current) == (split.len() as u64, bytes),
            "inactive split {:?} {:?}, blocks {} {bytes}",
            stats.inactive_split.all,
            stats.inactive_split_bytes.all,
            split.len()
        );
        for stat in shown.iter().map(|s| s.1).chain([&stats.segment, &stats.reserved_bytes, &stats.inactive_split]) {
            sound(stat)?;
        }
        let [a, b, c] = [&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes].map(|s| s.all.current);
        hold!(a <= b && b <= c, "allocated {a} <= active {b} <= reserved {c} does not hold");
        Ok(())
    }
}

fn sound(stat: &PoolStat) -> Result<(), String> {
    for Stat { current, peak, .. } in stat.parts() {
        hold!(current <= peak, "{stat:?}: current above peak");
    }
    let PoolStat { all, small, large } = stat;
    hold!(all.current == small.current + large.current, "{stat:?}: current");
    hold!(all.allocated == small.allocated + large.allocated, "{stat:?}: allocated");
    hold!(all.freed == small.freed + large.freed, "{stat:?}: freed");
    Ok(())
}

impl Heap {
    fn audit_lists(&self) -> Result<(), String> {
        let mut waiting = std::collections::BTreeMap::new();
        for (slot, queue) in self.queues.iter().enumerate() {
            let bit = super::slots::bit(slot as u32);
            hold!(queue.is_empty() || self.waiting & bit != 0, "queue {slot} is not noted as waiting");
            hold!(queue.iter().is_sorted_by_key(|e| e.0), "a queue is out of order: {queue:?}");
            for (_, id) in queue {
                *waiting.entry(*id).or_insert(0u16) += 1;
            }
        }
        for id in &self.parked {
            *waiting.entry(*id).or_insert(0) += 1;
        }
        for (id, block) in self.arena.iter() {
            hold!(block.life != Life::Busy, "block {id} is busy while nobody is inside");
            hold!(block.size > 0 && block.size.is_multiple_of(512), "block {id}: {block:?}");
            let events = waiting.remove(&id).unwrap_or(0);
            hold!((block.life == Life::Pending) == (events > 0), "block {id}: {events} events, {block:?}");
            hold!(block.life != Life::Pending || block.events == events, "block {id}: {events} events, {block:?}");
            hold!(!block.is(INDEXED) || block.life == Life::Active, "block {id} is indexed: {block:?}");
            if block.prev == NIL {
                let raw = self.segs[block.seg as usize].raw;
                hold!(block.addr == raw.addr, "block {id} is the first of its segment but not at its start");
                let (mut at, mut next, mut before) = (raw.addr, id, None);
                let mut prev = NIL;
                while next != NIL {
                    let b = &self.arena[next];
                    hold!(b.addr == at && b.prev == prev, "block {next} is out of place: {b:?}, expected at {at:#x}");
                    hold!((b.seg, b.shelf) == (block.seg, block.shelf), "block {next} is in another segment: {b:?}");
                    let joins = matches!(b.life, Life::Free | Life::Unmapped) && before == Some(b.life);
                    hold!(!joins, "blocks {prev} and {next} should be one: {b:?}");
                    before = Some(b.life);
                    at += b.size;
                    (prev, next) = (next, b.next);
                }
                hold!(at == raw.addr + raw.len, "the segment of block {id} has a hole at its end");
            }
        }
        hold!(waiting.is_empty(), "queued but gone: {waiting:?}");
        Ok(())
    }

    fn audit_shelves(&self) -> Result<(), String> {
        let with = |life| self.arena.iter().filter(|(_, b)| b.life == life).map(|(id, _)| id).collect::<BTreeSet<_>>();
        let (mut free, mut unmapped) = (with(Life::Free), with(Life::Unmapped));
        for (at, pool) in self.pools.iter().enumerate() {
            for half in &pool.halves {
                for shelf in half.shelves() {
                    let list = self.shelves[shelf as usize].in_order(&self.arena);
                    hold!(list.is_sorted_by_key(|&id| self.arena[id].key()), "shelf {shelf} is out of order");
                    hold!(list.is_empty() == self.shelves[shelf as usize].is_empty(), "shelf {shelf}: summary");
                    for id in list {
                        hold!(self.arena[id].shelf == shelf, "block {id} is on shelf {shelf}: {:?}", self.arena[id]);
                        hold!(free.remove(&id), "block {id} is shelved but not free: {:?}", self.arena[id]);
                    }
                }
                for (stream, addr, id) in &half.unmapped {
                    let block = &self.arena[*id];
                    let shelf = &self.shelves[block.shelf as usize];
                    hold!((shelf.stream, block.addr) == (*stream, *addr), "unmapped list of pool {at}: {block:?}");
                    hold!(unmapped.remove(id), "block {id} is listed as unmapped: {block:?}");
                }
            }
        }
        hold!(free.is_empty(), "free but on no shelf: {free:?}");
        hold!(unmapped.is_empty(), "unmapped but not listed: {unmapped:?}");
        Ok(())
    }
}
