//! Launches of built-ins and what the host makes of them, for the tests of the device languages.

mod anything;
mod conversions;
mod fills;

use anyaccel_kernels::device::{Device, Plan, plan};
use anyaccel_kernels::{Builtin, fill_pattern, histogram};

pub(crate) use anything::anything;
pub(crate) use conversions::convert;
pub(crate) use fills::random;

/// Bytes before and behind a destination that must stay as they are.
const GUARD: usize = 40;
/// What they are.
const UNTOUCHED: u8 = 0xc3;

/// A launch with everything that it reads and has to write.
pub(crate) struct Case {
    pub(crate) builtin: Builtin,
    /// What it is, for messages.
    pub(crate) name: String,
    pub(crate) params: Vec<u8>,
    /// The memory of the first place before the launch, from the place's offset on.
    pub(crate) before: Vec<u8>,
    /// What it has to be afterwards.
    pub(crate) after: Vec<u8>,
    /// Where in its memory the first place begins.
    pub(crate) dst_at: usize,
    /// The memory of the second place.
    pub(crate) src: Vec<u8>,
    /// Where in its memory the second place begins.
    pub(crate) src_at: usize,
    pub(crate) needs_fp64: bool,
    /// Whether bytes that differ are as good, by how many bytes they stand in the destination.
    pub(crate) agree: fn(&Case, got: &[u8]) -> bool,
}

impl Case {
    fn new(builtin: Builtin, name: String, params: Vec<u8>, dst_at: usize, after: Vec<u8>) -> Case {
        let before = vec![0x5a; after.len()];
        let agree = |case: &Case, got: &[u8]| got == case.after;
        Case { builtin, name, params, before, after, dst_at, src: vec![0], src_at: 0, needs_fp64: false, agree }
    }

    /// Launches and compares: every byte of the destination, and what is around it.
    pub(crate) fn check(&self, device: Device, launch: impl FnOnce(&Plan, &mut [u8], &[u8])) {
        let plan = plan(self.builtin, &self.params, device).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let (head, tail) = (self.dst_at, self.dst_at + self.after.len());
        let mut dst = vec![UNTOUCHED; tail + GUARD];
        dst[head..tail].copy_from_slice(&self.before);
        launch(&plan, &mut dst, &self.src);
        assert!(dst[..head].iter().all(|&byte| byte == UNTOUCHED), "{}: written before its place", self.name);
        assert!(dst[tail..].iter().all(|&byte| byte == UNTOUCHED), "{}: written behind its place", self.name);
        let got = &dst[head..tail];
        if !(self.agree)(self, got) {
            let at = got.iter().zip(&self.after).position(|(a, b)| a != b).unwrap_or(0);
            let end = (at + 16).min(got.len());
            panic!(
                "{} ({plan:?}): from byte {at} on of {} {:02x?}, not {:02x?}",
                self.name,
                got.len(),
                &got[at..end],
                &self.after[at..end]
            );
        }
    }
}

/// The shape of the `i`-th launch: most as on a real device, some with few threads or groups.
pub(crate) fn shape(i: usize, max_threads: u32, fp64: bool) -> Device {
    let (max_threads, groups) = match i % 5 {
        0 => (max_threads, 1),
        1 => (max_threads.min(1), 3),
        2 => (max_threads.min(7), 64),
        _ => (max_threads, 16),
    };
    Device { max_threads, groups, fp64 }
}

/// Small deterministic random numbers (SplitMix64).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn coin(&mut self) -> bool {
        self.next() >> 63 == 0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

pub(crate) fn noop() -> Vec<Case> {
    vec![Case::new(Builtin::Noop, "noop".into(), Vec::new(), 0, Vec::new())]
}

/// A fill of `len` bytes with a pattern of `size` bytes.
fn filled(len: usize, dst_at: usize, size: usize, seed: u64) -> Case {
    let pattern = Noise(seed).bytes(size);
    let mut after = vec![0; len];
    fill_pattern::reference::fill(&mut after, &pattern);
    let pattern = fill_pattern::Pattern::new(&pattern).expect("a length that is allowed");
    let params = fill_pattern::Params::new(pattern, len as u64).to_bytes().to_vec();
    let name = format!("{len} bytes of {pattern:?} at {dst_at}");
    Case::new(Builtin::FillPattern, name, params, dst_at, after)
}

pub(crate) fn fill_pattern() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in (0..70).chain([255, 256, 257, 4099, 100_003]) {
        for dst_at in [0, 1, 7, 8, 11, 16, 31] {
            for size in [1, 2, 4, 8, 16] {
                cases.push(filled(len, dst_at, size, len as u64));
            }
        }
    }
    cases
}

/// A histogram of `len` bytes, with runs if the seed is even.
fn counted(len: usize, dst_at: usize, src_at: usize, seed: u64) -> Case {
    let mut noise = Noise(seed);
    let mut src = noise.bytes(src_at + len);
    if seed.is_multiple_of(2) {
        // Runs are where counters meet.
        src[src_at + len / 4..src_at + len / 2].fill(7);
    }
    // Counts that carry from their lower into their upper half, and over the end.
    let start: [u64; 256] = std::array::from_fn(|value| match value % 4 {
        0 => 0,
        1 => u64::from(u32::MAX) - noise.next() % 5,
        2 => u64::MAX - noise.next() % 5,
        _ => noise.next(),
    });
    let mut counts = start;
    histogram::reference::count(&src[src_at..], &mut counts);
    let bytes = |counts: [u64; 256]| counts.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let params = histogram::Params::new(len as u64).to_bytes().to_vec();
    let case = Case::new(Builtin::Histogram, format!("{len} bytes at {src_at}"), params, dst_at, bytes(counts));
    Case { before: bytes(start), src, src_at, ..case }
}

pub(crate) fn histogram() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in (0..40).chain([127, 128, 1000, 16_384, 70_001, 1_000_003]) {
        for src_at in [0, 1, 6] {
            cases.push(counted(len, 8 * (len % 3), src_at, (len + src_at) as u64));
        }
    }
    cases
}
