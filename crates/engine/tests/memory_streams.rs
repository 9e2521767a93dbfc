//! Streams that come and go: what the cache keeps of them, and what becomes of their memory.

mod device;

use anyaccel_engine::alloc::{Allocation, Departures, DeviceCache, DeviceMemory, Marks, PortError, Ports, RawSegment};
use anyaccel_engine::alloc::{Segments, Settings};
use device::{Call, MIB, TestDevice, free, take};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Uses a block of stream 0 on another stream, and gives it back.
fn used_on(cache: &DeviceCache, stream: u64) {
    let block = take(cache, MIB, 0);
    cache.record(block.handle, stream).unwrap();
    free(cache, block);
}

#[test]
fn a_thousand_streams_that_went_cost_the_next_one_nothing() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    for stream in 1..=1000 {
        used_on(&cache, stream);
        device.hold(false);
        cache.forget(stream);
    }
    let (marks, asked) = (device.calls(Call::Mark), device.calls(Call::Completed));
    assert_eq!(marks, 1000, "one use, one mark");
    let footprint = cache.footprint();
    for stream in 1001..=1010 {
        used_on(&cache, stream);
        let _small = take(&cache, 512, 0);
        cache.forget(stream);
    }
    assert_eq!(device.calls(Call::Mark) - marks, 10);
    assert!(device.calls(Call::Completed) - asked <= 10, "no stream but those that are waited for is asked");
    assert_eq!(cache.footprint(), footprint);
}

/// Beyond the 63rd stream alive uses share a bit: it stands for those that are there, not for all that ever were.
#[test]
fn the_shared_bit_stands_for_streams_that_are_there() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    for stream in 0..1000 {
        let _bit = cache.use_of(stream);
    }
    used_on(&cache, 999);
    assert_eq!(device.calls(Call::Mark), 1000 - 63);
    (65..998).for_each(|stream| cache.forget(stream));
    let marks = device.calls(Call::Mark);
    used_on(&cache, 999);
    assert_eq!(device.calls(Call::Mark) - marks, 4, "63, 64, 998 and 999");
    (0..63).for_each(|stream| cache.forget(stream));
    let marks = device.calls(Call::Mark);
    used_on(&cache, 5000);
    assert_eq!(device.calls(Call::Mark) - marks, 1, "a stream that comes has a bit of its own again");
}

#[test]
fn what_is_pending_ends_with_its_stream() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    device.hold(true);
    let block = take(&cache, 30 * MIB, 0);
    cache.record(block.handle, 1).unwrap();
    cache.record(block.handle, 2).unwrap();
    free(&cache, block);
    cache.forget(1);
    cache.audit().unwrap();
    assert_eq!(cache.stats().active.all.current, 1, "the other stream still uses it");
    cache.forget(2);
    assert_eq!(cache.stats().active.all.current, 0);
    assert_eq!(take(&cache, 30 * MIB, 0).addr, block.addr);
}

/// A use that nobody marked yet, of a stream that goes: the block is free at once when it is given back.
#[test]
fn a_use_is_over_when_its_stream_is() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let block = take(&cache, MIB, 0);
    cache.record(block.handle, 1).unwrap();
    cache.forget(1);
    free(&cache, block);
    assert_eq!((device.calls(Call::Mark), cache.stats().active.all.current), (0, 0));
}

/// The next stream takes over what was cached for the one that went, of either kind of segment.
#[test]
fn memory_of_a_stream_that_went_serves_the_next() {
    for settings in ["", "expandable_segments:True"] {
        let device = TestDevice::new(1 << 30);
        let cache = device.cache(settings);
        let mut first: Option<Allocation> = None;
        for stream in 10..200 {
            let block = take(&cache, 30 * MIB, stream);
            let small = take(&cache, 100, stream);
            let first = first.get_or_insert(block);
            assert_eq!((block.addr, block.size), (first.addr, first.size), "{settings}: stream {stream}");
            free(&cache, block);
            free(&cache, small);
            cache.forget(stream);
        }
        assert!(cache.reserved() <= 48 * MIB, "{settings}: {} reserved", cache.reserved());
        cache.close().1.unwrap();
        device.assert_clean();
    }
}

/// A use of a stream with the slot of the block's first home, which went, is not taken for a use of its home.
#[test]
fn a_slot_taken_over_is_not_mistaken() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let kept = take(&cache, MIB, 7);
    let other = take(&cache, MIB, 8);
    cache.forget(8);
    // The stream 9 has the slot of 8 now; a block of 7 used on it waits for it.
    device.hold(true);
    cache.record(kept.handle, 9).unwrap();
    free(&cache, kept);
    assert_eq!(device.calls(Call::Mark), 1);
    assert_ne!(take(&cache, MIB, 7).addr, kept.addr);
    free(&cache, other);
    cache.audit().unwrap();
}

/// Stops in a call about a mark until it is let go.
struct Stuck {
    inner: Arc<TestDevice>,
    at: SyncSender<()>,
    go: Mutex<Receiver<()>>,
}

impl Stuck {
    fn stop(&self) {
        self.at.send(()).unwrap();
        self.go.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
    }
}

impl Segments for Stuck {
    fn alloc(&self, len: u64, stream: u64) -> Result<RawSegment, PortError> {
        self.inner.alloc(len, stream)
    }
    fn free(&self, segment: RawSegment, stream: u64) -> Result<(), PortError> {
        self.inner.free(segment, stream)
    }
    fn memory(&self) -> DeviceMemory {
        self.inner.memory()
    }
}

impl Marks for Stuck {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        let mark = self.inner.mark(stream);
        self.stop();
        mark
    }
    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        let completed = self.inner.completed(stream);
        self.stop();
        completed
    }
    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
        self.stop();
        self.inner.wait(stream, mark)
    }
}

/// A stream goes, and another one takes its slot, while a thread is between making its mark and noting it.
#[test]
fn a_mark_of_a_stream_that_went_is_not_the_next_ones() {
    let (at_send, at) = sync_channel(0);
    let (go, go_receive) = sync_channel(0);
    let inner = TestDevice::new(1 << 30);
    let stuck = Arc::new(Stuck { inner: inner.clone(), at: at_send, go: Mutex::new(go_receive) });
    let ports = Ports { segments: stuck.clone(), growable: None, marks: stuck };
    let cache = DeviceCache::new(0, ports, Settings::default(), Departures::ALL);
    let come = |at: &Receiver<()>| at.recv_timeout(Duration::from_secs(60)).unwrap();
    let take = || cache.alloc(MIB, 0).unwrap().unwrap();

    inner.hold(true);
    let block = take();
    cache.record(block.handle, 1).unwrap();
    std::thread::scope(|scope| {
        let freeing = scope.spawn(|| cache.free(block.handle).unwrap());
        come(&at);
        cache.forget(1);
        let _slot = cache.use_of(2);
        go.send(()).unwrap();
        freeing.join().unwrap();
    });
    cache.audit().unwrap();
    assert_eq!(cache.stats().active.all.current, 0);
}
