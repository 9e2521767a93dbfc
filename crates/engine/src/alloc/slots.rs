//! Streams by number: dense slots, and sets of them as bits.

use std::collections::HashMap;

/// Stream slots that have a bit of their own in a block's uses; the top bit stands for all slots beyond them.
pub(super) const DENSE: u32 = 63;
pub(super) const BEYOND: u64 = 1 << DENSE;

/// Dense numbers for streams, in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ids: Vec<u64>,
    slots: HashMap<u64, u32>,
}

impl Streams {
    pub(super) fn slot(&mut self, stream: u64) -> u32 {
        // Most devices have few streams in use: a scan of a line or two beats hashing.
        if let Some(slot) = self.ids.iter().take(16).position(|&id| id == stream) {
            return slot as u32;
        }
        let next = self.ids.len() as u32;
        let slot = *self.slots.entry(stream).or_insert(next);
        if slot == next {
            self.ids.push(stream);
        }
        slot
    }

    pub(super) fn id(&self, slot: u32) -> u64 {
        self.ids[slot as usize]
    }

    /// The bits of all streams seen.
    pub(super) fn known(&self) -> u64 {
        1u64.checked_shl(self.len()).map_or(u64::MAX, |bit| bit - 1)
    }

    pub(super) fn len(&self) -> u32 {
        self.ids.len() as u32
    }
}

/// The bit of a slot in a block's uses.
pub(super) fn bit(slot: u32) -> u64 {
    1 << slot.min(DENSE)
}
