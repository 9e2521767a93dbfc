//! How a program is replayed by enqueueing its nodes on lanes: for devices without graphs of their own.
//!
//! The first lane is the one that the replay goes to, the others belong to the replay. Every other lane first waits for
//! what is on the first one (*start*), so that a replay is ordered in its stream as one operation; the first lane waits at
//! the end for all that its own nodes don't come after. Between lanes a node that others wait for gets a *mark*, once.

use super::program::Program;

/// One step of a replay: wait, enqueue, mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The node to enqueue.
    pub node: u32,
    /// On which lane.
    pub lane: u32,
    /// First wait for the start of the replay; true for the first node of every lane but the first.
    pub start: bool,
    /// First wait for these marks, each made by an earlier step, by (lane, place among the marks).
    pub waits: Box<[(u32, u32)]>,
    /// Afterwards mark the lane, and keep the mark at this place.
    pub mark: Option<u32>,
}

/// A replay, step by step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The steps in the order in which they are enqueued.
    pub steps: Vec<Step>,
    /// How many lanes are used, the first included.
    pub lanes: u32,
    /// How many marks are kept.
    pub marks: u32,
    /// What the first lane waits for at the end, by (lane, place).
    pub ends: Vec<(u32, u32)>,
}

impl Plan {
    /// The plan of a program. Lanes are those of the program.
    pub fn of<W>(program: &Program<W>) -> Self {
        let nodes = program.nodes();
        let lane = |node: u32| nodes[node as usize].lane;
        // Which nodes are waited for from elsewhere.
        let mut marked = vec![None; nodes.len()];
        let mut marks = 0;
        let mut mark = |node: u32, from: u32| {
            if lane(node) != from && marked[node as usize].is_none() {
                marked[node as usize] = Some(marks);
                marks += 1;
            }
        };
        for node in 0..nodes.len() as u32 {
            program.after(node).iter().for_each(|&before| mark(before, lane(node)));
        }
        program.ends().iter().for_each(|&end| mark(end, 0));
        let waits = |after: &[u32], on: u32| -> Vec<(u32, u32)> {
            let others = after.iter().filter(|&&before| lane(before) != on);
            others.filter_map(|&before| Some((lane(before), marked[before as usize]?))).collect()
        };
        let mut begun = vec![false; program.lanes().len()];
        let steps = (0..nodes.len() as u32).map(|node| {
            let on = lane(node);
            let first = !std::mem::replace(&mut begun[on as usize], true);
            Step {
                node,
                lane: on,
                start: first && on != 0,
                waits: waits(program.after(node), on).into(),
                mark: marked[node as usize],
            }
        });
        Self { steps: steps.collect(), lanes: program.lanes().len() as u32, marks, ends: waits(program.ends(), 0) }
    }
}
