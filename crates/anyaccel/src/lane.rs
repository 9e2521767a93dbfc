//! Lanes: a device's native streams, and how the public streams map onto them.
//!
//! A lane is what a stream runs on. The default stream has id 0; each priority has a pool of 32 lanes, made when first
//! needed and handed out in turn, with ids 1 + 32 x level + place; reserved streams have lanes of their own, with ids
//! from 2^32 on, never used again.
//!
//! # What blocks learn from lanes
//!
//! A block may go from one owner to the next while its home lane still works on it, which concerns who uses it on another
//! lane. So where there are several lanes, memory that its home used gives the home a mark when it is dropped
//! ([`Lane::marked`]). While there is one lane nobody makes such marks: instead that lane gets one mark before there is a
//! second ([`Lane::before_others`]), behind all that it did until then. A host function can make none, so it leaves a note
//! ([`Lane::note_unmarked`]) to whoever next gets memory of the lane: the note counts, and is settled by a mark that was
//! made after the count was read.
//!
//! Lanes of the process-wide runtime live as long as the process. They are `&'static`, so that handing out the current
//! stream costs no reference count. Others are counted.

use crate::device::Device;
use crate::error::{Error, Result, panic_message};
use crate::fork;
use crate::graph::Recording;
use crate::port::Port;
use anyaccel_hal::{PriorityRange, StreamId};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Streams of one pool.
pub(crate) const POOL: usize = 32;
const FIRST_RESERVED: u64 = 1 << 32;
/// The id of the lane for staged copies, which has no public stream.
pub(crate) const TRANSFER: u64 = u64::MAX;
/// Of how many reserved lanes that are gone the id is still known.
const REMEMBERED: usize = 1024;

/// One native stream.
pub(crate) struct Lane {
    pub(crate) id: u64,
    pub(crate) device: Device,
    pub(crate) ordinal: u32,
    pub(crate) raw: StreamId,
    pub(crate) priority: i32,
    pub(crate) reserved: bool,
    /// Which bits of a block's uses stand for this lane.
    pub(crate) uses: u64,
    /// How often memory that this lane used was given back without a mark, and how many of them got one later.
    unmarked: AtomicU64,
    settled: AtomicU64,
    /// A mark after the last work on memory that was given back.
    last_freed: AtomicU64,
    /// The mark before there were others.
    before_others: AtomicU64,
    epoch: u64,
    panicked: AtomicBool,
    panic: Mutex<Option<String>>,
    /// Whether `recording` is set: what each operation looks at.
    capturing: AtomicBool,
    /// The capture that it takes part in.
    recording: Mutex<Option<Arc<Recording>>>,
    /// Weak, so that a lane kept by a thread does not keep the device's threads.
    port: Weak<Port>,
}

impl Lane {
    /// Memory that this lane used is about to be given back without a mark.
    pub(crate) fn note_unmarked(&self) {
        self.unmarked.fetch_add(1, Ordering::AcqRel);
    }

    /// What [`Lane::settle`] takes, if notes were left that it has to be called for.
    #[inline]
    pub(crate) fn unsettled(&self) -> Option<u64> {
        let notes = self.unmarked.load(Ordering::Acquire);
        (notes > self.settled.load(Ordering::Acquire)).then_some(notes)
    }

    /// A mark was made after so many notes were seen.
    pub(crate) fn settle(&self, notes: u64, mark: u64) {
        self.marked(mark);
        self.settled.fetch_max(notes, Ordering::AcqRel);
    }

    /// A mark behind the work on memory that is about to be given back.
    pub(crate) fn marked(&self, mark: u64) {
        self.last_freed.fetch_max(mark, Ordering::AcqRel);
    }

    /// The mark behind all work on memory that was given back before now, but for what `unsettled` tells.
    #[inline]
    pub(crate) fn last_freed(&self) -> u64 {
        self.last_freed.load(Ordering::Acquire)
    }

    /// The mark behind all work on memory that was given back while this was the only lane.
    #[inline]
    pub(crate) fn before_others(&self) -> u64 {
        self.before_others.load(Ordering::Acquire)
    }

