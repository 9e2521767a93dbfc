//! What is behind the lock: blocks, shelves, waiting lists. Nothing here calls a port.

use std::collections::BTreeMap;

use super::lanes::{Lanes, Marking};
use super::policy::{HostPolicy, Placement};
use super::ports::RawHost;
use super::stats::HostStats;
use super::{HostAllocation, HostHandle, HostUseError};
use crate::history::{Action, Recorder, StackId};

/// No block.
pub(super) const NIL: u32 = u32::MAX;

/// Where a block is; see the protocol of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// An unused record.
    Vacant,
    Free,
    Live,
    Parked,
    Pending,
    Doomed,
    Busy,
}

/// Work on a stream that uses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) stream: u64,
    /// `None`: still to be made.
    pub(super) mark: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) raw: RawHost,
    pub(super) requested: u64,
    /// Empty while the block is Free, Doomed or Pending; keeps its room for the next user.
    pub(super) uses: Vec<Use>,
    pub(super) generation: u32,
    /// Next in the list that it is in: vacant records, a size class, parked, doomed.
    pub(super) next: u32,
    /// Marks that have not ended, while Pending.
    pub(super) events: u32,
    /// Who pinned it, if that was recorded.
    pub(super) maker: StackId,
    pub(super) life: Life,
    pub(super) exact: bool,
    /// It won't be cached; decided when it was given back.
    pub(super) discard: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) policy: HostPolicy,
    pub(super) blocks: Vec<Block>,
    vacant: u32,
    /// Free blocks of each power of two, the last one given back first: its pages are the warmest.
    pub(super) classes: [u32; 64],
    /// Free exact blocks, (size, address, block), sorted. Few, so that moving them costs less than a tree.
    pub(super) exact: Vec<(u64, u64, u32)>,
    exact_held: usize,
    pub(super) parked: u32,
    pub(super) doomed: u32,
    /// Blocks by address, but for those that are being given back.
    pub(super) addresses: BTreeMap<u64, u32>,
    pub(super) lanes: Lanes,
    /// How many blocks are Pending, and how many of these won't be cached.
    pub(super) pending: u32,
    pub(super) pending_discards: u32,
    /// Streams under capture.
    pub(super) captures: Vec<u64>,
    pub(super) stats: HostStats,
    pub(super) closed: bool,
    /// Room for the answers of streams, kept so that looking at them takes no memory.
    pub(super) answers: Vec<(u64, Option<u64>)>,
    /// Likewise for marks to be made.
    pub(super) markings: Vec<Marking>,
    /// While events are recorded.
    pub(super) recorder: Option<Box<Recorder>>,
    /// Whose call the owner of the lock works for, if that was asked.
    pub(super) caller: StackId,
}

impl State {
    pub(super) fn new(policy: HostPolicy) -> Self {
        State {
            policy: policy.sound(),
            blocks: Vec::new(),
            vacant: NIL,
            classes: [NIL; 64],
            exact: Vec::new(),
            exact_held: 0,
            parked: NIL,
            doomed: NIL,
            addresses: BTreeMap::new(),
            lanes: Lanes::default(),
            pending: 0,
            pending_discards: 0,
            captures: Vec::new(),
            stats: HostStats::default(),
            closed: false,
            answers: Vec::new(),
            markings: Vec::new(),
            recorder: None,
            caller: StackId::EMPTY,
        }
    }

