//! The engine's ports over a native device: segments, growable ranges and marks.
//!
//! # Protocol
//!
//! The cache names streams by number and may do so after a stream is gone (a block that it used still waits). `streams`
//! says which numbers are alive. A call about a stream is made under the read lock, and a stream is destroyed only after
//! it was taken out under the write lock, so no native call ever names a destroyed stream (H1). A stream that is gone
//! has ended all its work. Streams of other devices that used this device's memory are known by their own `Native`. A
//! wait is too long for the lock: it holds the stream's token instead, and a stream is not taken out while one is held.
//!
//! Once `closed`, nothing is given back piece by piece and nothing is waited for: the native device frees all of it when it
//! goes (H25).

use crate::fork::{self, Fenced};
use crate::interrupt;
use anyaccel_engine::alloc::{DeviceMemory, Marks, PortError, RawSegment, Segments, Settings, Virtual};
use anyaccel_engine::pinned::{HostPolicy, HostSegments, RawHost};
use anyaccel_hal::{self as hal, Fault, FaultKind, Mark, Mem, Range, StreamId, Until, WaitMode, Waited};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

enum Owner {
    /// With the token of who waits for it.
    Own(Arc<()>),
    /// With what its `Native` went with.
    Foreign(Weak<Native>, Arc<AtomicBool>),
}

/// A native device as the engine sees it.
pub(super) struct Native {
    pub(super) hal: Fenced<Arc<dyn hal::Device>>,
    streams: RwLock<HashMap<u64, Owner>>,
    /// The handle of each range, by the name of its memory.
    ranges: Mutex<HashMap<u64, Range>>,
    /// Whether `streams` has any of other devices.
    foreigners: AtomicBool,
    /// Ordinary host memory that stands in for pinned memory, by address.
    ordinary: Mutex<HashMap<u64, Box<[u64]>>>,
    /// Shared with those that know streams of this device: work may have been left on them.
    closed: Arc<AtomicBool>,
    epoch: u64,
}

impl Native {
    pub(super) fn new(hal: Arc<dyn hal::Device>) -> Self {
        Self {
            hal: Fenced::new(hal),
            streams: RwLock::default(),
            ranges: Mutex::default(),
            foreigners: AtomicBool::new(false),
            ordinary: Mutex::default(),
            closed: Arc::default(),
            epoch: fork::epoch(),
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn streams(&self) -> RwLockReadGuard<'_, HashMap<u64, Owner>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of this device is there.
    pub(super) fn add_stream(&self, raw: StreamId) {
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(raw.0, Owner::Own(Arc::default()));
    }

    /// A stream of another device uses memory of this one.
    pub(super) fn add_foreign(&self, raw: StreamId, owner: &Arc<Native>) {
        if !self.streams().contains_key(&raw.0) {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            let foreign = || Owner::Foreign(Arc::downgrade(owner), Arc::clone(&owner.closed));
            streams.entry(raw.0).or_insert_with(foreign);
            self.foreigners.store(true, Ordering::Release);
        }
    }

    /// Forgets streams of other devices that are gone, with all their work ended, and says which they were.
    pub(super) fn forget_foreigners(&self) -> Vec<StreamId> {
        if !self.foreigners.load(Ordering::Acquire) {
            return Vec::new();
        }
        let owners: Vec<(u64, Weak<Native>)> = {
            let streams = self.streams();
            let foreign = streams.iter().filter_map(|(&raw, owner)| match owner {
                Owner::Own(_) => None,
                // Work may be left on its streams.
                Owner::Foreign(_, closed) if closed.load(Ordering::Acquire) => None,
                Owner::Foreign(owner, _) => Some((raw, Weak::clone(owner))),
            });
            foreign.collect()
        };
        // Without this device's lock: two devices may know each other's streams.
        let there =
            |(raw, owner): &(u64, Weak<Native>)| owner.upgrade().is_some_and(|owner| owner.streams().contains_key(raw));
        let gone: Vec<u64> = owners.into_iter().filter(|entry| !there(entry)).map(|(raw, _)| raw).collect();
        if !gone.is_empty() {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            gone.iter().for_each(|raw| {
                streams.remove(raw);
            });
        }
        gone.into_iter().map(StreamId).collect()
    }

    /// The streams of this device that are not destroyed.
    pub(super) fn own_streams(&self) -> Vec<StreamId> {
        let streams = self.streams();
        let own = streams.iter().filter(|(_, owner)| matches!(owner, Owner::Own(_)));
        own.map(|(&raw, _)| StreamId(raw)).collect()
    }

    /// A stream goes, with all its work ended: destroyed once nobody can name it any more. False while somebody who waited
    /// for it has not come back.
    pub(super) fn destroy_stream(&self, raw: StreamId) -> bool {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Owner::Own(token)) = streams.get_mut(&raw.0)
            && Arc::get_mut(token).is_none()
        {
            return false;
        }
        streams.remove(&raw.0);
        drop(streams);
        // SAFETY: H1: its lane is gone, its work has ended, and calls by number no longer reach it. Once: it is removed
        // from the retired list by the caller. A fault leaves the native stream to the driver's end.
        let _left = unsafe { self.hal.destroy_stream(raw) };
        true
    }

    /// Whether no work is left on a stream of this device, nor on one of another device that uses memory of this one.
    pub(super) fn idle(&self) -> bool {
        let streams: Vec<u64> = {
            let streams = self.streams();
            let left = |owner: &Owner| match owner {
                Owner::Own(_) => false,
                Owner::Foreign(_, closed) => closed.load(Ordering::Acquire),
            };
            if streams.values().any(left) {
                return false;
            }
            streams.keys().copied().collect()
        };
        streams.into_iter().all(|stream| match self.mark(stream).and_then(|mark| Ok(self.completed(stream)? >= mark)) {
            Ok(ended) => ended,
            // A lost device has no work any more (H20).
            Err(PortError::DeviceLost(_)) => true,
            Err(_) => false,
        })
    }

    /// Calls about a stream if it is alive, else answers `gone`.
    fn about<T>(
        &self,
        stream: u64,
        gone: T,
        own: impl FnOnce(&dyn hal::Device, StreamId) -> Result<T, PortError>,
        foreign: impl FnOnce(&Native) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(gone);
        }
        let streams = self.streams();
        match streams.get(&stream) {
            Some(Owner::Own(_)) => own(&**self.hal, StreamId(stream)),
            Some(Owner::Foreign(owner, _)) => match owner.upgrade() {
                Some(owner) => {
                    drop(streams);
                    foreign(&owner)
                }
                None => Ok(gone),
            },
            None => Ok(gone),
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire) {
            // Copies under way may still use it, and nobody will hear of their end.
            let ordinary = self.ordinary.get_mut().unwrap_or_else(PoisonError::into_inner);
            ordinary.drain().for_each(|(_, memory)| std::mem::forget(memory));
        } else if self.epoch == fork::epoch() {
            for raw in self.own_streams() {
                // Whoever had its lane is gone, and its work has ended.
                self.destroy_stream(raw);
            }
        }
    }
}

