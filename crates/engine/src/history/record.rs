//! One event, and the stacks that events name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::alloc::PoolId;

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// Its user gave it back.
    FreeRequested,
    /// No stream uses it any more.
    FreeCompleted,
    /// The device gave a segment.
    SegmentAlloc,
    /// A segment went back to the device.
    SegmentFree,
    /// A stretch of a growable segment was mapped.
    SegmentMap,
    /// A stretch of a growable segment was unmapped.
    SegmentUnmap,
    /// A request failed for lack of memory. In a file its `addr` is what the device had free.
    Oom,
    /// A snapshot was taken. In a file its `addr` is 0, its `size` the bytes allocated.
    Snapshot,
    /// A block was given a name (`user_metadata`).
    Annotate,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 10] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Oom,
        Action::Snapshot,
        Action::Annotate,
    ];

    /// Its name in PyTorch's files.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Oom => "oom",
            Action::Snapshot => "snapshot",
            Action::Annotate => "annotate",
        }
    }

    /// The action of a name in PyTorch's files.
    pub fn from_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// Names a stack of a [`StackSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack of which nothing is known.
    pub const EMPTY: StackId = StackId(0);
    /// No stack was asked for.
    pub const ABSENT: StackId = StackId(u32::MAX);
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The function.
    pub name: Arc<str>,
    /// The file; empty where unknown.
    pub file: Arc<str>,
    /// The line; 0 where unknown.
    pub line: u32,
}

/// Tells who is calling. [`stack`](StackSource::stack) runs on the calling thread, outside all locks of the caches, and
/// must not call a cache. A source whose stack can't be had says [`StackId::EMPTY`].
pub trait StackSource: Send + Sync {
    /// The number of the present thread's stack; equal stacks should have equal numbers. Where `call` is given, the
    /// stack begins with a frame of that name: PyTorch's tools tell `empty_cache` from an eviction by it.
    fn stack(&self, call: Option<&'static str>) -> StackId;

    /// The frames of a stack, innermost first; none for a number that this source did not give.
    fn frames(&self, stack: StackId) -> Vec<StackFrame>;
}

/// The stack that a source tells; one that panics tells none.
pub(crate) fn captured(source: Option<Arc<dyn StackSource>>, call: Option<&'static str>) -> StackId {
    let Some(source) = source else { return StackId::EMPTY };
    catch_unwind(AssertUnwindSafe(|| source.stack(call))).unwrap_or(StackId::EMPTY)
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The address; for [`Action::Oom`] the bytes that the device had free.
    pub addr: u64,
    /// Bytes asked for; of segment events, the bytes of the segment or stretch.
    pub size: u64,
    /// The stream that the memory serves.
    pub stream: u64,
    /// Microseconds since 1970.
    pub time_us: i64,
    /// What the calling thread's scopes were called; `None` outside all.
    pub label: Option<Arc<str>>,
    /// Who called.
    pub stack: StackId,
    /// The private pool, as an index that [`Records::pool`](super::Records::pool) knows; 0 is the default pool.
    pub(crate) pool: u16,
    /// What happened.
    pub action: Action,
}

const _: () = assert!(size_of::<Record>() <= 56);

/// Pools by the numbers that records name them with.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolNames(Vec<PoolId>);

impl PoolNames {
    /// The number of a pool. The 65,536th and further ones share the last number.
    pub(crate) fn number(&mut self, pool: Option<PoolId>) -> u16 {
        let Some(pool) = pool else { return 0 };
        let at = self.0.iter().rposition(|&known| known == pool).unwrap_or_else(|| {
            if self.0.len() < usize::from(u16::MAX) {
                self.0.push(pool);
            }
            self.0.len() - 1
        });
        at as u16 + 1
    }

    pub(crate) fn get(&self, number: u16) -> Option<PoolId> {
        self.0.get(usize::from(number).checked_sub(1)?).copied()
    }
}
