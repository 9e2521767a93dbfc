//! Graphs: work captured once and replayed as one operation.

mod capture;
mod cell;
mod error;
mod inspect;
mod options;
mod pinned;
mod recording;
mod update;
mod work;

pub use capture::Capture;
pub(crate) use cell::BeforeReplay;
pub use error::GraphError;
pub use inspect::GraphNode;
pub use options::{CaptureErrorMode, GraphOptions};
pub(crate) use pinned::{Passed, Replays, Viewing};
pub(crate) use recording::{Captures, Recording, not_captured};
pub use update::GraphUpdate;
pub(crate) use work::{Argument, Kept, Repeated, Site, Spot, Work};

use crate::error::{Error, Result};
use crate::lane::LaneRef;
use crate::port::{Exec, Port};
use crate::runtime::Runtime;
use anyaccel_engine::alloc::{PoolError, PoolId};
use anyaccel_engine::graph::{Call, Phase, Program};
use anyaccel_hal::StreamId;
use recording::Taken;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work::Targets;

/// What a capture left, ready to be replayed.
struct Captured {
    port: Arc<Port>,
    program: Program<Work>,
    /// Those of the program, in its order.
    lanes: Vec<(LaneRef, Arc<Port>)>,
    kept: Kept,
    pool: PoolId,
    pools: Vec<Arc<Port>>,
    exec: Option<Exec>,
    /// The lanes that replays went to, all of which the blocks know.
    seen: Vec<StreamId>,
    replays: Arc<Replays>,
    targets: Arc<Targets>,
    before: Vec<BeforeReplay>,
}

struct State {
    phase: Phase,
    pool: Option<(u64, u64)>,
    mode: CaptureErrorMode,
    /// The pool of the last capture.
    used: Option<PoolId>,
    debug: bool,
    recording: Option<Arc<Recording>>,
    captured: Option<Box<Captured>>,
}

