//! What the cache counts, as its users see it.
//!
//! Names and meaning are those of `torch.cuda.memory_stats` in PyTorch 2.14.

use super::pools::PoolId;

/// One quantity: now, at most, added in all, taken away in all (the latter three since their last reset).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The value now.
    pub current: u64,
    /// The greatest value since the last reset of peaks.
    pub peak: u64,
    /// Sum of all increases since the last reset of the accumulated numbers.
    pub allocated: u64,
    /// Sum of all decreases since the last reset of the accumulated numbers.
    pub freed: u64,
}

impl Stat {
    pub(super) fn add(&mut self, n: u64) {
        self.current += n;
        self.allocated += n;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn sub(&mut self, n: u64) {
        self.current = self.current.saturating_sub(n);
        self.freed += n;
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(super) fn reset_accumulated(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }

    fn values(&self) -> [i64; 4] {
        // In the order of the keys: allocated, current, freed, peak.
        [self.allocated as i64, self.current as i64, self.freed as i64, self.peak as i64]
    }
}

/// One quantity, by pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Both pools together; its peak is that of the sum.
    pub all: Stat,
    /// Requests of up to 1 MiB.
    pub small: Stat,
    /// Larger ones.
    pub large: Stat,
}

impl PoolStat {
    fn of(&mut self, kind: usize) -> &mut Stat {
        if kind == 0 { &mut self.small } else { &mut self.large }
    }

    pub(super) fn add(&mut self, kind: usize, n: u64) {
        self.all.add(n);
        self.of(kind).add(n);
    }

    pub(super) fn sub(&mut self, kind: usize, n: u64) {
        self.all.sub(n);
        self.of(kind).sub(n);
    }

    /// Adds `n`, or takes `-n` away.
    pub(super) fn change(&mut self, kind: usize, n: i64) {
        if n > 0 {
            self.add(kind, n.unsigned_abs());
        } else if n < 0 {
            self.sub(kind, n.unsigned_abs());
        }
    }

    pub(super) fn each(&mut self, f: impl Fn(&mut Stat)) {
        f(&mut self.all);
        f(&mut self.small);
        f(&mut self.large);
    }

    /// `[all, small, large]`.
    pub fn parts(&self) -> [Stat; 3] {
        [self.all, self.small, self.large]
    }

    fn values(&self) -> [[i64; 4]; 3] {
        // In the order of the keys: all, large_pool, small_pool.
        [self.all.values(), self.large.values(), self.small.values()]
    }
}

/// Every counter of one device's cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks in the hands of users.
    pub allocation: PoolStat,
    /// Segments taken from the device; growable ones don't count.
    pub segment: PoolStat,
    /// Blocks in the hands of users or still used by a stream.
    pub active: PoolStat,
    /// Free blocks that share their segment with others.
    pub inactive_split: PoolStat,
    /// Bytes of `allocation`.
    pub allocated_bytes: PoolStat,
    /// Bytes taken from the device, used or not.
    pub reserved_bytes: PoolStat,
    /// Bytes of `active`.
    pub active_bytes: PoolStat,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: PoolStat,
    /// Bytes that users asked for, of the blocks in `active`.
    pub requested_bytes: PoolStat,
    /// Blocks of `max_split_size` or more in the hands of users.
    pub oversize_allocations: Stat,
    /// Segments of `max_split_size` or more.
    pub oversize_segments: Stat,
    /// Requests that were tried again after everything unused was given back.
    pub num_alloc_retries: u64,
    /// Requests that failed for lack of memory.
    pub num_ooms: u64,
    /// How often the cache waited for all streams.
    pub num_sync_all_streams: u64,
    /// Segments (or mappings) obtained.
    pub num_device_alloc: u64,
    /// Segments (or mappings) given back.
    pub num_device_free: u64,
    /// Requests refused by `throw_on_cudamalloc_oom`.
    pub num_oom_rejections: u64,
    /// `max_split_size` in bytes; -1: unlimited.
    pub max_split_size: i64,
    /// `reserved_bytes` of each private pool that ever reserved something, by id.
    pub reserved_bytes_by_private_pools: Vec<(PoolId, PoolStat)>,
}

