//! Device memory and host memory, owned.

use super::Port;
use super::retired::What;
use crate::error::{Error, Result};
use crate::fork;
use crate::lane::{Lane, LaneRef};
use crate::local;
use anyaccel_engine::alloc::{AllocError, Allocation, PortError, Uses};
use anyaccel_hal::{End, Fault, FaultKind, HostPtr, Mem, Pinned, Place};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Up to here staging takes ordinary memory.
pub(crate) const SMALL_STAGING: usize = 64 << 10;

/// Device memory from the cache, made for the lane that was current (its home). Dropping it gives it back; it is reused
/// on its home in stream order, and elsewhere once the work that used it has ended.
pub(crate) struct Block {
    pub(crate) port: Arc<Port>,
    allocation: Allocation,
    pub(crate) len: u64,
    home: LaneRef,
    /// Work of the home before this mark may still use the memory, for its owner before.
    born: u64,
    home_used: AtomicBool,
    uses: AtomicU64,
    epoch: u64,
}

/// What lanes beyond the 63rd share in a block's uses: for them every use is the first.
const SHARED_USES: u64 = 1 << 63;

impl Block {
    /// Notes that work about to be enqueued on `lane` uses this memory. The first use on a lane that is not the home
    /// waits for what the home still does with the memory for its owner before.
    #[inline]
    pub(crate) fn used_on(&self, port: &Port, lane: &Lane) -> Result<()> {
        if lane.raw == self.home.raw {
            if !self.home_used.load(Ordering::Relaxed) {
                self.home_used.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        let bit = if lane.ordinal == self.port.ordinal { lane.uses } else { self.port.foreign_uses(port, lane) };
        let known = self.uses.load(Ordering::Relaxed);
        if known & bit == 0 || bit == SHARED_USES {
            if self.born > 0 && !self.port.ended("waiting for memory", &self.home, self.born)? {
                port.wait(lane, &self.port, &self.home, self.born)?;
            }
            self.uses.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The device address.
    pub(crate) fn addr(&self) -> u64 {
        self.allocation.addr
    }

    /// The bytes that it really has: the request, rounded.
    pub(crate) fn capacity(&self) -> u64 {
        self.allocation.size
    }

    /// A part of it.
    pub(crate) fn part(&self, range: Range<u64>) -> Result<Part<'_>> {
        if range.start <= range.end && range.end <= self.len {
            Ok(Part { block: self, offset: range.start, len: range.end - range.start })
        } else {
            Err(Error::Range { start: range.start, end: range.end, len: self.len })
        }
    }
}

#[inline]
fn note(uses: &AtomicU64, lane: &Lane) {
    let bit = 1 << lane.use_bit;
    if uses.load(Ordering::Relaxed) & bit == 0 {
        uses.fetch_or(bit, Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.epoch != fork::epoch() {
            return;
        }
        let (handle, uses) = (self.allocation.handle, Uses(*self.uses.get_mut()));
        if local::in_host_fn() {
            if *self.home_used.get_mut() {
                self.home.freed.store(true, Ordering::Release);
            }
            self.port.cache.free_later(handle, uses);
            return;
        }
        if *self.home_used.get_mut() && self.port.lanes.several() {
            self.port.note_freed(&self.home);
        }
        // The handle is this block's own, given back once: nothing can be wrong with it.
        let _own = self.port.cache.free_used(handle, uses);
    }
}

/// A part of a block that is known to lie in it.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) block: &'a Block,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Part<'_> {
    pub(super) fn place(&self) -> Place {
        let allocation = &self.block.allocation;
        Place { mem: Mem(allocation.segment), offset: allocation.offset + self.offset }
    }

    /// Whether two parts share bytes.
    pub(crate) fn overlaps(&self, other: &Part<'_>) -> bool {
        std::ptr::eq(self.block, other.block)
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }
}

enum Backing {
    Pinned(Mem),
    Ordinary(Option<Box<[u64]>>),
}

/// Host memory that copies reach: pinned where the device has it. Dropping it frees it once copies have ended.
pub(crate) struct HostBlock {
    pub(crate) port: Arc<Port>,
    backing: Backing,
    ptr: HostPtr,
    pub(crate) len: usize,
    uses: AtomicU64,
    epoch: u64,
}

impl HostBlock {
    #[inline]
    pub(crate) fn used_on(&self, lane: &Lane) {
        note(&self.uses, lane);
    }

    /// An end of a copy of `len` bytes, which lie in the block by the caller's check.
    pub(super) fn end(&self, at: usize, len: u64) -> End {
        debug_assert!(at as u64 + len <= self.len as u64);
        match self.backing {
            Backing::Pinned(mem) => End::Pinned(Place { mem, offset: at as u64 }),
            // Staying in the block is checked by the callers; `wrapping_add` keeps this safe even if they erred.
            Backing::Ordinary(_) => End::Host(HostPtr(self.ptr.0.wrapping_add(at))),
        }
    }

    /// The first byte; valid for `len` bytes while this value lives.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr.0
    }

    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.backing, Backing::Pinned(_))
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        let uses = *self.uses.get_mut();
        if self.epoch != fork::epoch() {
            // The pages of a child are its own copies, but the old generation's bookkeeping is not to be touched.
            if let Backing::Ordinary(bytes) = &mut self.backing {
                std::mem::forget(bytes.take());
            }
            return;
        }
        match &mut self.backing {
            Backing::Pinned(mem) => self.port.retire(What::Pinned(*mem), uses),
            Backing::Ordinary(bytes) => {
                if let Some(bytes) = bytes.take() {
                    self.port.retire(What::Host(bytes), uses);
                }
            }
        }
    }
}

