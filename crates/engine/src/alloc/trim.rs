//! Giving memory back to the device: trims, the out-of-memory sequence, garbage collection, closing.

use super::arena::{Block, GROWABLE, Life};
use super::cache::{DeviceCache, Guard};
use super::heap::Heap;
use super::miss::Request;
use super::policy::share;
use super::pools::{Pool, PoolId};
use super::ports::PortError;
use crate::history::Action;

/// Keeps the first fault.
pub(super) fn note(fault: &mut Option<PortError>, result: Result<(), PortError>) {
    if let Err(e) = result {
        fault.get_or_insert(e);
    }
}

impl Heap {
    /// Takes unsplit free blocks off their shelves, for a thread that will give them back.
    fn detach(&mut self, blocks: &[u32]) {
        for &id in blocks {
            self.unshelve(id);
            self.arena[id].life = Life::Busy;
        }
    }

    /// Forgets a segment that the device has taken back.
    pub(super) fn forget_segment(&mut self, id: u32) {
        let block = self.arena[id];
        let kind = block.kind();
        self.counters.segment.sub(kind, 1);
        self.unreserve(block.shelf, block.size);
        if block.size >= self.rules.max_split {
            self.counters.oversize_segments.sub(1);
        }
        self.dead_segs += 1;
        self.arena.vacate(id);
    }

    fn note_segments(&mut self, action: Action, blocks: &[u32]) {
        if self.recorder.is_some() {
            for &id in blocks {
                let Block { addr, size, shelf, .. } = self.arena[id];
                self.note_segment(action, addr, size, shelf);
            }
        }
    }

    fn is_whole_segment(&self, id: u32) -> bool {
        let block = &self.arena[id];
        !block.is_split() && !block.is(GROWABLE)
    }

    /// Free blocks that garbage collection gives back, in order.
    fn garbage(&self) -> Vec<u32> {
        let Some(cap) = self.cap() else { return Vec::new() };
        let threshold = share(self.settings.garbage_collection_threshold, cap);
        let reserved = self.counters.reserved_now();
        if reserved <= threshold {
            return Vec::new();
        }
        let goal = reserved - threshold;
        let clock = self.pools[0].halves[1].clock;
        let mut left: Vec<u32> = self.free_blocks(0, 1).into_iter().filter(|&id| !self.arena[id].is_split()).collect();
        let age = |id: u32| clock - self.arena[id].requested;
        let mut total: u64 = left.iter().map(|&id| age(id)).sum();
        let (mut out, mut freed) = (Vec::new(), 0);
        while freed < goal && !left.is_empty() {
            let mean = total as f64 / left.len() as f64;
            let before = out.len();
            left.retain(|&id| {
                let old = age(id) as f64 >= mean && self.is_whole_segment(id);
                if old {
                    freed += self.arena[id].size;
                    total -= age(id);
                    out.push(id);
                }
                !old
            });
            if out.len() == before {
                break;
            }
        }
        out
    }

    /// Free oversize blocks of the request's shelf that together make room for it, and whether they do.
    fn oversize(&self, request: &Request) -> (Vec<u32>, bool) {
        let limit = self.rules.max_split;
        let want = request.rounded.max(limit);
        let shelf = &self.shelves[request.shelf as usize];
        if self.pools[shelf.pool as usize].graphs > 0 {
            return (Vec::new(), false);
        }
        let mut blocks: Vec<u32> = shelf.in_order(&self.arena);
        blocks.retain(|&id| self.is_whole_segment(id) && self.arena[id].size >= limit);
        let first = blocks.partition_point(|&id| self.arena[id].size < want);
        if let Some(&id) = blocks.get(first) {
            return (vec![id], true);
        }
        let (mut out, mut freed) = (Vec::new(), 0);
        while freed < want
            && let Some(id) = blocks.pop()
        {
            freed += self.arena[id].size;
            out.push(id);
        }
        (out, freed >= want)
    }
}

impl DeviceCache {
    /// Gives unused memory back to the device, after waiting for pending uses. While a capture is under way: nothing.
    ///
    /// # Errors
    /// The first call that failed. What it was about stays cached; everything else has been tried.
    pub fn empty_cache(&self) -> Result<(), PortError> {
        self.drain_side();
        let heap = self.enter_as(Some("empty_cache"));
        if heap.capturing() {
            return Ok(());
        }
        let mut fault = None;
        drop(self.release_unused(heap, &mut fault));
        fault.map_or(Ok(()), Err)
    }

    /// The same for one private pool, which may have users. A pool that graphs were captured in keeps its memory: their
    /// replays may write free blocks too. Of a pool that is not there, nothing.
    ///
    /// # Errors
    /// As [`empty_cache`](DeviceCache::empty_cache).
    pub fn empty_pool(&self, id: PoolId) -> Result<(), PortError> {
        self.drain_side();
        let mut heap = self.enter_as(Some("empty_cache"));
        if heap.capturing() {
            return Ok(());
        }
        heap.counters.syncs += 1;
        let (mut heap, waited) = self.wait_for_uses(heap);
        let mut fault = waited.err();
        let idle = |pool: &Pool| pool.id == Some(id) && !pool.gone && pool.graphs == 0;
        if let Some(pool) = heap.pools.iter().position(idle) {
            heap = self.release_pool_memory(heap, pool as u32, &mut fault);
        }
        drop(heap);
        fault.map_or(Ok(()), Err)
    }

