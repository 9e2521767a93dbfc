//! Primary contexts and the stack of current ones that each thread has.

use crate::call::{Result, lock};
use crate::config::{Card, Visible, visible};
use anyaccel_cuda::sys::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_INITIALIZED, CUcontext, CUdevice,
};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

/// Contexts are numbered by ordinal from here on, so that a device's handle is no context's.
const FIRST: usize = 0xC0_0000;

static VISIBLE: OnceLock<Vec<Visible>> = OnceLock::new();
static RETAINED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

thread_local! {
    static STACK: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
}

/// A context and its card.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) ordinal: usize,
    pub(crate) card: &'static Card,
}

/// Counts the devices, once.
pub(crate) fn start() -> usize {
    let visible = VISIBLE.get_or_init(visible);
    let mut retained = lock(&RETAINED);
    retained.resize(visible.len(), 0);
    visible.len()
}

/// The devices that this process sees.
pub(crate) fn devices() -> Result<&'static [Visible]> {
    VISIBLE.get().map(Vec::as_slice).ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

pub(crate) fn device(device: CUdevice) -> Result<Visible> {
    let devices = devices()?;
    usize::try_from(device).ok().and_then(|at| devices.get(at)).copied().ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// The context of that handle, while it is retained.
pub(crate) fn context(handle: CUcontext) -> Result<Context> {
    let ordinal = handle.0.checked_sub(FIRST).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let visible = devices()?.get(ordinal).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if lock(&RETAINED)[ordinal] == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    Ok(Context { ordinal, card: visible.card })
}

pub(crate) fn retain(at: CUdevice) -> Result<CUcontext> {
    device(at)?;
    lock(&RETAINED)[at as usize] += 1;
    Ok(CUcontext(FIRST + at as usize))
}

pub(crate) fn release(at: CUdevice) -> Result {
    device(at)?;
    let mut retained = lock(&RETAINED);
    match retained[at as usize].checked_sub(1) {
        Some(left) => {
            retained[at as usize] = left;
            drop(retained);
            if left == 0 {
                crate::memory::free_all(device(at)?.card);
            }
            Ok(())
        }
        None => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

pub(crate) fn push(handle: CUcontext) -> Result {
    if handle != CUcontext::NULL {
        context(handle)?;
    }
    STACK.with_borrow_mut(|stack| stack.push(handle));
    Ok(())
}

pub(crate) fn pop() -> Result<CUcontext> {
    STACK.with_borrow_mut(Vec::pop).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The current context, whether its card lives or not.
pub(crate) fn current_even_if_lost() -> Result<Context> {
    context(STACK.with_borrow(|stack| stack.last().copied().unwrap_or(CUcontext::NULL)))
}

/// The current context of a living card.
pub(crate) fn current() -> Result<Context> {
    let context = current_even_if_lost()?;
    match context.card.lost.load(Ordering::Acquire) {
        0 => Ok(context),
        code => Err(code),
    }
}
