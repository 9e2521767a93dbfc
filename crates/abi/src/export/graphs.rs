//! The table of native graphs of an exported device.

use super::device::{answers, of};
use super::{Constant, size};
use crate::convert;
use crate::fault::contained;
use crate::raw;
use anyaccel_hal::{
    CaptureMode, Device, Fault, GraphExec, GraphNode, Graphs, Kernel, Op, OwnedArg, Pattern, StreamId, Written,
};

fn graphs_of(device: &dyn Device) -> Result<&dyn Graphs, Fault> {
    device.graphs().ok_or(Fault::unsupported("graphs"))
}

pub(super) static TABLE: Constant<raw::GraphsTable> = Constant(raw::GraphsTable {
    struct_size: size::<raw::GraphsTable>(),
    reserved: 0,
    limits: Some(limits),
    begin: Some(begin),
    capture_id: Some(capture_id),
    end: Some(end),
    abort: Some(abort),
    build: Some(build),
    replay: Some(replay),
    update: Some(update),
    destroy: Some(destroy),
});

answers! {
    fn limits(device, to: *mut raw::GraphsLimits) {
        let limits = graphs_of(device)?.limits();
        let flag = |has, bit| if has { bit } else { 0 };
        (*to).flags = flag(limits.capture, raw::GRAPHS_CAPTURE)
            | flag(limits.list, raw::GRAPHS_LIST)
            | flag(limits.host_calls, raw::GRAPHS_HOST_CALLS)
            | flag(limits.host_copies, raw::GRAPHS_HOST_COPIES)
            | flag(limits.update, raw::GRAPHS_UPDATE)
            | flag(limits.ordered, raw::GRAPHS_ORDERED);
        Ok(())
    }

    fn begin(device, stream: u64, mode: u32, capture: *mut u64) {
        let mode = match mode {
            raw::CAPTURE_GLOBAL => CaptureMode::Global,
            raw::CAPTURE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            raw::CAPTURE_RELAXED => CaptureMode::Relaxed,
            other => return Err(Fault::invalid("begin", format!("a mode {other}"))),
        };
        capture.write(graphs_of(device)?.begin(StreamId(stream), mode)?.0);
        Ok(())
    }

    fn capture_id(device, stream: u64, capturing: *mut u32, capture: *mut u64) {
        let found = graphs_of(device)?.capture_id(StreamId(stream))?;
        capturing.write(found.is_some().into());
        capture.write(found.map_or(0, |id| id.0));
        Ok(())
    }

    fn end(device, stream: u64, graph: *mut u64) {
        graph.write(graphs_of(device)?.end(StreamId(stream))?.0);
        Ok(())
    }

    fn build(device, nodes: *const raw::Node, count: usize, graph: *mut u64) {
        let nodes = if count == 0 { &[] } else { std::slice::from_raw_parts(nodes, count) };
        // All functions of the host are taken over first, whatever is wrong with another node.
        let nodes: Vec<Result<GraphNode, Fault>> = nodes.iter().map(|node| to_node(node)).collect();
        let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
        graph.write(graphs_of(device)?.build(nodes)?.0);
        Ok(())
    }

    fn replay(device, graph: u64, stream: u64) {
        graphs_of(device)?.replay(GraphExec(graph), StreamId(stream))
    }

    fn update(device, graph: u64, node: u32, op: *const raw::Op) {
        let op = to_op(&*op, "update")?;
        graphs_of(device)?.update(GraphExec(graph), node, op)
    }
}

unsafe extern "C" fn abort(device: *mut raw::Device, stream: u64) {
    contained((), || {
        // SAFETY: as in `answers`.
        unsafe {
            if let Some(graphs) = of(device).graphs() {
                graphs.abort(StreamId(stream));
            }
        }
    });
}

unsafe extern "C" fn destroy(device: *mut raw::Device, graph: u64) {
    contained((), || {
        // SAFETY: as in `answers`.
        unsafe {
            if let Some(graphs) = of(device).graphs() {
                graphs.destroy(GraphExec(graph));
            }
        }
    });
}

/// # Safety
/// The host's, with what it points to valid for the call; a function in it is handed over.
unsafe fn to_node(node: &raw::Node) -> Result<GraphNode, Fault> {
    // SAFETY: as this function.
    unsafe {
        let op = to_op(&node.op, "build")?;
        let after = if node.after_count == 0 { &[] } else { std::slice::from_raw_parts(node.after, node.after_count) };
        Ok(GraphNode { op, after: after.into() })
    }
}

/// # Safety
/// As for [`to_node`].
unsafe fn to_op(op: &raw::Op, api: &'static str) -> Result<Op, Fault> {
    // SAFETY: as this function; each field is that of its kind.
    unsafe {
        match op.kind {
            raw::OP_COPY => {
                let copy = op.data.copy;
                let (dst, src) = (&raw const copy.dst, &raw const copy.src);
                convert::check_end(dst, api)?;
                convert::check_end(src, api)?;
                Ok(Op::Copy { dst: convert::to_end(dst), src: convert::to_end(src), len: copy.len })
            }
            raw::OP_FILL => {
                let fill = op.data.fill;
                let pattern = fill.pattern.get(..fill.pattern_len as usize).and_then(Pattern::new);
                let wrong = || Fault::invalid(api, format!("a pattern of {} bytes", fill.pattern_len));
                Ok(Op::Fill { dst: convert::to_place(fill.dst), pattern: pattern.ok_or_else(wrong)?, len: fill.len })
            }
            raw::OP_WRITE => {
                let write = op.data.write;
                let bytes = write.bytes.get(..write.len as usize).and_then(Written::new);
                let wrong = || Fault::invalid(api, format!("a write of {} bytes", write.len));
                Ok(Op::Write { dst: convert::to_place(write.dst), bytes: bytes.ok_or_else(wrong)? })
            }
            raw::OP_HOST_CALL => Ok(Op::HostCall(convert::to_host_fn(&raw const op.data.host_call, api)?)),
            raw::OP_LAUNCH => {
                let launch = op.data.launch;
                let args = convert::to_args(launch.args, launch.arg_count, api)?;
                let args = args.iter().map(|&arg| OwnedArg::from(arg)).collect();
                Ok(Op::Launch { kernel: Kernel(launch.kernel), launch: launch.launch, args })
            }
            other => Err(Fault::invalid(api, format!("an operation of kind {other}"))),
        }
    }
}
