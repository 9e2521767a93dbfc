//! A recorded history through the production allocator, over a device that is only numbers.

mod device;

use std::sync::Arc;

use anyaccel_engine::alloc::{
    AllocError, Departures, DeviceCache, Handle, OutOfMemory, PoolId, Scope, Settings, Stats, Uses,
};

use crate::history::{History, Op, What};
pub use device::Addresses;
use device::Space;

/// Under which circumstances to replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Conf {
    /// Settings of the allocator.
    pub settings: Settings,
    /// Memory of the device in bytes.
    pub total: u64,
    /// Where the device puts segments.
    pub addresses: Addresses,
}

impl Conf {
    /// These settings on a device of `total` bytes.
    pub fn new(settings: Settings, total: u64) -> Self {
        Conf { settings, total, addresses: Addresses::default() }
    }
}

/// Memory of the device where neither the file nor the user tells: 80 GiB.
pub const DEFAULT_MEMORY: u64 = 80 << 30;

/// A request that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhausted {
    /// The event of the request, an index into the trace.
    pub event: usize,
    /// Bytes asked for.
    pub requested: u64,
    /// It failed in the recording too.
    pub recorded: bool,
    /// What was there and what stood in the way; `None` for a request that no device could serve.
    pub report: Option<Box<OutOfMemory>>,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every counter of the allocator at the end.
    pub stats: Stats,
    /// The first request that failed. Where it did not fail in the recording, the replay ends there, as the program would.
    pub exhausted: Option<Exhausted>,
    /// Requests that failed in the recording and would not have, as events.
    pub survived: Vec<usize>,
    /// Bytes in the hands of users when reserved memory was at its peak.
    pub allocated_at_peak: u64,
    /// Requests that the device refused.
    pub refused: u64,
    /// Operations done.
    pub done: usize,
}

impl Outcome {
    /// The greatest number of bytes in the hands of users.
    pub fn peak_allocated(&self) -> u64 {
        self.stats.allocated_bytes.all.peak
    }

    /// The greatest number of bytes taken from the device.
    pub fn peak_reserved(&self) -> u64 {
        self.stats.reserved_bytes.all.peak
    }

    /// Which share of reserved memory nobody used when it was at its peak.
    pub fn fragmentation(&self) -> f64 {
        let peak = self.peak_reserved();
        if peak == 0 { 0.0 } else { 1.0 - self.allocated_at_peak.min(peak) as f64 / peak as f64 }
    }
}

/// Names the stream that stands for all that use a block besides its own.
const OTHERS: u64 = u64::MAX;

struct Run<'h> {
    history: &'h History,
    space: Arc<Space>,
    cache: DeviceCache,
    handles: Vec<u64>,
    /// The private pool that is open; 0 is none.
    pool: u16,
    users: Vec<u32>,
    others: Uses,
    outcome: Outcome,
    changes: u64,
}

/// Replays one device's history. `None` if `go_on` says so, which is asked every few thousand operations.
pub fn replay_while(history: &History, conf: &Conf, go_on: &mut dyn FnMut(usize) -> bool) -> Option<Outcome> {
    let mut run = Run::new(history, conf);
    for (at, part) in history.ops.chunks(1 << 14).enumerate() {
        if !go_on(at << 14) {
            return None;
        }
        if !part.iter().all(|op| run.step(op)) {
            break;
        }
    }
    Some(run.end())
}

/// Replays one device's history.
pub fn replay(history: &History, conf: &Conf) -> Outcome {
    let mut run = Run::new(history, conf);
    for op in &history.ops {
        if !run.step(op) {
            break;
        }
    }
    run.end()
}

impl<'h> Run<'h> {
    fn new(history: &'h History, conf: &Conf) -> Self {
        let space = Arc::new(Space::new(conf.total, conf.addresses));
        // What PyTorch recorded is replayed as PyTorch would do it, to the byte.
        let departures = if history.ours { Departures::ALL } else { Departures::NONE };
        let cache = DeviceCache::new(history.device as u32, space.ports(), conf.settings.clone(), departures);
        let others = cache.use_of(OTHERS);
        Run {
            history,
            space,
            cache,
            handles: vec![0; history.slots],
            pool: 0,
            users: vec![0; history.pools.len()],
            others,
            outcome: Outcome {
                stats: Stats::default(),
                exhausted: None,
                survived: Vec::new(),
                allocated_at_peak: 0,
                refused: 0,
                done: 0,
            },
            changes: 0,
        }
    }

