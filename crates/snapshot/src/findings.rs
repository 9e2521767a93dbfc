//! What a history shows: who holds memory at the peak, who never gives back, who asks all the time, what is free and who
//! pins it. The command and the page print the same numbers, these.

use std::collections::HashMap;

pub use crate::findings_oom::OutOfMemoryStory;
use crate::history::{Frees, History, HistoryError};
use crate::state::{Gap, State};
use crate::{Action, Caveats, Snapshot, StackId};

/// How many stacks, at most, each list has.
pub const LISTED: usize = 20;

/// How many requests that failed are told of.
pub const TOLD: usize = 16;

/// Bytes and blocks of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The stack.
    pub stack: StackId,
    /// Bytes asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Blocks of one stack that were not given back before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The stack.
    pub stack: StackId,
    /// Bytes asked for.
    pub bytes: u64,
    /// Blocks,
    pub blocks: u64,
    /// of which so many began in each quarter of the trace (by events). What was there before counts to none.
    pub quarters: [u64; 4],
}

impl Kept {
    /// Whether blocks pile up: some of at least three quarters, the last among them, are still there.
    pub fn grows(&self) -> bool {
        self.quarters[3] > 0 && self.quarters.iter().filter(|&&blocks| blocks > 0).count() >= 3
    }
}

/// How often one stack asks for memory and gives it back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Churn {
    /// The stack.
    pub stack: StackId,
    /// Requests.
    pub allocs: u64,
    /// Bytes asked for, all together.
    pub bytes: u64,
    /// Events between a request and its free, on average, of those that were given back.
    pub lifetime: f64,
}

/// Free bytes that blocks of one stack lie beside, each gap shared between its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// The stack.
    pub stack: StackId,
    /// Free bytes.
    pub bytes: u64,
    /// Gaps.
    pub gaps: u64,
}

/// The free memory of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// Bytes asked for, in the hands of users.
    pub allocated: u64,
    /// Bytes given back that streams still use.
    pub pending: u64,
    /// Bytes taken from the device.
    pub reserved: u64,
    /// Free runs in segments.
    pub gaps: u64,
    /// Their bytes.
    pub free: u64,
    /// Bytes of segments of which nothing is used: they could go back to the device.
    pub idle: u64,
    /// The largest run.
    pub largest: Option<Gap>,
    /// Who pins the rest, most first.
    pub pins: Vec<Pins>,
}

/// What there is to say of one device.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The device.
    pub device: usize,
    /// Events in its trace.
    pub events: usize,
    /// Microseconds from the first event to the last.
    pub span_us: u64,
    /// The most bytes, as asked for, that were in the hands of users,
    pub peak: u64,
    /// and the event that brought them there; `None` if it was so before the first.
    pub peak_event: Option<usize>,
    /// Bytes taken from the device, at most.
    pub peak_reserved: u64,
    /// Who held memory at the peak, most first.
    pub holders: Vec<Share>,
    /// Who did not give back until the end, most first.
    pub kept: Vec<Kept>,
    /// Bytes that were not given back until the end, and blocks.
    pub kept_total: (u64, u64),
    /// Who asks most often.
    pub churn: Vec<Churn>,
    /// Requests, and bytes asked for.
    pub requests: (u64, u64),
    /// Segments taken and given back, or stretches mapped and unmapped.
    pub device_calls: (u64, u64),
    /// Free memory at the end.
    pub end: FreeMemory,
    /// The first requests that failed, [`TOLD`] at most,
    pub out_of_memory: Vec<OutOfMemoryStory>,
    /// and how many there were.
    pub failed: u64,
    /// What the recording can't tell.
    pub caveats: Caveats,
}

/// The list's first [`LISTED`] entries by `key`, greatest first; equal ones in the order of their stacks.
fn top<T>(mut list: Vec<T>, key: impl Fn(&T) -> (u64, StackId)) -> Vec<T> {
    list.sort_by(|a, b| key(b).0.cmp(&key(a).0).then(key(a).1.cmp(&key(b).1)));
    list.truncate(LISTED);
    list
}

#[derive(Clone, Copy, Default)]
struct Tally {
    allocs: u64,
    bytes: u64,
    freed: u64,
    lived: u64,
}

/// What is free in a state, and who pins it.
pub(crate) fn free_memory(state: &State<'_>) -> FreeMemory {
    let gaps = state.gaps();
    let pending = state.live().values().filter(|block| block.pending).map(|block| block.size).sum();
    let mut out = FreeMemory {
        allocated: state.allocated(),
        pending,
        reserved: state.reserved(),
        gaps: gaps.len() as u64,
        free: gaps.iter().map(|gap| gap.size).sum(),
        ..FreeMemory::default()
    };
    let mut pins: HashMap<StackId, Pins> = HashMap::new();
    for gap in &gaps {
        let neighbours: Vec<_> = [gap.below, gap.above].into_iter().flatten().collect();
        if neighbours.is_empty() {
            out.idle += gap.size;
        }
        for (_, block) in &neighbours {
            let entry = pins.entry(block.stack).or_insert(Pins { stack: block.stack, bytes: 0, gaps: 0 });
            entry.bytes += gap.size / neighbours.len() as u64;
            entry.gaps += 1;
        }
    }
    out.largest = gaps.into_iter().max_by_key(|gap| (gap.size, std::cmp::Reverse(gap.addr)));
    out.pins = top(pins.into_values().collect(), |pins| (pins.bytes, pins.stack));
    out
}