impl Port {
    /// Takes device memory for a lane; `None` for no bytes.
    #[inline]
    pub(crate) fn alloc(self: &Arc<Self>, lane: &LaneRef, bytes: u64) -> Result<Option<Block>> {
        let Some(allocation) = self.cache.alloc(bytes, lane.raw.0).map_err(|error| self.alloc_error(error))? else {
            return Ok(None);
        };
        if lane.freed.load(Ordering::Acquire) {
            self.note_freed(lane);
        }
        Ok(Some(Block {
            port: Arc::clone(self),
            allocation,
            len: bytes,
            home: lane.clone(),
            born: lane.last_freed.load(Ordering::Acquire),
            home_used: AtomicBool::new(false),
            uses: AtomicU64::new(0),
            epoch: fork::epoch(),
        }))
    }

    /// Gives unused memory back.
    pub(crate) fn empty_cache(&self, call: &'static str) -> Result<()> {
        self.cache.empty_cache().map_err(|fault| match fault {
            PortError::DeviceLost(text) => self.error(call, Fault::new(FaultKind::DeviceLost, "free").note(text)),
            other => self.error(call, Fault::new(FaultKind::Driver, "free").note(other.to_string())),
        })
    }

    /// Memory that the lane used was given back: what takes it on another lane has to wait for the lane up to here.
    fn note_freed(&self, lane: &Lane) {
        lane.freed.store(false, Ordering::Release);
        // Without a mark (a lost device, H20) there is nothing to wait for.
        if let Ok(mark) = self.mark("giving memory back", lane) {
            lane.last_freed.fetch_max(mark, Ordering::AcqRel);
        }
    }

    /// The bit that stands for a lane of another device in the uses of this device's blocks.
    fn foreign_uses(&self, owner: &Port, lane: &Lane) -> u64 {
        self.native.add_foreign(lane.raw, &owner.native);
        self.cache.use_of(lane.raw.0).0
    }

