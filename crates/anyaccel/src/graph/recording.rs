//! A capture under way, as lanes, events and the thread that began it see it.
//!
//! # Protocol
//!
//! A recording is *open* from its begin to its end, which happens once, whoever comes first: the end, the scope's drop,
//! the graph's reset or drop. Its lanes point to it, and it to its lanes; ending it takes both apart. The tape is under
//! one lock, which is never held while a driver or user code is called. A lane that is asked for its recording may get
//! one that ends meanwhile: then the tape is gone, and what was to be recorded is refused.

use super::cell::BeforeReplay;
use super::error::GraphError;
use super::options::CaptureErrorMode;
use super::pinned::Replays;
use super::work::{Kept, Targets, Work};
use crate::error::{Error, Result};
use crate::lane::{Lane, LaneRef};
use crate::local;
use crate::port::{Block, HostBlock, Port};
use crate::runtime::Runtime;
use anyaccel_engine::alloc::{PoolError, PoolId, Scope};
use anyaccel_engine::graph::{Point, Program, Recorder, Refusal};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many captures of a runtime are under way.
#[derive(Default)]
pub(crate) struct Captures {
    open: AtomicUsize,
    /// Those of mode `global`.
    global: AtomicUsize,
}

impl Runtime {
    /// Refuses a wait of the host that a capture forbids. Costs one load where there is no capture.
    #[inline]
    pub(crate) fn may_wait(&self, call: &'static str) -> Result<()> {
        if self.core.captures.open.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.may_wait_slowly(call) }
    }

    #[cold]
    fn may_wait_slowly(&self, call: &'static str) -> Result<()> {
        if local::captures(self.core.key()) {
            Err(GraphError::Waits { call }.into())
        } else if self.core.captures.global.load(Ordering::Acquire) > 0 {
            Err(GraphError::WaitsAnywhere { call }.into())
        } else {
            Ok(())
        }
    }
}

/// Refuses a question to a lane that is captured.
#[inline]
pub(crate) fn not_captured(call: &'static str, lane: &Lane) -> Result<()> {
    if lane.is_capturing() {
        return Err(GraphError::CapturedStream { call, stream: lane.id, device: lane.device }.into());
    }
    Ok(())
}

/// What a capture leaves when it ends well.
pub(crate) struct Taken {
    pub(crate) program: Program<Work>,
    pub(crate) lanes: Vec<(LaneRef, Arc<Port>)>,
    pub(crate) kept: Kept,
    /// On which devices its pool is used.
    pub(crate) pools: Vec<Arc<Port>>,
    /// What is written before each replay.
    pub(crate) before: Vec<BeforeReplay>,
}

struct Tape {
    recorder: Recorder<Work, Error>,
    lanes: Vec<(LaneRef, Arc<Port>)>,
    kept: Kept,
    pools: Vec<Arc<Port>>,
    before: Vec<BeforeReplay>,
}

/// A capture under way.
pub(crate) struct Recording {
    id: u64,
    runtime: Runtime,
    pub(crate) origin: LaneRef,
    pub(crate) port: Arc<Port>,
    pub(crate) pool: PoolId,
    mode: CaptureErrorMode,
    open: Arc<AtomicBool>,
    pub(crate) targets: Arc<Targets>,
    pub(crate) replays: Arc<Replays>,
    tape: Mutex<Option<Tape>>,
}

