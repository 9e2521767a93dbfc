//! Graphs, and captures of streams, which are graphs in the making.

use crate::call::{Result, lock};
use crate::event::Point;
use crate::stream::{self, Stream, Work};
use anyaccel_cuda::sys::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

/// A node: what it does, and after which others.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) work: Work,
    pub(crate) after: Vec<usize>,
}

/// Nodes in the order in which they were added, so that each comes after what it depends on.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Mutex<Vec<Node>>,
}

/// A graph that can run.
pub(crate) struct Exec {
    pub(crate) nodes: Mutex<Vec<Node>>,
    /// Where its last launch ends. Held while one is enqueued.
    pub(crate) last: Mutex<Arc<Point>>,
}

static GRAPHS: Mutex<BTreeMap<usize, Arc<Graph>>> = Mutex::new(BTreeMap::new());
static EXECS: Mutex<BTreeMap<usize, Arc<Exec>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0x0096_0000_0000);

fn next() -> usize {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

pub(crate) fn keep(graph: Arc<Graph>) -> CUgraph {
    let handle = next();
    lock(&GRAPHS).insert(handle, graph);
    CUgraph(handle)
}

pub(crate) fn get(graph: CUgraph) -> Result<Arc<Graph>> {
    lock(&GRAPHS).get(&graph.0).cloned().ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn destroy(graph: CUgraph) -> Result {
    lock(&GRAPHS).remove(&graph.0).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn keep_exec(nodes: Vec<Node>) -> CUgraphExec {
    let handle = next();
    lock(&EXECS).insert(handle, Arc::new(Exec { nodes: Mutex::new(nodes), last: Mutex::new(Arc::new(Point::over())) }));
    CUgraphExec(handle)
}

pub(crate) fn exec(exec: CUgraphExec) -> Result<Arc<Exec>> {
    lock(&EXECS).get(&exec.0).cloned().ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn destroy_exec(exec: CUgraphExec) -> Result {
    lock(&EXECS).remove(&exec.0).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}

impl Graph {
    /// Appends a node after others of this graph.
    pub(crate) fn add(&self, work: Work, after: Vec<usize>) -> Result<usize> {
        let mut nodes = lock(&self.nodes);
        if !after.iter().all(|after| nodes.iter().any(|node| node.handle == *after)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = next();
        nodes.push(Node { handle, work, after });
        Ok(handle)
    }

    /// The graph in the language of Graphviz.
    pub(crate) fn dot(&self) -> String {
        let nodes = lock(&self.nodes);
        let mut text = String::from("digraph dot {\n");
        for node in &*nodes {
            let label = match &node.work {
                Work::Copy { len, .. } => format!("MEMCPY\\n{len} bytes"),
                Work::Set { size, count, .. } => format!("MEMSET\\n{count} x {size} bytes"),
                Work::Launch(launch) => format!("KERNEL\\n{}", launch.name),
                Work::Host { .. } => "HOST".into(),
                Work::WaitValue { .. } => "BATCH_MEM_OP".into(),
            };
            text.push_str(&format!("  n{} [label=\"{label}\"];\n", node.handle));
            for after in &node.after {
                text.push_str(&format!("  n{after} -> n{};\n", node.handle));
            }
        }
        text.push_str("}\n");
        text
    }
}

/// A capture under way.
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: u32,
    thread: ThreadId,
    pub(crate) origin: usize,
    pub(crate) graph: Arc<Graph>,
    /// The code that broke it; 0 while it is whole.
    broken: AtomicU32,
}

/// A stream's part in a capture: which nodes its next one comes after.
pub(crate) struct Joined {
    pub(crate) capture: Arc<Capture>,
    pub(crate) last: Vec<usize>,
}

impl Joined {
    pub(crate) fn add(&mut self, work: Work) -> Result {
        self.capture.check()?;
        let mut after = std::mem::take(&mut self.last);
        after.sort_unstable();
        after.dedup();
        self.last = vec![self.capture.graph.add(work, after)?];
        Ok(())
    }
}

static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

pub(crate) fn exchange_mode(new: u32) -> u32 {
    MODE.replace(new)
}

/// A call that could break a capture: refused where the capture's mode or the thread's own does not allow it.
pub(crate) fn unsafe_call() -> Result {
    if UNDER_WAY.load(Ordering::Acquire) == 0 || MODE.get() == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let here = thread::current().id();
    let captures = lock(&CAPTURES);
    let forbids = captures.iter().find(|capture| match capture.mode {
        CU_STREAM_CAPTURE_MODE_GLOBAL => MODE.get() == CU_STREAM_CAPTURE_MODE_GLOBAL || capture.thread == here,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => capture.thread == here,
        _ => false,
    });
    match forbids {
        Some(capture) => Err(capture.break_with(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)),
        None => Ok(()),
    }
}

impl Capture {
    /// Ok while nothing broke it.
    pub(crate) fn check(&self) -> Result {
        match self.broken.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    pub(crate) fn status(&self) -> u32 {
        if self.check().is_ok() { CU_STREAM_CAPTURE_STATUS_ACTIVE } else { CU_STREAM_CAPTURE_STATUS_INVALIDATED }
    }

    /// Breaks it with a code, which is returned.
    pub(crate) fn break_with(&self, code: Code) -> Code {
        let _first = self.broken.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        code
    }
}

pub(crate) fn begin(stream: &Arc<Stream>, handle: CUstream, mode: u32) -> Result {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = lock(&stream.state);
    if state.capture.is_some() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: thread::current().id(),
        origin: handle.0,
        graph: Arc::default(),
        broken: AtomicU32::new(0),
    });
    state.capture = Some(Joined { capture: Arc::clone(&capture), last: Vec::new() });
    drop(state);
    lock(&CAPTURES).push(capture);
    UNDER_WAY.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) fn end(stream: &Arc<Stream>, handle: CUstream) -> Result<CUgraph> {
    let state = lock(&stream.state);
    let Some(joined) = &state.capture else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let (capture, last) = (Arc::clone(&joined.capture), joined.last.clone());
    drop(state);
    if capture.origin != handle.0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread::current().id() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    // Whatever another stream did last must be something that the first one waited for.
    let nodes = lock(&capture.graph.nodes);
    let leads_on = |node: usize| nodes.iter().any(|other| other.after.contains(&node)) || last.contains(&node);
    let joined = nodes.iter().all(|node| leads_on(node.handle));
    drop(nodes);
    for stream in stream::captured_by(&capture) {
        lock(&stream.state).capture = None;
    }
    lock(&CAPTURES).retain(|other| !Arc::ptr_eq(other, &capture));
    UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    capture.check()?;
    if !joined {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    Ok(keep(Arc::clone(&capture.graph)))
}
