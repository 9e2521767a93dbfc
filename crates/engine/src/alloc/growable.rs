//! Growable segments: one range of address space per (stream, pool) as needed, mapped and unmapped in units.
//!
//! A range starts as one unmapped block. Mapped and unmapped blocks of a range form one list in address order; free
//! mapped neighbours merge, unmapped ones too, the two kinds never. An unmapped block always begins and ends at a unit.

use super::arena::{BARE, Block, Life, NIL};
use super::cache::{DeviceCache, Guard};
use super::heap::Heap;
use super::miss::{Attempt, Request};
use super::oom::{AllocError, Cause};
use super::ports::{PortError, Virtual};
use crate::history::Action;

impl Heap {
    fn half_of(&mut self, id: u32) -> (&mut super::pools::Half, (u64, u64, u32)) {
        let block = &self.arena[id];
        let shelf = &self.shelves[block.shelf as usize];
        let entry = (shelf.stream, block.addr, id);
        (&mut self.pools[shelf.pool as usize].halves[shelf.kind], entry)
    }

    fn list_unmapped(&mut self, id: u32) {
        self.arena[id].life = Life::Unmapped;
        let (half, entry) = self.half_of(id);
        half.unmapped.insert(entry);
    }

    fn unlist_unmapped(&mut self, id: u32) {
        let (half, entry) = self.half_of(id);
        half.unmapped.remove(&entry);
    }

    /// The block to grow for a request: the first unmapped one, in address order, that holds enough together with a free
    /// block just before it and the free or unmapped ones after it; that free block before it, if there is one.
    fn growing_point(&self, shelf: u32, rounded: u64) -> Option<u32> {
        let list = &self.shelves[shelf as usize];
        let stream = list.stream;
        let half = &self.pools[list.pool as usize].halves[list.kind];
        let usable = |id: u32| id != NIL && matches!(self.arena[id].life, Life::Free | Life::Unmapped);
        for &(_, _, unmapped) in half.unmapped.range((stream, 0, 0)..=(stream, u64::MAX, u32::MAX)) {
            let prev = self.arena[unmapped].prev;
            let start = if usable(prev) { prev } else { unmapped };
            let (mut id, mut bytes) = (start, 0);
            while bytes < rounded && usable(id) {
                bytes += self.arena[id].size;
                id = self.arena[id].next;
            }
            if bytes >= rounded {
                return Some(start);
            }
        }
        None
    }

    /// Puts a mapped block of a range back on its shelf, merged with free neighbours.
    fn settle_mapped(&mut self, id: u32, since: Option<u64>) {
        let Block { prev, next, .. } = self.arena[id];
        for neighbour in [prev, next] {
            if neighbour != NIL && self.arena[neighbour].life == Life::Free {
                self.unshelve(neighbour);
                self.absorb(id, neighbour);
            }
        }
        self.shelve(id);
        if let Some(since) = since {
            self.arena[id].requested = since;
        }
    }

    /// Lists a block as unmapped, merged with unmapped neighbours.
    fn settle_unmapped(&mut self, id: u32) {
        let Block { prev, next, .. } = self.arena[id];
        for neighbour in [prev, next] {
            if neighbour != NIL && self.arena[neighbour].life == Life::Unmapped {
                self.unlist_unmapped(neighbour);
                self.absorb(id, neighbour);
            }
        }
        self.list_unmapped(id);
    }
}

