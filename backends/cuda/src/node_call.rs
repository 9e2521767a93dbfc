//! Functions of the host in graphs (H13, H31).
//!
//! # Protocol
//!
//! A function of a graph becomes two nodes, as it becomes two operations in a stream (see
//! [`host_call`](crate::host_call)): one that hands it to our callback threads, and one that waits for a word. The first node
//! sets the word to 0, whoever called the function sets it to [`NodeFn::DONE`].
//!
//! Replays are ordered one after the other, so the driver's calls come in the order in which replays were enqueued. That is
//! what lets the function be replaced while replays are under way, without a word to the driver: each replacement begins a
//! *generation*, which counts the replays that were enqueued while it was the newest. The driver's next call belongs to the
//! oldest generation that still expects one.
//!
//! All is under one lock, but a call: who calls a function has taken it out, and looks for more that is due of it before
//! putting it back. Who finds it taken out leaves the call to the other. A generation goes once nothing is expected or due
//! of it and there is a newer one, the last with the node.

use crate::context::{Cancel, Context};
use crate::host_call::{Job, hand};
use crate::words::Word;
use anyaccel_hal::{Fault, FaultKind, HostFn, HostStatus};
use anyaccel_kit::Mutex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// What the function was between two replacements.
#[derive(Debug)]
pub(crate) struct Generation {
    number: u64,
    /// Taken out while it is called.
    function: Option<HostFn>,
    /// Replays that the driver has not called it for yet.
    expected: u32,
    /// Calls that nobody has begun yet.
    due: VecDeque<HostStatus>,
}

#[derive(Debug)]
struct State {
    /// The oldest first; never empty before the end.
    generations: VecDeque<Generation>,
    word: Option<Word>,
}

impl State {
    /// Takes out the generations that are over; dropped by the caller, without the lock.
    fn over(&mut self) -> Vec<Generation> {
        let newest = self.generations.back().map(|newest| newest.number);
        let is_over = |old: &mut Generation| {
            Some(old.number) != newest && old.function.is_some() && old.expected == 0 && old.due.is_empty()
        };
        let mut over = Vec::new();
        while let Some(old) = self.generations.pop_front_if(is_over) {
            over.push(old);
        }
        over
    }

    fn set(&self, value: u32) {
        if let Some(word) = &self.word {
            word.set(value);
        }
    }
}

/// A function that is a node of a graph: called once a replay, of which there is one at a time.
#[derive(Debug)]
pub(crate) struct NodeFn {
    context: Arc<Context>,
    state: Mutex<State>,
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
        let first = Generation { number: 0, function: Some(function), expected: 0, due: VecDeque::new() };
        let state = State { generations: [first].into(), word: Some(word) };
        let node = Arc::new(Self { context: Arc::clone(&context), state: Mutex::new(state) });
        let this: Arc<dyn Cancel> = node.clone();
        context.register(Arc::downgrade(&this));
        Ok(node)
    }

    pub(crate) fn word(&self) -> u64 {
        self.state.lock().word.as_ref().map_or(0, |word| word.device)
    }

    /// Replaces the function for replays that are enqueued from now on, and returns what is over, to be dropped without any
    /// lock. Not between [`Self::expect`] and the end of the driver's call that it is for.
    pub(crate) fn replace(&self, function: HostFn) -> Vec<Generation> {
        let mut state = self.state.lock();
        let number = state.generations.back().map_or(0, |newest| newest.number + 1);
        state.generations.push_back(Generation { number, function: Some(function), expected: 0, due: VecDeque::new() });
        state.over()
    }

    /// A replay that will call it is being enqueued.
    pub(crate) fn expect(&self) {
        if let Some(newest) = self.state.lock().generations.back_mut() {
            newest.expected += 1;
        }
    }

    /// That replay was refused.
    pub(crate) fn expect_no_more(&self) {
        if let Some(newest) = self.state.lock().generations.back_mut() {
            newest.expected = newest.expected.saturating_sub(1);
        }
    }

    /// The driver ends, and the graph goes while replays may still be under way: lets go of the functions. What the driver
    /// still calls finds none.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        let ended = std::mem::take(&mut state.generations);
        state.set(Self::DONE);
        drop(state);
        drop(ended);
    }

    /// Its turn has come.
    fn begin(self: &Arc<Self>) {
        let mut state = self.state.lock();
        // None: it was cancelled.
        let Some(current) = state.generations.iter_mut().find(|one| one.expected > 0) else { return };
        current.expected -= 1;
        current.due.push_back(HostStatus::Run);
        let generation = current.number;
        state.set(0);
        drop(state);
        hand(&self.context, Job::Node { node: Arc::clone(self), generation, status: HostStatus::Run });
    }

    /// Calls what is due of a generation, unless another thread is about it; all as cancelled, if that is the status.
    pub(crate) fn run(&self, generation: u64, status: HostStatus) {
        let mut taken: Option<HostFn> = None;
        let over = loop {
            let mut state = self.state.lock();
            let Some(current) = state.generations.iter_mut().find(|one| one.number == generation) else { return };
            let Some(mut function) = taken.take().or_else(|| current.function.take()) else { return };
            let Some(due) = current.due.pop_front() else {
                current.function = Some(function);
                break state.over();
            };
            drop(state);
            let cancelled = status == HostStatus::Cancelled || due == HostStatus::Cancelled;
            function.call(if cancelled { HostStatus::Cancelled } else { HostStatus::Run });
            taken = Some(function);
            if due == HostStatus::Run {
                self.state.lock().set(Self::DONE);
            }
        };
        drop(over);
    }
}

impl Cancel for NodeFn {
    fn cancel(self: Arc<Self>) {
        let mut state = self.state.lock();
        let mut cancelled = Vec::new();
        for one in &mut state.generations {
            let calls = std::mem::take(&mut one.expected);
            one.due.extend((0..calls).map(|_| HostStatus::Cancelled));
            if calls > 0 {
                cancelled.push(one.number);
            }
        }
        state.set(Self::DONE);
        drop(state);
        for generation in cancelled {
            hand(&self.context, Job::Node { node: Arc::clone(&self), generation, status: HostStatus::Run });
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
