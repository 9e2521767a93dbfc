//! Memory history: what is recorded, and that it never contradicts the blocks.

mod device;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyaccel_engine::alloc::replay::{Conf, Replay};
use anyaccel_engine::alloc::{Allocation, Departures, DeviceCache, DeviceHistory, PoolId, Scope, Stats};
use anyaccel_engine::history::{
    Action, ContextLevel, HistoryOptions, Record, StackFrame, StackId, StackSource, enter_scope,
};
use device::{Call, MIB, TestDevice};

/// What the events say that a device holds.
#[derive(Default)]
struct Rebuilt {
    /// Address -> length.
    segments: BTreeMap<u64, u64>,
    /// Address -> (requested, still in its user's hands).
    blocks: BTreeMap<u64, (u64, bool)>,
}

impl Rebuilt {
    fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, String> {
        let mut held = Rebuilt::default();
        records.into_iter().try_for_each(|record| held.apply(record))?;
        Ok(held)
    }

    fn apply(&mut self, record: &Record) -> Result<(), String> {
        let Record { addr, size, .. } = *record;
        let ok = match record.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let before = self.segments.range(..addr + size).next_back();
                let apart = before.is_none_or(|(&start, &len)| start + len <= addr);
                apart && self.segments.insert(addr, size).is_none()
            }
            Action::SegmentFree => self.segments.remove(&addr) == Some(size),
            Action::SegmentUnmap => self.unmap(addr, size),
            Action::Alloc => self.blocks.insert(addr, (size, true)).is_none(),
            Action::FreeRequested => self.blocks.insert(addr, (size, false)) == Some((size, true)),
            Action::FreeCompleted => self.blocks.remove(&addr) == Some((size, false)),
            Action::Oom | Action::Snapshot | Action::Annotate => true,
        };
        if ok { Ok(()) } else { Err(format!("{record:x?} does not follow from what came before")) }
    }

    /// Takes a stretch out of what is mapped.
    fn unmap(&mut self, addr: u64, size: u64) -> bool {
        let mut left = size;
        while let Some((&start, &len)) = self.segments.range(..addr + size).next_back() {
            let (from, to) = (start.max(addr), (start + len).min(addr + size));
            if from >= to {
                break;
            }
            self.segments.remove(&start);
            left -= to - from;
            for (start, end) in [(start, from), (to, start + len)] {
                if start < end {
                    self.segments.insert(start, end - start);
                }
            }
        }
        left == 0
    }

    /// Compares with the segments of the same moment.
    fn check(&self, history: &DeviceHistory) -> Result<(), String> {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        for (&start, &len) in &self.segments {
            match segments.last_mut() {
                Some((_, end)) if *end == start => *end += len,
                _ => segments.push((start, start + len)),
            }
        }
        let mut shown: Vec<(u64, u64)> = Vec::new();
        let mut blocks = BTreeMap::new();
        for segment in &history.segments {
            let mut at = segment.addr;
            for block in &segment.blocks {
                if block.active {
                    blocks.insert(at, (block.requested, block.allocated));
                }
                at += block.size;
            }
            match shown.last_mut() {
                Some((_, end)) if *end == segment.addr => *end = at,
                _ => shown.push((segment.addr, at)),
            }
        }
        if segments != shown {
            return Err(format!("segments: the events say {segments:x?}, the snapshot {shown:x?}"));
        }
        if self.blocks != blocks {
            return Err(format!("blocks: the events say {:x?}, the snapshot {blocks:x?}", self.blocks));
        }
        Ok(())
    }
}

fn agrees(history: &DeviceHistory) -> Result<(), String> {
    Rebuilt::of(history.records.iter())?.check(history)
}

/// Sums over the blocks against the counters.
fn sums(history: &DeviceHistory, stats: &Stats) {
    let all = |which: &dyn Fn(bool, bool) -> bool| -> u64 {
        history.segments.iter().map(|s| s.bytes(|b| which(b.allocated, b.active))).sum()
    };
    assert_eq!(all(&|allocated, _| allocated), stats.allocated_bytes.all.current);
    assert_eq!(all(&|_, active| active), stats.active_bytes.all.current);
    assert_eq!(all(&|_, _| true), stats.reserved_bytes.all.current);
    let requested: u64 = history.segments.iter().flat_map(|s| &s.blocks).map(|b| b.requested).sum();
    assert_eq!(requested, stats.requested_bytes.all.current);
}

