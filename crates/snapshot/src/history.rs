//! What a trace says, as operations that can be run again: which blocks were asked for and given back, in which order.
//!
//! A trace names blocks by address. Here each is a slot, so that a replay needs no table of addresses. What the trace
//! does not say is reconstructed where it can be, and [`Caveats`] say what was done and what stays unknown.

use std::collections::{BTreeMap, HashMap};

use crate::{Action, BlockState, Event, PoolKey, Segment, Snapshot, StackId};

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

struct Live {
    slot: u32,
    size: u64,
    /// Given back by its user, still used by a stream.
    pending: bool,
    /// The event that began it; `None` for one from before.
    since: Option<u32>,
}

struct Builder<'s> {
    device: usize,
    events: &'s [Event],
    ops: Vec<Op>,
    /// By address. Blocks in it do not overlap.
    live: BTreeMap<u64, Live>,
    spare: Vec<u32>,
    slots: u32,
    caveats: Caveats,
    waiting: u64,
}

/// Whether a segment is of that device.
pub(crate) fn is_on(segment: &Segment, device: usize) -> bool {
    usize::try_from(segment.device) == Ok(device)
}

/// For each event whether the free that ends it (of an alloc: whether there is one) is in the trace: the index of the
/// first free of that address before the address is handed out again.
fn ends(events: &[Event]) -> Vec<bool> {
    let mut out = vec![false; events.len()];
    let mut last: HashMap<u64, u32> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        match event.action {
            Action::Alloc => {
                last.insert(event.addr, at as u32);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                if let Some(&begin) = last.get(&event.addr) {
                    out[begin as usize] = true;
                }
            }
            _ => {}
        }
    }
    out
}

impl Builder<'_> {
    fn wrong<T>(&self, event: usize, reason: String) -> Result<T, HistoryError> {
        Err(HistoryError { device: self.device, event, reason })
    }

    fn slot(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn push(&mut self, what: What, size: u64, slot: u32, event: usize) {
        let (stream, pool) = self.events.get(event).map_or((0, 0), |event| (event.stream, event.pool));
        self.ops.push(Op { size, stream, slot, event: event as u32, pool, what });
    }

    /// Ends the blocks that a new one at `[addr, addr + size)` takes the place of.
    fn make_way(&mut self, at: usize, ends: &[bool]) -> Result<(), HistoryError> {
        let Event { addr, size, .. } = self.events[at];
        loop {
            let reach = (addr + size).max(addr + 1);
            let Some((&start, block)) = self.live.range(..reach).next_back() else { return Ok(()) };
            if start + block.size <= addr && start != addr {
                return Ok(());
            }
            if block.pending || block.since.is_some_and(|begun| ends[begun as usize]) {
                let was =
                    block.since.map_or_else(|| "before the recording".into(), |begun| format!("by event {begun}"));
                return self.wrong(
                    at,
                    format!(
                        "the block of {size} bytes at {addr:#x} overlaps the one of {} bytes at {start:#x}, which was \
                         handed out {was} and is given back later: the history contradicts itself",
                        block.size
                    ),
                );
            }
            let Some(block) = self.live.remove(&start) else { return Ok(()) };
            self.caveats.missing_frees += 1;
            self.caveats.missing_bytes += block.size;
            self.push(What::Free, 0, block.slot, at);
            self.spare.push(block.slot);
        }
    }

    fn run(&mut self, frees: Frees, ends: &[bool], emptied: &[bool]) -> Result<(), HistoryError> {
        let mut ranks = 0;
        let mut completions = 0;
        let ranked = frees.ranks(self.events);
        for at in 0..self.events.len() {
            let event = self.events[at];
            match event.action {
                Action::Alloc => {
                    self.make_way(at, ends)?;
                    let slot = self.slot();
                    let block = Live { slot, size: event.size, pending: false, since: Some(at as u32) };
                    self.live.insert(event.addr, block);
                    self.caveats.pooled_blocks += u64::from(event.pool != 0);
                    self.push(What::Alloc, event.size, slot, at);
                }
                Action::FreeRequested if frees.requested => {
                    let Some(block) = self.live.get_mut(&event.addr).filter(|block| !block.pending) else {
                        return self
                            .wrong(at, format!("the block at {:#x} is given back, but is not live", event.addr));
                    };
                    let slot = block.slot;
                    if !frees.completed || frees.at_once(self.events, at) {
                        self.live.remove(&event.addr);
                        self.spare.push(slot);
                        self.push(What::Free, 0, slot, at);
                    } else {
                        block.pending = true;
                        self.waiting += block.size;
                        self.caveats.waiting_blocks += 1;
                        self.caveats.waiting_bytes = self.caveats.waiting_bytes.max(self.waiting);
                        let rank = ranked.get(&at).copied().unwrap_or(NEVER);
                        ranks += 1;
                        self.push(What::FreeUsed, rank, slot, at);
                    }
                }
                Action::FreeCompleted if !frees.requested => {
                    let Some(block) = self.live.remove(&event.addr) else {
                        return self
                            .wrong(at, format!("the block at {:#x} is given back, but is not live", event.addr));
                    };
                    self.spare.push(block.slot);
                    self.push(What::Free, 0, block.slot, at);
                }
                Action::FreeCompleted if frees.at_once(self.events, at.wrapping_sub(1)) => {}
                Action::FreeCompleted => {
                    let Some(block) = self.live.remove(&event.addr) else {
                        return self.wrong(at, format!("the block at {:#x} comes free, but is not live", event.addr));
                    };
                    self.waiting = self.waiting.saturating_sub(block.size);
                    self.spare.push(block.slot);
                    if block.pending {
                        completions += 1;
                        self.push(What::Completed, completions, 0, at);
                    } else {
                        // Given back without a word, or before the recording.
                        self.push(What::Free, 0, block.slot, at);
                    }
                }
                Action::SegmentFree | Action::SegmentUnmap if emptied[at] => {
                    if event.pool != 0 {
                        self.push(What::ReleasePool, 0, 0, at);
                    }
                    self.push(What::EmptyCache, 0, 0, at);
                }
                Action::Oom => {
                    self.caveats.recorded_ooms += 1;
                    self.push(What::Failed, event.size, 0, at);
                }
                _ => {}
            }
        }
        debug_assert!(completions <= ranks);
        Ok(())
    }
}

