//! Graphs: work captured once and replayed as one operation.

use crate::pointer::{Out, text};
use crate::result::{Failure, Result, call};
use crate::state;
use crate::types::*;
use face::{CaptureErrorMode, Graph, GraphOptions, Runtime};
use std::ffi::c_char;

/// Runs `f` with the graph of a handle.
fn with<T>(graph: anyaccel_graph, f: impl FnOnce(&Graph) -> face::Result<T>) -> Result<T> {
    state::tables().graphs.with(graph, |graph| Ok(f(graph)?))
}

/// Makes a graph.
///
/// @param flags ANYACCEL_GRAPH_KEEP, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_graph_create(flags: u32, graph: *mut anyaccel_graph) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(graph, "graph")? };
        if flags & !ANYACCEL_GRAPH_KEEP != 0 {
            return Err(Failure::argument(format!("flags {flags:#x}: only ANYACCEL_GRAPH_KEEP is known")));
        }
        let keep_graph = flags & ANYACCEL_GRAPH_KEEP != 0;
        let made = Runtime::global().graph(GraphOptions { keep_graph, ..GraphOptions::default() });
        out.put(state::tables().graphs.insert(made)?);
        Ok(())
    })
}

/// Destroys a graph; what its last replay uses is given back when that has ended. Leaves a capture that is under way. 0 is fine.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_destroy(graph: anyaccel_graph) -> anyaccel_result {
    call(|| {
        if graph == 0 {
            return Ok(());
        }
        let graph = state::tables().graphs.remove(graph)?;
        // A graph of another generation of the process is left alone, which is no failure here.
        let _over = graph.reset();
        Ok(())
    })
}

/// Begins to capture this thread's current stream of its current device: what is enqueued there is recorded instead of run, and
/// so is what is enqueued on streams that wait for an event recorded inside. Starts the runtime.
///
/// @param pool the pool that the capture allocates from: that of another graph or of anyaccel_pool_create(), or both 0.
/// @param mode ANYACCEL_CAPTURE_*: what it forbids to other threads.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_begin(graph: anyaccel_graph, pool: anyaccel_pool_id, mode: u32) -> anyaccel_result {
    call(|| {
        let mode = match mode {
            ANYACCEL_CAPTURE_DEFAULT => CaptureErrorMode::Default,
            ANYACCEL_CAPTURE_GLOBAL => CaptureErrorMode::Global,
            ANYACCEL_CAPTURE_THREAD_LOCAL => CaptureErrorMode::ThreadLocal,
            ANYACCEL_CAPTURE_RELAXED => CaptureErrorMode::Relaxed,
            other => return Err(Failure::argument(format!("mode {other}: only ANYACCEL_CAPTURE_* are known"))),
        };
        with(graph, |graph| {
            graph.set_graph_pool(Some((pool.first, pool.second)));
            graph.set_capture_error_mode(mode);
            graph.capture_begin()
        })
    })
}

/// Ends the capture, on the stream where it began. Makes the graph executable, unless it has ANYACCEL_GRAPH_KEEP. After any
/// error but that of a wrong stream the capture has ended without a graph.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_end(graph: anyaccel_graph) -> anyaccel_result {
    call(|| with(graph, Graph::capture_end))
}

/// Makes what was captured executable. Without effect if it is already.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_instantiate(graph: anyaccel_graph) -> anyaccel_result {
    call(|| with(graph, Graph::instantiate))
}

/// Runs the graph as one operation of the current stream of its device, and returns at once. Replays of one graph never overlap.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_replay(graph: anyaccel_graph) -> anyaccel_result {
    call(|| with(graph, Graph::replay))
}

/// Forgets what was captured, so that the graph can capture again; leaves a capture that is under way.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_reset(graph: anyaccel_graph) -> anyaccel_result {
    call(|| with(graph, Graph::reset))
}

/// The pool of the last capture; both 0 before the first one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_graph_pool(graph: anyaccel_graph, pool: *mut anyaccel_pool_id) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(pool, "pool")? };
        let (first, second) = with(graph, |graph| Ok(graph.pool()))?;
        out.put(anyaccel_pool_id { first, second });
        Ok(())
    })
}

/// Allows anyaccel_graph_debug_dump().
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_graph_enable_debug(graph: anyaccel_graph) -> anyaccel_result {
    call(|| {
        with(graph, |graph| {
            graph.enable_debug_mode();
            Ok(())
        })
    })
}

/// Writes what was captured to a file, as a graph for Graphviz.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_graph_debug_dump(graph: anyaccel_graph, path: *const c_char) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let path = unsafe { text(path, "path")? };
        with(graph, |graph| graph.debug_dump(path))
    })
}
