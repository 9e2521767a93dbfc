//! A cache is closed while others are inside: every segment goes back once, and nobody is handed memory afterwards.

use std::sync::Arc;

use super::{BLOCK, Device, beside, join, model};
use crate::alloc::{AllocError, DeviceCache, Leak, PortError, Uses};

/// Everything has come back, and stays back.
#[track_caller]
fn closed(device: &Device, cache: &Arc<DeviceCache>) {
    assert_eq!((device.segments(), device.used()), (0, 0));
    assert!(matches!(cache.alloc(BLOCK, 0), Err(AllocError::Closed { device: 0 })));
    assert_eq!((device.used(), cache.reserved(), cache.allocated()), (0, 0, 0));
    cache.audit().expect("sound");
}

/// The blocks that closing found in their users' hands.
#[track_caller]
fn leaks((leaks, outcome): (Vec<Leak>, Result<(), PortError>)) -> usize {
    outcome.expect("the device refuses nothing");
    leaks.len()
}

/// A request that asks the device when the cache closes: it is refused, or its block is reported.
fn with_a_request(settings: &'static str) {
    model(4, move || {
        let device = Device::new(2);
        let cache = device.cache_with(settings);
        let other = beside(&cache, |cache| cache.alloc(BLOCK, 0));
        let left = leaks(cache.close());
        match join(other) {
            Ok(block) => assert_eq!((block.is_some(), left), (true, 1)),
            Err(AllocError::Closed { device: 0 }) => assert_eq!(left, 0),
            Err(other) => panic!("{other}"),
        }
        closed(&device, &cache);
    });
}

#[test]
fn loom_closing_beside_a_request() {
    with_a_request("");
}

#[test]
fn loom_closing_beside_a_growing_request() {
    with_a_request("expandable_segments:True");
}

/// A block is given back when the cache closes, with and without uses: it is reported if and only if that came too late.
#[test]
fn loom_closing_beside_a_free() {
    for stream in [0, 1] {
        model(4, move || {
            let device = Device::new(2);
            let cache = device.cache();
            let block = super::take(&cache);
            if stream != 0 {
                cache.record(block.handle, stream).expect("live");
                device.enqueue(block);
            }
            let other = beside(&cache, move |cache| cache.free(block.handle));
            let left = leaks(cache.close());
            assert_eq!(join(other).is_err(), left == 1);
            closed(&device, &cache);
        });
    }
}

#[test]
fn loom_closing_beside_a_host_function() {
    model(4, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = super::take(&cache);
        let other = beside(&cache, move |cache| cache.free_later(block.handle, Uses(0)));
        assert!(leaks(cache.close()) <= 1);
        join(other);
        closed(&device, &cache);
    });
}

#[test]
fn loom_closing_beside_a_trim() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let (idle, _kept) = (super::take(&cache), super::take(&cache));
        device.enqueue(idle);
        cache.free_used(idle.handle, cache.use_of(1)).expect("live");
        let other = beside(&cache, |cache| cache.empty_cache());
        assert_eq!(leaks(cache.close()), 1);
        assert_eq!((device.segments(), device.used()), (0, 0), "given back before closing returns");
        join(other).expect("the device refuses nothing");
        closed(&device, &cache);
    });
}

/// A mark that a capture put off is being made when the cache closes.
#[test]
fn loom_closing_beside_the_marks_of_parked_blocks() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = super::take(&cache);
        device.enqueue(block);
        cache.capture_begin(7);
        cache.free_used(block.handle, cache.use_of(1)).expect("live");
        cache.capture_end(7);
        let other = beside(&cache, |cache| cache.alloc(BLOCK, 0).is_ok());
        let left = leaks(cache.close());
        assert_eq!(join(other), left == 1);
        closed(&device, &cache);
    });
}

#[test]
fn loom_of_two_closings_one_reports() {
    model(4, || {
        let device = Device::new(1);
        let cache = device.cache();
        let block = super::take(&cache);
        cache.record(block.handle, 1).expect("live");
        device.enqueue(block);
        let other = beside(&cache, |cache| leaks(cache.close()));
        assert_eq!(leaks(cache.close()) + join(other), 1);
        closed(&device, &cache);
    });
}
