//! Kernels and streams that were given back while work could still use them; stamps and events given back in host functions.
//!
//! # Protocol
//!
//! Dropping a kernel or a lane puts it into the *inbox*, from any thread, without a driver call, so that it is legal in a
//! host function too (H13). [`Port::reap`], which every such drop and every synchronization outside of host functions
//! calls, takes the inbox, but for what can't be marked now. A stream gets a last mark and is destroyed once that has
//! ended. A kernel may be in use on any stream: it gets marks of all that are not destroyed, and is unloaded once all have
//! ended. Marks are asked for by number, of [`Native`](super::native::Native), for which a destroyed stream has ended
//! everything. The cache forgets a stream with it; one of another device that used memory of this one, when this device
//! next lets things go. A graph is destroyed, and its pool given up, once its last replay has ended. Device and host
//! memory are their caches' business.

use super::Port;
use crate::local;
use anyaccel_engine::alloc::{Marks, PoolId, PortError};
use anyaccel_hal::{GraphExec, Kernel, NativeEvent, Stamp, StreamId};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Fading {
    raw: StreamId,
    last: u64,
}

/// What is left of a graph: its executable, or its use of a pool.
struct Spent {
    exec: Option<GraphExec>,
    pool: Option<PoolId>,
    /// Where its last replay ends, by a mark of that stream; without one it is made when things are let go, and ends later.
    until: Option<(StreamId, Option<u64>)>,
}

struct Unused {
    kernel: Kernel,
    until: Vec<(StreamId, u64)>,
}

#[derive(Default)]
struct State {
    kernels: Vec<Kernel>,
    streams: Vec<StreamId>,
    stamps: Vec<Stamp>,
    events: Vec<NativeEvent>,
    unused: Vec<Unused>,
    fading: Vec<Fading>,
    spent: Vec<Spent>,
}

/// The retired things of one device.
#[derive(Default)]
pub(super) struct Retired(Mutex<State>);

impl Retired {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    pub(super) fn retire_kernel(&self, kernel: Kernel) {
        self.retired.lock().kernels.push(kernel);
        self.reap();
    }

    pub(super) fn retire_stream(&self, raw: StreamId) {
        self.retired.lock().streams.push(raw);
        self.reap();
    }

    pub(super) fn retire_spent(
        &self,
        exec: Option<GraphExec>,
        pool: Option<PoolId>,
        until: Option<(StreamId, Option<u64>)>,
    ) {
        self.retired.lock().spent.push(Spent { exec, pool, until });
        self.reap();
    }

    /// Forgets a stamp later. For host functions: elsewhere it goes at once.
    pub(super) fn retire_stamp(&self, stamp: Stamp) {
        self.retired.lock().stamps.push(stamp);
    }

    /// The same for an event that other processes may have too.
    pub(crate) fn retire_event(&self, event: NativeEvent) {
        self.retired.lock().events.push(event);
    }

    /// Lets go of what can go now. Does nothing in a host function, which must not call the driver.
    pub(crate) fn reap(&self) {
        if local::in_host_fn() {
            return;
        }
        let (mut unload, mut destroy, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let (stamps, events);
        {
            let mut state = self.retired.lock();
            let state = &mut *state;
            stamps = std::mem::take(&mut state.stamps);
            events = std::mem::take(&mut state.events);
            for raw in std::mem::take(&mut state.streams) {
                match self.raw_mark(raw) {
                    Some(last) => state.fading.push(Fading { raw, last }),
                    None => state.streams.push(raw),
                }
            }
            if !state.kernels.is_empty() {
                let mark = |raw: StreamId| Some((raw, self.raw_mark(raw)?));
                let until: Option<Vec<(StreamId, u64)>> = self.native.own_streams().into_iter().map(mark).collect();
                if let Some(until) = until {
                    for kernel in std::mem::take(&mut state.kernels) {
                        state.unused.push(Unused { kernel, until: until.clone() });
                    }
                }
            }
            state.unused.retain_mut(|unused| {
                unused.until.retain(|&(raw, mark)| self.raw_completed(raw) < mark);
                if unused.until.is_empty() {
                    unload.push(unused.kernel);
                }
                !unused.until.is_empty()
            });
            state.spent.retain_mut(|spent| {
                if let Some((raw, mark @ None)) = &mut spent.until {
                    *mark = self.raw_mark(*raw);
                }
                let passed = |(raw, mark)| Option::is_some_and(mark, |mark| self.raw_completed(raw) >= mark);
                let ended = spent.until.is_none_or(passed);
                if ended {
                    over.push((spent.exec.take(), spent.pool.take()));
                }
                !ended
            });
            state.fading.retain(|fading| {
                let over = self.raw_completed(fading.raw) >= fading.last;
                if over {
                    destroy.push(fading.raw);
                }
                !over
            });
        }
        for (exec, pool) in over {
            if let Some(exec) = exec {
                self.destroy_graph(exec);
            }
            if let Some(pool) = pool {
                // The graph was a user of it until now.
                let _user = self.cache.forget_graph(pool);
            }
        }
        for stamp in stamps {
            // SAFETY: H1: its owner is gone and put it here once.
            unsafe { self.hal().drop_stamp(stamp) };
        }
        events.into_iter().for_each(|event| self.destroy_event(event));
        for kernel in unload {
            if let Some(kernels) = self.hal().kernels() {
                // SAFETY: H1, H4: its owner is gone, and its launches, all before those marks, have ended.
                unsafe { kernels.unload(kernel) };
            }
        }
        destroy.retain(|&raw| {
            let gone = self.native.destroy_stream(raw);
            if gone {
                self.cache.forget(raw.0);
            }
            !gone
        });
        for gone in self.native.forget_foreigners() {
            self.cache.forget(gone.0);
        }
        if !destroy.is_empty() {
            self.retired.lock().fading.extend(destroy.into_iter().map(|raw| Fading { raw, last: 0 }));
        }
    }

    /// A mark; `None` if it can't be made now.
    fn raw_mark(&self, raw: StreamId) -> Option<u64> {
        match self.native.mark(raw.0) {
            Ok(mark) => Some(mark),
            // Nothing is left to wait for (H20).
            Err(PortError::DeviceLost(_)) => Some(0),
            Err(_) => None,
        }
    }

    fn raw_completed(&self, raw: StreamId) -> u64 {
        match self.native.completed(raw.0) {
            Ok(completed) => completed,
            Err(PortError::DeviceLost(_)) => u64::MAX,
            // Nothing that is known.
            Err(_) => 0,
        }
    }
}
