//! Exports about modules, functions and launches.

use crate::call::{exports, put};
use crate::config::config;
use crate::context::current;
use crate::graph::unsafe_call;
use crate::kernel;
use crate::module;
use crate::stream::{self, Work};
use anyaccel_cuda::sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The bytes of an image: an ELF says how long it is, text ends with a zero.
unsafe fn image_of<'a>(image: *const c_void) -> &'a [u8] {
    // SAFETY: the interface asks for an ELF, or for text that ends with a zero.
    unsafe {
        let start = image.cast::<u8>();
        if std::slice::from_raw_parts(start, 4) != b"\x7fELF" {
            return CStr::from_ptr(start.cast()).to_bytes();
        }
        let header = std::slice::from_raw_parts(start, 64);
        let number =
            |at: usize, len: usize| header[at..at + len].iter().rev().fold(0_usize, |n, &b| n << 8 | usize::from(b));
        // Section headers come last in what the tools write; where they end the image does.
        let end = (number(0x28, 8) + number(0x3a, 2) * number(0x3c, 2)).max(64);
        let programs = number(0x20, 8) + number(0x36, 2) * number(0x38, 2);
        std::slice::from_raw_parts(start, end.max(programs))
    }
}

exports! {
    fn cuModuleLoadDataEx(
        out: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut u32,
        values: *mut *mut c_void,
    ) {
        let here = current()?;
        unsafe_call()?;
        stream::drain(here.ordinal);
        let (mut buffer, mut room) = (std::ptr::null_mut::<c_char>(), 0);
        for at in 0..count as usize {
            let value = values.add(at).read();
            match options.add(at).read() {
                CU_JIT_ERROR_LOG_BUFFER => buffer = value.cast(),
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => room = value as usize,
                _ => {}
            }
        }
        match module::load(here, image_of(image)) {
            Ok(module) => put(out, module),
            Err((code, log)) => {
                if !buffer.is_null() && room > 0 {
                    crate::device_calls::put_text(buffer, room, &log)?;
                }
                Err(code)
            }
        }
    }

    fn cuModuleUnload(module: CUmodule) {
        current()?;
        unsafe_call()?;
        module::unload(module)
    }

    fn cuModuleGetFunction(out: *mut CUfunction, module: CUmodule, name: *const c_char) {
        current()?;
        let found = module::find(module, &CStr::from_ptr(name).to_string_lossy())?;
        if config().driver < (12, 4) {
            module::function(found)?.load();
        }
        put(out, found)
    }

    fn cuFuncLoad(function: CUfunction) {
        current()?;
        module::function(function)?.load();
        Ok(())
    }

    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: CUfunction) {
        let function = module::function(function)?;
        put(value, match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => 0,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.shared.load(Ordering::Relaxed),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(function: CUfunction, attribute: i32, value: i32) {
        let function = module::function(function)?;
        if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || !(0..=227 << 10).contains(&value) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        function.shared.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        let function = module::function(function)?;
        let params = function.params.as_ref().ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        let &(at, len) = params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(offset, at)?;
        if size.is_null() { Ok(()) } else { put(size, len) }
    }

    fn cuLaunchKernel(
        function: CUfunction,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        on: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let here = current()?;
        let stream = stream::here(here, on)?;
        let function = module::function(function)?;
        if !extra.is_null() || function.ordinal != here.ordinal {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        function.load();
        let launch = kernel::launch(&function, [gx, gy, gz], [bx, by, bz], shared, params)?;
        stream.enqueue(Work::Launch(Arc::new(launch)))
    }
}