fn port_error(fault: Fault) -> PortError {
    match fault.kind {
        FaultKind::OutOfMemory => PortError::OutOfMemory,
        FaultKind::DeviceLost => PortError::DeviceLost(fault.to_string()),
        _ => PortError::Failed(fault.to_string()),
    }
}

impl Segments for Native {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        if len > self.hal.info().max_alloc {
            return Err(PortError::OutOfMemory);
        }
        let segment = self.hal.alloc(len).map_err(port_error)?;
        Ok(RawSegment { token: segment.mem.0, addr: segment.addr, len })
    }

    fn free(&self, segment: RawSegment, stream: u64) -> Result<(), PortError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.wait_for_home(stream)?;
        // SAFETY: H1, H4: the cache gives a segment back once, when no block of it is in use or waits for a mark; the work
        // of the stream whose blocks they are has been waited for just now.
        unsafe { self.hal.free(Mem(segment.token)) }.map_err(port_error)
    }

    fn memory(&self) -> DeviceMemory {
        let total = self.hal.info().memory;
        match self.hal.memory_info() {
            Ok(info) => DeviceMemory { total: info.total, free: info.free },
            Err(_) => DeviceMemory { total, free: None },
        }
    }
}

impl Virtual for Native {
    fn reserve(&self, len: u64, unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let memory = self.hal.virtual_memory().ok_or_else(|| PortError::Failed("no virtual memory".into()))?;
        if !unit.is_multiple_of(memory.limits().granularity.max(1)) {
            return Err(PortError::Failed(format!("units of {unit} bytes can't be mapped")));
        }
        let (range, segment) = memory.reserve(len).map_err(port_error)?;
        self.ranges().insert(segment.mem.0, range);
        Ok(RawSegment { token: segment.mem.0, addr: segment.addr, len })
    }

    fn release(&self, range: RawSegment) -> Result<(), PortError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (memory, raw) = self.range(range)?;
        // SAFETY: H1, H4: the cache releases a range once, with nothing mapped in it.
        unsafe { memory.release(raw) }.map_err(port_error)?;
        self.ranges().remove(&range.token);
        Ok(())
    }

    fn map(&self, range: RawSegment, offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        let (memory, raw) = self.range(range)?;
        // SAFETY: H1: a range in `ranges` has not been released.
        unsafe { memory.map(raw, offset, len) }.map_err(port_error)
    }

    fn unmap(&self, range: RawSegment, offset: u64, len: u64, _unit: u64, stream: u64) -> Result<(), PortError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.wait_for_home(stream)?;
        let (memory, raw) = self.range(range)?;
        // SAFETY: H1, H4: the cache unmaps units of free blocks, whose work has ended as for `free`.
        unsafe { memory.unmap(raw, offset, len) }.map_err(port_error)
    }
}

