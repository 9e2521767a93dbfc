//! A list of nodes, flattened: what is run, and in which order.
//!
//! Nodes are cut into *strands*, runs of nodes of which each comes after the one before alone, and nothing else does. A
//! strand is run by one thread from its begin to its end; between strands there are counters. A host function is a strand
//! of its own, since it runs on another kind of thread.

use crate::crew::Crew;
use crate::kernel::UserLaunch;
use crate::op::{Class, Op};
use crate::sync::{AtomicU64, Mutex, Ordering};
use anyaccel_hal::{HostFn, HostStatus};
use std::ops::Range;
use std::sync::Arc;

/// A host function of a graph.
pub(crate) struct Function {
    function: Mutex<HostFn>,
    /// The number of the last replay in which its turn came, or was cancelled.
    turn: AtomicU64,
}

impl Function {
    pub(super) fn new(function: HostFn) -> Self {
        Self { function: Mutex::new(function), turn: AtomicU64::new(0) }
    }

    /// Its turn in a replay, once. Nobody else has the lock: replays don't overlap.
    pub(super) fn call(&self, replay: u64, status: HostStatus) {
        if self.turn.swap(replay, Ordering::AcqRel) != replay {
            self.function.lock().call(status);
        }
    }
}

/// What a node does.
pub(crate) enum Task {
    /// Not a launch, nor anything that a list can't hold.
    Work(Op),
    Launch(Arc<UserLaunch>),
    Call(Arc<Function>),
    /// Whatever a model wants to know.
    #[cfg(loom)]
    Probe(Arc<dyn Fn() + Send + Sync>),
}

// SAFETY: who runs a task only reads it; the addresses in it may be used at its turn by H4 and H5. It holds no operation
// but those of lists, and functions are behind their lock.
unsafe impl Sync for Task {}

impl Task {
    /// The task that an operation is.
    pub(super) fn of(op: Op) -> Self {
        match op {
            Op::Launch(launch) => Self::Launch(Arc::from(launch)),
            op => Self::Work(op),
        }
    }

    /// The same once more; launches and functions are shared. `None` for what no list holds.
    fn again(&self) -> Option<Self> {
        Some(match self {
            Self::Work(op) => Self::Work(op.again()?),
            Self::Launch(launch) => Self::Launch(Arc::clone(launch)),
            Self::Call(function) => Self::Call(Arc::clone(function)),
            #[cfg(loom)]
            Self::Probe(probe) => Self::Probe(Arc::clone(probe)),
        })
    }

    /// Whether it is worth another worker.
    fn is_heavy(&self) -> bool {
        match self {
            Self::Work(op) => op.class() == Class::Work,
            Self::Launch(_) => true,
            Self::Call(_) => false,
            #[cfg(loom)]
            Self::Probe(_) => true,
        }
    }

    /// Does it, unless it is a function.
    ///
    /// # Safety
    /// Its turn, so H4, H5 and H15 allow the accesses.
    #[inline]
    pub(super) unsafe fn work(&self, crew: &Arc<Crew>) {
        match self {
            // SAFETY: its turn.
            Self::Work(op) => unsafe { op.work(crew) },
            // SAFETY: its turn.
            Self::Launch(launch) => unsafe { launch.run(crew) },
            Self::Call(_) => {}
            #[cfg(loom)]
            Self::Probe(probe) => probe(),
        }
    }
}

/// The nodes of one strand.
#[derive(Debug)]
pub(crate) struct Strand {
    /// Which of the tasks.
    pub(super) tasks: Range<u32>,
    /// Which of the links name the strands that come after it.
    pub(super) links: Range<u32>,
    /// How many strands it comes after.
    pub(super) needs: u32,
    /// Whether it is a host function.
    pub(super) call: bool,
}

/// The order of a graph; never changes.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(super) strands: Box<[Strand]>,
    pub(super) links: Box<[u32]>,
    /// Strands that come after nothing.
    pub(super) roots: Box<[u32]>,
    /// The place of each node among the tasks.
    places: Box<[u32]>,
    /// Whether one thread runs the tasks one after the other: there is nothing to gain from more.
    pub(super) serial: bool,
    /// Whether there are host functions.
    pub(super) calls: bool,
}

/// What the nodes do, in the order in which one thread would do it. Shared by replays that are enqueued; an update makes
/// another one.
pub(crate) struct Program {
    pub(super) tasks: Box<[Task]>,
    /// About how long it takes, in bytes of a copy.
    pub(super) effort: usize,
    /// Whether it runs code of the user.
    pub(super) user: bool,
}

