//! How large the block for a request is, and what is kept.

use crate::alloc::Settings;

/// The least block, and the least granularity: a page. A driver pins whole pages.
pub const PAGE: u64 = 4096;

/// Requests of this many bytes (2^60) or more are refused.
pub const MAX_HOST_REQUEST: u64 = 1 << 60;

/// The threshold where the settings name none: 64 MiB.
///
/// PyTorch has none and rounds 129.5 MiB to 256. Below 64 MiB a power of two wastes at most 32 MiB of a block and lets
/// requests of varied sizes share it; above it sizes tend to recur (weights, batches, cache pages), so that a block of
/// exactly that size is found again and rounding would only hold memory that nobody can use.
pub const DEFAULT_ROUND_THRESHOLD: u64 = 64 << 20;

/// An exact block serves requests that leave at most 1/16 of their own size unused.
const SLACK: u64 = 16;

/// What the block for a request must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its size in bytes.
    pub size: u64,
    /// Whether it is an exact block, above the threshold, rather than one of a size class.
    pub exact: bool,
}

impl Placement {
    /// The greatest block that may serve it.
    pub(super) fn largest(self) -> u64 {
        if self.exact { self.size + self.size / SLACK } else { self.size }
    }

    /// The least block that is so close in size that it is not worth keeping beside this one.
    pub(super) fn outgrown(self) -> u64 {
        self.size - self.size / SLACK
    }
}

/// The rules of a pinned cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPolicy {
    /// Requests above it are rounded to a page only, in bytes; `u64::MAX`: none are. `pinned_max_round_threshold_mb`.
    pub round_threshold: u64,
    /// Larger blocks are not cached but given back once their uses have ended, in bytes; `u64::MAX`: all are cached.
    /// `pinned_max_cached_size_mb`.
    pub max_cached: u64,
    /// What exact blocks are rounded to and the least size class, a power of two of at least [`PAGE`].
    pub page: u64,
}

impl Default for HostPolicy {
    fn default() -> Self {
        HostPolicy { round_threshold: DEFAULT_ROUND_THRESHOLD, max_cached: u64::MAX, page: PAGE }
    }
}

impl HostPolicy {
    /// The policy that settings ask for, where the backend pins in units of `granularity` bytes. Without
    /// `pinned_max_round_threshold_mb` the threshold is [`DEFAULT_ROUND_THRESHOLD`].
    ///
    /// The other `pinned_*` keys have no effect here: they choose how PyTorch calls CUDA to pin.
    pub fn from_settings(settings: &Settings, granularity: u64) -> Self {
        HostPolicy {
            round_threshold: settings.pinned_max_round_threshold.unwrap_or(DEFAULT_ROUND_THRESHOLD),
            max_cached: settings.pinned_max_cached_size.unwrap_or(u64::MAX),
            page: granularity,
        }
        .sound()
    }

    /// Itself, with a page that is a page.
    pub(super) fn sound(mut self) -> Self {
        self.page = self.page.clamp(PAGE, 1 << 30).next_power_of_two();
        self
    }

    /// The block for a request of `0 < requested < MAX_HOST_REQUEST` bytes.
    pub fn place(&self, requested: u64) -> Placement {
        if requested > self.round_threshold {
            Placement { size: requested.next_multiple_of(self.page), exact: true }
        } else {
            Placement { size: requested.next_power_of_two().max(self.page), exact: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn classes_up_to_the_threshold_and_pages_above() {
        let policy = HostPolicy::default();
        let place = |n| policy.place(n);
        assert_eq!(place(1), Placement { size: 4096, exact: false });
        assert_eq!(place(4097), Placement { size: 8192, exact: false });
        assert_eq!(place(48 * MIB), Placement { size: 64 * MIB, exact: false });
        assert_eq!(place(64 * MIB), Placement { size: 64 * MIB, exact: false });
        assert_eq!(place(64 * MIB + 1), Placement { size: 64 * MIB + 4096, exact: true });
        assert_eq!(place(MAX_HOST_REQUEST - 1), Placement { size: MAX_HOST_REQUEST, exact: true });
    }

    #[test]
    fn settings_and_granularity() {
        let settings = Settings::parse("pinned_max_round_threshold_mb:8,pinned_max_cached_size_mb:32").unwrap();
        let policy = HostPolicy::from_settings(&settings, 0);
        assert_eq!(policy, HostPolicy { round_threshold: 8 * MIB, max_cached: 32 * MIB, page: PAGE });
        let policy = HostPolicy::from_settings(&Settings::default(), 60_000);
        assert_eq!(policy, HostPolicy { page: 65_536, ..HostPolicy::default() });
        assert_eq!(policy.place(1).size, 65_536);
    }
}
