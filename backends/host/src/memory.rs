//! Memory: mappings, what a device may use of them, and the objects behind [`Mem`](anyaccel_hal::Mem) handles.
//!
//! Every segment is a mapping of its own, so its pages come into being when they are first touched and go away when it
//! is freed. A device's budget is charged before the system is asked: within it the system is trusted to back what it
//! mapped, as by default the budgets of all devices together are half of the machine.

use anyaccel_hal::{Fault, FaultKind};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What segments begin at a multiple of and are rounded up to: a page on every machine this runs on.
pub(crate) const PAGE: u64 = 4096;
/// Larger segments begin at a multiple of this, so that the system can use large pages, and mappings of reserved ranges
/// are multiples of it.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;

/// The largest length that a mapping is asked of the system for.
const MAX: u64 = 1 << 46;

/// Pages of the system.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is owned memory; who may access it when is ruled by H4 and H5.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What may be done with a new mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and written, each page backed when first touched.
    Backed,
    /// Nothing yet: addresses without memory.
    None,
}

impl Mapping {
    /// New pages, aligned to [`LARGE_PAGE`] if they are as long.
    pub(crate) fn new(len: u64, access: Access) -> io::Result<Self> {
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let align = if len >= LARGE_PAGE { LARGE_PAGE } else { PAGE };
        if len > MAX {
            return Err(too_long());
        }
        let asked = usize::try_from(len + align - PAGE).map_err(|_| too_long())?;
        let (len, align) = (len as usize, align as usize);
        let (protection, flags) = match access {
            Access::Backed => (libc::PROT_READ | libc::PROT_WRITE, 0),
            Access::None => (libc::PROT_NONE, libc::MAP_NORESERVE),
        };
        // SAFETY: a new anonymous mapping touches no existing memory.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), asked, protection, flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast::<u8>();
        let before = base.align_offset(align);
        let after = asked - before - len;
        // SAFETY: both parts are whole pages of the mapping made above, outside the aligned part that is kept.
        unsafe {
            if before > 0 {
                libc::munmap(base.cast(), before);
            }
            if after > 0 {
                libc::munmap(base.add(before + len).cast(), after);
            }
            let base = base.add(before);
            #[cfg(target_os = "linux")]
            if access == Access::Backed && len as u64 >= LARGE_PAGE {
                // A hint: without large pages it works as well.
                libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE);
            }
            Ok(Self { base: NonNull::new_unchecked(base), len })
        }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Backs a part that was not.
    ///
    /// # Safety
    /// The part is inside, in whole pages.
    pub(crate) unsafe fn back(&self, offset: u64, len: u64) -> io::Result<()> {
        // SAFETY: whole pages of our own mapping.
        let done = unsafe {
            let part = self.base().add(offset as usize).cast();
            libc::mprotect(part, len as usize, libc::PROT_READ | libc::PROT_WRITE)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes the backing of a part away, and its contents.
    ///
    /// # Safety
    /// The part is inside, in whole pages, and nobody uses it (H4).
    pub(crate) unsafe fn unback(&self, offset: u64, len: u64) -> io::Result<()> {
        // SAFETY: replacing whole pages of our own mapping by pages without access keeps the addresses ours.
        let replaced = unsafe {
            let flags = libc::MAP_FIXED | libc::MAP_NORESERVE | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(self.base().add(offset as usize).cast(), len as usize, libc::PROT_NONE, flags, -1, 0)
        };
        if replaced == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more (H4).
        unsafe { libc::munmap(self.base().cast(), self.len) };
    }
}

/// How much memory a device may use.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit - self.used.load(Ordering::Relaxed)
    }

    /// Charges bytes until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, len: u64, api: &'static str) -> Result<Charge, Fault> {
        let fits = |used: u64| used.checked_add(len).filter(|&after| after <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Charge { budget: Arc::clone(self), len }),
            Err(used) => Err(Fault::new(FaultKind::OutOfMemory, api).note(format!(
                "asked {len} bytes, free {} of {} bytes",
                self.limit - used,
                self.limit
            ))),
        }
    }
}

/// Bytes charged to a device.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    len: u64,
}

