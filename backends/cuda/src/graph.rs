//! Native graphs (H31): of captured streams, and of lists.
//!
//! A function of the host becomes two nodes (see [`node_call`](crate::node_call)). The graph keeps the native graph beside
//! what runs, since nodes are named by it.

use crate::context::Context;
use crate::conv::Failed;
use crate::device::{CudaDevice, unknown};
use crate::kernel::Native;
use crate::node_call::{NodeFn, node_turn};
use crate::sys::*;
use anyaccel_hal::{
    CaptureId, CaptureMode, End, Fault, GraphExec, GraphNode, Graphs, GraphsLimits, HostPtr, Op, OwnedArg, StreamId,
};
use anyaccel_kit::Mutex;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    graph: CUgraph,
    exec: CUgraphExec,
    nodes: Vec<Node>,
    functions: Functions,
}

/// What became of a node of a list.
#[derive(Clone, Debug)]
struct Node {
    form: Form,
    native: CUgraphNode,
    /// What later nodes come after.
    last: CUgraphNode,
    function: Option<Arc<NodeFn>>,
}

/// The functions of a graph. Locked while a replay is enqueued, so that none is replaced meanwhile.
#[derive(Debug)]
enum Functions {
    None,
    Some(Mutex<Vec<Arc<NodeFn>>>),
}

impl Functions {
    fn of(nodes: &[Node]) -> Self {
        let functions: Vec<_> = nodes.iter().filter_map(|node| node.function.clone()).collect();
        if functions.is_empty() { Self::None } else { Self::Some(Mutex::new(functions)) }
    }

    /// Acts while no replay is being enqueued.
    fn between_replays<R>(&self, act: impl FnOnce() -> R) -> R {
        let _lock = match self {
            Self::None => None,
            Self::Some(functions) => Some(functions.lock()),
        };
        act()
    }

    /// Enqueues a replay, which calls each of them.
    fn replay(&self, launch: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        let Self::Some(functions) = self else { return launch() };
        let functions = functions.lock();
        functions.iter().for_each(|function| function.expect());
        launch().inspect_err(|_| functions.iter().for_each(|function| function.expect_no_more()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Copy,
    Fill,
    Write,
    HostCall,
    Launch,
}

impl Form {
    const fn of(op: &Op) -> Self {
        match op {
            Op::Copy { .. } => Self::Copy,
            Op::Fill { .. } => Self::Fill,
            Op::Write { .. } => Self::Write,
            Op::HostCall(_) => Self::HostCall,
            Op::Launch { .. } => Self::Launch,
        }
    }
}

/// A native graph that is destroyed unless it is kept.
struct Draft<'a> {
    context: &'a Context,
    graph: CUgraph,
}

impl Draft<'_> {
    fn keep(self) -> CUgraph {
        let graph = self.graph;
        std::mem::forget(self);
        graph
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // SAFETY: made or handed over by the driver, used no more.
        let _destroyed = unsafe { self.context.cuda.cuGraphDestroy(self.graph) };
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let (exec, graph) = (self.exec, self.graph);
        let destroy = move |cuda: &Cuda| {
            // SAFETY: made by this module; replays have ended (H31).
            unsafe { cuda.cuGraphExecDestroy(exec).and(cuda.cuGraphDestroy(graph)) }
        };
        if !self.context.is_busy() {
            if let Ok(_current) = self.context.enter() {
                let _destroyed = destroy(self.context.cuda);
            }
            return;
        }
        // The driver ends, with replays under way (H25): they still call the nodes.
        let nodes = std::mem::take(&mut self.nodes);
        nodes.iter().filter_map(|node| node.function.as_ref()).for_each(|function| function.end());
        self.context.returns.hand(move |cuda| {
            let destroyed = destroy(cuda);
            drop(nodes);
            destroyed
        });
    }
}

/// A native operation without its place in a graph.
enum Params<'a> {
    Copy(Box<CUDA_MEMCPY3D_v2>),
    Set(CUDA_MEMSET_NODE_PARAMS_v1),
    Kernel(Native<'a>),
}

fn kernel_params(native: &mut Native<'_>) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: native.function,
        gridDim: native.groups,
        blockDim: native.threads,
        sharedMemBytes: native.shared,
        kernelParams: native.params.as_mut_ptr(),
        extra: std::ptr::null_mut(),
    }
}

