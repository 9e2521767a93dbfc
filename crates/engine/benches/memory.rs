//! The caching allocator's hot paths, each beside a textbook best fit (an ordered set, a hash map and a mutex) in the
//! same run. `cargo bench -p anyaccel-engine` prints nanoseconds a pair and the ratio; what to trust is the ratio.
//!
//! The device hands out address space only, so no driver time is in the figures. Each is the least of several rounds.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyaccel_engine::alloc::replay::FakeDevice;
use anyaccel_engine::alloc::{Departures, DeviceCache, Marks, PortError, Ports, Settings};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What the rows measure.
trait Allocator: Sync {
    /// What names a block.
    type Name: Copy + Default + Send;
    fn take(&self, size: u64) -> Self::Name;
    fn give(&self, name: Self::Name);
}

struct ByHandle(DeviceCache);

impl Allocator for ByHandle {
    type Name = u64;
    fn take(&self, size: u64) -> u64 {
        self.0.alloc(size, 0).unwrap().map_or(0, |b| b.handle.to_bits())
    }
    fn give(&self, name: u64) {
        self.0.free(anyaccel_engine::alloc::Handle::from_bits(name)).unwrap();
    }
}

struct ByAddress(DeviceCache);

impl Allocator for ByAddress {
    type Name = u64;
    fn take(&self, size: u64) -> u64 {
        self.0.alloc_at(size, 0).unwrap()
    }
    fn give(&self, name: u64) {
        self.0.free_at(name).unwrap();
    }
}

/// Best fit as a textbook has it: no statistics, no streams, one pool for each of the two sizes of segment.
#[derive(Default)]
struct Textbook(Mutex<Book>);

#[derive(Default)]
struct Book {
    free: [BTreeSet<(u64, u64)>; 2],
    blocks: HashMap<u64, Piece>,
    top: u64,
}

#[derive(Clone, Copy)]
struct Piece {
    size: u64,
    prev: u64,
    next: u64,
    large: bool,
    free: bool,
}

impl Allocator for Textbook {
    type Name = u64;

    fn take(&self, size: u64) -> u64 {
        let mut book = self.0.lock().unwrap();
        let size = size.next_multiple_of(512);
        let large = size > MIB;
        let list = usize::from(large);
        let addr = match book.free[list].range((size, 0)..).next().copied() {
            Some(entry) => {
                book.free[list].remove(&entry);
                entry.1
            }
            None => {
                let len = if !large { 2 * MIB } else { size.max(20 * MIB) };
                book.top += 64 * MIB + len;
                let addr = book.top;
                book.blocks.insert(addr, Piece { size: len, prev: 0, next: 0, large, free: false });
                addr
            }
        };
        let piece = book.blocks[&addr];
        let rest = piece.size - size;
        if rest >= if large { MIB + 1 } else { 512 } {
            let high = addr + size;
            book.blocks.insert(high, Piece { size: rest, prev: addr, next: piece.next, large, free: true });
            if let Some(next) = book.blocks.get_mut(&piece.next) {
                next.prev = high;
            }
            book.blocks.insert(addr, Piece { size, next: high, free: false, ..piece });
            book.free[list].insert((rest, high));
        } else {
            book.blocks.insert(addr, Piece { free: false, ..piece });
        }
        addr
    }

    fn give(&self, addr: u64) {
        let mut book = self.0.lock().unwrap();
        let (mut addr, mut piece) = (addr, book.blocks[&addr]);
        let list = usize::from(piece.large);
        if let Some(&prev) = book.blocks.get(&piece.prev).filter(|p| p.free) {
            book.free[list].remove(&(prev.size, piece.prev));
            book.blocks.remove(&addr);
            addr = piece.prev;
            piece = Piece { size: prev.size + piece.size, prev: prev.prev, ..piece };
        }
        if let Some(&next) = book.blocks.get(&piece.next).filter(|p| p.free) {
            book.free[list].remove(&(next.size, piece.next));
            book.blocks.remove(&piece.next);
            piece = Piece { size: next.size + piece.size, next: next.next, ..piece };
        }
        if let Some(next) = book.blocks.get_mut(&piece.next) {
            next.prev = addr;
        }
        book.blocks.insert(addr, Piece { free: true, ..piece });
        book.free[list].insert((piece.size, addr));
    }
}

/// Streams on which everything ends at once, as light as a backend's could be.
#[derive(Default)]
struct Instantly([AtomicU64; 4]);

impl Marks for Instantly {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.0[stream as usize & 3].fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.0[stream as usize & 3].load(Ordering::Relaxed))
    }
    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

fn cache() -> DeviceCache {
    let device = Arc::new(FakeDevice::quiet(1 << 46));
    let ports = Ports { marks: Arc::new(Instantly::default()), ..device.ports() };
    DeviceCache::new(0, ports, Settings::default(), Departures::ALL)
}

/// Least nanoseconds per call of `work`, which does `n` things a call.
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

fn pair<A: Allocator>(a: &A, size: u64) -> f64 {
    least(40, 20_000, 1, || a.give(black_box(a.take(black_box(size)))))
}

