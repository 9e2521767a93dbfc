//! What `cargo bench` and `anyaccel bench memory` measure: the caching allocator's hot paths, each beside a textbook best
//! fit (an ordered set, a hash map and a mutex) in the same run. What to trust is the ratio.
//!
//! The device hands out address space only, so no driver time is in the figures. Each is the least of several rounds.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::alloc::replay::FakeDevice;
use crate::alloc::{Departures, DeviceCache, Handle, Marks, PortError, Ports, Settings};
use crate::history::HistoryOptions;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// `ns` a pair of taking and returning, or a call; `bytes` a block.
    pub unit: &'static str,
    /// The figure.
    pub ours: f64,
    /// The textbook's, where it does such a thing.
    pub textbook: Option<f64>,
    /// The project's goal, at most.
    pub goal: f64,
}

impl Row {
    /// How many times as fast as the textbook.
    pub fn ratio(&self) -> Option<f64> {
        self.textbook.map(|textbook| textbook / self.ours)
    }

    /// Whether the goal is met.
    pub fn is_met(&self) -> bool {
        self.ours <= self.goal
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some seconds.
    Full,
    /// A tenth of that; the figures are rougher.
    Quick,
}

impl Effort {
    fn of(self, n: u32) -> u32 {
        match self {
            Effort::Full => n,
            Effort::Quick => (n / 10).max(1),
        }
    }
}

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
        self.0.alloc(size, 0).ok().flatten().map_or(0, |b| b.handle.to_bits())
    }
    fn give(&self, name: u64) {
        let _checked_beforehand = self.0.free(Handle::from_bits(name));
    }
}

struct ByAddress(DeviceCache);

