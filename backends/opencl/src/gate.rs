//! Gates: events that the host ends.

use crate::device::OpenClDevice;
use crate::object::Event;
use crate::sys::COMPLETE;
use anyaccel_hal::{self as hal, Fault, Gates, GatesLimits, StreamId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A gate. `open` says who has ended the event: only the first may.
pub(crate) struct Gate {
    event: Event,
    open: AtomicBool,
}

impl Gate {
    fn open(&self) -> Result<(), Fault> {
        if self.open.swap(true, Ordering::AcqRel) { Ok(()) } else { self.event.set(COMPLETE) }
    }

    /// Lets go whatever waits.
    pub(crate) fn open_for_good(&self) {
        // It fails for an event that has ended: then nothing waits.
        let _open = self.open();
    }
}

impl Gates for OpenClDevice {
    fn limits(&self) -> GatesLimits {
        GatesLimits { closed: u32::MAX }
    }

    fn create(&self) -> Result<hal::Gate, Fault> {
        let gate = Gate { event: self.part.context.user_event()?, open: AtomicBool::new(false) };
        Ok(hal::Gate(self.machine.gates.insert(Arc::new(gate))))
    }

    unsafe fn wait(&self, stream: StreamId, gate: hal::Gate) -> Result<(), Fault> {
        // SAFETY: H1.
        let (stream, gate) = unsafe { (self.stream(stream)?, self.gate(gate)?) };
        let _order = stream.enqueue();
        stream.queue.barrier(&gate.event)
    }

    unsafe fn open(&self, gate: hal::Gate) -> Result<(), Fault> {
        // SAFETY: H1.
        unsafe { self.gate(gate) }?.open()
    }

    unsafe fn destroy(&self, gate: hal::Gate) {
        if let Some(gate) = self.machine.gates.remove(gate.0) {
            gate.open_for_good();
        }
    }
}

impl OpenClDevice {
    /// # Safety
    /// H1.
    unsafe fn gate(&self, gate: hal::Gate) -> Result<&Gate, Fault> {
        // SAFETY: H1: not removed while this call runs.
        let gate = unsafe { self.machine.gates.get(gate.0) };
        gate.map(|gate| &**gate).ok_or_else(|| Fault::invalid("gate", "an unknown gate"))
    }
}
