//! The cache of one device: what its users call to take memory and give it back. Pools, counters, recordings and closing are
//! in files of their own.

use std::fmt;
use std::sync::Arc;

use super::heap::Heap;
use super::miss::Request;
use super::oom::{AllocError, Observer};
use super::pending::Done;
use super::policy::{Departures, MAX_REQUEST, Rules, SMALL_LIMIT, fraction_limit};
use super::ports::{DeviceMemory, PortError, Ports};
use super::recording::SIDE;
use super::settings::Settings;
use super::slots::{DENSE, bit};
use super::{Allocation, Handle, Uses};
use crate::history::{StackId, StackSource, TAKERS};
use crate::sync::{self, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

pub(super) type Guard<'a> = sync::Guard<'a, Heap>;

/// Why a block could not be given back or found. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The handle names no block in its user's hands: it was given back before, or never handed out.
    #[error("handle {0:#x} names no live block: it was freed already, or never handed out by this device's cache")]
    Stale(u64),
    /// No live block starts at that address.
    #[error(
        "address {0:#x} is not the start of a live block: it was freed already, or never handed out by this device's cache"
    )]
    Unknown(u64),
}

/// A fraction outside [0, 1]. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the memory fraction must lie in [0, 1], not {0}")]
pub struct FractionError(pub f64);

/// A block that was still in its user's hands when the cache was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Its address.
    pub addr: u64,
    /// Token of its segment.
    pub segment: u64,
    /// Its place in the segment.
    pub offset: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// The block's size.
    pub size: u64,
    /// The stream it was allocated for.
    pub stream: u64,
}

/// The caching allocator of one device.
///
/// All methods may be called from any thread. None starts a runtime: the ports belong to one that runs.
pub struct DeviceCache {
    pub(super) device: u32,
    pub(super) ports: Ports,
    heap: Mutex<Heap>,
    /// Something that was [leaving](Heap::leaving) has left, or was refused.
    left: Condvar,
    /// What the next allocation has to look at first: a bit for each dense stream slot with a queue, the top bit for
    /// parked blocks and the queues of further streams. Written under the lock.
    pub(super) attention: AtomicU64,
    /// What a call has to look at before it takes the lock: the bits of `recording`.
    pub(super) notice: AtomicU64,
    /// Set while some stream is under capture.
    pub(super) capturing: AtomicBool,
    /// The stream of each dense slot, for polling without the lock.
    pub(super) names: [AtomicU64; DENSE as usize],
    pub(super) side: Mutex<Vec<(Handle, Uses)>>,
    pub(super) observers: Mutex<Vec<Arc<Observer>>>,
    /// Where a recording's stacks come from. Taken before the heap's lock, never after.
    pub(super) source: Mutex<Option<Arc<dyn StackSource>>>,
}

