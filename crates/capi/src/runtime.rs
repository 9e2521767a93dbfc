//! The runtime and its devices.

use crate::pointer::{Out, put_struct, text, write_text};
use crate::result::{Failure, Result, call};
use crate::types::*;
use face::{DeviceArg, Runtime};
use std::ffi::{c_char, c_void};
use std::path::Path;

/// A device argument that has to name one.
pub(crate) fn named(device: i32) -> DeviceArg<'static> {
    DeviceArg::Index(device.into())
}

/// A device argument for which ANYACCEL_CURRENT_DEVICE stands for the current one.
pub(crate) fn device(device: i32) -> DeviceArg<'static> {
    if device == ANYACCEL_CURRENT_DEVICE { DeviceArg::Current } else { named(device) }
}

/// ANYACCEL_API_MAJOR << 16 | ANYACCEL_API_MINOR of the library. Starts nothing, as do all functions that don't say so.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_api_version() -> u32 {
    ANYACCEL_API_MAJOR << 16 | ANYACCEL_API_MINOR
}

/// Starts the runtime unless it has started. Not needed: every function that touches a device does it.
///
/// ANYACCEL_BACKEND names the backend, else it is the first kind that has a device; ANYACCEL_PLUGINS names vendors' plugins.
///
/// @return ANYACCEL_ERROR_NO_DEVICE, ANYACCEL_ERROR_UNKNOWN_BACKEND, ANYACCEL_ERROR_SETTINGS, ANYACCEL_ERROR_START or
/// ANYACCEL_ERROR_FORKED. All but the last may be tried again.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_init() -> anyaccel_result {
    call(|| Ok(Runtime::global().ensure_started()?))
}

/// Whether the runtime has started in this process (not in one that it was forked from).
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_is_started() -> bool {
    Runtime::global().is_started()
}

/// The kind of device that is in use or would be: "cuda", "host". Empty where there is none.
///
/// @param write receives the name, without terminator.
/// @return ANYACCEL_ERROR_UNKNOWN_BACKEND if ANYACCEL_BACKEND names no backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_kind(write: anyaccel_write_text, data: *mut c_void) -> anyaccel_result {
    call(|| {
        let runtime = Runtime::global();
        let Some(kind) = runtime.kind() else {
            refuse_unknown_backend()?;
            // SAFETY: C4 is this function's condition.
            return unsafe { write_text(write, data, "") };
        };
        // SAFETY: C4 is this function's condition.
        unsafe { write_text(write, data, kind.name()) }
    })
}

/// Where nothing was found, the reason if it is a name that nobody has.
#[cold]
fn refuse_unknown_backend() -> Result {
    match face::selection().error {
        Some(error @ face::Error::UnknownBackend { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Loads a vendor's plugin, as ANYACCEL_PLUGINS does. Before the start, for the runtime to choose from it.
///
/// @param path an absolute path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_load_plugin(path: *const c_char) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let path = unsafe { text(path, "path")? };
        face::load_plugin(Path::new(path))?;
        Ok(())
    })
}

/// How many devices are visible, masks applied; 0 is no error.
///
/// @return ANYACCEL_ERROR_UNKNOWN_BACKEND if ANYACCEL_BACKEND names no backend; *count is 0 then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_device_count(count: *mut i32) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(count, "count")? };
        let found = Runtime::global().device_count();
        out.put(found as i32);
        if found == 0 { refuse_unknown_backend() } else { Ok(()) }
    })
}

/// This thread's current device; 0 if it never chose one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_current_device(device: *mut i32) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(device, "device")? };
        out.put(Runtime::global().current_device_index()? as i32);
        Ok(())
    })
}

/// Makes a device current on this thread. Starts the runtime. A negative index changes nothing and starts nothing.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_set_device(device: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().set_device_index(named(device))?))
}

/// The same, with the device that was current before.
///
/// @param before receives it; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_exchange_device(device: i32, before: *mut i32) -> anyaccel_result {
    call(|| {
        let runtime = Runtime::global();
        let was = runtime.exchange_device_index(device.into())?;
        // SAFETY: C1 is this function's condition.
        if let Some(out) = unsafe { Out::optional(before) } {
            out.put(was as i32);
        }
        Ok(())
    })
}

/// Waits for all streams of a device. While the runtime has not started: checks the argument and returns.
///
/// @param device_or_current an index, or ANYACCEL_CURRENT_DEVICE.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_synchronize_device(device_or_current: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().synchronize(device(device_or_current))?))
}

/// Free and total bytes of a device, all processes together. Starts the runtime.
///
/// @param free receives bytes; may be NULL.
/// @param total receives bytes; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_memory_info(
    device_or_current: i32,
    free: *mut u64,
    total: *mut u64,
) -> anyaccel_result {
    call(|| {
        let (now, all) = Runtime::global().get_memory_info(device(device_or_current))?;
        // SAFETY: C1 is this function's condition.
        for (out, value) in [(free, now), (total, all)] {
            // SAFETY: C1 is this function's condition.
            if let Some(out) = unsafe { Out::optional(out) } {
                out.put(value);
            }
        }
        Ok(())
    })
}

/// The element types that a device has: bit n for the one with PyTorch's number n (c10::ScalarType). Starts the runtime where
/// its probe can't tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_device_capability(device_or_current: i32, dtypes: *mut u64) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(dtypes, "dtypes")? };
        let capability = Runtime::global().get_device_capability(device(device_or_current))?;
        out.put(capability.supported_dtypes.to_bits());
        Ok(())
    })
}

/// What a device is. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_get_device_info(
    device_or_current: i32,
    info: *mut anyaccel_device_info,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let out = unsafe { put_struct(info, "info")? };
        let runtime = Runtime::global();
        runtime.ensure_started()?;
        let facts = runtime.get_device_properties(device(device_or_current))?;
        let memory = runtime.memory_facts(device(device_or_current))?;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        out.put(anyaccel_device_info {
            struct_size: 0,
            flags: flag(memory.host_addressable, ANYACCEL_DEVICE_HOST_ADDRESSABLE)
                | flag(facts.integrated == Some(true), ANYACCEL_DEVICE_INTEGRATED)
                | flag(memory.pins, ANYACCEL_DEVICE_PINS),
            memory: facts.memory,
            max_alloc: facts.max_alloc,
            alignment: facts.alignment,
            dtypes: facts.dtypes.to_bits(),
            cores: facts.cores.unwrap_or(0),
            clock_mhz: facts.clock_mhz.unwrap_or(0),
            least_priority: facts.priorities.least,
            greatest_priority: facts.priorities.greatest,
            uuid: facts.uuid.map_or([0; 16], |uuid| uuid.0),
            name: cut(&facts.name),
            vendor: cut(&facts.vendor),
            driver: cut(&facts.driver),
        });
        Ok(())
    })
}

/// Text for a field: cut at a character, and terminated.
fn cut<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let kept = text.floor_char_boundary(N - 1);
    for (to, from) in field.iter_mut().zip(text[..kept].bytes()) {
        *to = from as c_char;
    }
    field
}

/// Whether a device reaches the memory of another directly; false for itself. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_can_access_peer(device: i32, peer: i32, can: *mut bool) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(can, "can")? };
        if device < 0 || peer < 0 {
            return Err(Failure::argument(format!("devices {device} and {peer}: indices are not negative")));
        }
        out.put(Runtime::global().can_device_access_peer(named(device), named(peer))?);
        Ok(())
    })
}
