//! One large operation in chunks that several workers take.
//!
//! # Protocol
//!
//! `next` is where the next chunk begins: taking one is an addition. `done` counts what was finished. The owner (who runs
//! the operation) takes chunks like everybody and then waits until `done` reaches the length, so the body outlives every
//! call of it: past the last chunk nobody touches it.

use crate::sync::{AtomicUsize, Ordering, spin};
use crate::wait::Parker;

type Body = *const (dyn Fn(usize, usize) + Sync);

/// Work on `0..len`, chunk by chunk.
pub(crate) struct Split {
    body: Body,
    len: usize,
    chunk: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    owner: Parker,
}

// SAFETY: the body is Sync and outlives its calls (see the protocol); the rest is Send and Sync.
unsafe impl Send for Split {}
// SAFETY: as above.
unsafe impl Sync for Split {}

impl Split {
    /// # Safety
    /// The owner calls [`Split::finish`] before the body goes away.
    pub(crate) unsafe fn new(len: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) -> Self {
        // SAFETY: only the lifetime changes; the promise of this function's caller keeps the body for every call.
        let body = unsafe {
            std::mem::transmute::<&(dyn Fn(usize, usize) + Sync), &'static (dyn Fn(usize, usize) + Sync)>(body)
        };
        Self { body, len, chunk, next: AtomicUsize::new(0), done: AtomicUsize::new(0), owner: Parker::new() }
    }

    /// Whether there may be chunks that nobody took.
    pub(crate) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.len
    }

    /// Takes chunks until there are no more.
    pub(crate) fn join(&self) {
        while self.has_more() {
            let at = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if at >= self.len {
                return;
            }
            let len = self.chunk.min(self.len - at);
            // SAFETY: this chunk is not done, so the owner still waits and the body is there.
            unsafe { (*self.body)(at, len) };
            if self.done.fetch_add(len, Ordering::AcqRel) + len == self.len {
                self.owner.unpark();
            }
        }
    }

    /// Waits until everything is done. For the owner.
    pub(crate) fn finish(&self) {
        if !spin(|| self.done.load(Ordering::Acquire) == self.len) {
            self.owner.park(None);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    #[test]
    fn every_part_is_done_once_by_whoever_joins() {
        for len in [1, 2, 999, 1000, 1001] {
            let touched: Vec<AtomicU8> = (0..len).map(|_| AtomicU8::new(0)).collect();
            let body = |at: usize, len: usize| {
                touched[at..at + len].iter().for_each(|byte| {
                    byte.fetch_add(1, Ordering::Relaxed);
                });
            };
            // SAFETY: the scope below ends after `finish`.
            let split = unsafe { Split::new(len, 10, &body) };
            std::thread::scope(|scope| {
                scope.spawn(|| split.join());
                scope.spawn(|| split.join());
                split.join();
                split.finish();
                assert!(touched.iter().all(|byte| byte.load(Ordering::Relaxed) == 1));
            });
            assert!(!split.has_more());
        }
    }
}
