//! Functions about memory.

use crate::abi::*;
use crate::call::{Result, exports, fill, get, put};
use crate::control::alive;
use crate::device::Device;
use crate::driver_calls::{CONTEXTS, Context};
use crate::lane;
use crate::memory::{self, Kind};
use std::ffi::c_void;

fn device_of(context: &Context, handle: Handle) -> Result<&'static Device> {
    let device = context.device(handle)?;
    alive(device.card)?;
    Ok(device)
}

exports! {
    fn zeMemAllocDevice(
        context: Handle,
        desc: *const ze_device_mem_alloc_desc_t,
        size: usize,
        align: usize,
        device: Handle,
        out: *mut *mut c_void,
    ) {
        let context = CONTEXTS.get(context)?;
        let desc = get(desc)?;
        if desc.flags > 7 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if desc.ordinal > 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        fill(out)?;
        let device = device_of(&context, device)?;
        put(out, memory::alloc(context.handle, Kind::Device(device), size, align)? as *mut c_void)
    }

    fn zeMemAllocHost(
        context: Handle,
        desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        align: usize,
        out: *mut *mut c_void,
    ) {
        let context = CONTEXTS.get(context)?;
        if get(desc)?.flags > 15 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        fill(out)?;
        put(out, memory::alloc(context.handle, Kind::Host, size, align)? as *mut c_void)
    }

    fn zeMemAllocShared(
        context: Handle,
        desc: *const ze_device_mem_alloc_desc_t,
        host: *const ze_host_mem_alloc_desc_t,
        size: usize,
        align: usize,
        device: Handle,
        out: *mut *mut c_void,
    ) {
        let context = CONTEXTS.get(context)?;
        if get(desc)?.flags > 7 || get(host)?.flags > 15 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        fill(out)?;
        let device = if device == 0 { None } else { Some(device_of(&context, device)?) };
        put(out, memory::alloc(context.handle, Kind::Shared(device), size, align)? as *mut c_void)
    }

    fn zeMemFree(context: Handle, at: *mut c_void) {
        fill(at.cast::<u8>())?;
        memory::free(CONTEXTS.get(context)?.handle, at as u64)
    }

    fn zeMemFreeExt(context: Handle, desc: *const ze_memory_free_ext_desc_t, at: *mut c_void) {
        let context = CONTEXTS.get(context)?;
        fill(at.cast::<u8>())?;
        let policy = get(desc)?.freePolicy;
        if policy > 3 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        memory::of_context(context.handle, at as u64, 1)?;
        if policy == ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE {
            for device in &context.devices {
                lane::drain(device.card);
            }
            return memory::free(context.handle, at as u64);
        }
        let at = at as u64;
        let free = move || {
            for device in &context.devices {
                lane::drain(device.card);
            }
            // It may have been freed meanwhile, which is the caller's mistake.
            let _freed = memory::free(context.handle, at);
        };
        std::thread::Builder::new().name("fake-ze-free".into()).spawn(free).expect("a thread for the fake");
        Ok(())
    }

    fn zeMemGetAllocProperties(
        context: Handle,
        at: *const c_void,
        out: *mut ze_memory_allocation_properties_t,
        device: *mut Handle,
    ) {
        let context = CONTEXTS.get(context)?;
        let found = memory::read().find(at as u64).filter(|(_, block)| block.context == context.handle);
        let out = fill(out)?;
        (out.r#type, out.id, out.pageSize) = match found {
            Some((_, block)) => {
                let kind = match block.kind {
                    Kind::Device(_) | Kind::Mapped(..) => ZE_MEMORY_TYPE_DEVICE,
                    Kind::Host => ZE_MEMORY_TYPE_HOST,
                    Kind::Shared(_) => ZE_MEMORY_TYPE_SHARED,
                };
                (kind, block.id, memory::PAGE)
            }
            None => (ZE_MEMORY_TYPE_UNKNOWN, 0, 0),
        };
        if !device.is_null() {
            device.write(found.and_then(|(_, block)| block.kind.device()).map_or(0, |device| device.handle));
        }
        Ok(())
    }

    fn zeMemGetAddressRange(context: Handle, at: *const c_void, base: *mut *mut c_void, size: *mut usize) {
        let context = CONTEXTS.get(context)?;
        let found = memory::read().find(at as u64).filter(|(_, block)| block.context == context.handle);
        let (start, block) = found.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        if !base.is_null() {
            base.write(start as *mut c_void);
        }
        if !size.is_null() {
            size.write(block.len as usize);
        }
        Ok(())
    }
}
