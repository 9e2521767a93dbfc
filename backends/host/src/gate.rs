//! Gates: waits that the host ends (H30).
//!
//! A gate opens once. Opening and registering are under its lock, so a stream that registers either finds it open or is
//! woken by who opens it.

use crate::device::HostDevice;
use crate::op::Op;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::wait::Waiter;
use anyaccel_hal::{Fault, Gate, Gates, GatesLimits, StreamId};
use std::sync::Arc;

/// A gate and who waits for it.
pub(crate) struct GateState {
    open: AtomicBool,
    waiting: Mutex<Vec<Waiter>>,
}

impl GateState {
    pub(crate) fn new() -> Self {
        Self { open: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Registers who waits; false if the gate is open, then nothing was registered.
    pub(crate) fn register(&self, waiter: Waiter) -> bool {
        let mut waiting = self.waiting.lock();
        if self.is_open() {
            return false;
        }
        waiting.push(waiter);
        true
    }

    /// Opens it for good.
    pub(crate) fn open(&self) {
        let mut waiting = self.waiting.lock();
        self.open.store(true, Ordering::Release);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(Waiter::wake);
    }
}

impl Gates for HostDevice {
    fn limits(&self) -> GatesLimits {
        GatesLimits { closed: u32::MAX }
    }

    fn create(&self) -> Result<Gate, Fault> {
        Ok(Gate(self.machine().gates.insert(Arc::new(GateState::new()))))
    }

    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (stream, gate) = unsafe { (self.stream(stream, "gate_wait")?, self.gate(gate, "gate_wait")?) };
        if !gate.is_open() {
            // Submitted at once, so that the gate holds up a stream that runs, and opening is enough to let it go on.
            stream.push_and_submit(Op::Gate(Arc::clone(gate)));
        }
        Ok(())
    }

    unsafe fn open(&self, gate: Gate) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.gate(gate, "gate_open")? }.open();
        Ok(())
    }

    unsafe fn destroy(&self, gate: Gate) {
        if let Some(gate) = self.machine().gates.remove(gate.0) {
            gate.open();
        }
    }
}