    /// Keeps the first panic of a host function until the stream is next synchronized.
    pub(crate) fn note_panic(&self, payload: &(dyn Any + Send)) {
        let mut kept = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| panic_message(payload));
        self.panicked.store(true, Ordering::Release);
    }

    /// Whether what is enqueued is recorded instead of run.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    /// The capture that it takes part in. Costs one load where there is none.
    #[inline]
    pub(crate) fn recording(&self) -> Option<Arc<Recording>> {
        if self.is_capturing() { self.take_part() } else { None }
    }

    #[cold]
    fn take_part(&self) -> Option<Arc<Recording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Joins a capture; false if it takes part in another one.
    pub(crate) fn join(&self, recording: &Arc<Recording>) -> bool {
        let mut own = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        match &*own {
            Some(other) => Arc::ptr_eq(other, recording),
            None => {
                *own = Some(Arc::clone(recording));
                self.capturing.store(true, Ordering::Relaxed);
                true
            }
        }
    }

    /// The capture has ended.
    pub(crate) fn leave(&self) {
        let mut own = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        self.capturing.store(false, Ordering::Relaxed);
        let over = own.take();
        drop(own);
        drop(over);
    }

    /// Reports the panic that was kept, once.
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        if !self.panicked.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut kept = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        self.panicked.store(false, Ordering::Release);
        match kept.take() {
            Some(message) => Err(Error::HostPanic { device: self.device, stream: self.id, message }),
            None => Ok(()),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.epoch == fork::epoch()
            && let Some(port) = self.port.upgrade()
        {
            if self.reserved {
                port.lanes.remember(self);
            }
            port.destroy_stream(self.raw);
        }
    }
}

/// A reference to a lane.
#[derive(Clone)]
pub(crate) enum LaneRef {
    Static(&'static Lane),
    Shared(Arc<Lane>),
}

impl Deref for LaneRef {
    type Target = Lane;

    #[inline]
    fn deref(&self) -> &Lane {
        match self {
            Self::Static(lane) => lane,
            Self::Shared(lane) => lane,
        }
    }
}

/// The lanes of one device.
pub(crate) struct Lanes {
    device: Device,
    ordinal: u32,
    /// Whether lanes live as long as the process.
    forever: bool,
    range: PriorityRange,
    default: OnceLock<LaneRef>,
    /// For copies that the engine stages on this device's side.
    transfer: OnceLock<LaneRef>,
    pools: Box<[Pool]>,
    reserved: Mutex<Reserved>,
    reserved_made: AtomicU64,
    /// The driver's names of the last reserved lanes that are gone, with their ids: memory and its history may still name
    /// them.
    left: Mutex<VecDeque<(u64, u64)>>,
    several: AtomicBool,
    making: Mutex<Made>,
}

/// What was made so far.
#[derive(Default)]
struct Made {
    lanes: u64,
    /// The first lane has its mark.
    first_marked: bool,
}

struct Pool {
    next: AtomicUsize,
    lanes: [OnceLock<LaneRef>; POOL],
}

#[derive(Default)]
struct Reserved {
    alive: Vec<Weak<Lane>>,
    /// Length of `alive` at which the dead ones are next swept out.
    sweep_at: usize,
}

impl Lanes {
    pub(crate) fn new(device: Device, ordinal: u32, range: PriorityRange, forever: bool) -> Self {
        let pools = (0..range.levels())
            .map(|_| Pool { next: AtomicUsize::new(0), lanes: std::array::from_fn(|_| OnceLock::new()) })
            .collect();
        Self {
            device,
            ordinal,
            forever,
            range,
            default: OnceLock::new(),
            transfer: OnceLock::new(),
            pools,
            reserved: Mutex::new(Reserved { sweep_at: 64, ..Reserved::default() }),
            reserved_made: AtomicU64::new(0),
            left: Mutex::default(),
            several: AtomicBool::new(false),
            making: Mutex::default(),
        }
    }

    /// Makes a lane. `made` is locked until it can be found by [`Lanes::all`].
    fn make(
        &self,
        made: &mut Made,
        port: &Arc<Port>,
        id: u64,
        priority: i32,
        reserved: bool,
        raw: impl FnOnce() -> Result<StreamId>,
    ) -> Result<Lane> {
        if made.lanes > 0 && !made.first_marked {
            // From here on what is given back is marked. What was given back before comes before this mark.
            self.several.store(true, Ordering::Release);
            for lane in self.all() {
                match port.mark("Stream", &lane) {
                    Ok(mark) => lane.before_others.fetch_max(mark, Ordering::AcqRel),
                    // Nothing is left to wait for (H20).
                    Err(Error::DeviceLost { .. }) => continue,
                    Err(error) => return Err(error),
                };
            }
            made.first_marked = true;
        }
        let raw = raw()?;
        made.lanes += 1;
        Ok(Lane {
            id,
            device: self.device,
            ordinal: self.ordinal,
            raw,
            priority,
            reserved,
            uses: port.uses_of(raw),
            unmarked: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            last_freed: AtomicU64::new(0),
            before_others: AtomicU64::new(0),
            epoch: fork::epoch(),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            capturing: AtomicBool::new(false),
            recording: Mutex::new(None),
            port: Arc::downgrade(port),
        })
    }

    /// Whether there was ever more than one lane.
    pub(crate) fn several(&self) -> bool {
        self.several.load(Ordering::Acquire)
    }

