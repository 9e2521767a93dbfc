//! Single rules of the device cache.

mod device;

use anyaccel_engine::alloc::{
    AllocError, Allocation, Cause, Departures, FreeError, Handle, MAX_REQUEST, PoolError, PoolId, Scope, Settings, Uses,
};
use device::{Call, MIB, TestDevice, free, oom, take};

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
    let report = oom(cache.alloc(21 * MIB, 0));
    cache.audit().unwrap();
    assert_eq!((report.cause, device.state().used), (Cause::Budget, 0));
    cache.set_budget(Some(40 * MIB));
    let block = take(&cache, 21 * MIB, 0);
    assert_eq!(device.state().used, 40 * MIB);
    // What is mapped already counts once: 59 MiB lack one more unit.
    free(&cache, block);
    cache.set_budget(Some(60 * MIB));
    take(&cache, 59 * MIB, 0);
    assert_eq!(device.state().used, 60 * MIB);
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
    // Another stream can't have the free run, and its segment is pinned.
    cache.set_budget(Some(95 * MIB));
    let text = oom(cache.alloc(30 * MIB, 3)).to_string();
    assert!(text.contains("budget") && text.contains("another stream") && !text.contains("max_split"), "{text}");
    cache.set_budget(None);
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
fn one_pool_is_emptied_though_it_is_in_use_unless_a_graph_may_write_there() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let (pool, other) = (PoolId(0, 1), PoolId(0, 2));
    free(&cache, take(&cache, 30 * MIB, 0));
    for id in [pool, other] {
        cache.begin_pool(id, Scope::All).unwrap();
        let kept = take(&cache, 1000, 0);
        free(&cache, take(&cache, 30 * MIB, 0));
        cache.end_pool(id).unwrap();
        assert_eq!(cache.pool_of(kept.handle), Some(id));
    }
    let reserved = cache.reserved();
    cache.keep_for_graph(pool).unwrap();
    cache.empty_pool(pool).unwrap();
    cache.empty_pool(PoolId(0, 3)).unwrap();
    cache.capture_begin(7);
    cache.empty_pool(other).unwrap();
    cache.capture_end(7);
    assert_eq!(cache.reserved(), reserved);
    cache.empty_pool(other).unwrap();
    assert_eq!(cache.reserved(), reserved - 30 * MIB);
    cache.begin_pool(pool, Scope::All).unwrap();
    cache.end_pool(pool).unwrap();
    cache.forget_graph(pool).unwrap();
    cache.empty_pool(pool).unwrap();
    assert_eq!(cache.reserved(), reserved - 60 * MIB);
    cache.audit().unwrap();
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
fn bits_that_stand_for_no_stream_are_ignored() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    for bits in [1 << 5, 1 << 63, u64::MAX, 2] {
        let block = take(&cache, 1000, 0);
        cache.free_used(block.handle, Uses(bits)).unwrap();
        cache.audit().unwrap();
        assert_eq!(cache.stats().active.all.current, 0);
    }
    assert_eq!(device.calls(Call::Mark), 0);
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

/// Segments that are gone are forgotten, and those that stay keep their order.
#[test]
fn segments_may_come_and_go_forever() {
    let device = TestDevice::new(64 << 30);
    let cache = device.cache("");
    let mut live = Vec::new();
    let mut footprint = 0;
    for round in 0..3000 {
        let block = cache.alloc(30 * MIB, 0).unwrap().unwrap();
        if round % 100 == 0 {
            live.push(block);
        } else {
            cache.free(block.handle).unwrap();
            cache.empty_cache().unwrap();
        }
        if round == 1000 {
            footprint = cache.footprint();
        }
    }
    assert!(cache.footprint() <= footprint + 4096, "{} after {footprint}", cache.footprint());
    live.into_iter().for_each(|block| cache.free(block.handle).unwrap());
    cache.audit().unwrap();
    // The oldest of equal blocks is used first.
    let oldest = cache.snapshot()[0].addr;
    assert_eq!(cache.alloc(30 * MIB, 0).unwrap().unwrap().addr, oldest);
}

#[test]
fn statistics_of_pools_that_are_gone_are_kept_for_the_last_ones_only() {
    let device = TestDevice::new(1 << 30);
    let cache = device.cache("");
    let (first, last) = (PoolId(0, 1), PoolId(0, 1000));
    cache.begin_pool(first, Scope::All).unwrap();
    let kept = take(&cache, 1000, 0);
    cache.end_pool(first).unwrap();
    for number in 2..=last.1 {
        let id = PoolId(0, number);
        cache.begin_pool(id, Scope::All).unwrap();
        free(&cache, take(&cache, 1000, 0));
        cache.end_pool(id).unwrap();
        cache.release_pool(id).unwrap();
        cache.empty_cache().unwrap();
    }
    let pools = cache.stats().reserved_bytes_by_private_pools;
    assert!(pools.len() < 100, "{}", pools.len());
    assert!(pools.iter().any(|(id, stat)| *id == first && stat.all.current > 0), "it has memory");
    assert!(pools.iter().any(|(id, stat)| *id == last && stat.all.current == 0 && stat.all.peak > 0));
    free(&cache, kept);
}
