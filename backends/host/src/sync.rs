//! The one place where this crate's locks, atomics and cells come from, so that a model checker can take their place.
//!
//! Under `--cfg loom` everything here is loom's, and nobody spins: a model explores each order anyway. Locks ignore
//! poisoning: nothing that can panic runs under one.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(not(loom))]
use std::time::Duration;

#[cfg(not(loom))]
pub(crate) use anyaccel_kit::{Condvar, Guard, Mutex};

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Guard, Mutex};

/// The same as the kit's over loom.
#[cfg(loom)]
mod modelled {
    use loom::sync;
    use std::sync::PoisonError;
    use std::time::Instant;

    pub(crate) type Guard<'a, T> = sync::MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(sync::Condvar::new())
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// A model has no time: it sleeps until woken.
        pub(crate) fn wait<'a, T>(&self, guard: Guard<'a, T>, _: Option<Instant>) -> Guard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// A cell whose accesses a model checks.
#[derive(Debug)]
pub(crate) struct Cell<T>(#[cfg(not(loom))] std::cell::UnsafeCell<T>, #[cfg(loom)] loom::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Self(std::cell::UnsafeCell::new(value));
        #[cfg(loom)]
        return Self(loom::cell::UnsafeCell::new(value));
    }

    /// Lends the content.
    ///
    /// # Safety
    /// Nobody else uses the content meanwhile.
    #[inline]
    pub(crate) unsafe fn with<R>(&self, using: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: the promise of this function's caller.
        return using(unsafe { &mut *self.0.get() });
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.0.with_mut(|content| using(unsafe { &mut *content }));
    }
}

/// How long a thread looks for what it waits for before it sleeps: about what falling asleep and waking would cost.
#[cfg(not(loom))]
pub(crate) const SPIN: Duration = Duration::from_micros(40);

/// Looks for `done` for a short while; the core is given away most of that time. Says whether it came.
#[cfg(not(loom))]
pub(crate) fn spin(done: impl FnMut() -> bool) -> bool {
    anyaccel_kit::spin(SPIN, done)
}

/// Another thread is about to do what this one waits for.
pub(crate) fn relax() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
pub(crate) fn spin(mut done: impl FnMut() -> bool) -> bool {
    done()
}
