//! Fork and exit: the one place that knows which generation of the process this is.
//!
//! # Protocol
//!
//! `EPOCH` names the generation. Everything that owns native state carries the epoch of its birth and compares it
//! before it takes any lock; a mismatch is an error or, in `Drop`, a leak on purpose.
//!
//! - The child handler of `fork` only stores atomics: it moves `EPOCH` on, moves `ROOT` to `PARENT` and notes the pid. There is no
//!   handler before the fork, since it would have to take locks.
//! - `TOUCHED` lists which kinds were started, by which call, in which process. An entry is pushed *before* the first
//!   driver call, so a fork in the middle of a start is seen as well, and withdrawn if the start leaves no trace.
//! - At exit `EPOCH` becomes `EXITING`, which no birth epoch equals ([`birth`]): nothing calls a driver any more. That stays
//!   so in a child that is forked then: it is exiting as well.
//! - A child made by a raw `clone` runs no handler, so slow paths also compare the pid ([`notice`]).

use anyaccel_hal::{Driver, Kind};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The epoch of a process that is exiting.
const EXITING: u64 = u64::MAX;
/// The birth epoch of what is made while the process is exiting: no generation has it.
const NEVER: u64 = 0;

static EPOCH: AtomicU64 = AtomicU64::new(1);
static PID: AtomicU32 = AtomicU32::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);
static TOUCHED: AtomicPtr<Touch> = AtomicPtr::new(ptr::null_mut());
/// The process-wide runtime of this generation, owned by `runtime.rs`; cleared here in a child.
pub(crate) static ROOT: AtomicPtr<crate::runtime::Core> = AtomicPtr::new(ptr::null_mut());
/// The last process-wide runtime of an earlier generation, never freed; of it only atomics may be read.
pub(crate) static PARENT: AtomicPtr<crate::runtime::Core> = AtomicPtr::new(ptr::null_mut());

/// The starts of a kind by one call in one generation. Entries are leaked: a child reads them without any lock. So they are
/// used again: there are no more than calls, however often runtimes start.
struct Touch {
    kind: Kind,
    call: &'static str,
    pid: u32,
    epoch: u64,
    /// Starts that were not withdrawn.
    starts: AtomicU64,
    next: *const Touch,
}

/// This generation's number.
#[inline]
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// The generation of a runtime that is made now.
pub(crate) fn birth() -> u64 {
    match epoch() {
        EXITING => NEVER,
        now => now,
    }
}

/// Whether this process was forked from one that had a runtime.
#[cfg(feature = "backtrace")]
pub(crate) fn is_child() -> bool {
    !matches!(epoch(), 1 | EXITING)
}

/// Whether the process is exiting.
pub(crate) fn exiting() -> bool {
    epoch() == EXITING
}

extern "C" fn in_child() {
    enter_generation();
}

extern "C" fn at_exit() {
    EPOCH.store(EXITING, Ordering::Release);
}

fn enter_generation() {
    PID.store(pid(), Ordering::Relaxed);
    if exiting() {
        return;
    }
    EPOCH.fetch_add(1, Ordering::Relaxed);
    let root = ROOT.swap(ptr::null_mut(), Ordering::AcqRel);
    if !root.is_null() {
        PARENT.store(root, Ordering::Release);
    }
}

fn pid() -> u32 {
    std::process::id()
}

/// This process's number, as known once [`install`] was called.
#[inline]
pub(crate) fn process() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Installs the handlers. Two threads at once install them twice, which only moves the epoch on by two in a child;
/// waiting for one another instead could hang a child forked in between.
pub(crate) fn install() {
    if REGISTERED.load(Ordering::Acquire) {
        return;
    }
    PID.store(pid(), Ordering::Relaxed);
    // SAFETY: POSIX pthread_atfork and atexit take plain function pointers; both functions only touch atomics, so they
    // are async-signal-safe as a child handler of a threaded process must be. They live in this library, which is never
    // unloaded while its code runs. Failure (no memory) leaves the pid comparison as the only guard.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_exit);
    }
    REGISTERED.store(true, Ordering::Release);
}

