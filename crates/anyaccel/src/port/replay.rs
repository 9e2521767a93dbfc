//! Running captured graphs: by the device's own graphs where it has them, else node by node on lanes.
//!
//! A graph's nodes name blocks that the graph keeps alive, or memory of a pool that it keeps, and kernels that it keeps;
//! so places and kernels in them are live at every replay (H1, H4, H5). Replays of one graph are ordered one after the
//! other by their caller.

use super::Port;
use crate::error::{Error, Result};
use crate::graph::{Argument, Kept, Passed, Site, Spot, Work};
use crate::lane::{Lane, LaneRef};
use anyaccel_engine::alloc::PoolId;
use anyaccel_engine::graph::{Plan, Program};
use anyaccel_hal::{Arg, Fault, GraphExec, GraphNode, Graphs, Op, Written};
use std::sync::Arc;

/// A graph that can be run.
pub(crate) enum Exec {
    /// The device's own.
    Native(GraphExec),
    /// Node by node.
    Lanes(Replayer),
}

/// A replay on lanes of its own beside the one that it goes to.
pub(crate) struct Replayer {
    plan: Plan,
    /// For every lane of the program but the first, where it has nodes.
    side: Vec<Option<(Arc<Port>, LaneRef)>>,
    /// The marks of the replay that is being enqueued.
    marks: Vec<u64>,
}

const CALL: &str = "Graph.replay";

impl Port {
    /// The device's own graphs, if they can hold a program.
    fn own_graphs(&self, program: &Program<Work>, one_device: bool) -> Option<&dyn Graphs> {
        let graphs = self.hal().graphs()?;
        let limits = graphs.limits();
        let fits = |work: &Work| match work {
            Work::Call(_) => limits.host_calls,
            Work::Copy { dst: Site::Host { .. }, .. } | Work::Copy { src: Site::Host { .. }, .. } => limits.host_copies,
            Work::Peer { .. } => false,
            _ => true,
        };
        (limits.list && one_device && program.nodes().iter().all(|node| fits(&node.work))).then_some(graphs)
    }

    /// Makes a program executable. `lanes` are those of the program, in its order.
    pub(crate) fn instantiate(
        self: &Arc<Self>,
        program: &Program<Work>,
        lanes: &[(LaneRef, Arc<Port>)],
    ) -> Result<Exec> {
        let one_device = lanes.iter().all(|(_, port)| Arc::ptr_eq(port, self));
        if let Some(graphs) = self.own_graphs(program, one_device)
            && let Some(nodes) = nodes(program)
        {
            // SAFETY: H1, H4, H5, H15: see the module; launches were promised when they were captured.
            let exec = unsafe { graphs.build(nodes) }.map_err(|fault| self.error("Graph.instantiate", fault))?;
            return Ok(Exec::Native(exec));
        }
        let plan = Plan::of(program);
        let used = |lane: usize| plan.steps.iter().any(|step| step.lane as usize == lane);
        let mut side = Vec::new();
        for (at, (_, port)) in lanes.iter().enumerate().skip(1) {
            let own = || port.lanes.reserve(port, 0).map(|lane| (Arc::clone(port), lane));
            side.push(if used(at) { Some(own()?) } else { None });
        }
        let marks = vec![0; plan.marks as usize];
        Ok(Exec::Lanes(Replayer { plan, side, marks }))
    }

    /// Replaces an operation for later replays; false if the graph has to be made anew.
    pub(crate) fn update_node(&self, exec: &Exec, node: u32, work: &Work) -> Result<bool> {
        let Exec::Native(exec) = exec else { return Ok(true) };
        let Some(graphs) = self.hal().graphs().filter(|graphs| graphs.limits().update) else { return Ok(false) };
        let Some(op) = work.op() else { return Ok(false) };
        // SAFETY: as for build.
        unsafe { graphs.update(*exec, node, op) }.map_err(|fault| self.error("Graph.update", fault))?;
        Ok(true)
    }

    /// What the device's own graph looks like, where it draws one.
    pub(crate) fn drawn(&self, exec: &Exec) -> Option<String> {
        let Exec::Native(exec) = exec else { return None };
        // SAFETY: H1: the graph is not destroyed while its owner has it.
        unsafe { self.hal().graphs()?.dot(*exec) }
    }

    /// Notes that a replay on `lane` uses what the graph keeps. Once per lane is enough.
    pub(crate) fn replays_on(&self, exec: &Exec, kept: &Kept, lane: &Lane) -> Result<()> {
        self.uses(kept, lane)?;
        if let Exec::Lanes(replayer) = exec {
            for (port, lane) in replayer.side.iter().flatten() {
                port.uses(kept, lane)?;
            }
        }
        Ok(())
    }

    fn uses(&self, kept: &Kept, lane: &Lane) -> Result<()> {
        for block in &kept.blocks {
            block.used_on(self, lane)?;
        }
        for block in kept.pooled.iter().filter_map(std::sync::Weak::upgrade) {
            block.used_on(self, lane)?;
        }
        kept.hosts.iter().for_each(|host| host.used_on(lane));
        Ok(())
    }

