//! What the pinned cache counts.
//!
//! Names and meaning are those of `torch.cuda.host_memory_stats` in PyTorch 2.14, but that peaks are those of the sums
//! (there they are sums of the peaks of size classes), and with `requested_bytes` beside what is held.

use std::time::Duration;

use crate::alloc::Stat;

/// How long calls of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeStat {
    /// All calls since the last reset of the accumulated numbers.
    pub total: Duration,
    /// The longest call since the last reset of peaks.
    pub max: Duration,
    /// The shortest call since the last reset of peaks; zero if there was none.
    pub min: Duration,
    /// How many calls since the last reset of the accumulated numbers.
    pub count: u64,
    /// Whether `max` and `min` stand for a call.
    any: bool,
}

impl TimeStat {
    /// The mean; zero if there was no call.
    pub fn avg(&self) -> Duration {
        let mean = self.total.as_nanos().checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    fn add(&mut self, took: Duration) {
        self.total += took;
        self.count += 1;
        self.max = self.max.max(took);
        self.min = if self.any { self.min.min(took) } else { took };
        self.any = true;
    }

    /// In the order of the keys: avg, count, max, min, total.
    fn values(&self) -> [i64; 5] {
        let us = |d: Duration| d.as_micros() as i64;
        [us(self.avg()), self.count as i64, us(self.max), us(self.min), us(self.total)]
    }
}

/// Every counter of a pinned cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Blocks held, used or not.
    pub allocations: Stat,
    /// Bytes of `allocations`.
    pub allocated_bytes: Stat,
    /// Blocks handed out and not yet found to be reusable: those of users, and those given back that streams still use.
    pub active_requests: Stat,
    /// Bytes of `active_requests`.
    pub active_bytes: Stat,
    /// Bytes that users asked for, of the blocks in `active_requests`.
    pub requested_bytes: Stat,
    /// Time in calls that pinned memory; those that failed don't count.
    pub host_alloc_time: TimeStat,
    /// Time in calls that gave memory back; those that failed don't count.
    pub host_free_time: TimeStat,
    /// Blocks obtained.
    pub num_host_alloc: u64,
    /// Blocks given back.
    pub num_host_free: u64,
    /// Requests that were tried again after everything unused was given back.
    pub num_alloc_retries: u64,
    /// Requests that failed for lack of memory.
    pub num_ooms: u64,
}

/// How many pairs [`HostStats::flat`] gives.
pub const HOST_FLAT_LEN: usize = 5 * 4 + 2 * 5 + 4;

macro_rules! stat_keys {
    ($group:literal) => {
        [
            concat!($group, ".allocated"),
            concat!($group, ".current"),
            concat!($group, ".freed"),
            concat!($group, ".peak"),
        ]
    };
}

macro_rules! time_keys {
    ($group:literal) => {
        [
            concat!($group, ".avg"),
            concat!($group, ".count"),
            concat!($group, ".max"),
            concat!($group, ".min"),
            concat!($group, ".total"),
        ]
    };
}

fn add(stat: &mut Stat, n: u64) {
    stat.current += n;
    stat.allocated += n;
    stat.peak = stat.peak.max(stat.current);
}

fn sub(stat: &mut Stat, n: u64) {
    debug_assert!(stat.current >= n);
    stat.current = stat.current.saturating_sub(n);
    stat.freed += n;
}

