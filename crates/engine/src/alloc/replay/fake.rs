//! A device that hands out address space only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::policy::MIB;
use super::super::ports::{DeviceMemory, Marks, PortError, RawSegment, Segments, Virtual};

/// Calls to the devices, in order.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Vec<String>>);

impl Log {
    fn push(&self, call: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Inner {
    used: u64,
    next_addr: u64,
    next_token: u64,
    /// By stream: submitted, completed.
    streams: HashMap<u64, (u64, u64)>,
    held: bool,
}

/// A simulated device: so many bytes, addresses that only go up, and streams that complete at once unless held.
///
/// A segment is refused if it does not fit into what is left. Addresses are never used again. While held, streams
/// complete only what is waited for.
#[derive(Debug)]
pub struct FakeDevice {
    index: u32,
    total: u64,
    log: Option<std::sync::Arc<Log>>,
    inner: Mutex<Inner>,
}

impl FakeDevice {
    pub(super) fn new(index: u32, total: u64, log: Option<std::sync::Arc<Log>>) -> Self {
        let inner = Inner { used: 0, next_addr: 1 << 40, next_token: 0, streams: HashMap::new(), held: false };
        FakeDevice { index, total, log, inner: Mutex::new(inner) }
    }

    /// A device of `total` bytes, for tests and benchmarks.
    pub fn quiet(total: u64) -> Self {
        FakeDevice::new(0, total, None)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, call: impl FnOnce(u32) -> String) {
        if let Some(log) = &self.log {
            log.push(call(self.index));
        }
    }

    /// Holds all streams, or lets them go and completes everything.
    pub fn hold(&self, held: bool) {
        let mut inner = self.inner();
        inner.held = held;
        if !held {
            inner.streams.values_mut().for_each(|(submitted, completed)| *completed = *submitted);
        }
    }

    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.inner().used
    }
}

impl Inner {
    /// Addresses for so many bytes, as long as there are any that were not used before.
    fn place(&mut self, len: u64) -> Result<RawSegment, PortError> {
        let end = len.checked_next_multiple_of(2 * MIB).and_then(|len| self.next_addr.checked_add(len));
        let segment = RawSegment { token: self.next_token, addr: self.next_addr, len };
        self.next_addr = end.ok_or(PortError::OutOfMemory)?;
        self.next_token += 1;
        Ok(segment)
    }
}

impl Segments for FakeDevice {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let mut inner = self.inner();
        if len > self.total - inner.used {
            self.log(|d| format!("X{d}:{len}"));
            return Err(PortError::OutOfMemory);
        }
        let segment = inner.place(len)?;
        inner.used += len;
        self.log(|d| format!("M{d}.{}:{len}", segment.token));
        Ok(segment)
    }

    fn free(&self, segment: RawSegment, _stream: u64) -> Result<(), PortError> {
        self.inner().used -= segment.len;
        self.log(|d| format!("F{d}.{}:{}", segment.token, segment.len));
        Ok(())
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { total: self.total, free: Some(self.total - self.inner().used) }
    }
}

impl Virtual for FakeDevice {
    fn reserve(&self, len: u64, _unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let range = self.inner().place(len)?;
        self.log(|d| format!("R{d}.{}:{len}", range.token));
        Ok(range)
    }

    fn release(&self, range: RawSegment) -> Result<(), PortError> {
        self.log(|d| format!("V{d}.{}:{}", range.token, range.len));
        Ok(())
    }

    fn map(&self, range: RawSegment, offset: u64, len: u64, unit: u64) -> Result<(), PortError> {
        let mut inner = self.inner();
        if len > self.total - inner.used {
            self.log(|d| format!("C{d}:{unit}"));
            return Err(PortError::OutOfMemory);
        }
        inner.used += len;
        for at in (offset..offset + len).step_by(unit as usize) {
            self.log(|d| format!("m{d}.{}+{at}:{unit}", range.token));
        }
        Ok(())
    }

    fn unmap(&self, range: RawSegment, offset: u64, len: u64, unit: u64, _stream: u64) -> Result<(), PortError> {
        self.inner().used -= len;
        for at in (offset..offset + len).step_by(unit as usize) {
            self.log(|d| format!("u{d}.{}+{at}:{unit}", range.token));
        }
        Ok(())
    }
}

impl Marks for FakeDevice {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        let mut inner = self.inner();
        let held = inner.held;
        let (submitted, completed) = inner.streams.entry(stream).or_default();
        *submitted += 1;
        if !held {
            *completed = *submitted;
        }
        Ok(*submitted)
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.inner().streams.get(&stream).map_or(0, |s| s.1))
    }

    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
        if let Some((_, completed)) = self.inner().streams.get_mut(&stream) {
            *completed = (*completed).max(mark);
        }
        Ok(())
    }
}
