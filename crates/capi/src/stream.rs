//! Streams, as numbers.

use crate::host_function::HostFunction;
use crate::pointer::Out;
use crate::result::{Failure, Result, call};
use crate::runtime::{device, named};
use crate::state::{self, Tables};
use crate::types::*;
use face::{Runtime, Stream, StreamOptions};
use std::sync::OnceLock;

/// Bits of a stream's number on its device; the device is above them.
const ID_BITS: u32 = 48;
const ID: u64 = (1 << ID_BITS) - 1;

/// The number of a stream.
pub(crate) fn number(stream: &Stream) -> anyaccel_stream {
    number_of((stream.device_index(), stream.stream_id()))
}

#[inline]
fn number_of((device, id): (u32, u64)) -> anyaccel_stream {
    u64::from(device) << ID_BITS | id
}

/// The streams that live as long as the process, as they were named first: the default and the pooled ones.
#[derive(Default)]
pub(crate) struct KnownStreams([OnceLock<Box<[OnceLock<Stream>]>>; KNOWN_DEVICES]);

/// Devices and ids beyond these are asked of the face each time.
const KNOWN_DEVICES: usize = 16;
const KNOWN_IDS: usize = 256;

impl KnownStreams {
    fn place(&self, device: usize, id: usize) -> Option<&OnceLock<Stream>> {
        let device = self.0.get(device)?.get_or_init(|| (0..KNOWN_IDS).map(|_| OnceLock::new()).collect());
        device.get(id)
    }

    #[inline]
    fn get(&self, device: usize, id: usize) -> Option<&Stream> {
        self.0.get(device)?.get()?.get(id)?.get()
    }
}

/// Runs `f` with the stream of a number; `current` is the device whose current stream ANYACCEL_CURRENT_STREAM stands for.
#[inline]
pub(crate) fn with_stream_on<T>(
    stream: anyaccel_stream,
    current: i32,
    f: impl FnOnce(&Stream) -> Result<T>,
) -> Result<T> {
    with_stream_in(state::tables(), stream, current, f)
}

/// The same where no device is given: the current stream is that of the current device.
#[inline]
pub(crate) fn with_stream<T>(stream: anyaccel_stream, f: impl FnOnce(&Stream) -> Result<T>) -> Result<T> {
    with_stream_in(state::tables(), stream, ANYACCEL_CURRENT_DEVICE, f)
}

/// The same for who has the tables.
///
/// Streams are borrowed, and handles made only where there is no other way: who moves a handle that was made just now waits
/// for it to be written and read again, which costs more than all the rest of a call.
#[inline]
pub(crate) fn with_stream_in<T>(
    tables: &Tables,
    stream: anyaccel_stream,
    current: i32,
    f: impl FnOnce(&Stream) -> Result<T>,
) -> Result<T> {
    let named = if stream == ANYACCEL_CURRENT_STREAM {
        number_of(tables.runtime().current_stream_id(device(current))?)
    } else {
        stream
    };
    let other;
    f(match tables.known_streams.get((named >> ID_BITS) as usize, (named & ID) as usize) {
        Some(known) => known,
        None => {
            other = ask(tables, stream, current)?;
            &other
        }
    })
}

/// A stream that was not named before, or that does not live as long as the process.
#[cold]
fn ask(tables: &Tables, stream: anyaccel_stream, current: i32) -> Result<Stream> {
    let runtime = tables.runtime();
    let found = if stream == ANYACCEL_CURRENT_STREAM {
        runtime.current_stream(device(current))?
    } else {
        runtime.stream_at((stream >> ID_BITS) as u32, stream & ID)?
    };
    let (device, id) = (found.device_index() as usize, found.stream_id() as usize);
    if let Some(place) = tables.known_streams.place(device, id).filter(|_| !found.is_reserved()) {
        place.get_or_init(|| found.clone());
    }
    Ok(found)
}

/// Makes a stream. Starts the runtime.
///
/// @param device an index, or ANYACCEL_CURRENT_DEVICE.
/// @param priority lower is more urgent; clamped to the device's range.
/// @param flags 0 for the next stream of the pool, as anyaccel_stream_from_pool(), or ANYACCEL_STREAM_RESERVED for one that
/// anyaccel_stream_destroy() gives back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_create(
    device_or_current: i32,
    priority: i32,
    flags: u32,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(stream, "stream")? };
        if flags & !ANYACCEL_STREAM_RESERVED != 0 {
            return Err(Failure::argument(format!("flags {flags:#x}: only ANYACCEL_STREAM_RESERVED is known")));
        }
        let reserved = flags & ANYACCEL_STREAM_RESERVED != 0;
        let made = Runtime::global().stream_with(device(device_or_current), StreamOptions { priority, reserved })?;
        out.put(number(&made));
        if reserved {
            state::tables().keep_stream(made);
        }
        Ok(())
    })
}

/// The next stream of a device's pool of 32 of that priority. Pooled streams live as long as the process: nothing has to be
/// destroyed. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_from_pool(
    device_or_current: i32,
    priority: i32,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    // SAFETY: the same conditions.
    unsafe { anyaccel_stream_create(device_or_current, priority, 0, stream) }
}

