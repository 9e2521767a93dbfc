//! A device's primary context: made current around calls, and what is known of its loss.
//!
//! # Protocol
//!
//! Calls happen inside of [`Context::enter`], which pushes the context and pops it again, so a thread's own choice is left
//! as found (H18). The first sticky code makes the device lost, for good: `lost` is set before the functions that wait for
//! their turn are cancelled, and whoever adds one looks at `lost` under the lock that cancelling takes.
//!
//! The context is retained for as long as anything of the device is left, and then released by the thread of its
//! [`Returns`], behind all that was given back: releasing may wait for work (H25).

use crate::conv::{Failed, is_sticky};
use crate::host_call::Job;
use crate::returns::{self, Returns};
use crate::sys::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUdevice, Cuda,
    SymbolTable,
};
use crate::words::Words;
use anyaccel_hal::{Fault, FaultKind};
use anyaccel_kit::{Callbacks, Mutex};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Something that holds functions whose turn may not come.
pub(crate) trait Cancel: Send + Sync {
    /// Hands them to callback threads as cancelled, and lets the device go on.
    fn cancel(self: Arc<Self>);
}

pub(crate) struct Context {
    pub(crate) cuda: &'static Cuda,
    pub(crate) device: CUdevice,
    pub(crate) ordinal: u32,
    pub(crate) raw: CUcontext,
    pub(crate) callbacks: Arc<Callbacks<Job>>,
    pub(crate) returns: Arc<Returns>,
    pub(crate) words: Words,
    /// Whether streams can wait for a word of memory. Every device does whose driver has the call.
    pub(crate) holds: bool,
    lost: AtomicBool,
    first: Mutex<Option<Failed>>,
    cancels: Mutex<Vec<Weak<dyn Cancel>>>,
    /// Work may be under way that only [`Returns`] waits for any more.
    busy: AtomicBool,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("ordinal", &self.ordinal).field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// The context is current on this thread until this goes.
pub(crate) struct Current<'a> {
    cuda: &'a Cuda,
    _thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = CUcontext::NULL;
        // SAFETY: pops what `enter` pushed on this thread.
        let _popped = unsafe { self.cuda.cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

/// Captures elsewhere do not forbid this thread's calls until this goes.
pub(crate) struct Relaxed<'a> {
    cuda: &'a Cuda,
    before: u32,
    _thread: PhantomData<*const ()>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: a valid place for the mode that this thread had.
        let _restored = unsafe { self.cuda.cuThreadExchangeStreamCaptureMode(&raw mut self.before) };
    }
}

impl Context {
    pub(crate) fn retain(
        cuda: &'static Cuda,
        device: CUdevice,
        ordinal: u32,
        callbacks: Arc<Callbacks<Job>>,
    ) -> Result<Self, Fault> {
        let mut raw = CUcontext::NULL;
        // SAFETY: a valid place for the answer; released by Drop.
        unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut raw, device) }.map_err(Failed::fault)?;
        Ok(Self {
            cuda,
            device,
            ordinal,
            raw,
            callbacks,
            returns: Returns::new(cuda, device, raw),
            words: Words::new(),
            holds: cuda.has("cuStreamWaitValue32_v2"),
            lost: AtomicBool::new(false),
            first: Mutex::new(None),
            cancels: Mutex::new(Vec::new()),
            busy: AtomicBool::new(false),
        })
    }

    /// Makes it current on this thread.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Current<'_>, Fault> {
        if self.is_lost() {
            return Err(self.lost_fault());
        }
        self.enter_anyway()
    }

    /// The same for giving things back, which a lost device refuses as well and nobody minds.
    #[inline]
    pub(crate) fn enter_anyway(&self) -> Result<Current<'_>, Fault> {
        // SAFETY: the context is retained; popped by the guard.
        self.check(unsafe { self.cuda.cuCtxPushCurrent_v2(self.raw) })?;
        Ok(Current { cuda: self.cuda, _thread: PhantomData })
    }

    /// Lets this thread make calls that captures of other threads would forbid.
    #[inline]
    pub(crate) fn relaxed(&self) -> Relaxed<'_> {
        let mut before = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a valid place for the mode. It fails only for modes that there are not.
        let _exchanged = unsafe { self.cuda.cuThreadExchangeStreamCaptureMode(&raw mut before) };
        Relaxed { cuda: self.cuda, before, _thread: PhantomData }
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// What every call on a lost device returns: the first one that failed.
    #[cold]
    pub(crate) fn lost_fault(&self) -> Fault {
        match *self.first.lock() {
            Some(failed) => failed.fault(),
            None => Fault::new(FaultKind::DeviceLost, "device"),
        }
    }

    /// The fault of a failed call. A sticky one loses the device.
    #[inline]
    pub(crate) fn check<T>(&self, result: Result<T, Failed>) -> Result<T, Fault> {
        result.map_err(|failed| self.fault(failed))
    }

    /// Takes memory. If there is none while some is being given back, once more behind that.
    pub(crate) fn relieve(&self, mut take: impl FnMut() -> Result<(), Failed>) -> Result<(), Fault> {
        let mut taken = take();
        if matches!(taken, Err(Failed { code: CUDA_ERROR_OUT_OF_MEMORY, .. })) && returns::relieved(self.raw) {
            taken = take();
        }
        self.check(taken)
    }

    #[cold]
    pub(crate) fn fault(&self, failed: Failed) -> Fault {
        if failed.code == CUDA_ERROR_DEINITIALIZED {
            returns::end();
        }
        if !is_sticky(failed.code) {
            return failed.fault();
        }
        let mut first = self.first.lock();
        let news = first.is_none();
        first.get_or_insert(failed);
        self.lost.store(true, Ordering::Release);
        self.returns.lose();
        drop(first);
        if news {
            self.cancel_functions();
        }
        self.lost_fault()
    }

    /// Remembers whom to cancel.
    pub(crate) fn register(&self, cancel: Weak<dyn Cancel>) {
        let mut cancels = self.cancels.lock();
        if cancels.len() == cancels.capacity() {
            cancels.retain(|cancel| cancel.strong_count() > 0);
        }
        cancels.push(cancel);
    }

    /// Cancels all functions whose turn has not come.
    pub(crate) fn cancel_functions(&self) {
        let cancels = self.cancels.lock().clone();
        for cancel in cancels.iter().filter_map(Weak::upgrade) {
            cancel.cancel();
        }
    }

    /// Whether work may be left that only [`Returns`] waits for.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Work may be left: what it may use is given back behind what was handed to [`Returns`] for that.
    pub(crate) fn leave_busy(&self) {
        self.busy.store(true, Ordering::Release);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let pages = self.words.pages();
        self.returns.close(move |cuda| {
            for page in pages {
                // SAFETY: taken by `Words`, and used no more: what waited for a word has ended.
                let _freed = unsafe { cuda.cuMemFreeHost(std::ptr::with_exposed_provenance_mut(page)) };
            }
        });
    }
}
