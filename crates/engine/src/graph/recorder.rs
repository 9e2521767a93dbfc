//! Recording a capture.

use super::program::{Node, Program};

/// A point of a capture, in the order of one lane: what an event recorded inside names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// The capture that it belongs to.
    pub capture: u64,
    /// Its number in that capture.
    pub number: u64,
}

/// Why something could not be recorded, or a capture not be ended. Unless it says so, the capture stays usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The lane takes no part in this capture.
    #[error("lane {0} takes no part in this capture")]
    NotJoined(u64),
    /// The point belongs to another capture.
    #[error("the point belongs to another capture")]
    OtherCapture,
    /// Work on a lane that nothing of the origin comes after. Told at the end, which ends the capture all the same.
    #[error("the work on lane {0} was not joined")]
    Unjoined(u64),
    /// More than 2^32 - 1 nodes or dependencies. It invalidates the capture.
    #[error("a graph has room for 2^32 - 1 nodes")]
    TooLarge,
}

#[derive(Debug)]
struct Lane {
    name: u64,
    /// What the next node comes after: at most one node of each lane, the latest.
    heads: Vec<u32>,
}

/// Records one capture.
#[derive(Debug)]
pub struct Recorder<W, E = Refusal> {
    id: u64,
    program: Program<W>,
    lanes: Vec<Lane>,
    /// Heads of each point, as ranges of `snapshots`.
    points: Vec<(u32, u32)>,
    snapshots: Vec<u32>,
    fault: Option<E>,
}

impl<W, E: Clone> Recorder<W, E> {
    /// A capture that begins on the lane `origin`. Its `id` is unlike that of any other capture.
    pub fn new(id: u64, origin: u64) -> Self {
        Self {
            id,
            program: Program { nodes: Vec::new(), edges: Vec::new(), lanes: vec![origin], ends: Vec::new() },
            lanes: vec![Lane { name: origin, heads: Vec::new() }],
            points: Vec::new(),
            snapshots: Vec::new(),
            fault: None,
        }
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many nodes were recorded.
    pub fn len(&self) -> usize {
        self.program.nodes.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.program.nodes.is_empty()
    }

    /// Whether a lane takes part.
    pub fn takes_part(&self, lane: u64) -> bool {
        self.find(lane).is_ok()
    }

    fn find(&self, name: u64) -> Result<usize, Refusal> {
        self.lanes.iter().position(|lane| lane.name == name).ok_or(Refusal::NotJoined(name))
    }

    /// What invalidated the capture, if anything did.
    pub fn fault(&self) -> Option<&E> {
        self.fault.as_ref()
    }

    /// Invalidates the capture; of several errors the first is kept.
    pub fn invalidate(&mut self, error: E) {
        self.fault.get_or_insert(error);
    }

    /// Records a node on a lane and returns its number.
    ///
    /// # Errors
    /// [`Refusal::NotJoined`], [`Refusal::TooLarge`].
    #[inline]
    pub fn record(&mut self, lane: u64, work: W) -> Result<u32, Refusal> {
        let at = if self.lanes[0].name == lane { 0 } else { self.find(lane)? };
        let (number, start) = (self.program.nodes.len(), self.program.edges.len());
        let heads = &mut self.lanes[at].heads;
        let (Ok(number), Ok(start), Ok(end)) =
            (u32::try_from(number), u32::try_from(start), u32::try_from(start + heads.len()))
        else {
            return Err(Refusal::TooLarge);
        };
        if heads.len() > 1 {
            heads.sort_unstable();
        }
        self.program.edges.extend_from_slice(heads);
        heads.clear();
        heads.push(number);
        self.program.nodes.push(Node { work, lane: at as u32, after: start..end });
        Ok(number)
    }

    /// The point behind everything recorded on a lane.
    ///
    /// # Errors
    /// [`Refusal::NotJoined`], [`Refusal::TooLarge`].
    pub fn point(&mut self, lane: u64) -> Result<Point, Refusal> {
        let at = self.find(lane)?;
        let heads = &self.lanes[at].heads;
        let start = u32::try_from(self.snapshots.len()).map_err(|_| Refusal::TooLarge)?;
        let end = u32::try_from(self.snapshots.len() + heads.len()).map_err(|_| Refusal::TooLarge)?;
        self.snapshots.extend_from_slice(heads);
        self.points.push((start, end));
        Ok(Point { capture: self.id, number: self.points.len() as u64 - 1 })
    }

    /// Makes what comes next on a lane come after a point. A lane that takes no part joins; then this says true.
    ///
    /// # Errors
    /// [`Refusal::OtherCapture`], also for a point that was never made.
    pub fn wait(&mut self, lane: u64, point: Point) -> Result<bool, Refusal> {
        let heads = match usize::try_from(point.number).ok().and_then(|number| self.points.get(number)) {
            Some(&(start, end)) if point.capture == self.id => start as usize..end as usize,
            _ => return Err(Refusal::OtherCapture),
        };
        let (at, joins) = match self.find(lane) {
            Ok(at) => (at, false),
            Err(_) => {
                self.lanes.push(Lane { name: lane, heads: Vec::new() });
                self.program.lanes.push(lane);
                (self.lanes.len() - 1, true)
            }
        };
        for at_snapshot in heads {
            let node = self.snapshots[at_snapshot];
            self.add_head(at, node);
        }
        Ok(joins)
    }

    /// Adds a node to a lane's heads, unless one of the same lane that came after it is there.
    fn add_head(&mut self, at: usize, node: u32) {
        let nodes = &self.program.nodes;
        let of = nodes[node as usize].lane;
        let heads = &mut self.lanes[at].heads;
        match heads.iter_mut().find(|head| nodes[**head as usize].lane == of) {
            Some(head) => *head = node.max(*head),
            None => heads.push(node),
        }
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// What invalidated it, else `refused` of [`Refusal::Unjoined`].
    pub fn finish(mut self, refused: impl FnOnce(Refusal) -> E) -> Result<Program<W>, E> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut ends = std::mem::take(&mut self.lanes[0].heads);
        ends.sort_unstable();
        self.program.ends = ends;
        match self.program.unjoined() {
            Some(node) => {
                let lane = self.program.nodes[node as usize].lane;
                Err(refused(Refusal::Unjoined(self.program.lanes[lane as usize])))
            }
            None => Ok(self.program.reduced()),
        }
    }
}

impl<W> Program<W> {
    /// A node that no end comes after, if there is one.
    fn unjoined(&self) -> Option<u32> {
        let mut joined = vec![false; self.nodes.len()];
        for &end in &self.ends {
            joined[end as usize] = true;
        }
        for node in (0..self.nodes.len() as u32).rev() {
            if !joined[node as usize] {
                return Some(node);
            }
            for &before in self.after(node) {
                joined[before as usize] = true;
            }
        }
        None
    }
}
