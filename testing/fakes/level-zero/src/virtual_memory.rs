//! Addresses that are backed piece by piece.

use crate::abi::*;
use crate::call::{Registry, Result, exports, get, lock, put};
use crate::config::config;
use crate::control::alive;
use crate::device::Device;
use crate::driver_calls::CONTEXTS;
use crate::memory::{self, Kind};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

/// Memory of a device without an address.
struct Physical {
    device: &'static Device,
    tile: usize,
    len: u64,
    file: OwnedFd,
}

impl Drop for Physical {
    fn drop(&mut self) {
        memory::give(self.device.card, self.tile, self.len);
    }
}

static PHYSICAL: Registry<Physical> = Registry::new(0x0087_0000_0000);
/// Reserved ranges: start, and length.
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

const SMALL: usize = 64 << 10;
const LARGE: usize = 2 << 20;

/// The pages that memory of a size comes in.
const fn page(size: usize) -> usize {
    if size >= LARGE { LARGE } else { SMALL }
}

fn supported() -> Result {
    if config().has("virtual_memory") { Ok(()) } else { Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) }
}

fn reserved(at: u64, len: usize) -> Result {
    let ranges = lock(&RESERVED);
    let inside = ranges.range(..=at).next_back().is_some_and(|(&start, &all)| at + len as u64 <= start + all);
    if inside { Ok(()) } else { Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) }
}

fn multiple(size: usize) -> Result {
    if size == 0 || !size.is_multiple_of(page(size)) { Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE) } else { Ok(()) }
}

fn protection(access: u32) -> Result<i32> {
    match access {
        ZE_MEMORY_ACCESS_ATTRIBUTE_NONE => Ok(libc::PROT_NONE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => Ok(libc::PROT_READ | libc::PROT_WRITE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => Ok(libc::PROT_READ),
        _ => Err(ZE_RESULT_ERROR_INVALID_ENUMERATION),
    }
}

/// A file in memory, as large as that.
fn file(len: u64) -> Result<OwnedFd> {
    // SAFETY: a C string, and flags that exist.
    let file = unsafe { libc::memfd_create(c"fake-ze".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    // SAFETY: opened just now, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: a file that is open.
    match unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } {
        0 => Ok(file),
        _ => Err(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY),
    }
}

/// Puts a mapping over a reserved range.
///
/// # Safety
/// The range is reserved, and nobody uses it.
unsafe fn map_over(at: u64, len: usize, protection: i32, of: Option<(&Physical, usize)>) -> Result {
    let (flags, file, offset) = match of {
        Some((physical, offset)) => (libc::MAP_SHARED, physical.file.as_raw_fd(), offset as libc::off_t),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    // SAFETY: this function's contract.
    let done = unsafe { libc::mmap(at as *mut c_void, len, protection, flags | libc::MAP_FIXED, file, offset) };
    if done == libc::MAP_FAILED { Err(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY) } else { Ok(()) }
}

exports! {
    fn zeVirtualMemQueryPageSize(context: Handle, device: Handle, size: usize, out: *mut usize) {
        CONTEXTS.get(context)?.device(device)?;
        supported()?;
        put(out, page(size))
    }

    fn zeVirtualMemReserve(context: Handle, _hint: *const c_void, size: usize, out: *mut *mut c_void) {
        CONTEXTS.get(context)?;
        supported()?;
        get(out)?;
        multiple(size)?;
        let at = memory::pages(size as u64, page(size) as u64, libc::PROT_NONE)?;
        lock(&RESERVED).insert(at, size as u64);
        put(out, at as *mut c_void)
    }

    fn zeVirtualMemFree(context: Handle, at: *const c_void, size: usize) {
        CONTEXTS.get(context)?;
        let at = at as u64;
        let mut ranges = lock(&RESERVED);
        if ranges.get(&at) != Some(&(size as u64)) {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let memory = memory::read();
        if (at..at + size as u64).step_by(SMALL).any(|at| memory.find(at).is_some()) {
            return Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        }
        drop(memory);
        ranges.remove(&at);
        memory::unmap(at, size as u64);
        Ok(())
    }

    fn zePhysicalMemCreate(
        context: Handle,
        device: Handle,
        desc: *const ze_physical_mem_desc_t,
        out: *mut Handle,
    ) {
        let context = CONTEXTS.get(context)?;
        let device = context.device(device)?;
        alive(device.card)?;
        supported()?;
        let desc = get(desc)?;
        if desc.flags > 1 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        multiple(desc.size)?;
        get(out)?;
        let len = desc.size as u64;
        let file = file(len)?;
        let tile = memory::take_of(device, len)?;
        put(out, PHYSICAL.add(Physical { device, tile, len, file }))
    }

    fn zePhysicalMemDestroy(context: Handle, physical: Handle) {
        CONTEXTS.get(context)?;
        PHYSICAL.remove(physical, |_| Ok(())).map(drop)
    }

    fn zeVirtualMemMap(
        context: Handle,
        at: *const c_void,
        size: usize,
        physical: Handle,
        offset: usize,
        access: u32,
    ) {
        let context = CONTEXTS.get(context)?;
        let physical = PHYSICAL.get(physical)?;
        let at = at as u64;
        multiple(size)?;
        reserved(at, size)?;
        let protection = protection(access)?;
        if !at.is_multiple_of(SMALL as u64) || !offset.is_multiple_of(SMALL) {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
        }
        if offset as u64 + size as u64 > physical.len || memory::read().find(at).is_some() {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        map_over(at, size, protection, Some((&physical, offset)))?;
        memory::insert_mapped(context.handle, at, size as u64, physical.device, access);
        Ok(())
    }

    fn zeVirtualMemUnmap(context: Handle, at: *const c_void, size: usize) {
        CONTEXTS.get(context)?;
        let at = at as u64;
        memory::remove_mapped(at, size as u64, || map_over(at, size, libc::PROT_NONE, None))
    }

    fn zeVirtualMemSetAccessAttribute(context: Handle, at: *const c_void, size: usize, access: u32) {
        CONTEXTS.get(context)?;
        reserved(at as u64, size)?;
        let protection = protection(access)?;
        memory::set_access(at as u64, size as u64, access)?;
        match libc::mprotect(at.cast_mut(), size, protection) {
            0 => Ok(()),
            _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeVirtualMemGetAccessAttribute(
        context: Handle,
        at: *const c_void,
        size: usize,
        access: *mut u32,
        out: *mut usize,
    ) {
        CONTEXTS.get(context)?;
        reserved(at as u64, size)?;
        let (found, len) = match memory::read().find(at as u64) {
            Some((_, block)) => match block.kind {
                Kind::Mapped(_, access) => (access, (block.len as usize).min(size)),
                _ => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            },
            None => (ZE_MEMORY_ACCESS_ATTRIBUTE_NONE, size),
        };
        put(access, found)?;
        put(out, len)
    }
}
