//! Waiting for anything to change: one counter for the whole fake, which whoever changes something that others may wait for
//! raises. A waiter reads it, looks, and sleeps until it is another; so no change is missed between the look and the sleep.

use crate::abi::FOREVER;
use crate::call::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Raised under the lock, so that no sleeper misses it.
static COUNT: AtomicU64 = AtomicU64::new(0);
static LOCK: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// Something changed.
pub(crate) fn announce() {
    let guard = lock(&LOCK);
    COUNT.fetch_add(1, Ordering::SeqCst);
    drop(guard);
    CHANGED.notify_all();
}

pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// Sleeps until the counter is another than that, or the time has come.
pub(crate) fn sleep(seen: u64, until: Option<Instant>) {
    let mut guard = lock(&LOCK);
    while count() == seen {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return,
            Some(left) => guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
            None => guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waits until that is so, for so many nanoseconds at most.
pub(crate) fn wait(nanos: u64, mut so: impl FnMut() -> bool) -> bool {
    if so() {
        return true;
    }
    let until = match nanos {
        FOREVER => None,
        nanos => Instant::now().checked_add(Duration::from_nanos(nanos)),
    };
    loop {
        let seen = count();
        if so() {
            return true;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        sleep(seen, until);
    }
}