/// Which events mark frees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frees {
    pub(crate) requested: bool,
    pub(crate) completed: bool,
}

impl Frees {
    pub(crate) fn of(events: &[Event]) -> Self {
        let has = |action| events.iter().any(|event| event.action == action);
        Frees { requested: has(Action::FreeRequested), completed: has(Action::FreeCompleted) }
    }

    /// Whether such an event takes a block out of its user's hands.
    pub(crate) fn ends(self, action: Action) -> bool {
        match action {
            Action::FreeRequested => self.requested,
            Action::FreeCompleted => !self.requested,
            _ => false,
        }
    }

    /// Whether the `free_requested` at `at` is followed by its `free_completed` at once: no stream used the block.
    fn at_once(self, events: &[Event], at: usize) -> bool {
        let Some(event) = events.get(at) else { return false };
        event.action == Action::FreeRequested
            && events.get(at + 1).is_some_and(|next| next.action == Action::FreeCompleted && next.addr == event.addr)
    }

    /// For each `free_requested` of a block that waits: the place of its end among the ends of such blocks, from 1.
    fn ranks(self, events: &[Event]) -> HashMap<usize, u64> {
        let mut out = HashMap::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut next = 0;
        for (at, event) in events.iter().enumerate() {
            match event.action {
                Action::FreeRequested if !self.at_once(events, at) => {
                    open.insert(event.addr, at);
                }
                Action::FreeCompleted => {
                    if let Some(begun) = open.remove(&event.addr) {
                        next += 1;
                        out.insert(begun, next);
                    }
                }
                _ => {}
            }
        }
        out
    }
}

