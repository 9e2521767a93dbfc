//! Host memory that copies reach, from the pinned cache.

use super::Port;
use crate::error::{Error, Result};
use crate::fork;
use crate::lane::Lane;
use crate::local;
use anyaccel_engine::alloc::PortError;
use anyaccel_engine::pinned::{HostAllocError, HostAllocation};
use anyaccel_hal::{End, Fault, FaultKind, HostPtr, Mem, Place};
use std::ptr;
use std::sync::Arc;

/// Host memory: pinned where the device has that, else ordinary. Dropping it gives it back to the cache, which reuses it
/// once the copies that use it have ended.
pub(crate) struct HostBlock {
    pub(crate) port: Arc<Port>,
    allocation: HostAllocation,
    pub(crate) len: usize,
    epoch: u64,
}

impl HostBlock {
    /// Notes that a copy on `lane` uses it.
    #[inline]
    pub(crate) fn used_on(&self, lane: &Lane) {
        // The handle is this block's own, and live: nothing can be wrong with it.
        let _own = self.port.host.record_stream(self.allocation.handle, lane.raw.0);
    }

    /// An end of a copy of `len` bytes, which lie in the block by the caller's check.
    pub(crate) fn end(&self, at: usize, len: u64) -> End {
        debug_assert!(at as u64 + len <= self.len as u64);
        if self.is_pinned() {
            End::Pinned(Place { mem: Mem(self.allocation.token), offset: at as u64 })
        } else {
            // Staying in the block is checked by the callers; `wrapping_add` keeps this safe even if they erred.
            End::Host(HostPtr(self.ptr().wrapping_add(at)))
        }
    }

    /// The first byte; valid for `len` bytes while this value lives.
    pub(crate) fn ptr(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.allocation.addr as usize)
    }

    /// Whether it really is pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        self.port.hal().pinned().is_some()
    }

    /// The bytes that are held for it.
    pub(crate) fn capacity(&self) -> u64 {
        self.allocation.size
    }

    /// Copies its bytes out, once the copies into it have been waited for.
    pub(crate) fn copy_to(&self, bytes: &mut [u8]) {
        // SAFETY: valid for `len` bytes while the block lives, and the caller has waited for the copies into it.
        bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(self.ptr(), bytes.len()) });
    }

    /// Its bytes, for a host function in stream order.
    ///
    /// # Safety
    /// Copies that name the block have ended or not begun, and nobody else has its bytes.
    #[expect(clippy::mut_from_ref, reason = "the stream's order makes the access exclusive, not the borrow")]
    pub(crate) unsafe fn bytes_in_turn(&self) -> &mut [u8] {
        // SAFETY: valid for `len` bytes while the block lives; exclusive by this function's condition.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(), self.len) }
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if self.epoch != fork::epoch() {
            return;
        }
        let (host, handle) = (&self.port.host, self.allocation.handle);
        // The handle is this block's own, given back once: nothing can be wrong with it.
        let _own = if local::in_host_fn() { host.free_quietly(handle, &[]) } else { host.free(handle) };
    }
}

impl Port {
    /// Takes host memory, `bytes > 0`. It holds what its last user left.
    pub(crate) fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Arc<HostBlock>> {
        let allocation = self.host.alloc(bytes as u64).map_err(|error| self.host_error(bytes as u64, error))?;
        let Some(allocation) = allocation else {
            return Err(Error::Argument { argument: "bytes", reason: "no pinned memory of 0 bytes".into() });
        };
        Ok(Arc::new(HostBlock { port: Arc::clone(self), allocation, len: bytes, epoch: fork::epoch() }))
    }

    /// Takes host memory and fills it before any copy names it.
    pub(crate) fn alloc_host_with(
        self: &Arc<Self>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Arc<HostBlock>> {
        let block = self.alloc_host(bytes)?;
        // SAFETY: valid for `len` bytes while the block lives (H27), initialised; nobody else has it yet.
        fill(unsafe { std::slice::from_raw_parts_mut(block.ptr(), block.len) });
        Ok(block)
    }

    /// Gives unused pinned memory back.
    pub(crate) fn empty_host_cache(&self, call: &'static str) -> Result<()> {
        self.host.trim().map(|_bytes| ()).map_err(|fault| self.port_error(call, fault))
    }

    fn host_error(&self, bytes: u64, error: HostAllocError) -> Error {
        let call = "allocating pinned memory";
        match error {
            HostAllocError::OutOfMemory(report) => {
                Error::HostOutOfMemory { what: "pinned memory", requested: bytes, report: Some(Box::new(report)) }
            }
            HostAllocError::Port { fault, .. } => self.port_error(call, fault),
            other @ HostAllocError::TooLarge(_) => Error::Argument { argument: "bytes", reason: other.to_string() },
            other @ HostAllocError::Closed => self.error(call, Fault::invalid("alloc", other.to_string())),
        }
    }

    /// A port's fault as an error of this device.
    pub(super) fn port_error(&self, call: &'static str, fault: PortError) -> Error {
        let kind = match fault {
            PortError::Interrupted => return Error::Interrupted { call },
            PortError::DeviceLost(_) => FaultKind::DeviceLost,
            PortError::OutOfMemory => FaultKind::OutOfMemory,
            PortError::Failed(_) => FaultKind::Driver,
        };
        self.error(call, Fault::new(kind, "port").note(fault.to_string()))
    }
}
