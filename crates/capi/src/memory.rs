//! Device memory by address: taking it, giving it back, and what streams do with it.

use crate::pointer::{Out, bytes, put_struct};
use crate::result::{Failure, Result, call};
use crate::runtime::device;
use crate::stream::{with_stream, with_stream_on};
use crate::types::*;
use face::{Buffer, Runtime, Stream};
use std::ffi::c_void;
use std::ptr;

/// Takes device memory from the cache, for a stream: its home. Memory that is given back is reused on its home in stream
/// order, and elsewhere once the work that used it has ended. Inside a capture it comes from the graph's pool. Contents are
/// undefined. Starts the runtime.
///
/// @param device_or_current an index, or ANYACCEL_CURRENT_DEVICE. The stream has to be one of it.
/// @param size bytes; 0 gives NULL.
/// @param stream ANYACCEL_CURRENT_STREAM: the current stream of that device.
/// @param memory receives the address: of the device, and for the host to touch only if the device is
/// ANYACCEL_DEVICE_HOST_ADDRESSABLE.
/// @return ANYACCEL_ERROR_OUT_OF_MEMORY, with what was asked, what is free and what the cache holds in the message;
/// ANYACCEL_ERROR_UNSUPPORTED for a device whose memory has no addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_alloc(
    device_or_current: i32,
    size: u64,
    stream: anyaccel_stream,
    memory: *mut *mut c_void,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(memory, "memory")? };
        with_stream_on(stream, device_or_current, |home| {
            if stream != ANYACCEL_CURRENT_STREAM {
                on_device(home, device_or_current)?;
            }
            out.put(address(home.alloc(size)?.into_address()?));
            Ok(())
        })
    })
}

/// Refuses a stream of another device than the one that was named.
fn on_device(stream: &Stream, device: i32) -> Result {
    if device >= 0 && stream.device_index() != device as u32 {
        return Err(Failure::new(
            ANYACCEL_ERROR_WRONG_DEVICE,
            format!("stream {} is on device {}, but {device} is needed", stream.stream_id(), stream.device_index()),
        ));
    }
    Ok(())
}

fn address(addr: u64) -> *mut c_void {
    ptr::without_provenance_mut(addr as usize)
}

/// Gives device memory back by its address alone. Never waits: work that was enqueued on it before goes on undisturbed. May be
/// called from any thread, from host functions, and during captures. NULL is fine.
///
/// @return ANYACCEL_ERROR_HANDLE for an address that anyaccel_alloc() did not give or that was freed already; nothing is
/// touched then. In a forked child ANYACCEL_ERROR_HANDLE too for the parent's memory.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_free(memory: *mut c_void) -> anyaccel_result {
    if memory.is_null() {
        return ANYACCEL_OK;
    }
    call(|| {
        drop(Runtime::global().take_buffer(memory.addr() as u64)?);
        Ok(())
    })
}

/// Notes that work on a stream, enqueued by other means than this API (a kernel of one's own), uses the memory: when it is
/// freed it waits for what is on that stream by then. Work enqueued by this API is noted by itself.
///
/// @param memory any address inside.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_record_stream(memory: *mut c_void, stream: anyaccel_stream) -> anyaccel_result {
    if memory.is_null() {
        return ANYACCEL_OK;
    }
    call(|| {
        with_stream(stream, |stream| {
            let record = |buffer: &Buffer, _| buffer.record_stream(stream);
            // SAFETY: by C2 nobody frees it during the call.
            Ok(unsafe { stream.runtime().with_buffer_at(memory.addr() as u64, record)? }?)
        })
    })
}

/// What lies at an address, which may point into the middle of it.
///
/// @param pointer any address; that of unknown memory gives ANYACCEL_POINTER_UNKNOWN and is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_get_pointer_info(
    pointer: *const c_void,
    info: *mut anyaccel_pointer_info,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let out = unsafe { put_struct(info, "info")? };
        let runtime = Runtime::global();
        let addr = pointer.addr() as u64;
        let mut found = anyaccel_pointer_info {
            struct_size: 0,
            kind: ANYACCEL_POINTER_UNKNOWN,
            device: ANYACCEL_HOST,
            reserved: 0,
            base: ptr::null_mut(),
            size: 0,
            capacity: 0,
        };
        if let Ok((buffer, _)) = runtime.buffer_at(addr) {
            found.kind = ANYACCEL_POINTER_DEVICE;
            found.device = buffer.device().index().map_or(ANYACCEL_HOST, |index| index as i32);
            (found.base, found.size, found.capacity) = (address(buffer.address()), buffer.len(), buffer.capacity());
        } else if let Some(pinned) = runtime.pinned_at(addr) {
            found.kind = ANYACCEL_POINTER_PINNED;
            found.device = pinned.device.index().map_or(ANYACCEL_HOST, |index| index as i32);
            (found.base, found.size, found.capacity) = (address(pinned.start), pinned.len, pinned.capacity());
        }
        out.put(found);
        Ok(())
    })
}

