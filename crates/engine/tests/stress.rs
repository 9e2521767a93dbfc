//! Many threads in the device cache and in the pinned cache at once.
//!
//! Each thread keeps what it took in a map that all share, so that memory with two owners is found at once. Under a thread
//! sanitizer an order that only happens to hold is reported as a race (in a debug build, see `anyaccel_kit::Mutex`):
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//! TSAN_OPTIONS="suppressions=$PWD/backends/host/tests/tsan.supp" \
//! cargo test -p anyaccel-engine --target x86_64-unknown-linux-gnu --test stress
//! ```

mod device;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyaccel_engine::alloc::{AllocError, Allocation, DeviceCache, Marks, PoolId, PortError, Scope};
use anyaccel_engine::pinned::{
    HostAllocError, HostAllocation, HostCache, HostPolicy, HostPorts, HostSegments, RawHost,
};
use anyaccel_kit::Mutex;
use device::{MIB, TestDevice};

const THREADS: u64 = 6;
const STEPS: u64 = 1500;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Who has which bytes.
#[derive(Default)]
struct Owners(Mutex<BTreeMap<u64, u64>>);

impl Owners {
    #[track_caller]
    fn take(&self, addr: u64, size: u64) {
        let mut owners = self.0.lock();
        let before = owners.range(..addr + size).next_back();
        assert!(before.is_none_or(|(start, len)| start + len <= addr), "{addr:#x} has an owner");
        owners.insert(addr, size);
    }

    fn give(&self, addr: u64) {
        assert!(self.0.lock().remove(&addr).is_some());
    }
}

/// Runs the work on each thread, and comes back with all that they did in sight: a sanitizer does not see that a scope
/// waits.
fn together(work: impl Fn(u64, &mut Dice) + Sync) {
    let ended = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (work, ended) = (&work, &ended);
            scope.spawn(move || {
                work(thread, &mut Dice(thread * 7919 + 1));
                *ended.lock() += 1;
            });
        }
    });
    assert_eq!(*ended.lock(), THREADS);
}

fn device_step(cache: &DeviceCache, owners: &Owners, live: &mut Vec<Allocation>, dice: &mut Dice, thread: u64) {
    match dice.below(24) {
        0..=8 => {
            let size = (512 << dice.below(15)) + dice.below(400);
            match cache.alloc(size, dice.below(4)) {
                Ok(Some(block)) => {
                    owners.take(block.addr, block.size);
                    assert_eq!(cache.find(block.addr).map(|found| found.handle), Some(block.handle));
                    live.push(block);
                }
                Err(AllocError::OutOfMemory(report)) => assert!(report.reserved <= 96 * MIB, "{report}"),
                other => panic!("{other:?}"),
            }
        }
        9 => cache.empty_cache().unwrap(),
        10 => {
            let stats = cache.stats();
            assert!(stats.allocated_bytes.all.current <= stats.active_bytes.all.current);
            assert!(stats.active_bytes.all.current <= stats.reserved_bytes.all.current);
        }
        11 => cache.set_budget(Some((80 + dice.below(17)) * MIB)),
        12 => {
            cache.reset_peak_stats();
            assert!(cache.memory_summary(true).lines().count() > 5);
        }
        13 => {
            // A name is used once: a pool that is released takes no more in.
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let pool = PoolId(9, NEXT.fetch_add(1, Ordering::Relaxed));
            cache.begin_pool(pool, Scope::Thread(std::thread::current().id())).unwrap();
            if let Ok(Some(block)) = cache.alloc(2048, thread) {
                owners.take(block.addr, block.size);
                live.push(block);
            }
            cache.end_pool(pool).unwrap();
            cache.release_pool(pool).unwrap();
        }
        14 => drop(cache.snapshot()),
        _ if !live.is_empty() => {
            let at = dice.below(live.len() as u64) as usize;
            let block = live[at];
            if dice.below(3) == 0 {
                cache.record(block.handle, dice.below(4)).unwrap();
                return;
            }
            live.swap_remove(at);
            owners.give(block.addr);
            match dice.below(3) {
                0 => cache.free(block.handle).unwrap(),
                1 => cache.free_used(block.handle, cache.use_of(dice.below(4))).unwrap(),
                _ => cache.free_later(block.handle, cache.use_of(dice.below(4))),
            }
        }
        _ => {}
    }
}

