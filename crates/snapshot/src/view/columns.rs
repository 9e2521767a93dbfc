//! Events as columns of numbers, each aligned to 8 bytes, little-endian: what the page's scripts take as typed arrays.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::history::unseen;
use crate::{Action, Event, NameId, Segment, Snapshot};

/// The events of one device, or of pinned memory, behind what was there before them.
pub(super) struct Track<'s> {
    pub(super) name: String,
    /// The device; `None` for pinned memory.
    pub(super) device: Option<usize>,
    pub(super) before: Vec<Event>,
    pub(super) events: &'s [Event],
    pub(super) streams: Vec<u64>,
}

/// All tracks that have something to show; at least one.
pub(super) fn tracks(snapshot: &Snapshot) -> Vec<Track<'_>> {
    let devices = snapshot.segments.iter().filter_map(|s| usize::try_from(s.device).ok()).map(|device| device + 1);
    // A number in the file must not become that many tracks.
    let known = snapshot.traces.len().max(1);
    let count = devices.filter(|&count| count <= 256).max().unwrap_or(0).max(known);
    let mut all: Vec<Track<'_>> = (0..count)
        .map(|device| {
            let events: &[Event] = snapshot.traces.get(device).map_or(&[], |trace| &trace.events);
            let own = |s: &&Segment| usize::try_from(s.device) == Ok(device);
            let mut before = segments_before(snapshot.segments.iter().filter(own), events);
            before.extend(unseen(snapshot, device, events));
            let note = snapshot.origin.as_ref().and_then(|origin| origin.devices.get(device));
            let name = note.map(|note| note.name.clone()).filter(|name| !name.is_empty());
            Track::new(name.unwrap_or_else(|| format!("device {device}")), Some(device), before, events)
        })
        .collect();
    let host = &snapshot.host_trace.events;
    if !host.is_empty() || !snapshot.host_segments.is_empty() {
        let before = segments_before(snapshot.host_segments.iter(), host);
        all.push(Track::new("pinned host memory".to_owned(), None, before, host));
    }
    let shown = all.iter().any(|track| track.length() > 0);
    let mut first = true;
    all.retain(|track| track.length() > 0 || (!shown && std::mem::take(&mut first)));
    all
}

/// Segments that were there before the first event: given back, or there in the end, without having been taken.
fn segments_before<'s>(now: impl Iterator<Item = &'s Segment>, events: &[Event]) -> Vec<Event> {
    let mut out = Vec::new();
    let mut touched = HashSet::new();
    for event in events {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                touched.insert(event.addr);
            }
            Action::SegmentFree | Action::SegmentUnmap if touched.insert(event.addr) => {
                let growable = event.action == Action::SegmentUnmap;
                out.push(Event { action: if growable { Action::SegmentMap } else { Action::SegmentAlloc }, ..*event });
            }
            _ => {}
        }
    }
    let mut taken: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| matches!(event.action, Action::SegmentAlloc | Action::SegmentMap))
        .map(|event| (event.addr, event.addr.saturating_add(event.size)))
        .collect();
    taken.sort_unstable();
    for segment in now {
        // A growable segment is listed whole, but was taken piece by piece: the pieces that were taken are known.
        let end = segment.addr.saturating_add(segment.total);
        let first = taken.partition_point(|&(_, to)| to <= segment.addr);
        let mut at = segment.addr;
        let mut add = |from: u64, to: u64| {
            if from < to {
                out.push(Event {
                    addr: from,
                    size: to - from,
                    stream: segment.stream,
                    time_us: 0,
                    stack: segment.stack,
                    user_metadata: NameId(0),
                    compile_context: NameId(0),
                    pool: segment.pool,
                    action: if segment.growable { Action::SegmentMap } else { Action::SegmentAlloc },
                });
            }
        };
        for &(from, to) in taken[first..].iter().take_while(|&&(from, _)| from < end) {
            add(at, from.max(at));
            at = at.max(to);
        }
        add(at, end);
    }
    out
}

impl<'s> Track<'s> {
    fn new(name: String, device: Option<usize>, before: Vec<Event>, events: &'s [Event]) -> Self {
        let mut streams: Vec<u64> = before.iter().chain(events).map(|event| event.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        Track { name, device, before, events, streams }
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
