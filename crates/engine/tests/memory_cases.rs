//! Reports from the field about the device cache, each as a scenario.

mod device;

use std::sync::{Arc, Mutex};

use anyaccel_engine::alloc::{AllocError, Allocation, Departures, FreeError, PoolId, Scope};
use device::{Call, MIB, TestDevice, free, oom, take};

/// Case 1: the block that fits is pending and its segment can't be given back.
#[test]
fn a_pending_block_that_fits_is_waited_for() {
    for departures in [Departures::ALL, Departures::NONE] {
        let device = TestDevice::new(64 * MIB);
        let cache = device.cache_with("", departures);
        let whole = take(&cache, 60 * MIB, 0);
        free(&cache, whole);
        let x = take(&cache, 40 * MIB, 0);
        let y = take(&cache, 20 * MIB, 0);
        device.hold(true);
        cache.record(x.handle, 1).unwrap();
        free(&cache, x);
        let again = cache.alloc(40 * MIB, 0);
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!(stats.num_alloc_retries, 1);
        if departures == Departures::NONE {
            oom(again);
            assert_eq!(stats.num_ooms, 1);
            continue;
        }
        let again = again.unwrap().unwrap();
        assert_eq!(again.addr, x.addr);
        assert_eq!(stats.reserved_bytes.all.current, 60 * MIB);
        assert_eq!(stats.num_ooms, 0);
        assert_eq!(cache.find(y.addr).map(|b| b.handle), Some(y.handle));
    }
}

/// Case 2: a split limit and growable segments together grow without end.
#[test]
fn split_limit_and_growable_segments_stay_bounded() {
    for (settings, departures, bounded) in [
        ("max_split_size_mb:128,expandable_segments:True", Departures::ALL, true),
        ("max_split_size_mb:128,expandable_segments:True", Departures::NONE, false),
        ("max_split_size_mb:128", Departures::ALL, true),
        ("expandable_segments:True", Departures::ALL, true),
    ] {
        let device = TestDevice::new(16 << 30);
        let cache = device.cache_with(settings, departures);
        let mut kept: Vec<Allocation> = Vec::new();
        let mut reserved = 0;
        for _ in 0..100 {
            let a = take(&cache, 91 * MIB, 0);
            let b = take(&cache, 45 * MIB + MIB / 2, 0);
            kept.push(take(&cache, 2 * MIB, 0));
            free(&cache, a);
            free(&cache, b);
            reserved = reserved.max(cache.reserved());
        }
        assert_eq!(cache.allocated(), 200 * MIB);
        assert_eq!(reserved <= 500 * MIB, bounded, "{settings}: {} MiB", reserved / MIB);
        // Nobody else ever got the memory of what was kept.
        kept.sort_by_key(|b| b.addr);
        assert!(kept.windows(2).all(|w| w[0].addr + w[0].size <= w[1].addr));
    }
}

/// Case 5: out of memory inside a capture must not free anything.
#[test]
fn out_of_memory_in_a_capture_frees_nothing() {
    for settings in ["", "max_split_size_mb:20", "garbage_collection_threshold:0.1"] {
        let device = TestDevice::new(100 * MIB);
        let cache = device.cache(settings);
        cache.set_budget(Some(100 * MIB));
        let cached = take(&cache, 60 * MIB, 0);
        free(&cache, cached);
        let pool = PoolId(1, 0);
        cache.begin_pool(pool, Scope::Stream(1)).unwrap();
        cache.capture_begin(1);
        let report = oom(cache.alloc(80 * MIB, 1));
        cache.audit().unwrap();
        assert!(report.capturing);
        assert!(report.advice.iter().any(|a| a.contains("capture")), "{:?}", report.advice);
        assert_eq!(device.calls(Call::Free), 0);
        let small = take(&cache, 1000, 1);
        cache.empty_cache().unwrap();
        assert_eq!(device.calls(Call::Free), 0);
        cache.capture_end(1);
        cache.end_pool(pool).unwrap();
        let after = take(&cache, 80 * MIB, 0);
        assert_eq!(device.calls(Call::Free), 1);
        free(&cache, small);
        free(&cache, after);
    }
}

