//! Models of the memory caches for loom, which tries the orders in which threads can meet.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p anyaccel-engine --release --lib loom`. The caches are the real ones over a device
//! of a few lines. Each model has two or three threads; orders with more than a few forced switches are left out, which
//! is what keeps them to seconds.
//!
//! What they are to notice was broken once, each alone: order and publication of `attention`, `names` and `notice`, who has a
//! slot, the order of marks, `seized`, captures, what is leaving. Two weaker orders change nothing: `free_later` sets `notice`
//! after it let go of `side`'s lock, which the reader takes as well, so whoever sees the bit comes behind it in the order of
//! that lock; and `capturing` carries no data, for what it forbids is asked again under the lock.

mod closing;
mod device;
mod hints;
mod pinned;

use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use crate::alloc::{
    AllocError, Allocation, Departures, DeviceCache, DeviceMemory, Marks, PortError, Ports, RawSegment, Segments,
    Settings, Virtual,
};
use crate::pinned::{HostSegments, RawHost};
use crate::sync::{AtomicU64, Mutex, Ordering};

const MIB: u64 = 1 << 20;

/// As large as its segment, so that a block is a segment and the device's room is a number of blocks.
const BLOCK: u64 = 20 * MIB;

/// Runs a model over all orders with at most so many forced switches.
fn model(switches: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 10_000;
    builder.check(body);
}

/// Does something with a shared value on another thread.
fn beside<T: Send + Sync + 'static, R: 'static>(
    shared: &Arc<T>,
    work: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("it ends")
}

/// What the device holds.
struct Book {
    room: u64,
    used: u64,
    next: u64,
    live: Vec<(u64, u64)>,
    /// Segments that other streams' work uses, until the end of which mark.
    uses: Vec<(u64, u64)>,
}

/// Memory that is only numbers, and streams whose marks end when the model says so.
struct Device {
    book: Mutex<Book>,
    /// The last mark made, of any stream.
    made: AtomicU64,
    /// The last mark that has ended.
    ended: AtomicU64,
    /// A stream that is gone, all of whose marks have ended.
    gone: AtomicU64,
    /// How often somebody asked how far a stream is.
    asked: AtomicU64,
    /// How often somebody had to wait for a stream.
    waits: AtomicU64,
}

impl Device {
    /// A device with room for so many blocks, and for a segment of small ones.
    fn new(blocks: u64) -> Arc<Self> {
        Arc::new(Self {
            book: Mutex::new(Book {
                room: blocks * BLOCK + 2 * MIB,
                used: 0,
                next: 1 << 40,
                live: Vec::new(),
                uses: Vec::new(),
            }),
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        })
    }

    fn cache(self: &Arc<Self>) -> Arc<DeviceCache> {
        self.cache_with("")
    }

    fn cache_with(self: &Arc<Self>, settings: &str) -> Arc<DeviceCache> {
        let ports = Ports { segments: self.clone(), growable: Some(self.clone()), marks: self.clone() };
        let settings = Settings::parse(settings).expect("it is valid");
        Arc::new(DeviceCache::new(0, ports, settings, Departures::ALL))
    }

    /// Work on the segment of a block is enqueued, which only a mark made from now on covers.
    fn enqueue(&self, block: Allocation) {
        self.book.lock().uses.push((block.addr, self.made.load(Ordering::Acquire) + 1));
    }

    /// All work that has a mark ends.
    fn finish(&self) {
        self.ended.fetch_max(self.made.load(Ordering::Acquire), Ordering::AcqRel);
    }

    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Acquire)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    fn segments(&self) -> usize {
        self.book.lock().live.len()
    }

    /// Bytes in use, mapped ones too.
    fn used(&self) -> u64 {
        self.book.lock().used
    }

    fn take(&self, len: u64) -> Result<u64, PortError> {
        let mut book = self.book.lock();
        if book.used + len > book.room {
            return Err(PortError::OutOfMemory);
        }
        book.used += len;
        let addr = book.next;
        book.next += len + MIB;
        book.live.push((addr, len));
        Ok(addr)
    }

    fn give(&self, addr: u64, len: u64) {
        let mut book = self.book.lock();
        let at = book.live.iter().position(|&live| live == (addr, len)).expect("given back once, as it was taken");
        book.live.swap_remove(at);
        book.used -= len;
    }
}

impl Segments for Device {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let addr = self.take(len)?;
        Ok(RawSegment { token: addr, addr, len })
    }

    fn free(&self, segment: RawSegment, _stream: u64) -> Result<(), PortError> {
        let ended = self.ended.load(Ordering::Acquire);
        let unused = self.book.lock().uses.iter().all(|&(addr, mark)| addr != segment.addr || mark <= ended);
        assert!(unused, "memory given back that a stream still uses");
        self.give(segment.addr, segment.len);
        Ok(())
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { total: 64 * BLOCK, free: None }
    }
}

impl Virtual for Device {
    fn reserve(&self, len: u64, _unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let mut book = self.book.lock();
        let addr = book.next;
        book.next += len + MIB;
        Ok(RawSegment { token: addr, addr, len })
    }

    fn release(&self, _range: RawSegment) -> Result<(), PortError> {
        Ok(())
    }

    fn map(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        let mut book = self.book.lock();
        if book.used + len > book.room {
            return Err(PortError::OutOfMemory);
        }
        book.used += len;
        Ok(())
    }

    fn unmap(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64, _stream: u64) -> Result<(), PortError> {
        let mut book = self.book.lock();
        book.used = book.used.checked_sub(len).expect("only what was mapped");
        Ok(())
    }
}

impl HostSegments for Device {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let addr = self.take(len)?;
        Ok(RawHost { token: addr, addr, len })
    }

    fn free(&self, memory: RawHost) -> Result<(), PortError> {
        self.give(memory.addr, memory.len);
        Ok(())
    }
}

impl Marks for Device {
    fn mark(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(self.made.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        // No model has uses by stream 0, which is what an unset name says.
        assert_ne!(stream, 0, "a stream is asked that made no mark");
        self.asked.fetch_add(1, Ordering::AcqRel);
        if self.gone.load(Ordering::Acquire) == stream {
            return Ok(u64::MAX);
        }
        Ok(self.ended.load(Ordering::Acquire))
    }

    fn wait(&self, _stream: u64, mark: u64) -> Result<(), PortError> {
        self.waits.fetch_add(1, Ordering::AcqRel);
        self.ended.fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }
}

/// Takes a block on stream 0.
#[track_caller]
fn take(cache: &DeviceCache) -> Allocation {
    try_take(cache).expect("there is room")
}

/// Takes a block on stream 0, unless there is no room.
#[track_caller]
fn try_take(cache: &DeviceCache) -> Option<Allocation> {
    match cache.alloc(BLOCK, 0) {
        Ok(block) => block,
        Err(AllocError::OutOfMemory(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Nothing contradicts itself, and so many blocks are in their users' hands.
#[track_caller]
fn sound(cache: &DeviceCache, blocks: u64) {
    cache.audit().expect("sound");
    assert_eq!(cache.allocated(), blocks * BLOCK);
}
