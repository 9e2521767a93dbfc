//! Named cases.

use anyaccel_engine::alloc::Settings;
use anyaccel_engine::pinned::{HostAllocError, HostHandle, HostPolicy, HostUseError};

use crate::fake::{Copy, Fake, KIB, MIB, take};

const BIG: u64 = 129 * MIB + MIB / 2;

fn unlimited() -> std::sync::Arc<Fake> {
    Fake::new(u64::MAX / 2)
}

/// The source of a queued copy, named by an interior pointer, is not handed out again before the copy ran.
#[test]
fn a_source_in_flight_is_not_reused() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let slice = 1024;
    let first = take(&cache, 4 * slice);
    for (i, value) in (1..=4).enumerate() {
        fake.inner().bytes.insert(first.addr + i as u64 * slice, value);
    }
    let interior = first.addr + 2 * slice;
    let mark = fake.enqueue(7, Some(Copy { from: interior, to: 0 }));
    let named = cache.find(interior).unwrap();
    assert_eq!(named, first.handle);
    cache.record(named, 7, mark).unwrap();
    cache.free(first.handle).unwrap();

    let second = take(&cache, 4 * slice);
    assert_ne!(second.addr, first.addr);
    for i in 0..4 {
        fake.inner().bytes.insert(second.addr + i * slice, 9);
    }
    fake.run(7, mark);
    assert_eq!(fake.inner().device[&0], 3);

    let third = take(&cache, 4 * slice);
    assert_eq!((third.addr, third.token), (first.addr, first.token));
    assert_ne!(third.handle, first.handle);
    cache.audit().unwrap();
}

/// Exact above the threshold, never for a small request; both what is held and what was asked for are visible.
#[test]
fn rounding_and_hoarding() {
    let fake = unlimited();
    let settings = Settings::parse("pinned_max_round_threshold_mb:64").unwrap();
    let cache = fake.cache(HostPolicy::from_settings(&settings, 4096));

    let big = take(&cache, BIG);
    let stats = cache.stats();
    assert_eq!(stats.allocated_bytes.current, BIG);
    assert_eq!(stats.requested_bytes.current, BIG);
    assert_eq!((big.size, big.requested), (BIG, BIG));

    cache.free(big.handle).unwrap();
    let small = take(&cache, 10 * KIB);
    let again = take(&cache, BIG);
    assert_eq!(again.addr, big.addr);
    assert_eq!(cache.stats().allocated_bytes.current, BIG + 16 * KIB);
    assert_eq!(fake.held(), BIG + 16 * KIB);
    cache.free(small.handle).unwrap();
    cache.free(again.handle).unwrap();
    assert_eq!(cache.trim(), Ok(BIG + 16 * KIB));

    let rounded = take(&cache, 48 * MIB);
    let stats = cache.stats();
    assert_eq!((stats.allocated_bytes.current, stats.requested_bytes.current), (64 * MIB, 48 * MIB));
    assert_eq!((rounded.size, rounded.requested), (64 * MIB, 48 * MIB));
    let flat = stats.flat();
    for pair in [("allocated_bytes.current", 64 * MIB as i64), ("requested_bytes.current", 48 * MIB as i64)] {
        assert!(flat.contains(&pair), "{pair:?} in {flat:?}");
    }
    cache.free(rounded.handle).unwrap();
    cache.trim().unwrap();
    assert_eq!((cache.stats().allocated_bytes.current, fake.held()), (0, 0));
    cache.audit().unwrap();
}

/// One page more than a page multiple is the next page multiple, and the threshold itself still belongs to its class.
#[test]
fn exact_blocks_serve_almost_their_own_size_only() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let block = take(&cache, 160 * MIB - 1);
    assert_eq!(block.size, 160 * MIB);
    cache.free(block.handle).unwrap();
    let slightly_less = take(&cache, 152 * MIB);
    assert_eq!(slightly_less.addr, block.addr);
    cache.free(slightly_less.handle).unwrap();
    let much_less = take(&cache, 140 * MIB);
    assert_ne!(much_less.addr, block.addr);
    let class = take(&cache, 64 * MIB);
    assert_ne!(class.addr, block.addr);
    assert_eq!(class.size, 64 * MIB);
}

/// Requests that grow a little each time leave nothing behind.
#[test]
fn slow_growth_does_not_hoard() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    for step in 0..100 {
        let block = take(&cache, 100 * MIB + step * 64 * KIB);
        cache.free(block.handle).unwrap();
    }
    assert_eq!(fake.held(), 100 * MIB + 99 * 64 * KIB);
    assert_eq!(fake.inner().live.len(), 1);
}

