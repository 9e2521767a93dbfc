//! How much of the sequence a fill takes.

use super::{CALL_WORDS, RandomError};
use std::ops::Range;

/// Threads of a block in the torch-cuda layout.
const BLOCK_THREADS: u64 = 256;
/// PyTorch launches a kernel on no more than so many bytes, counted to the beginning of the last element, and 1.
const MAX_INDEX: u64 = i32::MAX as u64;

/// In which order elements take words. The kernels define both to the bit (`anyaccel_kernels::random`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Element `i` depends on seed, offset and `i` alone; the sequence is used up word by word.
    #[default]
    Portable,
    /// The order of PyTorch's CUDA kernels on such a device: threads have sequences of their own, all at the same offset.
    TorchCuda {
        /// Number of multiprocessors.
        multiprocessors: u32,
        /// The most threads that one runs at a time.
        threads_per_multiprocessor: u32,
    },
}

impl Layout {
    /// Blocks of a launch on `count` elements, at least 1: one for each 256, but no more than run at a time.
    fn blocks(self, count: u64) -> Result<Option<u32>, RandomError> {
        let Layout::TorchCuda { multiprocessors, threads_per_multiprocessor: threads } = self else { return Ok(None) };
        let most = u64::from(multiprocessors) * (u64::from(threads) / BLOCK_THREADS);
        if most == 0 {
            return Err(RandomError::Layout { multiprocessors, threads });
        }
        Ok(Some(most.min(count.div_ceil(BLOCK_THREADS)).clamp(1, u32::MAX.into()) as u32))
    }
}

/// One fill: its launches and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    layout: Layout,
    count: u64,
    per_call: u64,
    element_size: u64,
    consumed: u64,
}

/// One launch of a fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its elements.
    pub elements: Range<u64>,
    /// Where it begins, in words from the beginning of the fill.
    pub offset: u64,
    /// Blocks of the torch-cuda layout, for which its first element is element 0; `None` in the portable one.
    pub blocks: Option<u32>,
}

impl Plan {
    /// The plan of a fill of `count` elements of `element_size` bytes. A call of the generator gives `per_call` of them: 4 that
    /// take one word each, or 2 that take two.
    ///
    /// In the torch-cuda layout PyTorch fills more than 2^31 bytes by halves, halves of halves and so on, each a launch that
    /// takes its own, after it took what one launch would have needed; this does the same.
    pub fn new(layout: Layout, count: u64, per_call: u64, element_size: u64) -> Result<Plan, RandomError> {
        if !matches!(per_call, 2 | 4) {
            return Err(RandomError::PerCall { given: per_call });
        }
        layout.blocks(count)?;
        let mut plan = Plan { layout, count, per_call, element_size, consumed: 0 };
        plan.consumed = plan.count_words().ok_or(RandomError::Exhausted { offset: 0, wanted: u64::MAX })?;
        Ok(plan)
    }

    /// Words from one fill to the next; a multiple of 4.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The launches, in order of elements and offsets; none if there are no elements.
    pub fn parts(&self) -> Parts {
        let offset = if self.is_whole(self.count) { 0 } else { self.words(self.count).unwrap_or(0) };
        let pending = Vec::from_iter((self.count > 0).then_some(0..self.count));
        Parts { plan: *self, pending, offset }
    }

    /// Whether so many elements are filled by one launch.
    fn is_whole(&self, count: u64) -> bool {
        let last = count.saturating_sub(1).saturating_mul(self.element_size);
        self.layout == Layout::Portable || (count <= MAX_INDEX && last < MAX_INDEX)
    }

    /// What one launch on so many elements takes.
    fn words(&self, count: u64) -> Option<u64> {
        let blocks = self.layout.blocks(count).ok()?;
        let at_once = blocks.map_or(1, |blocks| u64::from(blocks) * BLOCK_THREADS);
        count.div_ceil(at_once * self.per_call).checked_mul(CALL_WORDS)
    }

    fn count_words(&self) -> Option<u64> {
        let mut words = self.words(self.count)?;
        // At each level of halving there are pieces of at most two sizes, one apart: with their numbers.
        let mut level = vec![(self.count, 1_u64)];
        level.retain(|&(size, _)| !self.is_whole(size));
        while !level.is_empty() {
            let mut next: Vec<(u64, u64)> = Vec::new();
            for (size, number) in level {
                for half in [size / 2, size - size / 2] {
                    if self.is_whole(half) {
                        words = words.checked_add(self.words(half)?.checked_mul(number)?)?;
                    } else if let Some(known) = next.iter_mut().find(|known| known.0 == half) {
                        known.1 += number;
                    } else {
                        next.push((half, number));
                    }
                }
            }
            level = next;
        }
        Some(words)
    }
}

