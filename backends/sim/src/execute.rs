//! Who runs work: threads that wait, and the thread of the background.

use crate::config::{Deadlock, Execution, Interleaving};
use crate::counters::{Call, Method};
use crate::handle;
use crate::schedule::{Head, UserWork, cancel};
use crate::state::{Held, Shared, State};
use anyaccel_hal::{Fault, FaultKind, Gate, HostFn, StreamId, Until, Waited};
use anyaccel_kit::{CallbackConfig, Callbacks, Thread};
use std::sync::Arc;
use std::time::Instant;

/// A user's code that is to run on a thread that may block.
pub(crate) enum Job {
    Run(UserWork),
    Cancel(HostFn),
}

/// Starts the threads of [`Execution::Background`].
pub(crate) fn start(shared: &Arc<Shared>, generation: u64) -> Result<Thread, Fault> {
    let failed = |error: std::io::Error| Fault::new(FaultKind::Driver, "start").note(error.to_string());
    let theirs = Arc::clone(shared);
    let config = CallbackConfig::named("anyaccel-sim user");
    let callbacks = Callbacks::new(config, move |job| match job {
        Job::Run(user) => theirs.run_user(user),
        Job::Cancel(function) => cancel(function),
    });
    callbacks.ensure_thread().map_err(failed)?;
    shared.lock().callbacks = Some(Arc::new(callbacks));
    let shared = Arc::clone(shared);
    let run = move || {
        let mut state = shared.lock();
        while state.generation == generation {
            state = shared.cancel_all(state);
            let picked = state.pick(true, None);
            if let Some(id) = picked {
                // Nobody waits, so time passes by itself.
                state.now = state.now.max(by_time_end(&state, id));
                state = shared.run(state, id);
            } else if state.cancelled.is_empty() && state.generation == generation {
                state = state.sleep(None).0;
            }
        }
    };
    Thread::spawn("anyaccel-sim", run).map_err(failed)
}

impl Job {
    /// Ends it without a thread of its own: its turn can't come any more.
    pub(crate) fn cancel(self) {
        match self {
            Self::Cancel(function) => cancel(function),
            Self::Run(user) => user.cancel(),
        }
    }
}

fn by_time_end(state: &State, id: StreamId) -> u64 {
    if matches!(state.picker.mode(), Interleaving::ByTime) { state.end_of_head(id) } else { 0 }
}

/// Until when a wait goes on.
#[derive(Clone, Copy)]
enum Goal {
    Mark(u64),
    Operations(u64),
}

impl State {
    fn reached(&self, id: StreamId, goal: Goal) -> bool {
        match (self.streams.get(&id), goal) {
            (None, _) => true,
            (Some(stream), Goal::Mark(mark)) => stream.ended >= mark,
            (Some(stream), Goal::Operations(count)) => stream.done >= count,
        }
    }

    /// The host has seen what ended then.
    pub(crate) fn see(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    fn goal(&mut self, id: StreamId, ordinal: u32, until: Until) -> Result<Goal, Fault> {
        let stream = self.stream(Method::WaitHost, id, ordinal)?;
        let issued = stream.issued;
        match until {
            Until::Now => Ok(Goal::Operations(stream.enqueued)),
            Until::Mark(mark) if mark <= issued => Ok(Goal::Mark(mark)),
            Until::Mark(mark) => {
                let note = format!("mark {mark} was never given out by stream {}", self.named(id.0));
                Err(self.violations.refuse("H1", Method::WaitHost, note))
            }
        }
    }
}

impl Shared {
    /// Takes a step of a ready stream. A user's code runs without the lock: on this thread, or in the background on one
    /// of its own.
    pub(crate) fn run<'a>(self: &'a Arc<Self>, mut state: Held<'a>, id: StreamId) -> Held<'a> {
        if let Some(user) = state.step(id) {
            let callbacks = state.callbacks.clone();
            drop(state);
            match callbacks {
                None => self.run_user(user),
                // It is closed only when nobody is left to wait for the work.
                Some(callbacks) => callbacks.push(Job::Run(user)).unwrap_or_else(Job::cancel),
            }
            state = self.lock();
        }
        self.signal();
        state
    }

    fn run_user(&self, mut user: UserWork) {
        user.run();
        let mut state = self.lock();
        user.report(&mut state);
        self.settle(&mut state);
        drop(state);
        self.signal();
    }

    /// Tells host functions whose turn can't come.
    pub(crate) fn cancel_all<'a>(self: &'a Arc<Self>, mut state: Held<'a>) -> Held<'a> {
        while !state.cancelled.is_empty() {
            let (cancelled, callbacks) = (std::mem::take(&mut state.cancelled), state.callbacks.clone());
            drop(state);
            for function in cancelled {
                match &callbacks {
                    None => cancel(function),
                    Some(callbacks) => callbacks.push(Job::Cancel(function)).unwrap_or_else(Job::cancel),
                }
            }
            state = self.lock();
        }
        state
    }

    /// After a change: what runs at once, runs.
    pub(crate) fn settle(&self, state: &mut State) {
        if matches!(state.picker.mode(), Interleaving::Eager | Interleaving::ByTime) {
            state.look();
        }
    }