impl CudaDevice {
    /// Hands the native form of an operation, other than a host call, to `act`. The context is current.
    ///
    /// # Safety
    /// H1, H5.
    unsafe fn params<R>(&self, op: &Op, act: impl FnOnce(Params<'_>) -> Result<R, Fault>) -> Result<R, Fault> {
        match op {
            &Op::Copy { dst, src, len } => {
                if !matches!(dst, End::Device(_)) && !matches!(src, End::Device(_)) {
                    return Err(Fault::invalid("copy", "two host ends"));
                }
                // SAFETY: as this function.
                let (dst, src) = unsafe { (self.end(dst, len)?, self.end(src, len)?) };
                act(Params::Copy(Box::new(flat_copy(dst, src, len as usize))))
            }
            &Op::Fill { dst, pattern, len } => {
                // SAFETY: as this function.
                let dst = unsafe { self.place(dst, len, "fill")? };
                let bytes = pattern.bytes();
                let value = bytes.iter().rev().fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
                if !matches!(bytes.len(), 1 | 2 | 4) {
                    return Err(Fault::unsupported("fill").note(format!("a pattern of {} bytes", bytes.len())));
                }
                let size = bytes.len() as u32;
                let width = len as usize / bytes.len();
                act(Params::Set(CUDA_MEMSET_NODE_PARAMS_v1 {
                    dst,
                    pitch: 0,
                    value,
                    elementSize: size,
                    width,
                    height: 1,
                }))
            }
            Op::Write { dst, bytes } => {
                // SAFETY: as this function.
                unsafe { self.writing(*dst, bytes.bytes(), |native| act(Params::Kernel(native))) }
            }
            Op::Launch { kernel, launch, args } => {
                let args: Vec<_> = args.iter().map(OwnedArg::as_arg).collect();
                // SAFETY: as this function.
                unsafe { self.resolve(*kernel, *launch, &args, |native| act(Params::Kernel(native))) }
            }
            Op::HostCall(_) => Err(Fault::invalid("graph", "a function of the host")),
        }
    }

    /// Adds a node. The context is current.
    ///
    /// # Safety
    /// H1, H5.
    unsafe fn add(&self, graph: CUgraph, op: Op, after: &[CUgraphNode]) -> Result<Node, Fault> {
        let form = Form::of(&op);
        let context = &self.context;
        let (cuda, raw) = (context.cuda, context.raw);
        let (after, count) = (after.as_ptr(), after.len());
        let mut native = CUgraphNode::NULL;
        let out = &raw mut native;
        if let Op::HostCall(function) = op {
            let function = NodeFn::new(Arc::clone(context), function)?;
            let data = Arc::as_ptr(&function).cast_mut().cast::<c_void>();
            let params = CUDA_HOST_NODE_PARAMS_v1 { func: node_turn, userData: data };
            // SAFETY: a valid place for the answer; the nodes before are of this graph, which keeps the function.
            context.check(unsafe { cuda.cuGraphAddHostNode(out, graph, after, count, &raw const params) })?;
            let mut wait = CUstreamMemOpWaitValueParams {
                operation: CU_STREAM_MEM_OP_WAIT_VALUE_32,
                address: function.word(),
                value: NodeFn::DONE.into(),
                flags: CU_STREAM_WAIT_VALUE_EQ,
                alias: 0,
                pad: 0,
            };
            let params = CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 { ctx: raw, count: 1, paramArray: &raw mut wait, flags: 0 };
            let mut last = CUgraphNode::NULL;
            // SAFETY: as above; the word stays as long as the function.
            context.check(unsafe {
                cuda.cuGraphAddBatchMemOpNode(&raw mut last, graph, &raw const native, 1, &raw const params)
            })?;
            return Ok(Node { form, native, last, function: Some(function) });
        }
        // SAFETY: as this function; the driver takes parameters before it returns.
        unsafe {
            self.params(&op, |params| {
                context.check(match params {
                    Params::Copy(copy) => cuda.cuGraphAddMemcpyNode(out, graph, after, count, &raw const *copy, raw),
                    Params::Set(set) => cuda.cuGraphAddMemsetNode(out, graph, after, count, &raw const set, raw),
                    Params::Kernel(mut native) => {
                        let params = kernel_params(&mut native);
                        cuda.cuGraphAddKernelNode(out, graph, after, count, &raw const params)
                    }
                })
            })?;
        }
        Ok(Node { form, native, last: native, function: None })
    }

    /// Makes a graph executable. The context is current.
    fn finish(&self, draft: Draft<'_>, nodes: Vec<Node>) -> Result<GraphExec, Fault> {
        let mut exec = CUgraphExec::NULL;
        // SAFETY: a valid place for the answer; the graph lives.
        let made = unsafe { self.context.cuda.cuGraphInstantiateWithFlags(&raw mut exec, draft.graph, 0) };
        self.context.check(made)?;
        let functions = Functions::of(&nodes);
        let graph = Graph { context: Arc::clone(&self.context), graph: draft.keep(), exec, nodes, functions };
        Ok(GraphExec(self.machine.graphs.insert(Arc::new(graph))))
    }
}

/// A plain copy, as the interface for boxes wants it.
fn flat_copy(dst: NativeEnd, src: NativeEnd, len: usize) -> CUDA_MEMCPY3D_v2 {
    let kind = |end: NativeEnd| if end.host.is_null() { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST };
    CUDA_MEMCPY3D_v2 {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: kind(src),
        srcHost: src.host.cast_const().cast(),
        srcDevice: src.device,
        srcArray: 0,
        reserved0: 0,
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: kind(dst),
        dstHost: dst.host.cast(),
        dstDevice: dst.device,
        dstArray: 0,
        reserved1: 0,
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: len,
        Height: 1,
        Depth: 1,
    }
}

/// What the driver wrote to a file that it was told: it has no other way. The file is in a folder of its own, which others
/// may not enter.
fn drawn(write: impl FnOnce(*const c_char) -> Result<(), Failed>) -> Option<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("anyaccel-cuda-{}-{number}", std::process::id()));
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder).ok()?;
    let file = folder.join("graph.dot");
    let path = CString::new(file.as_os_str().as_encoded_bytes()).ok();
    let written = path.and_then(|path| write(path.as_ptr()).ok()).and_then(|()| std::fs::read(&file).ok());
    // What is left behind is in the folder for such things.
    let _removed = std::fs::remove_dir_all(&folder);
    written.map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// An end of a copy: a pointer of the host, or if that is null an address of the device.
