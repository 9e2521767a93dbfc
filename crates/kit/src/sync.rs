//! Locks without poisoning, whose order a thread sanitizer sees.
//!
//! Nothing that can panic runs under a lock of a backend, so a poisoned one can't be, and asking for it would only add a
//! path that no test reaches. In builds with debug assertions each lock also carries an atomic that is written before
//! it is released and read after it is taken. The lock needs it not; but the standard library is not instrumented, so
//! without it a sanitizer takes what a contended lock orders for a race.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(debug_assertions)]
mod shown {
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(super) struct Order(AtomicU64);

    impl Order {
        pub(super) fn taken(&self) {
            self.0.load(Ordering::Acquire);
        }

        fn released(&self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Access to the content of a [`Mutex`](super::Mutex).
    #[derive(Debug)]
    pub struct Guard<'a, T> {
        inner: Option<std::sync::MutexGuard<'a, T>>,
        order: &'a Order,
    }

    impl<'a, T> Guard<'a, T> {
        pub(super) fn new(inner: std::sync::MutexGuard<'a, T>, order: &'a Order) -> Self {
            order.taken();
            Self { inner: Some(inner), order }
        }

        pub(super) fn with(
            mut self,
            wait: impl FnOnce(std::sync::MutexGuard<'a, T>) -> std::sync::MutexGuard<'a, T>,
        ) -> Self {
            self.order.released();
            self.inner = self.inner.take().map(wait);
            self.order.taken();
            self
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.inner {
                Some(guard) => guard,
                None => unreachable!("only `with` empties it, and fills it again"),
            }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.inner {
                Some(guard) => guard,
                None => unreachable!("only `with` empties it, and fills it again"),
            }
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            self.order.released();
        }
    }
}

#[cfg(debug_assertions)]
pub use shown::Guard;

/// Access to the content of a [`Mutex`].
#[cfg(not(debug_assertions))]
pub type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

/// A lock that hands out its content whatever happened to an earlier holder.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
    #[cfg(debug_assertions)]
    order: shown::Order,
}

impl<T> Mutex<T> {
    /// An open lock.
    pub fn new(value: T) -> Self {
        Self {
            inner: std::sync::Mutex::new(value),
            #[cfg(debug_assertions)]
            order: shown::Order::default(),
        }
    }

    /// Waits until nobody else has it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(debug_assertions)]
        return Guard::new(guard, &self.order);
        #[cfg(not(debug_assertions))]
        return guard;
    }
}

/// A condition to sleep on. Wake-ups without cause happen.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Sleeps without the lock, at the latest until the deadline.
    pub fn wait<'a, T>(&self, guard: Guard<'a, T>, deadline: Option<Instant>) -> Guard<'a, T> {
        let wait = |guard| match deadline {
            None => self.0.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        #[cfg(debug_assertions)]
        return guard.with(wait);
        #[cfg(not(debug_assertions))]
        return wait(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_panic_under_the_lock_does_not_close_it() {
        let lock = Arc::new(Mutex::new(1));
        let other = Arc::clone(&lock);
        let panicked = std::thread::spawn(move || {
            *other.lock() = 2;
            let _held = other.lock();
            panic!("a test's own panic");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn sleeping_gives_the_lock_away_and_ends_when_told_or_late() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let begin = Instant::now();
        let mut told = shared.0.lock();
        while begin.elapsed() < Duration::from_millis(5) {
            told = shared.1.wait(told, Some(begin + Duration::from_millis(5)));
        }
        assert!(!*told);
        let other = Arc::clone(&shared);
        let teller = std::thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        while !*told {
            told = shared.1.wait(told, None);
        }
        drop(told);
        assert!(teller.join().is_ok());
    }
}
