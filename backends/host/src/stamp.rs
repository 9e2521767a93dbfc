//! Stamps: the time at a point of a stream (H17), in nanoseconds since the driver started.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A point whose time may not have come.
#[derive(Debug)]
pub(crate) struct StampCell {
    epoch: Instant,
    /// Nanoseconds plus one; 0 until the turn has come.
    at: AtomicU64,
}

impl StampCell {
    pub(crate) const fn new(epoch: Instant) -> Self {
        Self { epoch, at: AtomicU64::new(0) }
    }

    /// Its turn has come.
    pub(crate) fn set(&self) {
        let since = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        self.at.store(since + 1, Ordering::Release);
    }

    /// When its turn came.
    pub(crate) fn get(&self) -> Option<u64> {
        self.at.load(Ordering::Acquire).checked_sub(1)
    }
}
