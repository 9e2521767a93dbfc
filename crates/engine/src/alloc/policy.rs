//! Sizes: how a request is rounded, which pool serves it, what segment it asks the device for, what is split.

use super::settings::{ROUNDUP_SLOTS, Settings};

/// Bytes in a MiB.
pub(super) const MIB: u64 = 1 << 20;
/// Granule of every block.
pub(super) const GRANULE: u64 = 512;
/// Greatest rounded size of the small pool.
pub(super) const SMALL_LIMIT: u64 = MIB;
/// Segment of the small pool; also its unit of growth, and what large segments are rounded to.
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;
/// From here on a request gets a segment of its own size.
const OWN_SEGMENT: u64 = 10 * MIB;
/// Requests of this size or more are refused: beyond it sums of sizes could overflow.
pub const MAX_REQUEST: u64 = 1 << 60;

/// Where this allocator leaves PyTorch 2.14's behaviour, each because the original fails there.
/// The replay of a recorded history turns all of them off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departures {
    /// Before giving up, the pool is searched once more: waiting for pending uses may have freed a block that fits.
    pub search_before_failing: bool,
    /// `max_split_size_mb` does not keep requests off the free blocks of growable segments: those always split, and
    /// refusing them makes the segment grow without end.
    pub growable_ignores_split_limit: bool,
    /// While a capture is under way nothing is given back to the device, not even by garbage collection.
    pub capture_frees_nothing: bool,
    /// Of nested pool scopes the innermost wins (the original: the outermost).
    pub innermost_pool_wins: bool,
    /// A request for more than the device has reserves no address space for a growable segment that can never be mapped.
    pub impossible_reserves_nothing: bool,
}

impl Departures {
    /// All of them: how the runtime works.
    pub const ALL: Departures = Departures {
        search_before_failing: true,
        growable_ignores_split_limit: true,
        capture_frees_nothing: true,
        innermost_pool_wins: true,
        impossible_reserves_nothing: true,
    };
    /// None: PyTorch 2.14 to the byte, its failures included.
    pub const NONE: Departures = Departures {
        search_before_failing: false,
        growable_ignores_split_limit: false,
        capture_frees_nothing: false,
        innermost_pool_wins: false,
        impossible_reserves_nothing: false,
    };
}

impl Default for Departures {
    fn default() -> Self {
        Departures::ALL
    }
}

/// The settings as the hot path wants them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) max_split: u64,
    pub(super) slack: u64,
    pub(super) large_segment: u64,
    pub(super) growable: bool,
    divided: bool,
    divisions: [u64; ROUNDUP_SLOTS],
}

impl Rules {
    pub(super) fn new(settings: &Settings, can_grow: bool) -> Self {
        Rules {
            max_split: settings.max_split_size.unwrap_or(u64::MAX),
            slack: settings.max_non_split_rounding.unwrap_or(settings.large_segment_size),
            large_segment: settings.large_segment_size,
            growable: settings.expandable_segments && can_grow,
            divided: settings.roundup_power2_divisions.iter().any(|&v| v > 1),
            divisions: settings.roundup_power2_divisions,
        }
    }

    /// The size of the block that a request of `size` bytes (at least 1, below [`MAX_REQUEST`]) needs.
    pub(super) fn round(&self, size: u64) -> u64 {
        if size < GRANULE {
            return GRANULE;
        }
        if self.divided {
            let floor = size.ilog2();
            let slot = (floor as usize).saturating_sub(20).min(ROUNDUP_SLOTS - 1);
            let v = self.divisions[slot];
            if v > 1 && size > GRANULE.saturating_mul(v) {
                let step = (1u64 << floor) / v;
                return if size.is_power_of_two() { size } else { size.next_multiple_of(step) };
            }
        }
        size.next_multiple_of(GRANULE)
    }

    /// The segment to ask the device for, for a rounded size.
    pub(super) fn segment(&self, rounded: u64) -> u64 {
        if rounded <= SMALL_LIMIT {
            SMALL_SEGMENT
        } else if rounded < OWN_SEGMENT {
            self.large_segment
        } else {
            rounded.next_multiple_of(SMALL_SEGMENT)
        }
    }

