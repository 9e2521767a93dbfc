//! Exports about memory.

use crate::call::{exports, put};
use crate::context::{context, current, current_even_if_lost};
use crate::graph::unsafe_call;
use crate::memory::{self, Block, Kind};
use crate::stream::{self, Work};
use anyaccel_cuda::sys::*;
use std::ffi::c_void;

fn set(dst: CUdeviceptr, value: u32, size: u32, count: usize, on: CUstream) -> crate::call::Result {
    let stream = stream::here(current()?, on)?;
    if count == 0 || !dst.is_multiple_of(u64::from(size)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    memory::device(dst, count * size as usize)?;
    stream.enqueue(Work::Set { dst, value, size, count })
}

exports! {
    fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) {
        let here = current()?;
        unsafe_call()?;
        put(out, memory::alloc(here.card, bytes as u64)?)
    }

    fn cuMemFree_v2(address: CUdeviceptr) {
        let here = current()?;
        unsafe_call()?;
        stream::drain(here.ordinal);
        memory::free(address)
    }

    fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, on: CUstream) {
        let here = current()?;
        stream::here(here, on)?;
        put(out, memory::alloc(here.card, bytes as u64)?)
    }

    fn cuMemFreeAsync(address: CUdeviceptr, on: CUstream) {
        unsafe extern "C" fn later(data: *mut c_void) {
            // The range was there when the call was made; whoever frees it twice has been told by the other call.
            let _freed = memory::free(data as usize as u64);
        }
        let stream = stream::here(current()?, on)?;
        memory::device(address, 1)?;
        stream.enqueue(Work::Host { function: later, data: address as usize })
    }

    fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, _flags: u32) {
        current()?;
        unsafe_call()?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let len = (bytes as u64).checked_next_multiple_of(4096).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let at = memory::pages(len, libc::PROT_READ | libc::PROT_WRITE)?;
        memory::insert(at, Block { len, kind: Kind::Pinned });
        put(out, at as usize as *mut c_void)
    }

    fn cuMemFreeHost(pointer: *mut c_void) {
        let here = current()?;
        unsafe_call()?;
        stream::drain(here.ordinal);
        let at = pointer as usize as u64;
        let block = memory::remove(at, |kind| matches!(kind, Kind::Pinned))?;
        memory::unmap(at, block.len);
        Ok(())
    }

    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, _flags: u32) {
        current()?;
        unsafe_call()?;
        let at = pointer as usize as u64;
        if bytes == 0 || pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if memory::find(at).is_some() {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        memory::insert(at, Block { len: bytes as u64, kind: Kind::Registered });
        Ok(())
    }

    fn cuMemHostUnregister(pointer: *mut c_void) {
        let here = current()?;
        unsafe_call()?;
        stream::drain(here.ordinal);
        let at = pointer as usize as u64;
        memory::remove(at, |kind| matches!(kind, Kind::Registered))
            .map(drop)
            .map_err(|_| CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, pointer: *mut c_void, flags: u32) {
        current()?;
        let at = pointer as usize as u64;
        match memory::find(at) {
            Some((_, Block { kind: Kind::Pinned | Kind::Registered, .. })) if flags == 0 => put(out, at),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        memory::device(dst, bytes)?;
        let from = src as usize as u64;
        if memory::known(from, bytes) {
            return stream.enqueue(Work::Copy { dst, src: from, len: bytes });
        }
        staged(&stream, Work::Copy { dst, src: from, len: bytes })
    }

    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        memory::device(src, bytes)?;
        let to = dst as usize as u64;
        if memory::known(to, bytes) {
            return stream.enqueue(Work::Copy { dst: to, src, len: bytes });
        }
        staged(&stream, Work::Copy { dst: to, src, len: bytes })
    }

    fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        memory::device(dst, bytes)?;
        memory::device(src, bytes)?;
        stream.enqueue(Work::Copy { dst, src, len: bytes })
    }

    fn cuMemcpyPeerAsync(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, bytes: usize, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        context(to)?;
        context(from)?;
        memory::device(dst, bytes)?;
        memory::device(src, bytes)?;
        stream.enqueue(Work::Copy { dst, src, len: bytes })
    }

    fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, on: CUstream) {
        set(dst, value.into(), 1, count, on)
    }

    fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, on: CUstream) {
        set(dst, value.into(), 2, count, on)
    }

    fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, on: CUstream) {
        set(dst, value, 4, count, on)
    }
}

/// A copy of host memory that is not pinned holds the caller up until its turn has come and gone.
fn staged(stream: &std::sync::Arc<stream::Stream>, copy: Work) -> crate::call::Result {
    let captured = crate::call::lock(&stream.state).capture.is_some();
    stream.enqueue(copy)?;
    if !captured {
        let event = crate::event::get(crate::event::create(stream.ordinal, 0))?;
        stream.record(&event)?;
        crate::stream_calls::wait_for(&event)?;
    }
    match current_even_if_lost()?.card.lost.load(std::sync::atomic::Ordering::Acquire) {
        0 => Ok(()),
        code => Err(code),
    }
}
