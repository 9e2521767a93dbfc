//! Pools: the default one, private ones, and which of them a request goes to.

use std::collections::BTreeSet;
use std::fmt;
use std::thread::ThreadId;

/// Name of a private pool. Graph captures and `MemPool`s use the two halves as PyTorch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64, pub u64);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl PoolId {
    /// The order in which the original visits released pools: that of its hash table.
    pub(super) fn visit_order(self) -> u64 {
        let key = if self.0 != 0 { self.0 } else { self.1 };
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Which requests a pool scope takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the device.
    All,
    /// Those for one stream.
    Stream(u64),
    /// Those made on one thread.
    Thread(ThreadId),
}

impl Scope {
    pub(super) fn takes(self, stream: u64) -> bool {
        match self {
            Scope::All => true,
            Scope::Stream(s) => s == stream,
            Scope::Thread(t) => t == std::thread::current().id(),
        }
    }
}

/// Why a call about a pool was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// `begin` while the pool already takes requests in.
    #[error("pool {0} already takes allocations in; end that scope first")]
    AlreadyOpen(PoolId),
    /// `end` without `begin`.
    #[error("pool {0} takes no allocations in; there is nothing to end")]
    NotOpen(PoolId),
    /// The pool was never begun, or everybody has released it.
    #[error("pool {0} is not in use: it was never begun, or each of its users has released it")]
    NotInUse(PoolId),
}

/// One half (small or large) of a pool.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Shelf of each stream slot; NO_SHELF where there is none yet.
    shelves: Vec<u32>,
    /// How many best-fit searches were made while garbage collection was on.
    pub(super) clock: u64,
    /// Unmapped blocks of growable segments: (stream, address, block).
    pub(super) unmapped: BTreeSet<(u64, u64, u32)>,
}

pub(super) const NO_SHELF: u32 = u32::MAX;

impl Half {
    pub(super) fn shelf(&self, slot: u32) -> u32 {
        self.shelves.get(slot as usize).copied().unwrap_or(NO_SHELF)
    }

    pub(super) fn set_shelf(&mut self, slot: u32, shelf: u32) {
        let slot = slot as usize;
        if self.shelves.len() <= slot {
            self.shelves.resize(slot + 1, NO_SHELF);
        }
        self.shelves[slot] = shelf;
    }

    pub(super) fn shelves(&self) -> impl Iterator<Item = u32> {
        self.shelves.iter().copied().filter(|&s| s != NO_SHELF)
    }
}

/// A pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// `None` for the default pool.
    pub(super) id: Option<PoolId>,
    pub(super) halves: [Half; 2],
    /// How many users it has; a private pool without any gives its unused memory back at the next trim.
    pub(super) users: u32,
    /// Requests under way that may add a segment.
    pub(super) visitors: u32,
    /// Bytes it has reserved.
    pub(super) reserved: u64,
    /// Ranges of address space it has reserved.
    pub(super) ranges: u32,
    /// Graphs whose replays write its memory, free or not: no segment of it goes back to the device.
    pub(super) graphs: u32,
    /// The entry was erased and may be used anew.
    pub(super) gone: bool,
}
