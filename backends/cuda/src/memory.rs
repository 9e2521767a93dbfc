//! Memory: a card's, pinned memory of the host, and ranges that somebody else owns.

use crate::context::Context;
use crate::conv::Failed;
use crate::device::{CudaDevice, unknown};
use crate::sys::*;
use crate::virtual_memory::Reservation;
use anyaccel_hal::{Fault, HostPtr, Mem, Peers, PeersLimits, Pinned, PinnedLimits, Place, Segment, StreamId};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pinned memory is rounded up to this and begins at a multiple of it (H27).
pub(crate) const PAGE: u64 = 4096;

/// How a range is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// `cuMemAlloc`.
    Segment,
    /// `cuMemAllocAsync` on the device's own stream, which lives as long as the device.
    Ordered(CUstream),
    /// Not ours.
    Imported,
    /// A reservation, by its own handle.
    Reserved,
    /// `cuMemHostAlloc`, at that address.
    Pinned(usize),
    /// `cuMemHostRegister`.
    Registered,
}

/// What a `Mem` names.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The address on the device.
    pub(crate) addr: CUdeviceptr,
    /// The address on the host, of pinned memory.
    pub(crate) host: usize,
    pub(crate) len: u64,
    pub(crate) holder: Holder,
    /// Of a reservation: what backs it.
    pub(crate) range: Option<Arc<Reservation>>,
    /// The device that it belongs to.
    pub(crate) context: Arc<Context>,
}

impl Memory {
    /// The address of a place, if all of the length is inside.
    #[inline]
    pub(crate) fn part(&self, offset: u64, len: u64, api: &'static str) -> Result<CUdeviceptr, Fault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.addr + offset),
            _ => Err(self.outside(offset, len, api)),
        }
    }

    #[cold]
    fn outside(&self, offset: u64, len: u64, api: &'static str) -> Fault {
        Fault::invalid(api, format!("{len} bytes at {offset} of a memory of {} bytes", self.len))
    }
}

/// Gives a range back. The context is current.
///
/// # Safety
/// It was taken by the counterpart of its holder, and nobody uses it any more.
unsafe fn free(cuda: &Cuda, addr: CUdeviceptr, host: usize, holder: Holder) -> Result<(), Failed> {
    let pointer = |address: usize| std::ptr::with_exposed_provenance_mut::<c_void>(address);
    // SAFETY: as this function's caller promises.
    unsafe {
        match holder {
            Holder::Segment => cuda.cuMemFree_v2(addr),
            Holder::Ordered(stream) => cuda.cuMemFreeAsync(addr, stream),
            Holder::Pinned(base) => cuda.cuMemFreeHost(pointer(base)),
            Holder::Registered => cuda.cuMemHostUnregister(pointer(host)),
            Holder::Imported | Holder::Reserved => Ok(()),
        }
    }
}

impl Drop for Memory {
    /// What nobody gave back goes with its driver, behind the work that may still use it.
    fn drop(&mut self) {
        let (addr, host, holder) = (self.addr, self.host, self.holder);
        match holder {
            Holder::Segment | Holder::Pinned(_) | Holder::Registered => {
                // SAFETY: nobody has a handle on it any more, and the work of its driver's streams has ended by then.
                self.context.returns.hand(move |cuda| unsafe { free(cuda, addr, host, holder) });
            }
            // By the call that does not look for a stream, which may be gone; it waits for nobody with such memory.
            // SAFETY: as above.
            Holder::Ordered(_) => self.context.returns.hand(move |cuda| unsafe { cuda.cuMemFree_v2(addr) }),
            Holder::Reserved => {
                if let Some(range) = self.range.take() {
                    self.context.returns.hand(move |cuda| range.dismantle(cuda));
                }
            }
            Holder::Imported => {}
        }
    }
}

impl CudaDevice {
    pub(crate) fn take_segment(&self, len: u64) -> Result<Segment, Fault> {
        if len == 0 || len > self.info.max_alloc {
            return Err(Fault::invalid("alloc", format!("{len} bytes, at most {}", self.info.max_alloc)));
        }
        let _current = self.context.enter()?;
        let _relaxed = self.context.relaxed();
        let cuda = self.context.cuda;
        let mut addr = 0;
        let holder = match &self.ordered {
            None => {
                // SAFETY: a valid place for the answer.
                self.context.relieve(|| unsafe { cuda.cuMemAlloc_v2(&raw mut addr, len as usize) })?;
                Holder::Segment
            }
            Some(stream) => {
                // SAFETY: a valid place for the answer; the stream is the device's own.
                self.context.check(unsafe { cuda.cuMemAllocAsync(&raw mut addr, len as usize, stream.raw) })?;
                // Ok means backed, for any stream (H3).
                let waited =
                    crate::wait::wait_host(stream, anyaccel_hal::Until::Now, None, anyaccel_hal::WaitMode::Auto);
                if let Err(fault) = waited {
                    // SAFETY: taken just now, used by nobody.
                    let _freed = unsafe { cuda.cuMemFreeAsync(addr, stream.raw) };
                    return Err(fault);
                }
                Holder::Ordered(stream.raw)
            }
        };
        let memory = Memory { addr, host: 0, len, holder, range: None, context: Arc::clone(&self.context) };
        Ok(Segment { mem: Mem(self.machine.memory.insert(memory)), addr, len })
    }

