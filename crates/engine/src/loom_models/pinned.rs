//! The pinned cache, whose only concurrency is in what it does while it lets go of its lock.

use std::sync::Arc;

use super::{BLOCK, Device, beside, join, model};
use crate::pinned::{HostAllocError, HostAllocation, HostCache, HostPolicy, HostPorts, HostUseError};

/// A block that is its own class, so that the device's room is a number of blocks.
const SIZE: u64 = BLOCK;

fn cache(device: &Arc<Device>) -> Arc<HostCache> {
    let ports = HostPorts { segments: device.clone(), marks: device.clone() };
    // Above the threshold a block is as large as the request.
    Arc::new(HostCache::new(ports, HostPolicy { round_threshold: 4096, ..HostPolicy::default() }))
}

#[track_caller]
fn take(cache: &HostCache) -> HostAllocation {
    cache.alloc(SIZE).expect("there is room").expect("not empty")
}

#[track_caller]
fn sound(cache: &HostCache, blocks: u64) {
    cache.audit().expect("sound");
    let stats = cache.stats();
    assert_eq!(stats.active_bytes.current, blocks * SIZE);
}

/// A handle given back twice: one wins, and the other is told.
#[test]
fn loom_pinned_of_two_frees_one_wins() {
    model(4, || {
        let device = Device::new(1);
        let cache = cache(&device);
        let block = take(&cache);
        let other = beside(&cache, move |cache| cache.free_used(block.handle, &[1]));
        let both = [cache.free(block.handle), join(other)];
        assert_eq!(both.iter().filter(|freed| freed.is_ok()).count(), 1, "{both:?}");
        assert!(both.iter().any(|freed| matches!(freed, Err(HostUseError::Stale(_)))), "{both:?}");
        device.finish();
        take(&cache);
        sound(&cache, 1);
    });
}

#[test]
fn loom_pinned_a_free_block_goes_to_one() {
    model(4, || {
        let device = Device::new(2);
        let cache = cache(&device);
        let block = take(&cache);
        cache.free(block.handle).expect("live");
        let other = beside(&cache, |cache| take(cache).addr);
        let addr = take(&cache).addr;
        let others = join(other);
        assert!(addr != others && (addr == block.addr || others == block.addr));
        sound(&cache, 2);
    });
}

/// Host functions leave a block, its use ends, and another thread looks for one: two who make its marks do not meet.
#[test]
fn loom_pinned_a_block_with_uses_is_found_once_they_have_ended() {
    model(3, || {
        let device = Device::new(2);
        let cache = cache(&device);
        let block = take(&cache);
        let giver = beside(&cache, move |cache| cache.free_quietly(block.handle, &[1]));
        let stream = beside(&device, |device| device.finish());
        let got = take(&cache);
        if got.addr == block.addr {
            assert!(device.ended.load(crate::sync::Ordering::Acquire) >= 1, "reused while stream 1 used it");
        }
        join(giver).expect("live");
        join(stream);
        cache.poll().expect("the device refuses nothing");
        device.finish();
        take(&cache);
        sound(&cache, 2);
    });
}

#[test]
fn loom_pinned_a_capture_hides_nothing_once_it_has_ended() {
    model(3, || {
        let device = Device::new(2);
        let cache = cache(&device);
        let block = take(&cache);
        let capture = beside(&cache, |cache| {
            cache.capture_begin(7);
            cache.capture_end(7);
        });
        let giver = beside(&cache, move |cache| cache.free_used(block.handle, &[1]));
        assert_ne!(take(&cache).addr, block.addr, "its use has not ended");
        join(capture);
        join(giver).expect("live");
        cache.poll().expect("the device refuses nothing");
        device.finish();
        take(&cache);
        sound(&cache, 2);
    });
}

/// Two trims and a free: each segment goes back once.
#[test]
fn loom_pinned_two_trims_give_each_block_back_once() {
    model(4, || {
        let device = Device::new(2);
        let cache = cache(&device);
        let (idle, block) = (take(&cache), take(&cache));
        cache.free(idle.handle).expect("live");
        let other = beside(&cache, |cache| cache.trim().expect("the device refuses nothing"));
        cache.free(block.handle).expect("live");
        let mut bytes = cache.trim().expect("the device refuses nothing");
        bytes += join(other);
        assert_eq!((bytes, device.segments()), (2 * SIZE, 0));
        sound(&cache, 0);
    });
}

/// A request that asks for memory when the cache closes: it is refused, or its block is reported.
#[test]
fn loom_pinned_closing_beside_a_request() {
    model(4, || {
        let device = Device::new(2);
        let cache = cache(&device);
        let other = beside(&cache, |cache| cache.alloc(SIZE));
        let (left, outcome) = cache.close();
        outcome.expect("the device refuses nothing");
        match join(other) {
            Ok(block) => {
                assert_eq!(left.len(), 1);
                cache.free(block.expect("not empty").handle).expect("live");
            }
            Err(HostAllocError::Closed) => assert_eq!(left.len(), 0),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(device.segments(), 0);
        assert!(matches!(cache.alloc(SIZE), Err(HostAllocError::Closed)));
        sound(&cache, 0);
    });
}

/// A block is given back when the cache closes: whoever is last gives it to the port, once its use has ended.
#[test]
fn loom_pinned_closing_beside_a_free() {
    for streams in [&[][..], &[1]] {
        model(4, move || {
            let device = Device::new(2);
            let cache = cache(&device);
            let block = take(&cache);
            let other = beside(&cache, move |cache| cache.free_used(block.handle, streams));
            let (left, outcome) = cache.close();
            outcome.expect("the device refuses nothing");
            assert!(left.len() <= 1);
            join(other).expect("closing takes nothing from its user");
            device.finish();
            cache.poll().expect("the device refuses nothing");
            assert_eq!(device.segments(), 0);
            sound(&cache, 0);
        });
    }
}