#[test]
fn the_events_of_every_golden_history_rebuild_its_blocks() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/allocator");
    let (mut histories, mut events) = (0, 0);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "trace") {
            continue;
        }
        let conf = Conf::parse(&std::fs::read_to_string(path.with_extension("conf")).unwrap()).unwrap();
        let (mut plain, mut recorded) = (Replay::new(&conf), Replay::new(&conf));
        recorded.caches().iter().for_each(|cache| {
            cache.record_history(Some(&HistoryOptions::new(usize::MAX)), false);
        });
        for (number, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let (without, with) = (plain.line(line).unwrap(), recorded.line(line).unwrap());
            assert_eq!(without, with, "recording changes what {} does", path.display());
            if number % 500 == 0 || line == "snapshot" {
                for cache in recorded.caches() {
                    agrees(&cache.history()).unwrap_or_else(|e| panic!("{}, line {number}: {e}", path.display()));
                }
            }
        }
        for cache in recorded.caches() {
            let history = cache.history();
            agrees(&history).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            sums(&history, &cache.stats());
            events += history.records.len();
            assert_eq!(history.records.dropped(), 0);
            assert!(history.records.iter().is_sorted_by_key(|record| record.time_us));
        }
        histories += 1;
    }
    assert_eq!(histories, 33);
    assert!(events > 25_000, "{events}");
}

/// Threads, streams and trims at once: every snapshot is of one moment.
#[test]
fn snapshots_taken_while_others_work_are_whole() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5"] {
        let device = TestDevice::new(300 * MIB);
        let cache = device.cache(settings);
        cache.set_budget(Some(256 * MIB));
        cache.record_history(Some(&HistoryOptions::new(usize::MAX)), false);
        let busy = AtomicU32::new(3);
        std::thread::scope(|s| {
            for thread in 0..3u64 {
                let (cache, busy) = (&cache, &busy);
                s.spawn(move || {
                    work(cache, thread);
                    busy.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let mut taken = 0;
            while busy.load(Ordering::SeqCst) > 0 || taken == 0 {
                agrees(&cache.history()).unwrap_or_else(|e| panic!("{settings}, snapshot {taken}: {e}"));
                taken += 1;
                std::thread::yield_now();
            }
        });
        let history = cache.history();
        agrees(&history).unwrap();
        sums(&history, &cache.stats());
        cache.audit().unwrap();
    }
}

fn work(cache: &DeviceCache, thread: u64) {
    let mut seed = thread + 1;
    let mut rand = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut live: Vec<Allocation> = Vec::new();
    for _ in 0..1500 {
        match rand() % 10 {
            0..=4 => {
                let size = 1 << (rand() % 26);
                if let Ok(Some(block)) = cache.alloc(size + rand() % size, rand() % 3) {
                    live.push(block);
                }
            }
            5 if !live.is_empty() => {
                let at = rand() as usize % live.len();
                cache.record(live[at].handle, rand() % 3).unwrap();
            }
            6 if rand() % 8 == 0 => cache.empty_cache().unwrap(),
            _ if !live.is_empty() => {
                let at = rand() as usize % live.len();
                cache.free(live.swap_remove(at).handle).unwrap();
            }
            _ => {}
        }
    }
}

fn actions(history: &DeviceHistory) -> Vec<(Action, u64)> {
    history.records.iter().map(|record| (record.action, record.size)).collect()
}

#[test]
fn events_are_in_the_order_in_which_pytorch_has_them() {
    let device = TestDevice::new(64 * MIB);
    let cache = device.cache("");
    cache.record_history(Some(&HistoryOptions::new(100)), false);
    let block = cache.alloc(30 * MIB, 7).unwrap().unwrap();
    let used = cache.alloc(700, 7).unwrap().unwrap();
    cache.free(block.handle).unwrap();
    // Does not fit beside what is cached: a retry frees that first.
    let other = cache.alloc(50 * MIB, 7).unwrap().unwrap();
    assert!(cache.alloc(40 * MIB, 7).is_err());
    device.hold(true);
    cache.record(used.handle, 1).unwrap();
    cache.free(used.handle).unwrap();
    let pending = cache.history();
    device.hold(false);
    cache.free(other.handle).unwrap();
    cache.empty_cache().unwrap();
    let history = cache.history();
    use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, Snapshot};
    let expected = [
        (SegmentAlloc, 30 * MIB),
        (Alloc, 30 * MIB),
        (SegmentAlloc, 2 * MIB),
        (Alloc, 700),
        (FreeRequested, 30 * MIB),
        (FreeCompleted, 30 * MIB),
        (SegmentFree, 30 * MIB),
        (SegmentAlloc, 50 * MIB),
        (Alloc, 50 * MIB),
        (Oom, 40 * MIB),
        (FreeRequested, 700),
        (Snapshot, 50 * MIB + 1024),
        (FreeRequested, 50 * MIB),
        (FreeCompleted, 50 * MIB),
        (FreeCompleted, 700),
        (SegmentFree, 50 * MIB),
        (SegmentFree, 2 * MIB),
    ];
    assert_eq!(actions(&history), expected);
    let state: Vec<_> = pending.segments.iter().flat_map(|s| &s.blocks).map(|b| (b.allocated, b.active)).collect();
    assert!(state.contains(&(false, true)), "a pending block is active: {state:?}");
    let oom = history.records.iter().find(|r| r.action == Oom).unwrap();
    assert_eq!(oom.addr, 64 * MIB - 52 * MIB, "what the device had free");
    assert!(history.records.iter().all(|r| r.stream == if r.action == Snapshot { 0 } else { 7 }));
}

