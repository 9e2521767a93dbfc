//! Memory: a card's, memory of the host that the card reaches, and ranges that somebody else owns.

use crate::context::Context;
use crate::conv::Failed;
use crate::device::{XpuDevice, unknown};
use crate::sys::*;
use anyaccel_hal::{Fault, HostPtr, Mem, Peers, PeersLimits, Pinned, PinnedLimits, Place, Segment, StreamId};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// Pinned memory is rounded up to this and begins at a multiple of it (H27).
pub(crate) const PAGE: u64 = 4096;
/// What addresses of segments are multiples of.
pub(crate) const ALIGNMENT: u64 = 512;

/// How a range is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// `zeMemAllocDevice`.
    Segment,
    /// Not ours.
    Imported,
    /// A reservation, by its own handle.
    Reserved,
    /// `zeMemAllocHost`.
    Pinned,
    /// `zexDriverImportExternalPointer`.
    Registered,
}

impl Holder {
    const fn is_of_host(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered)
    }
}

/// What a `Mem` names.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The address, which is one and the same for the host and all devices of a context.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) holder: Holder,
    /// The device that it belongs to.
    pub(crate) context: Arc<Context>,
}

/// An address as the interface takes it.
pub(crate) fn pointer(addr: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(addr as usize)
}

impl Memory {
    /// The address of a place, if all of the length is inside.
    #[inline]
    pub(crate) fn part(&self, offset: u64, len: u64, api: &'static str) -> Result<u64, Fault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.addr + offset),
            _ => Err(self.outside(offset, len, api)),
        }
    }

    #[cold]
    fn outside(&self, offset: u64, len: u64, api: &'static str) -> Fault {
        Fault::invalid(api, format!("{len} bytes at {offset} of a memory of {} bytes", self.len))
    }

    /// Gives the range back.
    ///
    /// # Safety
    /// It was taken by the counterpart of its holder, and nobody uses it any more.
    unsafe fn release(&self) -> Result<(), Failed> {
        let platform = &self.context.platform;
        // SAFETY: as this function's caller promises.
        unsafe {
            match self.holder {
                Holder::Segment | Holder::Pinned => platform.ze.zeMemFree(platform.context, pointer(self.addr)),
                Holder::Registered => {
                    platform.extensions.zexDriverReleaseImportedPointer(platform.native.0, pointer(self.addr))
                }
                Holder::Imported | Holder::Reserved => Ok(()),
            }
        }
    }
}

impl Drop for Memory {
    /// What nobody gave back goes with its driver, unless work may still use it.
    fn drop(&mut self) {
        if !self.context.platform.is_busy() && !self.context.is_lost() {
            // SAFETY: nobody has a handle on it any more, and the streams of its driver are idle.
            let _freed = unsafe { self.release() };
        }
    }
}

impl XpuDevice {
    pub(crate) fn take_segment(&self, len: u64) -> Result<Segment, Fault> {
        if len == 0 || len > self.info.max_alloc {
            return Err(Fault::invalid("alloc", format!("{len} bytes, at most {}", self.info.max_alloc)));
        }
        let context = &self.context;
        context.alive()?;
        let (ze, native, size) = (context.ze, context.platform.context, len as usize);
        let mut relaxed = ZeRelaxedAllocationLimitsExpDesc::new();
        relaxed.flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
        let mut desc = ZeDeviceMemAllocDesc::new();
        if len > self.limits.plain_alloc {
            desc.next = (&raw mut relaxed).cast();
        }
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: a valid place for the answer; context and device live.
        context.check(unsafe {
            ze.zeMemAllocDevice(native, &raw const desc, size, ALIGNMENT as usize, context.device, &raw mut at)
        })?;
        // Ok means backed (H3), which an allocation alone need not be.
        // SAFETY: taken just now, with that size.
        let backed = unsafe { ze.zeContextMakeMemoryResident(native, context.device, at, size) };
        if let Err(failed) = backed {
            // SAFETY: taken just now, used by nobody.
            let _freed = unsafe { ze.zeMemFree(native, at) };
            return Err(context.fault(failed));
        }
        let addr = at.expose_provenance() as u64;
        let memory = Memory { addr, len, holder: Holder::Segment, context: Arc::clone(context) };
        Ok(Segment { mem: Mem(self.machine.memory.insert(memory)), addr, len })
    }

