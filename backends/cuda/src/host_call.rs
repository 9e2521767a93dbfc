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
    /// A function of a graph.
    Node { node: Arc<NodeFn>, status: HostStatus },
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
        Job::Node { node, status } => node.run(status),
    }
}

/// Hands a job to a callback thread; runs it here, as cancelled, once those have been told to end.
fn hand(context: &Context, job: Job) {
    if let Err(job) = context.callbacks.push(job) {
        run(match job {
            Job::Function { function, then, .. } => Job::Function { function, status: HostStatus::Cancelled, then },
            Job::Node { node, .. } => Job::Node { node, status: HostStatus::Cancelled },
        });
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
    fn cancel(&self) {
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

#[derive(Debug)]
struct NodeState {
    /// Taken out while it runs.
    function: Option<HostFn>,
    /// Replays that have not called it yet.
    expected: u32,
    word: Option<Word>,
}

/// A function that is a node of a graph: called once a replay, of which there is one at a time.
#[derive(Debug)]
pub(crate) struct NodeFn {
    context: Arc<Context>,
    state: Mutex<NodeState>,
}

impl NodeFn {
    /// Value of the word once the function of this replay has returned; 0 before.
    pub(crate) const DONE: u32 = 1;

    /// The context is current.
    pub(crate) fn new(context: Arc<Context>, function: HostFn) -> Result<Arc<Self>, Fault> {
        context
            .callbacks
            .ensure_thread()
            .map_err(|error| Fault::new(FaultKind::OutOfMemory, "host_call").note(format!("no thread: {error}")))?;
        let word = context.words.take_node(&context)?;
        let state = NodeState { function: Some(function), expected: 0, word: Some(word) };
        let node = Arc::new(Self { context: Arc::clone(&context), state: Mutex::new(state) });
        let this: Arc<dyn Cancel> = node.clone();
        context.register(Arc::downgrade(&this));
        Ok(node)
    }

    pub(crate) fn word(&self) -> u64 {
        self.state.lock().word.as_ref().map_or(0, |word| word.device)
    }

    /// A replay that will call it is being enqueued.
    pub(crate) fn expect(&self) {
        self.state.lock().expected += 1;
    }

    /// That replay was refused.
    pub(crate) fn expect_no_more(&self) {
        let mut state = self.state.lock();
        state.expected = state.expected.saturating_sub(1);
    }

    fn begin(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.expected == 0 {
            return;
        }
        state.expected -= 1;
        if let Some(word) = &state.word {
            word.set(0);
        }
        drop(state);
        hand(&self.context, Job::Node { node: Arc::clone(self), status: HostStatus::Run });
    }

    fn run(&self, status: HostStatus) {
        let function = self.state.lock().function.take();
        if let Some(mut function) = function {
            function.call(status);
            self.state.lock().function = Some(function);
        }
        if let Some(word) = &self.state.lock().word {
            word.set(Self::DONE);
        }
    }
}

impl Cancel for NodeFn {
    fn cancel(&self) {
        let mut state = self.state.lock();
        let calls = std::mem::take(&mut state.expected);
        let function = if calls > 0 { state.function.take() } else { None };
        if let Some(word) = &state.word {
            word.set(Self::DONE);
        }
        drop(state);
        if let Some(function) = function {
            let mut left = calls;
            let mut function = function;
            let all = HostFn::new(move |status| {
                while left > 0 {
                    left -= 1;
                    function.call(status);
                }
            });
            hand(&self.context, Job::Function { function: all, status: HostStatus::Cancelled, then: None });
        }
    }
}

impl Drop for NodeFn {
    fn drop(&mut self) {
        if let Some(word) = self.state.lock().word.take() {
            self.context.words.put_node(word);
        }
    }
}

/// What the driver calls in a graph's turn. The pointer is that of an `Arc` which the graph keeps.
pub(crate) unsafe extern "C" fn node_turn(data: *mut c_void) {
    let node = data.cast_const().cast::<NodeFn>();
    // SAFETY: the graph keeps the node while replays of it are under way (H31), so one more count can be taken.
    let node = unsafe {
        Arc::increment_strong_count(node);
        Arc::from_raw(node)
    };
    node.begin();
}
