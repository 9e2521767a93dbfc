//! What handles name, in this generation of the process.
//!
//! # Protocol
//!
//! The tables belong to one process-wide runtime of the face, of which each generation of the process has its own. In a child
//! of fork the runtime is another one, so new tables are made, and those of the parent are never touched again: a lock in them
//! may be held for ever. They stay reachable. Their handles differ from those of all later ones.

use crate::result::{Failure, Result};
use crate::stacks::CallerStacks;
use crate::stream::KnownStreams;
use crate::table::{GENERATIONS, Table};
use crate::types::*;
use face::random::Generator;
use face::{Graph, MemPool, Runtime, Stream, UniqueEvent};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Tables {
    runtime: Runtime,
    /// How many before it had tables.
    generation: u32,
    pub(crate) events: Table<UniqueEvent>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) generators: Table<Generator>,
    pub(crate) known_streams: KnownStreams,
    pub(crate) caller_stacks: CallerStacks,
    /// Reserved and imported ones, which end when nobody has them.
    streams: Mutex<Vec<Stream>>,
    pools: Mutex<Vec<Arc<MemPool>>>,
    /// Those of the parent.
    _before: *const Tables,
}

// SAFETY: the pointer is only kept.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

static TABLES: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());

/// Those of this generation.
#[inline]
pub(crate) fn tables() -> &'static Tables {
    let runtime = Runtime::global();
    let known = TABLES.load(Ordering::Acquire);
    // SAFETY: null, or leaked below and never freed.
    match unsafe { known.as_ref() } {
        Some(tables) if tables.runtime == runtime => tables,
        _ => make(runtime, known),
    }
}

#[cold]
fn make(runtime: Runtime, before: *mut Tables) -> &'static Tables {
    // SAFETY: null, or leaked and never freed. What is read was written before it was published.
    let generation = unsafe { before.as_ref() }.map_or(0, |before| (before.generation + 1) % GENERATIONS);
    let made = Box::into_raw(Box::new(Tables {
        runtime,
        generation,
        events: Table::new("event", generation),
        graphs: Table::new("graph", generation),
        generators: Table::new("generator", generation),
        known_streams: KnownStreams::default(),
        caller_stacks: CallerStacks::default(),
        streams: Mutex::default(),
        pools: Mutex::default(),
        _before: before,
    }));
    match TABLES.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just now.
        Ok(_) => unsafe { &*made },
        Err(other) => {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: published ones are never freed.
            unsafe { &*other }
        }
    }
}

impl Tables {
    /// The runtime that they belong to, without asking which it is once more.
    #[inline]
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Keeps a stream that would end with its last handle.
    pub(crate) fn keep_stream(&self, stream: Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }

    /// Lets it end.
    pub(crate) fn forget_stream(&self, stream: &Stream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let at = streams.iter().position(|kept| kept == stream);
        let over = at.map(|at| streams.swap_remove(at));
        drop(streams);
        drop(over);
    }

    pub(crate) fn keep_pool(&self, pool: MemPool) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(pool));
    }

    /// Runs `f` with a pool.
    pub(crate) fn with_pool<T>(&self, id: anyaccel_pool_id, f: impl FnOnce(&MemPool) -> Result<T>) -> Result<T> {
        let known = |pool: &&Arc<MemPool>| pool.id() == (id.first, id.second);
        let pool = self.pools.lock().unwrap_or_else(PoisonError::into_inner).iter().find(known).cloned();
        f(&*pool.ok_or_else(|| unknown(id))?)
    }

    pub(crate) fn forget_pool(&self, id: anyaccel_pool_id) -> Result {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pools.iter().position(|pool| pool.id() == (id.first, id.second)).ok_or_else(|| unknown(id))?;
        let over = pools.swap_remove(at);
        drop(pools);
        drop(over);
        Ok(())
    }
}

fn unknown(id: anyaccel_pool_id) -> Failure {
    Failure::handle(format!(
        "({}, {}) is no live memory pool: it was destroyed already, or never given out",
        id.first, id.second
    ))
}
