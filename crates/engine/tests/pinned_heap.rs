//! A hit takes no memory from the heap: counted by the allocator of this test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyaccel_engine::alloc::{Marks, PortError};
use anyaccel_engine::pinned::{HostCache, HostPolicy, HostPorts, HostSegments, RawHost};

struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every method passes its arguments on to the system's allocator, which meets the trait's conditions.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's conditions are those of the method called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Pins nothing; each stream has ended whatever is asked.
struct Idle(AtomicU64);

impl HostSegments for Idle {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let addr = self.0.fetch_add(len, Ordering::Relaxed);
        Ok(RawHost { token: addr, addr, len })
    }

    fn free(&self, _memory: RawHost) -> Result<(), PortError> {
        Ok(())
    }
}

impl Marks for Idle {
    fn mark(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(1)
    }

    fn completed(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(1)
    }

    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

#[test]
fn hits_take_no_memory() {
    let port = Arc::new(Idle(AtomicU64::new(1 << 32)));
    let cache = HostCache::new(HostPorts { segments: port.clone(), marks: port }, HostPolicy::default());
    let round = |live: &mut Vec<_>| {
        for size in [10, 100_000, 3 << 20, 100 << 20, 130 << 20] {
            for stream in 0..3 {
                let block = cache.alloc(size).unwrap().unwrap();
                cache.record(block.handle, stream, 1).unwrap();
                cache.record_stream(block.handle, stream + 1).unwrap();
                live.push(block.handle);
            }
        }
        for (i, handle) in live.drain(..).enumerate() {
            if i % 2 == 0 { cache.free(handle) } else { cache.free_quietly(handle, &[]) }.unwrap();
        }
        cache.poll().unwrap();
        cache.stats().flat();
    };
    let mut live = Vec::new();
    // The first rounds pin the memory and make room for queues.
    (0..3).for_each(|_| round(&mut live));
    let obtained = cache.stats().num_host_alloc;
    let before = TAKEN.with(Cell::get);
    (0..100).for_each(|_| round(&mut live));
    assert_eq!(TAKEN.with(Cell::get) - before, 0);
    assert_eq!(cache.stats().num_host_alloc, obtained);
    assert!(before > 0, "the counter counts");
}