    /// Does an operation. `false` ends the replay.
    #[inline]
    fn step(&mut self, op: &Op) -> bool {
        self.outcome.done += 1;
        match op.what {
            What::Alloc => {
                if op.pool != self.pool {
                    self.switch(op.pool);
                }
                match self.cache.alloc(op.size, op.stream) {
                    Ok(Some(block)) => self.handles[op.slot as usize] = block.handle.to_bits(),
                    Ok(None) => self.handles[op.slot as usize] = 0,
                    Err(error) => return self.failed(op, error, false),
                }
                self.watch();
            }
            What::Free => {
                let _stale_only_for_no_bytes = self.cache.free(Handle::from_bits(self.handles[op.slot as usize]));
            }
            What::FreeUsed => {
                self.space.next_mark(op.size);
                let handle = Handle::from_bits(self.handles[op.slot as usize]);
                let _stale_only_for_no_bytes = self.cache.free_used(handle, self.others);
            }
            What::Completed => self.space.complete(op.size),
            What::EmptyCache => {
                let _never_refused = self.cache.empty_cache();
                self.watch();
            }
            What::ReleasePool => self.release(op.pool),
            What::Failed => return self.failed_then(op),
        }
        true
    }

    /// Notes what was in use when reserved memory was at its peak.
    #[inline]
    fn watch(&mut self) {
        let changes = self.space.changes();
        if changes != self.changes {
            self.changes = changes;
            if self.space.used() >= self.cache.stats().reserved_bytes.all.peak {
                self.outcome.allocated_at_peak = self.cache.allocated();
            }
        }
    }

    #[cold]
    fn switch(&mut self, pool: u16) {
        if self.pool != 0 {
            let _was_open = self.cache.end_pool(self.key(self.pool));
        }
        if pool != 0 && self.cache.begin_pool(self.key(pool), Scope::All).is_ok() {
            self.users[pool as usize] += 1;
        }
        self.pool = pool;
    }

    fn key(&self, pool: u16) -> PoolId {
        let (a, b) = self.history.pools[pool as usize];
        PoolId(a, b)
    }

    /// A segment of a private pool went back to the device, so nobody uses the pool any more.
    #[cold]
    fn release(&mut self, pool: u16) {
        self.switch(0);
        while self.users[pool as usize] > 0 {
            self.users[pool as usize] -= 1;
            let _had_a_user = self.cache.release_pool(self.key(pool));
        }
    }

    #[cold]
    fn failed(&mut self, op: &Op, error: AllocError, recorded: bool) -> bool {
        let report = if let AllocError::OutOfMemory(report) = error { Some(report) } else { None };
        if self.outcome.exhausted.is_none() {
            self.outcome.exhausted = Some(Exhausted { event: op.event as usize, requested: op.size, recorded, report });
        }
        recorded
    }

    /// A request that failed in the recording.
    #[cold]
    fn failed_then(&mut self, op: &Op) -> bool {
        self.switch(op.pool);
        match self.cache.alloc(op.size, op.stream) {
            Ok(block) => {
                self.watch();
                self.outcome.survived.push(op.event as usize);
                // What the program would have done with it is unknown; what it did without is what comes next.
                if let Some(block) = block {
                    let _live = self.cache.free(block.handle);
                }
                true
            }
            Err(error) => self.failed(op, error, true),
        }
    }

    fn end(mut self) -> Outcome {
        self.outcome.stats = self.cache.stats();
        self.outcome.refused = self.space.refused();
        self.outcome
    }
}

/// An outcome as JSON: the keys of PyTorch's counters, with the setting, the device's memory and the event whose request
/// failed.
pub fn row(outcome: &Outcome, settings: &str, total: u64) -> serde_json::Value {
    let stats = &outcome.stats;
    serde_json::json!({
        "total_mb": total >> 20,
        "config": settings,
        "peak_allocated": outcome.peak_allocated(),
        "peak_reserved": outcome.peak_reserved(),
        "peak_requested": stats.requested_bytes.all.peak,
        "peak_active": stats.active_bytes.all.peak,
        "num_alloc_retries": stats.num_alloc_retries,
        "num_ooms": stats.num_ooms,
        "oom_event": outcome.exhausted.as_ref().map(|exhausted| exhausted.event),
        "num_device_alloc": stats.num_device_alloc,
        "num_device_free": stats.num_device_free,
    })
}