    /// # Safety
    /// H1, H4.
    pub(crate) unsafe fn give_back(&self, mem: Mem, api: &'static str, pinned: bool) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let memory = unsafe { self.memory(mem, api)? };
        if memory.holder == Holder::Reserved || memory.holder.is_of_host() != pinned {
            return Err(Fault::invalid(api, "memory of another sort"));
        }
        if !self.context.is_lost() {
            // SAFETY: H1 and H4: no work uses it, and it is forgotten below.
            let freed = unsafe { memory.release() };
            // A device that is lost has let go of it anyway (H20).
            if let Err(fault) = self.context.check(freed)
                && !self.context.is_lost()
            {
                return Err(fault);
            }
        }
        if let Some(mut memory) = self.machine.memory.remove(mem.0) {
            memory.holder = Holder::Imported;
        }
        Ok(())
    }

    fn keep_pinned(&self, host: *mut c_void, len: u64, holder: Holder) -> Mem {
        let addr = host.expose_provenance() as u64;
        let memory = Memory { addr, len, holder, context: Arc::clone(&self.context) };
        Mem(self.machine.memory.insert(memory))
    }
}

impl Pinned for XpuDevice {
    fn limits(&self) -> PinnedLimits {
        PinnedLimits { granularity: PAGE, register: self.limits.register, direct: true }
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        let Some(rounded) = len.checked_next_multiple_of(PAGE).filter(|&len| len > 0 && len < 1 << 60) else {
            return Err(Fault::invalid("pinned.alloc", format!("{len} bytes")));
        };
        self.context.alive()?;
        let platform = &self.context.platform;
        let desc = ZeHostMemAllocDesc::new();
        let mut host: *mut c_void = ptr::null_mut();
        // SAFETY: a valid place for the answer; the context lives.
        self.context.check_shared(unsafe {
            let (native, size) = (platform.context, rounded as usize);
            platform.ze.zeMemAllocHost(native, &raw const desc, size, PAGE as usize, &raw mut host)
        })?;
        Ok((self.keep_pinned(host, rounded, Holder::Pinned), HostPtr(host.cast())))
    }

    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        if !self.limits.register {
            return Err(Fault::unsupported("zexDriverImportExternalPointer"));
        }
        self.context.alive()?;
        let (platform, host) = (&self.context.platform, ptr.0.cast::<c_void>());
        // SAFETY: the caller's memory, valid for that length until it is freed.
        self.context.check(unsafe {
            platform.extensions.zexDriverImportExternalPointer(platform.native.0, host, len as usize)
        })?;
        Ok(self.keep_pinned(host, len, Holder::Registered))
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1 and H5, as this function's caller promises.
        unsafe { self.give_back(mem, "pinned.free", true) }
    }
}

impl Peers for XpuDevice {
    fn limits(&self) -> PeersLimits {
        PeersLimits { reachable: self.peers.iter().filter(|&&reached| reached).count() as u32 }
    }

    fn can_access(&self, ordinal: u32) -> bool {
        self.peers.get(ordinal as usize).copied().unwrap_or(false)
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        if !self.can_access(from) {
            return Err(Fault::unsupported("zeCommandListAppendMemoryCopy")
                .note(format!("device {} does not reach device {from}", self.context.ordinal)));
        }
        // SAFETY: H1, as this function's caller promises.
        let (stream, dst, source) = unsafe {
            let source = self.machine.memory.get(src.mem.0).ok_or_else(|| unknown("peers.copy", "memory"))?;
            (self.stream(stream, "peers.copy")?, self.place(dst, len, "peers.copy")?, source)
        };
        let src = source.part(src.offset, len, "peers.copy")?;
        // SAFETY: H1 and H4: both ranges are live, and of one context.
        unsafe { self.append_copy(stream, pointer(dst), pointer(src), len) }
    }
}
