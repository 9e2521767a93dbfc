//! Memory history of pinned memory: what its recorder is told, and the snapshot that it goes into.
//!
//! As for a device ([`alloc`](crate::alloc)): `State::caller` is nobody when the lock is taken, set by whoever captured a
//! stack before, and kept over calls to the ports.

use super::cache::{Guard, HostCache};
use super::state::{Life, State};
use crate::alloc::HistoryCounts;
use crate::history::{Action, HistoryOptions, Recorder, Records, StackId, StackSource, captured};
use crate::sync::Ordering;
use std::sync::Arc;

/// A block of pinned memory, which is a segment of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlockView {
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// What was asked for; 0 for a free block.
    pub requested: u64,
    /// In its user's hands.
    pub allocated: bool,
    /// In its user's hands or still used by a stream.
    pub active: bool,
    /// Who pinned it, if that was recorded.
    pub maker: StackId,
    /// Who took it, if that was recorded.
    pub stack: StackId,
}

/// What a pinned cache holds and what was recorded of it, all of one moment.
#[derive(Clone, Debug)]
pub struct HostHistory {
    /// The blocks, by address.
    pub blocks: Vec<HostBlockView>,
    /// The events; none while nothing is recorded.
    pub records: Records,
}

impl State {
    /// Notes an event of a block's memory.
    #[inline]
    pub(super) fn note_segment(&mut self, action: Action, addr: u64, len: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(action, [addr, len, 0], None, self.caller);
        }
    }

    /// Notes that a block was handed out.
    #[inline]
    pub(super) fn note_taken(&mut self, id: u32) {
        if let Some(recorder) = &mut self.recorder {
            let block = &self.blocks[id as usize];
            recorder.taken(id, [block.raw.addr, block.requested, 0], None, self.caller);
        }
    }

    /// Notes that a block was given back, or is free.
    #[inline]
    pub(super) fn note_given(&mut self, id: u32, action: Action) {
        if let Some(recorder) = &mut self.recorder {
            let block = &self.blocks[id as usize];
            recorder.given(id, &[action], [block.raw.addr, block.requested, 0], None, self.caller);
        }
    }

    /// The blocks by address, without those that are being given back to the port.
    fn view_all(&self) -> Vec<HostBlockView> {
        let view = |&id: &u32| {
            let block = &self.blocks[id as usize];
            // A Busy block that has an address is having its marks made.
            let active = matches!(block.life, Life::Live | Life::Parked | Life::Pending | Life::Busy);
            let taker = self.recorder.as_ref().map_or(StackId::ABSENT, |recorder| recorder.taker(id));
            HostBlockView {
                addr: block.raw.addr,
                size: block.raw.len,
                requested: if active { block.requested } else { 0 },
                allocated: block.life == Life::Live,
                active,
                maker: block.maker,
                stack: if active { taker } else { StackId::ABSENT },
            }
        };
        self.addresses.values().map(view).collect()
    }
}

impl HostCache {
    /// Records what happens from now on, or, with `None`, stops and forgets what was recorded; as
    /// [`DeviceCache::record_history`](crate::alloc::DeviceCache::record_history). Calls no port.
    pub fn record_history(&self, options: Option<&HistoryOptions>, clear: bool) {
        // Dropped when no lock is held: the last owner of a source may have much to let go of, and wait for it.
        let _before: Option<Arc<dyn StackSource>>;
        let mut own = self.source.lock();
        let goes_on = !clear && options.is_some_and(|options| options.same_source(&own));
        _before = std::mem::replace(&mut *own, options.and_then(|options| options.source.clone()));
        let mut state = self.lock();
        match (options, &mut state.recorder) {
            (Some(options), Some(recorder)) if goes_on => recorder.change(options),
            (options, recorder) => {
                *recorder = options.map(|options| Box::new(Recorder::new(options)));
                state.blocks.iter_mut().for_each(|block| block.maker = StackId::ABSENT);
            }
        }
        self.notice.store(options.map_or(0, HistoryOptions::captured), Ordering::Release);
    }

    /// What the cache holds and what was recorded, of one moment. Calls no port.
    pub fn history(&self) -> HostHistory {
        let state = self.lock();
        let records = state.recorder.as_ref().map_or_else(Records::default, |recorder| recorder.records());
        HostHistory { blocks: state.view_all(), records }
    }

    /// How far the recording is. Calls no port.
    pub fn history_counts(&self) -> HistoryCounts {
        match &self.lock().recorder {
            None => HistoryCounts::default(),
            Some(recorder) => {
                let (entries, dropped) = recorder.counts();
                HistoryCounts { recording: true, entries, dropped }
            }
        }
    }

    /// Takes the lock, for a call of the kind that has the given bit of the notice.
    #[inline(always)]
    pub(super) fn enter(&self, kind: u64) -> Guard<'_> {
        if self.notice.load(Ordering::Relaxed) & kind == 0 { self.lock() } else { self.enter_as(None) }
    }

    /// Captures the stack, then takes the lock.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_as(&self, call: Option<&'static str>) -> Guard<'_> {
        let source = self.source.lock().clone();
        self.lock_as(captured(source, call))
    }

    /// Takes the lock again, in the same call.
    #[inline]
    pub(super) fn lock_as(&self, caller: StackId) -> Guard<'_> {
        let mut state = self.lock();
        state.caller = caller;
        state
    }
}
