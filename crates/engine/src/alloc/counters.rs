//! The counters as the hot path keeps them.
//!
//! A hit touches three totals and two rows of *headrooms*: by how much the counts, the bytes and the requested bytes may
//! still grow before some peak is passed. Only when one falls below zero are the peaks looked at, off the hot path.
//! Everything else is derived: `current` is what was allocated less what was freed, the sum over both pools is computed
//! when asked for, and a reset of the accumulated numbers remembers where they stood.

use super::stats::{PoolStat, Stat, Stats};

/// Counts of blocks, bytes of blocks, bytes requested. (The fourth is always 0: four lanes are handled two at a time.)
type Triple = [u64; 4];

/// Totals since the beginning, for one pool.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    taken: Triple,
    /// Really free again.
    ended: Triple,
    /// Given back by the user but still used by a stream: blocks and bytes.
    pending: [u64; 2],
}

impl Totals {
    /// What `allocation`, `allocated_bytes`, `active`, `active_bytes` and `requested_bytes` read now.
    fn currents(&self) -> [u64; 5] {
        let active = |i: usize| self.taken[i] - self.ended[i];
        [active(0) - self.pending[0], active(1) - self.pending[1], active(0), active(1), active(2)]
    }

    /// `[increases, decreases]` of the same five.
    fn sums(&self) -> [[u64; 2]; 5] {
        let [t0, t1, t2, _] = self.taken;
        let [e0, e1, e2, _] = self.ended;
        [[t0, e0 + self.pending[0]], [t1, e1 + self.pending[1]], [t0, e0], [t1, e1], [t2, e2]]
    }
}

/// A quantity by pool, kept so that a change is one addition: the sums of increases and decreases, and the peaks.
#[derive(Debug, Default)]
pub(super) struct Flow {
    up: [u64; 2],
    down: [u64; 2],
    /// Of both pools together, of each.
    peaks: [u64; 3],
    base: [[u64; 2]; 2],
}

impl Flow {
    #[inline(always)]
    pub(super) fn add(&mut self, kind: usize, n: u64) {
        let kind = kind & 1;
        // All loads before the store: a wide load right behind a narrow store to the same place would stall.
        let own = self.up[kind] - self.down[kind] + n;
        let both = self.up[0] + self.up[1] - self.down[0] - self.down[1] + n;
        self.up[kind] += n;
        if own > self.peaks[1 + kind] {
            self.peaks[1 + kind] = own;
        }
        if both > self.peaks[0] {
            self.peaks[0] = both;
        }
    }

    #[inline(always)]
    pub(super) fn sub(&mut self, kind: usize, n: u64) {
        self.down[kind & 1] += n;
    }

    /// Adds `n`, or takes `-n` away.
    #[inline(always)]
    pub(super) fn change(&mut self, kind: usize, n: i64) {
        if n > 0 {
            self.add(kind, n.unsigned_abs());
        } else {
            self.sub(kind, n.unsigned_abs());
        }
    }

    fn now(&self) -> [u64; 2] {
        [self.up[0] - self.down[0], self.up[1] - self.down[1]]
    }

    fn reset_peaks(&mut self) {
        let [small, large] = self.now();
        self.peaks = [small + large, small, large];
    }

    fn reset_accumulated(&mut self) {
        self.base = [self.up, self.down];
    }

    fn stat(&self) -> PoolStat {
        let now = self.now();
        let pool = |k: usize| Stat {
            current: now[k],
            peak: self.peaks[1 + k],
            allocated: self.up[k] - self.base[0][k],
            freed: self.down[k] - self.base[1][k],
        };
        total(self.peaks[0], pool(0), pool(1))
    }
}

/// Both pools together.
fn total(peak: u64, small: Stat, large: Stat) -> PoolStat {
    let all = Stat {
        current: small.current + large.current,
        peak,
        allocated: small.allocated + large.allocated,
        freed: small.freed + large.freed,
    };
    PoolStat { all, small, large }
}

/// Which headroom bounds each of the five.
const BOUND: [usize; 5] = [0, 1, 0, 1, 2];

/// All counters of a device.
#[derive(Debug, Default)]
pub(super) struct Counters {
    totals: [Totals; 2],
    /// Headroom of both pools together, of the small one, of the large one.
    headroom: [[i64; 4]; 3],
    peaks: [[u64; 5]; 3],
    /// `sums` of each pool at the last reset.
    base: [[[u64; 2]; 5]; 2],
    pub(super) segment: PoolStat,
    pub(super) reserved: PoolStat,
    pub(super) inactive_split: Flow,
    pub(super) inactive_split_bytes: Flow,
    pub(super) oversize_allocations: Stat,
    pub(super) oversize_segments: Stat,
    pub(super) retries: u64,
    pub(super) ooms: u64,
    pub(super) syncs: u64,
    pub(super) device_allocs: u64,
    pub(super) device_frees: u64,
    pub(super) rejections: u64,
}

