//! Copies in every direction, by address.

use crate::memory::{index, with_place};
use crate::result::{Failure, Result, call};
use crate::stream::{with_stream, with_stream_on};
use crate::types::*;
use face::{Buffer, Runtime, Stream};
use std::ffi::c_void;
use std::ptr;

/// Copies bytes in the order of a stream: within a device, between devices (directly where they reach each other, else through
/// pinned memory), and from or to the host.
///
/// Without ANYACCEL_COPY_ASYNC it returns when the copy has ended. With it:
///
/// - between device memory, and with memory of anyaccel_host_alloc(), it returns at once. Freeing either side needs no wait;
///   reading or changing pinned memory does.
/// - from other host memory: that may be changed as soon as the call returns.
/// - to other host memory: the call returns when the copy has ended.
/// - from host to host: both sides have to live, and be left alone, until the copy has ended.
///
/// Inside a capture the copy is recorded; with pinned memory, which is then read or written at each replay and which the graph
/// keeps. Copies to other host memory, and of more than 64 KiB from it, are refused there.
///
/// @param dst_device the device that dst lies on, or ANYACCEL_HOST.
/// @param src_device the device that src lies on, or ANYACCEL_HOST.
/// @param stream of one of the two devices; ANYACCEL_CURRENT_STREAM: of the destination's, or else of the source's.
/// @param flags ANYACCEL_COPY_ASYNC, or 0.
/// @return ANYACCEL_ERROR_HANDLE for a device address that lies in no memory of this API, ANYACCEL_ERROR_WRONG_DEVICE for one of
/// another device, ANYACCEL_ERROR_ARGUMENT for a range that does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_copy(
    dst: *mut c_void,
    dst_device: i32,
    src: *const c_void,
    src_device: i32,
    size: u64,
    stream: anyaccel_stream,
    flags: u32,
) -> anyaccel_result {
    call(|| {
        if flags & !ANYACCEL_COPY_ASYNC != 0 {
            return Err(Failure::argument(format!("flags {flags:#x}: only ANYACCEL_COPY_ASYNC is known")));
        }
        if size == 0 {
            return Ok(());
        }
        if dst.is_null() || src.is_null() {
            return Err(Failure::argument(format!("{}: NULL", if dst.is_null() { "dst" } else { "src" })));
        }
        if dst_device < ANYACCEL_HOST || src_device < ANYACCEL_HOST {
            return Err(Failure::argument(format!("devices {dst_device} and {src_device}: an index or ANYACCEL_HOST")));
        }
        let runtime = Runtime::global();
        let wait = flags & ANYACCEL_COPY_ASYNC == 0;
        let ended = |stream: &Stream| if wait && !stream.is_capturing()? { Ok(stream.synchronize()?) } else { Ok(()) };
        match (dst_device, src_device) {
            (ANYACCEL_HOST, ANYACCEL_HOST) => with_stream(stream, |stream| {
                let (to, from, len) = (HostAddress(dst), HostAddress(src.cast_mut()), size as usize);
                stream.host_fn_mut(move || {
                    let (HostAddress(to), HostAddress(from)) = (to.whole(), from.whole());
                    // SAFETY: C5: both sides live and are left alone until the copy has ended.
                    unsafe { ptr::copy(from.cast::<u8>(), to.cast::<u8>(), len) }
                })?;
                ended(stream)
            }),
            (_, ANYACCEL_HOST) => with_place(&runtime, dst, size, |to, at| {
                lies_on(to, dst_device, "dst")?;
                let to = to.slice(at..at + size)?;
                with_stream_on(stream, dst_device, |stream| {
                    // SAFETY: C1 and C5 are this function's conditions.
                    unsafe { stream.upload_from(&to, src.cast())? };
                    ended(stream)
                })
            }),
            (ANYACCEL_HOST, _) => with_place(&runtime, src, size, |from, at| {
                lies_on(from, src_device, "src")?;
                let from = from.slice(at..at + size)?;
                with_stream_on(stream, src_device, |stream| {
                    // SAFETY: C1 and C5 are this function's conditions.
                    unsafe { stream.download_into(dst.cast(), &from)? };
                    ended(stream)
                })
            }),
            _ => with_place(&runtime, dst, size, |to, to_at| {
                with_place(&runtime, src, size, |from, from_at| {
                    lies_on(to, dst_device, "dst")?;
                    lies_on(from, src_device, "src")?;
                    let (to, from) = (to.slice(to_at..to_at + size)?, from.slice(from_at..from_at + size)?);
                    with_stream_on(stream, dst_device, |stream| {
                        stream.copy(&to, &from)?;
                        ended(stream)
                    })
                })
            }),
        }
    })
}

/// An address that a host function takes along.
#[derive(Clone, Copy)]
struct HostAddress(*mut c_void);

// SAFETY: C5: what lies there is the copy's alone while it goes on, whichever thread does it.
unsafe impl Send for HostAddress {}

impl HostAddress {
    /// Itself: so that a closure takes all of it, not the pointer inside.
    fn whole(self) -> Self {
        self
    }
}

#[inline]
fn lies_on(buffer: &Buffer, device: i32, which: &str) -> Result {
    if index(buffer) == device { Ok(()) } else { Err(elsewhere(buffer, device, which)) }
}

#[cold]
fn elsewhere(buffer: &Buffer, device: i32, which: &str) -> Failure {
    Failure::new(
        ANYACCEL_ERROR_WRONG_DEVICE,
        format!("{which} lies on {}, but was said to lie on device {device}", buffer.device()),
    )
}