/// Everything that is worth saying of one device.
///
/// # Errors
/// The history contradicts itself.
pub fn findings(snapshot: &Snapshot, device: usize) -> Result<Findings, HistoryError> {
    let caveats = *History::of(snapshot, device)?.caveats();
    let events = snapshot.traces.get(device).map_or(&[][..], |trace| &trace.events);
    let frees = Frees::of(events);
    let mut state = State::before(snapshot, device);
    let (mut peak, mut peak_event, mut peak_reserved) = (state.allocated(), None, state.reserved());
    let mut tallies: HashMap<StackId, Tally> = HashMap::new();
    let mut device_calls = (0, 0);
    let (mut out_of_memory, mut failed) = (Vec::new(), 0);
    while let Some(event) = events.get(state.position()) {
        let at = state.position();
        match event.action {
            Action::Alloc => {
                let tally = tallies.entry(event.stack).or_default();
                tally.allocs += 1;
                tally.bytes = tally.bytes.saturating_add(event.size);
            }
            Action::FreeRequested | Action::FreeCompleted if frees.ends(event.action) => {
                if let Some(block) = state.live().get(&event.addr)
                    && let Some(since) = block.since
                {
                    let tally = tallies.entry(block.stack).or_default();
                    tally.freed += 1;
                    tally.lived += at as u64 - u64::from(since);
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => device_calls.0 += 1,
            Action::SegmentFree | Action::SegmentUnmap => device_calls.1 += 1,
            Action::Oom => {
                failed += 1;
                if out_of_memory.len() < TOLD {
                    out_of_memory.push(OutOfMemoryStory::of(event, at, &state));
                }
            }
            _ => {}
        }
        state.step();
        peak_reserved = peak_reserved.max(state.reserved());
        if state.allocated() > peak {
            (peak, peak_event) = (state.allocated(), Some(at));
        }
    }
    let (kept, kept_total) = kept(&state, events.len());
    let requests = tallies.values().fold((0u64, 0u64), |sum, t| (sum.0 + t.allocs, sum.1.saturating_add(t.bytes)));
    let churn = tallies.into_iter().filter(|(_, tally)| tally.allocs > 0).map(|(stack, tally)| Churn {
        stack,
        allocs: tally.allocs,
        bytes: tally.bytes,
        lifetime: if tally.freed > 0 { tally.lived as f64 / tally.freed as f64 } else { 0.0 },
    });
    let span_us = match (events.first(), events.last()) {
        (Some(first), Some(last)) => last.time_us.saturating_sub(first.time_us).max(0) as u64,
        _ => 0,
    };
    Ok(Findings {
        device,
        events: events.len(),
        span_us,
        peak,
        peak_event,
        peak_reserved,
        holders: holders(snapshot, device, peak_event),
        kept,
        kept_total,
        churn: top(churn.collect(), |churn| (churn.allocs, churn.stack)),
        requests,
        device_calls,
        end: free_memory(&state),
        out_of_memory,
        failed,
        caveats,
    })
}

/// Who holds memory just after an event.
fn holders(snapshot: &Snapshot, device: usize, event: Option<usize>) -> Vec<Share> {
    let mut state = State::before(snapshot, device);
    if let Some(event) = event {
        state.run_to(event + 1);
    }
    let mut shares: HashMap<StackId, Share> = HashMap::new();
    for block in state.live().values().filter(|block| !block.pending) {
        let share = shares.entry(block.stack).or_insert(Share { stack: block.stack, bytes: 0, blocks: 0 });
        share.bytes += block.size;
        share.blocks += 1;
    }
    top(shares.into_values().collect(), |share| (share.bytes, share.stack))
}

fn kept(state: &State<'_>, events: usize) -> (Vec<Kept>, (u64, u64)) {
    let mut by_stack: HashMap<StackId, Kept> = HashMap::new();
    let mut total = (0, 0);
    for block in state.live().values().filter(|block| !block.pending) {
        let none = Kept { stack: block.stack, bytes: 0, blocks: 0, quarters: [0; 4] };
        let kept = by_stack.entry(block.stack).or_insert(none);
        kept.bytes += block.size;
        kept.blocks += 1;
        total = (total.0 + block.size, total.1 + 1);
        if let Some(since) = block.since {
            kept.quarters[(since as usize * 4 / events.max(1)).min(3)] += 1;
        }
    }
    // What piles up comes first, however little it is yet.
    let mut list: Vec<Kept> = by_stack.into_values().collect();
    list.sort_by(|a, b| b.grows().cmp(&a.grows()).then(b.bytes.cmp(&a.bytes)).then(a.stack.cmp(&b.stack)));
    list.truncate(LISTED);
    (list, total)
}