    /// # Safety
    /// H1, H4.
    pub(crate) unsafe fn give_back(&self, mem: Mem, api: &'static str, pinned: bool) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let memory = unsafe { self.memory(mem, api)? };
        let (addr, host, holder) = (memory.addr, memory.host, memory.holder);
        let of_host = matches!(holder, Holder::Pinned(_) | Holder::Registered);
        if holder == Holder::Reserved || of_host != pinned {
            return Err(Fault::invalid(api, "memory of another sort"));
        }
        if holder != Holder::Imported && !self.context.is_lost() {
            let freed = match holder {
                // These may wait for everybody's work.
                Holder::Segment | Holder::Pinned(_) => {
                    // SAFETY: H1 and H4: no work uses it, and it is forgotten below.
                    self.context.returns.ask(move |cuda| unsafe { free(cuda, addr, host, holder) })
                }
                // Memory that the caller is about to give back to somebody else has to be free of ours by then.
                _ => {
                    let _current = self.context.enter()?;
                    let _relaxed = self.context.relaxed();
                    // SAFETY: as above.
                    unsafe { free(self.context.cuda, addr, host, holder) }
                }
            };
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

    fn keep_pinned(&self, host: *mut c_void, len: u64, holder: Holder) -> Result<Mem, Fault> {
        let mut addr = 0;
        // SAFETY: a valid place for the answer; the memory is pinned.
        let mapped = unsafe { self.context.cuda.cuMemHostGetDevicePointer_v2(&raw mut addr, host, 0) };
        self.context.check(mapped)?;
        let host = host.expose_provenance();
        let memory = Memory { addr, host, len, holder, range: None, context: Arc::clone(&self.context) };
        Ok(Mem(self.machine.memory.insert(memory)))
    }

    fn host_alloc(&self, len: u64) -> Result<*mut c_void, Fault> {
        let mut host: *mut c_void = std::ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a valid place for the answer.
        self.context.relieve(|| unsafe { self.context.cuda.cuMemHostAlloc(&raw mut host, len as usize, flags) })?;
        Ok(host)
    }
}

impl Pinned for CudaDevice {
    fn limits(&self) -> PinnedLimits {
        PinnedLimits { granularity: PAGE, register: self.limits.register, direct: true }
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        let Some(rounded) = len.checked_next_multiple_of(PAGE).filter(|&len| len > 0 && len < 1 << 60) else {
            return Err(Fault::invalid("pinned.alloc", format!("{len} bytes")));
        };
        let _current = self.context.enter()?;
        let _relaxed = self.context.relaxed();
        let mut base = self.host_alloc(rounded)?;
        let mut start = base;
        if !(base.addr() as u64).is_multiple_of(PAGE) {
            // SAFETY: taken just now, used by nobody.
            let _freed = unsafe { self.context.cuda.cuMemFreeHost(base) };
            base = self.host_alloc(rounded + PAGE)?;
            start = base.map_addr(|addr| addr.next_multiple_of(PAGE as usize));
        }
        match self.keep_pinned(start, rounded, Holder::Pinned(base.expose_provenance())) {
            Ok(mem) => Ok((mem, HostPtr(start.cast()))),
            Err(fault) => {
                // SAFETY: as above.
                let _freed = unsafe { self.context.cuda.cuMemFreeHost(base) };
                Err(fault)
            }
        }
    }

    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        if !self.limits.register {
            return Err(Fault::unsupported("cuMemHostRegister_v2"));
        }
        let _current = self.context.enter()?;
        let _relaxed = self.context.relaxed();
        let (cuda, host) = (self.context.cuda, ptr.0.cast::<c_void>());
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller's memory, valid for that length until it is freed.
        self.context.check(unsafe { cuda.cuMemHostRegister_v2(host, len as usize, flags) })?;
        self.keep_pinned(host, len, Holder::Registered).inspect_err(|_| {
            // SAFETY: registered just now, used by nobody.
            let _undone = unsafe { cuda.cuMemHostUnregister(host) };
        })
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1 and H5, as this function's caller promises.
        unsafe { self.give_back(mem, "pinned.free", true) }
    }
}

impl Peers for CudaDevice {
    fn limits(&self) -> PeersLimits {
        PeersLimits { reachable: self.peers.iter().filter(|&&reached| reached).count() as u32 }
    }

    fn can_access(&self, ordinal: u32) -> bool {
        self.peers.get(ordinal as usize).copied().unwrap_or(false)
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        if !self.can_access(from) {
            return Err(Fault::unsupported("cuMemcpyPeerAsync")
                .note(format!("device {} does not reach device {from}", self.context.ordinal)));
        }
        // SAFETY: H1, as this function's caller promises.
        let (stream, dst, source) = unsafe {
            let source = self.machine.memory.get(src.mem.0).ok_or_else(|| unknown("peers.copy", "memory"))?;
            (self.stream(stream, "peers.copy")?, self.place(dst, len, "peers.copy")?, source)
        };
        let (src, there) = (source.part(src.offset, len, "peers.copy")?, &source.context);
        let _current = self.context.enter()?;
        if let Some(range) = &source.range {
            range.admit(self)?;
        }
        let (cuda, flag) = (self.context.cuda, &self.enabled[from as usize]);
        if !flag.load(Ordering::Acquire) {
            // SAFETY: the peer's context is retained as long as its memory lives.
            match unsafe { cuda.cuCtxEnablePeerAccess(there.raw, 0) } {
                Ok(()) => {}
                Err(failed) if failed.code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
                Err(failed) => return Err(self.context.fault(failed)),
            }
            flag.store(true, Ordering::Release);
        }
        // SAFETY: H1 and H4: both ranges are live, each of its own context.
        let copied = unsafe { cuda.cuMemcpyPeerAsync(dst, self.context.raw, src, there.raw, len as usize, stream.raw) };
        stream.touch();
        self.context.check(copied)
    }
}
