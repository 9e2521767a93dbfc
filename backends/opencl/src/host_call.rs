//! Host functions in stream order.
//!
//! # Protocol
//!
//! A host function is two commands: a marker, whose end is its turn, and a barrier that holds up the stream until an event
//! of the host has ended, the *return*. The marker's callback hands the function to a thread of [`Callbacks`]; that
//! thread calls it, drops it, and ends the return.
//!
//! Until its turn a function waits in `waiting`, under a number that the callback knows. Whoever takes it out ends it: the
//! callback, or the end of the driver, which cancels all that wait. So each is called once, whichever comes first (H13).

use crate::object::{Context, Event};
use crate::stream::Stream;
use crate::sys::{COMPLETE, Raw, Status};
use anyaccel_hal::{Fault, FaultKind, HostFn, HostStatus};
use anyaccel_kit::{CallbackConfig, Callbacks, Mutex};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

/// What the threads do.
pub(crate) enum Job {
    /// Calls a function, then lets its stream go on.
    Call { function: HostFn, status: HostStatus, returned: Event },
    /// Waits for the work that is left and gives everything back.
    Last(Box<dyn FnOnce() + Send>),
}

impl Job {
    fn run(self) {
        match self {
            Self::Call { mut function, status, returned } => {
                function.call(status);
                drop(function);
                // It fails for an event that has ended, which only this job ends.
                let _set = returned.set(COMPLETE);
            }
            Self::Last(last) => last(),
        }
    }
}

struct Waiting {
    functions: HashMap<u64, (HostFn, Event)>,
    next: u64,
}

/// The host functions of a driver, and the threads that call them.
pub(crate) struct Calls {
    waiting: Mutex<Waiting>,
    threads: Callbacks<Job>,
}

/// What a callback is given.
struct Turn {
    calls: Arc<Calls>,
    number: u64,
}

unsafe extern "C" fn turn_has_come(_event: Raw, status: Status, data: *mut c_void) {
    // SAFETY: C4: `enqueue` leaked it for this call.
    let turn = unsafe { Box::from_raw(data.cast::<Turn>()) };
    turn.calls.end(turn.number, if status < 0 { HostStatus::Cancelled } else { HostStatus::Run });
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting { functions: HashMap::new(), next: 1 }),
            threads: Callbacks::new(CallbackConfig::named("anyaccel-opencl"), Job::run),
        }
    }

    /// Makes sure that a later job finds a thread.
    pub(crate) fn ensure_thread(&self) -> Result<(), Fault> {
        self.threads.ensure_thread().map_err(|error| {
            let code = i64::from(error.raw_os_error().unwrap_or(0));
            Fault::new(FaultKind::OutOfMemory, "host_call").code(code).note("no thread for functions")
        })
    }

    /// Calls a function in the stream's order.
    pub(crate) fn enqueue(self: &Arc<Self>, stream: &Stream, context: &Context, function: HostFn) -> Result<(), Fault> {
        self.ensure_thread()?;
        let returned = context.user_event()?;
        let order = stream.enqueue();
        let enqueued = stream.queue.marker().and_then(|marker| {
            stream.queue.barrier(&returned)?;
            Ok(marker)
        });
        let marker = match enqueued {
            Ok(marker) => marker,
            Err(fault) => {
                // Nothing waits for it: the barrier is not there.
                let _set = returned.set(COMPLETE);
                return Err(fault);
            }
        };
        let number = {
            let mut waiting = self.waiting.lock();
            let number = waiting.next;
            waiting.next += 1;
            waiting.functions.insert(number, (function, returned.clone()));
            number
        };
        let turn = Box::into_raw(Box::new(Turn { calls: Arc::clone(self), number }));
        // SAFETY: C4: leaked for the callback, which only hands over.
        let called = unsafe { marker.call_back(turn_has_come, turn.cast()) }.and_then(|()| {
            let flushed = stream.queue.flush();
            drop(order);
            flushed
        });
        if let Err(fault) = called {
            // The function is dropped without a call (H19), unless its turn has come already.
            if let Some((function, returned)) = self.take(number) {
                let _set = returned.set(COMPLETE);
                drop(function);
                return Err(fault);
            }
        }
        Ok(())
    }

    fn take(&self, number: u64) -> Option<(HostFn, Event)> {
        self.waiting.lock().functions.remove(&number)
    }

    fn end(&self, number: u64, status: HostStatus) {
        if let Some((function, returned)) = self.take(number) {
            self.push(Job::Call { function, status, returned });
        }
    }

    fn push(&self, job: Job) {
        if let Err(job) = self.threads.push(job) {
            // After the end only: then this thread is as good as any.
            job.run();
        }
    }

    /// Cancels all functions whose turn has not come, and has `last` run after them. Waits for nothing.
    pub(crate) fn close(&self, last: Option<Box<dyn FnOnce() + Send>>) {
        let left: Vec<(HostFn, Event)> = self.waiting.lock().functions.drain().map(|(_, function)| function).collect();
        for (function, returned) in left {
            self.push(Job::Call { function, status: HostStatus::Cancelled, returned });
        }
        if let Some(last) = last {
            self.push(Job::Last(last));
        }
        self.threads.finish();
    }
}
