//! Streams by number: dense slots, and sets of them as bits.
//!
//! A stream has a slot from when it is first seen until it is forgotten. The next stream that is seen then takes that slot:
//! the least free one, so that few streams alive at a time have bits of their own, however many there ever were. A set of
//! bits that was collected outside may be older than that. It then names the new stream too, which costs a mark and is
//! never too little: the uses of a stream that is gone have ended.

use std::collections::{BTreeSet, HashMap};

/// Stream slots that have a bit of their own in a block's uses; the top bit stands for all slots beyond them.
pub(super) const DENSE: u32 = 63;
pub(super) const BEYOND: u64 = 1 << DENSE;

/// Dense numbers for streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By slot; that of a free slot is what was there before.
    ids: Vec<u64>,
    slots: HashMap<u64, u32>,
    free: BTreeSet<u32>,
    /// The bits of the streams that there are.
    known: u64,
    /// How many of them share the bit of those beyond.
    beyond: u32,
}

impl Streams {
    /// The slot of a stream, and whether it just took over that of a stream that is gone.
    pub(super) fn slot(&mut self, stream: u64) -> (u32, bool) {
        // Most devices have few streams in use: a scan of a line or two beats hashing.
        if let Some(slot) = self.ids.iter().take(16).position(|&id| id == stream)
            && self.known & bit(slot as u32) != 0
        {
            return (slot as u32, false);
        }
        if let Some(&slot) = self.slots.get(&stream) {
            return (slot, false);
        }
        let (slot, inherits) = match self.free.pop_first() {
            Some(slot) => {
                self.ids[slot as usize] = stream;
                (slot, true)
            }
            None => {
                self.ids.push(stream);
                (self.ids.len() as u32 - 1, false)
            }
        };
        self.slots.insert(stream, slot);
        self.known |= bit(slot);
        self.beyond += u32::from(slot >= DENSE);
        (slot, inherits)
    }

    /// Frees the slot of a stream that is gone, and says which it was.
    pub(super) fn forget(&mut self, stream: u64) -> Option<u32> {
        let slot = self.slots.remove(&stream)?;
        self.free.insert(slot);
        self.beyond -= u32::from(slot >= DENSE);
        if slot < DENSE || self.beyond == 0 {
            self.known &= !bit(slot);
        }
        Some(slot)
    }

    /// The stream of a slot that is in use.
    pub(super) fn id(&self, slot: u32) -> u64 {
        self.ids[slot as usize]
    }

    /// Whether a slot is that of a stream: what was learnt without the lock may be about a stream that is gone.
    pub(super) fn is(&self, slot: u32, stream: u64) -> bool {
        self.slots.get(&stream) == Some(&slot)
    }

    /// Slot and stream of those that a set of bits stands for, by stream.
    pub(super) fn of(&self, uses: u64) -> Vec<(u64, u32)> {
        let uses = uses & self.known;
        let mut out: Vec<(u64, u32)> = if uses & BEYOND == 0 {
            let slots = (0..DENSE).filter(|&slot| uses & bit(slot) != 0);
            slots.map(|slot| (self.ids[slot as usize], slot)).collect()
        } else {
            self.slots.iter().filter(|&(_, &slot)| uses & bit(slot) != 0).map(|(&id, &slot)| (id, slot)).collect()
        };
        out.sort_unstable();
        out
    }

    /// The bits of all streams that there are.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The bit of a slot in a block's uses.
pub(super) fn bit(slot: u32) -> u64 {
    1 << slot.min(DENSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_come_and_go_take_as_many_slots_as_there_are_at_a_time() {
        let mut streams = Streams::default();
        for id in 0..10_000_u64 {
            streams.slot(id);
            if id >= 5 {
                assert!(streams.forget(id - 5).is_some());
                assert_eq!(streams.forget(id - 5), None, "forgotten twice");
            }
        }
        assert_eq!(streams.len(), 6);
        let alive: Vec<u64> = streams.of(u64::MAX).into_iter().map(|(id, _)| id).collect();
        assert_eq!(alive, [9995, 9996, 9997, 9998, 9999]);
        for (id, slot) in streams.of(u64::MAX) {
            assert!(streams.is(slot, id) && streams.id(slot) == id && streams.slot(id) == (slot, false));
        }
    }

    #[test]
    fn the_shared_bit_is_known_while_any_of_its_streams_is_there() {
        let mut streams = Streams::default();
        (0..66).for_each(|id| assert_eq!(streams.slot(id), (id as u32, false)));
        assert_eq!(streams.known(), u64::MAX);
        for id in [63, 65] {
            streams.forget(id);
            assert_eq!(streams.known(), u64::MAX);
        }
        assert_eq!(streams.of(BEYOND), [(64, 64)]);
        streams.forget(64);
        assert_eq!((streams.known(), streams.of(BEYOND)), (BEYOND - 1, Vec::new()));
        streams.forget(7);
        assert_eq!(streams.slot(1000), (7, true));
        assert_eq!(streams.slot(1001), (63, true));
    }

    /// A stream may have any number, that of one that is gone too.
    #[test]
    fn a_stale_number_is_no_stream() {
        let mut streams = Streams::default();
        streams.slot(3);
        streams.slot(4);
        streams.forget(3);
        assert_eq!(streams.slot(3), (0, true));
        streams.forget(3);
        assert!(!streams.is(0, 3));
        assert_eq!(streams.of(u64::MAX), [(4, 1)]);
    }
}
