//! Native graphs of a plugin.

use super::capability::{Of, promised, size};
use super::device::{Open, ask};
use crate::convert;
use crate::fault::call;
use crate::raw;
use anyaccel_hal::{
    Arg, CaptureId, CaptureMode, Fault, GraphExec, GraphNode, Graphs, GraphsLimits, Op, OwnedArg, StreamId,
};

/// Native graphs.
pub(crate) type GraphsOf = Of<raw::GraphsTable, GraphsLimits>;

/// Their degrees, and whether the table has what they promise.
pub(super) fn limits(table: &raw::GraphsTable, open: &Open) -> Result<GraphsLimits, Fault> {
    let mut raw = raw::GraphsLimits { struct_size: size::<raw::GraphsLimits>(), flags: 0 };
    ask!(table, open.raw(), limits(&raw mut raw))?;
    let has = |bit| raw.flags & bit != 0;
    let limits = GraphsLimits {
        capture: has(raw::GRAPHS_CAPTURE),
        list: has(raw::GRAPHS_LIST),
        host_calls: has(raw::GRAPHS_HOST_CALLS),
        host_copies: has(raw::GRAPHS_HOST_COPIES),
        update: has(raw::GRAPHS_UPDATE),
        ordered: has(raw::GRAPHS_ORDERED),
    };
    let captures = table.begin.is_some() && table.capture_id.is_some() && table.end.is_some() && table.abort.is_some();
    promised(limits.capture, captures, "begin, capture_id, end or abort", "ANYACCEL_GRAPHS_CAPTURE")?;
    promised(limits.list, table.build.is_some(), "build", "ANYACCEL_GRAPHS_LIST")?;
    promised(limits.update, table.update.is_some(), "update", "ANYACCEL_GRAPHS_UPDATE")?;
    Ok(limits)
}

/// What operations point to while a call lasts.
#[derive(Default)]
struct Kept {
    args: Vec<Vec<raw::Arg>>,
    owned: Vec<Box<[OwnedArg]>>,
    after: Vec<Box<[u32]>>,
}

impl Kept {
    /// An operation for the plugin. What it points to lives as long as `self`.
    fn op(&mut self, op: Op) -> raw::Op {
        let (kind, data) = match op {
            Op::Copy { dst, src, len } => {
                // SAFETY: an end is what crosses the ABI.
                let copy = unsafe { raw::OpCopy { dst: *convert::end(&dst), src: *convert::end(&src), len } };
                (raw::OP_COPY, raw::OpData { copy })
            }
            Op::Fill { dst, pattern, len } => {
                let (bytes, mut kept) = (pattern.bytes(), [0; 16]);
                kept[..bytes.len()].copy_from_slice(bytes);
                let pattern_len = bytes.len() as u32;
                let fill = raw::OpFill { dst: convert::place(dst), len, pattern: kept, pattern_len, reserved: 0 };
                (raw::OP_FILL, raw::OpData { fill })
            }
            Op::Write { dst, bytes } => {
                let (bytes, mut kept) = (bytes.bytes(), [0; 64]);
                kept[..bytes.len()].copy_from_slice(bytes);
                let write =
                    raw::OpWrite { dst: convert::place(dst), bytes: kept, len: bytes.len() as u32, reserved: 0 };
                (raw::OP_WRITE, raw::OpData { write })
            }
            Op::HostCall(function) => {
                // SAFETY: a function of the host is what crosses the ABI; the plugin's from the call on.
                let host_call = unsafe { *convert::host_fn(&function) };
                std::mem::forget(function);
                (raw::OP_HOST_CALL, raw::OpData { host_call })
            }
            Op::Launch { kernel, launch, args } => {
                let borrowed: Vec<Arg<'_>> = args.iter().map(OwnedArg::as_arg).collect();
                // Lists and bytes are on the heap: they stay where they are when they are kept.
                // SAFETY: a list of arguments is what crosses the ABI.
                let list = unsafe { std::slice::from_raw_parts(convert::args(&borrowed), borrowed.len()) }.to_vec();
                let (pointer, arg_count) = (list.as_ptr(), list.len());
                self.args.push(list);
                self.owned.push(args);
                let launch = raw::OpLaunch { kernel: kernel.0, launch, args: pointer, arg_count };
                (raw::OP_LAUNCH, raw::OpData { launch })
            }
        };
        raw::Op { kind, reserved: 0, data }
    }

    fn node(&mut self, node: GraphNode) -> raw::Node {
        let (after, after_count) = (node.after.as_ptr(), node.after.len());
        self.after.push(node.after);
        raw::Node { op: self.op(node.op), after, after_count }
    }
}

impl Graphs for GraphsOf {
    fn limits(&self) -> GraphsLimits {
        self.limits
    }

    unsafe fn begin(&self, stream: StreamId, mode: CaptureMode) -> Result<CaptureId, Fault> {
        let mut capture = 0;
        ask!(self.table, self.open.raw(), begin(stream.0, mode as u32, &raw mut capture))?;
        Ok(CaptureId(capture))
    }

    unsafe fn capture_id(&self, stream: StreamId) -> Result<Option<CaptureId>, Fault> {
        if self.table.capture_id.is_none() {
            return Ok(None);
        }
        let (mut capturing, mut capture) = (0, 0);
        ask!(self.table, self.open.raw(), capture_id(stream.0, &raw mut capturing, &raw mut capture))?;
        Ok((capturing != 0).then_some(CaptureId(capture)))
    }

    unsafe fn end(&self, stream: StreamId) -> Result<GraphExec, Fault> {
        let mut graph = 0;
        ask!(self.table, self.open.raw(), end(stream.0, &raw mut graph))?;
        Ok(GraphExec(graph))
    }

    unsafe fn abort(&self, stream: StreamId) {
        if let Some(function) = self.table.abort {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), stream.0) }
        }
    }

    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        if self.table.build.is_none() {
            return Err(Fault::unsupported("build"));
        }
        let mut kept = Kept::default();
        let nodes: Vec<raw::Node> = nodes.into_iter().map(|node| kept.node(node)).collect();
        let mut graph = 0;
        ask!(self.table, self.open.raw(), build(nodes.as_ptr(), nodes.len(), &raw mut graph))?;
        Ok(GraphExec(graph))
    }

    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), replay(graph.0, stream.0))
    }

    unsafe fn update(&self, graph: GraphExec, node: u32, op: Op) -> Result<(), Fault> {
        if self.table.update.is_none() {
            return Err(Fault::unsupported("update"));
        }
        let mut kept = Kept::default();
        let op = kept.op(op);
        ask!(self.table, self.open.raw(), update(graph.0, node, &raw const op))
    }

    unsafe fn destroy(&self, graph: GraphExec) {
        if let Some(function) = self.table.destroy {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), graph.0) }
        }
    }
}