/// The order of a list, and its tasks in that order.
pub(super) fn flatten(tasks: Vec<Task>, after: &[Box<[u32]>]) -> (Shape, Program) {
    let count = tasks.len();
    let is_call: Vec<bool> = tasks.iter().map(|task| matches!(task, Task::Call(_))).collect();
    let mut followers = vec![0_u32; count];
    for &before in after.iter().flatten() {
        followers[before as usize] += 1;
    }
    // Which strand each node is in; strands are numbered by their first nodes, so their order is topological too: all that
    // a strand comes after ends in a node before its first one.
    let mut strand_of = vec![0_u32; count];
    let mut strands: Vec<Strand> = Vec::new();
    let mut heavy: Vec<bool> = Vec::new();
    for node in 0..count {
        let joins = match *after[node] {
            [before] if followers[before as usize] == 1 && !is_call[node] && !is_call[before as usize] => {
                Some(strand_of[before as usize])
            }
            _ => None,
        };
        let strand = joins.unwrap_or_else(|| {
            strands.push(Strand { tasks: 0..0, links: 0..0, needs: after[node].len() as u32, call: is_call[node] });
            heavy.push(false);
            (strands.len() - 1) as u32
        });
        strand_of[node] = strand;
        // Counted first, placed below.
        strands[strand as usize].tasks.end += 1;
        heavy[strand as usize] |= tasks[node].is_heavy();
        if joins.is_none() {
            for &before in &after[node] {
                strands[strand_of[before as usize] as usize].links.end += 1;
            }
        }
    }
    let calls = is_call.contains(&true);
    let serial = !calls && (strands.len() < 2 || heavy.iter().filter(|&&heavy| heavy).count() < 2);

    // The tasks of each strand and its links side by side.
    let (mut task, mut link) = (0, 0);
    for strand in &mut strands {
        let (tasks, links) = (strand.tasks.end, strand.links.end);
        (strand.tasks, strand.links) = (task..task, link..link);
        (task, link) = (task + tasks, link + links);
    }
    let mut places = vec![0; count];
    let mut order = vec![0; count];
    let mut links = vec![0; link as usize];
    for node in 0..count {
        let strand = &mut strands[strand_of[node] as usize];
        if strand.tasks.is_empty() {
            // The first of its strand: what it comes after links to it.
            for &before in &after[node] {
                let from = &mut strands[strand_of[before as usize] as usize].links;
                links[from.end as usize] = strand_of[node];
                from.end += 1;
            }
        }
        let tasks = &mut strands[strand_of[node] as usize].tasks;
        places[node] = tasks.end;
        order[tasks.end as usize] = node as u32;
        tasks.end += 1;
    }
    if serial {
        // One thread goes by the order of the list.
        places = (0..count as u32).collect();
        order.clone_from(&places);
    }
    let tasks: Box<[Task]> = if order.is_sorted() {
        tasks.into()
    } else {
        let mut by_node: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
        order.iter().filter_map(|&node| by_node[node as usize].take()).collect()
    };
    let roots = (0..strands.len() as u32).filter(|&strand| strands[strand as usize].needs == 0).collect();
    let shape = Shape { strands: strands.into(), links: links.into(), roots, places: places.into(), serial, calls };
    (shape, Program::of(tasks))
}

impl Shape {
    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

impl Program {
    fn of(tasks: Box<[Task]>) -> Self {
        let (mut effort, mut user) = (0_usize, false);
        for task in &tasks {
            match task {
                Task::Work(op) => effort = effort.saturating_add(op.effort()),
                Task::Launch(_) | Task::Call(_) => user = true,
                #[cfg(loom)]
                Task::Probe(_) => {}
            }
        }
        Self { tasks, effort, user }
    }

    /// The task of a node.
    pub(super) fn task(&self, shape: &Shape, node: usize) -> &Task {
        &self.tasks[shape.places[node] as usize]
    }

    /// The same once more, to change.
    pub(super) fn again(&self) -> Option<Self> {
        let tasks = self.tasks.iter().map(Task::again).collect::<Option<_>>()?;
        Some(Self { tasks, ..*self })
    }

    /// Puts another task in a node's place.
    pub(super) fn replace(&mut self, shape: &Shape, node: usize, task: Task) {
        self.tasks[shape.places[node] as usize] = task;
        *self = Self::of(std::mem::take(&mut self.tasks));
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn shape(after: &[&[u32]], call: &[u32]) -> Shape {
        let task = |node: u32| match call.contains(&node) {
            true => Task::Call(Arc::new(Function::new(HostFn::new(|_| ())))),
            false => Task::of(Op::Noop),
        };
        let after: Vec<Box<[u32]>> = after.iter().map(|&after| after.into()).collect();
        flatten((0..after.len() as u32).map(task).collect(), &after).0
    }

    #[test]
    fn a_chain_is_one_strand_and_serial() {
        let shape = shape(&[&[], &[0], &[1], &[2]], &[]);
        assert_eq!((shape.strands.len(), shape.serial), (1, true));
        assert_eq!(&*shape.roots, [0]);
    }

    #[test]
    fn forks_joins_and_functions_begin_strands() {
        let shape = shape(&[&[], &[0], &[0], &[2], &[1, 3], &[4], &[5]], &[5]);
        let strands: Vec<_> = shape.strands.iter().map(|s| (s.tasks.clone(), s.needs, s.call)).collect();
        assert_eq!(
            strands,
            [(0..1, 0, false), (1..2, 1, false), (2..4, 1, false), (4..5, 2, false), (5..6, 1, true), (6..7, 1, false)]
        );
        assert_eq!(&*shape.links, [1, 2, 3, 3, 4, 5]);
        assert!(shape.calls && !shape.serial);
    }
}
