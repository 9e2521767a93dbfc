//! The recorder of one cache: what its lock guards of a recording.

use super::options::{Clock, ContextLevel, HistoryOptions};
use super::record::{Action, PoolNames, Record, StackId};
use super::ring::{Records, Ring};
use super::scope::scope;
use crate::alloc::PoolId;

/// Records the events of one cache. Its methods run under the cache's lock and call nobody.
#[derive(Debug)]
pub(crate) struct Recorder {
    ring: Ring,
    level: ContextLevel,
    clock: Clock,
    /// A bit for each action that is not kept.
    skip: u16,
    /// Who took each block, by the cache's number of the block; shorter than the cache's list where nobody is known.
    takers: Vec<StackId>,
    pools: PoolNames,
}

impl Recorder {
    pub(crate) fn new(options: &HistoryOptions) -> Self {
        let mut recorder = Recorder {
            ring: Ring::new(options.max_entries),
            level: options.level,
            clock: options.clock,
            skip: 0,
            takers: Vec::new(),
            pools: PoolNames::default(),
        };
        recorder.change(options);
        recorder
    }

    /// Goes on under other options; what was recorded stays, as far as it has room.
    pub(crate) fn change(&mut self, options: &HistoryOptions) {
        self.ring.limit(options.max_entries);
        self.level = options.level;
        self.skip = options.skip.iter().fold(0, |bits, &action| bits | 1 << action as u16);
    }

    /// What an event shows as its stack, if `stack` is that of the call.
    fn shown(&self, stack: StackId) -> StackId {
        if self.level >= ContextLevel::Alloc { stack } else { StackId::ABSENT }
    }

    /// The stack that what is taken now keeps.
    pub(crate) fn kept(&self, caller: StackId) -> StackId {
        if self.level == ContextLevel::Never { StackId::ABSENT } else { caller }
    }

    fn push(&mut self, record: Record) {
        if self.skip & 1 << record.action as u16 == 0 {
            self.ring.push(record);
        }
    }

    /// Notes an event of a segment, a failure or a snapshot.
    pub(crate) fn note(
        &mut self,
        action: Action,
        [addr, size, stream]: [u64; 3],
        pool: Option<PoolId>,
        caller: StackId,
    ) {
        let record = Record {
            addr,
            size,
            stream,
            time_us: self.clock.now_us(),
            label: scope(),
            stack: if action == Action::Snapshot { StackId::ABSENT } else { self.shown(caller) },
            pool: self.pools.number(pool),
            action,
        };
        self.push(record);
    }

    /// Notes that block `id` was handed out.
    pub(crate) fn taken(&mut self, id: u32, block: [u64; 3], pool: Option<PoolId>, caller: StackId) {
        let id = id as usize;
        let kept = self.kept(caller);
        if id >= self.takers.len() {
            // Where stacks are not wanted the list stays empty.
            if kept != StackId::ABSENT && kept != StackId::EMPTY {
                self.takers.resize(id + 1 + id / 8, StackId::ABSENT);
            }
        }
        if let Some(taker) = self.takers.get_mut(id) {
            *taker = kept;
        }
        self.note(Action::Alloc, block, pool, caller);
    }

    /// Notes that block `id` was given back, that no stream uses it any more, or both at once.
    pub(crate) fn given(
        &mut self,
        id: u32,
        actions: &[Action],
        [addr, size, stream]: [u64; 3],
        pool: Option<PoolId>,
        caller: StackId,
    ) {
        let stack = match self.level {
            ContextLevel::All => caller,
            ContextLevel::Alloc => match self.taker(id) {
                StackId::ABSENT => StackId::EMPTY,
                taker => taker,
            },
            ContextLevel::Never | ContextLevel::State => StackId::ABSENT,
        };
        let (time_us, label, pool) = (self.clock.now_us(), scope(), self.pools.number(pool));
        for &action in actions {
            self.push(Record { addr, size, stream, time_us, label: label.clone(), stack, pool, action });
        }
    }

    /// Who took block `id`.
    pub(crate) fn taker(&self, id: u32) -> StackId {
        self.takers.get(id as usize).copied().unwrap_or(StackId::ABSENT)
    }

    pub(crate) fn records(&self) -> Records {
        self.ring.records(&self.pools)
    }

    /// How many events are kept, and how many went.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.ring.len(), self.ring.dropped())
    }
}
