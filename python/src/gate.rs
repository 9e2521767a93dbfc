//! Who may hold the interpreter, and until when.
//!
//! # Protocol
//!
//! `STATE` counts, in steps of 2, the threads of this process that are about to take the interpreter again or run Python
//! code for the runtime; its lowest bit says that the interpreter is closing. A thread enters before it takes the
//! interpreter and leaves once it has it (after [`detach`]) or has given it back (after [`with_python`]). [`close`], which
//! Python's `atexit` calls, sets the bit and waits until nobody is inside. From then on only the closing thread enters: a
//! daemon thread whose wait ends sleeps for good, and a host function whose turn comes is not called. So no thread asks
//! for an interpreter that is being taken down.
//!
//! A forked child has one thread and nobody inside: its handler stores 0, nothing else.

use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

static STATE: AtomicUsize = AtomicUsize::new(0);
static CLOSER: AtomicUsize = AtomicUsize::new(0);
const CLOSING: usize = 1;
const ONE: usize = 2;

/// How long a wait for a lock lasts before it looks for signals.
const SLICE: Duration = Duration::from_millis(50);

fn this_thread() -> usize {
    // SAFETY: pthread_self has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

fn enter() -> bool {
    if STATE.fetch_add(ONE, Ordering::AcqRel) & CLOSING == 0 || CLOSER.load(Ordering::Relaxed) == this_thread() {
        return true;
    }
    leave();
    false
}

fn leave() {
    // Not below 0: a child that was forked inside starts at 0.
    let _was_zero = STATE.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| state.checked_sub(ONE));
}

extern "C" fn in_child() {
    STATE.store(0, Ordering::Release);
}

/// Installs the handler of forked children. Called at import.
pub(crate) fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler only stores an atomic, which is async-signal-safe; extension modules are never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Runs `f` without the interpreter: whatever starts the runtime, enqueues, allocates or waits. Its waits let handlers of
/// signals run and end with an error if one raises, which [`raise`](crate::error::raise) then hands on.
#[inline]
pub(crate) fn detach<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(|| {
        let result = anyaccel::interruptible(interrupted, f);
        if !enter() {
            sleep_for_good();
        }
        result
    });
    leave();
    result
}

#[cold]
fn sleep_for_good() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Runs Python code on a thread of the runtime; `None` if the interpreter is closing.
pub(crate) fn with_python<T>(f: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if !enter() {
        return None;
    }
    let result = Python::try_attach(f);
    leave();
    result
}

thread_local! {
    /// What the handler of a signal raised while this thread waited, until the call that waited raises it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Lets handlers of signals run, and says whether one raised: a wait then gives up.
fn interrupted() -> bool {
    let raised = || RAISED.try_with(|raised| raised.borrow().is_some()).unwrap_or(false);
    let look = |py: Python<'_>| {
        if let Err(error) = py.check_signals() {
            let _exiting = RAISED.try_with(|raised| *raised.borrow_mut() = Some(error));
        }
    };
    raised() || with_python(look).is_some() && raised()
}

/// What the handler of a signal raised while this thread waited.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.try_with(|raised| raised.borrow_mut().take()).ok().flatten()
}

/// Takes a lock that may be held for long. To be called without the interpreter.
pub(crate) fn lock<'a, T>(mutex: &'a Mutex<T>, call: &'static str) -> anyaccel::Result<MutexGuard<'a, T>> {
    let mut asked = Instant::now();
    for attempt in 0_u32.. {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < 64 => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
        }
        if asked.elapsed() >= SLICE {
            if interrupted() {
                break;
            }
            asked = Instant::now();
        }
    }
    Err(anyaccel::Error::Interrupted { call })
}

/// Closes the gate. For `atexit` alone.
#[pyfunction]
pub(crate) fn _close(py: Python<'_>) -> PyResult<()> {
    CLOSER.store(this_thread(), Ordering::Relaxed);
    STATE.fetch_or(CLOSING, Ordering::AcqRel);
    while STATE.load(Ordering::Acquire) >= ONE {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
        py.check_signals()?;
    }
    Ok(())
}