    /// Is a block of `size` cut for a request of `rounded`? `kind` is 0 for the small pool.
    pub(super) fn splits(&self, kind: usize, size: u64, rounded: u64) -> bool {
        let rest = size - rounded;
        if kind == 0 || self.growable { rest >= GRANULE } else { rounded < self.max_split && rest > SMALL_LIMIT }
    }

    /// May a free block of `size` serve a request of `rounded`?
    pub(super) fn fits(&self, size: u64, rounded: u64) -> bool {
        if rounded < self.max_split { size < self.max_split } else { size < rounded.saturating_add(self.slack) }
    }

    /// The unit in which growable segments of a pool are mapped.
    pub(super) fn unit(&self, kind: usize) -> u64 {
        if kind == 0 { SMALL_SEGMENT } else { self.large_segment }
    }
}

/// The byte limit that a fraction of the device stands for; 1.0 is no limit.
pub(super) fn fraction_limit(fraction: f64, total: u64) -> Option<u64> {
    (fraction < 1.0).then(|| share(fraction, total))
}

/// floor(fraction x total).
pub(super) fn share(fraction: f64, total: u64) -> u64 {
    (fraction * total as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::new(&Settings::parse(text).unwrap(), true)
    }

    #[test]
    fn plain_rounding() {
        let r = rules("");
        for (size, want) in [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)] {
            assert_eq!(r.round(size), want);
        }
        assert_eq!(r.round(MAX_REQUEST - 1), MAX_REQUEST);
    }

    #[test]
    fn divided_rounding() {
        let r = rules("roundup_power2_divisions:4");
        // Only above 512 x 4; then to quarters of the power of two below; powers of two stay.
        for (size, want) in [(600, 1024), (2048, 2048), (2049, 2560), (3000, 3072), (1 << 24, 1 << 24)] {
            assert_eq!(r.round(size), want);
        }
        assert_eq!(r.round((1 << 24) + 1), (1 << 24) + (1 << 22));
        // A slot in a gap between keys is plain.
        let r = rules("roundup_power2_divisions:[1:8,16:2]");
        assert_eq!(r.round(3 * MIB + 1), 3 * MIB + 512);
        assert_eq!(r.round(17 * MIB), 24 * MIB);
        assert_eq!(r.round(MIB + 1), MIB + MIB / 8);
    }

    #[test]
    fn segments_and_splits() {
        let r = rules("");
        assert_eq!(r.segment(MIB), 2 * MIB);
        assert_eq!(r.segment(MIB + 512), 20 * MIB);
        assert_eq!(r.segment(10 * MIB - 512), 20 * MIB);
        assert_eq!(r.segment(10 * MIB), 10 * MIB);
        assert_eq!(r.segment(11 * MIB), 12 * MIB);
        assert!(!r.splits(1, 20 * MIB, 19 * MIB) && r.splits(1, 20 * MIB, 19 * MIB - 512));
        assert!(r.splits(0, 1024, 512));
        assert!(rules("expandable_segments:True").splits(1, 20 * MIB, 20 * MIB - 512));
    }

    #[test]
    fn oversize_blocks_are_kept_apart() {
        let r = rules("max_split_size_mb:32");
        assert!(!r.fits(32 * MIB, 31 * MIB) && r.fits(32 * MIB - 512, 31 * MIB));
        assert!(r.fits(59 * MIB, 40 * MIB) && !r.fits(60 * MIB, 40 * MIB));
        assert_eq!(rules("max_split_size_mb:48,large_segment_size_mb:32").slack, 32 * MIB);
    }

    #[test]
    fn limits() {
        assert_eq!(fraction_limit(1.0, 1000), None);
        assert_eq!(fraction_limit(0.3, 1 << 30), Some(322_122_547));
        assert_eq!(fraction_limit(0.0, 1000), Some(0));
    }
}
