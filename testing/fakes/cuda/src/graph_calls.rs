//! Exports about graphs and captures.

use crate::call::{Result, exports, lock, put};
use crate::context::{context, current};
use crate::graph;
use crate::kernel;
use crate::module;
use crate::stream::{self, Work};
use anyaccel_cuda::sys::*;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

unsafe fn after(nodes: *const CUgraphNode, count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the interface asks for that many handles.
    unsafe { std::slice::from_raw_parts(nodes, count) }.iter().map(|node| node.0).collect()
}

unsafe fn add(out: *mut CUgraphNode, graph: CUgraph, nodes: *const CUgraphNode, count: usize, work: Work) -> Result {
    // SAFETY: as the interface asks.
    unsafe { put(out, CUgraphNode(graph::get(graph)?.add(work, after(nodes, count))?)) }
}

fn copy_of(params: &CUDA_MEMCPY3D_v2) -> Result<Work> {
    let end = |kind, host: usize, device: u64| match kind {
        CU_MEMORYTYPE_HOST => Ok(host as u64),
        CU_MEMORYTYPE_DEVICE => Ok(device),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    };
    if params.Height != 1 || params.Depth != 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::Copy {
        dst: end(params.dstMemoryType, params.dstHost as usize, params.dstDevice)? + params.dstXInBytes as u64,
        src: end(params.srcMemoryType, params.srcHost as usize, params.srcDevice)? + params.srcXInBytes as u64,
        len: params.WidthInBytes,
    })
}

fn set_of(params: &CUDA_MEMSET_NODE_PARAMS_v1) -> Result<Work> {
    if !matches!(params.elementSize, 1 | 2 | 4) || params.height != 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::Set { dst: params.dst, value: params.value, size: params.elementSize, count: params.width })
}

unsafe fn launch_of(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Work> {
    let function = module::function(params.func)?;
    function.load();
    let (groups, threads) = (params.gridDim, params.blockDim);
    // SAFETY: the interface asks for as many parameters as the function has.
    let launch = unsafe { kernel::launch(&function, groups, threads, params.sharedMemBytes, params.kernelParams) }?;
    Ok(Work::Launch(Arc::new(launch)))
}

fn update(exec: CUgraphExec, node: CUgraphNode, work: Work) -> Result {
    let exec = graph::exec(exec)?;
    let mut nodes = lock(&exec.nodes);
    let node = nodes.iter_mut().find(|other| other.handle == node.0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if std::mem::discriminant(&node.work) != std::mem::discriminant(&work) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    node.work = work;
    Ok(())
}

exports! {
    fn cuStreamBeginCapture_v2(on: CUstream, mode: u32) {
        graph::begin(&stream::here(current()?, on)?, on, mode)
    }

    fn cuStreamEndCapture(on: CUstream, out: *mut CUgraph) {
        let stream = stream::here(current()?, on)?;
        put(out, CUgraph::NULL)?;
        put(out, graph::end(&stream, on)?)
    }

    fn cuStreamGetCaptureInfo_v2(
        on: CUstream,
        status: *mut u32,
        id: *mut u64,
        _graph: *mut CUgraph,
        _dependencies: *mut *const CUgraphNode,
        _count: *mut usize,
    ) {
        let stream = stream::here(current()?, on)?;
        let state = lock(&stream.state);
        match &state.capture {
            None => put(status, CU_STREAM_CAPTURE_STATUS_NONE),
            Some(joined) => {
                if !id.is_null() {
                    put(id, joined.capture.id)?;
                }
                put(status, joined.capture.status())
            }
        }
    }

    fn cuGraphCreate(out: *mut CUgraph, flags: u32) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, graph::keep(Arc::default()))
    }

    fn cuGraphDestroy(graph: CUgraph) {
        graph::destroy(graph)
    }

    fn cuGraphAddKernelNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        add(out, graph, after, count, launch_of(&*params)?)
    }

    fn cuGraphAddMemcpyNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMCPY3D_v2,
        here: CUcontext,
    ) {
        context(here)?;
        add(out, graph, after, count, copy_of(&*params)?)
    }

    fn cuGraphAddMemsetNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS_v1,
        here: CUcontext,
    ) {
        context(here)?;
        add(out, graph, after, count, set_of(&*params)?)
    }

    fn cuGraphAddHostNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_HOST_NODE_PARAMS_v1,
    ) {
        let CUDA_HOST_NODE_PARAMS_v1 { func, userData } = *params;
        add(out, graph, after, count, Work::Host { function: func, data: userData as usize })
    }

    fn cuGraphAddBatchMemOpNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1,
    ) {
        let params = &*params;
        context(params.ctx)?;
        if params.count != 1 || params.flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let CUstreamMemOpWaitValueParams { operation, address, value, flags, .. } = *params.paramArray;
        if operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        crate::memory::device(address, 4)?;
        add(out, graph, after, count, Work::WaitValue { address, value: value as u32, flags })
    }

    fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, graph: CUgraph, _flags: u64) {
        current()?;
        let nodes = lock(&graph::get(graph)?.nodes).clone();
        put(out, graph::keep_exec(nodes))
    }

    fn cuGraphExecDestroy(exec: CUgraphExec) {
        graph::destroy_exec(exec)
    }

    fn cuGraphLaunch(exec: CUgraphExec, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        let exec = graph::exec(exec)?;
        let work = lock(&exec.nodes).iter().map(|node| node.work.clone()).collect();
        // A launch comes behind the one before, whatever stream that went to.
        stream.enqueue_all(work, &mut lock(&exec.last))
    }

    fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        update(exec, node, launch_of(&*params)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMCPY3D_v2,
        here: CUcontext,
    ) {
        context(here)?;
        update(exec, node, copy_of(&*params)?)
    }

    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS_v1,
        here: CUcontext,
    ) {
        context(here)?;
        update(exec, node, set_of(&*params)?)
    }

    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: u32) {
        let dot = graph::get(graph)?.dot();
        let path = CStr::from_ptr(path).to_string_lossy().into_owned();
        std::fs::write(path, dot).map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }
}
