//! Events.

use crate::pointer::{Out, bytes};
use crate::result::{Failure, Result, call};
use crate::runtime::device;
use crate::state;
use crate::stream::with_stream_in;
use crate::types::*;
use face::{Device, EventOptions, Stream, UniqueEvent};
use std::ffi::c_void;
use std::ptr;

/// Makes an event. It comes to life when it is first recorded.
///
/// @param device the device that it will be recorded on, or ANYACCEL_CURRENT_DEVICE for that of its first recording.
/// @param flags ANYACCEL_EVENT_*, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_create(device: i32, flags: u32, event: *mut anyaccel_event) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(event, "event")? };
        let known = ANYACCEL_EVENT_TIMING | ANYACCEL_EVENT_BLOCKING | ANYACCEL_EVENT_INTERPROCESS;
        if flags & !known != 0 {
            return Err(Failure::argument(format!("flags {flags:#x}: only ANYACCEL_EVENT_* are known")));
        }
        let tables = state::tables();
        let runtime = tables.runtime();
        let bound = match u32::try_from(device) {
            Ok(index) => Some(Device::new(runtime.kind().ok_or(face::Error::NoAccelerator)?, Some(index))),
            Err(_) => None,
        };
        let options = EventOptions {
            device: bound,
            enable_timing: flags & ANYACCEL_EVENT_TIMING != 0,
            blocking: flags & ANYACCEL_EVENT_BLOCKING != 0,
            interprocess: flags & ANYACCEL_EVENT_INTERPROCESS != 0,
        };
        out.put(tables.events.insert_with(|place| {
            match place {
                Some(event) => event.renew(options)?,
                None => *place = Some(runtime.unique_event(options)?),
            }
            Ok(())
        })?);
        Ok(())
    })
}

/// Runs `f` with the event of a handle.
#[inline]
pub(crate) fn with<T>(event: anyaccel_event, f: impl FnOnce(&UniqueEvent) -> face::Result<T>) -> Result<T> {
    state::tables().events.with(event, |event| Ok(f(event)?))
}

/// Runs `f` with the event of a handle and the stream of a number.
#[inline]
fn with_both(
    event: anyaccel_event,
    stream: anyaccel_stream,
    f: impl FnOnce(&UniqueEvent, &Stream) -> face::Result<()>,
) -> Result {
    let tables = state::tables();
    with_stream_in(tables, stream, ANYACCEL_CURRENT_DEVICE, |stream| {
        tables.events.with(event, |event| Ok(f(event, stream)?))
    })
}

/// Destroys an event. Waits for it stay in force; never waits. 0 is fine.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_event_destroy(event: anyaccel_event) -> anyaccel_result {
    call(|| match event {
        0 => Ok(()),
        // The place keeps what an event is made of.
        event => state::tables().events.remove_with(event, |place| {
            if let Some(event) = place {
                event.forget();
            }
        }),
    })
}

/// Records an event on a stream. An earlier recording is forgotten; waits for it stay in force.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_event_record(event: anyaccel_event, stream: anyaccel_stream) -> anyaccel_result {
    call(|| with_both(event, stream, |event, stream| event.record(Some(stream))))
}

/// Makes later work of a stream wait for the last recording. If the event was never recorded, does nothing. The stream may be
/// on another device.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_event_wait(event: anyaccel_event, stream: anyaccel_stream) -> anyaccel_result {
    call(|| with_both(event, stream, |event, stream| event.wait(Some(stream))))
}

/// Whether the work before the last recording has ended; true if it was never recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_query(event: anyaccel_event, ended: *mut bool) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(ended, "ended")? };
        out.put(with(event, UniqueEvent::query)?);
        Ok(())
    })
}

/// Waits on this thread for the work before the last recording.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_event_synchronize(event: anyaccel_event) -> anyaccel_result {
    call(|| with(event, UniqueEvent::synchronize))
}

/// Milliseconds from the last recording of one event to that of another. Both need ANYACCEL_EVENT_TIMING, and have to have
/// ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_elapsed(
    start: anyaccel_event,
    end: anyaccel_event,
    milliseconds: *mut f64,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(milliseconds, "milliseconds")? };
        let events = &state::tables().events;
        let took = events.with(start, |start| events.with(end, |end| Ok(start.elapsed_time(end)?)))?;
        out.put(took);
        Ok(())
    })
}

/// The device of an event: the one asked for, or that of its first recording; ANYACCEL_HOST (-1) before that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_device(event: anyaccel_event, device: *mut i32) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(device, "device")? };
        let index = with(event, |event| Ok(event.device().and_then(Device::index)))?;
        out.put(index.map_or(-1, |index| index as i32));
        Ok(())
    })
}

/// What another process opens an event with that was made with ANYACCEL_EVENT_INTERPROCESS: both then have one event, which stands
/// for its last recording by any of them. Starts the runtime.
///
/// @param handle receives it; NULL to ask for its size.
/// @param room bytes at handle.
/// @param size receives its size in bytes.
/// @return ANYACCEL_ERROR_UNSUPPORTED where the device shares no events; ANYACCEL_ERROR_ARGUMENT for an event that was made without
/// the flag, or too little room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_ipc_handle(
    event: anyaccel_event,
    handle: *mut c_void,
    room: usize,
    size: *mut usize,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(size, "size")? };
        let bytes = with(event, UniqueEvent::ipc_handle)?;
        if !handle.is_null() {
            if room < bytes.len() {
                return Err(Failure::argument(format!("room: {room} bytes for a handle of {}", bytes.len())));
            }
            // SAFETY: C1: there is that much room.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), handle.cast(), bytes.len()) };
        }
        out.put(bytes.len());
        Ok(())
    })
}

/// Opens an event that another process has on the same device. Starts the runtime. Whether it has ended may be told a moment late.
///
/// @param handle size bytes from anyaccel_event_ipc_handle().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_event_from_ipc_handle(
    device_or_current: i32,
    handle: *const c_void,
    size: usize,
    event: *mut anyaccel_event,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let (out, handle) = unsafe { (Out::new(event, "event")?, bytes(handle, size, "handle")?) };
        let tables = state::tables();
        let opened = tables.runtime().unique_event_from_ipc_handle(device(device_or_current), handle)?;
        out.put(tables.events.insert(opened)?);
        Ok(())
    })
}
