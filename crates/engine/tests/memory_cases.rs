//! Reports from the field and single rules of the device cache, each as a scenario.

mod device;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyaccel_engine::alloc::{
    AllocError, Allocation, Cause, Departures, DeviceCache, FreeError, Handle, MAX_REQUEST, OutOfMemory, PoolError,
    PoolId, Scope, Settings, Uses,
};
use device::{Call, MIB, TestDevice};

fn take(cache: &DeviceCache, size: u64, stream: u64) -> Allocation {
    let block = cache.alloc(size, stream).unwrap().unwrap();
    cache.audit().unwrap();
    block
}

fn free(cache: &DeviceCache, block: Allocation) {
    cache.free(block.handle).unwrap();
    cache.audit().unwrap();
}

fn oom(result: Result<Option<Allocation>, AllocError>) -> Box<OutOfMemory> {
    match result {
        Err(AllocError::OutOfMemory(report)) => report,
        other => panic!("expected out of memory, got {other:?}"),
    }
}

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

#[test]
fn bad_input_is_refused_and_counts_nothing() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let block = take(&cache, 700, 0);
    let before = cache.stats();
    assert_eq!(cache.alloc(0, 0), Ok(None));
    assert_eq!(cache.alloc_at(0, 0), Ok(0));
    for size in [MAX_REQUEST, u64::MAX, u64::MAX - 511, i64::MAX as u64] {
        let error = cache.alloc(size, 0).unwrap_err();
        assert_eq!(error, AllocError::TooLarge { device: 0, requested: size });
        assert!(error.to_string().contains(&size.to_string()));
    }
    for handle in [0, 1 << 32, u64::MAX, block.handle.to_bits() + 1, block.handle.to_bits() + (1 << 32)] {
        assert_eq!(cache.free(Handle::from_bits(handle)), Err(FreeError::Stale(handle)));
        assert_eq!(cache.record(Handle::from_bits(handle), 1), Err(FreeError::Stale(handle)));
    }
    for addr in [1, block.addr + 512, block.addr - 1, u64::MAX] {
        assert_eq!(cache.free_at(addr), Err(FreeError::Unknown(addr)));
        assert_eq!(cache.record_at(addr, 1), Err(FreeError::Unknown(addr)));
        assert_eq!(cache.find(addr), None);
    }
    assert_eq!(cache.free_at(0), Ok(()));
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert!(cache.set_fraction(fraction).is_err());
    }
    assert_eq!(cache.stats(), before);
    free(&cache, block);
    let before = cache.stats();
    assert_eq!(cache.free(block.handle), Err(FreeError::Stale(block.handle.to_bits())));
    assert_eq!(cache.free_at(block.addr), Err(FreeError::Unknown(block.addr)));
    assert_eq!(cache.stats(), before);
    cache.audit().unwrap();
}

#[test]
fn blocks_are_found_by_address_however_they_were_taken() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let by_handle = take(&cache, 1000, 0);
    let by_address = cache.alloc_at(1000, 0).unwrap();
    assert_eq!(by_address, by_handle.addr + by_handle.size);
    cache.record_at(by_address, 5).unwrap();
    cache.free_at(by_handle.addr).unwrap();
    let found = cache.find(by_address).unwrap();
    cache.free(found.handle).unwrap();
    cache.audit().unwrap();
    assert_eq!(cache.allocated(), 0);
}

#[test]
fn budgets_are_exact() {
    // A segment is requested if and only if reserved + its size <= cap.
    for (settings, size, segment) in [
        ("", 1000, 2 * MIB),
        ("", 5 * MIB, 20 * MIB),
        ("", 33 * MIB, 34 * MIB),
        ("expandable_segments:True", 1000, 2 * MIB),
    ] {
        for (cap, fits) in [(segment - 1, false), (segment, true), (segment + 1, true)] {
            let device = TestDevice::new(1 << 30);
            let cache = device.cache(settings);
            cache.set_budget(Some(cap));
            let result = cache.alloc(size, 0);
            cache.audit().unwrap();
            assert_eq!(device.calls(Call::Alloc) + device.calls(Call::Map), usize::from(fits));
            if fits {
                assert!(matches!(result, Ok(Some(_))));
                // A second segment: reserved counts.
                let report = oom(cache.alloc(64 * MIB, 0));
                assert_eq!(report.cause, Cause::Budget);
                cache.set_budget(None);
                take(&cache, 64 * MIB, 0);
            } else {
                let report = oom(result);
                assert_eq!((report.cause, report.cap), (Cause::Budget, Some(cap)));
                assert_eq!(report.segment, segment);
                assert!(report.to_string().contains("budget"), "{report}");
            }
        }
    }
    // The fraction: floor(F x total), 1.0 unlimited.
    let device = TestDevice::new(64 * MIB + 1);
    let cache = device.cache("");
    cache.set_fraction(0.5).unwrap();
    assert_eq!(oom(cache.alloc(34 * MIB, 0)).cap, Some(32 * MIB));
    take(&cache, 32 * MIB, 0);
    assert_eq!(oom(cache.alloc(1, 0)).cause, Cause::Fraction);
    cache.set_fraction(1.0).unwrap();
    take(&cache, 1, 0);
}

