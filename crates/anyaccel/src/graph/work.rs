//! Nodes: operations as a graph holds them, with the blocks that their places belong to.

use crate::lane::LaneRef;
use crate::local;
use crate::port::{Block, HostBlock, Part};
use anyaccel_engine::graph::{self, Stretch};
use anyaccel_hal::{End, HostFn, HostStatus, Kernel, Launch, Op, OwnedArg, Pattern, Place, Written};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which block a place belongs to, for as long as the graph keeps it (or a weak reference to it).
pub(crate) type BlockName = usize;

pub(crate) fn name_of<T>(block: &Arc<T>) -> BlockName {
    Arc::as_ptr(block) as usize
}

/// A place in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) place: Place,
    pub(crate) block: BlockName,
}

impl Spot {
    pub(crate) fn of(part: &Part<'_>) -> Self {
        Self { place: part.place(), block: name_of(part.block) }
    }

    fn stretch(&self, len: u64) -> Stretch {
        Stretch { memory: self.block as u64, offset: self.place.offset, len }
    }
}

/// An end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Site {
    Device(Spot),
    Host { end: End, block: BlockName, at: u64 },
}

impl Site {
    pub(crate) fn host(block: &Arc<HostBlock>, at: usize, len: u64) -> Self {
        Self::Host { end: block.end(at, len), block: name_of(block), at: at as u64 }
    }

    pub(crate) fn end(&self) -> End {
        match self {
            Self::Device(spot) => End::Device(spot.place),
            Self::Host { end, .. } => *end,
        }
    }

    fn stretch(&self, len: u64) -> Stretch {
        match *self {
            Self::Device(spot) => spot.stretch(len),
            Self::Host { block, at, .. } => Stretch { memory: block as u64, offset: at, len },
        }
    }
}

/// An argument of a captured launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    Place { spot: Spot, len: u64 },
    Bytes(Box<[u8]>),
    Local(usize),
}