impl Counters {
    /// A block of `size` bytes was handed out for a request of `requested`.
    #[inline(always)]
    pub(super) fn take(&mut self, kind: usize, size: u64, requested: u64) {
        let change = [1, size, requested, 0];
        let totals = &mut self.totals[kind & 1];
        let [all, small, large] = &mut self.headroom;
        let own = if kind == 0 { small } else { large };
        let mut least = [0; 4];
        for (i, n) in change.into_iter().enumerate() {
            totals.taken[i] += n;
            all[i] -= n as i64;
            own[i] -= n as i64;
            least[i] = all[i] | own[i];
        }
        let least = least.into_iter().fold(0, |a, b| a | b);
        if least < 0 {
            self.raise_peaks();
        }
    }

    /// A block is free again, from `pending` if it had been given back before.
    #[inline(always)]
    pub(super) fn end(&mut self, kind: usize, size: u64, requested: u64, was_pending: bool) {
        let change = [1, size, requested, 0];
        let totals = &mut self.totals[kind & 1];
        let [all, small, large] = &mut self.headroom;
        let own = if kind == 0 { small } else { large };
        for (ended, n) in totals.ended.iter_mut().zip(change) {
            *ended += n;
        }
        for (i, n) in change.into_iter().enumerate() {
            all[i] += n as i64;
            own[i] += n as i64;
        }
        if was_pending {
            self.pend(kind, -1, -(size as i64));
        }
    }

    /// A block was given back but streams still use it.
    pub(super) fn defer(&mut self, kind: usize, size: u64) {
        self.pend(kind, 1, size as i64);
    }

    /// Changes what is pending. A headroom is bounded by `active` or, where the peak of `allocated` is that much lower, by
    /// the latter; with what lies between the two the bound moves.
    fn pend(&mut self, kind: usize, blocks: i64, bytes: i64) {
        let before = self.gaps(kind);
        let pending = &mut self.totals[kind & 1].pending;
        pending[0] = pending[0].wrapping_add_signed(blocks);
        pending[1] = pending[1].wrapping_add_signed(bytes);
        let after = self.gaps(kind);
        for (level, (after, before)) in [0, 1 + (kind & 1)].into_iter().zip(after.iter().zip(&before)) {
            for (room, (after, before)) in self.headroom[level].iter_mut().zip(after.iter().zip(before)) {
                *room += after - before;
            }
        }
    }

    /// How much less headroom `allocated` leaves than `active` (0 or negative), of blocks and of bytes, for both pools
    /// together and for one.
    fn gaps(&self, kind: usize) -> [[i64; 2]; 2] {
        let gap = |level: usize, i: usize, pending: u64| {
            let peaks = &self.peaks[level];
            (peaks[i] as i64 - peaks[i + 2] as i64 + pending as i64).min(0)
        };
        let [small, large] = [self.totals[0].pending, self.totals[1].pending];
        let own = self.totals[kind & 1].pending;
        let level = 1 + (kind & 1);
        [
            [gap(0, 0, small[0] + large[0]), gap(0, 1, small[1] + large[1])],
            [gap(level, 0, own[0]), gap(level, 1, own[1])],
        ]
    }

    fn currents(&self) -> [[u64; 5]; 3] {
        let (small, large) = (self.totals[0].currents(), self.totals[1].currents());
        [std::array::from_fn(|i| small[i] + large[i]), small, large]
    }

    #[cold]
    #[inline(never)]
    fn raise_peaks(&mut self) {
        let now = self.currents();
        for (peak, now) in self.peaks.iter_mut().flatten().zip(now.iter().flatten()) {
            *peak = (*peak).max(*now);
        }
        self.measure_headroom(&now);
    }

    fn measure_headroom(&mut self, now: &[[u64; 5]; 3]) {
        for ((room, peaks), now) in self.headroom.iter_mut().zip(&self.peaks).zip(now) {
            *room = [i64::MAX; 4];
            for ((bound, peak), now) in BOUND.into_iter().zip(peaks).zip(now) {
                room[bound] = room[bound].min((peak - now) as i64);
            }
        }
    }

    /// How many blocks became free so far; tells a thread that let go of the lock whether to look again.
    pub(super) fn ended(&self) -> u64 {
        self.totals[0].ended[0] + self.totals[1].ended[0]
    }

    pub(super) fn reserved_now(&self) -> u64 {
        self.reserved.all.current
    }

    /// Bytes in the hands of users.
    pub(super) fn allocated_now(&self) -> u64 {
        self.currents()[0][1]
    }