impl Recording {
    /// Begins a capture. On an error everything is as before.
    pub(crate) fn begin(
        runtime: &Runtime,
        port: &Arc<Port>,
        origin: &LaneRef,
        pool: PoolId,
        mode: CaptureErrorMode,
    ) -> Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let recording = Arc::new(Self {
            id,
            runtime: runtime.clone(),
            origin: origin.clone(),
            port: Arc::clone(port),
            pool,
            mode,
            open: Arc::new(AtomicBool::new(true)),
            targets: Arc::default(),
            replays: Arc::default(),
            tape: Mutex::new(Some(Tape {
                recorder: Recorder::new(id, origin.raw.0),
                lanes: Vec::new(),
                kept: Kept::default(),
                pools: Vec::new(),
                before: Vec::new(),
            })),
        });
        if !origin.join(&recording) {
            return Err(GraphError::StreamCapturing { stream: origin.id, device: origin.device }.into());
        }
        let captures = &runtime.core.captures;
        captures.open.fetch_add(1, Ordering::AcqRel);
        if mode == CaptureErrorMode::Global {
            captures.global.fetch_add(1, Ordering::AcqRel);
        }
        local::add_capture(runtime.core.key(), || runtime.weak(), Arc::clone(&recording.open));
        let entered = recording.tape(|tape| recording.enter(tape, origin, port));
        if let Err(error) = entered {
            recording.close();
            return Err(error);
        }
        Ok(recording)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tape>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tape<T>(&self, with: impl FnOnce(&mut Tape) -> Result<T>) -> Result<T> {
        match &mut *self.lock() {
            Some(tape) => match tape.recorder.fault() {
                Some(first) => Err(first.clone()),
                None => with(tape),
            },
            // It ended on another thread meanwhile.
            None => Err(GraphError::NotCapturing.into()),
        }
    }

    /// A lane takes part from now on, its allocations in the pool.
    fn enter(&self, tape: &mut Tape, lane: &LaneRef, port: &Arc<Port>) -> Result<()> {
        let (raw, scope) = (lane.raw.0, Scope::Stream(lane.raw.0));
        if tape.pools.iter().any(|known| Arc::ptr_eq(known, port)) {
            port.cache.widen_pool(self.pool, scope).map_err(Error::Pool)?;
        } else {
            port.cache.begin_pool(self.pool, scope).map_err(Error::Pool)?;
            port.cache.keep_for_graph(self.pool).map_err(Error::Pool)?;
            tape.pools.push(Arc::clone(port));
        }
        port.cache.capture_begin(raw);
        port.host.capture_begin(raw);
        tape.lanes.push((lane.clone(), Arc::clone(port)));
        Ok(())
    }

    /// Ends it, once: everything that the begin changed is restored. What it leaves is given to who comes first.
    fn close(&self) -> Option<Tape> {
        let tape = self.lock().take()?;
        for (lane, port) in &tape.lanes {
            lane.leave();
            port.cache.capture_end(lane.raw.0);
            port.host.capture_end(lane.raw.0);
        }
        // The first lane joined before anything else could fail.
        self.origin.leave();
        for port in &tape.pools {
            // It has a scope since its first lane entered.
            let _open = port.cache.end_pool(self.pool);
        }
        self.open.store(false, Ordering::Release);
        let captures = &self.runtime.core.captures;
        captures.open.fetch_sub(1, Ordering::AcqRel);
        if self.mode == CaptureErrorMode::Global {
            captures.global.fetch_sub(1, Ordering::AcqRel);
        }
        Some(tape)
    }

    /// Leaves the capture without a graph.
    pub(crate) fn abort(&self) {
        if let Some(tape) = self.close() {
            self.forget(tape);
        }
    }

    fn forget(&self, tape: Tape) {
        let Tape { kept, pools, before, .. } = tape;
        self.replays.end();
        drop((kept, before));
        for port in pools {
            // It has this user since its first lane entered.
            let _used: Result<(), PoolError> = port.cache.forget_graph(self.pool);
        }
    }

