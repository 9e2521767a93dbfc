//! Defects of graphs that a device makes of lists, and of what a replay needs.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{Device, Fault, GraphExec, GraphNode, Graphs, HostFn, Mark, Op, Place, StreamId};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

mutants! {
    a_node_is_lost: LostNode on host
        => "graph.chain", "graph.random-lists", "order.transitive@captured", "programs.two-streams@captured",
        "work.copies-in-order@captured", "graphs.random-programs";
    a_dependency_is_dropped: DroppedDependency on host
        => "graph.chain", "order.transitive@captured", "work.behind-an-event@captured", "graphs.fork-and-join";
    an_update_is_stale: StaleUpdate on host => "graph.update", "graph.update-function";
    a_function_runs_at_the_first_replay_only: FunctionOnce on host
        => "graph.host-functions", "graphs.host-functions", "work.functions-in-order@captured";
    a_graph_runs_once: ReplayOnce on host
        => "graph.random-lists", "work.fills-and-writes@captured", "work.built-ins-in-order@captured";
    a_replay_is_beside_its_stream: Beside on host => "graph.one-operation", "order.across-streams/gate@captured";
    the_offset_stays: StaleCell on host => "work.random-in-order@captured", "work.random-in-order@recorded";
    a_wait_of_a_replay_is_dropped: DroppedWait on sim
        => "order.transitive@recorded", "work.fork-and-join@recorded", "graphs.random-programs@recorded";
    a_function_of_a_replay_is_lost: LostFunction on host
        => "host_fn.many@recorded", "work.functions-in-order@recorded", "graphs.host-functions@recorded";
}

/// The last node of a list.
#[derive(Default)]
struct LostNode;

impl Defect for LostNode {
    unsafe fn build(&self, good: &dyn Graphs, mut nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        nodes.pop();
        // SAFETY: a part of what was asked.
        unsafe { good.build(nodes) }
    }
}

/// The last node of a list comes after nothing, and is done first.
#[derive(Default)]
struct DroppedDependency;

impl Defect for DroppedDependency {
    unsafe fn build(&self, good: &dyn Graphs, mut nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        if let Some(last) = nodes.pop() {
            for node in &mut nodes {
                let later = node.after.iter().map(|before| before + 1).chain([0]);
                node.after = later.collect();
            }
            nodes.insert(0, GraphNode { after: Box::default(), ..last });
        }
        // SAFETY: the same work in another order, with nothing beside it that was not there.
        unsafe { good.build(nodes) }
    }
}

#[derive(Default)]
struct StaleUpdate;

impl Defect for StaleUpdate {
    unsafe fn update(&self, _: &dyn Graphs, _: GraphExec, _: u32, _: Op) -> Result<(), Fault> {
        Ok(())
    }
}

#[derive(Default)]
struct FunctionOnce;

fn once(mut function: HostFn) -> HostFn {
    let mut called = false;
    HostFn::new(move |status| {
        if !std::mem::replace(&mut called, true) {
            function.call(status);
        }
    })
}

impl Defect for FunctionOnce {
    unsafe fn build(&self, good: &dyn Graphs, mut nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        for node in &mut nodes {
            if let Op::HostCall(function) = &mut node.op {
                *function = once(std::mem::replace(function, HostFn::new(|_| ())));
            }
        }
        // SAFETY: a part of what was asked.
        unsafe { good.build(nodes) }
    }
}

/// Later replays do nothing.
#[derive(Default)]
struct ReplayOnce(Mutex<HashSet<GraphExec>>);

impl Defect for ReplayOnce {
    unsafe fn replay(&self, good: &dyn Graphs, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        if !locked(&self.0).insert(graph) {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { good.replay(graph, stream) }
    }
}

/// Replays are ordered among each other, but not in the stream that they go to.
#[derive(Default)]
struct Beside(Mutex<Option<StreamId>>);

impl Defect for Beside {
    const LEAKS: bool = true;

    fn create_stream(&self, good: &dyn Device, priority: i32) -> Result<StreamId, Fault> {
        let mut own = locked(&self.0);
        if own.is_none() {
            *own = Some(good.create_stream(0)?);
        }
        good.create_stream(priority)
    }

    unsafe fn replay(&self, good: &dyn Graphs, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        let own = locked(&self.0).unwrap_or(stream);
        // SAFETY: forwarded; nothing that the replay uses is given back.
        unsafe { good.replay(graph, own) }
    }
}

/// What is written a second time to the same place stays as it was: the cell that tells a fill where its numbers begin.
#[derive(Default)]
struct StaleCell(Mutex<HashSet<Place>>);

impl Defect for StaleCell {
    unsafe fn write(&self, good: &dyn Device, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        if !locked(&self.0).insert(dst) {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { good.write(stream, dst, bytes) }
    }
}

#[derive(Default)]
struct DroppedWait;

impl Defect for DroppedWait {
    unsafe fn wait(&self, _: &dyn Device, _: StreamId, _: StreamId, _: Mark) -> Result<(), Fault> {
        Ok(())
    }
}

/// The third function of every five.
#[derive(Default)]
struct LostFunction(AtomicU32);

impl Defect for LostFunction {
    unsafe fn host_call(&self, good: &dyn Device, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        if self.0.fetch_add(1, Ordering::Relaxed) % 5 == 2 {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { good.host_call(stream, function) }
    }
}
