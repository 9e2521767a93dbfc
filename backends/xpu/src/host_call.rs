//! Functions of the host in streams (H13).
//!
//! # Protocol
//!
//! A function is two commands, enqueued under the lock of its stream: a signal of its *turn*, and a wait for its *return*, which
//! the host signals when the function has returned. Until its turn it waits in its stream's queue, whose lock is taken inside the
//! stream's and never around a native call that could tell of a loss; whoever takes it out, the watching thread or a cancellation, is the one that hands it to a callback thread. At most
//! the first of a queue can have its turn, since the others come after its return.

use crate::context::{Cancel, Context};
use crate::platform::Event;
use crate::stream::Stream;
use anyaccel_hal::{Fault, FaultKind, HostFn, HostStatus};
use anyaccel_kit::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What callback threads do.
pub(crate) struct Job {
    function: HostFn,
    status: HostStatus,
    then: Arc<Event>,
    context: Arc<Context>,
}

/// How often a signal is tried that a stream can't go on without.
const TRIES: usize = 8;

/// Runs a job, on a thread that may block.
pub(crate) fn run(job: Job) {
    let Job { mut function, status, then, context } = job;
    function.call(status);
    drop(function);
    let mut signalled = then.signal();
    for _ in 1..TRIES {
        if signalled.is_ok() || context.is_lost() {
            return;
        }
        std::thread::yield_now();
        signalled = then.signal();
    }
    if let Err(failed) = signalled {
        // Its stream never goes on, which is as good as lost.
        context.lose(failed);
    }
}

/// Hands a job to a callback thread; runs it here, as cancelled, once those have been told to end.
fn hand(job: Job) {
    let callbacks = Arc::clone(&job.context.callbacks);
    if let Err(job) = callbacks.push(job) {
        run(Job { status: HostStatus::Cancelled, ..job });
    }
}

struct Waiting {
    function: HostFn,
    turn: Event,
    back: Arc<Event>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether the watching thread looks at this queue.
    watched: bool,
    /// Whether a loss finds this queue.
    registered: bool,
}

/// The functions of one stream.
pub(crate) struct Functions {
    context: Arc<Context>,
    queue: Mutex<Queue>,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("waiting", &self.queue.lock().waiting.len()).finish()
    }
}

/// What a look found.
pub(crate) struct Look {
    /// A function's turn had come.
    pub(crate) began: bool,
    /// There are more, so look again.
    pub(crate) more: bool,
}

fn no_thread(error: &std::io::Error) -> Fault {
    Fault::new(FaultKind::OutOfMemory, "host_call").note(format!("no thread: {error}"))
}

impl Functions {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self { context, queue: Mutex::new(Queue::default()) })
    }

    /// Enqueues a function.
    pub(crate) fn enqueue(self: &Arc<Self>, stream: &Stream, function: HostFn) -> Result<(), Fault> {
        let context = &self.context;
        context.callbacks.ensure_thread().map_err(|error| no_thread(&error))?;
        context.watch.ensure_thread().map_err(|error| no_thread(&error))?;
        let turn = context.check_shared(Event::new(&context.platform))?;
        let back = Arc::new(context.check_shared(Event::new(&context.platform))?);
        let mut list = stream.list()?;
        list.signal(&turn)?;
        // Where it fails nothing waits for the turn, whose signal is still to come: dropped, it is not used again.
        list.wait(&back)?;
        let mut queue = self.queue.lock();
        queue.waiting.push_back(Waiting { function, turn, back });
        let register = !std::mem::replace(&mut queue.registered, true);
        let watch = !std::mem::replace(&mut queue.watched, true);
        drop(queue);
        drop(list);
        if register {
            let this: Arc<dyn Cancel> = self.clone();
            context.register(Arc::downgrade(&this));
        }
        // A loss sets its flag before it cancels: one that missed this function is seen here.
        if context.is_lost() {
            self.cancel();
        }
        if watch {
            context.watch.add(Arc::clone(self));
        }
        Ok(())
    }

    /// Begins the first one if its turn has come.
    pub(crate) fn look(&self) -> Look {
        let mut queue = self.queue.lock();
        let turn = queue.waiting.front().map(|first| first.turn.ended());
        let first = match turn {
            Some(Ok(true)) => queue.waiting.pop_front(),
            Some(Ok(false)) => None,
            Some(Err(failed)) => {
                drop(queue);
                self.context.fault(failed);
                queue = self.queue.lock();
                None
            }
            None => None,
        };
        let more = !queue.waiting.is_empty();
        queue.watched = more;
        drop(queue);
        let began = first.is_some();
        if let Some(Waiting { function, back, turn }) = first {
            drop(turn);
            self.hand(function, HostStatus::Run, back);
        }
        Look { began, more }
    }

    fn hand(&self, function: HostFn, status: HostStatus, then: Arc<Event>) {
        hand(Job { function, status, then, context: Arc::clone(&self.context) });
    }

    /// Asks whether the device lives.
    pub(crate) fn ask_status(&self) {
        // A loss cancels what waits here.
        let _lost = self.context.ask_status();
    }
}

impl Cancel for Functions {
    fn cancel(&self) {
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        for Waiting { function, back, .. } in waiting {
            self.hand(function, HostStatus::Cancelled, back);
        }
    }
}
