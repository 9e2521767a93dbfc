//! The run-time compiler, NVRTC: CUDA C++ becomes PTX, which [`Kernels::load`](anyaccel_hal::Kernels::load) takes.
//!
//! It is no part of the driver and knows no device. A driver reads PTX up to the version of its own CUDA, and a compiler
//! writes that of its own, whatever it is told: so the compiler must not be newer than the driver.

use crate::conv::Failed;
use crate::kernel::told;
use crate::sys::{
    NVRTC_ERROR_COMPILATION, NVRTC_ERROR_INVALID_OPTION, NVRTC_ERROR_OUT_OF_MEMORY, Nvrtc, NvrtcProgram, nvrtc,
};
use anyaccel_hal::{Fault, FaultKind};
use std::ffi::{CString, c_char};
use std::ptr;

/// What the text is called in the compiler's log.
const NAME: &std::ffi::CStr = c"kernel.cu";

/// Compiles CUDA C++ to PTX with NVRTC, where it is installed. Needs no device and starts none. Threads may compile at once.
///
/// Options are NVRTC's, such as `--gpu-architecture=compute_80`; without that one it chooses the oldest chip that it knows.
///
/// # Errors
/// `Unsupported` where there is no NVRTC. `Invalid` for source or options that it refuses, with its log in the note: lines
/// are those of `kernel.cu`. `Invalid` for options that leave it without PTX to write, such as `-dlto`.
pub fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, Fault> {
    let nvrtc = library("nvrtcCreateProgram")?;
    let text = |text: &str, what: &str| {
        CString::new(text).map_err(|_| Fault::invalid("nvrtcCreateProgram", format!("{what} with a zero in it")))
    };
    let source = text(source, "source")?;
    let options = options.iter().map(|&option| text(option, "an option")).collect::<Result<Vec<_>, _>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = i32::try_from(options.len()).map_err(|_| Fault::invalid("nvrtcCompileProgram", "too many options"))?;
    let program = Program::new(nvrtc, &source)?;
    // SAFETY: the program lives; C strings, as many as it is told.
    if let Err(refused) = unsafe { nvrtc.nvrtcCompileProgram(program.raw, count, options.as_ptr()) } {
        return Err(told(fault(refused), &program.log()));
    }
    let mut size = 0;
    // SAFETY: a valid place for the answer.
    unsafe { nvrtc.nvrtcGetPTXSize(program.raw, &raw mut size) }.map_err(fault)?;
    let mut ptx = vec![0_u8; size];
    if size > 0 {
        // SAFETY: a buffer of the size that it asks for.
        unsafe { nvrtc.nvrtcGetPTX(program.raw, ptx.as_mut_ptr().cast()) }.map_err(fault)?;
    }
    // It ends with a zero.
    ptx.truncate(ptx.iter().position(|&byte| byte == 0).unwrap_or(size));
    if ptx.is_empty() {
        return Err(Fault::invalid("nvrtcGetPTX", "it compiles, but these options make something other than PTX"));
    }
    Ok(ptx)
}

/// Compiles for a chip of that capability, or where the compiler is older than the chip for the oldest that it knows: PTX of
/// older chips is read by newer ones.
pub(crate) fn compile_for((major, minor): (u32, u32), source: &str) -> Result<Vec<u8>, Fault> {
    match compile(source, &[&format!("--gpu-architecture=compute_{major}{minor}")]) {
        Err(fault) if fault.code == i64::from(NVRTC_ERROR_INVALID_OPTION) => compile(source, &[]),
        compiled => compiled,
    }
}

/// The version of CUDA that NVRTC belongs to, where it is installed: drivers of an older one do not read its PTX.
///
/// # Errors
/// `Unsupported` where there is no NVRTC.
pub fn compiler_version() -> Result<(u32, u32), Fault> {
    let nvrtc = library("nvrtcVersion")?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: valid places for the answers.
    unsafe { nvrtc.nvrtcVersion(&raw mut major, &raw mut minor) }.map_err(fault)?;
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

fn library(api: &'static str) -> Result<&'static Nvrtc, Fault> {
    nvrtc().map_err(|missing| Fault::new(FaultKind::Unsupported, api).note(missing.to_string()))
}

fn fault(failed: Failed) -> Fault {
    let kind = match failed.code {
        NVRTC_ERROR_OUT_OF_MEMORY => FaultKind::OutOfMemory,
        NVRTC_ERROR_INVALID_OPTION | NVRTC_ERROR_COMPILATION => FaultKind::Invalid,
        _ => FaultKind::Driver,
    };
    Fault::new(kind, failed.api).code(failed.code.into())
}

/// A program of the compiler's, destroyed when this goes.
struct Program {
    nvrtc: &'static Nvrtc,
    raw: NvrtcProgram,
}

impl Program {
    fn new(nvrtc: &'static Nvrtc, source: &CString) -> Result<Self, Fault> {
        let mut raw = NvrtcProgram::NULL;
        let none = ptr::null();
        // SAFETY: a valid place for the answer, C strings, no headers.
        unsafe { nvrtc.nvrtcCreateProgram(&raw mut raw, source.as_ptr(), NAME.as_ptr(), 0, none, none) }
            .map_err(fault)?;
        Ok(Self { nvrtc, raw })
    }

    /// What the compiler said, up to a zero.
    fn log(&self) -> Vec<u8> {
        let mut size = 0;
        // SAFETY: a valid place for the answer; the program lives.
        let _sized = unsafe { self.nvrtc.nvrtcGetProgramLogSize(self.raw, &raw mut size) };
        let mut log = vec![0_u8; size.max(1)];
        // SAFETY: a buffer of the size that it asks for.
        let _read = unsafe { self.nvrtc.nvrtcGetProgramLog(self.raw, log.as_mut_ptr().cast()) };
        log
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `new`, used no more.
        let _destroyed = unsafe { self.nvrtc.nvrtcDestroyProgram(&raw mut self.raw) };
    }
}
