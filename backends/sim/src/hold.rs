//! Holds and gates: points of a stream that the host lets go.
//!
//! Both are the same thing below: a gate, open or closed, and closed for good never. A hold is a gate of the test's, made
//! with its wait; a gate is the hal's, for whoever drives the device.

use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::order::Knowledge;
use crate::sim::Sim;
use crate::state::State;
use crate::stream::Work;
use anyaccel_hal::{Fault, FaultKind, Gate, Gates, GatesLimits, StreamId};
use std::sync::Arc;

/// What is known of a gate.
pub(crate) struct GateState {
    pub(crate) ordinal: u32,
    pub(crate) open: bool,
    /// The host's time when it was opened.
    pub(crate) opened: u64,
    /// What the host knew then.
    pub(crate) knows: Arc<Knowledge>,
    /// Whoever waits for work behind it opens it.
    pub(crate) by_waiters: bool,
    /// A test's.
    pub(crate) hold: bool,
}

impl State {
    pub(crate) fn add_gate(&mut self, ordinal: u32, by_waiters: bool, hold: bool) -> Gate {
        let gate = Gate(self.handles.give(ordinal));
        self.gates.insert(gate, GateState { ordinal, open: false, opened: 0, knows: Arc::default(), by_waiters, hold });
        gate
    }

    pub(crate) fn open_gate(&mut self, gate: Gate) {
        let (now, host) = (self.now, Arc::clone(&self.host));
        if let Some(state) = self.gates.get_mut(&gate).filter(|state| !state.open) {
            state.open = true;
            state.opened = now;
            state.knows = host;
        }
    }

    fn gate(&mut self, method: Method, gate: Gate, ordinal: u32) -> Result<(), Fault> {
        match self.gates.get(&gate) {
            Some(state) if state.ordinal == ordinal && !state.hold => Ok(()),
            _ => Err(self.unknown(method, "gate", gate.0, ordinal)),
        }
    }
}

/// A point of a stream that work behind it does not pass until the test says so.
///
/// Dropping it releases it, unless it was made to be released by whoever waits.
#[derive(Debug)]
#[must_use = "dropping a hold releases it"]
pub struct Hold {
    sim: Sim,
    gate: Gate,
    kept: bool,
}

impl Hold {
    pub(crate) fn new(sim: Sim, stream: StreamId, by_waiters: bool) -> Result<Self, Fault> {
        let shared = sim.shared().clone();
        let mut state = shared.lock();
        let ordinal = state.ordinal_of(stream).ok_or_else(|| Fault::invalid("hold", "no such stream"))?;
        let gate = state.add_gate(ordinal, by_waiters, true);
        state.enqueue(stream, Work::Gate(gate));
        drop(state);
        Ok(Self { sim, gate, kept: by_waiters })
    }

    /// Lets the stream go. What can run now runs as the interleaving says, when somebody looks or at once.
    pub fn release(mut self) {
        self.kept = false;
    }

    /// Whether it has been let go, be it by a waiter.
    pub fn is_released(&self) -> bool {
        self.sim.shared().lock().gates.get(&self.gate).is_none_or(|gate| gate.open)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.kept && self.sim.shared().is_of_this_process() {
            self.sim.shared().clone().change(|state| {
                state.open_gate(self.gate);
            });
        }
    }
}

impl Gates for SimDevice {
    fn limits(&self) -> GatesLimits {
        GatesLimits { closed: self.config().closed_gates }
    }

    fn create(&self) -> Result<Gate, Fault> {
        self.call(Call::new(Method::GateCreate), |state, ordinal| {
            let closed = |gate: &&GateState| gate.ordinal == ordinal && !gate.open && !gate.hold;
            let count = state.gates.values().filter(closed).count();
            let limit = state.device(ordinal).config.closed_gates;
            if count as u64 >= u64::from(limit) {
                let note = format!("{count} gates are closed, the most at a time");
                return Err(Fault::new(FaultKind::OutOfMemory, Method::GateCreate.name()).note(note));
            }
            Ok(state.add_gate(ordinal, false, false))
        })
    }

    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        let call = Call::new(Method::GateWait).stream(stream).amount(gate.0);
        self.call(call, |state, ordinal| {
            state.stream(Method::GateWait, stream, ordinal)?;
            state.gate(Method::GateWait, gate, ordinal)?;
            state.enqueue(stream, Work::Gate(gate));
            Ok(())
        })
    }

    unsafe fn open(&self, gate: Gate) -> Result<(), Fault> {
        self.call(Call::new(Method::GateOpen).amount(gate.0), |state, ordinal| {
            state.gate(Method::GateOpen, gate, ordinal)?;
            state.open_gate(gate);
            Ok(())
        })
    }

    unsafe fn destroy(&self, gate: Gate) {
        self.call_infallible(Call::new(Method::GateDestroy).amount(gate.0), |state, ordinal| {
            if state.gate(Method::GateDestroy, gate, ordinal).is_ok() {
                // A gate that is not there holds nobody up.
                state.gates.remove(&gate);
            }
        })
    }
}
