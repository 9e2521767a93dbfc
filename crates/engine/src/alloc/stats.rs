//! What the cache counts, as its users see it.
//!
//! Names and meaning are those of `torch.cuda.memory_stats` in PyTorch 2.14.

use super::cache::DeviceCache;
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
    ($prefix:expr) => {
        [
            concat!($prefix, ".allocated"),
            concat!($prefix, ".current"),
            concat!($prefix, ".freed"),
            concat!($prefix, ".peak"),
        ]
    };
}

macro_rules! by_pool {
    ($group:literal) => {
        [
            leaves!(concat!($group, ".all")),
            leaves!(concat!($group, ".large_pool")),
            leaves!(concat!($group, ".small_pool")),
        ]
    };
}

/// How many flat statistics there are.
pub const FLAT_LEN: usize = 10 * 12 + 2 * 4 + 6;

/// The flat keys, sorted; [`Stats::values`] gives the values in the same order. `allocated.*` repeats `allocation.*`:
/// the documentation of `torch.accelerator` writes the former, its code the latter.
pub const FLAT_KEYS: [&str; FLAT_LEN] = {
    let mut out = [""; FLAT_LEN];
    let groups = [
        by_pool!("active"),
        by_pool!("active_bytes"),
        by_pool!("allocated"),
        by_pool!("allocated_bytes"),
        by_pool!("allocation"),
        by_pool!("inactive_split"),
        by_pool!("inactive_split_bytes"),
        by_pool!("requested_bytes"),
        by_pool!("reserved_bytes"),
        by_pool!("segment"),
    ];
    let single = [
        "max_split_size",
        "num_alloc_retries",
        "num_device_alloc",
        "num_device_free",
        "num_ooms",
        "num_sync_all_streams",
    ];
    let oversize = [leaves!("oversize_allocations"), leaves!("oversize_segments")];
    let mut at = 0;
    let mut group = 0;
    while group < groups.len() {
        if group == 7 {
            let mut i = 0;
            while i < single.len() {
                out[at] = single[i];
                at += 1;
                i += 1;
            }
            i = 0;
            while i < 8 {
                out[at] = oversize[i / 4][i % 4];
                at += 1;
                i += 1;
            }
        }
        let mut i = 0;
        while i < 12 {
            out[at] = groups[group][i / 4][i % 4];
            at += 1;
            i += 1;
        }
        group += 1;
    }
    out
};

impl Stats {
    /// The values of [`FLAT_KEYS`].
    pub fn values(&self) -> [i64; FLAT_LEN] {
        let mut out = [0; FLAT_LEN];
        let mut rest = &mut out[..];
        let mut put = |values: &[i64]| {
            let (here, after) = std::mem::take(&mut rest).split_at_mut(values.len());
            here.copy_from_slice(values);
            rest = after;
        };
        for stat in [
            &self.active,
            &self.active_bytes,
            &self.allocation,
            &self.allocated_bytes,
            &self.allocation,
            &self.inactive_split,
            &self.inactive_split_bytes,
        ] {
            put(stat.values().as_flattened());
        }
        put(&[self.max_split_size]);
        put(&[self.num_alloc_retries, self.num_device_alloc, self.num_device_free].map(|n| n as i64));
        put(&[self.num_ooms, self.num_sync_all_streams].map(|n| n as i64));
        put(&self.oversize_allocations.values());
        put(&self.oversize_segments.values());
        for stat in [&self.requested_bytes, &self.reserved_bytes, &self.segment] {
            put(stat.values().as_flattened());
        }
        out
    }

    /// The flat statistics, sorted by key.
    pub fn flat(&self) -> impl Iterator<Item = (&'static str, i64)> {
        FLAT_KEYS.into_iter().zip(self.values())
    }
}

impl DeviceCache {
    /// Every counter.
    pub fn stats(&self) -> Stats {
        let heap = self.lock();
        let mut stats = heap.counters.stats();
        stats.max_split_size = heap.rules.max_split as i64;
        if !heap.private_reserved.is_empty() {
            stats.reserved_bytes_by_private_pools = heap.private_reserved.iter().map(|(id, s)| (*id, *s)).collect();
        }
        stats
    }

    /// Peaks become what is current.
    pub fn reset_peak_stats(&self) {
        let mut heap = self.lock();
        heap.counters.reset_peaks();
        heap.private_reserved.values_mut().for_each(|s| s.each(Stat::reset_peak));
    }

    /// Sums of what was allocated and freed, and the `num_*` counters, become 0.
    pub fn reset_accumulated_stats(&self) {
        let mut heap = self.lock();
        heap.counters.reset_accumulated();
        heap.private_reserved.values_mut().for_each(|s| s.each(Stat::reset_accumulated));
    }

    /// Bytes in the hands of users.
    pub fn allocated(&self) -> u64 {
        self.lock().counters.allocated_now()
    }

    /// Bytes taken from the device.
    pub fn reserved(&self) -> u64 {
        self.lock().counters.reserved_now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_keys_are_sorted_and_complete() {
        let mut stats = Stats { num_ooms: 3, max_split_size: -1, ..Stats::default() };
        stats.allocation.add(1, 7);
        let flat: Vec<_> = stats.flat().collect();
        assert_eq!(flat.len(), FLAT_LEN);
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
