//! The ring of events.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::{PoolNames, Record};
use crate::alloc::PoolId;

/// Events of a piece.
const PIECE: usize = 4096;

/// The last events, in pieces: all full but the newest, which is still written.
#[derive(Debug, Default)]
pub(super) struct Ring {
    full: VecDeque<Arc<Vec<Record>>>,
    newest: Vec<Record>,
    /// Events of the oldest piece that no longer count.
    gone: usize,
    len: usize,
    max: usize,
    dropped: u64,
    /// The memory of a piece that is not needed any more.
    spare: Option<Vec<Record>>,
}

impl Ring {
    pub(super) fn new(max: usize) -> Self {
        Ring { max, ..Ring::default() }
    }

    #[inline]
    pub(super) fn push(&mut self, record: Record) {
        if self.len >= self.max {
            if self.max == 0 {
                return;
            }
            self.drop_oldest();
        }
        if self.newest.len() == PIECE {
            self.turn();
        }
        self.newest.push(record);
        self.len += 1;
    }

    /// Begins a new piece.
    #[cold]
    fn turn(&mut self) {
        let next = self.spare.take().unwrap_or_else(|| Vec::with_capacity(PIECE));
        let full = std::mem::replace(&mut self.newest, next);
        self.full.push_back(Arc::new(full));
    }

    fn drop_oldest(&mut self) {
        self.len -= 1;
        self.dropped += 1;
        self.gone += 1;
        match self.full.front() {
            Some(oldest) if oldest.len() == self.gone => {
                self.gone = 0;
                // Unless a snapshot still has it, its memory serves again.
                if let Some(Ok(mut piece)) = self.full.pop_front().map(Arc::try_unwrap) {
                    piece.clear();
                    self.spare = Some(piece);
                }
            }
            None if self.gone == PIECE => {
                self.newest.clear();
                self.gone = 0;
            }
            _ => {}
        }
    }

    /// Keeps at most `max` events from now on.
    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
        while self.len > max {
            self.drop_oldest();
        }
    }

    pub(super) fn records(&self, pools: &PoolNames) -> Records {
        let mut pieces: Vec<Arc<Vec<Record>>> = self.full.iter().cloned().collect();
        pieces.push(Arc::new(self.newest.clone()));
        Records { pieces, gone: self.gone, len: self.len, dropped: self.dropped, pools: pools.clone() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// What was recorded, as it was when it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pieces: Vec<Arc<Vec<Record>>>,
    gone: usize,
    len: usize,
    dropped: u64,
    pools: PoolNames,
}

impl Records {
    /// The events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.pieces.iter().flat_map(|piece| piece.iter()).skip(self.gone)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many older ones the ring had no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The private pool of an event; `None` for the default pool.
    pub fn pool(&self, record: &Record) -> Option<PoolId> {
        self.pools.get(record.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Action, StackId};
    use super::*;

    fn record(size: u64) -> Record {
        Record {
            addr: 0,
            size,
            stream: 0,
            time_us: 0,
            label: None,
            stack: StackId::EMPTY,
            pool: 0,
            action: Action::Alloc,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_events_and_counts_the_others() {
        for max in [0, 1, 2, 4095, 4096, 4097, 8192, 10_000, usize::MAX] {
            let mut ring = Ring::new(max);
            let mut held = Vec::new();
            for size in 0..20_000u64 {
                ring.push(record(size));
                if size % 3777 == 0 {
                    // A snapshot that lives on must not change.
                    held.push((size, ring.records(&PoolNames::default())));
                }
            }
            held.push((19_999, ring.records(&PoolNames::default())));
            for (last, records) in held {
                let kept = (last as usize + 1).min(max);
                assert_eq!(records.len(), kept, "{max} {last}");
                let sizes: Vec<u64> = records.iter().map(|r| r.size).collect();
                assert_eq!(sizes, (last + 1 - kept as u64..=last).collect::<Vec<_>>(), "{max} {last}");
                assert_eq!(records.dropped(), if max == 0 { 0 } else { last + 1 - kept as u64 });
            }
        }
    }

    #[test]
    fn a_lower_limit_drops_the_oldest() {
        let mut ring = Ring::new(usize::MAX);
        (0..9000).for_each(|size| ring.push(record(size)));
        for max in [8999, 4097, 4096, 100, 0] {
            ring.limit(max);
            let records = ring.records(&PoolNames::default());
            assert_eq!(
                records.iter().map(|r| r.size).collect::<Vec<_>>(),
                (9000 - max as u64..9000).collect::<Vec<_>>()
            );
            assert_eq!((ring.len(), ring.dropped()), (max, 9000 - max as u64));
        }
        ring.limit(2);
        (0..5).for_each(|size| ring.push(record(size)));
        assert_eq!(ring.records(&PoolNames::default()).iter().map(|r| r.size).collect::<Vec<_>>(), [3, 4]);
    }
}