    /// Frees all that is unused of a private pool.
    fn release_pool_memory<'a>(&'a self, mut heap: Guard<'a>, pool: u32, fault: &mut Option<PortError>) -> Guard<'a> {
        heap.pools[pool as usize].visitors += 1;
        heap = self.release_half(heap, pool, 0, fault);
        heap = self.release_half(heap, pool, 1, fault);
        heap.pools[pool as usize].visitors -= 1;
        heap.erase_pool_if_empty(pool);
        heap
    }

    /// Frees whole segments that are on their shelves, in the given order.
    fn free_segments<'a>(&'a self, mut heap: Guard<'a>, blocks: &[u32], fault: &mut Option<PortError>) -> Guard<'a> {
        if blocks.is_empty() {
            return heap;
        }
        heap.detach(blocks);
        // Told beforehand: the device may hand the address out to another thread before this one is back.
        heap.note_segments(Action::SegmentFree, blocks);
        let raw = |id: u32| heap.segs[heap.arena[id].seg as usize].raw;
        let stream = |id: u32| heap.shelves[heap.arena[id].shelf as usize].stream;
        let raws: Vec<_> = blocks.iter().map(|&id| (raw(id), stream(id))).collect();
        let free = |&(raw, stream)| self.ports.segments.free(raw, stream);
        let bytes = raws.iter().map(|(raw, _)| raw.len).sum();
        let (mut heap, results) = self.give_up(heap, bytes, || raws.iter().map(free).collect::<Vec<_>>());
        for (&id, result) in blocks.iter().zip(results) {
            if result.is_ok() {
                heap.forget_segment(id);
            } else {
                heap.note_segments(Action::SegmentAlloc, &[id]);
                heap.reshelve(id);
            }
            note(fault, result);
        }
        heap
    }

    /// Waits for all uses, then frees all that is unused of the default pool and of pools without users.
    pub(super) fn release_unused<'a>(&'a self, mut heap: Guard<'a>, fault: &mut Option<PortError>) -> Guard<'a> {
        heap.counters.syncs += 1;
        let waited;
        (heap, waited) = self.wait_for_uses(heap);
        note(fault, waited);
        heap = self.release_half(heap, 0, 1, fault);
        heap = self.release_half(heap, 0, 0, fault);
        let mut private: Vec<(u64, u32)> = Vec::new();
        for (at, pool) in heap.pools.iter().enumerate() {
            if let Some(id) = pool.id.filter(|_| pool.users == 0) {
                private.push((id.visit_order(), at as u32));
            }
        }
        private.sort_unstable();
        for (_, pool) in private {
            // It may have been erased, or begun anew, while the lock was away.
            if heap.pools[pool as usize].gone || heap.pools[pool as usize].users > 0 {
                continue;
            }
            heap = self.release_pool_memory(heap, pool, fault);
        }
        heap
    }

    pub(super) fn release_half<'a>(
        &'a self,
        mut heap: Guard<'a>,
        pool: u32,
        kind: usize,
        fault: &mut Option<PortError>,
    ) -> Guard<'a> {
        let (growable, whole): (Vec<u32>, Vec<u32>) = heap
            .free_blocks(pool, kind)
            .into_iter()
            .filter(|&id| heap.arena[id].is(GROWABLE) || !heap.arena[id].is_split())
            .partition(|&id| heap.arena[id].is(GROWABLE));
        let growable: Vec<_> = growable.into_iter().map(|id| (id, heap.arena[id].addr, heap.arena[id].size)).collect();
        heap = self.free_segments(heap, &whole, fault);
        for (id, addr, size) in growable {
            // Still the block that was looked at?
            let block = &heap.arena[id];
            if block.life == Life::Free && (block.addr, block.size) == (addr, size) && block.is(GROWABLE) {
                heap = self.shrink(heap, id, fault);
            }
        }
        heap
    }

    pub(super) fn collect_garbage<'a>(&'a self, heap: Guard<'a>, fault: &mut Option<PortError>) -> Guard<'a> {
        let garbage = heap.garbage();
        self.free_segments(heap, &garbage, fault)
    }

    /// Frees oversize blocks for an oversize or failing request; says whether enough was freed to ask again.
    pub(super) fn release_oversize<'a>(
        &'a self,
        heap: Guard<'a>,
        request: &Request,
        fault: &mut Option<PortError>,
    ) -> (Guard<'a>, bool) {
        let (blocks, enough) = heap.oversize(request);
        (self.free_segments(heap, &blocks, fault), enough)
    }
}

impl Heap {
    /// Puts a block back that was taken off its shelf but not changed; its age stays.
    pub(super) fn reshelve(&mut self, id: u32) {
        let since = self.arena[id].requested;
        self.shelve(id);
        self.arena[id].requested = since;
    }
}
