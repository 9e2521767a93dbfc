//! Pinned host memory by address.

use crate::pointer::Out;
use crate::result::call;
use crate::runtime::device;
use crate::stream::with_stream;
use crate::types::*;
use face::Runtime;
use std::ffi::c_void;
use std::ptr;

/// Takes host memory that a device reaches directly, from a cache: it holds what its last user left. Ordinary memory where the
/// device pins none. Starts the runtime.
///
/// @param device_or_current the device to pin for.
/// @param size bytes; 0 gives NULL.
/// @return ANYACCEL_ERROR_OUT_OF_HOST_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_host_alloc(
    device_or_current: i32,
    size: usize,
    memory: *mut *mut c_void,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(memory, "memory")? };
        out.put(ptr::with_exposed_provenance_mut(
            Runtime::global().alloc_pinned(device(device_or_current), size)? as usize
        ));
        Ok(())
    })
}

/// Gives pinned memory back. Never waits: it is reused once the copies that use it have ended. May be called from any thread,
/// and from host functions. NULL is fine.
///
/// @return ANYACCEL_ERROR_HANDLE for an address that anyaccel_host_alloc() did not give or that was freed already.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_host_free(memory: *mut c_void) -> anyaccel_result {
    if memory.is_null() {
        return ANYACCEL_OK;
    }
    call(|| Ok(Runtime::global().free_pinned(memory.addr() as u64)?))
}

/// Whether an address lies in memory of anyaccel_host_alloc(). NULL does not.
///
/// @param pointer any address, also one in the middle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_host_is_pinned(pointer: *const c_void, pinned: *mut bool) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(pinned, "pinned")? };
        out.put(Runtime::global().pinned_at(pointer.addr() as u64).is_some());
        Ok(())
    })
}

/// Notes that work on a stream, enqueued by other means than this API, uses pinned memory: once freed it is reused when what is
/// on that stream by then has ended.
///
/// @param memory any address inside.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_host_record_stream(memory: *mut c_void, stream: anyaccel_stream) -> anyaccel_result {
    call(|| with_stream(stream, |stream| Ok(stream.runtime().record_pinned(memory.addr() as u64, stream)?)))
}

/// Gives back pinned memory that is kept for reuse. While the runtime has not started: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_empty_host_cache() -> anyaccel_result {
    call(|| Ok(Runtime::global().empty_host_cache()?))
}
