//! Functions of the host in streams (H13).
//!
//! # Protocol
//!
//! The driver runs host functions one after the other on a thread of its own, which must not be blocked. So a stream
//! enqueues two things: a call that only hands the function to our callback threads, and a wait for a word of pinned memory
//! that rises when the function has returned. Both under the lock of the stream's functions, so their order is the queue's.
//! A function waits in `waiting` until its turn; whoever takes it out, the driver's call or a cancellation, is the one that
//! calls it. Where the driver has no such waits, its own thread calls the function.

use crate::context::{Cancel, Context};
use crate::node_call::NodeFn;
use crate::sys::{CU_STREAM_WAIT_VALUE_GEQ, CUstream};
use crate::words::Word;
use anyaccel_hal::{Fault, FaultKind, HostFn, HostStatus};
use anyaccel_kit::Mutex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// What callback threads do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A function of a stream.
    Function { function: HostFn, status: HostStatus, then: Option<(Arc<Functions>, u32)> },
    /// A function of a graph, of that generation: what is due of it.
    Node { node: Arc<NodeFn>, generation: u64, status: HostStatus },
}

/// Runs a job, on a thread that may block.
pub(crate) fn run(job: Job) {
    match job {
        Job::Function { mut function, status, then } => {
            function.call(status);
            drop(function);
            if let Some((functions, value)) = then {
                functions.done(value);
            }
        }
        Job::Node { node, generation, status } => node.run(generation, status),
    }
}

/// Hands a job to a callback thread; runs it here, as cancelled, once those have been told to end.
pub(crate) fn hand(context: &Context, job: Job) {
    if let Err(mut job) = context.callbacks.push(job) {
        let (Job::Function { status, .. } | Job::Node { status, .. }) = &mut job;
        *status = HostStatus::Cancelled;
        run(job);
    }
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<(u32, HostFn)>,
    word: Option<Word>,
    /// The value that the word has once all functions given so far have returned.
    last: u32,
}

/// The functions of one stream.
#[derive(Debug)]
pub(crate) struct Functions {
    context: Arc<Context>,
    queue: Mutex<Queue>,
}

impl Functions {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), word: None, last: 0 });
        Arc::new(Self { context, queue })
    }

    /// Enqueues a function. The context is current.
    ///
    /// # Safety
    /// The stream lives (H1).
    pub(crate) unsafe fn enqueue(self: &Arc<Self>, stream: CUstream, function: HostFn) -> Result<(), Fault> {
        let context = &self.context;
        context
            .callbacks
            .ensure_thread()
            .map_err(|error| Fault::new(FaultKind::OutOfMemory, "host_call").note(format!("no thread: {error}")))?;
        let mut queue = self.queue.lock();
        if context.is_lost() {
            return Err(context.lost_fault());
        }
        if queue.word.is_none() {
            let word = context.words.take(context)?;
            queue.last = word.value();
            queue.word = Some(word);
            let this: Arc<dyn Cancel> = self.clone();
            context.register(Arc::downgrade(&this));
        }
        let value = queue.last.wrapping_add(1);
        queue.waiting.push_back((value, function));
        let data = Box::into_raw(Box::new((Arc::clone(self), value)));
        // SAFETY: the stream lives; `turn` takes the box over, exactly once.
        if let Err(failed) = unsafe { context.cuda.cuLaunchHostFunc(stream, turn, data.cast()) } {
            // SAFETY: the call failed, so nobody else has the box.
            drop(unsafe { Box::from_raw(data) });
            let refused = queue.waiting.pop_back();
            drop(queue);
            drop(refused);
            return Err(context.fault(failed));
        }
        queue.last = value;
        if !context.holds {
            return Ok(());
        }
        let address = queue.word.as_ref().map_or(0, |word| word.device);
        // SAFETY: the word's memory stays as long as the context, and the value rises when the function has returned.
        let held = unsafe { context.cuda.cuStreamWaitValue32_v2(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ) };
        drop(queue);
        // The function is enqueued. That the device is lost, later calls tell as well.
        if let Err(failed) = held {
            context.fault(failed);
        }
        Ok(())
    }

    /// A function's turn has come.
    fn begin(self: &Arc<Self>, value: u32) {
        let mut queue = self.queue.lock();
        let at = queue.waiting.iter().position(|&(other, _)| other == value);
        let Some((_, function)) = at.and_then(|at| queue.waiting.remove(at)) else { return };
        drop(queue);
        if !self.context.holds {
            return run(Job::Function { function, status: HostStatus::Run, then: None });
        }
        let then = Some((Arc::clone(self), value));
        hand(&self.context, Job::Function { function, status: HostStatus::Run, then });
    }

    /// It has returned.
    fn done(&self, value: u32) {
        if let Some(word) = &self.queue.lock().word {
            word.raise(value);
        }
    }
}

impl Cancel for Functions {
    fn cancel(self: Arc<Self>) {
        let mut queue = self.queue.lock();
        let waiting = std::mem::take(&mut queue.waiting);
        if let Some(word) = &queue.word {
            word.raise(queue.last);
        }
        drop(queue);
        for (_, function) in waiting {
            hand(&self.context, Job::Function { function, status: HostStatus::Cancelled, then: None });
        }
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        if let Some(word) = self.queue.lock().word.take() {
            self.context.words.put(word);
        }
    }
}

/// What the driver calls in a stream's turn.
unsafe extern "C" fn turn(data: *mut c_void) {
    // SAFETY: the box that `enqueue` made for this call.
    let (functions, value) = *unsafe { Box::from_raw(data.cast::<(Arc<Functions>, u32)>()) };
    functions.begin(value);
}
