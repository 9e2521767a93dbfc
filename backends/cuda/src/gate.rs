//! Gates: words that streams wait for until the host raises them (H30).

use crate::context::Context;
use crate::device::{CudaDevice, unknown};
use crate::sys::CU_STREAM_WAIT_VALUE_GEQ;
use crate::words::Word;
use anyaccel_hal::{Fault, Gate as Handle, Gates, GatesLimits, StreamId};
use std::sync::Arc;

/// How many gates may be closed at a time: words are cheap, so this is only what counts stay sane with.
const CLOSED: u32 = 1 << 16;

pub(crate) struct Gate {
    context: Arc<Context>,
    word: Option<Word>,
    /// The value of an open gate.
    value: u32,
}

impl Gate {
    pub(crate) fn open(&self) {
        if let Some(word) = &self.word {
            word.raise(self.value);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        if let Some(word) = self.word.take() {
            self.context.words.put(word);
        }
    }
}

impl Gates for CudaDevice {
    fn limits(&self) -> GatesLimits {
        GatesLimits { closed: CLOSED }
    }

    fn create(&self) -> Result<Handle, Fault> {
        let _current = self.context.enter()?;
        let word = self.context.words.take(&self.context)?;
        let value = word.value().wrapping_add(1);
        let gate = Gate { context: Arc::clone(&self.context), word: Some(word), value };
        Ok(Handle(self.machine.gates.insert(Arc::new(gate))))
    }

    unsafe fn wait(&self, stream: StreamId, gate: Handle) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (stream, gate) = unsafe {
            let gate = self.machine.gates.get(gate.0).ok_or_else(|| unknown("gate.wait", "gate"))?;
            (self.stream(stream, "gate.wait")?, gate)
        };
        let _current = self.context.enter()?;
        let address = gate.word.as_ref().map_or(0, |word| word.device);
        // SAFETY: the stream lives; the word's memory stays as long as the context.
        let waited = unsafe {
            self.context.cuda.cuStreamWaitValue32_v2(stream.raw, address, gate.value, CU_STREAM_WAIT_VALUE_GEQ)
        };
        stream.touch();
        self.context.check(waited)
    }

    unsafe fn open(&self, gate: Handle) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.machine.gates.get(gate.0) }.ok_or_else(|| unknown("gate.open", "gate"))?.open();
        Ok(())
    }

    unsafe fn destroy(&self, gate: Handle) {
        drop(self.machine.gates.remove(gate.0));
    }
}
