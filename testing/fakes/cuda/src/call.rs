//! What every exported function does first: the log, the fork, and failures by order.

use crate::config::config;
use anyaccel_cuda::sys::{
    CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS, Code,
};
use std::io::Write;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// The outcome of a call.
pub(crate) type Result<T = ()> = std::result::Result<T, Code>;

/// `cuInit` has succeeded in this process or an ancestor.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// This is a child of a process that had initialised.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The process exits, and what was registered before the start is yet to be called.
static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    if INITIALISED.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

extern "C" fn at_exit() {
    ENDED.store(true, Ordering::SeqCst);
}

/// Notes that the driver runs.
pub(crate) fn initialise() {
    if !INITIALISED.swap(true, Ordering::SeqCst) {
        // SAFETY: the handlers only store atomics.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
    }
}

/// Runs the body of an exported function.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> Result) -> Code {
    let config = config();
    if let Some(mut log) = config.log.as_ref() {
        // One write a line, so that processes can share the file. A full disk shows in the test that reads it.
        let _written = log.write_all(format!("{name}\n").as_bytes());
    }
    let managing = name.starts_with("nvml") || name == "cuDriverGetVersion" || name == "cuGetErrorName";
    if !managing && FORKED.load(Ordering::Relaxed) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if !managing && name != "cuInit" && !INITIALISED.load(Ordering::Acquire) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if !managing && ENDED.load(Ordering::SeqCst) {
        if config.late {
            eprintln!("the fake: {name} of a driver that has shut down");
            std::process::abort();
        }
        return CUDA_ERROR_DEINITIALIZED;
    }
    if let Some(code) = crate::control::injected(name) {
        return code;
    }
    match body() {
        Ok(()) => CUDA_SUCCESS,
        Err(code) => code,
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `out` is null or valid for a write, as the interface asks.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result {
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Locks; nothing here panics while it holds one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

macro_rules! exports {
    ($(fn $name:ident($($arg:ident : $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported by its name")]
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, reason = "the interface's own")]
        #[allow(clippy::too_many_arguments, reason = "the interface's own")]
        pub unsafe extern "system" fn $name($($arg: $type),*) -> anyaccel_cuda::sys::Code {
            #[allow(unused_unsafe, reason = "some bodies have nothing to be careful with")]
            // SAFETY: callers keep what the interface's documentation asks: pointers are null or valid for their use.
            crate::call::call(stringify!($name), || -> crate::call::Result { unsafe { $body } })
        }
    )*};
}
pub(crate) use exports;
