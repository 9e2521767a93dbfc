//! Graphs from lists (H31): flattened when they are built, then run as one operation of a stream.
//!
//! | file | subject |
//! |---|---|
//! | `program` | nodes in strands, the order in which they are run |
//! | `run` | the protocol of the threads that run strands |

mod program;
mod run;

pub(crate) use run::{Progress, Run};

use crate::crew::Crew;
use crate::device::HostDevice;
use crate::op::{Class, Op};
use crate::sync::{AtomicU64, Mutex, Ordering};
use anyaccel_hal::{
    Arg, CaptureId, CaptureMode, End, Fault, GraphExec, GraphNode, Graphs, GraphsLimits, HostPtr, HostStatus, OwnedArg,
    Pattern, Place, StreamId,
};
use anyaccel_kernels::fill_pattern;
use program::{Function, Program, Task, flatten};
use std::sync::Arc;

/// What a [`GraphExec`] names.
pub(crate) struct Exec {
    run: Arc<Run>,
    /// For replays from now on.
    program: Mutex<Arc<Program>>,
    /// How many replays were enqueued.
    replays: AtomicU64,
}

/// A replay in a stream.
pub(crate) struct Replay {
    run: Arc<Run>,
    program: Arc<Program>,
    number: u64,
    effort: usize,
    class: Class,
    begun: bool,
}

/// Up to this effort a host thread that waits runs a graph itself.
const SMALL: usize = 1 << 20;

impl Replay {
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    pub(crate) const fn effort(&self) -> usize {
        self.effort
    }

    /// Runs it, or what is left of it. For who has the stream's token.
    ///
    /// # Safety
    /// It is its turn.
    pub(crate) unsafe fn go_on(&mut self, crew: &Arc<Crew>) -> Progress {
        if self.run.shape.serial {
            for task in &self.program.tasks {
                // SAFETY: its turn: the order is that of the list, and it is the replay's turn.
                unsafe { task.work(crew) };
            }
            return Progress::Ended;
        }
        if !self.begun {
            self.begun = true;
            self.run.begin(crew, &self.program, self.number);
        }
        self.run.go_on(crew)
    }

    /// What wakes who waits for it to go on.
    pub(crate) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// Its turn can't come, or not to its end: functions that were not called are cancelled (H13).
    pub(crate) fn cancel(&self) {
        for task in &self.program.tasks {
            if let Task::Call(function) = task {
                function.call(self.number, HostStatus::Cancelled);
            }
        }
    }
}

#[cfg(loom)]
impl Exec {
    /// A graph of probes, for models.
    pub(crate) fn of_probes(probes: Vec<Arc<dyn Fn() + Send + Sync>>, after: &[&[u32]]) -> Self {
        let after: Vec<Box<[u32]>> = after.iter().map(|&after| after.into()).collect();
        let (shape, program) = flatten(probes.into_iter().map(Task::Probe).collect(), &after);
        Self::new(shape, program)
    }
}

impl Exec {
    fn new(shape: program::Shape, program: Program) -> Self {
        Self { run: Arc::new(Run::new(shape)), program: Mutex::new(Arc::new(program)), replays: AtomicU64::new(0) }
    }

    /// The next replay.
    pub(crate) fn replay(&self) -> Op {
        let program = Arc::clone(&self.program.lock());
        let (effort, user) = (program.effort, program.user);
        let class = if user || effort > SMALL { Class::Work } else { Class::Small };
        let number = self.replays.fetch_add(1, Ordering::Relaxed) + 1;
        Op::Replay(Box::new(Replay { run: Arc::clone(&self.run), program, number, effort, class, begun: false }))
    }
}

impl HostDevice {
    /// # Safety
    /// H1.
    unsafe fn graph(&self, graph: GraphExec, api: &'static str) -> Result<&Arc<Exec>, Fault> {
        // SAFETY: H1: nobody destroys the graph during a call that names it.
        unsafe { self.machine().graphs.get(graph.0) }.ok_or_else(|| Fault::invalid(api, "an unknown graph"))
    }

