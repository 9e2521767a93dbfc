//! What a trace says, as operations that can be run again: which blocks were asked for and given back, in which order.
//!
//! A trace names blocks by address. Here each is a slot, so that a replay needs no table of addresses. What the trace
//! does not say is reconstructed where it can be, and [`Caveats`] say what was done and what stays unknown.

mod build;
mod scan;

use std::collections::BTreeMap;

use crate::{Event, PoolKey, Snapshot, StackId};
use build::{Builder, Live};
pub(crate) use scan::{Frees, is_on, unseen};
use scan::{emptied, ends, reserved_before, total_from_oom};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Take `size` bytes into `slot`.
    Alloc,
    /// Give the block in `slot` back; nothing else uses it.
    Free,
    /// Give the block in `slot` back while a stream uses it; `size` is the place of its end among such ends.
    FreeUsed,
    /// Of the blocks that streams used, one more has come free.
    Completed,
    /// Everything unused goes back to the device.
    EmptyCache,
    /// A private pool has no users any more.
    ReleasePool,
    /// A request of `size` bytes failed in the recording.
    Failed,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) slot: u32,
    /// The event that it comes from, an index into the trace.
    pub(crate) event: u32,
    pub(crate) pool: u16,
    pub(crate) what: What,
}

/// `size` of [`What::FreeUsed`] for a block whose end the recording did not see.
pub(crate) const NEVER: u64 = u64::MAX >> 1;

/// What a recording can't tell, and what was made of it. Sizes in bytes, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Caveats {
    /// Blocks that were live before the first event. They are allocated at the beginning, in the order of their addresses.
    pub unseen_blocks: u64,
    /// Their bytes.
    pub unseen_bytes: u64,
    /// Bytes that lay free in segments when recording began; a replay begins with an empty cache.
    pub unseen_cached: u64,
    /// Frees that are missing: the block's memory was handed out again. They are put right before that.
    pub missing_frees: u64,
    /// Their bytes.
    pub missing_bytes: u64,
    /// Blocks without a free that are gone in the end. Nothing says when; they stay to the end.
    pub lost_blocks: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Blocks that a stream still used when they were given back.
    pub waiting_blocks: u64,
    /// The most bytes that such blocks held at one time: so far a replay under pressure may be off, either way, since how
    /// long a stream takes when the allocator waits for it is not in the recording.
    pub waiting_bytes: u64,
    /// Requests that failed in the recording. What the program would have done otherwise is unknown.
    pub recorded_ooms: u64,
    /// Events that the recorder's ring had no room for.
    pub dropped: u64,
    /// No event has a stack: calls of `empty_cache` are told by the order of events alone.
    pub no_stacks: bool,
    /// Blocks of private pools: pools stay until a segment of them is given back.
    pub pooled_blocks: u64,
}

/// A history that contradicts itself. Says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {device}, event {event}: {reason}")]
pub struct HistoryError {
    /// The device.
    pub device: usize,
    /// The event, an index into its trace.
    pub event: usize,
    /// What is wrong.
    pub reason: String,
}

/// One device's history, ready to be replayed.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) device: usize,
    pub(crate) ops: Vec<Op>,
    pub(crate) slots: usize,
    pub(crate) pools: Vec<PoolKey>,
    /// Whether a program of ours recorded it.
    pub(crate) ours: bool,
    caveats: Caveats,
    events: usize,
    total: Option<u64>,
}

impl History {
    /// The history of one device of a snapshot.
    ///
    /// # Errors
    /// Blocks that overlap, frees of blocks that were given back before.
    pub fn of(snapshot: &Snapshot, device: usize) -> Result<History, HistoryError> {
        let events: &[Event] = snapshot.traces.get(device).map_or(&[], |trace| &trace.events);
        let before = unseen(snapshot, device, events);
        let note = snapshot.origin.as_ref().and_then(|origin| origin.devices.get(device));
        let mut builder = Builder {
            device,
            events,
            ops: Vec::with_capacity(events.len()),
            live: BTreeMap::new(),
            spare: Vec::new(),
            slots: 0,
            caveats: Caveats {
                dropped: note.map_or(0, |note| note.dropped),
                no_stacks: !events.is_empty() && events.iter().all(|event| event.stack == StackId::ABSENT),
                ..Caveats::default()
            },
            waiting: 0,
        };
        for event in &before {
            let slot = builder.slot();
            builder.caveats.unseen_blocks += 1;
            builder.caveats.unseen_bytes += event.size;
            builder.live.insert(event.addr, Live { slot, size: event.size, pending: false, since: None });
            builder.ops.push(Op {
                size: event.size,
                stream: event.stream,
                slot,
                event: 0,
                pool: event.pool,
                what: What::Alloc,
            });
        }
        let reserved = reserved_before(snapshot, device, events);
        builder.caveats.unseen_cached = reserved.saturating_sub(builder.caveats.unseen_bytes);
        builder.run(Frees::of(events), &ends(events), &emptied(snapshot, events))?;
        let mut caveats = builder.caveats;
        if before.is_empty() && events.is_empty() {
            caveats.unseen_cached = 0;
        }
        (caveats.lost_blocks, caveats.lost_bytes) = builder.lost(snapshot);
        let (ops, slots) = (builder.ops, builder.slots as usize);
        Ok(History {
            device,
            ops,
            slots,
            pools: snapshot.pools.clone(),
            ours: snapshot.origin.is_some(),
            caveats,
            events: events.len(),
            total: note.and_then(|note| note.total_memory).or_else(|| total_from_oom(events, reserved)),
        })
    }

    /// The histories of all devices that have one.
    ///
    /// # Errors
    /// As [`of`](History::of).
    pub fn all(snapshot: &Snapshot) -> Result<Vec<History>, HistoryError> {
        let known = snapshot.segments.iter().filter_map(|segment| usize::try_from(segment.device).ok()).max();
        let devices = snapshot.traces.len().max(known.map_or(0, |last| last + 1));
        let mut out = Vec::new();
        for device in 0..devices {
            let history = History::of(snapshot, device)?;
            if !history.ops.is_empty() || device == 0 {
                out.push(history);
            }
        }
        if out.len() > 1 && out[0].ops.is_empty() {
            out.remove(0);
        }
        Ok(out)
    }

    /// Which device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Events of its trace.
    pub fn events(&self) -> usize {
        self.events
    }

    /// What the recording could not tell.
    pub fn caveats(&self) -> &Caveats {
        &self.caveats
    }

    /// Memory of the device in bytes, where the file tells: our own do, PyTorch's only after an out of memory.
    pub fn total_memory(&self) -> Option<u64> {
        self.total
    }
}