    /// Changes something and lets others see it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.settle(&mut state);
        drop(state);
        self.signal();
        result
    }

    /// Runs all that can run, users' code too, and waits for what runs on other threads.
    pub(crate) fn run_all(self: &Arc<Self>) {
        let mut state = self.lock();
        loop {
            state = self.cancel_all(state);
            let ready = state.ready(true);
            let picked = state.pick(true, ready.first().copied());
            if let Some(id) = picked {
                let end = by_time_end(&state, id);
                state.see(end);
                state = self.run(state, id);
            } else if state.streams.values().any(|stream| stream.running) {
                state = state.sleep(None).0;
            } else {
                let all: Vec<_> = state.streams.keys().copied().collect();
                all.into_iter().for_each(|id| state.host_sees_all(id));
                return;
            }
        }
    }

    /// `Device::wait_host`.
    pub(crate) fn wait_host(
        self: &Arc<Self>,
        ordinal: u32,
        id: StreamId,
        until: Until,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        let amount = if let Until::Mark(mark) = until { mark } else { 0 };
        let mut call = Call::new(Method::WaitHost).stream(id).amount(amount);
        call.device = Some(ordinal);
        let mut state = self.lock();
        let admitted = state.admit(call);
        let number = state.ledger.last();
        let result = match admitted {
            Ok(()) => self.wait_admitted(state, ordinal, id, until, deadline),
            Err(fault) => {
                drop(state);
                Err(fault)
            }
        };
        if let Err(fault) = &result {
            self.lock().ledger.failed(number, fault.kind);
        }
        result
    }

    fn wait_admitted<'a>(
        self: &'a Arc<Self>,
        mut state: Held<'a>,
        ordinal: u32,
        id: StreamId,
        until: Until,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_nanos() as u64);
        let virtual_deadline = left.map(|left| state.now.saturating_add(left));
        let lost = || Fault::new(FaultKind::DeviceLost, Method::WaitHost.name());
        let goal = state.goal(id, ordinal, until)?;
        loop {
            state = self.cancel_all(state);
            if state.device(ordinal).lost {
                return Err(lost());
            }
            if state.reached(id, goal) {
                break;
            }
            let background = self.config.execution == Execution::Background;
            let (at, head) = state.hangs_on(id);
            let held_up = match head {
                Head::Ready | Head::ReadyUserCode => {
                    let picked = state.pick(background, Some(at)).unwrap_or(at);
                    let end = by_time_end(&state, picked);
                    if virtual_deadline.is_none_or(|deadline| end <= deadline) {
                        state.see(end);
                        state = self.run(state, picked);
                        continue;
                    }
                    None
                }
                Head::Closed(gate) if state.gates.get(&gate).is_some_and(|gate| gate.by_waiters) => {
                    state.open_gate(gate);
                    continue;
                }
                Head::Closed(gate) => {
                    // Let the others come as far as they can before this thread gives up or sleeps.
                    let other = state.pick(background, None).map(|other| (other, by_time_end(&state, other)));
                    if let Some((other, end)) = other.filter(|&(_, end)| virtual_deadline.is_none_or(|at| end <= at)) {
                        state.see(end);
                        state = self.run(state, other);
                        continue;
                    }
                    Some((at, gate))
                }
                // Nothing there: what was awaited ended in between.
                Head::Empty | Head::Behind(_) => continue,
                Head::Running => {
                    let (next, in_time) = state.sleep(deadline);
                    state = next;
                    if in_time || state.reached(id, goal) {
                        continue;
                    }
                    return Ok(Waited::TimedOut);
                }
            };
            let others_act = state.streams.values().any(|stream| stream.running);
            if self.config.deadlock == Deadlock::Fault && !others_act {
                return match (virtual_deadline, held_up) {
                    (Some(deadline), _) => {
                        state.see(deadline);
                        Ok(Waited::TimedOut)
                    }
                    (None, held_up) => Err(stuck(&state, held_up)),
                };
            }
            let (next, in_time) = state.sleep(deadline);
            state = next;
            if !in_time && !state.reached(id, goal) {
                return Ok(Waited::TimedOut);
            }
        }
        let fault = match state.streams.get_mut(&id) {
            None => None,
            Some(stream) => {
                let time = match goal {
                    Goal::Mark(mark) => stream.times.of(mark),
                    Goal::Operations(_) => stream.time,
                };
                let fault = stream.fault.take();
                state.see(time);
                match goal {
                    Goal::Mark(mark) => state.host_sees_mark(id, mark),
                    Goal::Operations(_) => state.host_sees_all(id),
                }
                fault
            }
        };
        match fault {
            Some(fault) => Err(fault),
            None => Ok(Waited::Ended),
        }
    }
}

fn stuck(state: &State, held_up: Option<(StreamId, Gate)>) -> Fault {
    let note = match held_up {
        Some((id, gate)) => {
            let what = if state.gates.get(&gate).is_some_and(|gate| gate.hold) { "hold" } else { "gate" };
            format!("stream {} is held up by {what} {}, which nobody opens", state.named(id.0), handle::short(gate.0))
        }
        None => String::from("nothing can run"),
    };
    Fault::invalid(Method::WaitHost.name(), note)
}