/// A stream that another library made (a CUstream), by its native name: work of both is in one order. It belongs to its maker,
/// who keeps it until anyaccel_stream_destroy() was called and the device was synchronized after that. Starts the runtime.
///
/// @return ANYACCEL_ERROR_UNSUPPORTED where the backend can't use such streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_import(
    device_or_current: i32,
    native: u64,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(stream, "stream")? };
        // SAFETY: what `external_stream` demands is this function's condition.
        let made = unsafe { Runtime::global().external_stream(device(device_or_current), native)? };
        out.put(number(&made));
        state::tables().keep_stream(made);
        Ok(())
    })
}

/// Gives a reserved or imported stream back, once its work has ended; never waits. Pooled and default streams stay.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_stream_destroy(stream: anyaccel_stream) -> anyaccel_result {
    call(|| {
        with_stream(stream, |named| {
            if stream != ANYACCEL_CURRENT_STREAM && named.is_reserved() {
                state::tables().forget_stream(named);
            }
            Ok(())
        })
    })
}

/// The default stream of a device, with id 0. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_default(
    device_or_current: i32,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(stream, "stream")? };
        out.put(number(&Runtime::global().default_stream(device(device_or_current))?));
        Ok(())
    })
}

/// This thread's current stream of a device: the default one until another is set. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_current(
    device_or_current: i32,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(stream, "stream")? };
        out.put(number_of(Runtime::global().current_stream_id(device(device_or_current))?));
        Ok(())
    })
}

/// Makes a stream current on this thread, and its device too.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_stream_set_current(stream: anyaccel_stream) -> anyaccel_result {
    call(|| with_stream(stream, |stream| Ok(stream.runtime().set_stream(stream)?)))
}

/// Makes a stream the current one of its device on this thread, and leaves the current device alone.
///
/// @param before receives the stream that was the current one of that device; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_exchange(
    stream: anyaccel_stream,
    before: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        with_stream(stream, |stream| {
            let was = stream.runtime().exchange_stream_id(stream)?;
            // SAFETY: C1 is this function's condition.
            if let Some(out) = unsafe { Out::optional(before) } {
                out.put(number_of((stream.device_index(), was)));
            }
            Ok(())
        })
    })
}

/// The stream with that id on that device; ANYACCEL_STREAM() does the same without asking whether it exists. Starts the
/// runtime.
///
/// @return ANYACCEL_ERROR_HANDLE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_from_id(
    device: i32,
    id: u64,
    stream: *mut anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(stream, "stream")? };
        let runtime = Runtime::global();
        let default = runtime.default_stream(named(device))?;
        out.put(number(&runtime.stream_at(default.device_index(), id)?));
        Ok(())
    })
}

/// The parts of a stream, as c10::Stream has them; the device type is anyaccel_kind(). Each of id, device and priority may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_id(
    stream: anyaccel_stream,
    id: *mut u64,
    device: *mut i32,
    priority: *mut i32,
) -> anyaccel_result {
    call(|| {
        with_stream(stream, |named| {
            // SAFETY: C1 is this function's condition.
            if let Some(out) = unsafe { Out::optional(id) } {
                out.put(named.stream_id());
            }
            for (out, value) in [(device, named.device_index() as i32), (priority, named.priority())] {
                // SAFETY: C1 is this function's condition.
                if let Some(out) = unsafe { Out::optional(out) } {
                    out.put(value);
                }
            }
            Ok(())
        })
    })
}

/// Whether all work enqueued so far has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_query(stream: anyaccel_stream, ended: *mut bool) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(ended, "ended")? };
        out.put(with_stream(stream, |stream| Ok(stream.query()?))?);
        Ok(())
    })
}

/// Waits for all work enqueued so far.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_stream_synchronize(stream: anyaccel_stream) -> anyaccel_result {
    call(|| with_stream(stream, |stream| Ok(stream.synchronize()?)))
}

/// Makes later work of a stream wait for what is enqueued on another now. It may be on another device.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_stream_wait_stream(stream: anyaccel_stream, other: anyaccel_stream) -> anyaccel_result {
    call(|| {
        let tables = state::tables();
        with_stream_in(tables, stream, ANYACCEL_CURRENT_DEVICE, |stream| {
            with_stream_in(tables, other, ANYACCEL_CURRENT_DEVICE, |other| Ok(stream.wait_stream(other)?))
        })
    })
}

/// The vendor's stream (a CUstream, a cl_command_queue); 0 where there is none. Valid while the stream lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_native(stream: anyaccel_stream, native: *mut u64) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(native, "native")? };
        out.put(with_stream(stream, |stream| Ok(stream.native_handle()?))?);
        Ok(())
    })
}

/// Whether a stream is being captured into a graph: what is enqueued is recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_is_capturing(
    stream: anyaccel_stream,
    capturing: *mut bool,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(capturing, "capturing")? };
        out.put(with_stream(stream, |stream| Ok(stream.is_capturing()?))?);
        Ok(())
    })
}

/// Calls a function of the host in stream order: once, or at each replay of the graph that it is captured into. See
/// anyaccel_host_function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_stream_host_function(
    stream: anyaccel_stream,
    function: *const anyaccel_host_function,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1, C3 and C4 are this function's conditions.
        let function = unsafe { HostFunction::new(function)? };
        with_stream(stream, |stream| Ok(stream.host_fn_mut(move || function.run())?))
    })
}