/// Growable segments map whole units, and the budget holds for what is really mapped.
#[test]
fn a_budget_holds_for_every_mapping() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("expandable_segments:True");
    cache.set_budget(Some(30 * MIB));
    // 22 MiB would be asked for, but two units of 20 MiB would be mapped.
    oom(cache.alloc(21 * MIB, 0));
    cache.audit().unwrap();
    assert_eq!(device.state().used, 0);
    cache.set_budget(Some(40 * MIB));
    take(&cache, 21 * MIB, 0);
    assert_eq!(device.state().used, 40 * MIB);
}

#[test]
fn the_report_says_what_was_there_and_what_to_try() {
    let device = TestDevice::new(100 * MIB);
    let cache = device.cache("");
    let whole = take(&cache, 90 * MIB, 0);
    free(&cache, whole);
    let low = take(&cache, 40 * MIB, 0);
    let pin = take(&cache, 10 * MIB, 0);
    free(&cache, low);
    let report = oom(cache.alloc(60 * MIB, 0));
    assert_eq!(report.cause, Cause::Device);
    assert_eq!((report.requested, report.segment, report.total), (60 * MIB, 60 * MIB, 100 * MIB));
    assert_eq!((report.free, report.reserved, report.allocated), (Some(10 * MIB), 90 * MIB, 10 * MIB));
    assert_eq!((report.unused, report.largest_free), (80 * MIB, 40 * MIB));
    assert_eq!(report.pinned_by.map(|p| (p.addr, p.size, p.pending)), Some((pin.addr, 10 * MIB, false)));
    let text = report.to_string();
    for part in
        ["60.00 MiB", "100.00 MiB", "80.00 MiB", "40.00 MiB", "expandable_segments:True", "max_split_size_mb:64"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // The advice follows the settings.
    cache.set_settings(Settings::parse("expandable_segments:True").unwrap());
    let text = oom(cache.alloc(60 * MIB, 0)).to_string();
    assert!(!text.contains("expandable_segments") && !text.contains("max_split"), "{text}");
}

#[test]
fn a_rejected_request_frees_nothing() {
    let device = TestDevice::new(100 * MIB);
    let cache = device.cache("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5");
    let cached = take(&cache, 30 * MIB, 0);
    free(&cache, cached);
    cache.set_fraction(1.0).unwrap();
    let before = device.state().calls.len();
    let report = oom(cache.alloc(40 * MIB, 0));
    assert_eq!((report.cause, report.cap), (Cause::Rejected, Some(50 * MIB)));
    assert_eq!(device.state().calls.len(), before);
    let stats = cache.stats();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms, stats.num_alloc_retries), (1, 0, 0));
}

#[test]
fn settings_change_whole_or_not_at_all() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("max_split_size_mb:64");
    assert!(Settings::parse("large_segment_size_mb:32,foo:1").is_err());
    assert_eq!(cache.settings().text, "max_split_size_mb:64");
    assert_eq!(cache.stats().max_split_size, 64 << 20);
    cache.set_settings(Settings::parse("large_segment_size_mb:32").unwrap());
    assert_eq!(cache.stats().max_split_size, -1);
    take(&cache, 2 * MIB, 0);
    assert_eq!(cache.reserved(), 32 * MIB);
}

#[test]
fn growable_blocks_serve_nobody_once_turned_off() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("expandable_segments:True");
    let grown = take(&cache, 5 * MIB, 0);
    free(&cache, grown);
    cache.set_settings(Settings::default());
    let plain = take(&cache, 5 * MIB, 0);
    assert_ne!(plain.segment, grown.segment);
    assert_eq!(device.calls(Call::Alloc), 1);
    cache.empty_cache().unwrap();
    cache.audit().unwrap();
    assert_eq!(device.state().ranges.len(), 0);
}

