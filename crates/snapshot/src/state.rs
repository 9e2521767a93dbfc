//! What a device's memory looked like at any event of a trace: segments and the blocks in them, at the addresses of the
//! recording.
//!
//! Sizes of blocks are those asked for, rounded to the allocator's granule: the trace says no more. What lies between
//! them is free.

use std::collections::BTreeMap;

use crate::history::{Frees, is_on, unseen};
use crate::{Action, Event, Snapshot, StackId};

/// The allocator's granule in bytes.
const GRANULE: u64 = 512;

/// A block that is in its user's hands, or that a stream still uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Bytes asked for.
    pub size: u64,
    /// Who asked.
    pub stack: StackId,
    /// The event that began it, an index into the trace; `None` if it began before the recording.
    pub since: Option<u32>,
    /// Given back, but a stream still uses it.
    pub pending: bool,
}

/// A segment, or a mapped stretch of a growable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its bytes.
    pub size: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Its private pool; 0 is the default pool.
    pub pool: u16,
    /// A stretch of a growable segment.
    pub growable: bool,
}

/// A free run in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its address.
    pub addr: u64,
    /// Its bytes.
    pub size: u64,
    /// The address of its segment.
    pub segment: u64,
    /// The block just below it in the segment, if there is one,
    pub below: Option<(u64, LiveBlock)>,
    /// and the one just above it.
    pub above: Option<(u64, LiveBlock)>,
}

/// The memory of one device at a point of its trace.
#[derive(Clone, Debug)]
pub struct State<'s> {
    events: &'s [Event],
    frees: Frees,
    next: usize,
    spans: BTreeMap<u64, Span>,
    live: BTreeMap<u64, LiveBlock>,
    allocated: u64,
    reserved: u64,
}

impl<'s> State<'s> {
    /// The memory before the first event: what the snapshot has in the end, less what the events brought.
    pub fn before(snapshot: &'s Snapshot, device: usize) -> Self {
        let events: &[Event] = snapshot.traces.get(device).map_or(&[], |trace| &trace.events);
        let mut state = State {
            events,
            frees: Frees::of(events),
            next: 0,
            spans: BTreeMap::new(),
            live: BTreeMap::new(),
            allocated: 0,
            reserved: 0,
        };
        for segment in snapshot.segments.iter().filter(|segment| is_on(segment, device)) {
            let span =
                Span { size: segment.total, stream: segment.stream, pool: segment.pool, growable: segment.growable };
            state.spans.insert(segment.addr, span);
        }
        for event in events.iter().rev() {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => state.cut(event.addr, event.size),
                Action::SegmentFree | Action::SegmentUnmap => state.add(event),
                _ => {}
            }
        }
        state.reserved = state.spans.values().map(|span| span.size).sum();
        for event in unseen(snapshot, device, events) {
            state.allocated += event.size;
            let block = LiveBlock { size: event.size, stack: event.stack, since: None, pending: false };
            state.live.insert(event.addr, block);
        }
        state
    }

    /// Takes the next event in. `None` at the end.
    pub fn step(&mut self) -> Option<&'s Event> {
        let at = self.next;
        let event = self.events.get(at)?;
        self.next += 1;
        match event.action {
            Action::Alloc => {
                self.drop_overlapped(event.addr, event.size);
                let since = Some(at as u32);
                let block = LiveBlock { size: event.size, stack: event.stack, since, pending: false };
                self.live.insert(event.addr, block);
                self.allocated += event.size;
            }
            Action::FreeRequested if self.frees.requested => {
                if self.frees.completed {
                    if let Some(block) = self.live.get_mut(&event.addr).filter(|block| !block.pending) {
                        block.pending = true;
                        self.allocated = self.allocated.saturating_sub(block.size);
                    }
                } else {
                    self.end(event.addr);
                }
            }
            Action::FreeCompleted => self.end(event.addr),
            Action::SegmentAlloc | Action::SegmentMap => {
                self.add(event);
                self.reserved = self.reserved.saturating_add(event.size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.cut(event.addr, event.size);
                self.reserved = self.reserved.saturating_sub(event.size);
            }
            _ => {}
        }
        Some(event)
    }

    /// Takes events in up to but not including the one with that index.
    pub fn run_to(&mut self, event: usize) {
        while self.next < event && self.step().is_some() {}
    }

    /// The index of the next event.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Bytes asked for that are in the hands of users.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Bytes taken from the device.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Blocks by address.
    pub fn live(&self) -> &BTreeMap<u64, LiveBlock> {
        &self.live
    }

    /// Segments by address.
    pub fn spans(&self) -> &BTreeMap<u64, Span> {
        &self.spans
    }

    fn end(&mut self, addr: u64) {
        if let Some(block) = self.live.remove(&addr)
            && !block.pending
        {
            self.allocated = self.allocated.saturating_sub(block.size);
        }
    }

    /// Blocks whose free is missing end where their memory is handed out again.
    fn drop_overlapped(&mut self, addr: u64, size: u64) {
        while let Some((&start, block)) = self.live.range(..addr + size.max(1)).next_back() {
            if start != addr && start + block.size <= addr {
                return;
            }
            self.end(start);
        }
    }

    /// A segment comes, or a stretch is mapped, which grows what it touches.
    fn add(&mut self, event: &Event) {
        let growable = matches!(event.action, Action::SegmentMap | Action::SegmentUnmap);
        let mut start = event.addr;
        let mut span = Span { size: event.size, stream: event.stream, pool: event.pool, growable };
        if growable {
            if let Some((&at, below)) = self.spans.range(..start).next_back()
                && below.growable
                && at + below.size == start
            {
                span.size += below.size;
                self.spans.remove(&at);
                start = at;
            }
            if let Some(above) = self.spans.get(&(start + span.size)).copied().filter(|above| above.growable) {
                self.spans.remove(&(start + span.size));
                span.size += above.size;
            }
        }
        self.spans.insert(start, span);
    }

    /// A segment goes, or a stretch is unmapped, which may leave two.
    fn cut(&mut self, addr: u64, size: u64) {
        let Some((&start, &span)) = self.spans.range(..=addr).next_back() else { return };
        if start + span.size <= addr {
            return;
        }
        self.spans.remove(&start);
        if start < addr {
            self.spans.insert(start, Span { size: addr - start, ..span });
        }
        let (end, cut) = (start + span.size, addr + size);
        if cut < end {
            self.spans.insert(cut, Span { size: end - cut, ..span });
        }
    }

    /// The free runs of all segments, by address.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut out = Vec::new();
        for (&segment, span) in &self.spans {
            let end = segment + span.size;
            let mut from = segment;
            let mut below = None;
            for (&addr, block) in self.live.range(segment..end) {
                if addr > from {
                    out.push(Gap { addr: from, size: addr - from, segment, below, above: Some((addr, *block)) });
                }
                from = from.max((addr + block.size.max(1)).next_multiple_of(GRANULE));
                below = Some((addr, *block));
            }
            if end > from {
                out.push(Gap { addr: from, size: end - from, segment, below, above: None });
            }
        }
        out
    }
}