#[test]
fn blocks_above_the_limit_are_not_cached() {
    let fake = unlimited();
    let policy = HostPolicy { max_cached: 8 * MIB, ..HostPolicy::default() };
    let cache = fake.cache(policy);
    let (kept, unused, used) = (take(&cache, 8 * MIB), take(&cache, 9 * MIB), take(&cache, 9 * MIB));
    cache.free(kept.handle).unwrap();
    cache.free(unused.handle).unwrap();
    assert_eq!(fake.held(), 24 * MIB, "8 cached, 16 in use");
    let mark = fake.enqueue(1, None);
    cache.free_used(used.handle, &[1]).unwrap();
    assert_eq!(fake.held(), 24 * MIB);
    fake.run(1, mark);
    // Any later call sees that the use has ended, also a hit of another size.
    let hit = take(&cache, 8 * MIB);
    assert_eq!(hit.addr, kept.addr);
    assert_eq!(fake.held(), 8 * MIB);
    cache.audit().unwrap();
}

/// A block behind a slow stream holds up no other, whatever the order they were given back in.
#[test]
fn no_head_of_line() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let blocks: Vec<_> = (0..4).map(|_| take(&cache, KIB)).collect();
    let slow = fake.enqueue(1, None);
    cache.record(blocks[0].handle, 1, slow).unwrap();
    // Recorded early, given back after the other block of its stream: its older mark must not wait for that one's.
    let early = fake.enqueue(2, None);
    cache.record(blocks[2].handle, 2, early).unwrap();
    fake.enqueue(2, None);
    cache.free(blocks[0].handle).unwrap();
    cache.free_used(blocks[1].handle, &[2]).unwrap();
    cache.free(blocks[2].handle).unwrap();
    // Two streams: both must end.
    cache.free_used(blocks[3].handle, &[1, 3]).unwrap();
    fake.run(2, early);
    let again = take(&cache, KIB);
    assert_eq!(again.addr, blocks[2].addr);
    cache.poll().unwrap();
    assert_eq!(cache.stats().active_requests.current, 4, "again, and blocks 0, 1, 3");
    fake.run_all();
    cache.poll().unwrap();
    assert_eq!(cache.stats().active_requests.current, 1);
    cache.audit().unwrap();
}

/// A hit calls no port, even while other blocks are pending.
#[test]
fn a_hit_calls_no_port() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let (a, b) = (take(&cache, KIB), take(&cache, KIB));
    fake.enqueue(1, None);
    cache.free_used(a.handle, &[1]).unwrap();
    cache.free(b.handle).unwrap();
    let calls = fake.calls();
    let hit = take(&cache, KIB);
    cache.free(hit.handle).unwrap();
    assert_eq!((hit.addr, fake.calls()), (b.addr, calls));
}

/// What a host function gives back costs no driver call, and the next allocation finds it.
#[test]
fn freed_in_a_host_function() {
    let fake = unlimited();
    let policy = HostPolicy { max_cached: MIB, ..HostPolicy::default() };
    let cache = fake.cache(policy);
    let (used, idle, big) = (take(&cache, KIB), take(&cache, KIB), take(&cache, 2 * MIB));
    let mark = fake.enqueue(1, None);
    let calls = fake.calls();
    cache.free_quietly(used.handle, &[1]).unwrap();
    cache.free_quietly(idle.handle, &[]).unwrap();
    cache.free_quietly(big.handle, &[]).unwrap();
    assert_eq!(cache.free_quietly(idle.handle, &[]), Err(HostUseError::Stale(idle.handle.to_bits())));
    assert_eq!(fake.calls(), calls);
    cache.audit().unwrap();

    let hit = take(&cache, KIB);
    assert_eq!(hit.addr, idle.addr);
    assert_eq!(fake.inner().calls[calls..], [("mark", 1), ("free", big.addr)]);
    fake.run(1, mark);
    assert_eq!(take(&cache, KIB).addr, used.addr);
    cache.audit().unwrap();
}