impl Argument {
    fn owned(&self) -> OwnedArg {
        match self {
            Self::Place { spot, len } => OwnedArg::Place { place: spot.place, len: *len },
            Self::Bytes(bytes) => OwnedArg::Bytes(bytes.clone()),
            Self::Local(len) => OwnedArg::Local(*len),
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Copy {
        dst: Site,
        src: Site,
        len: u64,
    },
    /// From a peer's memory.
    Peer {
        dst: Spot,
        from: u32,
        src: Spot,
        len: u64,
    },
    Fill {
        dst: Spot,
        pattern: Pattern,
        len: u64,
    },
    Write {
        dst: Spot,
        bytes: Written,
    },
    Call(Arc<Repeated>),
    Launch {
        name: &'static str,
        kernel: Kernel,
        launch: Launch,
        args: Box<[Argument]>,
    },
}

impl Work {
    /// The operation for a backend's own graph; `None` for what has no such form.
    pub(crate) fn op(&self) -> Option<Op> {
        Some(match self {
            Self::Copy { dst, src, len } => Op::Copy { dst: dst.end(), src: src.end(), len: *len },
            Self::Peer { .. } => return None,
            Self::Fill { dst, pattern, len } => Op::Fill { dst: dst.place, pattern: *pattern, len: *len },
            Self::Write { dst, bytes } => Op::Write { dst: dst.place, bytes: *bytes },
            Self::Call(function) => Op::HostCall(function.each()),
            Self::Launch { kernel, launch, args, .. } => {
                Op::Launch { kernel: *kernel, launch: *launch, args: args.iter().map(Argument::owned).collect() }
            }
        })
    }

    /// Whether it is a copy whose ends share bytes, which no device has to do.
    pub(crate) fn ends_overlap(&self) -> bool {
        match self {
            Self::Copy { dst, src, len } => dst.stretch(*len).overlaps(&src.stretch(*len)),
            Self::Peer { dst, src, len, .. } => dst.stretch(*len).overlaps(&src.stretch(*len)),
            _ => false,
        }
    }

    /// Every place of device memory in it, with how many bytes from there on it may touch.
    pub(crate) fn spots(&mut self) -> Vec<(&mut Spot, u64)> {
        match self {
            Self::Copy { dst, src, len } => {
                let sites = [dst, src].into_iter();
                let device = sites.filter_map(|site| match site {
                    Site::Device(spot) => Some((spot, *len)),
                    Site::Host { .. } => None,
                });
                device.collect()
            }
            Self::Peer { dst, src, len, .. } => vec![(dst, *len), (src, *len)],
            Self::Fill { dst, len, .. } => vec![(dst, *len)],
            Self::Write { dst, bytes } => vec![(dst, bytes.bytes().len() as u64)],
            Self::Call(_) => Vec::new(),
            Self::Launch { args, .. } => args
                .iter_mut()
                .filter_map(|arg| match arg {
                    Argument::Place { spot, len } => Some((spot, *len)),
                    _ => None,
                })
                .collect(),
        }
    }
}

impl graph::Work for Work {
    fn name(&self) -> &str {
        match self {
            Self::Copy { dst: Site::Device(_), src: Site::Device(_), .. } => "copy",
            Self::Copy { dst: Site::Device(_), .. } => "upload",
            Self::Copy { .. } => "download",
            Self::Peer { .. } => "copy between devices",
            Self::Fill { .. } => "fill",
            Self::Write { .. } => "write",
            Self::Call(_) => "host function",
            Self::Launch { name, .. } => name,
        }
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Copy { len, .. } | Self::Peer { len, .. } | Self::Fill { len, .. } => Some(*len),
            Self::Write { bytes, .. } => Some(bytes.bytes().len() as u64),
            Self::Call(_) => None,
            Self::Launch { args, .. } => {
                let places = args.iter().filter_map(|arg| match arg {
                    Argument::Place { len, .. } => Some(*len),
                    _ => None,
                });
                Some(places.sum()).filter(|&bytes| bytes > 0)
            }
        }
    }

    /// Neighbours in one block: two writes of up to 64 bytes, two fills with one pattern, two copies both of whose ends go
    /// on where the first ended and whose ends as a whole don't overlap.
    fn absorb(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Fill { dst, pattern, len }, Self::Fill { dst: next_dst, pattern: next_pattern, len: next_len })
                if pattern == next_pattern =>
            {
                let Some(both) = dst.stretch(*len).with(&next_dst.stretch(*next_len)) else { return false };
                *len = both.len;
                true
            }
            (Self::Write { dst, bytes }, Self::Write { dst: next_dst, bytes: next_bytes }) => {
                let (own, next) = (bytes.bytes(), next_bytes.bytes());
                if dst.stretch(own.len() as u64).with(&next_dst.stretch(next.len() as u64)).is_none() {
                    return false;
                }
                let mut joined = [0; 2 * Written::MAX];
                joined[..own.len()].copy_from_slice(own);
                joined[own.len()..][..next.len()].copy_from_slice(next);
                match Written::new(&joined[..own.len() + next.len()]) {
                    Some(joined) => {
                        *bytes = joined;
                        true
                    }
                    None => false,
                }
            }
            (Self::Copy { dst, src, len }, Self::Copy { dst: next_dst, src: next_src, len: next_len }) => {
                let same_kind = |a: &Site, b: &Site| matches!(a, Site::Device(_)) == matches!(b, Site::Device(_));
                if !same_kind(dst, next_dst) || !same_kind(src, next_src) {
                    return false;
                }
                let to = dst.stretch(*len).with(&next_dst.stretch(*next_len));
                let from = src.stretch(*len).with(&next_src.stretch(*next_len));
                match (to, from) {
                    (Some(to), Some(from)) if !to.overlaps(&from) => {
                        *len = to.len;
                        true
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

type Function = Box<dyn FnMut() + Send>;

/// A host function of a graph: called once for each replay.
pub(crate) struct Repeated {
    function: Mutex<Option<Function>>,
    /// How often its turn came.
    turns: Mutex<u64>,
    targets: Arc<Targets>,
}

impl fmt::Debug for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeated").finish_non_exhaustive()
    }
}

impl Repeated {
    pub(crate) fn new(targets: &Arc<Targets>, function: impl FnMut() + Send + 'static) -> Arc<Self> {
        let function = Mutex::new(Some(Box::new(function) as Function));
        Arc::new(Self { function, turns: Mutex::new(0), targets: Arc::clone(targets) })
    }

    /// As a backend calls it, any number of times.
    pub(crate) fn each(self: &Arc<Self>) -> HostFn {
        let this = Arc::clone(self);
        HostFn::new(move |status| this.turn(status))
    }

    /// Its turn in a replay. A panic in it is the stream's that the replay went to.
    fn turn(&self, status: HostStatus) {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            *turns += 1;
            *turns - 1
        };
        if status == HostStatus::Cancelled {
            return;
        }
        local::as_host_fn(|| {
            let mut function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(function) = &mut *function else { return };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(function))
                && let Some(lane) = self.targets.of(turn)
            {
                lane.note_panic(&*payload);
            }
        });
    }
}

impl Drop for Repeated {
    /// What the function owns is dropped where drops know not to call the driver, as after an eager call.
    fn drop(&mut self) {
        let function = self.function.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        local::as_host_fn(|| {
            let _contained = catch_unwind(AssertUnwindSafe(|| drop(function)));
        });
    }
}

/// Which stream each replay went to: (the first replay, the lane), for runs of replays on one lane.
#[derive(Default)]
pub(crate) struct Targets(Mutex<State>);

#[derive(Default)]
struct State {
    replays: u64,
    runs: VecDeque<(u64, LaneRef)>,
}

impl Targets {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A replay goes to a lane. `fresh` tells whether all replays before have ended; asked where that makes a difference.
    pub(crate) fn add(&self, lane: &LaneRef, fresh: impl FnOnce() -> bool) {
        let mut state = self.lock();
        let first = state.replays;
        state.replays += 1;
        let over = match state.runs.back().map(|(_, lane)| lane.raw) {
            Some(last) if last == lane.raw => return,
            Some(_) if fresh() => std::mem::take(&mut state.runs),
            _ => VecDeque::new(),
        };
        state.runs.push_back((first, lane.clone()));
        drop(state);
        drop(over);
    }

