//! Writes snapshots as PyTorch 2.14 does: pickle protocol 4, of plain dictionaries, lists, strings, numbers and pairs.
//!
//! Keys, their order and their types are PyTorch's; its viewer and `pickle.load` open the result. One key is ours,
//! `anyaccel`, the last one: what the format has no place for. See [`Origin`](crate::Origin).
//!
//! What repeats is written once and named by number afterwards: keys, strings, frames, and also whole stacks, where
//! PyTorch writes a list for each event. Nothing is kept of what was written but these numbers, so writing needs no
//! memory in proportion to the events.

mod file;
mod pickle;

use std::io::{self, Write};

use crate::{
    Action, AllocatorSettings, Annotation, Block, DeviceNote, Event, Origin, Segment, Snapshot, StackId, Stage,
};
pub use file::WriteError;
pub(crate) use file::save;
use pickle::{Memo, Pickle};

/// Which things were written already, by number.
struct Known {
    names: Vec<Memo>,
    frames: Vec<Memo>,
    stacks: Vec<Memo>,
    pools: Vec<Memo>,
}

/// Writes a snapshot to `output`, as it goes.
///
/// # Errors
/// Those of `output`.
pub fn write(snapshot: &Snapshot, output: impl Write) -> io::Result<()> {
    let known = Known {
        names: vec![Memo::default(); snapshot.names.iter().len()],
        frames: vec![Memo::default(); snapshot.frames.len()],
        stacks: vec![Memo::default(); snapshot.stacks.count()],
        pools: vec![Memo::default(); snapshot.pools.len()],
    };
    let mut writer = Writer { pickle: Pickle::begin(output)?, snapshot, known };
    writer.top()?;
    writer.pickle.end()
}

impl Snapshot {
    /// The snapshot as PyTorch would write it.
    pub fn to_pickle(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to memory can't fail.
        let _infallible = write(self, &mut bytes);
        bytes
    }
}

struct Writer<'s, W: Write> {
    pickle: Pickle<W>,
    snapshot: &'s Snapshot,
    known: Known,
}