#[test]
fn used_during_a_capture() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy { max_cached: MIB, ..HostPolicy::default() });
    let (cached, eager, captured, big) =
        (take(&cache, KIB), take(&cache, 2 * KIB), take(&cache, 8 * KIB), take(&cache, 2 * MIB));
    cache.free(cached.handle).unwrap();
    let mark = fake.enqueue(1, None);
    cache.free_used(eager.handle, &[1]).unwrap();
    fake.run(1, mark);

    cache.capture_begin(9);
    let calls = fake.calls();
    cache.record_stream(captured.handle, 9).unwrap();
    cache.free(captured.handle).unwrap();
    cache.free(big.handle).unwrap();
    assert_eq!(cache.trim(), Ok(0));
    cache.poll().unwrap();
    assert_eq!(fake.calls(), calls, "no mark, no question, nothing given back");
    assert_eq!(take(&cache, KIB).addr, cached.addr, "what was free before may be used");
    assert_ne!(take(&cache, 8 * KIB).addr, captured.addr);
    cache.audit().unwrap();

    cache.capture_end(9);
    assert_eq!(take(&cache, 8 * KIB).addr, captured.addr, "stream 9 has nothing to end");
    assert_eq!(take(&cache, 2 * KIB).addr, eager.addr);
    assert!(!fake.inner().live.contains_key(&big.addr));
    cache.audit().unwrap();
}

#[test]
fn bad_handles_and_addresses_change_nothing() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    assert_eq!(cache.alloc(0), Ok(None));
    assert_eq!(cache.alloc(1 << 60), Err(HostAllocError::TooLarge(1 << 60)));
    assert_eq!(cache.alloc(u64::MAX), Err(HostAllocError::TooLarge(u64::MAX)));
    let live = take(&cache, 10 * KIB);
    let gone = take(&cache, 10 * KIB);
    cache.free(gone.handle).unwrap();
    let before = cache.stats();
    let unknown = [HostHandle::from_bits(0), HostHandle::from_bits(u64::MAX), HostHandle::from_bits(1 << 32 | 99)];
    for handle in unknown.into_iter().chain([gone.handle]) {
        let stale = Err(HostUseError::Stale(handle.to_bits()));
        assert_eq!(cache.free(handle), stale);
        assert_eq!(cache.free_used(handle, &[1]), stale);
        assert_eq!(cache.free_quietly(handle, &[1]), stale);
        assert_eq!(cache.record(handle, 1, 1), stale);
        assert_eq!(cache.record_stream(handle, 1), stale);
        assert_eq!(cache.get(handle).map(|_| ()), stale);
    }
    let inside = live.addr + 5;
    assert_eq!(cache.free_at(inside), Err(HostUseError::Interior { addr: inside, start: live.addr }));
    for addr in [1, gone.addr, live.addr - 1, live.addr + live.size, u64::MAX] {
        assert_eq!(cache.free_at(addr), Err(HostUseError::Unknown(addr)));
        assert_eq!(cache.find(addr), None);
    }
    assert_eq!(cache.find(live.addr + live.size - 1), Some(live.handle));
    assert_eq!(HostHandle::from_bits(live.handle.to_bits()), live.handle);
    assert_eq!(cache.stats(), before);
    cache.free_at(0).unwrap();
    cache.free_at(live.addr).unwrap();
    // The memory is handed out again; old names of it stay refused.
    let reused = take(&cache, 10 * KIB);
    assert_eq!(reused.addr, live.addr);
    assert_eq!(cache.free(live.handle), Err(HostUseError::Stale(live.handle.to_bits())));
    assert_eq!(cache.get(reused.handle), Ok(reused));
    cache.audit().unwrap();
}

#[test]
fn out_of_memory_gives_back_what_is_unused_and_tells_the_rest() {
    let fake = Fake::new(10 * MIB);
    let cache = fake.cache(HostPolicy::default());
    let (live, pending, unused) = (take(&cache, MIB), take(&cache, 2 * MIB), take(&cache, 4 * MIB));
    fake.enqueue(1, None);
    cache.free_used(pending.handle, &[1]).unwrap();
    cache.free(unused.handle).unwrap();

    cache.capture_begin(5);
    let Err(HostAllocError::OutOfMemory(told)) = cache.alloc(5 * MIB) else { panic!() };
    assert_eq!((told.live, told.pending, told.unused, told.held), (MIB, 2 * MIB, 4 * MIB, 7 * MIB));
    assert!(told.to_string().contains("before it begins"), "{told}");
    cache.capture_end(5);
    assert_eq!(cache.stats().num_alloc_retries, 0);

    let Err(HostAllocError::OutOfMemory(told)) = cache.alloc(5 * MIB) else { panic!() };
    assert_eq!((told.requested, told.size), (5 * MIB, 8 * MIB));
    assert_eq!((told.live, told.pending, told.unused), (MIB, 2 * MIB, 0));
    for word in ["5242880", "8388608", "synchronize", "pinned_max_round_threshold_mb", "ulimit"] {
        assert!(told.to_string().contains(word), "{told}");
    }
    let stats = cache.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 2));
    assert_eq!(fake.held(), 3 * MIB);
    // Once the stream is done, the same request succeeds by the retry alone.
    fake.run_all();
    assert_eq!(take(&cache, 5 * MIB).size, 8 * MIB);
    assert_eq!(cache.stats().num_alloc_retries, 2);
    cache.free(live.handle).unwrap();
    cache.audit().unwrap();
}