    /// The replay that was added last was refused.
    pub(crate) fn take_back(&self) {
        self.lock().replays -= 1;
    }

    fn of(&self, replay: u64) -> Option<LaneRef> {
        let state = self.lock();
        let at = state.runs.partition_point(|(first, _)| *first <= replay).checked_sub(1)?;
        state.runs.get(at).map(|(_, lane)| lane.clone())
    }
}

/// What a graph keeps alive. Blocks of its own pool it keeps by the pool: their memory can be reused inside the capture.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) pooled: Vec<std::sync::Weak<Block>>,
    pub(crate) hosts: Vec<Arc<HostBlock>>,
    pub(crate) others: Vec<Arc<dyn std::any::Any + Send + Sync>>,
    known: std::collections::HashSet<BlockName>,
    /// The last ones, since neighbours tend to use the same.
    recent: [BlockName; 4],
    next: usize,
}

impl Kept {
    /// Whether it is new; then it is known from now on.
    #[inline]
    fn is_new(&mut self, name: BlockName) -> bool {
        if self.recent.contains(&name) {
            return false;
        }
        self.recent[self.next % 4] = name;
        self.next += 1;
        self.known.insert(name)
    }

    pub(crate) fn block(&mut self, block: &Arc<Block>, pooled: bool) {
        if self.is_new(name_of(block)) {
            if pooled {
                self.pooled.push(Arc::downgrade(block));
            } else {
                self.blocks.push(Arc::clone(block));
            }
        }
    }

    pub(crate) fn host(&mut self, block: &Arc<HostBlock>) {
        if self.is_new(name_of(block)) {
            self.hosts.push(Arc::clone(block));
        }
    }

    pub(crate) fn other<T: Send + Sync + 'static>(&mut self, other: &Arc<T>) {
        if self.is_new(name_of(other)) {
            self.others.push(Arc::clone(other) as Arc<dyn std::any::Any + Send + Sync>);
        }
    }
}
