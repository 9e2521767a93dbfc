//! Exports about the driver, devices and contexts.

use crate::call::{exports, initialise, put};
use crate::config::config;
use crate::context::{self, context, current, device, devices};
use anyaccel_cuda::sys::*;
use std::ffi::c_char;
use std::sync::atomic::Ordering;

/// Writes a text and its zero, cut to the room there is.
pub(crate) unsafe fn put_text(out: *mut c_char, room: usize, text: &str) -> crate::call::Result {
    if out.is_null() || room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let len = text.len().min(room - 1);
    // SAFETY: the caller's room, and len + 1 is at most that.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, len);
        out.add(len).write(0);
    }
    Ok(())
}

exports! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if context::start() == 0 {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        initialise();
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut i32) {
        let (major, minor) = config().driver;
        put(version, (major * 1000 + minor * 10) as i32)
    }

    fn cuDeviceGetCount(count: *mut i32) {
        put(count, devices()?.len() as i32)
    }

    fn cuDeviceGet(out: *mut CUdevice, ordinal: i32) {
        device(ordinal)?;
        put(out, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, len: i32, at: CUdevice) {
        put_text(name, len.max(0) as usize, &device(at)?.card.name)
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], at: CUdevice) {
        put(uuid, device(at)?.uuid())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, at: CUdevice) {
        put(bytes, device(at)?.card.memory as usize)
    }

    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, at: CUdevice) {
        let card = device(at)?.card;
        put(value, match attribute {
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => i32::MAX,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 227 << 10,
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 4,
            CU_DEVICE_ATTRIBUTE_INTEGRATED | CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID | CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => 0,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => 0x10 + card.place as i32,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => card.major,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => card.minor,
            CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
            | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => 1,
            CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED => i32::from(config().ipc),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuDeviceCanAccessPeer(can: *mut i32, at: CUdevice, peer: CUdevice) {
        let (one, other) = (device(at)?, device(peer)?);
        put(can, i32::from(config().peers && one.uuid() != other.uuid()))
    }

    fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, at: CUdevice) {
        put(out, context::retain(at)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(at: CUdevice) {
        context::release(at)
    }

    fn cuCtxPushCurrent_v2(handle: CUcontext) {
        context::push(handle)
    }

    fn cuCtxPopCurrent_v2(out: *mut CUcontext) {
        let popped = context::pop()?;
        if out.is_null() { Ok(()) } else { put(out, popped) }
    }

    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) {
        let (here, there) = (current()?, context(peer)?);
        if flags != 0 || here.ordinal == there.ordinal {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !config().peers {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        crate::memory::enable_peer(here.ordinal, there.ordinal)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let card = current()?.card;
        put(free, card.memory.saturating_sub(card.used.load(Ordering::Acquire)) as usize)?;
        put(total, card.memory as usize)
    }

    fn cuGetErrorName(code: Code, name: *mut *const c_char) {
        let text = match code {
            CUDA_ERROR_INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            CUDA_ERROR_OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            CUDA_ERROR_INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
            CUDA_ERROR_ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        put(name, text.as_ptr())
    }
}