    /// Ends the capture well.
    ///
    /// # Errors
    /// What invalidated it, or [`GraphError::Unjoined`]; it has ended all the same.
    pub(crate) fn end(&self) -> Result<Taken> {
        let Some(mut tape) = self.close() else { return Err(GraphError::NotCapturing.into()) };
        let recorder = std::mem::replace(&mut tape.recorder, Recorder::new(self.id, 0));
        let lanes = &tape.lanes;
        let finished = recorder.finish(|refusal| match refusal {
            Refusal::Unjoined(raw) => {
                let lane = lanes.iter().find(|(lane, _)| lane.raw.0 == raw).map_or(&self.origin, |(lane, _)| lane);
                GraphError::Unjoined { stream: lane.id, device: lane.device }.into()
            }
            _ => GraphError::TooLarge.into(),
        });
        match finished {
            Ok(program) => {
                let Tape { lanes, kept, pools, before, .. } = tape;
                Ok(Taken { program: program.merged(), lanes, kept, pools, before })
            }
            Err(error) => {
                self.forget(tape);
                Err(error)
            }
        }
    }

    /// Records a node on a lane, and keeps what it uses.
    pub(crate) fn record(&self, port: &Port, lane: &Lane, work: Work, uses: &[&Arc<Block>]) -> Result<()> {
        self.tape(|tape| {
            for block in uses {
                self.keep(tape, port, lane, block);
            }
            Self::push(tape, lane, work)
        })
    }

    /// The same for a copy between the host and the device.
    pub(crate) fn record_transfer(
        &self,
        port: &Port,
        lane: &Lane,
        work: Work,
        device: &Arc<Block>,
        host: &Arc<HostBlock>,
    ) -> Result<()> {
        self.tape(|tape| {
            self.keep(tape, port, lane, device);
            tape.kept.host(host);
            Self::push(tape, lane, work)
        })
    }

    /// Adds what is to be written before each replay.
    pub(crate) fn before_replay(&self, cell: BeforeReplay) -> Result<()> {
        self.tape(|tape| {
            tape.before.push(cell);
            Ok(())
        })
    }

    /// Keeps something else that a node needs.
    pub(crate) fn keep_other<T: Send + Sync + 'static>(&self, other: &Arc<T>) -> Result<()> {
        self.tape(|tape| {
            tape.kept.other(other);
            Ok(())
        })
    }

    /// Notes that work of a lane, enqueued by other means, uses a block.
    pub(crate) fn keep_block(&self, port: &Port, lane: &Lane, block: &Arc<Block>) -> Result<()> {
        self.tape(|tape| {
            self.keep(tape, port, lane, block);
            Ok(())
        })
    }

    fn keep(&self, tape: &mut Tape, port: &Port, lane: &Lane, block: &Arc<Block>) {
        block.captured_on(port, lane);
        tape.kept.block(block, block.pool == Some(self.pool));
    }

    fn push(tape: &mut Tape, lane: &Lane, work: Work) -> Result<()> {
        match tape.recorder.record(lane.raw.0, work) {
            Ok(_node) => Ok(()),
            Err(Refusal::TooLarge) => {
                tape.recorder.invalidate(GraphError::TooLarge.into());
                Err(GraphError::TooLarge.into())
            }
            Err(_) => Err(GraphError::NotCapturing.into()),
        }
    }

    /// Whether it has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The point behind what was recorded on a lane.
    pub(crate) fn point(&self, lane: &Lane) -> Result<Point> {
        self.tape(|tape| tape.recorder.point(lane.raw.0).map_err(|_| GraphError::NotCapturing.into()))
    }

    /// Makes what comes next on a lane wait for a point of this capture. A lane that takes no part joins.
    pub(crate) fn wait(
        self: &Arc<Self>,
        call: &'static str,
        lane: &LaneRef,
        port: &Arc<Port>,
        point: Point,
    ) -> Result<()> {
        if !lane.join(self) {
            return Err(GraphError::TwoCaptures { call }.into());
        }
        let waited = self.tape(|tape| {
            if !tape.recorder.takes_part(lane.raw.0) {
                self.enter(tape, lane, port)?;
            }
            tape.recorder.wait(lane.raw.0, point).map_err(|_| GraphError::OutsideEvent { call })?;
            Ok(())
        });
        if waited.is_err() && self.tape(|tape| Ok(tape.recorder.takes_part(lane.raw.0))) != Ok(true) {
            lane.leave();
        }
        waited
    }
}