impl fmt::Debug for DeviceCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceCache").field("device", &self.device).field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl DeviceCache {
    /// A cache over the ports of device `device`. Asks the device for its total memory, nothing else.
    pub fn new(device: u32, ports: Ports, settings: Settings, departures: Departures) -> Self {
        let total = ports.segments.memory().total;
        let can_grow = ports.growable.is_some();
        DeviceCache {
            device,
            ports,
            heap: Mutex::new(Heap::new(total, settings, can_grow, departures)),
            attention: AtomicU64::new(0),
            notice: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            left: Condvar::new(),
            side: Mutex::new(Vec::new()),
            observers: Mutex::new(Vec::new()),
            source: Mutex::new(None),
        }
    }

    /// A panic under the lock would be a bug of this module, and no reason to take the process down with it.
    #[inline(always)]
    pub(super) fn lock(&self) -> Guard<'_> {
        let mut heap = self.heap.lock();
        heap.caller = StackId::EMPTY;
        heap
    }

    /// [`lock`](DeviceCache::lock) for the hot paths, which say themselves whose call it is where it matters.
    #[inline(always)]
    fn lock_for_hit(&self) -> Guard<'_> {
        self.heap.lock()
    }

    /// Calls the device without the lock.
    pub(super) fn outside<'a, T>(&'a self, heap: Guard<'a>, call: impl FnOnce() -> T) -> (Guard<'a>, T) {
        let caller = heap.caller;
        drop(heap);
        let out = call();
        let mut heap = self.lock();
        heap.caller = caller;
        (heap, out)
    }

    /// Calls the device to give `bytes` back, which others may wait for.
    pub(super) fn give_up<'a, T>(
        &'a self,
        mut heap: Guard<'a>,
        bytes: u64,
        call: impl FnOnce() -> T,
    ) -> (Guard<'a>, T) {
        heap.leaving += bytes;
        let (mut heap, out) = self.outside(heap, call);
        heap.leaving -= bytes;
        heap.departed += 1;
        self.left.notify_all();
        (heap, out)
    }

    /// Waits until some of what other threads are giving back has left.
    pub(super) fn wait_for_leaving<'a>(&'a self, heap: Guard<'a>) -> Guard<'a> {
        let caller = heap.caller;
        let mut heap = self.left.wait(heap, None);
        heap.caller = caller;
        heap
    }

    /// Takes `size` bytes for `stream`. `None` for 0 bytes: nothing is counted.
    ///
    /// # Errors
    /// [`AllocError`]; counters then say only what they count of failures.
    pub fn alloc(&self, size: u64, stream: u64) -> Result<Option<Allocation>, AllocError> {
        self.take(size, stream, false)
    }

    /// [`alloc`](DeviceCache::alloc) as far as it needs neither the device nor a wait: `None` if it does, or for 0 bytes.
    #[inline]
    pub fn alloc_cached(&self, size: u64, stream: u64) -> Option<Allocation> {
        let busy = self.attention.load(Ordering::Acquire) != 0 || self.notice.load(Ordering::Acquire) != 0;
        if size == 0 || size >= MAX_REQUEST || busy {
            return None;
        }
        let mut heap = self.lock_for_hit();
        // What is recorded is recorded by `alloc`.
        if heap.unusual {
            return None;
        }
        let rounded = heap.rules.round(size);
        let shelf = heap.shelf_for(usize::from(rounded > SMALL_LIMIT), stream);
        let id = heap.search(shelf, rounded);
        if id == super::arena::NIL {
            return None;
        }
        heap.unshelve(id);
        Some(heap.hand_out(id, rounded, size, false))
    }

    /// [`alloc`](DeviceCache::alloc) for callers that will name the block by its address; 0 for 0 bytes.
    ///
    /// # Errors
    /// As [`alloc`](DeviceCache::alloc).
    pub fn alloc_at(&self, size: u64, stream: u64) -> Result<u64, AllocError> {
        Ok(self.take(size, stream, true)?.map_or(0, |block| block.addr))
    }

    #[inline(always)]
    fn take(&self, size: u64, stream: u64, indexed: bool) -> Result<Option<Allocation>, AllocError> {
        if size == 0 {
            return Ok(None);
        }
        if size >= MAX_REQUEST {
            return Err(AllocError::TooLarge { device: self.device, requested: size });
        }
        if self.attention.load(Ordering::Acquire) != 0 || self.notice.load(Ordering::Acquire) != 0 {
            return self.take_noticed(size, stream, indexed);
        }
        self.take_locked(self.lock_for_hit(), StackId::EMPTY, size, stream, indexed)
    }

    /// [`take`](DeviceCache::take) where blocks wait for their uses to end, or stacks are recorded.
    #[inline(never)]
    fn take_noticed(&self, size: u64, stream: u64, indexed: bool) -> Result<Option<Allocation>, AllocError> {
        let mut done = Done::default();
        if self.attention.load(Ordering::Acquire) != 0 || self.notice.load(Ordering::Acquire) & SIDE != 0 {
            self.poll(&mut done)?;
        }
        let mut heap =
            if self.notice.load(Ordering::Relaxed) & TAKERS == 0 { self.lock() } else { self.enter_as(None) };
        if done.any() {
            self.apply(&mut heap, &done);
        }
        let caller = heap.caller;
        self.take_locked(heap, caller, size, stream, indexed)
    }

    #[inline(always)]
    fn take_locked<'a>(
        &'a self,
        heap: Guard<'a>,
        caller: StackId,
        size: u64,
        stream: u64,
        indexed: bool,
    ) -> Result<Option<Allocation>, AllocError> {
        if heap.unusual {
            return self.take_unusual(heap, caller, size, stream, indexed);
        }
        self.place::<false>(heap, caller, size, stream, indexed)
    }

    /// [`take`](DeviceCache::take) of a cache that is closed or recorded.
    #[inline(never)]
    fn take_unusual<'a>(
        &'a self,
        heap: Guard<'a>,
        caller: StackId,
        size: u64,
        stream: u64,
        indexed: bool,
    ) -> Result<Option<Allocation>, AllocError> {
        if heap.closed {
            return Err(AllocError::Closed { device: self.device });
        }
        self.place::<true>(heap, caller, size, stream, indexed)
    }

    /// Finds a block for a request and hands it out, noted or not.
    #[inline(always)]
    fn place<'a, const NOTED: bool>(
        &'a self,
        mut heap: Guard<'a>,
        caller: StackId,
        size: u64,
        stream: u64,
        indexed: bool,
    ) -> Result<Option<Allocation>, AllocError> {
        let rounded = heap.rules.round(size);
        let kind = usize::from(rounded > SMALL_LIMIT);
        let shelf = heap.shelf_for(kind, stream);
        let id = heap.search(shelf, rounded);
        if id != super::arena::NIL {
            heap.unshelve(id);
            let block = heap.hand_out(id, rounded, size, indexed);
            if NOTED {
                heap.caller = caller;
                heap.note_taken(id);
            }
            return Ok(Some(block));
        }
        heap.caller = caller;
        let segment = heap.rules.segment(rounded);
        self.miss(heap, &Request { size, rounded, segment, shelf, kind, stream, indexed }).map(Some)
    }

    /// Gives a block back. If other streams were recorded as using it, it is reused only when their work so far is done.
    ///
    /// # Errors
    /// [`FreeError::Stale`] for a handle that is not live.
    pub fn free(&self, handle: Handle) -> Result<(), FreeError> {
        self.give(handle, 0)
    }

    /// [`free`](DeviceCache::free), with uses that were collected outside.
    ///
    /// # Errors
    /// As [`free`](DeviceCache::free).
    pub fn free_used(&self, handle: Handle, uses: Uses) -> Result<(), FreeError> {
        self.give(handle, uses.0)
    }

    #[inline(always)]
    fn give(&self, handle: Handle, uses: u64) -> Result<(), FreeError> {
        let mut heap = self.lock_for_hit();
        if heap.recorder.is_some() {
            return self.give_recorded(self.on_behalf(heap), handle, uses);
        }
        let id = heap.live(handle).ok_or(FreeError::Stale(handle.to_bits()))?;
        let pending = heap.give_back(id, uses);
        if pending == 0 {
            heap.end(id);
        } else {
            heap.outlasts_capture(id, uses);
            self.defer(heap, id, pending);
        }
        Ok(())
    }

    /// [`give`](DeviceCache::give) where events are recorded, or may be.
    #[inline(never)]
    pub(super) fn give_recorded(&self, mut heap: Guard<'_>, handle: Handle, uses: u64) -> Result<(), FreeError> {
        let id = heap.live(handle).ok_or(FreeError::Stale(handle.to_bits()))?;
        self.give_block(heap.give_back(id, uses), heap, id);
        Ok(())
    }

    fn give_block(&self, uses: u64, mut heap: Guard<'_>, id: u32) {
        if uses == 0 {
            heap.finish(id);
        } else {
            self.defer(heap, id, uses);
        }
    }

    /// Gives back the block that starts at an address; 0 is no block and no error.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] for an address where no live block starts.
    pub fn free_at(&self, addr: u64) -> Result<(), FreeError> {
        if addr == 0 {
            return Ok(());
        }
        let mut heap = self.lock();
        if heap.recorder.is_some() {
            heap = self.on_behalf(heap);
        }
        let id = heap.live_at(addr).ok_or(FreeError::Unknown(addr))?;
        let uses = heap.give_back(id, 0);
        self.give_block(uses, heap, id);
        Ok(())
    }

    /// Gives a block back from inside a host function, where streams may not be touched: the next allocation or trim does it.
    pub fn free_later(&self, handle: Handle, uses: Uses) {
        self.side.lock().push((handle, uses));
        self.notice.fetch_or(SIDE, Ordering::Release);
    }

    /// Notes that `stream` uses the block too. Its own stream needs no note.
    ///
    /// # Errors
    /// [`FreeError::Stale`] for a handle that is not live.
    pub fn record(&self, handle: Handle, stream: u64) -> Result<(), FreeError> {
        let mut heap = self.lock();
        let id = heap.live(handle).ok_or(FreeError::Stale(handle.to_bits()))?;
        heap.record(id, stream);
        Ok(())
    }

    /// [`record`](DeviceCache::record) for the block that starts at an address.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] for an address where no live block starts.
    pub fn record_at(&self, addr: u64, stream: u64) -> Result<(), FreeError> {
        let mut heap = self.lock();
        let id = heap.live_at(addr).ok_or(FreeError::Unknown(addr))?;
        heap.record(id, stream);
        Ok(())
    }

    /// The bit that stands for uses by `stream`, for [`free_used`](DeviceCache::free_used), until it is
    /// [forgotten](DeviceCache::forget). Where a device has more than 63 streams at a time, the others share one bit.
    pub fn use_of(&self, stream: u64) -> Uses {
        Uses(bit(self.lock().slot(stream)))
    }

    /// Address and size of the live block that starts at `addr`.
    pub fn find(&self, addr: u64) -> Option<Allocation> {
        let mut heap = self.lock();
        let id = heap.live_at(addr)?;
        let block = &heap.arena[id];
        let raw = heap.segs[block.seg as usize].raw;
        Some(Allocation {
            handle: Handle::new(id, block.generation),
            addr,
            size: block.size,
            segment: raw.token,
            offset: addr - raw.addr,
        })
    }

    /// Limits reserved memory to floor(`fraction` x total); 1.0 lifts the limit.
    ///
    /// # Errors
    /// A fraction outside [0, 1], NaN included.
    pub fn set_fraction(&self, fraction: f64) -> Result<(), FractionError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(FractionError(fraction));
        }
        let mut heap = self.lock();
        heap.limit = fraction_limit(fraction, heap.total);
        heap.update_collecting();
        Ok(())
    }

    /// Limits reserved memory to a number of bytes: a segment is requested if and only if reserved + its size <= cap.
    /// `None` lifts the limit. It holds beside that of the fraction.
    pub fn set_budget(&self, cap: Option<u64>) {
        let mut heap = self.lock();
        heap.budget = cap;
        heap.update_collecting();
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Puts other settings in force, for all that is allocated from now on. The fraction in them only matters to
    /// `throw_on_cudamalloc_oom`: the limit in force is that of [`set_fraction`](DeviceCache::set_fraction).
    pub fn set_settings(&self, settings: Settings) {
        let mut heap = self.lock();
        heap.rules = Rules::new(&settings, self.ports.growable.is_some());
        heap.settings = settings;
        heap.update_collecting();
    }

    /// Total and free memory of the device, all processes together.
    pub fn memory(&self) -> DeviceMemory {
        self.ports.segments.memory()
    }

    /// A capture begins on `stream`: until it ends no use is polled and nothing is given back to the device.
    pub fn capture_begin(&self, stream: u64) {
        let mut heap = self.lock();
        if !heap.captures.contains(&stream) {
            heap.captures.push(stream);
        }
        self.capturing.store(true, Ordering::Release);
    }

    /// The capture on `stream` has ended, however it did.
    pub fn capture_end(&self, stream: u64) {
        let mut heap = self.lock();
        heap.captures.retain(|&s| s != stream);
        self.capturing.store(heap.capturing(), Ordering::Release);
    }

    /// Bytes of bookkeeping, all in all.
    pub fn footprint(&self) -> usize {
        let heap = self.lock();
        heap.arena.footprint()
            + heap.addresses.footprint()
            + heap.shelves.iter().map(super::shelf::Shelf::footprint).sum::<usize>()
            + heap.segs.capacity() * size_of::<super::heap::Seg>()
            + size_of::<DeviceCache>()
    }

    /// Gives every segment back to the device, once each, and refuses allocations from then on.
    /// Returns the blocks that were still in their users' hands, by address: their memory is gone, their handles are stale.
    ///
    /// # Errors
    /// The first call to the device that failed. It was made once more; what was refused again stays reserved.
    pub fn close(&self) -> (Vec<Leak>, Result<(), PortError>) {
        self.shut()
    }
}

impl Drop for DeviceCache {
    /// Closes the cache if nobody did.
    fn drop(&mut self) {
        let _ = self.shut();
    }
}