#[test]
fn impossible_requests_reserve_no_address_space() {
    let device = TestDevice::new(64 * MIB);
    let cache = device.cache("expandable_segments:True");
    for _ in 0..10 {
        oom(cache.alloc(1 << 30, 0));
    }
    assert_eq!(device.calls(Call::Reserve), 0);
}

#[test]
fn pools_nest_and_the_innermost_wins() {
    for (departures, inner_wins) in [(Departures::ALL, true), (Departures::NONE, false)] {
        let device = TestDevice::new(1 << 30);
        let cache = device.cache_with("", departures);
        let (outer, inner) = (PoolId(0, 1), PoolId(0, 2));
        cache.begin_pool(outer, Scope::All).unwrap();
        assert_eq!(cache.begin_pool(outer, Scope::All), Err(PoolError::AlreadyOpen(outer)));
        cache.begin_pool(inner, Scope::Thread(std::thread::current().id())).unwrap();
        let block = take(&cache, 1000, 0);
        let pool = cache.snapshot()[0].pool;
        assert_eq!(pool, Some(if inner_wins { inner } else { outer }));
        // Another thread is not in the inner scope.
        let other = std::thread::scope(|s| s.spawn(|| cache.alloc(1000, 7).unwrap().unwrap()).join().unwrap());
        let of = |b: Allocation| cache.snapshot().into_iter().find(|s| s.token == b.segment).unwrap().pool;
        assert_eq!(of(other), Some(outer));
        cache.end_pool(inner).unwrap();
        assert_eq!(cache.end_pool(inner), Err(PoolError::NotOpen(inner)));
        cache.end_pool(outer).unwrap();
        assert_eq!(of(take(&cache, 1000, 0)), None);
        // Memory of a pool goes back once it has no users.
        free(&cache, block);
        free(&cache, other);
        cache.empty_cache().unwrap();
        assert!(cache.snapshot().iter().any(|s| s.pool.is_some()), "its users still have it");
        cache.release_pool(inner).unwrap();
        cache.release_pool(outer).unwrap();
        assert_eq!(cache.release_pool(outer), Err(PoolError::NotInUse(outer)));
        cache.empty_cache().unwrap();
        cache.audit().unwrap();
        assert_eq!(cache.snapshot().iter().filter(|s| s.pool.is_some()).count(), 0);
        // The name is free for a new pool.
        cache.begin_pool(outer, Scope::All).unwrap();
        cache.end_pool(outer).unwrap();
    }
}

#[test]
fn blocks_given_back_from_host_functions_are_taken_by_the_next_allocation() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let a = take(&cache, 1000, 0);
    let b = take(&cache, 1000, 0);
    device.hold(true);
    let uses = cache.use_of(4) | cache.use_of(0);
    cache.free_later(a.handle, Uses::default());
    cache.free_later(b.handle, uses);
    assert_eq!(cache.stats().allocation.all.current, 2);
    assert_eq!(take(&cache, 1000, 0).addr, a.addr);
    let stats = cache.stats();
    assert_eq!((stats.allocation.all.current, stats.active.all.current), (1, 2));
    assert_eq!(device.progress(4), (1, 0));
    assert_eq!(device.progress(0), (0, 0), "a block's own stream needs no mark");
}

#[test]
fn more_streams_than_bits_are_all_waited_for() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let block = take(&cache, 1000, 0);
    for stream in 1..=100 {
        cache.record(block.handle, stream).unwrap();
    }
    device.hold(true);
    free(&cache, block);
    for stream in 1..=100 {
        assert_eq!(device.progress(stream), (1, 0));
    }
    assert_ne!(take(&cache, 1000, 0).addr, block.addr);
    // All but one.
    for stream in 1..100 {
        device.state().streams.insert(stream, (1, 1));
    }
    assert_ne!(take(&cache, 1000, 0).addr, block.addr);
    device.hold(false);
    assert_eq!(take(&cache, 1000, 0).addr, block.addr);
    assert_eq!(cache.stats().active.all.current, 3);
}

#[test]
fn marks_end_in_any_order_across_streams() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let (a, b) = (take(&cache, 1000, 0), take(&cache, 1000, 0));
    cache.record(a.handle, 1).unwrap();
    cache.record(b.handle, 2).unwrap();
    device.hold(true);
    free(&cache, a);
    free(&cache, b);
    device.state().streams.insert(2, (1, 1));
    assert_eq!(take(&cache, 1000, 0).addr, b.addr);
    device.state().streams.insert(1, (1, 1));
    assert_eq!(take(&cache, 1000, 0).addr, a.addr);
}

