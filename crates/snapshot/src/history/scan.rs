//! What can be told of a trace before it is gone through: which events mark frees, where `empty_cache` was called, what was
//! there before.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Action, BlockState, Event, NameId, Segment, Snapshot, StackId};

/// Whether a segment is of that device.
pub(crate) fn is_on(segment: &Segment, device: usize) -> bool {
    usize::try_from(segment.device) == Ok(device)
}

/// For each event whether the free that ends it (of an alloc: whether there is one) is in the trace: the index of the
/// first free of that address before the address is handed out again.
pub(super) fn ends(events: &[Event]) -> Vec<bool> {
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
    pub(super) fn at_once(self, events: &[Event], at: usize) -> bool {
        let Some(event) = events.get(at) else { return false };
        event.action == Action::FreeRequested
            && events.get(at + 1).is_some_and(|next| next.action == Action::FreeCompleted && next.addr == event.addr)
    }

    /// For each `free_requested` of a block that waits: the place of its end among the ends of such blocks, from 1.
    pub(super) fn ranks(self, events: &[Event]) -> HashMap<usize, u64> {
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
pub(super) fn emptied(snapshot: &Snapshot, events: &[Event]) -> Vec<bool> {
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
    let mut out: BTreeMap<u64, Event> = BTreeMap::new();
    let mut seen: HashSet<u64> = HashSet::new();
    for event in events {
        let first = || Event { action: Action::Alloc, ..*event };
        match event.action {
            Action::Alloc => drop(seen.insert(event.addr)),
            Action::FreeRequested | Action::FreeCompleted if seen.insert(event.addr) => {
                out.insert(event.addr, first());
            }
            _ => {}
        }
    }
    for segment in snapshot.segments.iter().filter(|segment| is_on(segment, device)) {
        for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            if !seen.contains(&block.addr) {
                let event = Event {
                    addr: block.addr,
                    size: block.requested.min(block.size),
                    stream: segment.stream,
                    time_us: 0,
                    stack: block.stack,
                    user_metadata: NameId(0),
                    compile_context: NameId(0),
                    pool: segment.pool,
                    action: Action::Alloc,
                };
                out.insert(block.addr, event);
            }
        }
    }
    out.into_values().collect()
}

/// Bytes that the device had reserved before the first event.
pub(super) fn reserved_before(snapshot: &Snapshot, device: usize, events: &[Event]) -> u64 {
    let now: u64 = snapshot.segments.iter().filter(|s| is_on(s, device)).map(|s| s.total).sum();
    let change = |which: fn(Action) -> bool| -> u64 {
        events.iter().filter(|event| which(event.action)).map(|event| event.size).fold(0, u64::saturating_add)
    };
    let given = change(|action| matches!(action, Action::SegmentFree | Action::SegmentUnmap));
    let taken = change(|action| matches!(action, Action::SegmentAlloc | Action::SegmentMap));
    now.saturating_add(given).saturating_sub(taken)
}

/// Memory of the device, from the first request that failed: what was reserved then and what the device had left.
pub(super) fn total_from_oom(events: &[Event], mut reserved: u64) -> Option<u64> {
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
