//! Exports about addresses that are backed piece by piece.

use crate::call::{Result, exports, lock, put};
use crate::config::Card;
use crate::context::{current, device};
use crate::graph::unsafe_call;
use crate::memory::{self, Block, Kind};
use anyaccel_cuda::sys::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What sizes are multiples of.
const GRAIN: u64 = 2 << 20;

/// Memory without an address.
struct Physical {
    card: &'static Card,
    len: u64,
    /// The file that holds it.
    file: i32,
    /// Released, and gone once it is mapped nowhere.
    released: bool,
    mappings: u32,
}

struct Mapping {
    len: u64,
    handle: u64,
}

// Whoever holds several of these took them in this order.
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static PHYSICAL: Mutex<BTreeMap<u64, Physical>> = Mutex::new(BTreeMap::new());
static MAPPED: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0x00F0_0000_0001);

fn aligned(number: u64) -> Result {
    if number.is_multiple_of(GRAIN) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn drop_if_unused(all: &mut BTreeMap<u64, Physical>, handle: u64) {
    if let Some(physical) = all.get(&handle)
        && physical.released
        && physical.mappings == 0
    {
        memory::give(physical.card, physical.len);
        // SAFETY: the file was made by cuMemCreate and is closed once.
        unsafe { libc::close(physical.file) };
        all.remove(&handle);
    }
}

exports! {
    fn cuMemGetAllocationGranularity(out: *mut usize, prop: *const CUmemAllocationProp, _option: u32) {
        device((*prop).location.id)?;
        put(out, GRAIN as usize)
    }

    fn cuMemAddressReserve(out: *mut CUdeviceptr, bytes: usize, _alignment: usize, _hint: CUdeviceptr, flags: u64) {
        current()?;
        let len = bytes as u64;
        aligned(len)?;
        if len == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // One grain more, so that the range can begin at a multiple of one.
        let raw = memory::pages(len.checked_add(GRAIN).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?, libc::PROT_NONE)?;
        let at = raw.next_multiple_of(GRAIN);
        if at > raw {
            memory::unmap(raw, at - raw);
        }
        let tail = raw + GRAIN - at;
        if tail > 0 {
            memory::unmap(at + len, tail);
        }
        lock(&RESERVED).insert(at, len);
        put(out, at)
    }

    fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) {
        let mut reserved = lock(&RESERVED);
        let whole = reserved.get(&address) == Some(&(bytes as u64));
        let backed = lock(&MAPPED).range(address..address + bytes as u64).next().is_some();
        if !whole || backed {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        reserved.remove(&address);
        memory::unmap(address, bytes as u64);
        Ok(())
    }

    fn cuMemCreate(out: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64) {
        current()?;
        unsafe_call()?;
        let (prop, len) = (&*prop, bytes as u64);
        aligned(len)?;
        let right = prop.kind == CU_MEM_ALLOCATION_TYPE_PINNED && prop.location.kind == CU_MEM_LOCATION_TYPE_DEVICE;
        if len == 0 || flags != 0 || !right {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let card = device(prop.location.id)?.card;
        memory::take(card, len)?;
        let file = libc::memfd_create(c"fake-cuda".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 || libc::ftruncate(file, len as libc::off_t) != 0 {
            memory::give(card, len);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&PHYSICAL).insert(handle, Physical { card, len, file, released: false, mappings: 0 });
        put(out, handle)
    }

    fn cuMemRelease(handle: CUmemGenericAllocationHandle) {
        let mut all = lock(&PHYSICAL);
        let physical = all.get_mut(&handle).filter(|physical| !physical.released).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        physical.released = true;
        drop_if_unused(&mut all, handle);
        Ok(())
    }

    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) {
        let len = bytes as u64;
        aligned(address)?;
        aligned(len)?;
        let inside = lock(&RESERVED).range(..=address).next_back().is_some_and(|(&at, &size)| address + len <= at + size);
        let mut all = lock(&PHYSICAL);
        let physical = all.get_mut(&handle).filter(|physical| !physical.released).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut mapped = lock(&MAPPED);
        let overlaps = mapped.range(..address + len).next_back().is_some_and(|(&at, other)| address < at + other.len);
        if !inside || overlaps || offset != 0 || flags != 0 || len != physical.len {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let to = address as usize as *mut libc::c_void;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // Nobody may touch it before it is told who may.
        if libc::mmap(to, bytes, libc::PROT_NONE, flags, physical.file, 0) == libc::MAP_FAILED {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        physical.mappings += 1;
        mapped.insert(address, Mapping { len, handle });
        Ok(())
    }

    fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, desc: *const CUmemAccessDesc, count: usize) {
        let mut at = address;
        let end = address + bytes as u64;
        let mapped = lock(&MAPPED);
        while at < end {
            at += mapped.get(&at).ok_or(CUDA_ERROR_INVALID_VALUE)?.len;
        }
        for desc in std::slice::from_raw_parts(desc, count) {
            device(desc.location.id)?;
            if desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        libc::mprotect(address as usize as *mut libc::c_void, bytes, libc::PROT_READ | libc::PROT_WRITE);
        for (&at, mapping) in mapped.range(address..end) {
            memory::insert(at, Block { len: mapping.len, kind: Kind::Mapped });
        }
        Ok(())
    }

    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) {
        let here = current()?;
        unsafe_call()?;
        let end = address + bytes as u64;
        let whole = |mapped: &BTreeMap<u64, Mapping>| {
            // Mappings go as they came: whole.
            let mut at = address;
            while at < end {
                at += mapped.get(&at).ok_or(CUDA_ERROR_INVALID_VALUE)?.len;
            }
            if at == end { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
        };
        whole(&lock(&MAPPED))?;
        crate::stream::drain(here.ordinal);
        let mut all = lock(&PHYSICAL);
        let mut mapped = lock(&MAPPED);
        whole(&mapped)?;
        let gone: Vec<u64> = mapped.range(address..end).map(|(&at, _)| at).collect();
        for at in gone {
            let Some(mapping) = mapped.remove(&at) else { continue };
            // It may never have been told who may touch it.
            let _known = memory::remove(at, |kind| matches!(kind, Kind::Mapped));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            let to = at as usize as *mut libc::c_void;
            libc::mmap(to, mapping.len as usize, libc::PROT_NONE, flags, -1, 0);
            if let Some(physical) = all.get_mut(&mapping.handle) {
                physical.mappings -= 1;
            }
            drop_if_unused(&mut all, mapping.handle);
        }
        Ok(())
    }
}
