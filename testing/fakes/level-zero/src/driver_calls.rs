//! Functions about the driver and contexts.

use crate::abi::*;
use crate::call::{Registry, Result, array, exports, fill, get, initialise, list, put, text};
use crate::config::config;
use crate::device::{self, DRIVER, Device};
use std::ffi::{CStr, c_char, c_void};

/// A context: devices that share memory and events.
pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) devices: Vec<&'static Device>,
}

pub(crate) static CONTEXTS: Registry<Context> = Registry::new(0x00C0_0000_0000);

impl Context {
    /// A device of this context, or a part of one.
    pub(crate) fn device(&self, handle: Handle) -> Result<&'static Device> {
        let device = device::get(handle)?;
        let covered = |other: &&'static Device| {
            std::ptr::eq(*other, device) || other.parts.iter().any(|part| std::ptr::eq(*part, device))
        };
        if self.devices.iter().any(covered) { Ok(device) } else { Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) }
    }

    pub(crate) fn alive(&self) -> Result {
        self.devices.iter().try_for_each(|device| crate::control::alive(device.card))
    }
}

/// Checks the handle of the driver.
pub(crate) fn driver(handle: Handle) -> Result {
    match handle {
        DRIVER => Ok(()),
        0 => Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// The extensions that the driver names.
fn extensions() -> Vec<(&'static str, u32)> {
    let mut names = vec![("ZE_extension_pci_properties", version(1, 0))];
    if config().has("graph_exp") {
        names.push(("ZE_experimental_record_replay_graph", version(1, 0)));
    }
    if config().has("graph_ext") {
        names.push(("ZE_extension_record_replay_graph", version(1, 0)));
    }
    if config().has("host_function") {
        names.push(("ZE_extension_host_function", version(1, 0)));
    }
    names
}

fn start() -> Result {
    match device::start() {
        Some(1..) => {
            initialise();
            Ok(())
        }
        _ => Err(ZE_RESULT_ERROR_UNINITIALIZED),
    }
}

fn create(driver_handle: Handle, devices: Vec<&'static Device>) -> Result<Handle> {
    driver(driver_handle)?;
    Ok(CONTEXTS.add_with(|handle| Context { handle, devices }).0)
}

/// What a caller of `zeInitDrivers` wants; since 1.10.
#[repr(C)]
#[allow(non_snake_case, reason = "the interface's own")]
pub(crate) struct InitDriverTypes {
    stype: u32,
    pNext: *const c_void,
    flags: u32,
}

exports! {
    fn zeInit(flags: u32) {
        if flags > 3 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        start()
    }

    fn zeInitDrivers(count: *mut u32, drivers: *mut Handle, desc: *const InitDriverTypes) {
        if get(desc)?.flags & 1 == 0 {
            return Err(ZE_RESULT_ERROR_UNINITIALIZED);
        }
        start()?;
        list(count, drivers, [DRIVER].into_iter(), |to, handle| *to = handle)
    }

    fn zeDriverGet(count: *mut u32, drivers: *mut Handle) {
        list(count, drivers, [DRIVER].into_iter(), |to, handle| *to = handle)
    }

    fn zeDriverGetApiVersion(handle: Handle, out: *mut u32) {
        driver(handle)?;
        put(out, config().api)
    }

    fn zeDriverGetProperties(handle: Handle, out: *mut ze_driver_properties_t) {
        driver(handle)?;
        let out = fill(out)?;
        out.uuid = *b"anyaccel fake ze";
        out.driverVersion = 0x0103_0000 | config().api & 0xFFFF;
        Ok(())
    }

    fn zeDriverGetIpcProperties(handle: Handle, out: *mut ze_driver_ipc_properties_t) {
        driver(handle)?;
        fill(out)?.flags = 0;
        Ok(())
    }

    fn zeDriverGetExtensionProperties(handle: Handle, count: *mut u32, out: *mut ze_driver_extension_properties_t) {
        driver(handle)?;
        list(count, out.cast::<ze_driver_extension_properties_t>(), extensions().into_iter().map(|(name, version)| {
            ze_driver_extension_properties_t { name: text(name), version }
        }), |to, from| *to = from)
    }

    fn zeDriverGetExtensionFunctionAddress(handle: Handle, name: *const c_char, out: *mut *const c_void) {
        driver(handle)?;
        get(name)?;
        let name = CStr::from_ptr(name).to_string_lossy();
        let found = crate::tables::EXTENSIONS.iter().find(|entry| entry.name == name && config().has(entry.feature));
        put(out, found.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?.address.0)
    }

    fn zelLoaderTranslateHandle(kind: u32, handle: Handle, out: *mut Handle) {
        if kind > 22 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        put(out, handle)
    }

    fn zexDriverImportExternalPointer(handle: Handle, at: *mut c_void, len: usize) {
        driver(handle)?;
        crate::memory::import(at as u64, len as u64)
    }

    fn zexDriverReleaseImportedPointer(handle: Handle, at: *mut c_void) {
        driver(handle)?;
        crate::memory::release(at as u64)
    }

    fn zeContextCreate(handle: Handle, desc: *const ze_context_desc_t, out: *mut Handle) {
        if get(desc)?.flags > 1 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let devices = device::view().map_or(Vec::new(), |view| view.devices.clone());
        put(out, create(handle, devices)?)
    }

    fn zeContextCreateEx(
        handle: Handle,
        desc: *const ze_context_desc_t,
        count: u32,
        devices: *const Handle,
        out: *mut Handle,
    ) {
        if get(desc)?.flags > 1 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if count == 0 {
            let devices = device::view().map_or(Vec::new(), |view| view.devices.clone());
            return put(out, create(handle, devices)?);
        }
        let devices = array(devices, count)?.iter().map(|&device| device::get(device)).collect::<Result<_>>()?;
        put(out, create(handle, devices)?)
    }

    fn zeContextDestroy(context: Handle) {
        CONTEXTS.remove(context, |context| match crate::memory::any_of(context.handle) {
            true => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
            false => Ok(()),
        }).map(drop)
    }

    fn zeContextGetStatus(context: Handle) {
        CONTEXTS.get(context)?.alive()
    }

    fn zeContextSystemBarrier(context: Handle, device: Handle) {
        CONTEXTS.get(context)?.device(device).map(drop)
    }

    fn zeContextMakeMemoryResident(context: Handle, device: Handle, at: *mut c_void, len: usize) {
        let context = CONTEXTS.get(context)?;
        crate::control::alive(context.device(device)?.card)?;
        crate::memory::of_context(context.handle, at as u64, len)
    }

    fn zeContextEvictMemory(context: Handle, device: Handle, at: *mut c_void, len: usize) {
        let context = CONTEXTS.get(context)?;
        context.device(device)?;
        crate::memory::of_context(context.handle, at as u64, len)
    }
}
