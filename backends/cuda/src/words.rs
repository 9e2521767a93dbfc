//! Words of pinned memory that hold streams up until the host raises them.
//!
//! A word's value only rises (as a number modulo 2^32), also when it passes to another owner: who waits for an old value
//! waits no longer, even if it looks only when the word has its next owner. The words of graph nodes begin at 0 with each
//! replay, so they are never lent to others. A word's memory stays as long as its context.

use crate::context::Context;
use crate::sys::*;
use anyaccel_hal::Fault;
use anyaccel_kit::Mutex;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

/// A word that one owner raises.
#[derive(Debug)]
pub(crate) struct Word {
    host: usize,
    pub(crate) device: CUdeviceptr,
}

impl Word {
    fn cell(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of a pinned page that stays as long as the context, which the owner keeps; the host uses
        // it atomically only.
        unsafe { AtomicU32::from_ptr(self.host as *mut u32) }
    }

    pub(crate) fn value(&self) -> u32 {
        self.cell().load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u32) {
        self.cell().store(value, Ordering::Release);
    }

    /// Lets go whoever waits for that value or a lower one.
    pub(crate) fn raise(&self, value: u32) {
        let higher = |now: u32| (value.wrapping_sub(now) as i32 > 0).then_some(value);
        // Refused where it is as high already.
        let _raised = self.cell().fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);
    }
}

/// The words of a context.
#[derive(Debug)]
pub(crate) struct Words(Mutex<Pool>);

#[derive(Debug)]
struct Pool {
    pages: Vec<usize>,
    free: Vec<Word>,
    /// Those of graph nodes.
    nodes: Vec<Word>,
}

impl Words {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Pool { pages: Vec::new(), free: Vec::new(), nodes: Vec::new() }))
    }

    /// Takes one. The context is current.
    pub(crate) fn take(&self, context: &Context) -> Result<Word, Fault> {
        Self::take_from(&mut self.0.lock(), |pool| &mut pool.free, context)
    }

    /// Takes one for a graph node. The context is current.
    pub(crate) fn take_node(&self, context: &Context) -> Result<Word, Fault> {
        Self::take_from(&mut self.0.lock(), |pool| &mut pool.nodes, context)
    }

    fn take_from(
        pool: &mut Pool,
        free: impl Fn(&mut Pool) -> &mut Vec<Word>,
        context: &Context,
    ) -> Result<Word, Fault> {
        if free(pool).is_empty() {
            let cuda = context.cuda;
            let _relaxed = context.relaxed();
            let mut host: *mut c_void = std::ptr::null_mut();
            let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
            // SAFETY: a valid place for the answer.
            context.check(unsafe { cuda.cuMemHostAlloc(&raw mut host, PAGE, flags) })?;
            let mut device = 0;
            // SAFETY: as above, for memory taken just now.
            let mapped = context.check(unsafe { cuda.cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) });
            if let Err(fault) = mapped {
                // SAFETY: taken above, used by nobody.
                let _freed = unsafe { cuda.cuMemFreeHost(host) };
                return Err(fault);
            }
            let host = host.expose_provenance();
            pool.pages.push(host);
            for at in (0..PAGE).step_by(size_of::<u32>()) {
                let word = Word { host: host + at, device: device + at as u64 };
                word.set(0);
                free(pool).push(word);
            }
        }
        free(pool).pop().ok_or_else(|| Fault::new(anyaccel_hal::FaultKind::OutOfMemory, "words"))
    }

    /// Takes one back, with its value.
    pub(crate) fn put(&self, word: Word) {
        self.0.lock().free.push(word);
    }

    /// Takes one of a graph node back: nothing waits for it any more.
    pub(crate) fn put_node(&self, word: Word) {
        self.0.lock().nodes.push(word);
    }

    /// The pages, for whoever gives them back with the context: no word is taken any more.
    pub(crate) fn pages(&self) -> Vec<usize> {
        let mut pool = self.0.lock();
        pool.free.clear();
        pool.nodes.clear();
        std::mem::take(&mut pool.pages)
    }
}
