//! A shadow model: the same history through plain lists, compared after every step.

use std::sync::Arc;

use anyaccel_engine::alloc::Stat;
use anyaccel_engine::pinned::{HostAllocation, HostCache, HostPolicy, HostStats, HostUseError};
use proptest::prelude::*;

use crate::fake::{Fake, KIB, MIB};

const STREAMS: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Free { at: usize, quiet: bool, streams: u8 },
    Record { at: usize, stream: u64, inside: u64 },
    RecordStream { at: usize, stream: u64 },
    Work(u64),
    Run(u64, u64),
    Trim,
    Poll,
    Capture(bool),
    Stale(usize),
    Reset(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        4 => 1..20 * KIB,
        3 => prop::sample::select(vec![KIB, 4 * KIB, 64 * KIB, 256 * KIB]),
        // Above the threshold, close enough that some serve others.
        3 => (0..40u64).prop_map(|n| 300 * KIB + n * 2000),
        1 => (0..3u64).prop_map(|n| MIB + n * 5000),
    ];
    let stream = || 0..STREAMS;
    let step = prop_oneof![
        8 => size.prop_map(Step::Alloc),
        6 => (any::<usize>(), prop::bool::weighted(0.25), 0..16u8)
            .prop_map(|(at, quiet, streams)| Step::Free { at, quiet, streams: if streams % 2 == 0 { 0 } else { streams >> 1 } }),
        3 => (any::<usize>(), stream(), any::<u64>()).prop_map(|(at, stream, inside)| Step::Record { at, stream, inside }),
        2 => (any::<usize>(), stream()).prop_map(|(at, stream)| Step::RecordStream { at, stream }),
        4 => stream().prop_map(Step::Work),
        4 => (stream(), 1..4u64).prop_map(|(stream, n)| Step::Run(stream, n)),
        1 => Just(Step::Trim),
        2 => Just(Step::Poll),
        1 => any::<bool>().prop_map(Step::Capture),
        1 => any::<usize>().prop_map(Step::Stale),
        1 => any::<bool>().prop_map(Step::Reset),
    ];
    prop::collection::vec(step, 1..120)
}

/// A block given back: what it still waits for.
#[derive(Debug)]
struct Given {
    block: HostAllocation,
    uses: Vec<(u64, Option<u64>)>,
}

struct Shadow {
    fake: Arc<Fake>,
    cache: Arc<HostCache>,
    live: Vec<Given>,
    given: Vec<Given>,
    stale: Vec<HostAllocation>,
    capturing: bool,
    peaks: [u64; 5],
    base: HostStats,
}

fn note(uses: &mut Vec<(u64, Option<u64>)>, stream: u64, mark: Option<u64>) {
    match uses.iter_mut().find(|(known, _)| *known == stream) {
        Some((_, known)) => *known = known.and_then(|a| mark.map(|b| a.max(b))),
        None => uses.push((stream, mark)),
    }
}

fn five(stats: &HostStats) -> [Stat; 5] {
    [stats.allocations, stats.allocated_bytes, stats.active_requests, stats.active_bytes, stats.requested_bytes]
}

impl Shadow {
    fn new(policy: HostPolicy) -> Self {
        let fake = Fake::new(u64::MAX / 2);
        Shadow {
            cache: fake.cache(policy),
            fake,
            live: Vec::new(),
            given: Vec::new(),
            stale: Vec::new(),
            capturing: false,
            peaks: [0; 5],
            base: HostStats::default(),
        }
    }

    fn ended(&self, given: &Given) -> bool {
        let inner = self.fake.inner();
        let ended = |stream: &u64| inner.streams.get(stream).map_or(0, |s| s.ended);
        given.uses.iter().all(|(stream, mark)| mark.is_some_and(|mark| mark <= ended(stream)))
    }

    /// What any call that may call ports does first: uses without a mark get one.
    fn mark_parked(&mut self) {
        if self.capturing {
            return;
        }
        for given in &mut self.given {
            for (stream, mark) in &mut given.uses {
                let now = self.fake.inner().streams.get(stream).map_or(0, |s| s.enqueued);
                mark.get_or_insert(now);
            }
        }
    }

    /// What is no longer held must have ended.
    fn forget_released(&mut self) {
        let given = std::mem::take(&mut self.given);
        for given in given {
            if self.fake.inner().live.contains_key(&given.block.addr) {
                self.given.push(given);
            } else {
                assert!(self.ended(&given), "{given:?} was given back to the port while in use");
            }
        }
    }

    fn alloc(&mut self, size: u64) {
        self.mark_parked();
        let obtained = self.cache.stats().num_host_alloc;
        let block = self.cache.alloc(size).unwrap().unwrap();
        let fresh = self.cache.stats().num_host_alloc > obtained;
        let want = self.cache.policy().place(size);
        let largest = if want.exact { want.size + want.size / 16 } else { want.size };
        assert!((want.size..=largest).contains(&block.size), "{size}: {block:?}");
        for other in &self.live {
            let other = &other.block;
            assert!(block.addr + block.size <= other.addr || other.addr + other.size <= block.addr);
        }
        if let Some(at) = self.given.iter().position(|g| g.block.addr == block.addr) {
            let given = self.given.swap_remove(at);
            assert!(self.ended(&given), "{given:?} was handed out while in use");
        } else {
            assert!(fresh, "{block:?} came from nowhere");
        }
        if fresh && !self.capturing {
            // Nothing that had ended may have been overlooked, whatever was given back before it.
            let missed = self.given.iter().find(|g| {
                let held = self.fake.inner().live.contains_key(&g.block.addr);
                let class = !want.exact && g.block.size == want.size && g.block.size.is_power_of_two();
                held && class && g.block.size <= self.cache.policy().round_threshold && self.ended(g)
            });
            assert!(missed.is_none(), "{size}: {missed:?} was free");
        }
        self.live.push(Given { block, uses: Vec::new() });
    }