    /// What a node does, with addresses instead of handles.
    ///
    /// # Safety
    /// H1.
    unsafe fn task(&self, op: anyaccel_hal::Op, api: &'static str) -> Result<Task, Fault> {
        let place = |place: Place, len: u64| {
            // SAFETY: H1, as this function's caller promises.
            unsafe { self.place(place, len, api) }
        };
        let end = |end: End, len: u64| match end {
            End::Device(at) | End::Pinned(at) => place(at, len),
            End::Host(HostPtr(ptr)) => Ok(ptr),
        };
        Ok(Task::of(match op {
            anyaccel_hal::Op::Copy { dst: End::Host(_), src: End::Host(_), .. } => {
                return Err(Fault::invalid(api, "two host ends"));
            }
            anyaccel_hal::Op::Copy { dst, src, len } => {
                Op::Copy { dst: end(dst, len)?, src: end(src, len)?, len: len as usize }
            }
            anyaccel_hal::Op::Fill { dst, pattern, len } => {
                Op::Fill { dst: place(dst, len)?, pattern: repeated(pattern, api)?, len: len as usize }
            }
            anyaccel_hal::Op::Write { dst, bytes } => Op::Write { dst: place(dst, bytes.bytes().len() as u64)?, bytes },
            anyaccel_hal::Op::HostCall(function) => return Ok(Task::Call(Arc::new(Function::new(function)))),
            anyaccel_hal::Op::Launch { kernel, launch, args } => {
                let args: Vec<Arg<'_>> = args.iter().map(OwnedArg::as_arg).collect();
                // SAFETY: H1, as this function's caller promises.
                unsafe { self.resolve(kernel, launch, &args)? }
            }
        }))
    }
}

fn repeated(pattern: Pattern, api: &'static str) -> Result<fill_pattern::Pattern, Fault> {
    fill_pattern::Pattern::new(pattern.bytes()).map_err(|error| Fault::unsupported(api).note(error.to_string()))
}

/// Whether one task may stand where another was: the same kind of operation.
fn same_form(old: &Task, new: &Task) -> bool {
    match (old, new) {
        (Task::Work(old), Task::Work(new)) => std::mem::discriminant(old) == std::mem::discriminant(new),
        (Task::Launch(_), Task::Launch(_)) | (Task::Call(_), Task::Call(_)) => true,
        _ => false,
    }
}

impl Graphs for HostDevice {
    fn limits(&self) -> GraphsLimits {
        GraphsLimits { capture: false, list: true, host_calls: true, host_copies: true, update: true, ordered: false }
    }

    unsafe fn begin(&self, _: StreamId, _: CaptureMode) -> Result<CaptureId, Fault> {
        Err(Fault::unsupported("graph_begin"))
    }

    unsafe fn capture_id(&self, _: StreamId) -> Result<Option<CaptureId>, Fault> {
        Ok(None)
    }

    unsafe fn end(&self, _: StreamId) -> Result<GraphExec, Fault> {
        Err(Fault::unsupported("graph_end"))
    }

    unsafe fn abort(&self, _: StreamId) {}

    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        let api = "graph_build";
        let (mut tasks, mut after) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
        for (at, node) in nodes.into_iter().enumerate() {
            if node.after.iter().any(|&before| before as usize >= at) {
                return Err(Fault::invalid(api, format!("node {at} comes after {:?}", node.after)));
            }
            // SAFETY: H1, as this function's caller promises.
            tasks.push(unsafe { self.task(node.op, api)? });
            let mut before = node.after.into_vec();
            before.sort_unstable();
            before.dedup();
            after.push(before.into_boxed_slice());
        }
        let (shape, program) = flatten(tasks, &after);
        if shape.calls {
            self.machine().crew.ensure_callback_thread()?;
        }
        Ok(GraphExec(self.machine().graphs.insert(Arc::new(Exec::new(shape, program)))))
    }

    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        let api = "graph_replay";
        // SAFETY: H1, as this function's caller promises.
        let (exec, stream) = unsafe { (self.graph(graph, api)?, self.stream(stream, api)?) };
        if exec.run.shape.len() == 0 {
            return Ok(());
        }
        stream.push(exec.replay());
        Ok(())
    }

    unsafe fn update(&self, graph: GraphExec, node: u32, op: anyaccel_hal::Op) -> Result<(), Fault> {
        let api = "graph_update";
        // SAFETY: H1, as this function's caller promises.
        let (exec, task) = unsafe { (self.graph(graph, api)?, self.task(op, api)?) };
        let (shape, node) = (&exec.run.shape, node as usize);
        if node >= shape.len() {
            return Err(Fault::invalid(api, format!("node {node} of {}", shape.len())));
        }
        let mut program = exec.program.lock();
        if !same_form(program.task(shape, node), &task) {
            return Err(Fault::invalid(api, format!("node {node} has another form")));
        }
        if let Some(program) = Arc::get_mut(&mut program) {
            program.replace(shape, node, task);
            return Ok(());
        }
        // Replays of it are enqueued.
        let mut changed = program.again().ok_or(Fault::unsupported(api))?;
        changed.replace(shape, node, task);
        *program = Arc::new(changed);
        Ok(())
    }

    unsafe fn destroy(&self, graph: GraphExec) {
        drop(self.machine().graphs.remove(graph.0));
    }
}
