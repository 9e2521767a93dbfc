//! Gates: events that streams wait for until the host signals them (H30).

use crate::device::{XpuDevice, unknown};
use crate::platform::Event;
use anyaccel_hal::{Fault, Gate as Handle, Gates, GatesLimits, StreamId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many gates may be closed at a time: events are cheap, so this is only what counts stay sane with.
const CLOSED: u32 = 1 << 16;

/// A gate. `open` says who has signalled the event: only the first may, since it is used again after that.
pub(crate) struct Gate {
    event: Arc<Event>,
    open: AtomicBool,
}

impl Gate {
    pub(crate) fn open(&self) -> Result<(), crate::Failed> {
        if self.open.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // One that was refused can be asked again.
        self.event.signal().inspect_err(|_| self.open.store(false, Ordering::Release))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // It fails on a device that is lost, where nothing waits.
        let _open = self.open();
    }
}

impl Gates for XpuDevice {
    fn limits(&self) -> GatesLimits {
        GatesLimits { closed: CLOSED }
    }

    fn create(&self) -> Result<Handle, Fault> {
        self.context.alive()?;
        let event = Arc::new(self.context.check_shared(Event::new(&self.context.platform))?);
        let gate = Gate { event, open: AtomicBool::new(false) };
        Ok(Handle(self.machine.gates.insert(Arc::new(gate))))
    }

    unsafe fn wait(&self, stream: StreamId, gate: Handle) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (stream, gate) = unsafe {
            let gate = self.machine.gates.get(gate.0).ok_or_else(|| unknown("gate.wait", "gate"))?;
            (self.stream(stream, "gate.wait")?, gate)
        };
        stream.list()?.wait(&gate.event)
    }

    unsafe fn open(&self, gate: Handle) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let gate = unsafe { self.machine.gates.get(gate.0) }.ok_or_else(|| unknown("gate.open", "gate"))?;
        self.context.check(gate.open())
    }

    unsafe fn destroy(&self, gate: Handle) {
        drop(self.machine.gates.remove(gate.0));
    }
}
