//! From what the caches tell to the plain data of a snapshot.

use super::State;
use super::annotation::Annotations;
use crate::runtime::Runtime;
use anyaccel_engine::alloc::{BlockView, DeviceHistory, PoolId, SegmentView, Settings};
use anyaccel_engine::history::{Record, Records, StackFrame, StackId as ToldStack, StackSource};
use anyaccel_engine::pinned::{HostBlockView, HostHistory};
use anyaccel_snapshot::{
    AllocatorSettings, Annotation, Block, BlockState, DeviceNote, Event, Frame, NameId, Origin, Segment, Snapshot,
    StackId, Trace,
};
use std::collections::HashMap;
use std::sync::Arc;

/// What one device told.
struct DevicePart {
    name: String,
    history: DeviceHistory,
    host: HostHistory,
    /// The streams' ids by the driver's names for them.
    streams: HashMap<u64, u64>,
}

/// Everything that was told, before it is put in order.
pub(super) struct Parts {
    /// By ordinal; `None` for a device that is not open.
    devices: Vec<Option<DevicePart>>,
    annotations: Annotations,
    source: Option<Arc<dyn StackSource>>,
}

/// Asks every open device. The caller holds the history's lock, so that all stacks are from one source.
pub(super) fn collect(runtime: &Runtime, state: &State) -> Parts {
    let part = |port: &crate::port::Port| {
        // Ids last: of a lane that goes meanwhile the id is known all the same.
        let (history, host) = (port.cache.history(), port.host.history());
        DevicePart { name: port.device.to_string(), history, host, streams: port.lanes.ids() }
    };
    let devices = runtime.core.running().map_or_else(Vec::new, |live| {
        (0..live.count()).map(|ordinal| live.open_port(ordinal).map(|port| part(port))).collect()
    });
    Parts {
        devices,
        annotations: state.annotations.clone(),
        source: state.recording.as_ref().and_then(|recording| recording.source.clone()),
    }
}

/// Streams that are gone for so long that nobody knows their ids are told apart from all others, whose ids are below.
const GONE: u64 = 1 << 48;

/// Puts a snapshot together.
pub(super) fn snapshot(parts: Parts, settings: &Settings) -> Snapshot {
    let mut out = Snapshot::new();
    out.settings = Some(plain(settings));
    for mark in parts.annotations.iter() {
        let name = out.names.intern(&mark.name);
        let device = mark.device as i32;
        out.annotations.push(Annotation { stage: mark.stage, name, device, time_us: mark.time_us });
    }
    let mut maker = Maker { out, source: parts.source, stacks: HashMap::new() };
    let mut origin = Origin { writer: concat!("anyaccel ", env!("CARGO_PKG_VERSION")).to_owned(), ..Origin::default() };
    for (ordinal, part) in parts.devices.iter().enumerate() {
        let Some(part) = part else {
            maker.out.traces.push(Trace::default());
            origin.devices.push(DeviceNote::default());
            continue;
        };
        let DevicePart { name, history, host, streams } = part;
        for view in &history.segments {
            let segment = maker.segment(ordinal as i32, view, streams);
            maker.out.segments.push(segment);
        }
        let events = maker.events(&history.records, streams, "N/A");
        maker.out.traces.push(Trace { events });
        for block in &host.blocks {
            let segment = maker.pinned(block);
            maker.out.host_segments.push(segment);
        }
        let events = maker.events(&host.records, streams, "");
        maker.out.host_trace.events.extend(events);
        origin.devices.push(DeviceNote {
            name: name.clone(),
            total_memory: Some(history.total),
            limit: history.limit,
            dropped: history.records.dropped(),
        });
        origin.host_dropped += host.records.dropped();
    }
    // Of several devices: one list, in time order.
    maker.out.host_trace.events.sort_by_key(|event| event.time_us);
    maker.out.origin = Some(origin);
    maker.out
}

struct Maker {
    out: Snapshot,
    source: Option<Arc<dyn StackSource>>,
    stacks: HashMap<ToldStack, StackId>,
}

impl Maker {
    fn stack(&mut self, told: ToldStack) -> StackId {
        match told {
            ToldStack::ABSENT => return StackId::ABSENT,
            ToldStack::EMPTY => return StackId::EMPTY,
            _ => {}
        }
        if let Some(&known) = self.stacks.get(&told) {
            return known;
        }
        let frames = self.source.as_ref().map_or_else(Vec::new, |source| source.frames(told));
        let mut numbers = Vec::with_capacity(frames.len());
        for StackFrame { name, file, line } in frames {
            let frame = Frame { name: self.out.names.intern(&name), file: self.out.names.intern(&file), line };
            numbers.push(self.out.frame(frame));
        }
        let stack = self.out.stacks.intern(&numbers);
        self.stacks.insert(told, stack);
        stack
    }

