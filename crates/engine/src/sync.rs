//! The one place where the caches' locks and atomics come from, so that a model checker can take their place.
//!
//! Under `--cfg loom` they are loom's, and only the models of this crate run.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use anyaccel_kit::{Condvar, Guard, Mutex};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Guard, Mutex};

/// The same as the kit's over loom.
#[cfg(loom)]
mod modelled {
    use std::sync::PoisonError;

    pub(crate) type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// No model has a deadline.
        pub(crate) fn wait<'a, T>(&self, guard: Guard<'a, T>, _deadline: Option<std::time::Instant>) -> Guard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
