//! A value that comes once.
//!
//! # Protocol
//!
//! The pointer is null until a value is published by one exchange, and then never changes: whoever reads it (acquire) sees the
//! whole value. Who loses the exchange drops its own. No lock: a forked child finds the value there or not, never in between (H24).

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a value that is published once, by whoever comes first, and then stays: what a start found, what was opened,
/// settings as they were read. Unlike `OnceLock` it has no lock that a child of a fork could find taken (H24), at the price
/// that threads which come at once may each make a value.
///
/// ```
/// use anyaccel_kit::Published;
///
/// static SETTINGS: Published<String> = Published::new();
///
/// assert_eq!(SETTINGS.get(), None);
/// let settings: &'static String = SETTINGS.publish("first".to_owned());
/// assert_eq!(settings, "first");
/// assert_eq!(SETTINGS.publish("second".to_owned()), "first");
/// ```
pub struct Published<T> {
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

impl<T> Published<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// The value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or the box that `publish` left, which stays until this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }
}

impl<T: Send> Published<T> {
    /// Publishes a value unless there is one; the one that then is there.
    pub fn publish(&self, value: T) -> &T {
        let ours = Box::into_raw(Box::new(value));
        match self.value.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: left just now, and it stays until this is dropped.
            Ok(_) => unsafe { &*ours },
            Err(theirs) => {
                // SAFETY: made above and seen by nobody else.
                drop(unsafe { Box::from_raw(ours) });
                // SAFETY: published before, and it stays until this is dropped.
                unsafe { &*theirs }
            }
        }
    }

    /// The value, made now if there is none.
    ///
    /// # Errors
    /// Those of making it, which are not kept.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => Ok(self.publish(make()?)),
        }
    }
}

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Published").field(&self.get()).finish()
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: the box that `publish` left; nobody else has this any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn the_first_value_stays_and_each_is_dropped_once() {
        let count = Arc::new(());
        let published = Published::new();
        let addresses: Vec<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|at| {
                    scope.spawn({
                        let (published, value) = (&published, (at, count.clone()));
                        move || ptr::from_ref(published.publish(value)).addr()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(addresses.iter().all(|&at| at == addresses[0]));
        assert_eq!(Arc::strong_count(&count), 2, "those that lost are gone");
        drop(published);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let published = Published::new();
        assert_eq!(published.get_or_make(|| Err("not yet")), Err("not yet"));
        assert_eq!(published.get_or_make(|| Ok::<_, &str>(1)), Ok(&1));
        assert_eq!(published.get_or_make(|| Err("never asked")), Ok(&1));
    }
}