impl Allocator for ByAddress {
    type Name = u64;
    fn take(&self, size: u64) -> u64 {
        self.0.alloc_at(size, 0).unwrap_or(0)
    }
    fn give(&self, name: u64) {
        let _checked_beforehand = self.0.free_at(name);
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

impl Textbook {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allocator for Textbook {
    type Name = u64;

    fn take(&self, size: u64) -> u64 {
        let mut book = self.book();
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
        let mut book = self.book();
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

fn pair<A: Allocator>(effort: Effort, a: &A, size: u64) -> f64 {
    least(effort.of(40), 20_000, 1, || a.give(black_box(a.take(black_box(size)))))
}

fn sixty_four<A: Allocator>(effort: Effort, a: &A) -> f64 {
    let mut names = [A::Name::default(); 64];
    least(effort.of(40), 400, 64, || {
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

fn mix<A: Allocator>(effort: Effort, a: &A) -> f64 {
    let mut random = Random(42);
    let mut names: Vec<A::Name> = (0..1000).map(|_| a.take(random.size())).collect();
    let work: Vec<(usize, u64)> = (0..100_000).map(|_| (random.next() as usize % 1000, random.size())).collect();
    // In slices short enough that some rounds of each are not interrupted; the least of each counts.
    let mut best = [f64::MAX; 20];
    for _ in 0..effort.of(12) {
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
fn threads<A: Allocator>(effort: Effort, a: &A) -> f64 {
    const PAIRS: u32 = 50_000;
    let mut rounds: Vec<f64> = (0..effort.of(41))
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
                let own = work();
                (own, other.join().unwrap_or(own))
            });
            let took = one.1.max(two.1) - one.0.min(two.0);
            took.as_nanos() as f64 / f64::from(2 * PAIRS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 4]
}

/// Whether blocks come and go as they should, so that the figures are of what they say.
fn sound<A: Allocator<Name = u64>>(a: &A) -> bool {
    let (one, other) = (a.take(KIB), a.take(KIB));
    a.give(one);
    let again = a.take(KIB);
    a.give(other);
    a.give(again);
    one != 0 && other != 0 && one != other && again != other
}

/// Measures everything and gives each row as soon as it is there.
pub fn memory(effort: Effort, row: &mut dyn FnMut(Row)) {
    let ns = |name, ours, textbook, goal| Row { name, unit: "ns", ours, textbook, goal };
    for (name, size) in [
        ("cache hit, 512 B", 512),
        ("cache hit, 4 KiB", 4 * KIB),
        ("cache hit, 64 KiB", 64 * KIB),
        ("cache hit, 1 MiB", MIB),
        ("cache hit, 20 MiB", 20 * MIB),
    ] {
        let measure = |ours: &ByHandle, textbook: &Textbook| (pair(effort, ours, size), pair(effort, textbook, size));
        let (ours, textbook) = beside(ByHandle(cache()), measure);
        row(ns(name, ours, Some(textbook), 45.0));
    }
    let (ours, textbook) =
        beside(ByAddress(cache()), |ours, book| (pair(effort, ours, 64 * KIB), pair(effort, book, 64 * KIB)));
    row(ns("by address, 64 KiB", ours, Some(textbook), 55.0));
    let (ours, textbook) = beside(ByHandle(cache()), |ours, book| (sixty_four(effort, ours), sixty_four(effort, book)));
    row(ns("64 taken, then returned, 64 KiB", ours, Some(textbook), 60.0));
    let (ours, textbook) = beside(ByHandle(cache()), |ours, book| (mix(effort, ours), mix(effort, book)));
    row(ns("random mix, 1000 live, 512 B .. 16 MiB", ours, Some(textbook), 120.0));
    let (ours, textbook) = beside(ByHandle(cache()), |ours, book| (threads(effort, ours), threads(effort, book)));
    row(ns("2 threads, 64 KiB, wall / all pairs", ours, Some(textbook), 100.0));

    let recorded = cache();
    let ours = least(effort.of(40), 10_000, 1, || {
        if let Ok(Some(block)) = recorded.alloc(64 * KIB, 0) {
            let _live = recorded.record(block.handle, 1).and_then(|()| recorded.free(block.handle));
        }
    });
    row(ns("with record and mark, 64 KiB", ours, None, 120.0));
    let used = recorded.use_of(1);
    let ours = least(effort.of(40), 10_000, 1, || {
        if let Ok(Some(block)) = recorded.alloc(64 * KIB, 0) {
            let _live = recorded.free_used(block.handle, used);
        }
    });
    row(ns("with uses given at the free, and mark", ours, None, 120.0));
    // A pair is three events: taken, given back, free.
    let (plain, kept) = (ByHandle(cache()), ByHandle(cache()));
    kept.0.record_history(Some(&HistoryOptions::new(100_000)), false);
    let ours = (pair(effort, &kept, 64 * KIB) - pair(effort, &plain, 64 * KIB)).max(0.0) / 3.0;
    row(ns("recording an event without its stack", ours, None, 100.0));
    let went = cache();
    for stream in 1..=1000 {
        went.use_of(stream);
        went.forget(stream);
    }
    let used = went.use_of(1001);
    let ours = least(effort.of(40), 10_000, 1, || {
        if let Ok(Some(block)) = went.alloc(64 * KIB, 0) {
            let _live = went.free_used(block.handle, used);
        }
    });
    row(ns("the same after 1000 streams that went", ours, None, 120.0));
    let stats = least(effort.of(40), 10_000, 1, || {
        black_box(recorded.stats());
    });
    row(ns("memory_stats, a struct", stats, None, 200.0));
    let flat = least(effort.of(40), 10_000, 1, || {
        black_box(recorded.stats().values());
    });
    row(ns("memory_stats, values of the flat keys", flat, None, 200.0));

    for (name, size) in [
        ("bookkeeping of live blocks of 512 B", 512u64),
        ("bookkeeping of live blocks of 3 KiB", 3 * KIB),
        ("bookkeeping of live blocks of 64 KiB", 64 * KIB),
        ("bookkeeping of live blocks of 1 MiB", MIB),
    ] {
        let cache = cache();
        let live = (0..effort.of(1_000_000)).filter(|_| cache.alloc_at(size, 0).is_ok()).count();
        row(Row { name, unit: "bytes", ours: cache.footprint() as f64 / live as f64, textbook: None, goal: 96.0 });
    }
}

/// Ours and the textbook's figure; infinite if ours does not work.
fn beside<A: Allocator<Name = u64>>(ours: A, measure: impl Fn(&A, &Textbook) -> (f64, f64)) -> (f64, f64) {
    let (figure, textbook) = measure(&ours, &Textbook::default());
    (if sound(&ours) { figure } else { f64::INFINITY }, textbook)
}