/// Case 18: cleanup under live handles.
#[test]
fn cleanup_leaves_live_blocks_alone() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let mut held = Vec::new();
    for _ in 0..50 {
        let pages: Vec<Allocation> = (0..5).map(|_| take(&cache, 20 * MIB, 0)).collect();
        for i in [0, 2, 3] {
            free(&cache, pages[i]);
        }
        cache.empty_cache().unwrap();
        cache.audit().unwrap();
        for page in [pages[1], pages[4]] {
            assert_eq!(cache.find(page.addr).map(|b| b.handle), Some(page.handle));
        }
        let fresh: Vec<Allocation> = (0..3).map(|_| take(&cache, 20 * MIB, 0)).collect();
        for new in &fresh {
            for old in [pages[1], pages[4]] {
                assert!(new.addr + new.size <= old.addr || old.addr + old.size <= new.addr);
            }
        }
        for block in fresh.into_iter().chain([pages[1], pages[4]]) {
            free(&cache, block);
        }
        for page in pages {
            assert_eq!(cache.free(page.handle), Err(FreeError::Stale(page.handle.to_bits())));
        }
        held.push(cache.reserved());
    }
    assert_eq!(held.first(), held.last());
}

/// Case 20 a and b: memory comes back without anybody polling.
#[test]
fn nothing_piles_up() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    for round in 0..20_000 {
        let block = cache.alloc(200 << 10, 0).unwrap().unwrap();
        if round % 2 == 1 {
            cache.record(block.handle, 1).unwrap();
        }
        cache.free(block.handle).unwrap();
    }
    assert!(cache.reserved() <= 4 * MIB);
    cache.empty_cache().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0));
}

/// Case 20 c: closing with a block in its user's hands frees every segment once and says what leaked.
#[test]
fn closing_reports_leaks_and_frees_each_segment_once() {
    for settings in ["", "expandable_segments:True"] {
        let device = TestDevice::new(1 << 30);
        let cache = device.cache(settings);
        let first = take(&cache, 1000, 3);
        let leaked = take(&cache, 3000, 3);
        let large = take(&cache, 30 * MIB, 0);
        let pending = take(&cache, 5 * MIB, 0);
        device.hold(true);
        cache.record(pending.handle, 9).unwrap();
        free(&cache, pending);
        free(&cache, first);
        free(&cache, large);
        let (leaks, outcome) = cache.close();
        outcome.unwrap();
        assert_eq!(leaks.len(), 1);
        assert_eq!((leaks[0].addr, leaks[0].size, leaks[0].requested), (leaked.addr, 3072, 3000));
        assert_eq!((leaks[0].segment, leaks[0].offset, leaks[0].stream), (leaked.segment, 1024, 3));
        device.assert_clean();
        assert_eq!(cache.alloc(1, 0), Err(AllocError::Closed { device: 0 }));
        assert_eq!(cache.free(leaked.handle), Err(FreeError::Stale(leaked.handle.to_bits())));
        cache.audit().unwrap();
        drop(cache);
        device.assert_clean();
    }
}

/// Case 20 d: the setting has an effect.
#[test]
fn large_segment_size_is_what_the_device_is_asked_for() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("large_segment_size_mb:32");
    take(&cache, 2 * MIB, 0);
    assert_eq!(device.state().segments.values().copied().collect::<Vec<_>>(), [32 * MIB]);
    assert_eq!(device.calls(Call::Alloc), 1);
}

/// Case S2: the observer is told once, before the error is returned, and may panic.
#[test]
fn observers_are_told_and_contained() {
    let device = TestDevice::new(64 * MIB);
    let cache = Arc::new(device.cache(""));
    let seen = Arc::new(Mutex::new(Vec::new()));
    cache.observe_out_of_memory(|_| panic!("an observer's own fault"));
    let (log, inside) = (seen.clone(), Arc::downgrade(&cache));
    cache.observe_out_of_memory(move |report| {
        // Observers run without locks: using the cache is fine.
        let cache = inside.upgrade().unwrap();
        let reserved = cache.reserved();
        log.lock().unwrap().push((report.device, report.requested, report.total, report.free, reserved));
    });
    let small = take(&cache, 1000, 0);
    let report = oom(cache.alloc(1 << 30, 0));
    assert_eq!(*seen.lock().unwrap(), [(0, 1 << 30, 64 * MIB, Some(62 * MIB), 2 * MIB)]);
    assert_eq!((report.requested, report.allocated, report.reserved), (1 << 30, 1024, 2 * MIB));
    cache.audit().unwrap();
    free(&cache, small);
}