/// Runs `f` with `len` bytes of device memory from an address on.
#[inline]
pub(crate) fn with_place<T>(
    runtime: &Runtime,
    pointer: *const c_void,
    len: u64,
    f: impl FnOnce(&Buffer, u64) -> Result<T>,
) -> Result<T> {
    let addr = pointer.addr() as u64;
    let f = |buffer: &Buffer, offset| {
        if len > buffer.len() - offset { Err(too_long(buffer, addr, len, offset)) } else { f(buffer, offset) }
    };
    // SAFETY: by C2 nobody frees it during the call.
    unsafe { runtime.with_buffer_at(addr, f)? }
}

#[cold]
fn too_long(buffer: &Buffer, addr: u64, len: u64, offset: u64) -> Failure {
    Failure::argument(format!(
        "{len} bytes at {addr:#x} on {}: only {} are left of the {} from {:#x} on",
        buffer.device(),
        buffer.len() - offset,
        buffer.len(),
        buffer.address()
    ))
}

/// Fills device memory with a pattern, over and over from its start; a last, partial repetition is cut.
///
/// @param memory any address inside.
/// @param size bytes.
/// @param pattern pattern_size bytes, taken before the call returns.
/// @param pattern_size 1, 2, 4, 8 or 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_fill(
    memory: *mut c_void,
    size: u64,
    pattern: *const c_void,
    pattern_size: usize,
    stream: anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        if pattern_size > 16 {
            return Err(Failure::argument(format!(
                "pattern_size: expected 1, 2, 4, 8 or 16 bytes, got {pattern_size}"
            )));
        }
        // SAFETY: C1 is this function's condition.
        let pattern = unsafe { bytes(pattern, pattern_size, "pattern")? };
        if size == 0 {
            return Ok(());
        }
        let runtime = Runtime::global();
        with_place(&runtime, memory, size, |buffer, offset| {
            let to = buffer.slice(offset..offset + size)?;
            with_stream_on(stream, index(buffer), |stream| Ok(stream.fill(&to, pattern)?))
        })
    })
}

pub(crate) fn index(buffer: &Buffer) -> i32 {
    buffer.device().index().map_or(ANYACCEL_CURRENT_DEVICE, |index| index as i32)
}

/// Sets bytes of device memory, as memset does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_memset(
    memory: *mut c_void,
    value: u8,
    size: u64,
    stream: anyaccel_stream,
) -> anyaccel_result {
    // SAFETY: C1: a borrowed byte; the rest are the same conditions.
    unsafe { anyaccel_fill(memory, size, (&raw const value).cast(), 1, stream) }
}

/// Converts elements of one type to another, in device memory.
///
/// @param dtype the element type, by PyTorch's number (c10::ScalarType).
/// @param count elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_convert(
    dst: *mut c_void,
    dst_dtype: u32,
    src: *const c_void,
    src_dtype: u32,
    count: u64,
    stream: anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        let (to, from) = (dtype(dst_dtype)?, dtype(src_dtype)?);
        if count == 0 {
            return Ok(());
        }
        let bytes = |of: face::DType| {
            count.checked_mul(of.size() as u64).ok_or_else(|| Failure::argument(format!("count: {count} elements")))
        };
        let (to_bytes, from_bytes) = (bytes(to)?, bytes(from)?);
        let runtime = Runtime::global();
        with_place(&runtime, dst, to_bytes, |dst, dst_at| {
            with_place(&runtime, src, from_bytes, |src, src_at| {
                let (device, dst) = (index(dst), dst.slice(dst_at..dst_at + to_bytes)?);
                let src = src.slice(src_at..src_at + from_bytes)?;
                with_stream_on(stream, device, |stream| Ok(stream.convert(&dst, to, &src, from)?))
            })
        })
    })
}

/// The element type with PyTorch's number.
pub(crate) fn dtype(number: u32) -> Result<face::DType> {
    let known = u8::try_from(number).ok().and_then(face::DType::from_number);
    known.ok_or_else(|| {
        Failure::new(ANYACCEL_ERROR_UNSUPPORTED, format!("dtype {number}: no element type of this runtime has it"))
    })
}

/// Gives back device memory that is kept for reuse, after waiting for the work that uses it. While the runtime has not
/// started, and during a capture: nothing. What graphs hold stays.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_empty_cache() -> anyaccel_result {
    call(|| Ok(Runtime::global().empty_cache()?))
}

/// Limits what this process takes from a device to a number of bytes. Before the start it is kept for it.
///
/// @param bytes UINT64_MAX: no limit.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_set_memory_budget(device_or_current: i32, bytes: u64) -> anyaccel_result {
    call(|| {
        let bytes = Some(bytes).filter(|&bytes| bytes != u64::MAX);
        Ok(Runtime::global().set_memory_budget(bytes, device(device_or_current))?)
    })
}

/// Limits what this process takes from a device to a fraction of its memory, from 0 to 1; 1 is no limit. Before the start it is
/// kept for it.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_set_memory_fraction(device_or_current: i32, fraction: f64) -> anyaccel_result {
    call(|| Ok(Runtime::global().set_per_process_memory_fraction(fraction, device(device_or_current))?))
}
