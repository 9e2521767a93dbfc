//! The pinned cache's hot paths, each beside a textbook pool (a mutex, an ordered map of free lists by size, a hash map
//! of what is out, a queue of pending blocks looked at oldest first) in the same run.
//! `cargo bench -p anyaccel-engine --bench pinned` prints nanoseconds a pair; what to trust is the ratio.
//! The textbook asks and marks streams under its lock, which no pool may whose users include host functions; ours takes
//! the lock once more for each such call.
//!
//! The port hands out addresses only, so no driver time is in the figures. Each is the least of several rounds.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyaccel_engine::alloc::{Marks, PortError};
use anyaccel_engine::pinned::{HostCache, HostHandle, HostPolicy, HostPorts, HostSegments, RawHost};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Addresses, and one counter that is every stream: a mark has ended once the counter has passed it by `LAG`.
#[derive(Default)]
struct Port {
    top: AtomicU64,
    enqueued: AtomicU64,
}

/// How many marks are under way.
const LAG: u64 = 4;

impl HostSegments for Port {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let addr = (1 << 40) + self.top.fetch_add(len, Ordering::Relaxed);
        Ok(RawHost { token: addr, addr, len })
    }

    fn free(&self, _memory: RawHost) -> Result<(), PortError> {
        Ok(())
    }
}

impl Marks for Port {
    fn mark(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(self.enqueued.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn completed(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(self.enqueued.load(Ordering::Relaxed).saturating_sub(LAG))
    }

    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

/// What the rows measure.
trait Pool: Sync {
    fn take(&self, size: u64) -> u64;
    fn give(&self, name: u64);
    /// Gives a block back that work on stream 1 still uses.
    fn give_used(&self, name: u64);
}

impl Pool for HostCache {
    fn take(&self, size: u64) -> u64 {
        self.alloc(size).unwrap().map_or(0, |block| block.handle.to_bits())
    }
    fn give(&self, name: u64) {
        self.free(HostHandle::from_bits(name)).unwrap();
    }
    fn give_used(&self, name: u64) {
        self.free_used(HostHandle::from_bits(name), &[1]).unwrap();
    }
}

/// No statistics, no handles; each size rounded to a power of two.
struct Textbook {
    port: Box<dyn Both>,
    book: Mutex<Book>,
}

trait Both: HostSegments + Marks {}
impl Both for Port {}

#[derive(Default)]
struct Book {
    free: BTreeMap<u64, Vec<u64>>,
    out: HashMap<u64, u64>,
    pending: VecDeque<(u64, u64, u64)>,
}

impl Pool for Textbook {
    fn take(&self, size: u64) -> u64 {
        let size = size.next_power_of_two().max(4096);
        let book = &mut *self.book.lock().unwrap();
        while let Some(&(mark, addr, size)) = book.pending.front() {
            if self.port.completed(1).unwrap() < mark {
                break;
            }
            book.pending.pop_front();
            book.free.entry(size).or_default().push(addr);
        }
        let addr = match book.free.get_mut(&size).and_then(Vec::pop) {
            Some(addr) => addr,
            None => self.port.alloc(size).unwrap().addr,
        };
        book.out.insert(addr, size);
        addr
    }

    fn give(&self, addr: u64) {
        let book = &mut *self.book.lock().unwrap();
        let size = book.out.remove(&addr).unwrap();
        book.free.entry(size).or_default().push(addr);
    }

    fn give_used(&self, addr: u64) {
        let mark = self.port.mark(1).unwrap();
        let book = &mut *self.book.lock().unwrap();
        let size = book.out.remove(&addr).unwrap();
        book.pending.push_back((mark, addr, size));
    }
}

fn ours() -> HostCache {
    let port = Arc::new(Port::default());
    HostCache::new(HostPorts { segments: port.clone(), marks: port }, HostPolicy::default())
}

fn textbook() -> Textbook {
    Textbook { port: Box::new(Port::default()), book: Mutex::default() }
}

/// Least nanoseconds per pair of `work`, which does `n` pairs a call.
fn least(rounds: u32, calls: u32, n: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..calls {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls) / f64::from(n));
    }
    best
}

fn pair(pool: &impl Pool, size: u64) -> f64 {
    least(40, 20_000, 1, || pool.give(black_box(pool.take(black_box(size)))))
}

fn used(pool: &impl Pool) -> f64 {
    least(40, 20_000, 1, || pool.give_used(black_box(pool.take(black_box(64 * KIB)))))
}

fn recorded() -> f64 {
    let port = Arc::new(Port::default());
    let cache = HostCache::new(HostPorts { segments: port.clone(), marks: port.clone() }, HostPolicy::default());
    least(40, 20_000, 1, || {
        if let Some(block) = cache.alloc(black_box(64 * KIB)).unwrap() {
            let mark = port.mark(1).unwrap();
            cache.record(block.handle, 1, mark).unwrap();
            cache.free(block.handle).unwrap();
        }
    })
}

fn sixty_four(pool: &impl Pool) -> f64 {
    let mut names = [0; 64];
    least(40, 400, 64, || {
        for name in &mut names {
            *name = pool.take(64 * KIB);
        }
        for name in &names {
            pool.give(*name);
        }
    })
}

fn mix(pool: &impl Pool) -> f64 {
    let mut seed = 42u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    // 4 KiB to 32 MiB, each octave as likely.
    let mut size = || {
        let octave = (4 * KIB) << (random() % 13);
        octave + random() % octave
    };
    let mut names: Vec<u64> = (0..1000).map(|_| pool.take(size())).collect();
    let work: Vec<(usize, u64)> = (0..100_000).map(|i| (i * 7919 % 1000, size())).collect();
    let out = least(12, 1, 100_000, || {
        for &(at, size) in &work {
            pool.give(names[at]);
            names[at] = pool.take(size);
        }
    });
    names.into_iter().for_each(|name| pool.give(name));
    out
}

/// Wall time over the pairs of both threads.
fn threads(pool: &impl Pool) -> f64 {
    const PAIRS: u32 = 200_000;
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..PAIRS {
                        pool.give(black_box(pool.take(64 * KIB)));
                    }
                });
            }
        });
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(2 * PAIRS));
    }
    best
}

