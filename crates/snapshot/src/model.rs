//! A memory history as plain data. `docs/memory-history.md` has the layout of the file.

use std::collections::HashMap;

pub use anyaccel_engine::history::Action;

use crate::intern::{FrameId, NameId, Names, StackId, Stacks};

/// A private pool's name; (0, 0) is the default pool.
pub type PoolKey = (u64, u64);

/// One event of a trace: 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The address; of [`Action::Oom`] the bytes that the device had free.
    pub addr: u64,
    /// Bytes asked for; of segment events the segment's (the stretch's) bytes.
    pub size: u64,
    /// The stream, as the runtime names it; 0 is the default stream.
    pub stream: u64,
    /// Microseconds since 1970.
    pub time_us: i64,
    /// Who called; [`StackId::ABSENT`] if the file does not say.
    pub stack: StackId,
    /// The text that was in force for the thread.
    pub user_metadata: NameId,
    /// What a compiler was at; `N/A` outside one.
    pub compile_context: NameId,
    /// The private pool, an index into [`Snapshot::pools`]; 0 is the default pool.
    pub pool: u16,
    /// What happened.
    pub action: Action,
}

/// What happened on one device, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The events.
    pub events: Vec<Event>,
}

/// In which state a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In its user's hands.
    Allocated,
    /// Given back; a stream still uses it.
    PendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Allocated => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }

    /// The state of a name in the file. PyTorch's documentation has another name for a pending block, which is known too.
    pub fn from_name(name: &str) -> Option<BlockState> {
        match name {
            "active_allocated" => Some(BlockState::Allocated),
            "active_pending_free" | "active_awaiting_free" => Some(BlockState::PendingFree),
            "inactive" => Some(BlockState::Inactive),
            _ => None,
        }
    }
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that were asked for; stale for an inactive block.
    pub requested: u64,
    /// Who asked.
    pub stack: StackId,
    /// Its state.
    pub state: BlockState,
}

/// A segment, or a mapped stretch of a growable one, at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The device; -1 for pinned host memory.
    pub device: i32,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes; of a growable one what is mapped.
    pub total: u64,
    /// Bytes of blocks in their users' hands.
    pub allocated: u64,
    /// Those, and of blocks that streams still use.
    pub active: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Of the large pool.
    pub large: bool,
    /// Growable (expandable).
    pub growable: bool,
    /// Its private pool, an index into [`Snapshot::pools`]; 0 is the default pool.
    pub pool: u16,
    /// Who made it.
    pub stack: StackId,
    /// Its blocks by address; they fill it.
    pub blocks: Vec<Block>,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: NameId,
    /// The file; empty or `??` where unknown.
    pub file: NameId,
    /// The line; 0 where unknown.
    pub line: u32,
}

/// Begin or end of an annotated range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins.
    Start,
    /// It ends.
    End,
}

/// One end of an annotated range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Which end.
    pub stage: Stage,
    /// What it is called.
    pub name: NameId,
    /// The device.
    pub device: i32,
    /// Microseconds since 1970.
    pub time_us: i64,
}

/// The allocator's settings, as far as the file tells. A key that the file lacks has its default here.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorSettings {
    /// The string in force (`PYTORCH_CUDA_ALLOC_CONF`).
    pub text: String,
    /// `max_split_size` in bytes; `None`: no limit (-1 in the file).
    pub max_split_size: Option<u64>,
    /// `garbage_collection_threshold`.
    pub garbage_collection_threshold: f64,
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `pinned_num_register_threads`.
    pub pinned_num_register_threads: u64,
    /// `release_lock_on_cudamalloc`.
    pub release_lock_on_cudamalloc: bool,
    /// `pinned_use_cuda_host_register`.
    pub pinned_use_cuda_host_register: bool,
    /// `graph_capture_record_stream_reuse`.
    pub graph_capture_record_stream_reuse: bool,
    /// `max_round_threshold` in bytes; `None`: -1 in the file.
    pub max_round_threshold: Option<u64>,
    /// `max_cached_size` in bytes; `None`: -1 in the file.
    pub max_cached_size: Option<u64>,
    /// `roundup_power2_divisions` for 1 MiB, 2 MiB .. 32768 MiB.
    pub roundup_power2_divisions: [u64; 16],
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        AllocatorSettings {
            text: String::new(),
            max_split_size: None,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            pinned_num_register_threads: 1,
            release_lock_on_cudamalloc: false,
            pinned_use_cuda_host_register: false,
            graph_capture_record_stream_reuse: false,
            max_round_threshold: None,
            max_cached_size: None,
            roundup_power2_divisions: [0; 16],
        }
    }
}

/// What a recorder of ours adds for one device, which PyTorch's file has no place for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNote {
    /// The device as the runtime names it, `cuda:0` say.
    pub name: String,
    /// Bytes of memory that it has; `None` if unknown.
    pub total_memory: Option<u64>,
    /// The limit on reserved bytes that was in force at the end; `None` if none was.
    pub limit: Option<u64>,
    /// Events that the ring had no room for: the trace lacks that many of the oldest.
    pub dropped: u64,
}

/// Who wrote the file, and what PyTorch's format has no place for: the top-level key `anyaccel`, which PyTorch's own
/// viewer ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The program and version that wrote it.
    pub writer: String,
    /// By device; as long as [`Snapshot::traces`].
    pub devices: Vec<DeviceNote>,
    /// Events that the ring of pinned memory had no room for.
    pub host_dropped: u64,
}