    /// Enqueues a replay on a lane, behind the one before and the writing of some cells, and returns where it ends.
    pub(crate) fn replay(
        self: &Arc<Self>,
        exec: &mut Exec,
        program: &Program<Work>,
        lane: &LaneRef,
        before: Option<&Passed>,
        cells: &[(Spot, Written)],
        viewed: bool,
    ) -> Result<Passed> {
        let native = match exec {
            Exec::Native(exec) => Some(*exec),
            Exec::Lanes(_) => None,
        };
        // What is written before a replay has to come behind the one before as well, and the backend knows nothing of it.
        let ordered =
            native.is_some() && cells.is_empty() && self.hal().graphs().is_some_and(|graphs| graphs.limits().ordered);
        if let Some(before) = before
            && before.lane.raw != lane.raw
            && !(ordered && before.exec == native)
        {
            self.wait(lane, &before.port, &before.lane, before.mark(CALL)?)?;
        }
        for (dst, bytes) in cells {
            self.enqueue(lane, &Work::Write { dst: *dst, bytes: *bytes })?;
        }
        match exec {
            Exec::Native(exec) => {
                let graphs = self.hal().graphs().ok_or(Error::Unsupported { what: CALL, device: self.device })?;
                // SAFETY: H1: the graph is not destroyed while its owner has it. Its nodes: see the module; the replay
                // before is ordered before this one, by the same lane or by the wait above.
                unsafe { graphs.replay(*exec, lane.raw) }.map_err(|fault| self.error(CALL, fault))?;
            }
            Exec::Lanes(replayer) => {
                let enqueued = self.replay_on_lanes(replayer, program, lane);
                if enqueued.is_err() {
                    // What was enqueued still comes before the end of this lane.
                    for (port, side) in replayer.side.iter().flatten() {
                        let _joined = port.mark(CALL, side).and_then(|mark| self.wait(lane, port, side, mark));
                    }
                }
                enqueued?;
            }
        }
        let mark = if viewed || !ordered { Some(self.mark(CALL, lane)?) } else { None };
        Ok(Passed { port: Arc::clone(self), lane: lane.clone(), mark, exec: native })
    }

    fn replay_on_lanes(
        self: &Arc<Self>,
        replayer: &mut Replayer,
        program: &Program<Work>,
        lane: &LaneRef,
    ) -> Result<()> {
        let Replayer { plan, side, marks } = replayer;
        let first = (Arc::clone(self), lane.clone());
        let place = |at: u32| match at.checked_sub(1) {
            None => Ok(&first),
            Some(at) => side[at as usize].as_ref().ok_or(Error::Unsupported { what: CALL, device: self.device }),
        };
        let start = if side.iter().any(Option::is_some) { self.mark(CALL, lane)? } else { 0 };
        for step in &plan.steps {
            let (port, on) = place(step.lane)?;
            if step.start {
                port.wait(on, self, lane, start)?;
            }
            for &(of, mark) in &step.waits {
                let (of_port, of) = place(of)?;
                port.wait(on, of_port, of, marks[mark as usize])?;
            }
            port.enqueue(on, &program.nodes()[step.node as usize].work)?;
            if let Some(mark) = step.mark {
                marks[mark as usize] = port.mark(CALL, on)?;
            }
        }
        for &(of, mark) in &plan.ends {
            let (of_port, of) = place(of)?;
            self.wait(lane, of_port, of, marks[mark as usize])?;
        }
        Ok(())
    }

    /// Enqueues a node on a lane of this device.
    fn enqueue(&self, lane: &Lane, work: &Work) -> Result<()> {
        let (hal, raw) = (self.hal(), lane.raw);
        // SAFETY: H1: a borrowed lane is a live stream. H4, H5, H15: see the module; what was recorded was checked then.
        let done: Result<(), Fault> = unsafe {
            match work {
                Work::Copy { dst, src, len } => hal.copy(raw, dst.end(), src.end(), *len),
                Work::Peer { dst, from, src, len } => match hal.peers() {
                    Some(peers) => peers.copy(raw, dst.place, *from, src.place, *len),
                    None => Err(Fault::unsupported("peer copy")),
                },
                Work::Fill { dst, pattern, len } => hal.fill(raw, dst.place, *pattern, *len),
                Work::Write { dst, bytes } => hal.write(raw, dst.place, bytes.bytes()),
                Work::Call(function) => hal.host_call(raw, function.each()),
                Work::Launch { kernel, launch, args, .. } => {
                    let mut given = [Arg::Local(0); 16];
                    for (to, from) in given.iter_mut().zip(args) {
                        *to = match from {
                            Argument::Place { spot, len } => Arg::Place { place: spot.place, len: *len },
                            Argument::Bytes(bytes) => Arg::Bytes(bytes),
                            Argument::Local(len) => Arg::Local(*len),
                        };
                    }
                    hal.launch(raw, *kernel, *launch, &given[..args.len()])
                }
            }
        };
        done.map_err(|fault| self.error(CALL, fault))
    }

    /// Gives a graph back once its last replay has ended: its executable, and its use of a pool on each device.
    pub(crate) fn retire_graph(&self, exec: Option<Exec>, pool: PoolId, pools: &[Arc<Port>], last: Option<&Passed>) {
        let until = |port: &Port| {
            last.map(|last| {
                if !std::ptr::eq(&raw const *last.port, port) {
                    port.native.add_foreign(last.lane.raw, &last.port.native);
                }
                (last.lane.raw, last.mark)
            })
        };
        if let Some(Exec::Native(exec)) = exec {
            self.retire_spent(Some(exec), None, until(self));
        }
        for port in pools {
            port.retire_spent(None, Some(pool), until(port));
        }
    }

    /// Forgets a native graph. For what was retired alone.
    pub(super) fn destroy_graph(&self, exec: GraphExec) {
        if let Some(graphs) = self.hal().graphs() {
            // SAFETY: H1, H4: its owner is gone, and its replays have ended.
            unsafe { graphs.destroy(exec) };
        }
    }
}

/// A program as a backend's list; `None` if a node has no such form.
fn nodes(program: &Program<Work>) -> Option<Vec<GraphNode>> {
    let node = |at: usize| -> Option<GraphNode> {
        let op: Op = program.nodes()[at].work.op()?;
        Some(GraphNode { op, after: program.after(at as u32).into() })
    };
    (0..program.nodes().len()).map(node).collect()
}
