//! What is looked at without the lock never hides a block for good, and never shows one too early.

use super::{Device, beside, join, model, sound, take, try_take};
use crate::alloc::{Allocation, DeviceCache, Uses};
use crate::sync::Ordering;

/// A block in use on stream 1 too.
fn used(device: &Device, cache: &DeviceCache) -> Allocation {
    let block = take(cache);
    cache.record(block.handle, 1).expect("live");
    device.enqueue(block);
    block
}

/// An allocation of another size: it makes the marks that were put off until the next one.
fn tend(cache: &DeviceCache) {
    let small = cache.alloc(512, 0).expect("there is room").expect("not empty");
    cache.free(small.handle).expect("live");
}

/// All work has ended: everything that was given back is found without waiting, up to the device's room.
#[track_caller]
fn all_found(device: &Device, cache: &DeviceCache, live: u64, room: u64) {
    device.finish();
    for _ in live..room {
        take(cache);
    }
    assert_eq!(device.waits(), 0, "something was hidden");
    sound(cache, room);
    tend(cache);
    let asked = device.asked();
    tend(cache);
    assert_eq!(device.asked(), asked, "streams are asked though nothing waits");
}

/// Host functions leave blocks while a thread allocates, and so empties the queue.
#[test]
fn loom_what_host_functions_leave_is_found() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let blocks = [take(&cache), take(&cache)];
        let [one, two] = blocks.map(|block| beside(&cache, move |cache| cache.free_later(block.handle, Uses(0))));
        let got = try_take(&cache);
        join(one);
        join(two);
        all_found(&device, &cache, got.iter().count() as u64, 2);
    });
}

/// The same with a use: the thread that empties the queue makes the mark.
#[test]
fn loom_what_host_functions_leave_waits_for_its_uses() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = take(&cache);
        let uses = cache.use_of(1);
        let other = beside(&cache, move |cache| cache.free_later(block.handle, uses));
        let got = take(&cache);
        assert_ne!(got.addr, block.addr, "its use has not ended");
        join(other);
        tend(&cache);
        all_found(&device, &cache, 1, 2);
    });
}

/// A block is given back, its use ends, and a third thread looks for a block meanwhile.
#[test]
fn loom_a_pending_block_is_found_once_its_use_has_ended() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = used(&device, &cache);
        let giver = beside(&cache, move |cache| cache.free(block.handle));
        let stream = beside(&device, |device| device.finish());
        let got = take(&cache);
        if got.addr == block.addr {
            assert!(device.ended.load(Ordering::Acquire) >= 1, "reused while stream 1 used it");
        }
        join(giver).expect("live");
        join(stream);
        all_found(&device, &cache, 1, 2);
    });
}

/// One thread takes a block out of the queue and says that nothing waits, while another puts one in.
#[test]
fn loom_a_block_that_begins_to_wait_is_not_forgotten_with_one_that_ended() {
    model(3, || {
        let device = Device::new(3);
        let cache = device.cache();
        let (old, new) = (used(&device, &cache), used(&device, &cache));
        cache.free(old.handle).expect("live");
        device.finish();
        let giver = beside(&cache, move |cache| cache.free(new.handle));
        assert_eq!(take(&cache).addr, old.addr);
        join(giver).expect("live");
        all_found(&device, &cache, 1, 3);
    });
}

/// Two threads make marks for the same queue, and may come to it in another order than that of their marks.
#[test]
fn loom_marks_come_in_any_order() {
    model(4, || {
        let device = Device::new(2);
        let cache = device.cache();
        let blocks = [used(&device, &cache), used(&device, &cache)];
        let [one, two] = blocks.map(|block| beside(&cache, move |cache| cache.free(block.handle)));
        join(one).expect("live");
        join(two).expect("live");
        // The first mark ends, and so one block of the two is free.
        device.ended.store(1, Ordering::Release);
        take(&cache);
        assert_eq!(device.waits(), 0);
        all_found(&device, &cache, 1, 2);
    });
}

/// A stream goes while another thread asks how far it is, and the next stream takes its place: the answer is not about that.
#[test]
fn loom_an_answer_about_a_stream_is_not_about_the_next_one() {
    model(3, || {
        let device = Device::new(3);
        let cache = device.cache();
        let old = used(&device, &cache);
        cache.free(old.handle).expect("live");
        let other = beside(&cache, |cache| take(cache).addr);
        device.finish();
        device.gone.store(1, Ordering::Release);
        cache.forget(1);
        let block = take(&cache);
        cache.record(block.handle, 2).expect("live");
        device.enqueue(block);
        cache.free(block.handle).expect("live");
        assert_ne!(join(other), block.addr, "reused while stream 2 uses it");
        all_found(&device, &cache, 1, 3);
    });
}

/// A capture comes and goes while a block is given back and another thread looks for one.
#[test]
fn loom_a_capture_hides_nothing_once_it_has_ended() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = used(&device, &cache);
        let capture = beside(&cache, |cache| {
            cache.capture_begin(7);
            cache.capture_end(7);
        });
        let giver = beside(&cache, move |cache| cache.free(block.handle));
        let got = take(&cache);
        assert_ne!(got.addr, block.addr, "its use has not ended");
        join(capture);
        join(giver).expect("live");
        tend(&cache);
        all_found(&device, &cache, 1, 2);
    });
}

/// A thread asked a stream before a capture began: the answer ends nothing under it.
#[test]
fn loom_an_answer_from_before_a_capture_ends_nothing_in_it() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = used(&device, &cache);
        cache.free(block.handle).expect("live");
        device.finish();
        let other = beside(&cache, tend);
        cache.capture_begin(7);
        let waiting = || {
            let stats = cache.stats();
            stats.active.all.current - stats.allocation.all.current
        };
        let before = waiting();
        join(other);
        assert_eq!(waiting(), before);
        cache.capture_end(7);
        all_found(&device, &cache, 0, 2);
    });
}

/// The end of one capture is not that of another: a thread that captures asks no stream.
#[test]
fn loom_captures_of_two_threads_do_not_end_each_other() {
    model(4, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = used(&device, &cache);
        cache.free(block.handle).expect("live");
        device.finish();
        let other = beside(&cache, |cache| {
            cache.capture_begin(8);
            cache.capture_end(8);
        });
        cache.capture_begin(7);
        let got = take(&cache);
        assert_ne!(got.addr, block.addr, "nothing is polled under capture");
        cache.empty_cache().expect("nothing to do");
        assert_eq!((device.asked(), device.waits(), device.segments()), (0, 0, 2));
        cache.capture_end(7);
        join(other);
        all_found(&device, &cache, 1, 2);
    });
}
