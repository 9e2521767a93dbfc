//! Memory history of a device: what its recorder is told, and the snapshot that it goes into.
//!
//! Whose call the lock's owner works for is in [`Heap::caller`]: nobody's when the lock is taken, set by whoever captured a
//! stack before, and kept over calls to the device.

use super::cache::{DeviceCache, FreeError, Guard};
use super::heap::Heap;
use super::settings::Settings;
use super::snapshot::SegmentView;
use super::{Handle, PoolId};
use crate::history::{
    Action, GIVERS, HistoryOptions, Recorder, Records, StackId, StackSource, TAKERS, captured, enter_scope,
};
use crate::sync::Ordering;
use std::sync::Arc;

/// A bit of `DeviceCache::notice`: `side` may hold something.
pub(super) const SIDE: u64 = 1;

/// What a device holds and what was recorded of it, all of one moment.
#[derive(Clone, Debug)]
pub struct DeviceHistory {
    /// The segments, by address.
    pub segments: Vec<SegmentView>,
    /// The events; none while nothing is recorded.
    pub records: Records,
    /// The settings in force.
    pub settings: Settings,
    /// Bytes of memory that the device has.
    pub total: u64,
    /// What reserved memory must not pass.
    pub limit: Option<u64>,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryCounts {
    /// Whether events are being recorded.
    pub recording: bool,
    /// Events that are kept.
    pub entries: usize,
    /// Older events that the ring had no room for.
    pub dropped: u64,
}

impl Heap {
    fn pool_of_shelf(&self, shelf: u32) -> (u64, Option<PoolId>) {
        let shelf = &self.shelves[shelf as usize];
        (shelf.stream, self.pools[shelf.pool as usize].id)
    }

    /// Notes that a block was handed out.
    #[cold]
    #[inline(never)]
    pub(super) fn note_taken(&mut self, id: u32) {
        let block = &self.arena[id];
        let (addr, requested) = (block.addr, block.requested);
        let (stream, pool) = self.pool_of_shelf(block.shelf);
        if let Some(recorder) = &mut self.recorder {
            recorder.taken(id, [addr, requested, stream], pool, self.caller);
        }
    }

    /// Notes that a block was given back, is free, or both.
    #[cold]
    #[inline(never)]
    pub(super) fn note_given(&mut self, id: u32, actions: &[Action]) {
        let block = &self.arena[id];
        let (addr, requested) = (block.addr, block.requested);
        let (stream, pool) = self.pool_of_shelf(block.shelf);
        if let Some(recorder) = &mut self.recorder {
            recorder.given(id, actions, [addr, requested, stream], pool, self.caller);
        }
    }

    /// Notes an event of a segment, or of a stretch of one, that serves a shelf.
    pub(super) fn note_segment(&mut self, action: Action, addr: u64, len: u64, shelf: u32) {
        let (stream, pool) = self.pool_of_shelf(shelf);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(action, [addr, len, stream], pool, self.caller);
        }
    }

    /// The stack that a segment made now keeps.
    pub(super) fn maker(&self) -> StackId {
        self.recorder.as_ref().map_or(StackId::ABSENT, |recorder| recorder.kept(self.caller))
    }
}

impl DeviceCache {
    /// Records what happens from now on, or, with `None`, stops and forgets what was recorded. While something is
    /// recorded already, other options take over and the events stay, unless `clear` says otherwise or the stacks come from
    /// another source than before.
    pub fn record_history(&self, options: Option<&HistoryOptions>, clear: bool) {
        let stacks = options.map_or(0, HistoryOptions::captured);
        // Dropped when no lock is held: the last owner of a source may have much to let go of, and wait for it.
        let _before: Option<Arc<dyn StackSource>>;
        let mut own = self.source.lock();
        let goes_on = !clear && options.is_some_and(|options| options.same_source(&own));
        _before = std::mem::replace(&mut *own, options.and_then(|options| options.source.clone()));
        let mut heap = self.lock();
        match (options, &mut heap.recorder) {
            (Some(options), Some(recorder)) if goes_on => recorder.change(options),
            (options, recorder) => {
                *recorder = options.map(|options| Box::new(Recorder::new(options)));
                heap.segs.iter_mut().for_each(|seg| seg.stack = StackId::ABSENT);
            }
        }
        heap.unusual = heap.closed || heap.recorder.is_some();
        self.notice.fetch_and(!(TAKERS | GIVERS), Ordering::AcqRel);
        self.notice.fetch_or(stacks, Ordering::AcqRel);
    }

    /// What the device holds and what was recorded, of one moment. A recording notes that a snapshot was taken, for the
    /// next one to show. Calls no port.
    pub fn history(&self) -> DeviceHistory {
        let mut heap = self.lock();
        let segments = heap.view();
        let records = heap.recorder.as_ref().map_or_else(Records::default, |recorder| recorder.records());
        let active: u64 = segments.iter().map(|segment| segment.bytes(|block| block.active)).sum();
        if let Some(recorder) = &mut heap.recorder {
            recorder.note(Action::Snapshot, [0, active, 0], None, StackId::ABSENT);
        }
        DeviceHistory { segments, records, settings: heap.settings.clone(), total: heap.total, limit: heap.cap() }
    }

    /// How far the recording is.
    pub fn history_counts(&self) -> HistoryCounts {
        match &self.lock().recorder {
            None => HistoryCounts::default(),
            Some(recorder) => {
                let (entries, dropped) = recorder.counts();
                HistoryCounts { recording: true, entries, dropped }
            }
        }
    }

    /// Gives a live block a name, which the history shows as an event. Nothing happens while nothing is recorded.
    ///
    /// # Errors
    /// [`FreeError::Stale`] for a handle that is not live.
    pub fn annotate(&self, handle: Handle, text: &str) -> Result<(), FreeError> {
        let mut heap = self.on_behalf(self.lock());
        let id = heap.live(handle).ok_or(FreeError::Stale(handle.to_bits()))?;
        let block = &heap.arena[id];
        let (addr, requested, shelf) = (block.addr, block.requested, block.shelf);
        if heap.recorder.is_some() {
            let _named = enter_scope(text);
            heap.note_segment(Action::Annotate, addr, requested, shelf);
        }
        Ok(())
    }

    /// The lock for a call that gives memory back: let go, if its stack is wanted, to capture that.
    #[inline(never)]
    pub(super) fn on_behalf<'a>(&'a self, mut heap: Guard<'a>) -> Guard<'a> {
        if self.notice.load(Ordering::Relaxed) & GIVERS == 0 {
            heap.caller = StackId::EMPTY;
            return heap;
        }
        drop(heap);
        self.enter_as(None)
    }

    /// Captures the stack, then takes the lock.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_as(&self, call: Option<&'static str>) -> Guard<'_> {
        let caller = self.stack(call);
        let mut heap = self.lock();
        heap.caller = caller;
        heap
    }

    /// The stack of the present call. Called without the lock.
    pub(super) fn stack(&self, call: Option<&'static str>) -> StackId {
        let source = self.source.lock().clone();
        captured(source, call)
    }
}
