//! One submission: recorded by the engine, then replayed by the device's graphs or by the engine's plan.
//!
//! The graph goes to the stream of its first operation. That stream first waits for what every other one has already been
//! given, and each of them afterwards for the end of the graph; so it is one operation of each of its streams.

use super::Way;
use super::tape::{Entry, Spent};
use anyaccel_engine::graph::{Plan, Program, Recorder, Refusal};
use anyaccel_hal::{Arg, Device, End, Fault, FaultKind, GraphExec, GraphNode, Graphs, Mark, Op, OwnedArg, StreamId};
use std::collections::HashMap;
use std::sync::Arc;

/// A stream of this module's own, beside those of the case.
pub(super) struct Lane {
    pub(super) device: Arc<dyn Device>,
    id: StreamId,
}

impl Lane {
    pub(super) fn destroy(self) {
        // SAFETY: H1, made by idle, and whoever used it has ended.
        let _cleanup = unsafe { self.device.destroy_stream(self.id) };
    }
}

/// A mark of the good device.
pub(super) fn mark(device: &dyn Device, stream: StreamId) -> Result<u64, Fault> {
    // SAFETY: H1, streams on the tape are live.
    match unsafe { device.mark(stream) }? {
        Mark::At(mark) => Ok(mark),
        Mark::Captured(_) => Err(Fault::new(FaultKind::Invalid, "a captured mark")),
    }
}

fn wait(device: &dyn Device, stream: StreamId, of: StreamId, mark: u64) -> Result<(), Fault> {
    // SAFETY: H1, as for mark; the mark is one of `of`.
    unsafe { device.wait(stream, of, Mark::At(mark)) }
}

/// Whether a mark has ended; a device that is lost has ended everything (H20).
pub(super) fn ended(device: &dyn Device, stream: StreamId, mark: u64) -> bool {
    // SAFETY: H1, as for mark.
    unsafe { device.completed(stream) }.map_or(true, |ended| ended >= mark)
}

pub(super) fn destroy(device: &dyn Device, graph: GraphExec) {
    if let Some(graphs) = device.graphs() {
        // SAFETY: H1, its one replay has ended.
        unsafe { graphs.destroy(graph) };
    }
}

/// Where a graph comes from and goes to.
pub(super) struct Graph<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) way: Way,
    pub(super) idle: &'a mut Vec<Lane>,
}

/// The place at which the marks of each stream end.
type Places = HashMap<StreamId, u64>;

impl Graph<'_> {
    /// Runs entries of streams that hang together, `first` among them: where their marks end, and what is to be given back
    /// then.
    pub(super) fn run(self, first: StreamId, entries: Vec<Entry>) -> Result<(Places, Spent), Fault> {
        let program = record(first, entries).map_err(refused)?;
        let device = &**self.device;
        let others: Vec<StreamId> = program.lanes()[1..].iter().map(|&lane| StreamId(lane)).collect();
        for &other in &others {
            wait(device, first, other, mark(device, other)?)?;
        }
        let native = device.graphs().filter(|graphs| self.way == Way::Captured && holds(*graphs, &program));
        let (graph, lanes) = match native {
            Some(graphs) => (Some(replay_native(graphs, program, first)?), Vec::new()),
            None => (None, replay_planned(self.device, self.idle, program, first)?),
        };
        let until = mark(device, first)?;
        let mut places = Places::from([(first, until)]);
        for other in others {
            wait(device, other, first, until)?;
            places.insert(other, mark(device, other)?);
        }
        Ok((places, Spent { device: Arc::clone(self.device), on: first, until, graph, lanes }))
    }
}

fn refused(refusal: Refusal) -> Fault {
    Fault { note: Some(refusal.to_string().into()), ..Fault::new(FaultKind::Invalid, "the engine's recorder") }
}

/// Records entries as the capture of a user's would be: every other stream is forked off at the start and joined at the end.
fn record(origin: StreamId, entries: Vec<Entry>) -> Result<Program<Op>, Refusal> {
    let mut recorder: Recorder<Op, Refusal> = Recorder::new(1, origin.0);
    let start = recorder.point(origin.0)?;
    let mut lanes = vec![origin];
    let mut points = HashMap::new();
    for entry in entries {
        let on = entry.on();
        if !lanes.contains(&on) {
            lanes.push(on);
            recorder.wait(on.0, start)?;
        }
        match entry {
            Entry::Work { op, .. } => {
                recorder.record(on.0, op)?;
            }
            Entry::Mark { number, .. } => {
                points.insert((on, number), recorder.point(on.0)?);
            }
            Entry::Wait { of, number, .. } => {
                if let Some(&point) = points.get(&(of, number)) {
                    recorder.wait(on.0, point)?;
                }
            }
        }
    }
    for other in &lanes[1..] {
        let end = recorder.point(other.0)?;
        recorder.wait(origin.0, end)?;
    }
    recorder.finish(|refusal| refusal)
}

