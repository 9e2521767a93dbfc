//! Device memory, owned.

use super::Port;
use crate::error::{Error, Result};
use crate::fork;
use crate::lane::{Lane, LaneRef, TRANSFER};
use crate::local;
use anyaccel_engine::alloc::{AllocError, Allocation, OutOfMemory, PoolId, Uses};
use anyaccel_hal::{Fault, Mem, Place};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Device memory from the cache, made for the lane that was current (its home). Dropping it gives it back; it is reused
/// on its home in stream order, and elsewhere once the work that used it has ended.
pub(crate) struct Block {
    pub(crate) port: Arc<Port>,
    allocation: Allocation,
    pub(crate) len: u64,
    home: LaneRef,
    /// Work of the home before this mark may still use the memory, for its owner before.
    born: u64,
    home_used: AtomicBool,
    uses: AtomicU64,
    /// The pool of the capture that it was allocated in.
    pub(crate) pool: Option<PoolId>,
    epoch: u64,
}

const WAITING: &str = "waiting for memory";

/// What lanes beyond the 63rd share in a block's uses: for them every use is the first.
const SHARED_USES: u64 = 1 << 63;

impl Block {
    /// Notes that work about to be enqueued on `lane` uses this memory. The first use on a lane that is not the home
    /// waits for what the home still does with the memory for its owner before.
    #[inline]
    pub(crate) fn used_on(&self, port: &Port, lane: &Lane) -> Result<()> {
        if lane.raw == self.home.raw {
            if !self.home_used.load(Ordering::Relaxed) {
                self.home_used.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        let bit = if lane.ordinal == self.port.ordinal { lane.uses } else { self.port.foreign_uses(port, lane) };
        let known = self.uses.load(Ordering::Relaxed);
        if known & bit == 0 || bit == SHARED_USES {
            let past = self.past(lane)?;
            if past > 0 && !self.port.ended(WAITING, &self.home, past)? {
                port.wait(lane, &self.port, &self.home, past)?;
            }
            self.uses.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that work of a lane of this device or another, recorded into a graph, uses this memory: given back inside the
    /// capture, it is reused on its home only.
    pub(crate) fn captured_on(&self, port: &Port, lane: &Lane) {
        if lane.raw == self.home.raw {
            self.home_used.store(true, Ordering::Relaxed);
        } else {
            let bit = if lane.ordinal == self.port.ordinal { lane.uses } else { self.port.foreign_uses(port, lane) };
            self.uses.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Its place in its segment, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.allocation.offset
    }

    /// The mark of the home behind all that it may still do with the memory for an owner before.
    fn past(&self, lane: &Lane) -> Result<u64> {
        if lane.ordinal != self.port.ordinal && !self.port.lanes.several() {
            // A lane alone on its device makes no marks for what it gives back.
            return match self.port.mark(WAITING, &self.home) {
                Err(Error::DeviceLost { .. }) => Ok(0),
                mark => mark,
            };
        }
        Ok(self.born.max(self.home.before_others()))
    }

    /// Gives it a name in the memory history.
    pub(crate) fn annotate(&self, text: &str) {
        if self.epoch == fork::epoch() {
            // The handle is this block's own, and live: nothing can be wrong with it.
            let _own = self.port.cache.annotate(self.allocation.handle, text);
        }
    }

    /// The device address.
    pub(crate) fn addr(&self) -> u64 {
        self.allocation.addr
    }

    /// The bytes that it really has: the request, rounded.
    pub(crate) fn capacity(&self) -> u64 {
        self.allocation.size
    }

    /// A part of it.
    pub(crate) fn part(self: &Arc<Self>, range: Range<u64>) -> Result<Part<'_>> {
        if range.start <= range.end && range.end <= self.len {
            Ok(Part { block: self, offset: range.start, len: range.end - range.start })
        } else {
            Err(Error::Range { start: range.start, end: range.end, len: self.len })
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.epoch != fork::epoch() {
            return;
        }
        let (handle, uses) = (self.allocation.handle, Uses(*self.uses.get_mut()));
        if local::in_host_fn() {
            if *self.home_used.get_mut() {
                self.home.note_unmarked();
            }
            self.port.cache.free_later(handle, uses);
            return;
        }
        if *self.home_used.get_mut() && self.port.lanes.several() {
            match self.port.mark(WAITING, &self.home) {
                Ok(mark) => self.home.marked(mark),
                // Nothing is left to wait for (H20).
                Err(Error::DeviceLost { .. }) => {}
                Err(_) => self.home.note_unmarked(),
            }
        }
        // The handle is this block's own, given back once: nothing can be wrong with it.
        let _own = self.port.cache.free_used(handle, uses);
    }
}

/// A part of a block that is known to lie in it.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) block: &'a Arc<Block>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Part<'_> {
    pub(crate) fn place(&self) -> Place {
        let allocation = &self.block.allocation;
        Place { mem: Mem(allocation.segment), offset: allocation.offset + self.offset }
    }

    /// Whether two parts share bytes.
    pub(crate) fn overlaps(&self, other: &Part<'_>) -> bool {
        Arc::ptr_eq(self.block, other.block)
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }
}

impl Port {
    /// Takes device memory for a lane; `None` for no bytes.
    #[inline]
    pub(crate) fn alloc(self: &Arc<Self>, lane: &LaneRef, bytes: u64) -> Result<Option<Arc<Block>>> {
        match self.cache.alloc(bytes, lane.raw.0).map_err(|error| self.alloc_error(error))? {
            Some(allocation) => self.owned(lane, bytes, allocation).map(Some),
            None => Ok(None),
        }
    }

    /// The same if the cache has it at hand.
    #[inline]
    pub(crate) fn alloc_cached(self: &Arc<Self>, lane: &LaneRef, bytes: u64) -> Result<Option<Arc<Block>>> {
        match self.cache.alloc_cached(bytes, lane.raw.0) {
            Some(allocation) => self.owned(lane, bytes, allocation).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    fn owned(self: &Arc<Self>, lane: &LaneRef, bytes: u64, allocation: Allocation) -> Result<Arc<Block>> {
        let pool = if lane.is_capturing() { self.cache.pool_of(allocation.handle) } else { None };
        let mut block = Block {
            port: Arc::clone(self),
            allocation,
            len: bytes,
            home: lane.clone(),
            born: 0,
            home_used: AtomicBool::new(false),
            uses: AtomicU64::new(0),
            pool,
            epoch: fork::epoch(),
        };
        if let Some(notes) = lane.unsettled() {
            match self.mark(WAITING, lane) {
                Ok(mark) => lane.settle(notes, mark),
                // Nothing is left to wait for (H20).
                Err(Error::DeviceLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        block.born = lane.last_freed();
        Ok(Arc::new(block))
    }

    /// Gives unused memory back.
    pub(crate) fn empty_cache(&self, call: &'static str) -> Result<()> {
        self.reap();
        self.cache.empty_cache().map_err(|fault| self.port_error(call, fault))
    }

    /// Gives unused memory of one private pool back.
    pub(crate) fn empty_pool(&self, call: &'static str, (first, second): (u64, u64)) -> Result<()> {
        self.cache.empty_pool(PoolId(first, second)).map_err(|fault| self.port_error(call, fault))
    }

    /// The bit that stands for a lane of another device in the uses of this device's blocks.
    fn foreign_uses(&self, owner: &Port, lane: &Lane) -> u64 {
        self.native.add_foreign(lane.raw, &owner.native);
        self.cache.use_of(lane.raw.0).0
    }

    /// The cache's report with the ids of streams instead of the driver's numbers.
    pub(crate) fn in_public_names(&self, report: OutOfMemory) -> OutOfMemory {
        let ids = self.lanes.ids();
        report.with_streams(|raw| ids.get(&raw).copied().filter(|&id| id != TRANSFER))
    }

    fn alloc_error(&self, error: AllocError) -> Error {
        let device = self.device;
        match error {
            AllocError::OutOfMemory(report) => {
                let report = Box::new(self.in_public_names(*report));
                let &OutOfMemory { requested, free, total, .. } = &*report;
                Error::OutOfMemory { device, requested, free, total, report: Some(report) }
            }
            AllocError::TooLarge { requested, .. } => Error::Argument {
                argument: "bytes",
                reason: format!(
                    "{requested} bytes on {device}: a request must be below 2^60; was a negative size converted?"
                ),
            },
            AllocError::Port { fault, .. } => self.port_error("allocating device memory", fault),
            other @ (AllocError::Closed { .. } | AllocError::TooManyBlocks { .. }) => {
                self.error("allocating device memory", Fault::invalid("alloc", other.to_string()))
            }
        }
    }
}