impl<W: Write> Writer<'_, W> {
    fn top(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        self.pickle.dict();
        self.pickle.key("segments");
        self.list(&snapshot.segments, Self::segment)?;
        self.pickle.key("device_traces");
        self.list(&snapshot.traces, |writer, trace| writer.list(&trace.events, |writer, event| writer.event(event)))?;
        self.pickle.key("allocator_settings");
        self.settings(snapshot.settings.as_ref().unwrap_or(&AllocatorSettings::default()));
        self.pickle.key("external_annotations");
        self.list(&snapshot.annotations, |writer, annotation| {
            writer.annotation(annotation);
            Ok(())
        })?;
        self.pickle.key("host_segments");
        self.list(&snapshot.host_segments, Self::segment)?;
        self.pickle.key("host_traces");
        self.list(&snapshot.host_trace.events, |writer, event| writer.event(event))?;
        if let Some(origin) = &snapshot.origin {
            self.pickle.key("anyaccel");
            self.origin(origin)?;
        }
        self.pickle.end_dict();
        Ok(())
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T) -> io::Result<()>) -> io::Result<()> {
        self.pickle.list();
        for piece in items.chunks(pickle::BATCH) {
            self.pickle.mark();
            for value in piece {
                item(self, value)?;
                self.pickle.flush_full()?;
            }
            self.pickle.append_marked();
        }
        Ok(())
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        self.pickle.dict();
        self.pickle.key("device");
        self.pickle.signed(segment.device.into());
        for (key, value) in [
            ("address", segment.addr),
            ("total_size", segment.total),
            ("allocated_size", segment.allocated),
            ("active_size", segment.active),
            ("requested_size", segment.requested),
            ("stream", segment.stream),
        ] {
            self.pickle.key(key);
            self.pickle.unsigned(value);
        }
        self.pickle.key("segment_type");
        self.pickle.constant(if segment.large { "large" } else { "small" });
        self.pickle.key("segment_pool_id");
        self.pool(segment.pool);
        self.pickle.key("is_expandable");
        self.pickle.boolean(segment.growable);
        self.pickle.key("frames");
        self.stack(segment.stack);
        self.pickle.key("blocks");
        self.list(&segment.blocks, |writer, block| {
            writer.block(block);
            Ok(())
        })?;
        self.pickle.end_dict();
        Ok(())
    }

    fn block(&mut self, block: &Block) {
        self.pickle.dict();
        for (key, value) in [("address", block.addr), ("size", block.size), ("requested_size", block.requested)] {
            self.pickle.key(key);
            self.pickle.unsigned(value);
        }
        self.pickle.key("state");
        self.pickle.constant(block.state.name());
        self.pickle.key("frames");
        self.stack(block.stack);
        self.pickle.end_dict();
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.pickle.dict();
        self.pickle.key("action");
        self.pickle.constant(event.action.name());
        self.pickle.key(if event.action == Action::Oom { "device_free" } else { "addr" });
        self.pickle.unsigned(event.addr);
        self.pickle.key("size");
        self.pickle.unsigned(event.size);
        self.pickle.key("stream");
        self.pickle.unsigned(event.stream);
        self.pickle.key("time_us");
        self.pickle.signed(event.time_us);
        self.pickle.key("compile_context");
        self.name(event.compile_context);
        self.pickle.key("user_metadata");
        self.name(event.user_metadata);
        self.pickle.key("pool_id");
        self.pool(event.pool);
        if event.stack != StackId::ABSENT {
            self.pickle.key("frames");
            self.stack(event.stack);
        }
        self.pickle.end_dict();
        Ok(())
    }

    fn annotation(&mut self, annotation: &Annotation) {
        self.pickle.dict();
        self.pickle.key("stage");
        self.pickle.constant(match annotation.stage {
            Stage::Start => "START",
            Stage::End => "END",
        });
        self.pickle.key("name");
        self.name(annotation.name);
        self.pickle.key("device");
        self.pickle.signed(annotation.device.into());
        self.pickle.key("time_us");
        self.pickle.signed(annotation.time_us);
        self.pickle.end_dict();
    }

    fn settings(&mut self, settings: &AllocatorSettings) {
        let limit = |bytes: Option<u64>| bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        self.pickle.dict();
        self.pickle.key("PYTORCH_CUDA_ALLOC_CONF");
        self.pickle.text(&settings.text);
        self.pickle.key("max_split_size");
        self.pickle.signed(limit(settings.max_split_size));
        self.pickle.key("garbage_collection_threshold");
        self.pickle.float(settings.garbage_collection_threshold);
        self.pickle.key("expandable_segments");
        self.pickle.boolean(settings.expandable_segments);
        self.pickle.key("pinned_num_register_threads");
        self.pickle.unsigned(settings.pinned_num_register_threads);
        for (key, value) in [
            ("release_lock_on_cudamalloc", settings.release_lock_on_cudamalloc),
            ("pinned_use_cuda_host_register", settings.pinned_use_cuda_host_register),
            ("graph_capture_record_stream_reuse", settings.graph_capture_record_stream_reuse),
        ] {
            self.pickle.key(key);
            self.pickle.boolean(value);
        }
        self.pickle.key("max_round_threshold");
        self.pickle.signed(limit(settings.max_round_threshold));
        self.pickle.key("max_cached_size");
        self.pickle.signed(limit(settings.max_cached_size));
        self.pickle.key("roundup_power2_divisions");
        self.pickle.dict();
        for (slot, &divisions) in settings.roundup_power2_divisions.iter().enumerate() {
            self.pickle.text(&(1u64 << slot).to_string());
            self.pickle.unsigned(divisions);
        }
        self.pickle.end_dict();
        self.pickle.end_dict();
    }

    fn origin(&mut self, origin: &Origin) -> io::Result<()> {
        self.pickle.dict();
        self.pickle.key("writer");
        self.pickle.text(&origin.writer);
        self.pickle.key("devices");
        self.list(&origin.devices, |writer, DeviceNote { name, total_memory, limit, dropped }| {
            let known = |bytes: &Option<u64>| bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
            writer.pickle.dict();
            writer.pickle.key("name");
            writer.pickle.text(name);
            writer.pickle.key("total_memory");
            writer.pickle.signed(known(total_memory));
            writer.pickle.key("limit");
            writer.pickle.signed(known(limit));
            writer.pickle.key("dropped");
            writer.pickle.unsigned(*dropped);
            writer.pickle.end_dict();
            Ok(())
        })?;
        self.pickle.key("host_dropped");
        self.pickle.unsigned(origin.host_dropped);
        self.pickle.end_dict();
        Ok(())
    }

    fn name(&mut self, id: crate::NameId) {
        let text = self.snapshot.names.get(id);
        match self.known.names.get_mut(id.0 as usize) {
            // A number costs more than an empty string.
            Some(memo) if !text.is_empty() => self.pickle.once(memo, |pickle| pickle.text(text)),
            _ => self.pickle.text(text),
        }
    }

    fn pool(&mut self, pool: u16) {
        let at = usize::from(pool);
        let (first, second) = self.snapshot.pools.get(at).copied().unwrap_or_default();
        let write = |pickle: &mut Pickle<W>| {
            pickle.unsigned(first);
            pickle.unsigned(second);
            pickle.pair();
        };
        match self.known.pools.get_mut(at) {
            Some(memo) => self.pickle.once(memo, write),
            None => write(&mut self.pickle),
        }
    }

    /// A list of frames; empty for a stack that is not known.
    fn stack(&mut self, id: StackId) {
        let frames = self.snapshot.stacks.get(id);
        if frames.is_empty() {
            return self.pickle.list();
        }
        let at = id.0 as usize;
        if self.pickle.again(self.known.stacks[at]) {
            return;
        }
        self.pickle.list();
        self.known.stacks[at] = self.pickle.remember();
        for piece in frames.chunks(pickle::BATCH) {
            self.pickle.mark();
            for &frame in piece {
                let Some(&crate::Frame { name, file, line }) = self.snapshot.frames.get(frame.0 as usize) else {
                    continue;
                };
                let known = frame.0 as usize;
                if self.pickle.again(self.known.frames[known]) {
                    continue;
                }
                self.pickle.empty_dict();
                self.known.frames[known] = self.pickle.remember();
                self.pickle.mark();
                self.pickle.key("name");
                self.name(name);
                self.pickle.key("filename");
                self.name(file);
                self.pickle.key("line");
                self.pickle.unsigned(line.into());
                self.pickle.end_dict();
            }
            self.pickle.append_marked();
        }
    }
}
