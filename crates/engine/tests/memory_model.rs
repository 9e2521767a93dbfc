//! Random histories against a shadow model: after every operation the heap must be sound, the counters must be those that
//! the plain rules give, and no byte may have two owners.

mod device;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyaccel_engine::alloc::{AllocError, Allocation, Departures, DeviceCache, PoolId, PoolStat, Scope, Stats, Uses};
use device::{MIB, TestDevice};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        size: u64,
        stream: u64,
        by_address: bool,
    },
    Free(usize),
    FreeLater(usize, u64),
    FreeUsed(usize, u64),
    Record(usize, u64),
    Hold(bool),
    Empty,
    ResetPeak,
    ResetAccumulated,
    Budget(Option<u64>),
    Fraction(f64),
    CaptureBegin(u64),
    CaptureEnd(u64),
    PoolBegin(u64, Option<u64>),
    PoolEnd(u64),
    PoolRelease(u64),
    /// The stream in one of four places goes, if nothing was allocated for it that is still in use, and another one comes.
    Go(u64),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0u64..2,
        4 => 1u64..4096,
        4 => 1u64..2 * MIB,
        3 => 1u64..40 * MIB,
        1 => 1u64..400 * MIB,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (size(), 0u64..4, any::<bool>()).prop_map(|(size, stream, by_address)| Op::Alloc { size, stream, by_address }),
        8 => any::<usize>().prop_map(Op::Free),
        1 => (any::<usize>(), 0u64..4).prop_map(|(i, s)| Op::FreeLater(i, s)),
        1 => (any::<usize>(), 0u64..4).prop_map(|(i, s)| Op::FreeUsed(i, s)),
        3 => (any::<usize>(), 0u64..4).prop_map(|(i, s)| Op::Record(i, s)),
        2 => any::<bool>().prop_map(Op::Hold),
        3 => (0u64..4).prop_map(Op::Go),
        1 => Just(Op::Empty),
        1 => Just(Op::ResetPeak),
        1 => Just(Op::ResetAccumulated),
        1 => prop_oneof![Just(None), (0u64..300 * MIB).prop_map(Some)].prop_map(Op::Budget),
        1 => prop_oneof![Just(1.0), 0.0f64..1.0].prop_map(Op::Fraction),
        1 => (0u64..4).prop_map(Op::CaptureBegin),
        2 => (0u64..4).prop_map(Op::CaptureEnd),
        1 => (0u64..3, prop_oneof![Just(None), (0u64..4).prop_map(Some)]).prop_map(|(p, s)| Op::PoolBegin(p, s)),
        2 => (0u64..3).prop_map(Op::PoolEnd),
        1 => (0u64..3).prop_map(Op::PoolRelease),
    ]
}

#[derive(Clone, Debug)]
struct Live {
    block: Allocation,
    requested: u64,
    stream: u64,
    by_address: bool,
    /// Streams recorded outside any capture, and inside one.
    uses: Vec<(u64, bool)>,
}

/// Memory that was given back while streams used it: until those marks have ended nobody may get it.
#[derive(Debug)]
struct Pending {
    from: u64,
    to: u64,
    marks: Vec<(u64, u64)>,
}

struct Model {
    device: Arc<TestDevice>,
    cache: DeviceCache,
    live: Vec<Live>,
    /// In the side queue: still allocated as far as the counters go.
    side: Vec<(Live, Vec<u64>)>,
    /// Given back during a capture with their uses from before it.
    parked: Vec<(u64, u64, Vec<u64>)>,
    pending: Vec<Pending>,
    captures: Vec<u64>,
    /// The streams in the four places that operations name, and the next one.
    streams: [u64; 4],
    next_stream: u64,
    cap: Option<u64>,
    limit: Option<u64>,
    base: Stats,
}

