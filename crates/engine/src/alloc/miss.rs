//! A request that nothing cached fits: collect garbage, ask the device, make room, ask again, give up.

use super::Allocation;
use super::arena::{Life, NIL};
use super::cache::{DeviceCache, Guard};
use super::oom::{AllocError, Cause};
use super::policy::share;
use super::ports::PortError;
use crate::history::Action;

/// A request, rounded and routed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) size: u64,
    pub(super) rounded: u64,
    /// What it would ask the device for.
    pub(super) segment: u64,
    pub(super) shelf: u32,
    pub(super) kind: usize,
    pub(super) stream: u64,
    pub(super) indexed: bool,
}

/// How an attempt to get memory from the device ended.
pub(super) enum Attempt {
    /// A block that fits, on no shelf.
    Got(u32),
    /// There is no room, or a limit is in the way.
    Full(Cause),
    /// `throw_on_cudamalloc_oom`: the request is to fail at once.
    Rejected,
    /// The device failed otherwise.
    Failed(AllocError),
}

impl DeviceCache {
    #[cold]
    #[inline(never)]
    pub(super) fn miss<'a>(&'a self, mut heap: Guard<'a>, request: &Request) -> Result<Allocation, AllocError> {
        if !heap.arena.has_room() {
            return Err(AllocError::TooManyBlocks { device: self.device });
        }
        // The pool stays while this thread is in it, with or without the lock.
        let pool = heap.shelves[request.shelf as usize].pool;
        heap.pools[pool as usize].visitors += 1;
        let (mut heap, attempt) = self.make_room(heap, request);
        heap.pools[pool as usize].visitors -= 1;
        let cause = match attempt {
            Attempt::Got(id) if heap.closed => {
                // Closed while this thread was asking the device: what it got goes back at once.
                heap.hand_out(id, request.rounded, request.size, false);
                heap.give_back(id, 0);
                heap.finish(id);
                drop(self.release_everything(heap, &mut None));
                return Err(AllocError::Closed { device: self.device });
            }
            Attempt::Got(id) => {
                let block = heap.hand_out(id, request.rounded, request.size, request.indexed);
                if heap.recorder.is_some() {
                    heap.note_taken(id);
                }
                return Ok(block);
            }
            Attempt::Failed(error) => return Err(error),
            Attempt::Rejected => Cause::Rejected,
            Attempt::Full(cause) => {
                heap.counters.ooms += 1;
                cause
            }
        };
        heap.erase_pool_if_empty(pool);
        let report = heap.out_of_memory(self.device, request, cause);
        if heap.recorder.is_some() {
            let free;
            (heap, free) = self.outside(heap, || self.ports.segments.memory().free);
            heap.note_segment(Action::Oom, free.unwrap_or(0), request.size, request.shelf);
        }
        drop(heap);
        Err(AllocError::OutOfMemory(self.tell_observers(report)))
    }

    /// The steps of the policy, in order.
    fn make_room<'a>(&'a self, mut heap: Guard<'a>, request: &Request) -> (Guard<'a>, Attempt) {
        let mut fault = None;
        if heap.collecting && !(heap.capturing() && heap.departures.capture_frees_nothing) {
            heap = self.collect_garbage(heap, &mut fault);
        }
        let mut departed = heap.departed;
        let mut attempt;
        (heap, attempt) = self.attempt(heap, request, false);
        if let Attempt::Full(_) = attempt
            && heap.rules.max_split != u64::MAX
            && !(heap.capturing() && heap.departures.capture_frees_nothing)
        {
            let freed;
            (heap, freed) = self.release_oversize(heap, request, &mut fault);
            if freed {
                (heap, attempt) = self.attempt(heap, request, false);
            }
        }
        if let Attempt::Full(_) = attempt
            && !heap.capturing()
        {
            heap = self.release_unused(heap, &mut fault);
            departed = heap.departed;
            (heap, attempt) = self.attempt(heap, request, true);
        }
        while let Attempt::Full(_) = attempt
            && (heap.leaving > 0 || heap.departed != departed)
            && heap.departures.search_before_failing
        {
            // What another thread is giving back counts as reserved still. Soon there is room for it, or since just now.
            if heap.departed == departed {
                heap = self.wait_for_leaving(heap);
            }
            departed = heap.departed;
            (heap, attempt) = self.attempt(heap, request, false);
        }
        if let Attempt::Full(_) = attempt
            && heap.departures.search_before_failing
        {
            // Waiting for pending uses may have freed a block that fits, though its segment could not be given back.
            let id = heap.best_fit(request.shelf, request.rounded);
            if id != NIL {
                heap.unshelve(id);
                attempt = Attempt::Got(id);
            }
        }
        match (attempt, fault) {
            // The device refused to take something back, which may be why there is no room.
            (Attempt::Full(_), Some(fault)) => {
                let error = AllocError::Port { device: self.device, call: "free", fault };
                (heap, Attempt::Failed(error))
            }
            (attempt, _) => (heap, attempt),
        }
    }

    /// Asks the device, unless a limit forbids it.
    fn attempt<'a>(&'a self, mut heap: Guard<'a>, request: &Request, retry: bool) -> (Guard<'a>, Attempt) {
        if retry {
            heap.counters.retries += 1;
        }
        let growable = self.ports.growable.as_ref().filter(|_| heap.rules.growable);
        // What other threads are about to add counts too, or two of them could pass the limit together.
        let wanted = heap.counters.reserved_now() + heap.in_flight + request.segment;
        // A growable segment takes what it lacks in units, and is held to the budget at each mapping.
        if growable.is_none() && heap.budget.is_some_and(|cap| wanted > cap) {
            return (heap, Attempt::Full(Cause::Budget));
        }
        if heap.limit.is_some_and(|cap| wanted > cap) {
            return (heap, Attempt::Full(Cause::Fraction));
        }
        if heap.settings.throw_on_cudamalloc_oom
            && wanted > share(heap.settings.per_process_memory_fraction, heap.total)
        {
            heap.counters.rejections += 1;
            return (heap, Attempt::Rejected);
        }
        if let Some(growable) = growable {
            return self.grow(heap, growable.as_ref(), request);
        }
        let before = heap.counters.ended();
        heap.in_flight += request.segment;
        let (mut heap, result) = self.outside(heap, || self.ports.segments.alloc(request.segment, request.stream));
        heap.in_flight -= request.segment;
        match result {
            Ok(raw) => {
                let id = heap.take_in(raw, request.shelf, 0, Life::Busy);
                heap.note_segment(Action::SegmentAlloc, raw.addr, raw.len, request.shelf);
                heap.counters.segment.add(request.kind, 1);
                heap.reserve(request.shelf, raw.len);
                if raw.len >= heap.rules.max_split {
                    heap.counters.oversize_segments.add(1);
                }
                (heap, Attempt::Got(id))
            }
            Err(PortError::OutOfMemory) => {
                if heap.counters.ended() != before {
                    // Another thread gave something back while this one was asking.
                    let id = heap.best_fit(request.shelf, request.rounded);
                    if id != NIL {
                        heap.unshelve(id);
                        return (heap, Attempt::Got(id));
                    }
                }
                (heap, Attempt::Full(Cause::Device))
            }
            Err(fault) => (heap, Attempt::Failed(AllocError::Port { device: self.device, call: "alloc", fault })),
        }
    }
}