    fn alloc_error(&self, error: AllocError) -> Error {
        let device = self.device;
        match error {
            AllocError::OutOfMemory(report) => Error::OutOfMemory {
                device,
                requested: report.requested,
                free: report.free,
                total: report.total,
                report: Some(report),
            },
            AllocError::TooLarge { requested, .. } => Error::Argument {
                argument: "bytes",
                reason: format!(
                    "{requested} bytes on {device}: a request must be below 2^60; was a negative size converted?"
                ),
            },
            AllocError::Port { call, fault: PortError::DeviceLost(text), .. } => {
                Error::DeviceLost { device, fault: Fault::new(FaultKind::DeviceLost, call).note(text) }
            }
            AllocError::Port { call, fault, .. } => {
                self.error("allocating device memory", Fault::new(FaultKind::Driver, call).note(fault.to_string()))
            }
            other @ (AllocError::Closed { .. } | AllocError::TooManyBlocks { .. }) => {
                self.error("allocating device memory", Fault::invalid("alloc", other.to_string()))
            }
        }
    }

    fn out_of_memory(&self, requested: u64) -> Error {
        let info = self.hal().memory_info().ok();
        Error::OutOfMemory {
            device: self.device,
            requested,
            free: info.and_then(|info| info.free),
            total: info.map_or(self.info().memory, |info| info.total),
            report: None,
        }
    }

    /// Takes host memory, `bytes > 0`, zeroed. Pinned if the device has that, else ordinary.
    pub(crate) fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<HostBlock> {
        self.alloc_host_from(bytes, self.hal().pinned())
    }

    /// Takes host memory to stage a small copy: ordinary where copies may name it, which is quicker to get.
    pub(crate) fn alloc_staging(self: &Arc<Self>, bytes: usize) -> Result<HostBlock> {
        let ordinary = bytes <= SMALL_STAGING && self.info().host_ends;
        self.alloc_host_from(bytes, if ordinary { None } else { self.hal().pinned() })
    }

    fn alloc_host_from(self: &Arc<Self>, bytes: usize, pinned: Option<&dyn Pinned>) -> Result<HostBlock> {
        self.reap();
        let (backing, ptr) = match pinned {
            Some(pinned) => {
                let (mem, ptr) = pinned.alloc(bytes as u64).map_err(|fault| match fault.kind {
                    FaultKind::OutOfMemory => self.out_of_memory(bytes as u64),
                    _ => self.error("allocating pinned memory", fault),
                })?;
                // SAFETY: H27: fresh memory, valid for that many bytes, and nobody else's.
                unsafe { ptr.0.write_bytes(0, bytes) };
                (Backing::Pinned(mem), ptr)
            }
            None => {
                let mut words = Vec::<u64>::new();
                if words.try_reserve_exact(bytes.div_ceil(8)).is_err() {
                    return Err(self.out_of_memory(bytes as u64));
                }
                words.resize(bytes.div_ceil(8), 0);
                let mut words = words.into_boxed_slice();
                let ptr = HostPtr(words.as_mut_ptr().cast());
                (Backing::Ordinary(Some(words)), ptr)
            }
        };
        Ok(HostBlock {
            port: Arc::clone(self),
            backing,
            ptr,
            len: bytes,
            uses: AtomicU64::new(0),
            epoch: fork::epoch(),
        })
    }
}

impl HostBlock {
    /// Fills it before any copy names it.
    pub(crate) fn fill_from(&mut self, bytes: &[u8]) {
        self.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    }

    /// Its bytes, before any copy names it.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert_eq!(*self.uses.get_mut(), 0);
        // SAFETY: valid for `len` bytes while the block lives (H27), initialised, and no copy names it yet.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.0, self.len) }
    }

    /// Copies its bytes out, once the copies into it have been waited for.
    pub(crate) fn copy_to(&self, bytes: &mut [u8]) {
        // SAFETY: valid for `len` bytes while the block lives, and the caller has waited for the copies into it.
        bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(self.ptr.0, bytes.len()) });
    }

    /// Its bytes, for a host function in stream order.
    ///
    /// # Safety
    /// Copies that name the block have ended or not begun, and nobody else has its bytes.
    #[expect(clippy::mut_from_ref, reason = "the stream's order makes the access exclusive, not the borrow")]
    pub(crate) unsafe fn bytes_in_turn(&self) -> &mut [u8] {
        // SAFETY: valid for `len` bytes while the block lives; exclusive by this function's condition.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.0, self.len) }
    }
}