fn overlaps(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Model {
    /// Everything given back with these uses.
    fn given_back(&mut self, live: &Live, more: &[u64]) {
        let (from, to) = (live.block.addr, live.block.addr + live.block.size);
        let in_capture = !self.captures.is_empty();
        let mut uses: Vec<u64> = live
            .uses
            .iter()
            .filter(|(_, captured)| !(in_capture && *captured))
            .map(|u| u.0)
            .chain(more.iter().copied())
            .collect();
        uses.retain(|&s| s != live.stream);
        uses.sort_unstable();
        uses.dedup();
        if in_capture && (!uses.is_empty() || live.uses.iter().any(|u| u.0 != live.stream)) {
            self.parked.push((from, to, uses));
        } else if !uses.is_empty() {
            let marks = uses.iter().map(|&s| (s, self.device.progress(s).0)).collect();
            self.pending.push(Pending { from, to, marks });
        }
    }

    /// A side queue or parked blocks are settled by the next allocation or trim.
    fn settle(&mut self) {
        for (live, uses) in std::mem::take(&mut self.side) {
            self.given_back(&live, &uses);
        }
        if self.captures.is_empty() {
            for (from, to, uses) in std::mem::take(&mut self.parked) {
                let marks = uses.iter().map(|&s| (s, self.device.progress(s).0)).collect();
                self.pending.push(Pending { from, to, marks });
            }
        }
    }

    fn forget_ended(&mut self) {
        let device = &self.device;
        self.pending.retain(|p| p.marks.iter().any(|&(stream, mark)| device.progress(stream).1 < mark));
    }

    fn check_new(&mut self, block: &Allocation) -> Result<(), TestCaseError> {
        let range = (block.addr, block.addr + block.size);
        for live in self.live.iter().chain(self.side.iter().map(|s| &s.0)) {
            let other = (live.block.addr, live.block.addr + live.block.size);
            prop_assert!(!overlaps(range, other), "{block:?} overlaps live {other:x?}");
        }
        self.forget_ended();
        for p in &self.pending {
            prop_assert!(!overlaps(range, (p.from, p.to)), "{block:?} overlaps pending {p:x?}");
        }
        for (from, to, _) in &self.parked {
            prop_assert!(!overlaps(range, (*from, *to)), "{block:?} overlaps parked {from:x}");
        }
        let state = self.device.state();
        let inside = state.segments.range(..=block.addr).next_back().is_some_and(|(a, len)| range.1 <= a + len);
        let mapped = state.ranges.range(..=block.addr).next_back().is_some_and(|(a, (len, units))| {
            range.1 <= a + len
                && units.range(..=block.addr - a).next_back().is_some_and(|(at, unit)| {
                    let mut end = at + unit;
                    while let Some(unit) = units.get(&end) {
                        end += unit;
                    }
                    range.1 <= a + end
                })
        });
        prop_assert!(inside || mapped, "{block:?} lies in no segment");
        Ok(())
    }

    /// A stream ends its work and goes, and with it all its uses.
    fn go(&mut self, place: u64) {
        let gone = self.streams[place as usize];
        let home = |live: &Live| live.stream == gone;
        if self.captures.contains(&gone) || self.live.iter().chain(self.side.iter().map(|s| &s.0)).any(home) {
            return;
        }
        if let Some(entry) = self.device.state().streams.get_mut(&gone) {
            entry.1 = entry.0;
        }
        self.cache.forget(gone);
        self.cache.forget(gone);
        self.live.iter_mut().for_each(|live| live.uses.retain(|used| used.0 != gone));
        for (live, uses) in &mut self.side {
            live.uses.retain(|used| used.0 != gone);
            uses.retain(|&used| used != gone);
        }
        self.parked.iter_mut().for_each(|(.., uses)| uses.retain(|&used| used != gone));
        self.streams[place as usize] = self.next_stream;
        self.next_stream += 1;
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let streams = self.streams;
        let stream = |place: u64| streams[place as usize];
        match *op {
            Op::Go(place) => self.go(place),
            Op::Alloc { size, stream: place, by_address } => {
                let stream = stream(place);
                let before = self.device.state().used;
                if size > 0 {
                    self.settle();
                }
                let result = if by_address {
                    self.cache.alloc_at(size, stream).map(|addr| self.cache.find(addr))
                } else {
                    self.cache.alloc(size, stream)
                };
                match result {
                    Ok(None) => prop_assert_eq!(size, 0),
                    Ok(Some(block)) => {
                        prop_assert!(block.size >= size && size > 0);
                        self.check_new(&block)?;
                        self.live.push(Live { block, requested: size, stream, by_address, uses: Vec::new() });
                    }
                    Err(AllocError::OutOfMemory(report)) => {
                        prop_assert_eq!(report.requested, size);
                        prop_assert_eq!(report.reserved, self.cache.reserved());
                        prop_assert!(!report.to_string().is_empty());
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
                let after = self.device.state().used;
                if let Some(cap) = self.cap {
                    prop_assert!(after <= before || after <= cap, "{after} of {cap}");
                }
            }
            Op::Free(at) if !self.live.is_empty() => {
                let live = self.live.swap_remove(at % self.live.len());
                if live.by_address {
                    self.cache.free_at(live.block.addr).unwrap();
                } else {
                    self.cache.free(live.block.handle).unwrap();
                }
                self.given_back(&live, &[]);
                prop_assert!(self.cache.free(live.block.handle).is_err());
            }
            Op::FreeUsed(at, place) if !self.live.is_empty() => {
                let stream = stream(place);
                let live = self.live.swap_remove(at % self.live.len());
                let uses = self.cache.use_of(stream);
                self.cache.free_used(live.block.handle, uses).unwrap();
                self.given_back(&live, &[stream]);
            }
            Op::FreeLater(at, place) if !self.live.is_empty() => {
                let stream = stream(place);
                let live = self.live.swap_remove(at % self.live.len());
                let uses = self.cache.use_of(stream) | Uses::default();
                self.cache.free_later(live.block.handle, uses);
                self.side.push((live, vec![stream]));
            }
            Op::Record(at, place) if !self.live.is_empty() => {
                let stream = stream(place);
                let at = at % self.live.len();
                let in_capture = !self.captures.is_empty();
                let live = &mut self.live[at];
                self.cache.record(live.block.handle, stream).unwrap();
                // A later use outside a capture does not undo that one was recorded inside: both end with the capture,
                // which joined the stream.
                live.uses.push((stream, in_capture));
                if in_capture {
                    live.uses.iter_mut().filter(|u| u.0 == stream).for_each(|u| u.1 = true);
                } else if live.uses.contains(&(stream, true)) {
                    live.uses.retain(|u| *u != (stream, false));
                }
            }
            Op::Hold(held) => self.device.hold(held),
            Op::Empty => {
                if self.captures.is_empty() {
                    self.settle();
                } else {
                    for (live, uses) in std::mem::take(&mut self.side) {
                        self.given_back(&live, &uses);
                    }
                }
                self.cache.empty_cache().unwrap();
                if self.captures.is_empty() {
                    let stats = self.cache.stats();
                    prop_assert_eq!(stats.active.all.current as usize, self.live.len());
                }
            }
            Op::ResetPeak => {
                self.cache.reset_peak_stats();
                let stats = self.cache.stats();
                prop_assert_eq!(stats.active_bytes.all.current, stats.active_bytes.all.peak);
            }
            Op::ResetAccumulated => {
                self.cache.reset_accumulated_stats();
                self.base = self.cache.stats();
                prop_assert_eq!(self.base.num_ooms + self.base.num_device_alloc, 0);
            }
            Op::Budget(cap) => {
                self.cache.set_budget(cap);
                self.cap = cap;
            }
            Op::Fraction(fraction) => {
                self.cache.set_fraction(fraction).unwrap();
                self.limit = (fraction < 1.0).then_some(0);
            }
            Op::CaptureBegin(place) => {
                let stream = stream(place);
                self.cache.capture_begin(stream);
                if !self.captures.contains(&stream) {
                    self.captures.push(stream);
                }
            }
            Op::CaptureEnd(place) => {
                let stream = stream(place);
                self.cache.capture_end(stream);
                self.captures.retain(|&s| s != stream);
            }
            Op::PoolBegin(pool, place) => {
                let scope = place.map_or(Scope::All, |place| Scope::Stream(stream(place)));
                let _ = self.cache.begin_pool(PoolId(0, pool + 1), scope);
            }
            Op::PoolEnd(pool) => {
                let _ = self.cache.end_pool(PoolId(0, pool + 1));
            }
            Op::PoolRelease(pool) => {
                let _ = self.cache.release_pool(PoolId(0, pool + 1));
            }
            _ => {}
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        self.cache.audit().map_err(TestCaseError::fail)?;
        let stats = self.cache.stats();
        let owned = || self.live.iter().chain(self.side.iter().map(|s| &s.0));
        prop_assert_eq!(stats.allocation.all.current as usize, owned().count());
        prop_assert_eq!(stats.allocated_bytes.all.current, owned().map(|l| l.block.size).sum::<u64>());
        prop_assert!(stats.requested_bytes.all.current >= owned().map(|l| l.requested).sum::<u64>());
        prop_assert_eq!(stats.reserved_bytes.all.current, self.device.state().used);
        let pairs: [(&PoolStat, &PoolStat); 9] = [
            (&stats.allocation, &self.base.allocation),
            (&stats.segment, &self.base.segment),
            (&stats.active, &self.base.active),
            (&stats.inactive_split, &self.base.inactive_split),
            (&stats.allocated_bytes, &self.base.allocated_bytes),
            (&stats.reserved_bytes, &self.base.reserved_bytes),
            (&stats.active_bytes, &self.base.active_bytes),
            (&stats.inactive_split_bytes, &self.base.inactive_split_bytes),
            (&stats.requested_bytes, &self.base.requested_bytes),
        ];
        for (now, base) in pairs {
            for (now, base) in now.parts().into_iter().zip(base.parts()) {
                prop_assert_eq!(now.allocated as i64 - now.freed as i64, now.current as i64 - base.current as i64);
                prop_assert!(now.current <= now.peak);
            }
        }
        let violations = self.device.state().violations.clone();
        prop_assert_eq!(violations, Vec::<String>::new());
        Ok(())
    }
}

fn run(settings: &str, departures: Departures, crowd: u64, ops: &[Op]) -> Result<(), TestCaseError> {
    let device = TestDevice::new(512 * MIB);
    let cache = device.cache_with(settings, departures);
    // Streams of others, so that some or all of the four share one bit.
    for other in 0..crowd {
        let _bit = cache.use_of(1 << 40 | other);
    }
    let mut model = Model {
        device: device.clone(),
        cache,
        live: Vec::new(),
        side: Vec::new(),
        parked: Vec::new(),
        pending: Vec::new(),
        captures: Vec::new(),
        streams: [0, 1, 2, 3],
        next_stream: 4,
        cap: None,
        limit: None,
        base: Stats::default(),
    };
    for op in ops {
        model.step(op)?;
    }
    let expected: BTreeMap<u64, u64> = model.live.iter().map(|l| (l.block.addr, l.requested)).collect();
    let (leaks, outcome) = model.cache.close();
    outcome.unwrap();
    let leaks: BTreeMap<u64, u64> = leaks.into_iter().map(|l| (l.addr, l.requested)).collect();
    prop_assert_eq!(leaks, expected);
    device.assert_clean();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_are_sound(
        settings in prop_oneof![
            Just(""),
            Just("expandable_segments:True"),
            Just("max_split_size_mb:20"),
            Just("max_split_size_mb:32,max_non_split_rounding_mb:64"),
            Just("max_split_size_mb:20,expandable_segments:True"),
            Just("garbage_collection_threshold:0.3"),
            Just("garbage_collection_threshold:0.3,expandable_segments:True"),
            Just("large_segment_size_mb:32,roundup_power2_divisions:[1:4,>:8]"),
        ],
        exact in any::<bool>(),
        crowd in prop_oneof![3 => Just(0u64), 1 => 60u64..64],
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        run(settings, if exact { Departures::NONE } else { Departures::ALL }, crowd, &ops)?;
    }
}