#[test]
fn growable_segments_tell_of_what_is_mapped() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("expandable_segments:True");
    cache.record_history(Some(&HistoryOptions::new(100)), false);
    let a = cache.alloc(30 * MIB, 0).unwrap().unwrap();
    let b = cache.alloc(30 * MIB, 0).unwrap().unwrap();
    cache.free(a.handle).unwrap();
    cache.empty_cache().unwrap();
    use Action::{Alloc, FreeCompleted, FreeRequested, SegmentMap, SegmentUnmap};
    let history = cache.history();
    let expected = [
        (SegmentMap, 40 * MIB),
        (Alloc, 30 * MIB),
        (SegmentMap, 20 * MIB),
        (Alloc, 30 * MIB),
        (FreeRequested, 30 * MIB),
        (FreeCompleted, 30 * MIB),
        (SegmentUnmap, 20 * MIB),
    ];
    assert_eq!(actions(&history), expected);
    agrees(&history).unwrap();
    assert!(history.segments.iter().all(|s| s.growable));
    cache.free(b.handle).unwrap();
}

#[test]
fn pools_and_scopes_are_told() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    cache.record_history(Some(&HistoryOptions::new(100)), false);
    cache.begin_pool(PoolId(1, 0), Scope::All).unwrap();
    let inside = {
        let _step = enter_scope("step 1");
        let _forward = enter_scope("forward");
        cache.alloc(1000, 0).unwrap().unwrap()
    };
    cache.end_pool(PoolId(1, 0)).unwrap();
    let outside = cache.alloc(1000, 0).unwrap().unwrap();
    cache.annotate(outside.handle, "weights").unwrap();
    cache.free(inside.handle).unwrap();
    assert!(cache.annotate(inside.handle, "late").is_err());
    let records = cache.history().records;
    let told: Vec<_> = records.iter().map(|r| (r.action, records.pool(r), r.label.as_deref())).collect();
    use Action::{Alloc, Annotate, FreeCompleted, FreeRequested, SegmentAlloc};
    let pool = Some(PoolId(1, 0));
    let expected = [
        (SegmentAlloc, pool, Some("step 1/forward")),
        (Alloc, pool, Some("step 1/forward")),
        (SegmentAlloc, None, None),
        (Alloc, None, None),
        (Annotate, None, Some("weights")),
        (FreeRequested, pool, None),
        (FreeCompleted, pool, None),
    ];
    assert_eq!(told, expected);
}

/// Numbers its stacks in the order of the calls, and can panic.
#[derive(Default)]
struct Numbers {
    next: AtomicU32,
    panics: AtomicBool,
}

impl StackSource for Numbers {
    fn stack(&self, call: Option<&'static str>) -> StackId {
        assert!(!self.panics.load(Ordering::Relaxed), "as asked");
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        StackId(if call.is_some() { 1000 + number } else { number })
    }

    fn frames(&self, _stack: StackId) -> Vec<StackFrame> {
        Vec::new()
    }
}

