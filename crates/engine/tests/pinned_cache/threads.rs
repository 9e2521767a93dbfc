//! Several threads in one cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyaccel_engine::pinned::{HostAllocation, HostPolicy};
use anyaccel_kit::Mutex;

use crate::fake::{Fake, KIB, MIB};

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// No two threads ever have the same memory, whatever is allocated, freed, trimmed and captured at once.
#[test]
fn no_memory_has_two_owners() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 4_000;
    let fake = Fake::new(64 * MIB);
    let policy = HostPolicy { round_threshold: MIB, max_cached: 3 * MIB, ..HostPolicy::default() };
    let cache = fake.cache(policy);
    let owned: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (fake, cache, owned) = (&fake, &cache, &owned);
            s.spawn(move || {
                let mut seed = thread * 7919 + 1;
                let mut live: Vec<HostAllocation> = Vec::new();
                for step in 0..STEPS {
                    let r = random(&mut seed);
                    let stream = r % 5;
                    match r % 16 {
                        0..=6 if live.len() < 12 => {
                            let size = (KIB << (random(&mut seed) % 13)) - random(&mut seed) % 500;
                            let Ok(block) = cache.alloc(size) else { continue };
                            let block = block.unwrap();
                            let mut owned = owned.lock();
                            let below = owned.range(..block.addr + block.size).next_back();
                            assert!(below.is_none_or(|(addr, size)| addr + size <= block.addr), "{block:?} is taken");
                            owned.insert(block.addr, block.size);
                            drop(owned);
                            assert_eq!(cache.find(block.addr + size / 2), Some(block.handle));
                            live.push(block);
                        }
                        7 => {
                            cache.trim().unwrap();
                        }
                        8 => cache.poll().unwrap(),
                        9 if step % 64 == 0 => {
                            cache.capture_begin(100 + thread);
                            std::thread::yield_now();
                            cache.capture_end(100 + thread);
                        }
                        10 => {
                            fake.enqueue(stream, None);
                        }
                        11 => fake.run(stream, u64::MAX),
                        _ if !live.is_empty() => {
                            let block = live.swap_remove(random(&mut seed) as usize % live.len());
                            owned.lock().remove(&block.addr);
                            match r % 3 {
                                0 => cache.free(block.handle),
                                1 => cache.free_used(block.handle, &[stream, (stream + 1) % 5]),
                                _ => cache.free_quietly(block.handle, &[stream]),
                            }
                            .unwrap();
                            assert!(cache.free(block.handle).is_err());
                        }
                        _ => {}
                    }
                }
                for block in live {
                    owned.lock().remove(&block.addr);
                    cache.free(block.handle).unwrap();
                }
            });
        }
    });
    cache.audit().unwrap();
    fake.run_all();
    cache.trim().unwrap();
    cache.audit().unwrap();
    assert_eq!((fake.held(), cache.stats().allocated_bytes.current), (0, 0));
    let stats = cache.stats();
    assert_eq!(stats.num_host_alloc, stats.num_host_free);
    assert_eq!(stats.requested_bytes.allocated, stats.requested_bytes.freed);
}
