//! A cache hit allocates nothing on the host's heap, and a live block costs little of it. Proved with an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyaccel_engine::alloc::replay::FakeDevice;
use anyaccel_engine::alloc::{Departures, DeviceCache, Marks, PortError, Ports, Settings};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged, whose contract is the same; counting touches only a
// constant-initialised thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as i64);
        // SAFETY: as the caller promises for us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: as the caller promises for us.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Instantly([AtomicU64; 4]);

impl Marks for Instantly {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.0[stream as usize].fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.0[stream as usize].load(Ordering::Relaxed))
    }
    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

fn counted(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn hits_allocate_nothing() {
    assert!(counted(|| drop(Box::new(1))) == 2, "the counter counts");
    let device = Arc::new(FakeDevice::quiet(1 << 40));
    let ports = Ports { marks: Arc::new(Instantly::default()), ..device.ports() };
    let cache = DeviceCache::new(0, ports, Settings::default(), Departures::ALL);
    let mut names = [None; 256];
    let mut addrs = [0; 256];
    let mut pass = || {
        for size in [1u64, 512, 4096, 65_536, 1 << 20, 5 << 20, 20 << 20] {
            for name in &mut names {
                *name = cache.alloc(size, 0).unwrap();
            }
            for block in names.iter().flatten() {
                cache.free(block.handle).unwrap();
            }
            for addr in &mut addrs {
                *addr = cache.alloc_at(size, 0).unwrap();
            }
            for addr in addrs {
                cache.free_at(addr).unwrap();
            }
            for stream in 1..4 {
                let block = cache.alloc(size, 0).unwrap().unwrap();
                cache.record(block.handle, stream).unwrap();
                cache.free(block.handle).unwrap();
            }
        }
        cache.stats();
    };
    // The first passes fill the cache and the tables.
    pass();
    pass();
    let allocations = cache.stats().num_device_alloc;
    assert_eq!(counted(&mut pass), 0);
    assert_eq!(cache.stats().num_device_alloc, allocations, "all were hits");
}

#[test]
fn a_million_live_blocks_cost_at_most_96_bytes_each() {
    // Of the largest small blocks two fill a segment: the dearest case, on fewer blocks to save time.
    for (size, blocks) in [(1u64, 1_000_000u32), (1 << 20, 200_000)] {
        let device = Arc::new(FakeDevice::quiet(1 << 50));
        let before = BYTES.get();
        let cache = DeviceCache::new(0, device.ports(), Settings::default(), Departures::ALL);
        for _ in 0..blocks {
            cache.alloc_at(size, 0).unwrap();
        }
        let each = (BYTES.get() - before) as f64 / f64::from(blocks);
        assert!(each <= 96.0, "{each} bytes for each block of {size}");
        assert!(cache.footprint() as f64 >= each * f64::from(blocks) * 0.98, "the footprint is what is really taken");
    }
}