impl Charge {
    /// Adds what `other` charged to the same device.
    pub(crate) fn merge(&mut self, mut other: Charge) {
        self.len += std::mem::take(&mut other.len);
    }

    /// Gives a part back.
    pub(crate) fn give_back(&mut self, len: u64) {
        self.len -= len;
        self.budget.used.fetch_sub(len, Ordering::Relaxed);
    }

    /// A charge of nothing.
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), len: 0 }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Whose memory a handle names, and so who gives it back.
#[derive(Debug)]
pub(crate) enum Holder {
    /// A segment: freed by `Device::free`.
    Segment { _mapping: Mapping, _charge: Charge },
    /// Somebody else's, imported: forgotten by `Device::free`.
    Imported,
    /// Pinned: freed by `Pinned::free`.
    Pinned { _mapping: Mapping },
    /// Somebody else's, registered: forgotten by `Pinned::free`.
    Registered,
    /// A reserved range: released with it.
    Range,
}

/// What a [`Mem`](anyaccel_hal::Mem) names.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) base: *mut u8,
    pub(crate) len: u64,
    pub(crate) holder: Holder,
}

// SAFETY: only the address moves between threads; accesses are ruled by H4 and H5.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Backed memory of a device.
    pub(crate) fn segment(budget: &Arc<Budget>, len: u64) -> Result<Self, Fault> {
        let len = len.next_multiple_of(PAGE);
        let charge = budget.charge(len, "alloc")?;
        let mapping = Mapping::new(len, Access::Backed).map_err(|error| refused("alloc", &error))?;
        Ok(Self { base: mapping.base(), len, holder: Holder::Segment { _mapping: mapping, _charge: charge } })
    }

    /// The address of a part.
    pub(crate) fn part(&self, offset: u64, len: u64, api: &'static str) -> Result<*mut u8, Fault> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let note = format!("{len} bytes at {offset} of memory of {} bytes", self.len);
            return Err(Fault::invalid(api, note));
        }
        Ok(self.base.wrapping_add(offset as usize))
    }
}

/// The system gave no memory.
pub(crate) fn refused(api: &'static str, error: &io::Error) -> Fault {
    Fault::new(FaultKind::OutOfMemory, api).code(error.raw_os_error().unwrap_or(0).into()).note("the system refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_and_usable_to_the_last_byte() {
        for len in [PAGE, 3 * PAGE, LARGE_PAGE, LARGE_PAGE + PAGE, 5 * LARGE_PAGE] {
            let mapping = Mapping::new(len, Access::Backed).expect("a mapping");
            let align = if len >= LARGE_PAGE { LARGE_PAGE } else { PAGE };
            assert_eq!(mapping.base() as u64 % align, 0);
            // SAFETY: inside the mapping.
            unsafe {
                mapping.base().write(1);
                mapping.base().add(len as usize - 1).write(2);
            }
        }
        assert!(Mapping::new(!(PAGE - 1), Access::Backed).is_err());
    }

    #[test]
    fn budgets_refuse_beyond_their_limit_and_recover() {
        let budget = Arc::new(Budget::new(10 * PAGE));
        let most = Memory::segment(&budget, 9 * PAGE + 1).expect("fits exactly");
        assert_eq!((most.len, budget.free()), (10 * PAGE, 0));
        let fault = Memory::segment(&budget, 1).expect_err("nothing left");
        assert_eq!(fault.kind, FaultKind::OutOfMemory);
        assert!(fault.to_string().contains("asked 4096 bytes, free 0 of 40960 bytes"), "{fault}");
        drop(most);
        assert_eq!(budget.free(), 10 * PAGE);
        assert!(budget.charge(u64::MAX, "alloc").is_err(), "no overflow");
    }

    #[test]
    fn parts_stay_inside() {
        let memory = Memory { base: ptr::without_provenance_mut(4096), len: 100, holder: Holder::Imported };
        assert!(memory.part(0, 100, "copy").is_ok());
        assert!(memory.part(100, 0, "copy").is_ok());
        for (offset, len) in [(0, 101), (101, 0), (99, 2), (u64::MAX, 2), (2, u64::MAX)] {
            assert!(memory.part(offset, len, "copy").is_err(), "{offset} {len}");
        }
    }
}