/// Notices a fork that ran no handler. For slow paths: a system call.
pub(crate) fn notice() {
    let known = PID.load(Ordering::Relaxed);
    if known != 0 && known != pid() && !exiting() {
        enter_generation();
    }
}

/// A start under way; withdrawn if it leaves no trace.
#[derive(Clone, Copy)]
pub(crate) struct Started(&'static Touch);

impl Started {
    /// Takes the entry back: nothing native was left behind.
    pub(crate) fn withdraw(self) {
        self.0.starts.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Notes that `call` starts `kind` now. Before the first driver call.
pub(crate) fn touch(kind: Kind, call: &'static str) -> Started {
    let now = epoch();
    if let Some(entry) = touched().find(|entry| entry.kind == kind && entry.epoch == now && entry.call == call) {
        entry.starts.fetch_add(1, Ordering::AcqRel);
        return Started(entry);
    }
    let entry =
        Box::leak(Box::new(Touch { kind, call, pid: pid(), epoch: now, starts: AtomicU64::new(1), next: ptr::null() }));
    let raw: *mut Touch = entry;
    let mut head = TOUCHED.load(Ordering::Acquire);
    loop {
        // SAFETY: `raw` was leaked just now and is not yet shared, so writing through it is exclusive.
        unsafe { (*raw).next = head };
        match TOUCHED.compare_exchange_weak(head, raw, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked above, never freed, and from here on only read.
            Ok(_) => return Started(unsafe { &*raw }),
            Err(now) => head = now,
        }
    }
}

/// Who started a kind, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) call: &'static str,
    pub(crate) pid: u32,
}

/// The first call that started `kind` in an earlier generation of this process.
pub(crate) fn inherited(kind: Kind) -> Option<Culprit> {
    let now = epoch();
    let of_parents = |entry: &&Touch| entry.kind == kind && entry.epoch != now;
    let stands = |entry: &&Touch| entry.starts.load(Ordering::Acquire) > 0;
    // The oldest is the last.
    let first = touched().filter(of_parents).filter(stands).last();
    first.map(|entry| Culprit { call: entry.call, pid: entry.pid })
}

/// Whether no start of this driver's kind can succeed here, as a parent of this process started it.
pub(crate) fn refused(driver: &dyn Driver) -> bool {
    !driver.restartable() && inherited(driver.kind()).is_some()
}

fn touched() -> impl Iterator<Item = &'static Touch> {
    // SAFETY: null, or an entry: leaked, linked before it was published, and never freed.
    let entry = |at: *const Touch| unsafe { at.as_ref() };
    std::iter::successors(entry(TOUCHED.load(Ordering::Acquire)), move |touch| entry(touch.next))
}

/// Native state that belongs to one generation: dropped in it, and kept for good in any other (a forked child, an
/// exiting process), reachable from a static so that leak checkers stay quiet.
pub(crate) struct Fenced<T: Send + 'static> {
    value: ManuallyDrop<T>,
    epoch: u64,
}

impl<T: Send + 'static> Fenced<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), epoch: epoch() }
    }
}

impl<T: Send + 'static> std::ops::Deref for Fenced<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + 'static> Drop for Fenced<T> {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here, and not used after.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        if self.epoch == epoch() {
            drop(value);
        } else {
            keep(Box::new(value));
        }
    }
}

struct Kept {
    _value: Box<dyn Send>,
    _next: *mut Kept,
}

static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());

/// Keeps a value for good.
pub(crate) fn keep(value: Box<dyn Send>) {
    let kept = Box::into_raw(Box::new(Kept { _value: value, _next: ptr::null_mut() }));
    let mut head = KEPT.load(Ordering::Acquire);
    loop {
        // SAFETY: `kept` was made just now and is not yet shared, so writing through it is exclusive.
        unsafe { (*kept)._next = head };
        match KEPT.compare_exchange_weak(head, kept, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}