#[test]
fn uses_inside_a_capture_end_with_it() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let (a, b) = (take(&cache, 1000, 0), take(&cache, 1000, 0));
    cache.record(a.handle, 1).unwrap();
    cache.capture_begin(2);
    cache.record(b.handle, 1).unwrap();
    free(&cache, a);
    free(&cache, b);
    device.hold(true);
    assert!(take(&cache, 1000, 0).addr > b.addr);
    assert_eq!(device.calls(Call::Mark) + device.calls(Call::Completed), 0);
    cache.capture_end(2);
    // The use of `a` from before is marked now; that of `b` ended with the capture.
    assert_eq!(take(&cache, 1000, 0).addr, b.addr);
    assert_eq!((device.calls(Call::Mark), device.progress(1)), (1, (1, 0)));
    device.hold(false);
    assert_eq!(take(&cache, 1000, 0).addr, a.addr);
}

#[test]
fn the_summary_is_a_table() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("max_split_size_mb:20");
    take(&cache, 1000, 0);
    take(&cache, 30 * MIB, 0);
    for (abbreviated, rows) in [(true, 9), (false, 27)] {
        let text = cache.memory_summary(abbreviated);
        let width = text.lines().next().unwrap().chars().count();
        assert!(text.lines().all(|line| line.chars().count() == width), "{text}");
        assert!(text.lines().count() >= rows, "{text}");
        for part in ["allocated memory", "30.00 MiB", "1.00 GiB in all", "oversize segments", "peak"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}

/// No call to the device is made under the lock: while one thread is stuck in each of them, another one can use the cache.
#[test]
fn a_thread_stuck_in_the_device_blocks_nobody() {
    use anyaccel_engine::alloc::{DeviceMemory, Marks, PortError, Ports, RawSegment, Segments};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    /// Announces each call, then waits to be let go.
    struct Stuck {
        inner: Arc<TestDevice>,
        armed: AtomicU32,
        at: SyncSender<&'static str>,
        go: Mutex<Receiver<()>>,
    }

    impl Stuck {
        fn stop(&self, name: &'static str) {
            if self.armed.load(Ordering::SeqCst) > 0 {
                self.armed.fetch_sub(1, Ordering::SeqCst);
                self.at.send(name).unwrap();
                self.go.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }
    }

    impl Segments for Stuck {
        fn alloc(&self, len: u64, stream: u64) -> Result<RawSegment, PortError> {
            self.stop("alloc");
            self.inner.alloc(len, stream)
        }
        fn free(&self, segment: RawSegment) -> Result<(), PortError> {
            self.stop("free");
            self.inner.free(segment)
        }
        fn memory(&self) -> DeviceMemory {
            self.inner.memory()
        }
    }

    impl Marks for Stuck {
        fn mark(&self, stream: u64) -> Result<u64, PortError> {
            self.stop("mark");
            self.inner.mark(stream)
        }
        fn completed(&self, stream: u64) -> Result<u64, PortError> {
            self.stop("completed");
            self.inner.completed(stream)
        }
        fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
            self.stop("wait");
            self.inner.wait(stream, mark)
        }
    }

    let (at_send, at) = sync_channel(0);
    let (go, go_receive) = sync_channel(0);
    let inner = TestDevice::new(1 << 30);
    let stuck =
        Arc::new(Stuck { inner: inner.clone(), armed: AtomicU32::new(0), at: at_send, go: Mutex::new(go_receive) });
    let ports = Ports { segments: stuck.clone(), growable: Some(inner.clone()), marks: stuck.clone() };
    let cache = DeviceCache::new(0, ports, Settings::default(), Departures::ALL);
    let warm = cache.alloc(1000, 0).unwrap().unwrap();
    let recorded = cache.alloc(1000, 0).unwrap().unwrap();
    let polled = cache.alloc(1000, 0).unwrap().unwrap();
    cache.record(recorded.handle, 1).unwrap();
    cache.record(polled.handle, 1).unwrap();
    type Job<'a> = Box<dyn Fn() + Send + Sync + 'a>;
    // The last one waits for what the third one left pending.
    let jobs: [(&str, u32, Job); 5] = [
        ("alloc", 1, Box::new(|| assert!(cache.alloc(64 * MIB, 5).is_ok()))),
        ("mark", 1, Box::new(|| cache.free(recorded.handle).unwrap())),
        ("completed", 1, Box::new(|| assert!(cache.alloc(1000, 0).is_ok()))),
        ("wait", 1, Box::new(|| cache.empty_cache().unwrap())),
        ("free", 1, Box::new(|| cache.empty_cache().unwrap())),
    ];
    for (name, stops, job) in &jobs {
        match *name {
            "completed" => {
                inner.hold(true);
                cache.free(polled.handle).unwrap();
            }
            "free" => {
                let big = cache.alloc(20 * MIB, 0).unwrap().unwrap();
                cache.free(big.handle).unwrap();
            }
            _ => {}
        }
        stuck.armed.store(*stops, Ordering::SeqCst);
        std::thread::scope(|s| {
            let worker = s.spawn(job);
            assert_eq!(at.recv_timeout(Duration::from_secs(20)), Ok(*name));
            // In here somebody waits for the device. Everything but that wait goes on.
            let (sent, done) = sync_channel(1);
            let cache = &cache;
            s.spawn(move || {
                let block = cache.alloc(512, 3).unwrap().unwrap();
                cache.record(block.handle, 2).unwrap();
                cache.stats();
                cache.free(block.handle).unwrap();
                sent.send(()).unwrap();
            });
            assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(()), "stuck in {name}");
            go.send(()).unwrap();
            worker.join().unwrap();
        });
        if *name != "completed" {
            inner.hold(false);
        }
        cache.audit().unwrap();
    }
    cache.free(warm.handle).unwrap();
}

