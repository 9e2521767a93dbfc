//! Merging nodes that nobody can tell apart from one.

use super::program::{Node, Program, Work};

/// A stretch of memory, for deciding whether two nodes are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// What memory: no two that could overlap have different names.
    pub memory: u64,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Stretch {
    /// Whether this one begins where `before` ends.
    pub fn follows(&self, before: &Stretch) -> bool {
        self.memory == before.memory && before.offset.checked_add(before.len) == Some(self.offset)
    }

    /// Whether they share bytes.
    pub fn overlaps(&self, other: &Stretch) -> bool {
        self.memory == other.memory
            && self.offset < other.offset.saturating_add(other.len)
            && other.offset < self.offset.saturating_add(self.len)
    }

    /// Both as one, if `next` follows.
    pub fn with(&self, next: &Stretch) -> Option<Stretch> {
        next.follows(self).then(|| Stretch { len: self.len + next.len, ..*self })
    }
}

impl<W: Work> Program<W> {
    /// Merges each node into the one before it where that is invisible: it comes after that node alone, nothing else does,
    /// both are of one lane, and their payloads can be one.
    #[must_use]
    pub fn merged(self) -> Self {
        let mut followers = self.followers();
        for &end in &self.ends {
            followers[end as usize] += 1;
        }
        let Program { nodes, edges, lanes, ends } = self;
        let (room, links) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(edges.len()));
        let mut out: Program<W> = Program { nodes: room, edges: links, lanes, ends };
        // The new number of each node.
        let mut renamed: Vec<u32> = Vec::with_capacity(nodes.len());
        for Node { work, lane, after } in nodes {
            let before = &edges[after.start as usize..after.end as usize];
            if let &[only] = before
                && followers[only as usize] == 1
            {
                let into = renamed[only as usize];
                let target = &mut out.nodes[into as usize];
                if target.lane == lane && target.work.absorb(&work) {
                    renamed.push(into);
                    continue;
                }
            }
            let start = out.edges.len() as u32;
            out.edges.extend(before.iter().map(|&before| renamed[before as usize]));
            renamed.push(out.nodes.len() as u32);
            out.nodes.push(Node { work, lane, after: start..out.edges.len() as u32 });
        }
        for end in &mut out.ends {
            *end = renamed[*end as usize];
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches() {
        let at = |offset, len| Stretch { memory: 1, offset, len };
        assert!(at(4, 4).follows(&at(0, 4)));
        assert!(!at(5, 4).follows(&at(0, 4)));
        assert!(!Stretch { memory: 2, offset: 4, len: 4 }.follows(&at(0, 4)));
        assert_eq!(at(0, 4).with(&at(4, 6)), Some(at(0, 10)));
        assert_eq!(at(4, 4).with(&at(0, 4)), None);
        assert!(at(0, 5).overlaps(&at(4, 1)));
        assert!(!at(0, 4).overlaps(&at(4, 1)));
        assert!(!at(u64::MAX, 1).follows(&at(u64::MAX - 1, 2)), "no overflow");
    }
}
