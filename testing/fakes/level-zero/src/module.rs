//! Modules, and what their building had to say.

use crate::abi::*;
use crate::call::{Registry, Result, exports, fill, get, list, put, put_text};
use crate::config::config;
use crate::control::alive;
use crate::device::Device;
use crate::driver_calls::CONTEXTS;
use crate::spirv::{self, Entry, Target};
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Module {
    pub(crate) device: &'static Device,
    pub(crate) entries: Vec<Arc<Entry>>,
    names: Vec<CString>,
    binary: Vec<u8>,
    /// It was not to be built, which is told only when a kernel is made.
    broken: bool,
    /// Kernels that live.
    pub(crate) kernels: AtomicU32,
}

pub(crate) static MODULES: Registry<Module> = Registry::new(0x0030_0000_0000);
static LOGS: Registry<String> = Registry::new(0x0010_0000_0000);

/// What binaries of the fake's own begin with; the module that they were made of follows.
const NATIVE: &[u8; 8] = b"\x7fFAKEZE\x01";

/// A module, and what the compiler said of it.
fn build(device: &'static Device, format: u32, bytes: &[u8]) -> std::result::Result<(Module, String), (Code, String)> {
    let source = match format {
        ZE_MODULE_FORMAT_IL_SPIRV => bytes,
        ZE_MODULE_FORMAT_NATIVE => match bytes.strip_prefix(NATIVE) {
            Some(source) => source,
            None => return Err((ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, "error: no binary of this driver\n".into())),
        },
        _ => return Err((ZE_RESULT_ERROR_INVALID_ENUMERATION, String::new())),
    };
    let target = Target { most: (1, 4), fp16: config().has("fp16"), fp64: device.card.fp64 };
    let (entries, said) = match spirv::compile(source, &target) {
        Ok(entries) => (entries, String::new()),
        Err(log) if config().lazy => (Vec::new(), log),
        Err(log) => return Err((ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, log)),
    };
    let broken = !said.is_empty();
    let module = Module {
        device,
        names: entries.iter().filter_map(|entry| CString::new(entry.name.as_str()).ok()).collect(),
        entries: entries.into_iter().map(Arc::new).collect(),
        binary: [NATIVE, source].concat(),
        broken,
        kernels: AtomicU32::new(0),
    };
    Ok((module, said))
}

exports! {
    fn zeModuleCreate(
        context: Handle,
        device: Handle,
        desc: *const ze_module_desc_t,
        out: *mut Handle,
        log: *mut Handle,
    ) {
        let device = CONTEXTS.get(context)?.device(device)?;
        let desc = get(desc)?;
        get(out)?;
        alive(device.card)?;
        if desc.inputSize == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        get(desc.pInputModule)?;
        let bytes = std::slice::from_raw_parts(desc.pInputModule, desc.inputSize);
        let (result, text) = match build(device, desc.format, bytes) {
            Ok((module, text)) => (put(out, MODULES.add(module)), text),
            Err((code, text)) => (Err(code), text),
        };
        if !log.is_null() {
            log.write(LOGS.add(text));
        }
        result
    }

    fn zeModuleDestroy(module: Handle) {
        MODULES.remove(module, |module| match module.kernels.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
        }).map(drop)
    }

    fn zeModuleBuildLogDestroy(log: Handle) {
        LOGS.remove(log, |_| Ok(())).map(drop)
    }

    fn zeModuleBuildLogGetString(log: Handle, size: *mut usize, out: *mut c_char) {
        put_text(size, out, &LOGS.get(log)?)
    }

    fn zeModuleGetNativeBinary(module: Handle, size: *mut usize, out: *mut u8) {
        let module = MODULES.get(module)?;
        let room = fill(size)?;
        if !out.is_null() {
            let len = module.binary.len().min(*room);
            std::ptr::copy_nonoverlapping(module.binary.as_ptr(), out, len);
        }
        *room = module.binary.len();
        Ok(())
    }

    fn zeModuleGetKernelNames(module: Handle, count: *mut u32, out: *mut *const c_char) {
        let module = MODULES.get(module)?;
        list(count, out, module.names.iter().map(|name| name.as_ptr()), |to, name| *to = name)
    }

    fn zeModuleGetProperties(module: Handle, out: *mut ze_module_properties_t) {
        MODULES.get(module)?;
        fill(out)?.flags = 0;
        Ok(())
    }
}

/// Finds a kernel of a module.
pub(crate) fn find(module: &Module, name: &str) -> Result<Arc<Entry>> {
    if module.broken {
        return Err(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    }
    let found = module.entries.iter().find(|entry| entry.name == name);
    found.cloned().ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
}