#[test]
fn resets() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let blocks = [take(&cache, 5 * KIB), take(&cache, 5 * KIB), take(&cache, 100 * KIB)];
    cache.free(blocks[0].handle).unwrap();
    cache.free(blocks[2].handle).unwrap();
    cache.trim().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.allocations.current, stats.allocations.peak), (1, 3));
    assert_eq!((stats.active_bytes.current, stats.active_bytes.peak), (8 * KIB, 144 * KIB));
    assert_eq!((stats.requested_bytes.peak, stats.requested_bytes.freed), (110 * KIB, 105 * KIB));
    assert_eq!((stats.num_host_alloc, stats.num_host_free), (3, 2));
    assert_eq!((stats.host_alloc_time.count, stats.host_free_time.count), (3, 2));
    cache.reset_peaks();
    let stats = cache.stats();
    assert_eq!((stats.allocations.peak, stats.active_bytes.peak, stats.requested_bytes.peak), (1, 8 * KIB, 5 * KIB));
    assert_eq!((stats.allocations.allocated, stats.num_host_alloc), (3, 3));
    cache.reset_accumulated();
    let stats = cache.stats();
    assert_eq!((stats.allocations.allocated, stats.active_requests.freed, stats.num_host_free), (0, 0, 0));
    assert_eq!((stats.host_alloc_time.count, stats.active_requests.current), (0, 1));
    cache.audit().unwrap();
}

#[test]
fn closing() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let (live, pending, idle) = (take(&cache, KIB), take(&cache, KIB), take(&cache, KIB));
    let mark = fake.enqueue(1, None);
    cache.free_used(pending.handle, &[1]).unwrap();
    cache.free(idle.handle).unwrap();
    let (left, outcome) = cache.close();
    assert_eq!(outcome, Ok(()));
    let mut addrs: Vec<u64> = left.iter().map(|block| block.addr).collect();
    addrs.sort_unstable();
    assert_eq!(addrs, [live.addr, pending.addr]);
    assert_eq!(fake.held(), 8 * KIB);
    assert_eq!(cache.alloc(1), Err(HostAllocError::Closed));
    fake.run(1, mark);
    cache.free(live.handle).unwrap();
    assert_eq!(fake.held(), 0, "what is freed later goes back at once");
    cache.audit().unwrap();
    drop(cache);
    assert_eq!(fake.held(), 0);
}

/// A policy changed under way: old blocks keep their classes, new requests follow the new rules.
#[test]
fn policy_changes() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    let classed = take(&cache, 3 * MIB);
    cache.set_policy(HostPolicy { round_threshold: MIB, max_cached: 2 * MIB, page: 1 });
    assert_eq!(cache.policy().page, 4096);
    let exact = take(&cache, 3 * MIB);
    assert_eq!((classed.size, exact.size), (4 * MIB, 3 * MIB));
    cache.free(classed.handle).unwrap();
    assert_eq!(fake.held(), 3 * MIB);
    cache.free(exact.handle).unwrap();
    assert_eq!(fake.held(), 0);
    cache.audit().unwrap();
}

/// Many streams that come and go leave no queues behind, and lose no block.
#[test]
fn streams_that_come_and_go() {
    let fake = unlimited();
    let cache = fake.cache(HostPolicy::default());
    for stream in 0..1000 {
        let block = take(&cache, KIB);
        fake.enqueue(stream, None);
        cache.free_used(block.handle, &[stream]).unwrap();
        if stream % 3 == 0 {
            fake.run_all();
        }
    }
    fake.run_all();
    cache.poll().unwrap();
    assert_eq!(cache.stats().active_requests.current, 0);
    assert!(fake.inner().live.len() <= 4);
    cache.audit().unwrap();
}