#[test]
fn stacks_are_those_of_the_calls() {
    for level in [ContextLevel::Never, ContextLevel::State, ContextLevel::Alloc, ContextLevel::All] {
        let device = TestDevice::new(1 << 30);
        let cache = device.cache("");
        let before = cache.alloc(1000, 0).unwrap().unwrap();
        let source = Arc::new(Numbers::default());
        let options = HistoryOptions { level, source: Some(source.clone()), ..HistoryOptions::new(100) };
        cache.record_history(Some(&options), false);
        let one = cache.alloc(30 * MIB, 0).unwrap().unwrap();
        let other = cache.alloc(30 * MIB, 0).unwrap().unwrap();
        cache.free(one.handle).unwrap();
        cache.empty_cache().unwrap();
        let history = cache.history();
        let stacks: Vec<u32> = history.records.iter().map(|r| r.stack.0).collect();
        let none = StackId::ABSENT.0;
        // Segment, block, segment, block, twice the free, and the trim.
        let expected = match level {
            ContextLevel::Never | ContextLevel::State => [none; 7],
            ContextLevel::Alloc => [1, 1, 2, 2, 1, 1, 1003],
            ContextLevel::All => [1, 1, 2, 2, 3, 3, 1004],
        };
        assert_eq!(stacks, expected, "{level:?}");
        let segment = |block: Allocation| history.segments.iter().find(|s| s.token == block.segment).unwrap();
        let kept = if level == ContextLevel::Never { none } else { 2 };
        assert_eq!((segment(other).stack.0, segment(other).blocks[0].stack.0), (kept, kept));
        assert_eq!(segment(before).blocks[0].stack, StackId::ABSENT, "it was there before");
        // A source that panics tells nothing, and takes nobody with it.
        source.panics.store(true, Ordering::Relaxed);
        let last = cache.alloc(1000, 0).unwrap().unwrap();
        cache.free(last.handle).unwrap();
        let told = cache.history().records.iter().last().unwrap().stack;
        assert!(matches!(told, StackId::EMPTY | StackId::ABSENT), "{told:?}");
        cache.free(before.handle).unwrap();
        cache.free(other.handle).unwrap();
    }
}

#[test]
fn a_recording_goes_on_is_changed_and_ends() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let pair = || cache.free(cache.alloc(1000, 0).unwrap().unwrap().handle).unwrap();
    pair();
    assert!(cache.history().records.is_empty() && !cache.history_counts().recording);
    cache.record_history(Some(&HistoryOptions::new(10)), false);
    (0..10).for_each(|_| pair());
    let counts = cache.history_counts();
    assert_eq!((counts.recording, counts.entries, counts.dropped), (true, 10, 20));
    cache.record_history(Some(&HistoryOptions::new(4)), false);
    assert_eq!(cache.history().records.iter().count(), 4);
    assert_eq!(cache.history().records.dropped(), 26 + 1, "and the snapshot before had its place");
    // Without a place for events, who holds each block is known all the same.
    let source = Arc::new(Numbers::default());
    let options = HistoryOptions { source: Some(source), ..HistoryOptions::new(0) };
    cache.record_history(Some(&options), false);
    let block = cache.alloc(1000, 0).unwrap().unwrap();
    let history = cache.history();
    assert_eq!((history.records.len(), history.records.dropped()), (0, 0));
    assert_eq!(history.segments[0].blocks[0].stack, StackId(1));
    let options = HistoryOptions { skip: vec![Action::FreeRequested, Action::Snapshot], ..HistoryOptions::new(10) };
    cache.record_history(Some(&options), true);
    cache.free(block.handle).unwrap();
    drop(cache.history());
    assert_eq!(actions(&cache.history()), [(Action::FreeCompleted, 1000)]);
    cache.record_history(None, false);
    pair();
    assert_eq!((cache.history().records.len(), cache.history_counts().recording), (0, false));
}

/// A device that refuses to take a segment back: the history says that it went and came back.
#[test]
fn a_refused_free_is_taken_back() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache_with("", Departures::ALL);
    cache.record_history(Some(&HistoryOptions::new(100)), false);
    cache.free(cache.alloc(30 * MIB, 0).unwrap().unwrap().handle).unwrap();
    device.fail_call(1);
    assert!(cache.empty_cache().is_err());
    device.fail_call(0);
    let history = cache.history();
    agrees(&history).unwrap();
    assert_eq!(history.segments.len(), 1);
    assert_eq!(device.calls(Call::Free), 1);
}
