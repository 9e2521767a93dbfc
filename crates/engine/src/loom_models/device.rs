//! Two threads in the device cache: one owner for each block, and limits that hold.

use super::{BLOCK, Device, MIB, beside, join, model, sound, take, try_take};
use crate::alloc::FreeError;

/// A handle given back twice: one wins, and the other is told.
#[test]
fn loom_of_two_frees_one_wins() {
    model(4, || {
        let device = Device::new(1);
        let cache = device.cache();
        let block = take(&cache);
        let uses = cache.use_of(1);
        let other = beside(&cache, move |cache| cache.free_used(block.handle, uses));
        let both = [cache.free(block.handle), join(other)];
        assert_eq!(both.iter().filter(|freed| freed.is_ok()).count(), 1, "{both:?}");
        assert!(both.contains(&Err(FreeError::Stale(block.handle.to_bits()))), "{both:?}");
        device.finish();
        take(&cache);
        assert_eq!(device.waits(), 0);
        sound(&cache, 1);
    });
}

/// The same by address, where the address may have a new owner by then.
#[test]
fn loom_a_late_free_does_not_hit_the_next_owner() {
    model(4, || {
        let device = Device::new(1);
        let cache = device.cache();
        let block = take(&cache);
        let other = beside(&cache, move |cache| {
            let freed = cache.free(block.handle);
            (freed, try_take(cache))
        });
        let freed = cache.free(block.handle);
        let (others, got) = join(other);
        assert!(freed.is_ok() != others.is_ok());
        assert_eq!(got.map(|block| block.size), Some(BLOCK));
        sound(&cache, 1);
    });
}

/// One free block and two who want one: they get different ones.
#[test]
fn loom_a_free_block_goes_to_one() {
    model(4, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = take(&cache);
        cache.free(block.handle).expect("live");
        let other = beside(&cache, |cache| take(cache).addr);
        let addr = take(&cache).addr;
        let others = join(other);
        assert!(addr != others && (addr == block.addr || others == block.addr));
        sound(&cache, 2);
    });
}

/// All room is cached for another stream, and somebody is giving it back: who asks meanwhile gets it.
fn beside_a_trim(settings: &'static str, limit: impl Fn(&crate::alloc::DeviceCache) + Send + Sync + 'static) {
    model(3, move || {
        let device = Device::new(1);
        let cache = device.cache_with(settings);
        limit(&cache);
        let block = cache.alloc(BLOCK, 1).expect("there is room").expect("not of no bytes");
        cache.free(block.handle).expect("live");
        let other = beside(&cache, |cache| cache.empty_cache());
        take(&cache);
        join(other).expect("the device refuses nothing");
        sound(&cache, 1);
    });
}

#[test]
fn loom_a_request_beside_a_trim_finds_the_room() {
    beside_a_trim("", |_| ());
}

#[test]
fn loom_a_request_beside_a_trim_finds_the_room_in_the_budget() {
    beside_a_trim("", |cache| cache.set_budget(Some(BLOCK)));
}

#[test]
fn loom_a_growing_request_beside_a_trim_finds_the_room_in_the_budget() {
    beside_a_trim("expandable_segments:True", |cache| cache.set_budget(Some(BLOCK)));
}

/// Two threads ask the device at once under a limit for one block: each counts what the other is about to get.
fn one_of_two(settings: &'static str, limit: impl Fn(&crate::alloc::DeviceCache) + Send + Sync + 'static) {
    model(4, move || {
        let device = Device::new(2);
        let cache = device.cache_with(settings);
        limit(&cache);
        let other = beside(&cache, |cache| try_take(cache).is_some());
        let got = u64::from(try_take(&cache).is_some()) + u64::from(join(other));
        assert_eq!(got, 1);
        assert!(device.used() <= BLOCK);
        sound(&cache, 1);
    });
}

#[test]
fn loom_two_misses_keep_the_budget() {
    one_of_two("", |cache| cache.set_budget(Some(BLOCK + MIB)));
}

#[test]
fn loom_two_misses_keep_the_fraction() {
    one_of_two("", |cache| cache.set_fraction(1.5 / 64.0).expect("valid"));
}

/// Two threads map pieces of one range at once.
#[test]
fn loom_two_growing_threads_keep_the_budget() {
    one_of_two("expandable_segments:True", |cache| cache.set_budget(Some(BLOCK + MIB)));
}

/// Without a limit both get what they asked for, side by side in one range or in two.
#[test]
fn loom_two_growing_threads_share_the_range() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache_with("expandable_segments:True");
        let other = beside(&cache, |cache| take(cache).addr);
        let addr = take(&cache).addr;
        assert!(join(other).abs_diff(addr) >= BLOCK);
        sound(&cache, 2);
    });
}

/// A trim gives back what is free while another thread frees and takes.
#[test]
fn loom_a_trim_takes_nothing_from_anybody() {
    model(3, || {
        let device = Device::new(2);
        let cache = device.cache();
        let block = take(&cache);
        let other = beside(&cache, |cache| cache.empty_cache());
        cache.free(block.handle).expect("live");
        let got = take(&cache);
        join(other).expect("the device refuses nothing");
        assert!(device.book.lock().live.contains(&(got.addr, BLOCK)));
        sound(&cache, 1);
        cache.free(got.handle).expect("live");
        cache.empty_cache().expect("the device refuses nothing");
        assert_eq!(device.segments(), 0);
        sound(&cache, 0);
    });
}

/// Two trims: each segment goes back once.
#[test]
fn loom_two_trims_give_each_segment_back_once() {
    model(4, || {
        let device = Device::new(2);
        let cache = device.cache();
        let blocks = [take(&cache), take(&cache)];
        cache.record(blocks[0].handle, 1).expect("live");
        device.enqueue(blocks[0]);
        blocks.iter().for_each(|block| cache.free(block.handle).expect("live"));
        let other = beside(&cache, |cache| cache.empty_cache());
        cache.empty_cache().expect("the device refuses nothing");
        join(other).expect("the device refuses nothing");
        assert_eq!(device.segments(), 0);
        sound(&cache, 0);
    });
}
