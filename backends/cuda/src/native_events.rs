//! Events that other processes or libraries can name (H32).

use crate::device::{CudaDevice, unknown};
use crate::stream::Event;
use crate::sys::*;
use anyaccel_hal::{Fault, NativeEvent, NativeEvents, NativeEventsLimits, StreamId};

/// Bytes of an interprocess handle.
const BYTES: usize = 64;

impl CudaDevice {
    /// # Safety
    /// H1.
    unsafe fn event(&self, event: NativeEvent, api: &'static str) -> Result<&Event, Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.machine.events.get(event.0) }.ok_or_else(|| unknown(api, "event"))
    }
}

impl NativeEvents for CudaDevice {
    fn limits(&self) -> NativeEventsLimits {
        NativeEventsLimits { ipc_bytes: if self.limits.shared_events { BYTES as u32 } else { 0 } }
    }

    fn create(&self, interprocess: bool) -> Result<NativeEvent, Fault> {
        let _current = self.context.enter()?;
        let shared = if interprocess { CU_EVENT_INTERPROCESS } else { 0 };
        let event = Event::new(&self.context, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC | shared)?;
        Ok(NativeEvent(self.machine.events.insert(event)))
    }

    unsafe fn record(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (event, stream) = unsafe { (self.event(event, "event.record")?, self.stream(stream, "event.record")?) };
        let _current = self.context.enter()?;
        // SAFETY: both live.
        let recorded = unsafe { self.context.cuda.cuEventRecord(event.raw, stream.raw) };
        stream.touch();
        self.context.check(recorded)
    }

    unsafe fn wait(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (event, stream) = unsafe { (self.event(event, "event.wait")?, self.stream(stream, "event.wait")?) };
        let _current = self.context.enter()?;
        // SAFETY: both live.
        let waited = unsafe { self.context.cuda.cuStreamWaitEvent(stream.raw, event.raw, 0) };
        stream.touch();
        self.context.check(waited)
    }

    unsafe fn export(&self, event: NativeEvent, handle: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let event = unsafe { self.event(event, "event.export")? };
        let len = handle.len();
        let Some(room) = handle.get_mut(..BYTES) else {
            return Err(Fault::invalid("event.export", format!("room for {len} bytes of {BYTES}")));
        };
        let _current = self.context.enter()?;
        let mut native = CUipcEventHandle { reserved: [0; BYTES] };
        // SAFETY: a valid place for the answer; the event lives.
        self.context.check(unsafe { self.context.cuda.cuIpcGetEventHandle(&raw mut native, event.raw) })?;
        room.copy_from_slice(&native.reserved);
        Ok(())
    }

    fn import(&self, handle: &[u8]) -> Result<NativeEvent, Fault> {
        let Ok(reserved) = handle.try_into() else {
            return Err(Fault::invalid("event.import", format!("{} bytes, not {BYTES}", handle.len())));
        };
        let _current = self.context.enter()?;
        let mut raw = CUevent::NULL;
        // SAFETY: a valid place for the answer; the driver checks the bytes.
        let opened = unsafe { self.context.cuda.cuIpcOpenEventHandle(&raw mut raw, CUipcEventHandle { reserved }) };
        self.context.check(opened)?;
        Ok(NativeEvent(self.machine.events.insert(Event::adopt(&self.context, raw))))
    }

    unsafe fn native(&self, event: NativeEvent) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.event(event, "event.native") }.map_or(0, |event| event.raw.0 as u64)
    }

    unsafe fn destroy(&self, event: NativeEvent) {
        drop(self.machine.events.remove(event.0));
    }
}