macro_rules! leaves {
    ($group:literal) => {
        [
            concat!($group, ".allocated"),
            concat!($group, ".current"),
            concat!($group, ".freed"),
            concat!($group, ".peak"),
        ]
    };
}

// `concat!` takes literals only, so the three pools are spelled out once here.
macro_rules! keys_by_pool {
    ($group:literal) => {
        [
            [
                concat!($group, ".all.allocated"),
                concat!($group, ".all.current"),
                concat!($group, ".all.freed"),
                concat!($group, ".all.peak"),
            ],
            [
                concat!($group, ".large_pool.allocated"),
                concat!($group, ".large_pool.current"),
                concat!($group, ".large_pool.freed"),
                concat!($group, ".large_pool.peak"),
            ],
            [
                concat!($group, ".small_pool.allocated"),
                concat!($group, ".small_pool.current"),
                concat!($group, ".small_pool.freed"),
                concat!($group, ".small_pool.peak"),
            ],
        ]
    };
}

/// How many pairs [`Stats::flat`] gives.
pub const FLAT_LEN: usize = 10 * 12 + 2 * 4 + 6;

impl Stats {
    /// The flat statistics, sorted by key. The values are those of the fields; `allocated.*` repeats `allocation.*`,
    /// since the documentation of `torch.accelerator` writes the former and its code the latter.
    pub fn flat(&self) -> [(&'static str, i64); FLAT_LEN] {
        let mut out = [("", 0i64); FLAT_LEN];
        let mut at = 0;
        let mut one = |key: &'static str, value: i64| {
            out[at] = (key, value);
            at += 1;
        };
        let pools = |one: &mut dyn FnMut(&'static str, i64), keys: [[&'static str; 4]; 3], stat: &PoolStat| {
            for (keys, values) in keys.iter().zip(stat.values()) {
                for (key, value) in keys.iter().zip(values) {
                    one(key, value);
                }
            }
        };
        let single = |one: &mut dyn FnMut(&'static str, i64), keys: [&'static str; 4], stat: &Stat| {
            for (key, value) in keys.iter().zip(stat.values()) {
                one(key, value);
            }
        };
        pools(&mut one, keys_by_pool!("active"), &self.active);
        pools(&mut one, keys_by_pool!("active_bytes"), &self.active_bytes);
        pools(&mut one, keys_by_pool!("allocated"), &self.allocation);
        pools(&mut one, keys_by_pool!("allocated_bytes"), &self.allocated_bytes);
        pools(&mut one, keys_by_pool!("allocation"), &self.allocation);
        pools(&mut one, keys_by_pool!("inactive_split"), &self.inactive_split);
        pools(&mut one, keys_by_pool!("inactive_split_bytes"), &self.inactive_split_bytes);
        one("max_split_size", self.max_split_size);
        one("num_alloc_retries", self.num_alloc_retries as i64);
        one("num_device_alloc", self.num_device_alloc as i64);
        one("num_device_free", self.num_device_free as i64);
        one("num_ooms", self.num_ooms as i64);
        one("num_sync_all_streams", self.num_sync_all_streams as i64);
        single(&mut one, leaves!("oversize_allocations"), &self.oversize_allocations);
        single(&mut one, leaves!("oversize_segments"), &self.oversize_segments);
        pools(&mut one, keys_by_pool!("requested_bytes"), &self.requested_bytes);
        pools(&mut one, keys_by_pool!("reserved_bytes"), &self.reserved_bytes);
        pools(&mut one, keys_by_pool!("segment"), &self.segment);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_keys_are_sorted_and_complete() {
        let mut stats = Stats { num_ooms: 3, max_split_size: -1, ..Stats::default() };
        stats.allocation.add(1, 7);
        let flat = stats.flat();
        assert!(flat.windows(2).all(|w| w[0].0 < w[1].0));
        let get = |key| flat.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        assert_eq!(get("num_ooms"), Some(3));
        assert_eq!(get("max_split_size"), Some(-1));
        for key in ["allocation.all.peak", "allocated.large_pool.current", "allocated.all.allocated"] {
            assert_eq!(get(key), Some(7));
        }
        assert_eq!(get("allocation.small_pool.current"), Some(0));
        assert_eq!(get("oversize_segments.freed"), Some(0));
        assert_eq!(get("num_oom_rejections"), None);
    }
}