impl HostStats {
    /// The flat statistics, sorted by key; times in microseconds.
    pub fn flat(&self) -> [(&'static str, i64); HOST_FLAT_LEN] {
        let mut out = [("", 0i64); HOST_FLAT_LEN];
        let mut at = 0;
        let mut put = |keys: &[&'static str], values: &[i64]| {
            for (key, value) in keys.iter().zip(values) {
                out[at] = (key, *value);
                at += 1;
            }
        };
        let of = |s: &Stat| [s.allocated as i64, s.current as i64, s.freed as i64, s.peak as i64];
        put(&stat_keys!("active_bytes"), &of(&self.active_bytes));
        put(&stat_keys!("active_requests"), &of(&self.active_requests));
        put(&stat_keys!("allocated_bytes"), &of(&self.allocated_bytes));
        put(&stat_keys!("allocations"), &of(&self.allocations));
        put(&time_keys!("host_alloc_time"), &self.host_alloc_time.values());
        put(&time_keys!("host_free_time"), &self.host_free_time.values());
        put(
            &["num_alloc_retries", "num_host_alloc", "num_host_free", "num_ooms"],
            &[self.num_alloc_retries, self.num_host_alloc, self.num_host_free, self.num_ooms].map(|n| n as i64),
        );
        put(&stat_keys!("requested_bytes"), &of(&self.requested_bytes));
        out
    }

    pub(super) fn obtained(&mut self, size: u64, took: Duration) {
        add(&mut self.allocations, 1);
        add(&mut self.allocated_bytes, size);
        self.num_host_alloc += 1;
        self.host_alloc_time.add(took);
    }

    pub(super) fn returned(&mut self, size: u64, took: Duration) {
        sub(&mut self.allocations, 1);
        sub(&mut self.allocated_bytes, size);
        self.num_host_free += 1;
        self.host_free_time.add(took);
    }

    #[inline]
    pub(super) fn take(&mut self, size: u64, requested: u64) {
        add(&mut self.active_requests, 1);
        add(&mut self.active_bytes, size);
        add(&mut self.requested_bytes, requested);
    }

    #[inline]
    pub(super) fn end(&mut self, size: u64, requested: u64) {
        sub(&mut self.active_requests, 1);
        sub(&mut self.active_bytes, size);
        sub(&mut self.requested_bytes, requested);
    }

    fn stats(&mut self) -> [&mut Stat; 5] {
        [
            &mut self.allocations,
            &mut self.allocated_bytes,
            &mut self.active_requests,
            &mut self.active_bytes,
            &mut self.requested_bytes,
        ]
    }

    pub(super) fn reset_peaks(&mut self) {
        for stat in self.stats() {
            stat.peak = stat.current;
        }
        for time in [&mut self.host_alloc_time, &mut self.host_free_time] {
            *time = TimeStat { total: time.total, count: time.count, ..TimeStat::default() };
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for stat in self.stats() {
            (stat.allocated, stat.freed) = (0, 0);
        }
        for time in [&mut self.host_alloc_time, &mut self.host_free_time] {
            (time.total, time.count) = (Duration::ZERO, 0);
        }
        (self.num_host_alloc, self.num_host_free) = (0, 0);
        (self.num_alloc_retries, self.num_ooms) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_keys_are_sorted_and_complete() {
        let mut stats = HostStats::default();
        stats.obtained(8192, Duration::from_micros(3));
        stats.take(8192, 5000);
        let flat = stats.flat();
        assert!(flat.windows(2).all(|w| w[0].0 < w[1].0), "{flat:?}");
        let get = |key| flat.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        assert_eq!(get("allocations.current"), Some(1));
        assert_eq!(get("allocated_bytes.peak"), Some(8192));
        assert_eq!(get("active_bytes.allocated"), Some(8192));
        assert_eq!(get("active_requests.freed"), Some(0));
        assert_eq!(get("requested_bytes.current"), Some(5000));
        assert_eq!(get("host_alloc_time.total"), Some(3));
        assert_eq!(get("host_free_time.count"), Some(0));
        assert_eq!(get("num_host_alloc"), Some(1));
    }

    #[test]
    fn times() {
        let mut time = TimeStat::default();
        assert_eq!(time.avg(), Duration::ZERO);
        for us in [5, 2, 9] {
            time.add(Duration::from_micros(us));
        }
        assert_eq!(time.values(), [5, 3, 9, 2, 16]);
        let mut stats = HostStats { host_alloc_time: time, ..HostStats::default() };
        stats.reset_peaks();
        stats.host_alloc_time.add(Duration::from_micros(4));
        assert_eq!(stats.host_alloc_time.values(), [5, 4, 4, 4, 20]);
        stats.reset_accumulated();
        assert_eq!(stats.host_alloc_time.values(), [0, 0, 4, 4, 0]);
    }
}
