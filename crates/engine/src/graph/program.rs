//! What a capture leaves: nodes in topological order.

use std::ops::Range;

/// The payload of a node, as far as the engine looks into it.
pub trait Work {
    /// What it does, in a word or two: `copy`, `fill`, a kernel's name.
    fn name(&self) -> &str;

    /// Bytes that it goes through, where that is known.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Takes `next`, which directly follows this one and nothing else does, into this node; false if they can't be one.
    /// Only what nobody can tell apart may be merged.
    fn absorb(&mut self, next: &Self) -> bool
    where
        Self: Sized,
    {
        let _ = next;
        false
    }
}

/// A node of a [`Program`].
#[derive(Clone, Debug)]
pub struct Node<W> {
    /// What it does.
    pub work: W,
    /// The lane it was recorded on, as an index of [`Program::lanes`].
    pub lane: u32,
    pub(super) after: Range<u32>,
}

/// A captured graph: nodes, each after those that it depends on.
#[derive(Clone, Debug)]
pub struct Program<W> {
    pub(super) nodes: Vec<Node<W>>,
    /// The dependencies of all nodes, one after the other.
    pub(super) edges: Vec<u32>,
    /// The lanes that took part, by the names that the recorder was given; the origin is the first.
    pub(super) lanes: Vec<u64>,
    /// What the end of the graph waits for: the heads of the origin.
    pub(super) ends: Vec<u32>,
}

impl<W> Program<W> {
    /// Its nodes; each comes after its dependencies.
    pub fn nodes(&self) -> &[Node<W>] {
        &self.nodes
    }

    /// The payload of a node, to change.
    pub fn work_mut(&mut self, node: u32) -> Option<&mut W> {
        self.nodes.get_mut(node as usize).map(|node| &mut node.work)
    }

    /// The nodes that a node comes after, in rising order.
    pub fn after(&self, node: u32) -> &[u32] {
        let Range { start, end } = self.nodes[node as usize].after.clone();
        &self.edges[start as usize..end as usize]
    }

    /// The lanes that took part; the origin is the first.
    pub fn lanes(&self) -> &[u64] {
        &self.lanes
    }

    /// The nodes that the end waits for. All others are their ancestors.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Without dependencies that follow from others. A program whose lanes times nodes exceed 2^24 stays as it is: that
    /// would take more memory than it saves.
    #[must_use]
    pub(super) fn reduced(mut self) -> Self {
        let lanes = self.lanes.len();
        if lanes < 2 || self.nodes.len().saturating_mul(lanes) > 1 << 24 {
            return self;
        }
        // For each node and lane: one more than the latest node of that lane that it is or comes after; 0 for none.
        let mut latest = vec![0_u32; self.nodes.len() * lanes];
        let mut edges = Vec::with_capacity(self.edges.len());
        let lane = |nodes: &[Node<W>], node: u32| nodes[node as usize].lane as usize;
        for at in 0..self.nodes.len() {
            let Range { start, end } = self.nodes[at].after.clone();
            let before = &self.edges[start as usize..end as usize];
            let kept = edges.len() as u32;
            let follows = |of: u32, on: u32| latest[on as usize * lanes + lane(&self.nodes, of)] > of;
            edges.extend(before.iter().filter(|&&of| !before.iter().any(|&on| on != of && follows(of, on))));
            let (done, own) = latest.split_at_mut(at * lanes);
            for &of in before {
                let known = &done[of as usize * lanes..][..lanes];
                own.iter_mut().zip(known).for_each(|(own, &known)| *own = known.max(*own));
            }
            own[self.nodes[at].lane as usize] = at as u32 + 1;
            self.nodes[at].after = kept..edges.len() as u32;
        }
        let all = self.ends.clone();
        let follows = |of: u32, on: u32| latest[on as usize * lanes + lane(&self.nodes, of)] > of;
        self.ends.retain(|&of| !all.iter().any(|&on| on != of && follows(of, on)));
        self.edges = edges;
        self
    }

    /// How many nodes directly follow each.
    pub(super) fn followers(&self) -> Vec<u32> {
        let mut followers = vec![0; self.nodes.len()];
        for &edge in &self.edges {
            followers[edge as usize] += 1;
        }
        followers
    }

    /// The same graph with other payloads.
    pub fn map<V>(self, mut f: impl FnMut(W) -> V) -> Program<V> {
        let nodes = self.nodes.into_iter();
        Program {
            nodes: nodes.map(|Node { work, lane, after }| Node { work: f(work), lane, after }).collect(),
            edges: self.edges,
            lanes: self.lanes,
            ends: self.ends,
        }
    }
}