#[test]
fn many_threads_leave_a_sound_heap() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5"] {
        let device = TestDevice::new(300 * MIB);
        let cache = device.cache(settings);
        cache.set_budget(Some(256 * MIB));
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let cache = &cache;
                s.spawn(move || {
                    let mut seed = thread + 1;
                    let mut rand = move || {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        seed >> 33
                    };
                    let mut live: Vec<Allocation> = Vec::new();
                    for _ in 0..3000 {
                        match rand() % 10 {
                            0..=4 => {
                                let size = 1 << (rand() % 26);
                                match cache.alloc(size + rand() % size, rand() % 3) {
                                    Ok(Some(block)) => live.push(block),
                                    Err(AllocError::OutOfMemory(report)) => assert!(report.reserved <= 300 * MIB),
                                    other => panic!("{other:?}"),
                                }
                            }
                            5 if !live.is_empty() => {
                                let at = rand() as usize % live.len();
                                cache.record(live[at].handle, rand() % 3).unwrap();
                            }
                            6 if rand() % 20 == 0 => cache.empty_cache().unwrap(),
                            _ if !live.is_empty() => {
                                let at = rand() as usize % live.len();
                                cache.free(live.swap_remove(at).handle).unwrap();
                            }
                            _ => {}
                        }
                    }
                    live.into_iter().for_each(|block| cache.free(block.handle).unwrap());
                });
            }
        });
        cache.empty_cache().unwrap();
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!(stats.active.all.current, 0);
        assert_eq!(stats.reserved_bytes.all.current, 0, "{settings}");
        assert!(stats.reserved_bytes.all.peak <= 256 * MIB, "{settings}: {}", stats.reserved_bytes.all.peak);
        // Address space may stay reserved until the end.
        let (leaks, outcome) = cache.close();
        assert_eq!((leaks.len(), outcome), (0, Ok(())));
        device.assert_clean();
    }
}

#[test]
fn closing_while_others_work_leaves_nothing() {
    for round in 0..40 {
        let settings = if round % 2 == 0 { "" } else { "expandable_segments:True" };
        let device = TestDevice::new(2 << 30);
        let cache = device.cache(settings);
        std::thread::scope(|s| {
            for thread in 0..3u64 {
                let cache = &cache;
                s.spawn(move || {
                    for i in 0.. {
                        let size = if i % 7 == 0 { 30 * MIB } else { 1000 + i };
                        match cache.alloc(size, thread) {
                            Ok(Some(block)) => {
                                // Closing may have made the handle stale meanwhile; nothing else can be wrong.
                                let stale = |result: Result<(), FreeError>| match result {
                                    Ok(()) | Err(FreeError::Stale(_)) => {}
                                    Err(other) => panic!("{other}"),
                                };
                                stale(cache.record(block.handle, (thread + 1) % 3));
                                stale(cache.free(block.handle));
                                if i % 50 == 0 {
                                    cache.empty_cache().unwrap();
                                }
                            }
                            Err(AllocError::Closed { .. }) => return,
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_micros(300 * round));
            cache.close().1.unwrap();
        });
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0));
        device.assert_clean();
    }
}