    /// The stack of a segment or block: the format has one for each, empty where nothing is known.
    fn list(&mut self, told: ToldStack) -> StackId {
        if told == ToldStack::ABSENT { StackId::EMPTY } else { self.stack(told) }
    }

    fn pool(&mut self, pool: Option<PoolId>) -> u16 {
        pool.map_or(0, |PoolId(first, second)| self.out.pool((first, second)).unwrap_or(u16::MAX))
    }

    fn events(&mut self, records: &Records, streams: &HashMap<u64, u64>, compile_context: &str) -> Vec<Event> {
        let compile_context = self.out.names.intern(compile_context);
        let mut events = Vec::with_capacity(records.len());
        for record in records.iter() {
            let Record { addr, size, stream, time_us, ref label, stack, action, .. } = *record;
            events.push(Event {
                addr,
                size,
                stream: stream_id(streams, stream),
                time_us,
                stack: self.stack(stack),
                user_metadata: label.as_ref().map_or(NameId::default(), |label| self.out.names.intern(label)),
                compile_context,
                pool: self.pool(records.pool(record)),
                action,
            });
        }
        events
    }

    fn segment(&mut self, device: i32, view: &SegmentView, streams: &HashMap<u64, u64>) -> Segment {
        let mut at = view.addr;
        let blocks: Vec<Block> = view
            .blocks
            .iter()
            .map(|&BlockView { size, requested, allocated, active, stack }| {
                let addr = at;
                at += size;
                Block { addr, size, requested, stack: self.list(stack), state: state(allocated, active) }
            })
            .collect();
        Segment {
            device,
            addr: view.addr,
            total: at - view.addr,
            allocated: view.bytes(|block| block.allocated),
            active: view.bytes(|block| block.active),
            requested: blocks.iter().map(|block| block.requested).sum(),
            stream: stream_id(streams, view.stream),
            large: view.large,
            growable: view.growable,
            pool: self.pool(view.pool),
            stack: self.list(view.stack),
            blocks,
        }
    }

    /// A block of pinned memory: a segment of one block, which PyTorch calls small whatever its size.
    fn pinned(&mut self, view: &HostBlockView) -> Segment {
        let &HostBlockView { addr, size, requested, allocated, active, maker, stack } = view;
        let block = Block { addr, size, requested, stack: self.list(stack), state: state(allocated, active) };
        Segment {
            device: -1,
            addr,
            total: size,
            allocated: if allocated { size } else { 0 },
            active: if active { size } else { 0 },
            requested,
            stream: 0,
            large: false,
            growable: false,
            pool: 0,
            stack: self.list(maker),
            blocks: vec![block],
        }
    }
}

fn state(allocated: bool, active: bool) -> BlockState {
    match (allocated, active) {
        (true, _) => BlockState::Allocated,
        (false, true) => BlockState::PendingFree,
        (false, false) => BlockState::Inactive,
    }
}

/// The id of a stream by the driver's name: 0 for the default one, which some events name that have none.
fn stream_id(streams: &HashMap<u64, u64>, raw: u64) -> u64 {
    match streams.get(&raw) {
        Some(&id) => id,
        None if raw == 0 => 0,
        None => GONE | raw,
    }
}

/// The settings as far as PyTorch's file has them.
fn plain(settings: &Settings) -> AllocatorSettings {
    AllocatorSettings {
        text: settings.text.clone(),
        max_split_size: settings.max_split_size,
        garbage_collection_threshold: settings.garbage_collection_threshold,
        expandable_segments: settings.expandable_segments,
        pinned_num_register_threads: settings.pinned_num_register_threads,
        release_lock_on_cudamalloc: settings.release_lock_on_cudamalloc,
        pinned_use_cuda_host_register: settings.pinned_use_cuda_host_register,
        graph_capture_record_stream_reuse: settings.graph_capture_record_stream_reuse,
        max_round_threshold: settings.pinned_max_round_threshold,
        max_cached_size: settings.pinned_max_cached_size,
        roundup_power2_divisions: settings.roundup_power2_divisions,
    }
}