#[derive(Clone, Copy)]
pub(crate) struct NativeEnd {
    pub(crate) host: *mut u8,
    pub(crate) device: CUdeviceptr,
}

impl CudaDevice {
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn end(&self, end: End, len: u64) -> Result<NativeEnd, Fault> {
        match end {
            End::Host(HostPtr(host)) => Ok(NativeEnd { host, device: 0 }),
            End::Device(place) => {
                // SAFETY: as this function.
                let device = unsafe { self.place(place, len, "copy")? };
                Ok(NativeEnd { host: std::ptr::null_mut(), device })
            }
            End::Pinned(place) => {
                // SAFETY: as this function.
                let memory = unsafe { self.memory(place.mem, "copy")? };
                memory.part(place.offset, len, "copy")?;
                let host = std::ptr::with_exposed_provenance_mut(memory.host + place.offset as usize);
                Ok(NativeEnd { host, device: 0 })
            }
        }
    }
}

impl Graphs for CudaDevice {
    fn limits(&self) -> GraphsLimits {
        let host_calls = self.limits.graph_host_calls;
        // The driver orders a launch behind the one before of the same executable graph.
        GraphsLimits { capture: true, list: true, host_calls, host_copies: true, update: true, ordered: true }
    }

    unsafe fn begin(&self, stream: StreamId, mode: CaptureMode) -> Result<CaptureId, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "cuStreamBeginCapture_v2")? };
        let _current = self.context.enter()?;
        let mode = match mode {
            CaptureMode::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: the stream lives.
        self.context.check(unsafe { self.context.cuda.cuStreamBeginCapture_v2(stream.raw, mode) })?;
        let id = self.native_capture(stream.raw)?.unwrap_or(CaptureId(0));
        stream.set_capture(Some(id));
        Ok(id)
    }

    unsafe fn capture_id(&self, stream: StreamId) -> Result<Option<CaptureId>, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "cuStreamGetCaptureInfo_v2")? };
        let _current = self.context.enter()?;
        self.native_capture(stream.raw)
    }

    unsafe fn end(&self, stream: StreamId) -> Result<GraphExec, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "cuStreamEndCapture")? };
        let left = stream.capture.lock().as_ref().map(|captured| captured.id);
        if let Some(id) = left {
            self.leave_capture(id);
        }
        let _current = self.context.enter()?;
        let mut graph = CUgraph::NULL;
        // SAFETY: a valid place for the answer; the stream lives.
        self.context.check(unsafe { self.context.cuda.cuStreamEndCapture(stream.raw, &raw mut graph) })?;
        self.finish(Draft { context: &self.context, graph }, Vec::new())
    }

    unsafe fn abort(&self, stream: StreamId) {
        // SAFETY: H1, as this function's caller promises.
        let Ok(stream) = (unsafe { self.stream(stream, "cuStreamEndCapture") }) else { return };
        let left = stream.capture.lock().as_ref().map(|captured| captured.id);
        if let Some(id) = left {
            self.leave_capture(id);
        }
        let Ok(_current) = self.context.enter() else { return };
        let mut graph = CUgraph::NULL;
        // SAFETY: a valid place for the answer; the stream lives. A broken capture ends with an error and no graph.
        let ended = unsafe { self.context.cuda.cuStreamEndCapture(stream.raw, &raw mut graph) };
        if ended.is_ok() {
            drop(Draft { context: &self.context, graph });
        }
    }

    unsafe fn build(&self, list: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        for (at, node) in list.iter().enumerate() {
            if let Some(after) = node.after.iter().find(|&&after| after as usize >= at) {
                return Err(Fault::invalid("graph.build", format!("node {at} after node {after}")));
            }
        }
        let _current = self.context.enter()?;
        let _relaxed = self.context.relaxed();
        let mut graph = CUgraph::NULL;
        // SAFETY: a valid place for the answer.
        self.context.check(unsafe { self.context.cuda.cuGraphCreate(&raw mut graph, 0) })?;
        let draft = Draft { context: &self.context, graph };
        let mut nodes: Vec<Node> = Vec::with_capacity(list.len());
        for GraphNode { op, after } in list {
            let mut after: Vec<CUgraphNode> = after.iter().map(|&at| nodes[at as usize].last).collect();
            after.sort_unstable();
            after.dedup();
            // SAFETY: H1 and H5, as this function's caller promises.
            nodes.push(unsafe { self.add(draft.graph, op, &after) }?);
        }
        self.finish(draft, nodes)
    }

    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (graph, stream) = unsafe {
            let graph = self.machine.graphs.get(graph.0).ok_or_else(|| unknown("cuGraphLaunch", "graph"))?;
            (graph, self.stream(stream, "cuGraphLaunch")?)
        };
        let _current = self.context.enter()?;
        // SAFETY: both live; the driver lets one replay run at a time.
        let launched = graph.functions.replay(|| unsafe { self.context.cuda.cuGraphLaunch(graph.exec, stream.raw) });
        stream.touch();
        self.context.check(launched)
    }

    unsafe fn update(&self, graph: GraphExec, node: u32, op: Op) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let graph = unsafe { self.machine.graphs.get(graph.0) }.ok_or_else(|| unknown("graph.update", "graph"))?;
        let Some(node) = graph.nodes.get(node as usize) else {
            return Err(Fault::invalid("graph.update", format!("node {node} of {}", graph.nodes.len())));
        };
        if node.form != Form::of(&op) {
            return Err(Fault::invalid("graph.update", format!("{:?} in place of {:?}", Form::of(&op), node.form)));
        }
        let _current = self.context.enter()?;
        let op = match (op, &node.function) {
            (Op::HostCall(function), Some(node)) => {
                let over = graph.functions.between_replays(|| node.replace(function));
                drop(over);
                return Ok(());
            }
            (op, _) => op,
        };
        let (cuda, raw) = (self.context.cuda, self.context.raw);
        let (exec, node) = (graph.exec, node.native);
        // SAFETY: H1 and H5, as this function's caller promises; the driver takes parameters before it returns.
        unsafe {
            self.params(&op, |params| {
                self.context.check(match params {
                    Params::Copy(copy) => cuda.cuGraphExecMemcpyNodeSetParams(exec, node, &raw const *copy, raw),
                    Params::Set(set) => cuda.cuGraphExecMemsetNodeSetParams(exec, node, &raw const set, raw),
                    Params::Kernel(mut native) => {
                        let params = kernel_params(&mut native);
                        cuda.cuGraphExecKernelNodeSetParams(exec, node, &raw const params)
                    }
                })
            })
        }
    }

    unsafe fn dot(&self, graph: GraphExec) -> Option<String> {
        // SAFETY: H1, as this function's caller promises.
        let graph = unsafe { self.machine.graphs.get(graph.0) }?;
        let _current = self.context.enter().ok()?;
        // SAFETY: the graph lives; a C string.
        drawn(|path| unsafe {
            self.context.cuda.cuGraphDebugDotPrint(graph.graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)
        })
    }

    unsafe fn destroy(&self, graph: GraphExec) {
        drop(self.machine.graphs.remove(graph.0));
    }
}

impl CudaDevice {
    /// The capture that a native stream takes part in. The context is current.
    fn native_capture(&self, stream: CUstream) -> Result<Option<CaptureId>, Fault> {
        let (mut status, mut id) = (CU_STREAM_CAPTURE_STATUS_NONE, 0);
        let (graph, dependencies, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: valid places for the answers that are wanted, null for the others.
        let asked = unsafe {
            let (status, id) = (&raw mut status, &raw mut id);
            self.context.cuda.cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count)
        };
        self.context.check(asked)?;
        match status {
            CU_STREAM_CAPTURE_STATUS_NONE => Ok(None),
            CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(Some(CaptureId(id))),
            _ => {
                let (api, code) = ("cuStreamGetCaptureInfo_v2", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                Err(Failed { api, code }.fault())
            }
        }
    }

    fn leave_capture(&self, id: CaptureId) {
        for stream in self.machine.streams.snapshot() {
            if stream.capture.lock().as_ref().is_some_and(|captured| captured.id == id) {
                stream.set_capture(None);
            }
        }
    }
}
