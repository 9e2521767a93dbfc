//! Sets of bytes, kept as disjoint ranges that don't touch: what of a reservation is mapped.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64` positions.
#[derive(Default, Debug)]
pub(crate) struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Whether the set has some of the range.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// Where the stretch that holds `at` ends; `at` if the set lacks it.
    pub(crate) fn end_from(&self, at: u64) -> u64 {
        self.0.range(..=at).next_back().map_or(at, |(_, &end)| end.max(at))
    }

    /// Whether the set has the whole range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.end_from(range.start) >= range.end
    }

    /// Adds a range that the set has nothing of.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, _)) = self.0.range(..start).next_back().filter(|&(_, &before_end)| before_end == start) {
            start = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(start, end);
    }

    /// Takes a range out that the set has all of.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let Some((&start, &end)) = self.0.range(..=range.start).next_back() else { return };
        self.0.remove(&start);
        if start < range.start {
            self.0.insert(start, range.start);
        }
        if range.end < end {
            self.0.insert(range.end, end);
        }
    }

    /// How many positions it has.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_bitmap(changes in prop::collection::vec((0u64..20, 1u64..8), 1..60)) {
            let mut set = Intervals::default();
            let mut bits = [false; 32];
            for (start, len) in changes {
                let range = start..start + len;
                let slice = &mut bits[start as usize..(start + len) as usize];
                prop_assert_eq!(set.meets(&range), slice.contains(&true));
                prop_assert_eq!(set.covers(&range), !slice.contains(&false));
                if !set.meets(&range) {
                    set.insert(range);
                    slice.fill(true);
                } else if set.covers(&range) {
                    set.remove(range);
                    slice.fill(false);
                }
                prop_assert_eq!(set.total(), bits.iter().filter(|&&bit| bit).count() as u64);
                for at in 0..32 {
                    let end = at + bits[at as usize..].iter().take_while(|&&bit| bit).count() as u64;
                    prop_assert_eq!(set.end_from(at), end);
                }
            }
        }
    }
}
