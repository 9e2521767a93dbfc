//! Pools: the default one, private ones, which of them a request goes to, and who uses them.

use super::Handle;
use super::cache::DeviceCache;
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

impl DeviceCache {
    /// From now on the allocations of `scope` go to a private pool, which is made if it does not exist.
    ///
    /// # Errors
    /// The pool already has a scope, or all of its users have released it.
    pub fn begin_pool(&self, id: PoolId, scope: Scope) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let at = match heap.pools.iter().position(|p| p.id == Some(id)) {
            Some(at) => {
                if heap.routes.iter().any(|(p, _)| *p as usize == at) {
                    return Err(PoolError::AlreadyOpen(id));
                }
                if heap.pools[at].users == 0 {
                    return Err(PoolError::NotInUse(id));
                }
                heap.pools[at].users += 1;
                at
            }
            None => {
                let pool = Pool { id: Some(id), users: 1, ..Pool::default() };
                match heap.pools.iter().position(|p| p.gone) {
                    Some(at) => {
                        heap.pools[at] = pool;
                        at
                    }
                    None => {
                        heap.pools.push(pool);
                        heap.pools.len() - 1
                    }
                }
            }
        };
        heap.routes.push((at as u32, scope));
        Ok(())
    }

    /// Ends the scope of a private pool. Its blocks live on, and the pool may be begun again until it is released.
    ///
    /// # Errors
    /// The pool has no scope.
    pub fn end_pool(&self, id: PoolId) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let at = heap.pools.iter().position(|p| p.id == Some(id));
        let route = at.and_then(|at| heap.routes.iter().position(|(p, _)| *p as usize == at));
        let (pool, _) = heap.routes[route.ok_or(PoolError::NotOpen(id))?];
        heap.routes.retain(|(open, _)| *open != pool);
        heap.erase_pool_if_empty(pool);
        Ok(())
    }

    /// Adds to the scope of a private pool that is open: a stream that joined its capture, say.
    /// [`end_pool`](DeviceCache::end_pool) ends all of it.
    ///
    /// # Errors
    /// The pool has no scope.
    pub fn widen_pool(&self, id: PoolId, scope: Scope) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let at = heap.pools.iter().position(|p| p.id == Some(id)).ok_or(PoolError::NotOpen(id))? as u32;
        if !heap.routes.iter().any(|(pool, _)| *pool == at) {
            return Err(PoolError::NotOpen(id));
        }
        heap.routes.push((at, scope));
        Ok(())
    }

    /// A graph was captured in a private pool: its replays may write free blocks too, so nothing of the pool goes back to
    /// the device until [`forget_graph`](DeviceCache::forget_graph). The pool has to have a user meanwhile.
    ///
    /// # Errors
    /// The pool has no users.
    pub fn keep_for_graph(&self, id: PoolId) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let pool = heap.pools.iter_mut().find(|p| p.id == Some(id) && p.users > 0).ok_or(PoolError::NotInUse(id))?;
        pool.graphs += 1;
        Ok(())
    }

    /// A graph of a private pool is gone, its replays have ended, and it uses the pool no more.
    ///
    /// # Errors
    /// The pool has no graphs.
    pub fn forget_graph(&self, id: PoolId) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let at = heap.pools.iter().position(|p| p.id == Some(id) && p.graphs > 0).ok_or(PoolError::NotInUse(id))?;
        heap.pools[at].graphs -= 1;
        heap.pools[at].users -= 1;
        heap.erase_pool_if_empty(at as u32);
        Ok(())
    }

    /// Whether a private pool exists and has users.
    pub fn has_pool(&self, id: PoolId) -> bool {
        self.lock().pools.iter().any(|pool| pool.id == Some(id) && pool.users > 0)
    }

    /// The private pool that a live block belongs to; `None` for the default pool.
    pub fn pool_of(&self, handle: Handle) -> Option<PoolId> {
        let heap = self.lock();
        let id = heap.live(handle)?;
        heap.pools[heap.shelves[heap.arena[id].shelf as usize].pool as usize].id
    }

    /// One user less (each `begin_pool` made one). Without users, a pool's unused memory goes back at the next trim.
    ///
    /// # Errors
    /// The pool has no users.
    pub fn release_pool(&self, id: PoolId) -> Result<(), PoolError> {
        let mut heap = self.lock();
        let at = heap.pools.iter().position(|p| p.id == Some(id) && p.users > 0).ok_or(PoolError::NotInUse(id))?;
        heap.pools[at].users -= 1;
        heap.erase_pool_if_empty(at as u32);
        Ok(())
    }
}
