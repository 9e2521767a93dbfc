//! The invariants, checked from scratch.

use std::collections::BTreeMap;

use super::cache::HostCache;
use super::state::{Life, NIL, State};
use crate::alloc::Stat;

macro_rules! hold {
    ($cond:expr, $($text:tt)*) => {
        if !$cond {
            return Err(format!($($text)*));
        }
    };
}

impl HostCache {
    /// Checks every invariant: lists, shelves, queues and counters must tell the same story. For tests and for `doctor`;
    /// takes time in proportion to the number of blocks. Meant for a moment when no other thread is inside the cache.
    /// Calls no port.
    ///
    /// # Errors
    /// The first contradiction found, in words.
    pub fn audit(&self) -> Result<(), String> {
        let state = self.lock();
        state.audit_lists()?;
        state.audit_waits()?;
        state.audit_counters()
    }
}

impl State {
    fn list(&self, mut id: u32, life: Life) -> Result<usize, String> {
        let mut len = 0;
        while id != NIL {
            let block = &self.blocks[id as usize];
            hold!(block.life == life, "block {id} is {:?} in the list of {life:?}", block.life);
            len += 1;
            hold!(len <= self.blocks.len(), "the list of {life:?} is a ring");
            id = block.next;
        }
        Ok(len)
    }

    fn count(&self, life: Life) -> usize {
        self.blocks.iter().filter(|b| b.life == life).count()
    }

    fn audit_lists(&self) -> Result<(), String> {
        let mut free = self.exact.len();
        for (class, &first) in self.classes.iter().enumerate() {
            free += self.list(first, Life::Free)?;
            let mut id = first;
            while id != NIL {
                let block = &self.blocks[id as usize];
                hold!(!block.exact && block.raw.len == 1 << class, "block {id} of {} in class {class}", block.raw.len);
                id = block.next;
            }
        }
        hold!(self.exact.is_sorted(), "exact blocks out of order: {:?}", self.exact);
        for &(size, addr, id) in &self.exact {
            let block = &self.blocks[id as usize];
            let agrees = block.exact && block.life == Life::Free && (block.raw.len, block.raw.addr) == (size, addr);
            hold!(agrees, "the exact shelf says {size} at {addr:#x}, the block {block:?}");
        }
        let listed = [(free, Life::Free), (self.list(self.parked, Life::Parked)?, Life::Parked)].into_iter().chain([
            (self.list(self.doomed, Life::Doomed)?, Life::Doomed),
            (self.pending as usize, Life::Pending),
            (0, Life::Busy),
        ]);
        for (len, life) in listed {
            hold!(len == self.count(life), "{len} blocks are listed as {life:?}, {} are", self.count(life));
        }
        let held: BTreeMap<u64, u32> = (0..)
            .zip(&self.blocks)
            .filter(|(_, b)| b.life != Life::Vacant)
            .map(|(id, block)| (block.raw.addr, id))
            .collect();
        hold!(held == self.addresses, "addresses {:?}, blocks {held:?}", self.addresses);
        Ok(())
    }

    fn audit_waits(&self) -> Result<(), String> {
        let mut events = vec![0u32; self.blocks.len()];
        for (_, _, id) in self.lanes.waits() {
            events[id as usize] += 1;
        }
        for (id, (block, waits)) in self.blocks.iter().zip(events).enumerate() {
            let expected = if block.life == Life::Pending { block.events } else { 0 };
            hold!(waits == expected, "block {id} waits for {waits} marks, and says {block:?}");
            let ended = block.life != Life::Pending || waits > 0;
            hold!(ended, "block {id} is pending for nothing");
            let unmarked = block.uses.iter().any(|u| u.mark.is_none());
            match block.life {
                Life::Live => {}
                Life::Parked => hold!(unmarked, "block {id} is parked for nothing"),
                _ => hold!(block.uses.is_empty(), "block {id} is {:?} with uses {:?}", block.life, block.uses),
            }
        }
        let discards = self.blocks.iter().filter(|b| b.life == Life::Pending && b.discard).count();
        hold!(discards == self.pending_discards as usize, "{discards} discards, counted {}", self.pending_discards);
        Ok(())
    }

    fn audit_counters(&self) -> Result<(), String> {
        let sum = |lives: &[Life]| {
            self.blocks
                .iter()
                .filter(|b| lives.contains(&b.life))
                .fold([0u64; 3], |s, b| [s[0] + 1, s[1] + b.raw.len, s[2] + b.requested])
        };
        let active = sum(&[Life::Live, Life::Parked, Life::Pending]);
        let unused = sum(&[Life::Free, Life::Doomed]);
        let stats = &self.stats;
        let told: [(&str, Stat, u64); 5] = [
            ("allocations", stats.allocations, active[0] + unused[0]),
            ("allocated_bytes", stats.allocated_bytes, active[1] + unused[1]),
            ("active_requests", stats.active_requests, active[0]),
            ("active_bytes", stats.active_bytes, active[1]),
            ("requested_bytes", stats.requested_bytes, active[2]),
        ];
        for (name, stat, blocks) in told {
            hold!(stat.current == blocks, "{name} {stat:?}, but the blocks say {blocks}");
            hold!(stat.current <= stat.peak, "{name} {stat:?}");
        }
        Ok(())
    }
}