/// The events that begin a call of `empty_cache`: a run of segments given back, with that name in its stack or, where
/// there is no stack, not followed by what a request in need would do next.
fn emptied(snapshot: &Snapshot, events: &[Event]) -> Vec<bool> {
    let mut names: HashMap<StackId, bool> = HashMap::new();
    let mut named = |stack: StackId| {
        *names.entry(stack).or_insert_with(|| {
            let frames = snapshot.stacks.get(stack);
            frames.iter().any(|&frame| matches!(snapshot.frame_name(frame), "empty_cache" | "emptyCache"))
        })
    };
    let gives = |event: &Event| matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
    let mut out = vec![false; events.len()];
    let mut at = 0;
    while at < events.len() {
        if !gives(&events[at]) {
            at += 1;
            continue;
        }
        let stack = events[at].stack;
        let run = events[at..].iter().take_while(|event| gives(event) && event.stack == stack).count();
        let next = events.get(at + run).map(|event| event.action);
        let asked = matches!(
            next,
            Some(Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap | Action::Oom)
        );
        out[at] = named(stack) || !asked;
        at += run;
    }
    out
}

/// Blocks that were live before the first event: given back, or there in the end, without an alloc.
pub(crate) fn unseen(snapshot: &Snapshot, device: usize, events: &[Event]) -> Vec<Event> {
    let mut seen: HashMap<u64, bool> = HashMap::new();
    let mut out: BTreeMap<u64, Event> = BTreeMap::new();
    let mut touched: HashMap<u64, ()> = HashMap::new();
    for event in events {
        match event.action {
            Action::Alloc => {
                seen.insert(event.addr, true);
                touched.insert(event.addr, ());
            }
            Action::FreeRequested | Action::FreeCompleted => {
                if touched.insert(event.addr, ()).is_none() {
                    out.insert(event.addr, Event { action: Action::Alloc, ..*event });
                }
            }
            _ => {}
        }
    }
    for segment in snapshot.segments.iter().filter(|segment| is_on(segment, device)) {
        for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            if !touched.contains_key(&block.addr) {
                out.insert(
                    block.addr,
                    Event {
                        addr: block.addr,
                        size: block.requested.min(block.size),
                        stream: segment.stream,
                        time_us: 0,
                        stack: block.stack,
                        user_metadata: crate::NameId(0),
                        compile_context: crate::NameId(0),
                        pool: segment.pool,
                        action: Action::Alloc,
                    },
                );
            }
        }
    }
    out.into_values().collect()
}

/// Bytes that the device had reserved before the first event.
fn reserved_before(snapshot: &Snapshot, device: usize, events: &[Event]) -> u64 {
    let now: u64 = snapshot.segments.iter().filter(|s| is_on(s, device)).map(|s| s.total).sum();
    let change = |which: fn(Action) -> bool| -> u64 {
        events.iter().filter(|event| which(event.action)).map(|event| event.size).fold(0, u64::saturating_add)
    };
    let given = change(|action| matches!(action, Action::SegmentFree | Action::SegmentUnmap));
    let taken = change(|action| matches!(action, Action::SegmentAlloc | Action::SegmentMap));
    now.saturating_add(given).saturating_sub(taken)
}

/// Memory of the device, from the first request that failed: what was reserved then and what the device had left.
fn total_from_oom(events: &[Event], mut reserved: u64) -> Option<u64> {
    for event in events {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(event.size),
            Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(event.size),
            Action::Oom => return reserved.checked_add(event.addr),
            _ => {}
        }
    }
    None
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

impl Builder<'_> {
    /// Blocks that the trace leaves live and the segments do not have: number and bytes.
    fn lost(&self, snapshot: &Snapshot) -> (u64, u64) {
        let mut there: HashMap<u64, ()> = HashMap::new();
        for segment in snapshot.segments.iter().filter(|segment| is_on(segment, self.device)) {
            let active = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
            there.extend(active.map(|block| (block.addr, ())));
        }
        let lost = self.live.iter().filter(|(addr, _)| !there.contains_key(addr));
        lost.fold((0, 0), |(blocks, bytes), (_, block)| (blocks + 1, bytes + block.size))
    }
}