fn row(name: &str, ours: f64, textbook: f64) {
    println!("{name:<44} {ours:8.1} {textbook:8.1} {:6.2}x", textbook / ours);
}

fn main() {
    println!("{:<44} {:>8} {:>8}  {:>6}", "ns a pair", "ours", "textbook", "ratio");
    for (name, size) in [("hit, 4 KiB", 4 * KIB), ("hit, 1 MiB", MIB), ("hit, 129.5 MiB (ours exact)", 259 * MIB / 2)] {
        row(name, pair(&ours(), size), pair(&textbook(), size));
    }
    row("64 taken, then returned, 64 KiB", sixty_four(&ours()), sixty_four(&textbook()));
    row("random mix, 1000 live, 4 KiB .. 32 MiB", mix(&ours()), mix(&textbook()));
    row("used on a stream that is 4 marks behind", used(&ours()), used(&textbook()));
    row("the same, its mark given when enqueued", recorded(), used(&textbook()));
    row("2 threads, 64 KiB, wall / all pairs", threads(&ours()), threads(&textbook()));

    let cache = ours();
    let names: Vec<u64> = (0..1000).map(|_| cache.take(64 * KIB)).collect();
    let addrs: Vec<u64> = names.iter().map(|&n| cache.get(HostHandle::from_bits(n)).unwrap().addr + 100).collect();
    let mut at = 0;
    let find = least(40, 10_000, 1, || {
        at = (at + 389) % addrs.len();
        black_box(cache.find(addrs[at]));
    });
    println!("{:<44} {find:8.1}", "find by interior pointer, 1000 live");
    let stats = least(40, 10_000, 1, || {
        black_box(cache.stats().flat());
    });
    println!("{:<44} {stats:8.1}", "host_memory_stats, flat keys");
}
