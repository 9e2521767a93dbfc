//! What was given back while work could still use it.
//!
//! # Protocol
//!
//! Device memory is the cache's business. Dropping a host block, a kernel or a lane puts it into the *inbox*, from any thread, without a driver call,
//! so that it is legal in a host function too (H13). [`Port::reap`], which every drop and allocation outside of host
//! functions calls, takes the inbox: it marks the lanes that used the thing and puts it into the queue of one of them.
//! A thing at the front of its queue whose mark has ended moves to the queue of its next lane, or, after the last, is
//! really freed, without the lock. Lanes that are gone themselves (*fading*) stay known until their last mark has ended,
//! so that a mark is never asked of a destroyed stream.

use super::Port;
use crate::local;
use anyaccel_hal::{Kernel, Mark, Mem, StreamId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is to be freed.
pub(super) enum What {
    Pinned(Mem),
    Host(#[allow(dead_code, reason = "kept for its drop")] Box<[u64]>),
    Kernel(Kernel),
}

struct Item {
    what: What,
    /// Lanes still to be waited for.
    rest: Vec<(StreamId, u64)>,
}

struct Fading {
    raw: StreamId,
    use_bit: u32,
    last: u64,
}

#[derive(Default)]
struct State {
    inbox: Vec<(What, u64)>,
    leaving: Vec<(StreamId, u32)>,
    queues: HashMap<StreamId, VecDeque<(u64, Item)>>,
    fading: Vec<Fading>,
}

/// The retired things of one device.
#[derive(Default)]
pub(super) struct Retired(Mutex<State>);

impl Retired {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port goes. The native device frees its own memory when it goes itself; host memory that a copy may still
    /// use is left for good, since nobody will hear of that copy's end.
    pub(super) fn let_go(&mut self) {
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let queued = state.queues.drain().flat_map(|(_, queue)| queue).map(|(_, item)| item.what);
        for what in queued.chain(state.inbox.drain(..).map(|(what, _)| what)) {
            if let What::Host(bytes) = what {
                std::mem::forget(bytes);
            }
        }
    }
}

impl Port {
    /// Frees a thing once the lanes whose bits are in `uses` are done with it.
    pub(super) fn retire(&self, what: What, uses: u64) {
        self.retired.lock().inbox.push((what, uses));
        self.reap();
    }

    /// A kernel may be in use on any lane.
    pub(super) fn retire_kernel(&self, kernel: Kernel) {
        self.retire(What::Kernel(kernel), u64::MAX);
    }

    pub(super) fn retire_stream(&self, raw: StreamId, use_bit: u32) {
        self.retired.lock().leaving.push((raw, use_bit));
        self.reap();
    }

    /// Frees what can be freed now. Does nothing in a host function, which must not call the driver.
    pub(crate) fn reap(&self) {
        if local::in_host_fn() {
            return;
        }
        let mut free = Vec::new();
        let mut destroy = Vec::new();
        // Lanes are listed before the lock is taken: dropping the last reference to one takes it as well.
        let lanes = self.lanes.all();
        {
            let mut state = self.retired.lock();
            let state = &mut *state;
            for (raw, use_bit) in std::mem::take(&mut state.leaving) {
                // Without a mark (a lost device, H20) nothing is left to wait for.
                let last = self.raw_mark(raw).unwrap_or(0);
                state.fading.push(Fading { raw, use_bit, last });
            }
            for (what, uses) in std::mem::take(&mut state.inbox) {
                let used = |bit: u32| uses & (1 << bit) != 0;
                let mut rest: Vec<(StreamId, u64)> = lanes
                    .iter()
                    .filter(|lane| used(lane.use_bit))
                    .filter_map(|lane| Some((lane.raw, self.raw_mark(lane.raw)?)))
                    .collect();
                rest.extend(state.fading.iter().filter(|f| used(f.use_bit)).map(|f| (f.raw, f.last)));
                self.queue(&mut state.queues, &mut free, Item { what, rest });
            }
            let waiting: Vec<StreamId> = state.queues.keys().copied().collect();
            for raw in waiting {
                let completed = self.raw_completed(raw);
                while let Some((mark, item)) = state.queues.get_mut(&raw).and_then(|queue| {
                    if queue.front().is_some_and(|&(mark, _)| mark <= completed) { queue.pop_front() } else { None }
                }) {
                    debug_assert!(mark <= completed);
                    self.queue(&mut state.queues, &mut free, item);
                }
                if state.queues.get(&raw).is_some_and(VecDeque::is_empty) {
                    state.queues.remove(&raw);
                }
            }
            state.fading.retain(|fading| {
                let over = self.raw_completed(fading.raw) >= fading.last && !state.queues.contains_key(&fading.raw);
                if over {
                    destroy.push(fading.raw);
                }
                !over
            });
        }
        for what in free {
            self.free_now(what);
        }
        for raw in destroy {
            self.native.destroy_stream(raw);
        }
    }

    /// Puts an item into the queue of a lane that is not done with it, or among those to free.
    fn queue(&self, queues: &mut HashMap<StreamId, VecDeque<(u64, Item)>>, free: &mut Vec<What>, mut item: Item) {
        while let Some((raw, mark)) = item.rest.pop() {
            if self.raw_completed(raw) < mark {
                let queue = queues.entry(raw).or_default();
                // Things that come from another lane's queue carry older marks: the front must stay the oldest.
                let place = queue.iter().rposition(|&(other, _)| other <= mark).map_or(0, |at| at + 1);
                queue.insert(place, (mark, item));
                return;
            }
        }
        free.push(item.what);
    }

    fn raw_mark(&self, raw: StreamId) -> Option<u64> {
        // SAFETY: H1: the caller holds a lane of this stream, or it is in `leaving`, hence not yet destroyed.
        match unsafe { self.hal().mark(raw) } {
            Ok(Mark::At(mark)) => Some(mark),
            Ok(Mark::Captured(_)) | Err(_) => None,
        }
    }

    fn raw_completed(&self, raw: StreamId) -> u64 {
        // SAFETY: H1: a stream named by a queue is alive or in `fading`, hence not yet destroyed.
        // A driver that can't say has nothing more to run (H20).
        unsafe { self.hal().completed(raw) }.unwrap_or(u64::MAX)
    }

    fn free_now(&self, what: What) {
        // A fault while freeing has nobody to go to: the memory stays with the driver.
        match what {
            What::Pinned(mem) => {
                if let Some(pinned) = self.hal().pinned() {
                    // SAFETY: H1, H5: as above.
                    let _left = unsafe { pinned.free(mem) };
                }
            }
            What::Host(bytes) => drop(bytes),
            What::Kernel(kernel) => {
                if let Some(kernels) = self.hal().kernels() {
                    // SAFETY: H1: its owner is gone, and launches before the mark have ended.
                    unsafe { kernels.unload(kernel) };
                }
            }
        }
    }
}
