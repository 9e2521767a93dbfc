//! Every raw call fails once, in turn: nothing leaks, nothing is given out twice, the counters stay true.

mod device;

use std::sync::Arc;

use anyaccel_engine::alloc::{
    AllocError, Allocation, Departures, DeviceCache, DeviceMemory, Marks, PoolId, PortError, Ports, RawSegment, Scope,
    Segments, Settings,
};
use device::{Call, MIB, TestDevice};

struct Run {
    device: Arc<TestDevice>,
    cache: DeviceCache,
    live: Vec<Allocation>,
    faults: usize,
}

impl Run {
    fn check(&self) {
        self.cache.audit().unwrap();
        assert_eq!(self.cache.stats().reserved_bytes.all.current, self.device.state().used);
        let mut ranges: Vec<_> = self.live.iter().map(|b| (b.addr, b.addr + b.size)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "two owners: {ranges:x?}");
    }

    fn take(&mut self, size: u64, stream: u64) {
        match self.cache.alloc(size, stream) {
            Ok(Some(block)) => self.live.push(block),
            Err(AllocError::Port { fault, call, .. }) => {
                assert!(matches!(fault, PortError::Failed(_)), "{call}: {fault}");
                self.faults += 1;
            }
            Err(AllocError::OutOfMemory(_)) => {}
            other => panic!("{other:?}"),
        }
        self.check();
    }

    fn give(&mut self, at: usize, stream: u64) {
        if at < self.live.len() {
            let block = self.live.swap_remove(at);
            self.cache.record(block.handle, stream).unwrap();
            // Giving back succeeds whatever the device says.
            self.cache.free(block.handle).unwrap();
            self.check();
        }
    }

    fn trim(&mut self) {
        self.faults += usize::from(self.cache.empty_cache().is_err());
        self.check();
    }

    /// A history that makes every kind of call.
    fn history(&mut self) {
        for size in [1000, 5 * MIB, 30 * MIB, 64 * MIB, 700_000] {
            self.take(size, 0);
            self.take(size, 1);
        }
        self.device.hold(true);
        for (at, stream) in [(0, 1), (3, 2), (1, 2), (4, 1)] {
            self.give(at, stream);
        }
        self.take(2000, 0);
        self.device.hold(false);
        self.take(3000, 1);
        let pool = PoolId(5, 0);
        self.cache.begin_pool(pool, Scope::All).unwrap();
        self.cache.capture_begin(1);
        self.take(1000, 1);
        self.take(40 * MIB, 1);
        self.give(self.live.len() - 1, 3);
        self.cache.capture_end(1);
        self.cache.end_pool(pool).unwrap();
        self.take(1 << 40, 0);
        self.trim();
        for _ in 0..4 {
            self.take(60 * MIB, 0);
            self.give(0, 2);
        }
        self.cache.release_pool(pool).unwrap();
        while !self.live.is_empty() {
            self.give(0, 3);
        }
        self.trim();
    }
}

fn start(settings: &str) -> Run {
    let device = TestDevice::new(256 * MIB);
    let cache = device.cache(settings);
    cache.set_budget(Some(240 * MIB));
    Run { device, cache, live: Vec::new(), faults: 0 }
}

#[test]
fn each_call_fails_once() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20", "garbage_collection_threshold:0.2"] {
        let mut clean = start(settings);
        clean.history();
        assert_eq!(clean.faults, 0);
        let calls = clean.device.state().calls.len() as u64;
        assert!(calls > 30, "{settings}: {calls}");
        let mut told = 0;
        for n in 1..=calls + 10 {
            let mut run = start(settings);
            run.device.fail_call(n);
            run.history();
            told += run.faults;
            // The fault is over: what it left behind goes with the next trim.
            run.device.fail_call(0);
            run.cache.empty_cache().unwrap();
            run.check();
            let stats = run.cache.stats();
            assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0), "{settings}, call {n}");
            assert_eq!(stats.segment.all.allocated, stats.segment.all.freed);
            let (leaks, outcome) = run.cache.close();
            assert_eq!((leaks.len(), outcome), (0, Ok(())));
            run.device.assert_clean();
        }
        assert!(told as u64 > calls / 3, "{settings}: {told} of {calls} faults were reported");
    }
}

#[test]
fn closing_survives_each_fault() {
    for settings in ["", "expandable_segments:True"] {
        for n in 1..12 {
            let mut run = start(settings);
            run.take(1000, 0);
            run.take(30 * MIB, 0);
            run.take(5 * MIB, 1);
            run.device.hold(true);
            run.give(1, 2);
            let before = run.device.state().calls.len() as u64;
            run.device.fail_call(n);
            let (leaks, outcome) = run.cache.close();
            assert_eq!(leaks.len(), 2);
            let made = run.device.state().calls.len() as u64 - before;
            assert_eq!(outcome.is_err(), n <= made, "{settings}: call {n} of {made}: {outcome:?}");
            run.device.assert_clean();
        }
    }
}

/// On a lost device all marks count as ended.
#[test]
fn a_lost_device_holds_nothing_back() {
    struct Lost(Arc<TestDevice>);
    fn lost<T>() -> Result<T, PortError> {
        Err(PortError::DeviceLost("fell off the bus".into()))
    }
    impl Marks for Lost {
        fn mark(&self, _stream: u64) -> Result<u64, PortError> {
            lost()
        }
        fn completed(&self, _stream: u64) -> Result<u64, PortError> {
            lost()
        }
        fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
            lost()
        }
    }
    impl Segments for Lost {
        fn alloc(&self, len: u64, stream: u64) -> Result<RawSegment, PortError> {
            self.0.alloc(len, stream)
        }
        fn free(&self, segment: RawSegment, stream: u64) -> Result<(), PortError> {
            self.0.free(segment, stream)
        }
        fn memory(&self) -> DeviceMemory {
            self.0.memory()
        }
    }
    let device = TestDevice::new(1 << 30);
    let lost = Arc::new(Lost(device.clone()));
    let ports = Ports { segments: lost.clone(), growable: None, marks: lost };
    let cache = DeviceCache::new(0, ports, Settings::default(), Departures::ALL);
    let block = cache.alloc(1000, 0).unwrap().unwrap();
    cache.record(block.handle, 1).unwrap();
    cache.free(block.handle).unwrap();
    assert_eq!(cache.stats().active.all.current, 0);
    cache.empty_cache().unwrap();
    cache.audit().unwrap();
    device.assert_clean();
}

#[test]
fn the_history_makes_every_kind_of_call() {
    let mut seen = Vec::new();
    for settings in ["", "expandable_segments:True"] {
        let mut run = start(settings);
        run.history();
        seen.append(&mut run.device.state().calls);
    }
    for call in [
        Call::Alloc,
        Call::Free,
        Call::Reserve,
        Call::Release,
        Call::Map,
        Call::Unmap,
        Call::Mark,
        Call::Completed,
        Call::Wait,
    ] {
        assert!(seen.contains(&call), "{call:?}");
    }
}