/// The launches of a [`Plan`].
#[derive(Clone, Debug)]
pub struct Parts {
    plan: Plan,
    /// What is left, the next at the end.
    pending: Vec<Range<u64>>,
    offset: u64,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let mut elements = self.pending.pop()?;
        let len = |elements: &Range<u64>| elements.end - elements.start;
        while !self.plan.is_whole(len(&elements)) {
            let middle = elements.start + len(&elements) / 2;
            self.pending.push(middle..elements.end);
            elements.end = middle;
        }
        // `Plan::new` has done these sums, so they fit.
        let offset = self.offset;
        self.offset += self.plan.words(len(&elements)).unwrap_or(0);
        let blocks = self.plan.layout.blocks(len(&elements)).unwrap_or(None);
        Some(Part { elements, offset, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(multiprocessors: u32, threads_per_multiprocessor: u32) -> Layout {
        Layout::TorchCuda { multiprocessors, threads_per_multiprocessor }
    }

    fn consumed(layout: Layout, count: u64, per_call: u64) -> u64 {
        Plan::new(layout, count, per_call, 16 / per_call).unwrap().consumed()
    }

    #[test]
    fn the_portable_layout_takes_whole_calls() {
        for (count, four, two) in
            [(0, 0, 0), (1, 4, 4), (2, 4, 4), (3, 4, 8), (4, 4, 8), (5, 8, 12), (1000, 1000, 2000)]
        {
            assert_eq!(consumed(Layout::Portable, count, 4), four);
            assert_eq!(consumed(Layout::Portable, count, 2), two);
        }
        let plan = Plan::new(Layout::Portable, 1 << 40, 4, 8).unwrap();
        let all = Part { elements: 0..1 << 40, offset: 0, blocks: None };
        assert_eq!(plan.parts().collect::<Vec<_>>(), [all]);
    }

    /// An A100 has 108 multiprocessors of 2048 threads: 864 blocks, 221184 threads.
    #[test]
    fn the_torch_layout_takes_four_words_for_each_call_of_a_thread() {
        let a100 = torch(108, 2048);
        for (count, words) in [(0, 0), (1, 4), (1024, 4), (884_736, 4), (884_737, 8), (8 * 884_736, 32)] {
            assert_eq!(consumed(a100, count, 4), words, "{count}");
        }
        assert_eq!(consumed(a100, 884_736, 2), 8);
        let blocks = |layout, count| Plan::new(layout, count, 4, 4).unwrap().parts().next().unwrap().blocks;
        assert_eq!(blocks(a100, 10), Some(1));
        assert_eq!(blocks(a100, 257), Some(2));
        assert_eq!(blocks(a100, 1 << 22), Some(864));
        assert_eq!(blocks(torch(3, 1700), 1 << 22), Some(18));
    }

    #[test]
    fn large_fills_are_halved_as_pytorch_halves_them() {
        let layout = torch(108, 2048);
        // The largest fill by one launch: the last element begins below 2^31 - 1.
        let whole = Plan::new(layout, 1 << 29, 4, 4).unwrap();
        assert_eq!(whole.parts().count(), 1);
        let count = (1 << 30) + 3;
        let plan = Plan::new(layout, count, 4, 4).unwrap();
        let parts: Vec<_> = plan.parts().collect();
        let words = |count: u64| count.div_ceil(884_736) * 4;
        // 2^30 + 3 is halved to 2^29 + 1 and 2^29 + 2, which are both still too large.
        let sizes: Vec<_> = parts.iter().map(|part| part.elements.end - part.elements.start).collect();
        let quarter = 1 << 28;
        assert_eq!(sizes, [quarter, quarter + 1, quarter + 1, quarter + 1]);
        let mut offset = words(count);
        let mut next = 0;
        for part in &parts {
            assert_eq!((part.offset, part.elements.start), (offset, next));
            offset += words(part.elements.end - part.elements.start);
            next = part.elements.end;
        }
        assert_eq!((plan.consumed(), plan.count()), (offset, next));
    }

    #[test]
    fn what_is_consumed_is_where_the_parts_end() {
        for layout in [Layout::Portable, torch(2, 512), torch(132, 2048)] {
            for count in [0, 1, 255, 4097, (1 << 31) - 1, (1 << 31) + 77, (1 << 36) - 12345] {
                for (per_call, size) in [(4, 1), (4, 2), (4, 4), (2, 8)] {
                    let plan = Plan::new(layout, count, per_call, size).unwrap();
                    let (mut next, mut end) = (0, 0);
                    for part in plan.parts() {
                        assert!(part.elements.start == next && !part.elements.is_empty() && part.offset >= end);
                        next = part.elements.end;
                        end = part.offset + plan.words(part.elements.end - part.elements.start).unwrap();
                    }
                    assert_eq!((next, end), (count, plan.consumed()), "{layout:?} {count} {per_call} {size}");
                    assert_eq!(plan.consumed() % CALL_WORDS, 0);
                }
            }
        }
    }

    #[test]
    fn plans_that_make_no_sense_are_refused() {
        for (multiprocessors, threads) in [(0, 2048), (108, 255), (0, 0)] {
            let error = Plan::new(torch(multiprocessors, threads), 5, 4, 4).unwrap_err();
            assert_eq!(error, RandomError::Layout { multiprocessors, threads });
        }
        for given in [0, 1, 3, 8] {
            assert_eq!(Plan::new(Layout::Portable, 5, given, 4), Err(RandomError::PerCall { given }));
        }
        let error = Plan::new(Layout::Portable, u64::MAX, 2, 8).unwrap_err();
        assert_eq!(error, RandomError::Exhausted { offset: 0, wanted: u64::MAX });
        assert!(Plan::new(torch(1, 256), u64::MAX, 4, 4).is_ok());
    }
}