impl DeviceCache {
    /// Maps what a request lacks. On success the block is on no shelf.
    pub(super) fn grow<'a>(
        &'a self,
        mut heap: Guard<'a>,
        port: &dyn Virtual,
        request: &Request,
    ) -> (Guard<'a>, Attempt) {
        let failed = |call, fault| match fault {
            PortError::OutOfMemory => Attempt::Full(Cause::Device),
            fault => Attempt::Failed(AllocError::Port { device: self.device, call, fault }),
        };
        let Request { shelf, kind, rounded, .. } = *request;
        if rounded > heap.total && heap.departures.impossible_reserves_nothing {
            return (heap, Attempt::Full(Cause::Device));
        }
        let mut seek = true;
        let mut seeks = 0;
        let mut have = NIL;
        loop {
            if seek {
                seek = false;
                seeks += 1;
                if seeks > 16 {
                    // Other threads are always faster: there is no room to speak of.
                    return (heap, Attempt::Full(Cause::Device));
                }
                let start = match heap.growing_point(shelf, rounded) {
                    Some(start) => start,
                    None => {
                        let unit = heap.rules.unit(kind);
                        // An eighth more than the device has, so that pages can move to the end of the range.
                        let len = (heap.total + heap.total / 8).next_multiple_of(unit);
                        let result;
                        (heap, result) = self.outside(heap, || port.reserve(len, unit, request.stream));
                        match result {
                            Ok(raw) => {
                                let id = heap.take_in(raw, shelf, unit, Life::Unmapped);
                                let pool = heap.shelves[shelf as usize].pool;
                                heap.pools[pool as usize].ranges += 1;
                                heap.list_unmapped(id);
                                id
                            }
                            Err(fault) => return (heap, failed("reserve", fault)),
                        }
                    }
                };
                if heap.arena[start].life == Life::Free {
                    heap.unshelve(start);
                    heap.arena[start].life = Life::Busy;
                }
                have = start;
            }
            // `have` is Busy and ours, or the unmapped block to begin with.
            let begun = heap.arena[have].life == Life::Busy;
            let size = if begun { heap.arena[have].size } else { 0 };
            if size >= rounded {
                return (heap, Attempt::Got(have));
            }
            let target = if begun { heap.arena[have].next } else { have };
            match if target == NIL { Life::Vacant } else { heap.arena[target].life } {
                Life::Unmapped => {}
                Life::Free => {
                    heap.unshelve(target);
                    heap.absorb(have, target);
                    continue;
                }
                _ => {
                    // Another thread took what was to follow while the lock was away.
                    heap.settle_mapped(have, None);
                    seek = true;
                    continue;
                }
            }
            let unit = heap.segs[heap.arena[target].seg as usize].unit;
            let raw = heap.segs[heap.arena[target].seg as usize].raw;
            let Block { addr, size: room, .. } = heap.arena[target];
            let len = (rounded - size).next_multiple_of(unit).min(room);
            let over = |budget| heap.counters.reserved_now() + heap.in_flight + len > budget;
            if heap.budget.is_some_and(over) {
                if begun {
                    let since = heap.arena[have].requested;
                    heap.settle_mapped(have, Some(since));
                }
                return (heap, Attempt::Full(Cause::Budget));
            }
            heap.unlist_unmapped(target);
            heap.arena[target].life = Life::Busy;
            heap.arena[target].flags |= BARE;
            heap.in_flight += len;
            let (guard, result) = self.outside(heap, || port.map(raw, addr - raw.addr, len, unit));
            heap = guard;
            heap.in_flight -= len;
            heap.arena[target].flags &= !BARE;
            if let Err(fault) = result {
                heap.settle_unmapped(target);
                if begun {
                    let since = heap.arena[have].requested;
                    heap.settle_mapped(have, Some(since));
                }
                return (heap, failed("map", fault));
            }
            if len < room {
                let rest = heap.arena.cut(target, len, Life::Unmapped);
                heap.settle_unmapped(rest);
            }
            heap.reserve(shelf, len);
            heap.note_segment(Action::SegmentMap, addr, len, shelf);
            // What was mapped takes in what lies before it, ours or free, and what is free after it.
            if begun {
                heap.absorb(target, have);
            }
            let Block { prev, next, .. } = heap.arena[target];
            for neighbour in [prev, next] {
                if neighbour != NIL && heap.arena[neighbour].life == Life::Free {
                    heap.unshelve(neighbour);
                    heap.absorb(target, neighbour);
                }
            }
            heap.arena[target].requested = heap.clock(shelf);
            have = target;
        }
    }

    /// Unmaps the whole units inside a free block and leaves its odd ends mapped and free; gives the range back if
    /// nothing of it is mapped any more.
    pub(super) fn shrink<'a>(&'a self, mut heap: Guard<'a>, id: u32, fault: &mut Option<PortError>) -> Guard<'a> {
        let Some(port) = &self.ports.growable else { return heap };
        let Block { addr, size, shelf, seg, .. } = heap.arena[id];
        let super::heap::Seg { raw, unit, .. } = heap.segs[seg as usize];
        let begin = (addr - raw.addr).next_multiple_of(unit);
        let end = (addr - raw.addr + size) / unit * unit;
        if begin >= end {
            return heap;
        }
        heap.unshelve(id);
        heap.arena[id].life = Life::Busy;
        let stream = heap.shelves[shelf as usize].stream;
        let (mut heap, result) = self.give_up(heap, end - begin, || port.unmap(raw, begin, end - begin, unit, stream));
        if let Err(e) = result {
            fault.get_or_insert(e);
            let since = heap.arena[id].requested;
            heap.settle_mapped(id, Some(since));
            return heap;
        }
        let mut middle = id;
        let before = begin - (addr - raw.addr);
        if before > 0 {
            middle = heap.arena.cut(id, before, Life::Busy);
        }
        let after = size - before - (end - begin);
        let mut tail = NIL;
        if after > 0 {
            tail = heap.arena.cut(middle, end - begin, Life::Busy);
        }
        if before > 0 {
            heap.settle_mapped(id, None);
        }
        if tail != NIL {
            heap.settle_mapped(tail, None);
        }
        heap.settle_unmapped(middle);
        heap.unreserve(shelf, end - begin);
        heap.note_segment(Action::SegmentUnmap, raw.addr + begin, end - begin, shelf);
        if heap.arena[middle].is_split() {
            return heap;
        }
        self.release_range(heap, middle, fault)
    }

    /// Gives a range of address space back of which nothing is mapped: `id` is its only block.
    pub(super) fn release_range<'a>(
        &'a self,
        mut heap: Guard<'a>,
        id: u32,
        fault: &mut Option<PortError>,
    ) -> Guard<'a> {
        let Some(port) = &self.ports.growable else { return heap };
        let Block { shelf, seg, .. } = heap.arena[id];
        let raw = heap.segs[seg as usize].raw;
        heap.unlist_unmapped(id);
        heap.arena[id].life = Life::Busy;
        heap.arena[id].flags |= BARE;
        let (mut heap, result) = self.outside(heap, || port.release(raw));
        heap.arena[id].flags &= !BARE;
        match result {
            Ok(()) => {
                let pool = heap.shelves[shelf as usize].pool;
                heap.pools[pool as usize].ranges -= 1;
                heap.dead_segs += 1;
                heap.arena.vacate(id);
            }
            Err(e) => {
                fault.get_or_insert(e);
                heap.settle_unmapped(id);
            }
        }
        heap
    }
}