/// Whether a device's graphs can hold a program.
fn holds(graphs: &dyn Graphs, program: &Program<Op>) -> bool {
    let limits = graphs.limits();
    let fits = |op: &Op| match op {
        Op::HostCall(_) => limits.host_calls,
        Op::Copy { dst, src, .. } => limits.host_copies || matches!((dst, src), (End::Device(_), End::Device(_))),
        _ => true,
    };
    limits.list && program.nodes().iter().all(|node| fits(&node.work))
}

fn replay_native(graphs: &dyn Graphs, program: Program<Op>, on: StreamId) -> Result<GraphExec, Fault> {
    let after: Vec<Box<[u32]>> = (0..program.nodes().len() as u32).map(|node| program.after(node).into()).collect();
    let mut nodes = Vec::with_capacity(after.len());
    program.map(|op| nodes.push(op));
    let nodes = nodes.into_iter().zip(after).map(|(op, after)| GraphNode { op, after }).collect();
    // SAFETY: H1, H4, H5, H15: the case keeps what its work names until a mark behind it has ended, and the graph ends
    // before every mark behind it. It is replayed once.
    unsafe {
        let graph = graphs.build(nodes)?;
        graphs.replay(graph, on)?;
        Ok(graph)
    }
}

/// Enqueues a program node by node, and hands over the lanes that it uses.
fn replay_planned(
    device: &Arc<dyn Device>,
    lanes: &mut Vec<Lane>,
    program: Program<Op>,
    on: StreamId,
) -> Result<Vec<Lane>, Fault> {
    let plan = Plan::of(&program);
    let mut works = Vec::with_capacity(plan.steps.len());
    program.map(|op| works.push(Some(op)));
    let mut used = Vec::new();
    // The stream of each lane of the program; those after the first are taken when their first node comes.
    let mut streams: Vec<Option<StreamId>> = vec![None; plan.lanes as usize];
    streams[0] = Some(on);
    let start = mark(&**device, on)?;
    let mut marks = vec![0; plan.marks as usize];
    for step in &plan.steps {
        let lane = match streams[step.lane as usize] {
            Some(lane) => lane,
            None => {
                let lane = idle(device, lanes)?;
                let id = lane.id;
                used.push(lane);
                *streams[step.lane as usize].insert(id)
            }
        };
        if step.start {
            wait(&**device, lane, on, start)?;
        }
        for &(of, at) in &step.waits {
            if let Some(of) = streams[of as usize] {
                wait(&**device, lane, of, marks[at as usize])?;
            }
        }
        if let Some(op) = works[step.node as usize].take() {
            enqueue(&**device, lane, op)?;
        }
        if let Some(at) = step.mark {
            marks[at as usize] = mark(&**device, lane)?;
        }
    }
    for &(of, at) in &plan.ends {
        if let Some(of) = streams[of as usize] {
            wait(&**device, on, of, marks[at as usize])?;
        }
    }
    Ok(used)
}

/// A lane of a device that no graph uses, made if there is none.
fn idle(device: &Arc<dyn Device>, lanes: &mut Vec<Lane>) -> Result<Lane, Fault> {
    let fits = |lane: &Lane| std::ptr::addr_eq(Arc::as_ptr(&lane.device), Arc::as_ptr(device));
    match lanes.iter().rposition(fits) {
        Some(at) => Ok(lanes.swap_remove(at)),
        None => Ok(Lane { device: Arc::clone(device), id: device.create_stream(0)? }),
    }
}

fn enqueue(device: &dyn Device, stream: StreamId, op: Op) -> Result<(), Fault> {
    // SAFETY: H1, H4, H5, H14, H15: what the case promised of the call that was put off; see replay_native.
    unsafe {
        match op {
            Op::Copy { dst, src, len } => device.copy(stream, dst, src, len),
            Op::Fill { dst, pattern, len } => device.fill(stream, dst, pattern, len),
            Op::Write { dst, bytes } => device.write(stream, dst, bytes.bytes()),
            Op::HostCall(function) => device.host_call(stream, function),
            Op::Launch { kernel, launch, args } => {
                let args: Vec<Arg<'_>> = args.iter().map(OwnedArg::as_arg).collect();
                device.launch(stream, kernel, launch, &args)
            }
        }
    }
}