/// A memory history: the segments of all devices when it was taken, and what was recorded until then.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The segments of device memory, in address order.
    pub segments: Vec<Segment>,
    /// One trace a device; the index is the device.
    pub traces: Vec<Trace>,
    /// The settings of the allocator; `None` in files that lack them.
    pub settings: Option<AllocatorSettings>,
    /// Annotated ranges, in time order.
    pub annotations: Vec<Annotation>,
    /// The segments of pinned memory.
    pub host_segments: Vec<Segment>,
    /// What was recorded of pinned memory.
    pub host_trace: Trace,
    /// Who wrote it, for files of ours.
    pub origin: Option<Origin>,
    /// All strings.
    pub names: Names,
    /// All frames, each once.
    pub frames: Vec<Frame>,
    /// All stacks.
    pub stacks: Stacks,
    /// All private pools; the first is the default pool.
    pub pools: Vec<PoolKey>,
    /// What a reader has to say of the file: keys that it did not know, keys that were missing.
    pub notes: Vec<String>,
    pub(crate) frame_ids: HashMap<Frame, u32>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot {
            segments: Vec::new(),
            traces: Vec::new(),
            settings: None,
            annotations: Vec::new(),
            host_segments: Vec::new(),
            host_trace: Trace::default(),
            origin: None,
            names: Names::default(),
            frames: Vec::new(),
            stacks: Stacks::default(),
            pools: vec![(0, 0)],
            notes: Vec::new(),
            frame_ids: HashMap::new(),
        }
    }
}

impl Snapshot {
    /// An empty history.
    pub fn new() -> Self {
        Snapshot::default()
    }

    /// The number of a frame, which is added if it is new.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let next = self.frames.len() as u32;
        let id = *self.frame_ids.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        FrameId(id)
    }

    /// The index of a private pool, which is added if it is new; `None` beyond 65536 pools.
    pub fn pool(&mut self, key: PoolKey) -> Option<u16> {
        // The pool of the last events is mostly the pool of the next: few exist, and the newest are at the end.
        if key == (0, 0) {
            return Some(0);
        }
        if let Some(at) = self.pools.iter().rposition(|&known| known == key) {
            return u16::try_from(at).ok();
        }
        let at = u16::try_from(self.pools.len()).ok()?;
        self.pools.push(key);
        Some(at)
    }

    /// The name of a frame's function.
    pub fn frame_name(&self, id: FrameId) -> &str {
        self.frames.get(id.0 as usize).map_or("", |frame| self.names.get(frame.name))
    }

    /// A frame as `function (file:line)`, without what is unknown.
    pub fn frame_text(&self, id: FrameId) -> String {
        let Some(frame) = self.frames.get(id.0 as usize) else { return String::new() };
        let (name, file) = (self.names.get(frame.name), self.names.get(frame.file));
        match (file, frame.line) {
            ("" | "??", _) => name.to_owned(),
            (file, 0) => format!("{name} ({file})"),
            (file, line) => format!("{name} ({file}:{line})"),
        }
    }

    /// Events of all devices and of pinned memory.
    pub fn events(&self) -> usize {
        self.traces.iter().map(|trace| trace.events.len()).sum::<usize>() + self.host_trace.events.len()
    }

    /// Bytes held, about.
    pub fn footprint(&self) -> usize {
        let segments = |list: &[Segment]| {
            list.iter().map(|s| size_of::<Segment>() + s.blocks.capacity() * size_of::<Block>()).sum::<usize>()
        };
        let events = self.traces.iter().map(|t| t.events.capacity()).sum::<usize>() + self.host_trace.events.capacity();
        segments(&self.segments)
            + segments(&self.host_segments)
            + events * size_of::<Event>()
            + self.annotations.capacity() * size_of::<Annotation>()
            + self.names.footprint()
            + self.frames.capacity() * size_of::<Frame>()
            + self.frame_ids.capacity() * (size_of::<Frame>() + 5)
            + self.stacks.footprint()
            + self.pools.capacity() * size_of::<PoolKey>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_small() {
        assert!(size_of::<Event>() <= 48, "{}", size_of::<Event>());
        assert!(size_of::<Block>() <= 32);
    }

    #[test]
    fn what_is_the_same_is_stored_once() {
        let mut s = Snapshot::new();
        let (f, file) = (s.names.intern("f"), s.names.intern("a.py"));
        let one = s.frame(Frame { name: f, file, line: 3 });
        let other = s.frame(Frame { name: f, file, line: 4 });
        assert_eq!(s.frame(Frame { name: f, file, line: 3 }), one);
        let stack = s.stacks.intern(&[one, other]);
        assert_eq!(s.stacks.intern(&[one, other]), stack);
        assert_ne!(s.stacks.intern(&[other, one]), stack);
        assert_eq!(s.stacks.intern(&[]), StackId::EMPTY);
        assert_eq!(s.stacks.get(stack), [one, other]);
        assert_eq!(s.stacks.get(StackId::ABSENT), []);
        assert_eq!(s.frame_text(one), "f (a.py:3)");
        assert_eq!((s.names.intern(""), s.names.get(NameId(99))), (NameId(0), ""));
        assert_eq!((s.pool((0, 0)), s.pool((1, 0)), s.pool((1, 0))), (Some(0), Some(1), Some(1)));
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
    }
}