    fn free(&mut self, at: usize, quiet: bool, streams: u8) {
        let mut given = self.live.swap_remove(at);
        let streams: Vec<u64> = (0..STREAMS).filter(|s| streams >> s & 1 != 0).collect();
        for &stream in &streams {
            note(&mut given.uses, stream, None);
        }
        let handle = given.block.handle;
        self.stale.push(given.block);
        self.given.push(given);
        if quiet {
            let calls = self.fake.calls();
            self.cache.free_quietly(handle, &streams).unwrap();
            assert_eq!(self.fake.calls(), calls);
        } else {
            self.mark_parked();
            self.cache.free_used(handle, &streams).unwrap();
        }
    }

    fn step(&mut self, step: Step) {
        let n = self.live.len();
        match step {
            Step::Alloc(size) => self.alloc(size),
            Step::Free { at, quiet, streams } if n > 0 => self.free(at % n, quiet, streams),
            Step::Record { at, stream, inside } if n > 0 => {
                let mark = self.fake.enqueue(stream, None);
                let Given { block, uses } = &mut self.live[at % n];
                let found = self.cache.find(block.addr + inside % block.size);
                assert_eq!(found, Some(block.handle));
                self.cache.record(block.handle, stream, mark).unwrap();
                note(uses, stream, Some(mark));
            }
            Step::RecordStream { at, stream } if n > 0 => {
                let Given { block, uses } = &mut self.live[at % n];
                self.cache.record_stream(block.handle, stream).unwrap();
                note(uses, stream, None);
            }
            Step::Work(stream) => drop(self.fake.enqueue(stream, None)),
            Step::Run(stream, n) => {
                let ended = self.fake.inner().streams.get(&stream).map_or(0, |s| s.ended);
                self.fake.run(stream, ended + n);
            }
            Step::Trim => {
                self.mark_parked();
                let before = self.fake.held();
                assert_eq!(self.cache.trim().unwrap(), before - self.fake.held());
                if !self.capturing {
                    self.forget_released();
                    let kept = self.given.iter().find(|g| self.ended(g));
                    assert!(kept.is_none(), "{kept:?} was kept by a trim");
                }
            }
            Step::Poll => {
                self.mark_parked();
                self.cache.poll().unwrap();
                if !self.capturing {
                    self.compare_active();
                }
            }
            Step::Capture(begin) => {
                if begin {
                    self.cache.capture_begin(77);
                } else {
                    self.cache.capture_end(77);
                }
                self.capturing = begin;
            }
            Step::Stale(at) if !self.stale.is_empty() => {
                let handle = self.stale[at % self.stale.len()].handle;
                assert_eq!(self.cache.free(handle), Err(HostUseError::Stale(handle.to_bits())));
            }
            Step::Reset(peaks) => {
                if peaks {
                    self.cache.reset_peaks();
                    self.peaks = [0; 5];
                } else {
                    self.cache.reset_accumulated();
                    self.base = self.cache.stats();
                }
            }
            Step::Free { .. } | Step::Record { .. } | Step::RecordStream { .. } | Step::Stale(_) => {}
        }
        self.forget_released();
        self.invariants();
    }

    /// After a poll, the cache knows exactly what is still in use.
    fn compare_active(&mut self) {
        self.forget_released();
        let active = self.live.iter().chain(self.given.iter().filter(|g| !self.ended(g)));
        let sums = active.fold([0u64; 3], |s, g| [s[0] + 1, s[1] + g.block.size, s[2] + g.block.requested]);
        let stats = self.cache.stats();
        assert_eq!([stats.active_requests, stats.active_bytes, stats.requested_bytes].map(|s| s.current), sums);
        let limit = self.cache.policy().max_cached;
        let hoarded = self.given.iter().find(|g| g.block.size > limit && self.ended(g));
        assert!(hoarded.is_none(), "{hoarded:?} is above the limit");
    }

    fn invariants(&mut self) {
        self.cache.audit().unwrap();
        let stats = self.cache.stats();
        let held: Vec<u64> = self.live.iter().chain(&self.given).map(|g| g.block.size).collect();
        assert_eq!(stats.allocations.current, held.len() as u64);
        assert_eq!(stats.allocated_bytes.current, held.iter().sum::<u64>());
        assert_eq!(stats.allocated_bytes.current, self.fake.held());
        for ((stat, peak), base) in five(&stats).into_iter().zip(&mut self.peaks).zip(five(&self.base)) {
            *peak = (*peak).max(stat.current);
            assert_eq!(stat.peak, *peak);
            assert_eq!(stat.current + stat.freed, base.current + stat.allocated);
        }
    }

    fn finish(&mut self) {
        if self.capturing {
            self.step(Step::Capture(false));
        }
        while !self.live.is_empty() {
            self.step(Step::Free { at: 0, quiet: false, streams: 3 });
        }
        self.fake.run_all();
        self.step(Step::Poll);
        self.step(Step::Trim);
        assert_eq!(self.fake.held(), 0);
        assert_eq!(self.cache.stats().allocated_bytes.current, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_agrees_with_the_model(steps in steps(), limited in any::<bool>()) {
        let max_cached = if limited { MIB } else { u64::MAX };
        let mut shadow = Shadow::new(HostPolicy { round_threshold: 256 * KIB, max_cached, ..HostPolicy::default() });
        for step in steps {
            shadow.step(step);
        }
        shadow.finish();
    }
}
