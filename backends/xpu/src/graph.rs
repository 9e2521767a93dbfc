//! Native graphs (H31): lists of operations that the driver records once and replays.
//!
//! A list is appended in its order to a stream that records instead of running. That order is one of those that the nodes'
//! dependencies allow. Functions of the host can't be nodes, since nothing calls them from within a replay.

use crate::context::Context;
use crate::conv::Failed;
use crate::device::{XpuDevice, unknown};
use crate::stream::Stream;
use crate::sys::*;
use anyaccel_hal::{CaptureId, CaptureMode, Fault, GraphExec, GraphNode, Graphs, GraphsLimits, Op, OwnedArg, StreamId};
use std::ptr;
use std::sync::Arc;

/// Under which names a driver has the functions. Both have the same meaning, and their arguments in different orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recorder {
    Extension,
    Experimental,
}

impl Recorder {
    /// The better one that a driver has in full.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        let all = |suffix: &str, instantiate: &str| {
            let names = [
                "zeGraphCreate",
                "zeCommandListBeginCaptureIntoGraph",
                "zeCommandListEndGraphCapture",
                "zeCommandListAppendGraph",
                "zeGraphDestroy",
                "zeExecutableGraphDestroy",
            ];
            names.iter().all(|name| extensions.has(&format!("{name}{suffix}"))) && extensions.has(instantiate)
        };
        if all("Ext", "zeGraphInstantiateExt") {
            Some(Self::Extension)
        } else if all("Exp", "zeCommandListInstantiateGraphExp") {
            Some(Self::Experimental)
        } else {
            None
        }
    }

    /// # Safety
    /// The context lives. Handles here and below are the driver's own.
    unsafe fn create(self, extensions: &Extensions, context: ZeContext) -> Result<ZeGraph, Failed> {
        let (mut graph, none) = (ZeGraph::NULL, ptr::null());
        // SAFETY: as this function; a valid place for the answer.
        unsafe {
            match self {
                Self::Extension => extensions.zeGraphCreateExt(context, none, &raw mut graph)?,
                Self::Experimental => extensions.zeGraphCreateExp(context, &raw mut graph, none)?,
            }
        }
        Ok(graph)
    }

    /// # Safety
    /// List and graph live; the graph is empty.
    unsafe fn begin(self, extensions: &Extensions, list: ZeCommandList, graph: ZeGraph) -> Result<(), Failed> {
        // SAFETY: as this function.
        unsafe {
            match self {
                Self::Extension => extensions.zeCommandListBeginCaptureIntoGraphExt(list, graph, ptr::null()),
                Self::Experimental => extensions.zeCommandListBeginCaptureIntoGraphExp(list, graph, ptr::null()),
            }
        }
    }

    /// # Safety
    /// The list lives, and records into a graph that was made before.
    unsafe fn end(self, extensions: &Extensions, list: ZeCommandList) -> Result<(), Failed> {
        // SAFETY: as this function; such a graph is not handed out again.
        unsafe {
            match self {
                Self::Extension => extensions.zeCommandListEndGraphCaptureExt(list, ptr::null(), ptr::null_mut()),
                Self::Experimental => extensions.zeCommandListEndGraphCaptureExp(list, ptr::null_mut(), ptr::null()),
            }
        }
    }

    /// # Safety
    /// The graph lives, and its recording has ended.
    unsafe fn instantiate(self, extensions: &Extensions, graph: ZeGraph) -> Result<ZeExecutableGraph, Failed> {
        let (mut exec, none) = (ZeExecutableGraph::NULL, ptr::null());
        // SAFETY: as this function; a valid place for the answer.
        unsafe {
            match self {
                Self::Extension => extensions.zeGraphInstantiateExt(graph, none, &raw mut exec)?,
                Self::Experimental => extensions.zeCommandListInstantiateGraphExp(graph, &raw mut exec, none)?,
            }
        }
        Ok(exec)
    }

    /// # Safety
    /// List and graph live; this thread has the list's lock.
    unsafe fn append(
        self,
        extensions: &Extensions,
        list: ZeCommandList,
        exec: ZeExecutableGraph,
    ) -> Result<(), Failed> {
        let (none, events) = (ptr::null(), ptr::null_mut());
        // SAFETY: as this function.
        unsafe {
            match self {
                Self::Extension => extensions.zeCommandListAppendGraphExt(list, exec, none, ZeEvent::NULL, 0, events),
                Self::Experimental => {
                    extensions.zeCommandListAppendGraphExp(list, exec, none, ZeEvent::NULL, 0, events)
                }
            }
        }
    }

    /// # Safety
    /// Both were made here, or are null, and are used no more.
    unsafe fn destroy(self, extensions: &Extensions, graph: ZeGraph, exec: ZeExecutableGraph) {
        // SAFETY: as this function. What can't be destroyed stays with its context.
        unsafe {
            match self {
                Self::Extension => {
                    if exec != ZeExecutableGraph::NULL {
                        let _destroyed = extensions.zeExecutableGraphDestroyExt(exec);
                    }
                    let _destroyed = extensions.zeGraphDestroyExt(graph);
                }
                Self::Experimental => {
                    if exec != ZeExecutableGraph::NULL {
                        let _destroyed = extensions.zeExecutableGraphDestroyExp(exec);
                    }
                    let _destroyed = extensions.zeGraphDestroyExp(graph);
                }
            }
        }
    }
}