#[test]
fn the_device_cache_has_one_owner_for_each_byte() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5"] {
        let device = TestDevice::new(96 * MIB);
        let cache = device.cache(settings);
        let owners = Owners::default();
        together(|thread, dice| {
            let mut live = Vec::new();
            for _ in 0..STEPS {
                device_step(&cache, &owners, &mut live, dice, thread);
            }
            for block in live {
                owners.give(block.addr);
                cache.free(block.handle).unwrap();
            }
        });
        cache.empty_cache().unwrap();
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0), "{settings}");
        let (leaks, outcome) = cache.close();
        assert_eq!((leaks.len(), outcome), (0, Ok(())));
        device.assert_clean();
    }
}

/// Host memory that is only numbers, and streams whose work ends when it is waited for or asked about twice.
#[derive(Default)]
struct Numbers {
    live: Mutex<BTreeMap<u64, u64>>,
    next: AtomicU64,
    enqueued: [AtomicU64; 4],
    ended: [AtomicU64; 4],
}

impl HostSegments for Numbers {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let mut live = self.live.lock();
        if live.values().sum::<u64>() + len > 32 * MIB {
            return Err(PortError::OutOfMemory);
        }
        let addr = (1 << 40) + self.next.fetch_add(len + 4096, Ordering::Relaxed);
        live.insert(addr, len);
        Ok(RawHost { token: addr, addr, len })
    }

    fn free(&self, memory: RawHost) -> Result<(), PortError> {
        assert_eq!(self.live.lock().remove(&memory.addr), Some(memory.len), "given back twice, or never pinned");
        Ok(())
    }
}

impl Marks for Numbers {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.enqueued[stream as usize].fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        let (enqueued, ended) = (&self.enqueued[stream as usize], &self.ended[stream as usize]);
        let known = ended.load(Ordering::Acquire);
        // The next time somebody asks, what is enqueued by now has ended.
        ended.fetch_max(enqueued.load(Ordering::Acquire), Ordering::AcqRel);
        Ok(known)
    }

    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
        self.ended[stream as usize].fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }
}

fn host_step(cache: &HostCache, owners: &Owners, live: &mut Vec<HostAllocation>, dice: &mut Dice, thread: u64) {
    match dice.below(20) {
        0..=7 => match cache.alloc((4096 << dice.below(10)) - dice.below(4000)) {
            Ok(Some(block)) => {
                owners.take(block.addr, block.size);
                assert_eq!(cache.find(block.addr + block.requested / 2), Some(block.handle));
                live.push(block);
            }
            Err(HostAllocError::OutOfMemory(_)) => {}
            other => panic!("{other:?}"),
        },
        8 => drop(cache.trim().unwrap()),
        9 => cache.poll().unwrap(),
        10 => {
            let stats = cache.stats();
            assert!(stats.requested_bytes.current <= stats.active_bytes.current);
            assert!(stats.active_bytes.current <= stats.allocated_bytes.current);
        }
        11 => cache.reset_peaks(),
        12 if dice.below(8) == 0 => {
            cache.capture_begin(100 + thread);
            std::thread::yield_now();
            cache.capture_end(100 + thread);
        }
        _ if !live.is_empty() => {
            let at = dice.below(live.len() as u64) as usize;
            let block = live[at];
            let stream = dice.below(4);
            if dice.below(3) == 0 {
                cache.record_stream(block.handle, stream).unwrap();
                return;
            }
            live.swap_remove(at);
            owners.give(block.addr);
            match dice.below(3) {
                0 => cache.free(block.handle),
                1 => cache.free_used(block.handle, &[stream, (stream + 1) % 4]),
                _ => cache.free_quietly(block.handle, &[stream]),
            }
            .unwrap();
        }
        _ => {}
    }
}

#[test]
fn the_pinned_cache_has_one_owner_for_each_byte() {
    let numbers = Arc::new(Numbers::default());
    let policy = HostPolicy { round_threshold: MIB, max_cached: 3 * MIB, ..HostPolicy::default() };
    let cache = HostCache::new(HostPorts { segments: numbers.clone(), marks: numbers.clone() }, policy);
    let owners = Owners::default();
    together(|thread, dice| {
        let mut live = Vec::new();
        for _ in 0..2 * STEPS {
            host_step(&cache, &owners, &mut live, dice, thread);
        }
        for block in live {
            owners.give(block.addr);
            cache.free(block.handle).unwrap();
        }
    });
    for stream in 0..4 {
        numbers.wait(stream, u64::MAX >> 1).unwrap();
    }
    cache.trim().unwrap();
    cache.audit().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.active_requests.current, stats.allocated_bytes.current), (0, 0));
    assert!(numbers.live.lock().is_empty());
}
