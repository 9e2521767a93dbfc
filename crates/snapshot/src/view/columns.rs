//! Events as columns of numbers, each aligned to 8 bytes, little-endian: what the page's scripts take as typed arrays.

use std::io::{self, Write};

use crate::{Action, Event, NameId, Segment, Snapshot, StackId, State};

/// The events of one device, or of pinned memory, behind what was there before them.
pub(super) struct Track<'s> {
    pub(super) name: String,
    /// Where the events are: the history itself, or [`pinned`].
    pub(super) history: &'s Snapshot,
    pub(super) device: usize,
    pub(super) before: Vec<Event>,
    pub(super) events: &'s [Event],
    pub(super) streams: Vec<u64>,
}

/// Pinned memory as if it were a device's: without names and stacks, which stay those of the history.
pub(super) fn pinned(snapshot: &Snapshot) -> Option<Snapshot> {
    let there = !snapshot.host_trace.events.is_empty() || !snapshot.host_segments.is_empty();
    there.then(|| Snapshot {
        segments: snapshot.host_segments.iter().map(|segment| Segment { device: 0, ..segment.clone() }).collect(),
        traces: vec![snapshot.host_trace.clone()],
        pools: snapshot.pools.clone(),
        ..Snapshot::default()
    })
}

/// All tracks that have something to show; at least one.
pub(super) fn tracks<'s>(snapshot: &'s Snapshot, pinned: Option<&'s Snapshot>) -> Vec<Track<'s>> {
    let devices = snapshot.segments.iter().filter_map(|s| usize::try_from(s.device).ok()).map(|device| device + 1);
    // A number in the file must not become that many tracks.
    let named = devices.filter(|&count| count <= 256).max().unwrap_or(0);
    let count = named.max(snapshot.traces.len()).max(1);
    let mut all: Vec<Track<'_>> = (0..count)
        .map(|device| {
            let note = snapshot.origin.as_ref().and_then(|origin| origin.devices.get(device));
            let name = note.map(|note| note.name.clone()).filter(|name| !name.is_empty());
            Track::new(name.unwrap_or_else(|| format!("device {device}")), snapshot, device)
        })
        .collect();
    all.extend(pinned.map(|pinned| Track::new("pinned host memory".to_owned(), pinned, 0)));
    let shown = all.iter().any(|track| track.length() > 0);
    let mut first = true;
    all.retain(|track| track.length() > 0 || (!shown && std::mem::take(&mut first)));
    all
}

/// What was there before the first event, as events.
fn before(state: &State<'_>) -> Vec<Event> {
    let event = |addr, size, stream, pool, stack, action| Event {
        addr,
        size,
        stream,
        time_us: 0,
        stack,
        user_metadata: NameId(0),
        compile_context: NameId(0),
        pool,
        action,
    };
    let spans = state.spans().iter().map(|(&addr, span)| {
        let action = if span.growable { Action::SegmentMap } else { Action::SegmentAlloc };
        event(addr, span.size, span.stream, span.pool, StackId::ABSENT, action)
    });
    let blocks = state.live().iter().map(|(&addr, block)| {
        let home = state.spans().range(..=addr).next_back().map(|(_, span)| (span.stream, span.pool));
        let (stream, pool) = home.unwrap_or_default();
        event(addr, block.size, stream, pool, block.stack, Action::Alloc)
    });
    spans.chain(blocks).collect()
}

impl<'s> Track<'s> {
    fn new(name: String, history: &'s Snapshot, device: usize) -> Self {
        let events: &[Event] = history.traces.get(device).map_or(&[], |trace| &trace.events);
        let before = before(&State::before(history, device));
        let mut streams: Vec<u64> = before.iter().chain(events).map(|event| event.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        Track { name, history, device, before, events, streams }
    }

    pub(super) fn length(&self) -> usize {
        self.before.len() + self.events.len()
    }

    /// Whether the trace tells when a block is free again.
    pub(super) fn completions(&self) -> bool {
        self.events.iter().any(|event| event.action == Action::FreeCompleted)
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.before.iter().chain(self.events)
    }

    /// The index of a stream; more than 65536 streams are told apart no further.
    fn stream(&self, id: u64) -> u16 {
        self.streams.binary_search(&id).ok().and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX)
    }

    /// Writes the columns: address, size, time (f64), stack (u32), stream, pool (u16), action (u8).
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let first = self.events.first().map_or(0, |event| event.time_us);
        let time = |event: &Event| if event.time_us == 0 { 0.0 } else { event.time_us.wrapping_sub(first) as f64 };
        // What is beyond 2^53 loses its last bits: no address and no size of a real device is.
        column(out, self.all().map(|event| (event.addr as f64).to_le_bytes()))?;
        column(out, self.all().map(|event| (event.size as f64).to_le_bytes()))?;
        column(out, self.all().map(|event| time(event).to_le_bytes()))?;
        column(out, self.all().map(|event| event.stack.0.to_le_bytes()))?;
        let mut last = (0, self.stream(0));
        column(
            out,
            self.all().map(|event| {
                if event.stream != last.0 {
                    last = (event.stream, self.stream(event.stream));
                }
                last.1.to_le_bytes()
            }),
        )?;
        column(out, self.all().map(|event| event.pool.to_le_bytes()))?;
        column(out, self.all().map(|event| (event.action as u8).to_le_bytes()))
    }
}

/// Writes the items, and zeros up to a multiple of 8 bytes.
fn column<const N: usize>(out: &mut impl Write, items: impl Iterator<Item = [u8; N]>) -> io::Result<()> {
    let mut block = Vec::with_capacity(1 << 16);
    let mut written = 0;
    for item in items {
        block.extend_from_slice(&item);
        if block.len() >= (1 << 16) - 8 {
            written += block.len();
            out.write_all(&block)?;
            block.clear();
        }
    }
    written += block.len();
    block.resize(block.len() + written.next_multiple_of(8) - written, 0);
    out.write_all(&block)
}