impl Native {
    fn range(&self, range: RawSegment) -> Result<(&dyn hal::VirtualMemory, Range), PortError> {
        let memory = self.hal.virtual_memory().ok_or_else(|| PortError::Failed("no virtual memory".into()))?;
        let raw = self.ranges().get(&range.token).copied();
        Ok((memory, raw.ok_or_else(|| PortError::Failed("no such range".into()))?))
    }

    fn ranges(&self) -> MutexGuard<'_, HashMap<u64, Range>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the stream whose blocks a segment holds.
    fn wait_for_home(&self, stream: u64) -> Result<(), PortError> {
        match self.mark(stream) {
            Ok(mark) => self.wait(stream, mark),
            // A lost device has no work any more (H20).
            Err(PortError::DeviceLost(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

impl Marks for Native {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        self.about(
            stream,
            0,
            // SAFETY: H1: alive under the read lock.
            |hal, raw| match unsafe { hal.mark(raw) } {
                Ok(Mark::At(mark)) => Ok(mark),
                Ok(Mark::Captured(_)) => Err(PortError::Failed("the stream is being captured".into())),
                Err(fault) => Err(port_error(fault)),
            },
            |owner| owner.mark(stream),
        )
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        self.about(
            stream,
            u64::MAX,
            // SAFETY: H1: alive under the read lock.
            |hal, raw| unsafe { hal.completed(raw) }.map_err(port_error),
            |owner| owner.completed(stream),
        )
    }

    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
        if self.completed(stream)? >= mark {
            return Ok(());
        }
        let (token, owner) = match self.streams().get(&stream) {
            Some(Owner::Own(token)) => (Some(Arc::clone(token)), None),
            Some(Owner::Foreign(owner, _)) => (None, owner.upgrade()),
            None => (None, None),
        };
        match (token, owner) {
            (Some(token), _) => {
                let until = Until::Mark(mark);
                let waited = interrupt::in_slices(
                    None,
                    || PortError::Interrupted,
                    |slice| {
                        // SAFETY: H1: not destroyed while the token is held; the mark came from this stream.
                        match unsafe { self.hal.wait_host(StreamId(stream), until, slice, WaitMode::Auto) } {
                            Ok(waited) => Ok(waited == Waited::Ended),
                            Err(fault) => Err(port_error(fault)),
                        }
                    },
                );
                drop(token);
                waited.map(|_ended| ())
            }
            (None, Some(owner)) => owner.wait(stream, mark),
            (None, None) => Ok(()),
        }
    }
}

impl Native {
    /// How host memory is rounded and kept for this device.
    pub(super) fn host_policy(&self, settings: &Settings) -> HostPolicy {
        HostPolicy::from_settings(settings, self.hal.pinned().map_or(1, |pinned| pinned.limits().granularity))
    }
}

impl HostSegments for Native {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let bytes = usize::try_from(len).map_err(|_| PortError::OutOfMemory)?;
        let Some(pinned) = self.hal.pinned() else {
            let mut words = Vec::<u64>::new();
            words.try_reserve_exact(bytes.div_ceil(8)).map_err(|_| PortError::OutOfMemory)?;
            words.resize(bytes.div_ceil(8), 0);
            let mut words = words.into_boxed_slice();
            let addr = words.as_mut_ptr().expose_provenance() as u64;
            self.ordinary.lock().unwrap_or_else(PoisonError::into_inner).insert(addr, words);
            return Ok(RawHost { token: 0, addr, len });
        };
        let (mem, ptr) = pinned.alloc(len).map_err(port_error)?;
        // SAFETY: H27: fresh memory, valid for that many bytes, and nobody else's.
        unsafe { ptr.0.write_bytes(0, bytes) };
        Ok(RawHost { token: mem.0, addr: ptr.0.expose_provenance() as u64, len })
    }

    fn free(&self, memory: RawHost) -> Result<(), PortError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.hal.pinned() {
            // SAFETY: H1, H5: the cache gives memory back once, when the copies that used it have ended.
            Some(pinned) => unsafe { pinned.free(Mem(memory.token)) }.map_err(port_error),
            None => {
                drop(self.ordinary.lock().unwrap_or_else(PoisonError::into_inner).remove(&memory.addr));
                Ok(())
            }
        }
    }
}