/// Work that is captured once and then replayed, as often as wanted, as one operation of a stream: without the cost of
/// enqueueing it again, on every backend.
///
/// Between [`capture_begin`](Graph::capture_begin) and [`capture_end`](Graph::capture_end) (or in a
/// [`capture`](Graph::capture) scope) what is enqueued on the captured stream is recorded instead of run. Other streams
/// join by waiting for an event that was recorded inside, or by [`Stream::wait_stream`](crate::Stream::wait_stream), and
/// have to be joined again before the end. Other threads may enqueue on captured streams; any number of graphs can be
/// captured at a time, each on streams of its own.
///
/// - **Memory.** Buffers allocated on captured streams come from a private pool: what is dropped inside the capture is
///   reused inside it only, and nothing taken outside ever shares bytes with it. The graph keeps its pool, and every other
///   buffer and kernel that its work uses, until it is reset or dropped and its last replay has ended. Graphs that share a
///   pool (see [`Graph::pool`]) share scratch memory: order their replays.
/// - **What can't be captured** is refused, and the capture goes on: on the capturing thread every wait of the host
///   (synchronizing streams or devices, downloads to borrowed memory, uploads of more than 64 KiB from it); questions to
///   captured streams and to events recorded inside; waiting for events recorded outside; functions that can be called
///   once only ([`Stream::host_fn`](crate::Stream::host_fn)).
/// - **Host functions** ([`Stream::host_fn_mut`](crate::Stream::host_fn_mut)) are called at each replay and dropped with
///   the graph. A function that owns a handle of its own graph keeps that graph for good: [`Graph::reset`] lets both go.
///   **Events** recorded inside order work inside, nothing else. **Pinned buffers** are read or written at each
///   replay: look at them by [`PinnedBuffer::with`](crate::PinnedBuffer::with) and `with_mut`, which wait for replays and
///   keep new ones from beginning.
/// - **Replays** go to the stream that is current then. Those of one graph never overlap, whichever streams and threads
///   they come from.
///
/// A handle; clones name the same graph. Making one starts nothing.
///
/// ```
/// use anyaccel::{Graph, GraphOptions};
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let stream = runtime.stream(())?;
/// let _current = stream.enter()?;
/// let (a, b) = (runtime.zeros(1 << 10)?, runtime.alloc(1 << 10)?);
///
/// let graph = runtime.graph(GraphOptions::default());
/// graph.capture(|| {
///     stream.fill(&a.slice(..512)?, &[1])?; // recorded, not run
///     stream.copy(&b.all(), &a.all())
/// })?;
/// assert_eq!(a.to_vec()?[0], 0);
/// graph.replay()?;
/// graph.replay_n(10)?;
/// assert_eq!(b.to_vec()?[511..513], [1, 0]);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone)]
pub struct Graph(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    keep_graph: bool,
    state: Mutex<State>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Graph");
        if self.0.runtime.core.current() {
            out.field("phase", &self.0.look(|state| state.phase));
        }
        out.finish_non_exhaustive()
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Graph {}

impl Runtime {
    /// A graph of this runtime. Starts nothing.
    /// [`torch.accelerator.Graph`](https://pytorch.org/docs/stable/accelerator.html)
    pub fn graph(&self, options: GraphOptions) -> Graph {
        Graph(Arc::new(Inner {
            runtime: self.clone(),
            keep_graph: options.keep_graph,
            state: Mutex::new(State {
                phase: Phase::Idle,
                pool: options.pool,
                mode: options.capture_error_mode,
                used: None,
                debug: false,
                recording: None,
                captured: None,
            }),
        }))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for what can't fail; `None` in another generation of the process, where the lock may be held for ever.
    fn look<T>(&self, f: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.runtime.core.current().then(|| f(&mut self.lock()))
    }

    /// The state, if this generation of the process may use it now.
    fn state(&self, call: &'static str) -> Result<MutexGuard<'_, State>> {
        if crate::local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        self.runtime.check_generation(call, "graph")?;
        Ok(self.lock())
    }
}

impl State {
    fn step(&self, name: &'static str, call: Call) -> Result<Phase> {
        self.phase.after(call).map_err(|illegal| GraphError::illegal(name, illegal).into())
    }
}

impl Graph {
    /// A graph of the process-wide runtime. Starts nothing.
    pub fn new(options: GraphOptions) -> Self {
        Runtime::global().graph(options)
    }

    /// The pool that the next capture is asked to use.
    pub fn graph_pool(&self) -> Option<(u64, u64)> {
        self.0.look(|state| state.pool)?
    }

    /// Sets it.
    pub fn set_graph_pool(&self, pool: Option<(u64, u64)>) {
        self.0.look(|state| state.pool = pool);
    }

    /// What the next capture forbids to other threads.
    pub fn capture_error_mode(&self) -> CaptureErrorMode {
        self.0.look(|state| state.mode).unwrap_or_default()
    }

    /// Sets it.
    pub fn set_capture_error_mode(&self, mode: CaptureErrorMode) {
        self.0.look(|state| state.mode = mode);
    }

    /// Begins to capture this thread's current stream of its current device. May start the runtime.
    ///
    /// # Errors
    /// [`GraphError::AlreadyCapturing`], [`GraphError::HasGraph`], [`GraphError::StreamCapturing`]; [`Error::Pool`] for a
    /// pool that was never made, or that another capture uses now; what starting reports.
    pub fn capture_begin(&self) -> Result<()> {
        let runtime = &self.0.runtime;
        let stream = {
            self.0.state("Graph.capture_begin")?.step("capture_begin", Call::Begin)?;
            // Without the lock: it may start the runtime, and run deferred calls.
            runtime.current_stream(())?
        };
        let mut state = self.0.state("Graph.capture_begin")?;
        let phase = state.step("capture_begin", Call::Begin)?;
        let port = stream.port("Graph.capture_begin")?;
        let pool = match state.pool {
            None | Some((0, 0)) => {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                PoolId(NEXT.fetch_add(1, Ordering::Relaxed), 0)
            }
            Some((first, second)) => {
                let pool = PoolId(first, second);
                if !port.cache.has_pool(pool) {
                    return Err(Error::Pool(PoolError::NotInUse(pool)));
                }
                pool
            }
        };
        state.recording = Some(Recording::begin(runtime, port, &stream.lane, pool, state.mode)?);
        state.used = Some(pool);
        state.phase = phase;
        Ok(())
    }

    /// Ends the capture, on the stream where it began; from any thread. Unless the graph was made with `keep_graph`, makes
    /// it executable.
    ///
    /// # Errors
    /// [`GraphError::NotCapturing`]; [`GraphError::WrongStream`], after which the capture goes on. After any other error
    /// the capture has ended without a graph: the first that made it invalid, [`GraphError::Unjoined`], or the driver's.
    pub fn capture_end(&self) -> Result<()> {
        let call = "Graph.capture_end";
        let state = self.0.state(call)?;
        state.step("capture_end", Call::End)?;
        let Some(recording) = state.recording.clone() else { return Err(GraphError::NotCapturing.into()) };
        drop(state);
        let current = self.0.runtime.current_stream(())?;
        if current.lane.raw != recording.origin.raw {
            return Err(GraphError::WrongStream {
                began: recording.origin.id,
                began_on: recording.origin.device,
                current: current.lane.id,
                current_on: current.lane.device,
            }
            .into());
        }
        self.end()
    }

    /// Ends the capture, whatever stream is current.
    fn end(&self) -> Result<()> {
        let mut state = self.0.state("Graph.capture_end")?;
        let phase = state.step("capture_end", Call::End)?;
        let Some(recording) = state.recording.take() else { return Err(GraphError::NotCapturing.into()) };
        state.phase = Phase::Idle;
        let Taken { program, lanes, kept, pools, before } = recording.end()?;
        state.captured = Some(Box::new(Captured {
            port: Arc::clone(&recording.port),
            program,
            lanes,
            kept,
            pool: recording.pool,
            pools,
            exec: None,
            seen: Vec::new(),
            replays: Arc::clone(&recording.replays),
            targets: Arc::clone(&recording.targets),
            before,
        }));
        state.phase = phase;
        if self.0.keep_graph {
            return Ok(());
        }
        if let Err(error) = state.instantiate() {
            let over = state.captured.take();
            state.phase = Phase::Idle;
            drop(state);
            drop(over);
            return Err(error);
        }
        Ok(())
    }

    /// Leaves a capture that is under way without a graph; else does nothing.
    fn abort(&self) {
        if !self.0.runtime.core.current() {
            return;
        }
        let mut state = self.0.lock();
        let recording = state.recording.take();
        if recording.is_some() {
            state.phase = Phase::Idle;
        }
        drop(state);
        if let Some(recording) = recording {
            recording.abort();
        }
    }

    /// Makes what was captured executable. Without effect if it is already.
    ///
    /// # Errors
    /// [`GraphError::NotCaptured`], [`GraphError::StillCapturing`]; the driver's.
    pub fn instantiate(&self) -> Result<()> {
        let mut state = self.0.state("Graph.instantiate")?;
        state.step("instantiate", Call::Instantiate)?;
        state.instantiate()
    }

    /// Runs the graph as one operation of the current stream of its device, and returns at once. Makes it executable first
    /// if need be.
    ///
    /// # Errors
    /// [`GraphError::NotCaptured`], [`GraphError::StillCapturing`], [`GraphError::ReplayCaptured`],
    /// [`GraphError::Viewed`]; [`Error::DeviceLost`] and the driver's others.
    pub fn replay(&self) -> Result<()> {
        self.replay_n(1)
    }

    /// Runs it that many times, one after the other; 0 only checks.
    ///
    /// # Errors
    /// As [`Graph::replay`]; some of the replays may have been enqueued.
    pub fn replay_n(&self, times: u32) -> Result<()> {
        let call = "Graph.replay";
        let mut state = self.0.state(call)?;
        let phase = state.step("replay", Call::Replay)?;
        let Some(captured) = &state.captured else { return Err(GraphError::NotCaptured { call: "replay" }.into()) };
        let stream = self.0.runtime.current_stream(captured.port.device)?;
        stream.port(call)?;
        let lane = &stream.lane;
        if lane.is_capturing() {
            return Err(GraphError::ReplayCaptured { stream: lane.id, device: lane.device }.into());
        }
        state.instantiate()?;
        state.phase = phase;
        let Some(captured) = &mut state.captured else { return Ok(()) };
        (0..times).try_for_each(|_| captured.replay(lane))
    }

    /// Forgets what was captured, so that it can capture again; leaves a capture that is under way. The pool and
    /// everything kept is given back once the last replay has ended. Harmless if there is nothing.
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    pub fn reset(&self) -> Result<()> {
        self.0.runtime.check_generation("Graph.reset", "graph")?;
        self.abort();
        let mut state = self.0.lock();
        state.phase = Phase::Idle;
        let over = state.captured.take();
        drop(state);
        drop(over);
        Ok(())
    }

    /// The pool of the last capture, for another graph's [`GraphOptions::pool`]; `(0, 0)`, which stands for a pool of its
    /// own, before the first one.
    pub fn pool(&self) -> (u64, u64) {
        self.0.look(|state| state.used).flatten().map_or((0, 0), |pool| (pool.0, pool.1))
    }

    /// Whether a capture is under way.
    pub fn is_capturing(&self) -> bool {
        self.0.look(|state| state.phase) == Some(Phase::Capturing)
    }
}

impl State {
    fn instantiate(&mut self) -> Result<()> {
        let Some(captured) = &mut self.captured else { return Ok(()) };
        if captured.exec.is_none() {
            captured.exec = Some(captured.port.instantiate(&captured.program, &captured.lanes)?);
        }
        self.phase = Phase::Instantiated;
        Ok(())
    }
}

impl Captured {
    fn replay(&mut self, lane: &LaneRef) -> Result<()> {
        let Self { port, program, kept, exec, seen, replays, targets, before, .. } = self;
        let Some(exec) = exec else { return Err(GraphError::NotCaptured { call: "replay" }.into()) };
        if !seen.contains(&lane.raw) {
            port.replays_on(exec, kept, lane)?;
            seen.push(lane.raw);
        }
        replays.not_viewed()?;
        let mut cells = Vec::with_capacity(before.len());
        for cell in before {
            cells.push((cell.spot, cell.ask()?));
        }
        let call = "Graph.replay";
        // Views of pinned memory wait for a replay, and no longer than for that.
        let viewed = !kept.hosts.is_empty();
        replays.replay(|last| {
            targets.add(lane, || {
                let ended = |last: &Passed| last.port.ended(call, &last.lane, last.mark(call)?);
                last.is_none_or(|last| ended(last) == Ok(true))
            });
            let enqueued = port.replay(exec, program, lane, last, &cells, viewed);
            if enqueued.is_err() {
                targets.take_back();
            }
            enqueued
        })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let last = self.replays.end();
        self.port.retire_graph(self.exec.take(), self.pool, &self.pools, last.as_ref());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !self.runtime.core.current() {
            // Of another generation: what it has is leaked, its locks may be held by nobody here.
            std::mem::forget((state.recording.take(), state.captured.take()));
            return;
        }
        if let Some(recording) = state.recording.take() {
            recording.abort();
        }
    }
}