    #[inline]
    pub(super) fn capturing(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Whether something waits for the next caller that may call ports.
    #[inline]
    pub(super) fn untidy(&self) -> bool {
        (self.parked != NIL || self.doomed != NIL || self.pending_discards != 0) && !self.capturing()
    }

    #[inline]
    pub(super) fn block(&mut self, id: u32) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// The block that a live handle names.
    #[inline]
    pub(super) fn live(&self, handle: HostHandle) -> Result<u32, HostUseError> {
        match self.blocks.get(handle.index as usize) {
            Some(b) if b.life == Life::Live && b.generation == handle.generation => Ok(handle.index),
            _ => Err(HostUseError::Stale(handle.to_bits())),
        }
    }

    /// The live block that an address lies in.
    pub(super) fn containing(&self, addr: u64) -> Option<u32> {
        let (&start, &id) = self.addresses.range(..=addr).next_back()?;
        let block = &self.blocks[id as usize];
        (block.life == Life::Live && addr - start < block.raw.len).then_some(id)
    }

    pub(super) fn view(&self, id: u32) -> HostAllocation {
        let block = &self.blocks[id as usize];
        HostAllocation {
            handle: HostHandle { index: id, generation: block.generation },
            token: block.raw.token,
            addr: block.raw.addr,
            requested: block.requested,
            size: block.raw.len,
        }
    }

    /// Takes in memory that the port gave. The block is the caller's, to hand out.
    pub(super) fn adopt(&mut self, raw: RawHost, exact: bool) -> u32 {
        let generation = if self.vacant == NIL { 1 } else { self.blocks[self.vacant as usize].generation };
        let block = Block {
            raw,
            requested: 0,
            uses: Vec::new(),
            generation,
            next: NIL,
            events: 0,
            maker: self.recorder.as_ref().map_or(StackId::ABSENT, |recorder| recorder.kept(self.caller)),
            life: Life::Busy,
            exact,
            discard: false,
        };
        let id = if self.vacant == NIL {
            self.blocks.push(block);
            // A block is a page at least: memory ends long before indices do.
            (self.blocks.len() - 1) as u32
        } else {
            let id = self.vacant;
            self.vacant = self.block(id).next;
            *self.block(id) = block;
            id
        };
        if exact {
            self.exact_held += 1;
            // So that giving blocks back takes no memory.
            self.exact.reserve(self.exact_held - self.exact.len());
        }
        self.addresses.insert(raw.addr, id);
        self.note_segment(Action::SegmentAlloc, raw.addr, raw.len);
        id
    }

    /// Forgets a Busy block, whose memory is gone.
    pub(super) fn vacate(&mut self, id: u32) {
        let vacant = std::mem::replace(&mut self.vacant, id);
        let block = self.block(id);
        block.uses = Vec::new();
        (block.life, block.next) = (Life::Vacant, vacant);
        self.exact_held -= usize::from(self.blocks[id as usize].exact);
    }

    /// Takes a free block that serves a request off its shelf.
    #[inline]
    pub(super) fn take(&mut self, want: Placement) -> Option<u32> {
        if !want.exact {
            let class = want.size.trailing_zeros() as usize;
            let id = self.classes[class];
            if id == NIL {
                return None;
            }
            self.classes[class] = self.block(id).next;
            return Some(id);
        }
        let at = self.exact.partition_point(|&(size, _, _)| size < want.size);
        let fits = self.exact.get(at).is_some_and(|&(size, _, _)| size <= want.largest());
        fits.then(|| self.exact.remove(at).2)
    }

    /// Dooms the free exact block just too small for a request: a sequence of slowly growing requests would otherwise
    /// leave one behind at each step.
    pub(super) fn doom_outgrown(&mut self, want: Placement) {
        let at = self.exact.partition_point(|&(size, _, _)| size < want.size);
        if want.exact && at > 0 && self.exact[at - 1].0 >= want.outgrown() {
            let (_, _, id) = self.exact.remove(at - 1);
            self.doom(id);
        }
    }

    #[inline]
    pub(super) fn hand_out(&mut self, id: u32, requested: u64) -> HostAllocation {
        let block = self.block(id);
        debug_assert!(block.uses.is_empty() && block.raw.len >= requested);
        block.life = Life::Live;
        block.requested = requested;
        let size = block.raw.len;
        self.stats.take(size, requested);
        self.note_taken(id);
        self.view(id)
    }

    /// Notes a use of a live block. One use for each stream: of two marks the later one covers the earlier.
    #[inline]
    pub(super) fn note(&mut self, id: u32, stream: u64, mark: Option<u64>) {
        let uses = &mut self.block(id).uses;
        match uses.iter_mut().find(|u| u.stream == stream) {
            Some(known) => known.mark = known.mark.zip(mark).map(|(a, b)| a.max(b)),
            None => uses.push(Use { stream, mark }),
        }
    }

    /// Takes a live block back from its user.
    #[inline]
    pub(super) fn give_back(&mut self, id: u32) {
        let discard_from = if self.closed { 0 } else { self.policy.max_cached };
        let block = self.block(id);
        // 0 would let a handle be 0.
        block.generation = block.generation.wrapping_add(1).max(1);
        block.discard = block.raw.len > discard_from;
        self.note_given(id, Action::FreeRequested);
        self.settle_one(id);
    }

    /// Puts a block that was given back where its uses say.
    #[inline]
    pub(super) fn settle_one(&mut self, id: u32) {
        if self.block(id).uses.is_empty() {
            self.ready(id);
        } else if self.block(id).uses.iter().any(|u| u.mark.is_none()) {
            let parked = std::mem::replace(&mut self.parked, id);
            let block = self.block(id);
            (block.life, block.next) = (Life::Parked, parked);
        } else {
            let block = &mut self.blocks[id as usize];
            block.life = Life::Pending;
            block.events = block.uses.len() as u32;
            self.pending += 1;
            self.pending_discards += u32::from(block.discard);
            for used in block.uses.drain(..) {
                if let Some(mark) = used.mark {
                    self.lanes.wait(used.stream, mark, id);
                }
            }
        }
    }

    /// Ends what a stream has ended up to `done`.
    pub(super) fn retire(&mut self, stream: u64, done: u64) {
        while let Some(id) = self.lanes.next_ended(stream, done) {
            let block = self.block(id);
            block.events -= 1;
            if block.events == 0 {
                let discard = block.discard;
                self.pending -= 1;
                self.pending_discards -= u32::from(discard);
                self.ready(id);
            }
        }
    }

    /// Nobody uses the block any more.
    #[inline]
    fn ready(&mut self, id: u32) {
        let block = self.block(id);
        let (size, requested, discard) = (block.raw.len, block.requested, block.discard);
        self.stats.end(size, requested);
        self.note_given(id, Action::FreeCompleted);
        if discard {
            self.doom(id);
        } else {
            self.shelve(id);
        }
    }

    #[inline]
    pub(super) fn shelve(&mut self, id: u32) {
        let block = &mut self.blocks[id as usize];
        block.life = Life::Free;
        let (size, addr) = (block.raw.len, block.raw.addr);
        if block.exact {
            let at = self.exact.partition_point(|&(s, a, _)| (s, a) < (size, addr));
            self.exact.insert(at, (size, addr, id));
        } else {
            block.next = std::mem::replace(&mut self.classes[size.trailing_zeros() as usize], id);
        }
    }

    pub(super) fn doom(&mut self, id: u32) {
        let doomed = std::mem::replace(&mut self.doomed, id);
        let block = self.block(id);
        (block.life, block.next) = (Life::Doomed, doomed);
    }

    /// Dooms everything that is free.
    pub(super) fn doom_unused(&mut self) {
        for class in 0..self.classes.len() {
            while self.classes[class] != NIL {
                let id = self.classes[class];
                self.classes[class] = self.block(id).next;
                self.doom(id);
            }
        }
        while let Some((_, _, id)) = self.exact.pop() {
            self.doom(id);
        }
    }
}