/// An executable graph. The list that recorded it goes last.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    recorder: Recorder,
    graph: ZeGraph,
    /// Null until it is executable.
    exec: ZeExecutableGraph,
    _stream: Stream,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.context.is_lost() && !self.context.platform.is_busy() {
            // SAFETY: made by `build`; replays have ended (H31), or nothing waits for them (H25).
            unsafe { self.recorder.destroy(&self.context.platform.extensions, self.graph, self.exec) };
        }
    }
}

impl XpuDevice {
    /// Appends an operation to a stream that records.
    ///
    /// # Safety
    /// H1, H4, H5, H15.
    unsafe fn record(&self, stream: &Stream, op: &Op) -> Result<(), Fault> {
        // SAFETY: as this function.
        unsafe {
            match op {
                &Op::Copy { dst, src, len } => self.copy_on(stream, dst, src, len),
                &Op::Fill { dst, pattern, len } => self.fill_on(stream, dst, pattern, len),
                Op::Write { dst, bytes } => self.write_on(stream, *dst, bytes.bytes()),
                Op::Launch { kernel, launch, args } => {
                    let args: Vec<_> = args.iter().map(OwnedArg::as_arg).collect();
                    self.launch_on(stream, *kernel, *launch, &args)
                }
                Op::HostCall(_) => Err(Fault::unsupported("graph.build").note("a function of the host")),
            }
        }
    }
}

impl Graphs for XpuDevice {
    fn limits(&self) -> GraphsLimits {
        GraphsLimits { capture: false, list: true, host_calls: false, host_copies: true, update: false, ordered: false }
    }

    unsafe fn begin(&self, _stream: StreamId, _mode: CaptureMode) -> Result<CaptureId, Fault> {
        Err(Fault::unsupported("graph.begin"))
    }

    unsafe fn capture_id(&self, _stream: StreamId) -> Result<Option<CaptureId>, Fault> {
        Ok(None)
    }

    unsafe fn end(&self, _stream: StreamId) -> Result<GraphExec, Fault> {
        Err(Fault::unsupported("graph.end"))
    }

    unsafe fn abort(&self, _stream: StreamId) {}

    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        for (at, node) in nodes.iter().enumerate() {
            if let Some(after) = node.after.iter().find(|&&after| after as usize >= at) {
                return Err(Fault::invalid("graph.build", format!("node {at} after node {after}")));
            }
        }
        let Some(recorder) = self.limits.recorder else { return Err(Fault::unsupported("graph.build")) };
        let context = &self.context;
        context.alive()?;
        let (extensions, (_, native)) = (&context.platform.extensions, context.platform.native);
        let stream = Stream::create(context, 0)?;
        // SAFETY: the context lives.
        let graph = context.check(unsafe { recorder.create(extensions, native) })?;
        let exec = ZeExecutableGraph::NULL;
        let mut graph = Graph { context: Arc::clone(context), recorder, graph, exec, _stream: stream };
        let (stream, raw) = (&graph._stream, graph.graph);
        // SAFETY: list and graph were made above.
        context.check(unsafe { recorder.begin(extensions, stream.native, raw) })?;
        // SAFETY: as this function's caller promises.
        let recorded = nodes.iter().try_for_each(|node| unsafe { self.record(stream, &node.op) });
        stream.recorded();
        // SAFETY: it was begun above, and is ended whatever became of it.
        let ended = unsafe { recorder.end(extensions, stream.native) };
        recorded?;
        context.check(ended)?;
        // SAFETY: its recording has ended.
        graph.exec = context.check(unsafe { recorder.instantiate(extensions, raw) })?;
        Ok(GraphExec(self.machine.graphs.insert(Arc::new(graph))))
    }

    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (graph, stream) = unsafe {
            let graph = self.machine.graphs.get(graph.0).ok_or_else(|| unknown("graph.replay", "graph"))?;
            (graph, self.stream(stream, "graph.replay")?)
        };
        let extensions = &self.context.platform.extensions;
        // SAFETY: both live; one replay at a time, as this function's caller promises; this thread has the list's lock.
        stream.list()?.append(|_, _| unsafe { graph.recorder.append(extensions, stream.native, graph.exec) })
    }

    unsafe fn update(&self, _graph: GraphExec, _node: u32, _op: Op) -> Result<(), Fault> {
        Err(Fault::unsupported("graph.update"))
    }

    unsafe fn destroy(&self, graph: GraphExec) {
        drop(self.machine.graphs.remove(graph.0));
    }
}