    /// Bytes given back but still used by a stream.
    pub(super) fn pending_now(&self) -> u64 {
        self.totals[0].pending[1] + self.totals[1].pending[1]
    }

    pub(super) fn reset_peaks(&mut self) {
        let now = self.currents();
        self.peaks = now;
        self.measure_headroom(&now);
        for stat in [&mut self.segment, &mut self.reserved] {
            stat.each(Stat::reset_peak);
        }
        self.inactive_split.reset_peaks();
        self.inactive_split_bytes.reset_peaks();
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.base = [self.totals[0].sums(), self.totals[1].sums()];
        for stat in [&mut self.segment, &mut self.reserved] {
            stat.each(Stat::reset_accumulated);
        }
        self.inactive_split.reset_accumulated();
        self.inactive_split_bytes.reset_accumulated();
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        (self.retries, self.ooms, self.syncs) = (0, 0, 0);
        (self.device_allocs, self.device_frees, self.rejections) = (0, 0, 0);
    }

    /// The statistics but for what other places know.
    pub(super) fn stats(&self) -> Stats {
        let now = self.currents();
        let sums = [self.totals[0].sums(), self.totals[1].sums()];
        let stat = |i: usize| {
            let pool = |k: usize| Stat {
                current: now[k + 1][i],
                peak: self.peaks[k + 1][i],
                allocated: sums[k][i][0] - self.base[k][i][0],
                freed: sums[k][i][1] - self.base[k][i][1],
            };
            total(self.peaks[0][i], pool(0), pool(1))
        };
        Stats {
            allocation: stat(0),
            allocated_bytes: stat(1),
            active: stat(2),
            active_bytes: stat(3),
            requested_bytes: stat(4),
            segment: self.segment,
            reserved_bytes: self.reserved,
            inactive_split: self.inactive_split.stat(),
            inactive_split_bytes: self.inactive_split_bytes.stat(),
            oversize_allocations: self.oversize_allocations,
            oversize_segments: self.oversize_segments,
            num_alloc_retries: self.retries,
            num_ooms: self.ooms,
            num_sync_all_streams: self.syncs,
            num_device_alloc: self.device_allocs,
            num_device_free: self.device_frees,
            num_oom_rejections: self.rejections,
            max_split_size: -1,
            reserved_bytes_by_private_pools: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain way to count, against which the headrooms are checked.
    #[test]
    fn peaks_are_exact() {
        let mut counters = Counters::default();
        let mut model = [PoolStat::default(); 5];
        let mut live: Vec<(usize, u64, u64)> = Vec::new();
        let mut waiting: Vec<(usize, u64, u64)> = Vec::new();
        let mut seed = 99u64;
        for step in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let r = seed >> 33;
            match r % 9 {
                0..=3 => {
                    let kind = (r >> 8) as usize & 1;
                    let requested = 1 + (r >> 9) % 100_000;
                    let size = requested.next_multiple_of(512);
                    counters.take(kind, size, requested);
                    for (stat, n) in model.iter_mut().zip([1, size, 1, size, requested]) {
                        stat.add(kind, n);
                    }
                    live.push((kind, size, requested));
                }
                4..=6 if !live.is_empty() => {
                    let (kind, size, requested) = live.swap_remove((r >> 8) as usize % live.len());
                    model[0].sub(kind, 1);
                    model[1].sub(kind, size);
                    if r % 9 == 4 {
                        counters.defer(kind, size);
                        waiting.push((kind, size, requested));
                    } else {
                        counters.end(kind, size, requested, false);
                        model[2].sub(kind, 1);
                        model[3].sub(kind, size);
                        model[4].sub(kind, requested);
                    }
                }
                7 if !waiting.is_empty() => {
                    let (kind, size, requested) = waiting.swap_remove((r >> 8) as usize % waiting.len());
                    counters.end(kind, size, requested, true);
                    model[2].sub(kind, 1);
                    model[3].sub(kind, size);
                    model[4].sub(kind, requested);
                }
                8 if step % 50 == 0 => {
                    counters.reset_peaks();
                    model.iter_mut().for_each(|s| s.each(Stat::reset_peak));
                }
                8 if step % 50 == 1 => {
                    counters.reset_accumulated();
                    model.iter_mut().for_each(|s| s.each(Stat::reset_accumulated));
                }
                _ => {}
            }
            let stats = counters.stats();
            let got =
                [stats.allocation, stats.allocated_bytes, stats.active, stats.active_bytes, stats.requested_bytes];
            assert_eq!(got, model, "step {step}");
            let headroom = counters.headroom;
            let now = counters.currents();
            counters.measure_headroom(&now);
            assert_eq!(
                headroom.map(|h| [h[0], h[1], h[2]]),
                counters.headroom.map(|h| [h[0], h[1], h[2]]),
                "step {step}"
            );
        }
    }
}