fn sixty_four<A: Allocator>(a: &A) -> f64 {
    let mut names = [A::Name::default(); 64];
    least(40, 400, 64, || {
        for name in &mut names {
            *name = a.take(64 * KIB);
        }
        for name in &names {
            a.give(*name);
        }
    })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// 512 B to 16 MiB, each octave as likely.
    fn size(&mut self) -> u64 {
        let octave = 512u64 << (self.next() % 15);
        octave + self.next() % octave
    }
}

fn mix<A: Allocator>(a: &A) -> f64 {
    let mut random = Random(42);
    let mut names: Vec<A::Name> = (0..1000).map(|_| a.take(random.size())).collect();
    let work: Vec<(usize, u64)> = (0..100_000).map(|_| (random.next() as usize % 1000, random.size())).collect();
    // In slices short enough that some rounds of each are not interrupted; the least of each counts.
    let mut best = [f64::MAX; 20];
    for _ in 0..12 {
        for (best, slice) in best.iter_mut().zip(work.chunks(5000)) {
            let took = least(1, 1, 5000, || {
                for &(at, size) in slice {
                    a.give(names[at]);
                    names[at] = a.take(size);
                }
            });
            *best = best.min(took);
        }
    }
    names.into_iter().for_each(|name| a.give(name));
    best.iter().sum::<f64>() / 20.0
}

/// Wall time over the pairs of both threads, from the first start to the last end; the quartile of many rounds, since the
/// least would be one where they missed each other.
fn threads<A: Allocator>(a: &A) -> f64 {
    const PAIRS: u32 = 50_000;
    let mut rounds: Vec<f64> = (0..41)
        .map(|_| {
            let ready = AtomicU64::new(0);
            let work = || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                for _ in 0..PAIRS {
                    a.give(black_box(a.take(64 * KIB)));
                }
                (start, Instant::now())
            };
            let (one, two) = std::thread::scope(|s| {
                let other = s.spawn(work);
                (work(), other.join().expect("the work does not panic"))
            });
            let took = one.1.max(two.1) - one.0.min(two.0);
            took.as_nanos() as f64 / f64::from(2 * PAIRS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 4]
}

fn row(name: &str, ours: f64, textbook: Option<f64>, goal: f64) {
    let ratio = textbook.map_or(String::from("n/a"), |t| format!("{t:7.1} {:6.2}x", t / ours));
    let verdict = if ours <= goal { "met" } else { "MISSED" };
    println!("{name:<44} {ours:8.1} {ratio:>16} {goal:8.0} {verdict}");
}

fn main() {
    println!("{:<44} {:>8} {:>16} {:>8}", "ns a pair", "ours", "textbook  ratio", "goal");
    for (name, size) in [
        ("cache hit, 512 B", 512),
        ("cache hit, 4 KiB", 4 * KIB),
        ("cache hit, 64 KiB", 64 * KIB),
        ("cache hit, 1 MiB", MIB),
        ("cache hit, 20 MiB", 20 * MIB),
    ] {
        row(name, pair(&ByHandle(cache()), size), Some(pair(&Textbook::default(), size)), 45.0);
    }
    let textbook = pair(&Textbook::default(), 64 * KIB);
    row("by address, 64 KiB", pair(&ByAddress(cache()), 64 * KIB), Some(textbook), 55.0);
    row(
        "64 taken, then returned, 64 KiB",
        sixty_four(&ByHandle(cache())),
        Some(sixty_four(&Textbook::default())),
        60.0,
    );
    row("random mix, 1000 live, 512 B .. 16 MiB", mix(&ByHandle(cache())), Some(mix(&Textbook::default())), 120.0);
    row("2 threads, 64 KiB, wall / all pairs", threads(&ByHandle(cache())), Some(threads(&Textbook::default())), 100.0);

    let recorded = cache();
    let ours = least(40, 10_000, 1, || {
        if let Some(block) = recorded.alloc(64 * KIB, 0).unwrap() {
            recorded.record(block.handle, 1).unwrap();
            recorded.free(block.handle).unwrap();
        }
    });
    row("with record and mark, 64 KiB", ours, None, 120.0);
    let used = recorded.use_of(1);
    let ours = least(40, 10_000, 1, || {
        if let Some(block) = recorded.alloc(64 * KIB, 0).unwrap() {
            recorded.free_used(block.handle, used).unwrap();
        }
    });
    row("with uses given at the free, and mark", ours, None, 120.0);
    let stats = least(40, 10_000, 1, || {
        black_box(recorded.stats());
    });
    row("memory_stats, a struct", stats, None, 200.0);
    let flat = least(40, 10_000, 1, || {
        black_box(recorded.stats().values());
    });
    row("memory_stats, the values of the flat keys", flat, None, 200.0);

    println!();
    for (name, size) in [("512 B", 512u64), ("3 KiB", 3 * KIB), ("64 KiB", 64 * KIB), ("1 MiB", MIB)] {
        let cache = cache();
        for _ in 0..1_000_000 {
            cache.alloc_at(size, 0).unwrap();
        }
        let each = cache.footprint() as f64 / 1e6;
        let verdict = if each <= 96.0 { "met" } else { "MISSED" };
        println!("bookkeeping of 1,000,000 live blocks of {name:<7} {each:8.1} bytes each, goal 96 {verdict}");
    }
}