    fn get_or_make(&self, place: &OnceLock<LaneRef>, port: &Arc<Port>, id: u64, priority: i32) -> Result<LaneRef> {
        if let Some(lane) = place.get() {
            return Ok(lane.clone());
        }
        let mut made = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = place.get() {
            return Ok(lane.clone());
        }
        let lane = self.make(&mut made, port, id, priority, false, || port.create_stream(priority))?;
        let lane =
            if self.forever { LaneRef::Static(Box::leak(Box::new(lane))) } else { LaneRef::Shared(Arc::new(lane)) };
        Ok(place.get_or_init(|| lane).clone())
    }

    /// The lane of the default stream.
    #[inline]
    pub(crate) fn default(&self, port: &Arc<Port>) -> Result<LaneRef> {
        match self.default.get() {
            Some(lane) => Ok(lane.clone()),
            None => self.get_or_make(&self.default, port, 0, self.range.clamp(0)),
        }
    }

    /// The lane for staged copies; it has no public stream.
    pub(crate) fn transfer(&self, port: &Arc<Port>) -> Result<LaneRef> {
        self.get_or_make(&self.transfer, port, TRANSFER, self.range.clamp(0))
    }

    /// The next lane of a priority's pool, in turn.
    pub(crate) fn next(&self, port: &Arc<Port>, priority: i32) -> Result<LaneRef> {
        let priority = self.range.clamp(priority);
        let level = (self.range.least - priority) as usize;
        let place = self.pools[level].next.fetch_add(1, Ordering::Relaxed) % POOL;
        self.pooled(port, level, place)
    }

    fn pooled(&self, port: &Arc<Port>, level: usize, place: usize) -> Result<LaneRef> {
        let id = 1 + (level * POOL + place) as u64;
        self.get_or_make(&self.pools[level].lanes[place], port, id, self.range.least - level as i32)
    }

    /// A lane that nobody else gets.
    pub(crate) fn reserve(&self, port: &Arc<Port>, priority: i32) -> Result<LaneRef> {
        let priority = self.range.clamp(priority);
        self.add_reserved(port, priority, || port.create_stream(priority))
    }

    /// A lane over a stream that somebody else made.
    ///
    /// # Safety
    /// `native` is a stream of the device, and lives until the device was synchronized after the lane was dropped.
    pub(crate) unsafe fn import(&self, port: &Arc<Port>, native: u64) -> Result<LaneRef> {
        // SAFETY: passed on.
        self.add_reserved(port, self.range.clamp(0), || unsafe { port.import_stream(native) })
    }

    fn add_reserved(&self, port: &Arc<Port>, priority: i32, raw: impl FnOnce() -> Result<StreamId>) -> Result<LaneRef> {
        let id = FIRST_RESERVED + self.reserved_made.fetch_add(1, Ordering::Relaxed);
        let mut made = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = Arc::new(self.make(&mut made, port, id, priority, true, raw)?);
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.alive.len() >= reserved.sweep_at {
            reserved.alive.retain(|lane| lane.strong_count() > 0);
            reserved.sweep_at = 2 * reserved.alive.len().max(32);
        }
        reserved.alive.push(Arc::downgrade(&lane));
        Ok(LaneRef::Shared(lane))
    }

    /// The lane with that id, if there is or can be one.
    pub(crate) fn by_id(&self, port: &Arc<Port>, id: u64) -> Result<Option<LaneRef>> {
        if id == 0 {
            return self.default(port).map(Some);
        }
        if id < FIRST_RESERVED {
            let number = (id - 1) as usize;
            let (level, place) = (number / POOL, number % POOL);
            return if level < self.pools.len() { self.pooled(port, level, place).map(Some) } else { Ok(None) };
        }
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(reserved.alive.iter().filter_map(Weak::upgrade).find(|lane| lane.id == id).map(LaneRef::Shared))
    }

    /// A reserved lane goes.
    fn remember(&self, lane: &Lane) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.truncate(REMEMBERED - 1);
        left.push_front((lane.raw.0, lane.id));
    }

    /// The ids of the lanes by the driver's names for them: of those that exist, and of the last that are gone.
    pub(crate) fn ids(&self) -> HashMap<u64, u64> {
        let mut alive = HashMap::new();
        for lane in self.all() {
            let id = alive.entry(lane.raw.0).or_insert(lane.id);
            *id = lane.id.min(*id);
        }
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for &(raw, id) in left.iter() {
            // Of lanes that had one name in turn the last one is meant.
            alive.entry(raw).or_insert(id);
        }
        alive
    }

    /// Every lane that exists.
    pub(crate) fn all(&self) -> Vec<LaneRef> {
        let pooled = self.pools.iter().flat_map(|pool| pool.lanes.iter()).filter_map(OnceLock::get);
        let single = [self.default.get(), self.transfer.get()].into_iter().flatten();
        let mut all: Vec<LaneRef> = single.chain(pooled).cloned().collect();
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(reserved.alive.iter().filter_map(Weak::upgrade).map(LaneRef::Shared));
        all
    }
}
