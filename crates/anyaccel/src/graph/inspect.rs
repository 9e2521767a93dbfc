//! Looking at what was captured: nodes, and the Graphviz document.

use super::{Graph, GraphError, State};
use crate::error::Result;
use anyaccel_engine::graph::{Call, Dot, Work as _};
use std::path::Path;

/// A node of a captured graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphNode {
    /// `copy`, `upload`, `download`, `fill`, `write`, `host function`, `kernel`, or a built-in's name.
    pub operation: String,
    /// Bytes that it goes through, where that is known.
    pub bytes: Option<u64>,
    /// The stream that it was captured on: device and id.
    pub stream: (crate::Device, u64),
    /// The nodes that it comes after, by number.
    pub after: Vec<usize>,
}

impl Graph {
    /// Its nodes, each after those that it depends on. Neighbouring copies, fills and writes of one buffer that nothing
    /// can tell apart from one are one.
    ///
    /// # Errors
    /// [`GraphError::NotCaptured`], [`GraphError::StillCapturing`].
    pub fn nodes(&self) -> Result<Vec<GraphNode>> {
        let state = self.0.state("Graph.nodes")?;
        state.step("nodes", Call::Inspect)?;
        let Some(captured) = &state.captured else { return Err(GraphError::NotCaptured { call: "nodes" }.into()) };
        let (program, lanes) = (&captured.program, &captured.lanes);
        let node = |(at, node): (usize, &anyaccel_engine::graph::Node<super::Work>)| {
            let lane = &lanes[node.lane as usize].0;
            GraphNode {
                operation: node.work.name().to_owned(),
                bytes: node.work.bytes(),
                stream: (lane.device, lane.id),
                after: program.after(at as u32).iter().map(|&before| before as usize).collect(),
            }
        };
        Ok(program.nodes().iter().enumerate().map(node).collect())
    }

    /// Allows [`Graph::debug_dump`].
    pub fn enable_debug_mode(&self) {
        self.0.look(|state| state.debug = true);
    }

    /// Writes the graph to a file in Graphviz' DOT language: a box for each node with operation, size and stream, an arrow
    /// for each dependency. `dot -Tsvg` draws it. Where the graph was instantiated as one of the driver's own and that draws
    /// its graphs, as CUDA does, the driver's drawing follows in the same file; `dot -Tsvg -O` draws both.
    ///
    /// # Errors
    /// [`GraphError::NoDebug`] without [`Graph::enable_debug_mode`]; [`GraphError::NotCaptured`],
    /// [`GraphError::StillCapturing`]; [`GraphError::Dump`] for a path that can't be written.
    pub fn debug_dump(&self, path: impl AsRef<Path>) -> Result<()> {
        let text = {
            let state = self.0.state("Graph.debug_dump")?;
            if !state.debug {
                return Err(GraphError::NoDebug.into());
            }
            state.step("debug_dump", Call::Inspect)?;
            state.dot()
        };
        let path = path.as_ref();
        std::fs::write(path, text)
            .map_err(|cause| GraphError::Dump { path: path.display().to_string(), cause: cause.to_string() }.into())
    }
}

impl State {
    fn dot(&self) -> String {
        let Some(captured) = &self.captured else { return String::new() };
        let several = captured.pools.len() > 1;
        let name = |lane: &crate::lane::Lane| {
            if several { format!("stream {} of {}", lane.id, lane.device) } else { format!("stream {}", lane.id) }
        };
        let streams: Vec<String> = captured.lanes.iter().map(|(lane, _)| name(lane)).collect();
        let mut text = Dot::new(&captured.program, "anyaccel graph", &streams).to_string();
        if let Some(drawn) = captured.exec.as_ref().and_then(|exec| captured.port.drawn(exec)) {
            text.push_str(&drawn);
        }
        text
    }
}
