//! Each call to a port fails once in turn, in each way that it can.

use anyaccel_engine::alloc::PortError;
use anyaccel_engine::pinned::{HostAllocError, HostAllocation, HostPolicy};

use crate::fake::{Fake, KIB, MIB};

/// A run through everything that calls a port. Returns how many calls it made, and the errors that callers saw.
fn scenario(fail: Option<(usize, PortError)>) -> (usize, Vec<String>) {
    let fake = Fake::new(64 * MIB);
    fake.inner().fail = fail;
    let policy = HostPolicy { round_threshold: 4 * MIB, max_cached: 6 * MIB, ..HostPolicy::default() };
    let cache = fake.cache(policy);
    let mut seen = Vec::new();
    let mut live: Vec<HostAllocation> = Vec::new();
    for round in 0..3u64 {
        for size in [KIB, 3 * MIB, 5 * MIB, 100 * KIB, 7 * MIB, KIB] {
            let before = cache.stats();
            match cache.alloc(size) {
                Ok(block) => live.extend(block),
                Err(error) => {
                    let after = cache.stats();
                    assert_eq!(after.requested_bytes.allocated, before.requested_bytes.allocated, "{error}");
                    if let HostAllocError::OutOfMemory(told) = &error {
                        assert_eq!(told.held, told.live + told.pending + told.unused, "{told:?}");
                    }
                    seen.push(error.to_string());
                }
            }
            cache.audit().unwrap();
        }
        for (i, block) in live.drain(..).enumerate() {
            let stream = i as u64 % 2;
            let mark = fake.enqueue(stream, None);
            match i % 4 {
                0 => cache.record(block.handle, stream, mark).and_then(|()| cache.free(block.handle)),
                1 => cache.free_used(block.handle, &[0, 1]),
                2 => cache.free_quietly(block.handle, &[stream]),
                _ => cache.free(block.handle),
            }
            .unwrap();
            cache.audit().unwrap();
        }
        fake.run(round % 2, u64::MAX);
        seen.extend(cache.poll().err().map(|e| e.to_string()));
        if round == 1 {
            seen.extend(cache.trim().err().map(|e| e.to_string()));
        }
        cache.audit().unwrap();
        assert_eq!(cache.stats().allocated_bytes.current, fake.held());
    }
    // Whatever failed, failed once: now everything can be had back.
    fake.run_all();
    let before = fake.calls();
    seen.extend(cache.trim().err().map(|e| e.to_string()));
    let calls = fake.calls();
    if before < calls {
        let _ = cache.trim();
    }
    cache.audit().unwrap();
    let stats = cache.stats();
    assert_eq!((fake.held(), stats.allocated_bytes.current), (0, 0));
    assert_eq!((stats.active_requests.current, stats.requested_bytes.current), (0, 0));
    assert_eq!(stats.num_host_alloc, stats.num_host_free);
    assert_eq!(stats.allocated_bytes.peak, fake.inner().peak);
    (calls, seen)
}

#[test]
fn each_call_fails_once() {
    let (calls, seen) = scenario(None);
    assert!(calls > 40, "{calls} calls are no test");
    // There is room enough, so nothing is to be seen without an injected fault.
    assert_eq!(seen, Vec::<String>::new());
    let faults =
        [PortError::Failed("injected".into()), PortError::DeviceLost("injected".into()), PortError::OutOfMemory];
    let mut told = 0;
    for fault in faults {
        for at in 0..calls {
            let (_, seen) = scenario(Some((at, fault.clone())));
            told += usize::from(!seen.is_empty());
        }
    }
    assert!(told > calls / 2, "only {told} faults were told to anybody");
}

/// An allocation that fails for want of memory once succeeds by its retry, unseen.
#[test]
fn one_out_of_memory_is_retried() {
    let fake = Fake::new(u64::MAX / 2);
    let cache = fake.cache(HostPolicy::default());
    fake.inner().fail = Some((0, PortError::OutOfMemory));
    let block = cache.alloc(KIB).unwrap().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_host_alloc), (1, 0, 1));
    assert_eq!(block.size, 4 * KIB);
}

/// A block whose mark can't be made is not handed out: a later call makes the mark, behind whatever came since.
#[test]
fn a_failed_mark_is_made_later() {
    let fake = Fake::new(u64::MAX / 2);
    let cache = fake.cache(HostPolicy::default());
    let block = cache.alloc(KIB).unwrap().unwrap();
    fake.enqueue(1, None);
    let at = fake.calls();
    fake.inner().fail = Some((at, PortError::Failed("injected".into())));
    cache.free_used(block.handle, &[1]).unwrap();
    assert_eq!(fake.inner().calls[at..], [("mark", 1)]);
    let late = fake.enqueue(1, None);
    assert_ne!(cache.alloc(KIB).unwrap().unwrap().addr, block.addr);
    fake.run(1, late - 1);
    assert_ne!(cache.alloc(KIB).unwrap().unwrap().addr, block.addr);
    fake.run(1, late);
    assert_eq!(cache.alloc(KIB).unwrap().unwrap().addr, block.addr);
    cache.audit().unwrap();
}
