//! From events to operations.

use std::collections::{BTreeMap, HashSet};

use super::scan::{Frees, is_on};
use super::{Caveats, HistoryError, NEVER, Op, What};
use crate::{Action, BlockState, Event, Snapshot};

pub(super) struct Live {
    pub(super) slot: u32,
    pub(super) size: u64,
    /// Given back by its user, still used by a stream.
    pub(super) pending: bool,
    /// The event that began it; `None` for one from before.
    pub(super) since: Option<u32>,
}

pub(super) struct Builder<'s> {
    pub(super) device: usize,
    pub(super) events: &'s [Event],
    pub(super) ops: Vec<Op>,
    /// By address. Blocks in it do not overlap.
    pub(super) live: BTreeMap<u64, Live>,
    pub(super) spare: Vec<u32>,
    pub(super) slots: u32,
    pub(super) caveats: Caveats,
    pub(super) waiting: u64,
}

impl Builder<'_> {
    fn wrong<T>(&self, event: usize, reason: String) -> Result<T, HistoryError> {
        Err(HistoryError { device: self.device, event, reason })
    }

    pub(super) fn slot(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn push(&mut self, what: What, size: u64, slot: u32, event: usize) {
        let (stream, pool) = self.events.get(event).map_or((0, 0), |event| (event.stream, event.pool));
        self.ops.push(Op { size, stream, slot, event: event as u32, pool, what });
    }

    /// Ends the blocks that a new one at `[addr, addr + size)` takes the place of.
    fn make_way(&mut self, at: usize, ends: &[bool]) -> Result<(), HistoryError> {
        let Event { addr, size, .. } = self.events[at];
        loop {
            let reach = (addr + size).max(addr + 1);
            let Some((&start, block)) = self.live.range(..reach).next_back() else { return Ok(()) };
            if start + block.size <= addr && start != addr {
                return Ok(());
            }
            if block.pending || block.since.is_some_and(|begun| ends[begun as usize]) {
                let was =
                    block.since.map_or_else(|| "before the recording".into(), |begun| format!("by event {begun}"));
                return self.wrong(
                    at,
                    format!(
                        "the block of {size} bytes at {addr:#x} overlaps the one of {} bytes at {start:#x}, which was \
                         handed out {was} and is given back later: the history contradicts itself",
                        block.size
                    ),
                );
            }
            let Some(block) = self.live.remove(&start) else { return Ok(()) };
            self.caveats.missing_frees += 1;
            self.caveats.missing_bytes += block.size;
            self.push(What::Free, 0, block.slot, at);
            self.spare.push(block.slot);
        }
    }

    pub(super) fn run(&mut self, frees: Frees, ends: &[bool], emptied: &[bool]) -> Result<(), HistoryError> {
        let mut ranks = 0;
        let mut completions = 0;
        let ranked = frees.ranks(self.events);
        let events = self.events;
        for (at, event) in events.iter().enumerate() {
            match event.action {
                Action::Alloc => {
                    self.make_way(at, ends)?;
                    let slot = self.slot();
                    let block = Live { slot, size: event.size, pending: false, since: Some(at as u32) };
                    self.live.insert(event.addr, block);
                    self.caveats.pooled_blocks += u64::from(event.pool != 0);
                    self.push(What::Alloc, event.size, slot, at);
                }
                Action::FreeRequested if frees.requested => {
                    let Some(block) = self.live.get_mut(&event.addr).filter(|block| !block.pending) else {
                        return self
                            .wrong(at, format!("the block at {:#x} is given back, but is not live", event.addr));
                    };
                    let slot = block.slot;
                    if !frees.completed || frees.at_once(self.events, at) {
                        self.live.remove(&event.addr);
                        self.spare.push(slot);
                        self.push(What::Free, 0, slot, at);
                    } else {
                        block.pending = true;
                        self.waiting += block.size;
                        self.caveats.waiting_blocks += 1;
                        self.caveats.waiting_bytes = self.caveats.waiting_bytes.max(self.waiting);
                        let rank = ranked.get(&at).copied().unwrap_or(NEVER);
                        ranks += 1;
                        self.push(What::FreeUsed, rank, slot, at);
                    }
                }
                Action::FreeCompleted if !frees.requested => {
                    let Some(block) = self.live.remove(&event.addr) else {
                        return self
                            .wrong(at, format!("the block at {:#x} is given back, but is not live", event.addr));
                    };
                    self.spare.push(block.slot);
                    self.push(What::Free, 0, block.slot, at);
                }
                Action::FreeCompleted if frees.at_once(self.events, at.wrapping_sub(1)) => {}
                Action::FreeCompleted => {
                    let Some(block) = self.live.remove(&event.addr) else {
                        return self.wrong(at, format!("the block at {:#x} comes free, but is not live", event.addr));
                    };
                    self.waiting = self.waiting.saturating_sub(block.size);
                    self.spare.push(block.slot);
                    if block.pending {
                        completions += 1;
                        self.push(What::Completed, completions, 0, at);
                    } else {
                        // Given back without a word, or before the recording.
                        self.push(What::Free, 0, block.slot, at);
                    }
                }
                Action::SegmentFree | Action::SegmentUnmap if emptied[at] => {
                    if event.pool != 0 {
                        self.push(What::ReleasePool, 0, 0, at);
                    }
                    self.push(What::EmptyCache, 0, 0, at);
                }
                Action::Oom => {
                    self.caveats.recorded_ooms += 1;
                    self.push(What::Failed, event.size, 0, at);
                }
                _ => {}
            }
        }
        debug_assert!(completions <= ranks);
        Ok(())
    }
}

impl Builder<'_> {
    /// Blocks that the trace leaves live and the segments do not have: number and bytes.
    pub(super) fn lost(&self, snapshot: &Snapshot) -> (u64, u64) {
        let mut there: HashSet<u64> = HashSet::new();
        for segment in snapshot.segments.iter().filter(|segment| is_on(segment, self.device)) {
            let active = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
            there.extend(active.map(|block| block.addr));
        }
        let lost = self.live.iter().filter(|(addr, _)| !there.contains(addr));
        lost.fold((0, 0), |(blocks, bytes), (_, block)| (blocks + 1, bytes + block.size))
    }
}
