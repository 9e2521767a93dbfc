//! A turn of a lane as a graph: captured once, replayed for every chunk.
//!
//! A chunk is cut in two; one stream copies the halves, the lane's own counts them, so that the second half is copied
//! while the first is counted:
//!
//! ```text
//! copies   upload 1 ──► upload 2
//!              │            │
//! counts       ▼            ▼
//!          histogram 1 ► histogram 2
//! ```

use super::pipeline::RESULT;
use crate::output::Failure;
use anyaccel::{Buffer, Error, Graph, GraphOptions, PinnedBuffer, Runtime, Stream};

/// The graph of a lane.
pub(super) struct Captured {
    graph: Graph,
    /// How often it was replayed.
    pub(super) replays: u64,
}

impl Captured {
    /// Captures a turn over whole chunks. `counts` is where the lane adds up.
    pub(super) fn new(
        runtime: &Runtime,
        stream: &Stream,
        host: &PinnedBuffer,
        device: &Buffer,
        counts: &Buffer,
        at: u64,
    ) -> Result<Self, Failure> {
        let graph = runtime.graph(GraphOptions::default());
        let copies = runtime.stream(())?;
        let (len, result) = (device.len(), counts.slice(at..at + RESULT)?);
        let half = len.div_ceil(2).next_multiple_of(64).min(len);
        let _current = stream.enter()?;
        graph.capture(|| -> Result<(), Error> {
            copies.wait_stream(stream)?;
            for part in [0..half, half..len] {
                if part.is_empty() {
                    continue;
                }
                let chunk = device.slice(part.clone())?;
                copies.upload_pinned(&chunk, host, part.start as usize)?;
                stream.wait_stream(&copies)?;
                stream.histogram(&result, &chunk)?;
            }
            Ok(())
        })?;
        graph.enable_debug_mode();
        Ok(Self { graph, replays: 0 })
    }

    /// Runs a turn.
    pub(super) fn replay(&mut self, stream: &Stream) -> Result<(), Failure> {
        let _current = stream.enter()?;
        self.graph.replay()?;
        self.replays += 1;
        Ok(())
    }

    /// How many nodes it has.
    pub(super) fn nodes(&self) -> Result<usize, Failure> {
        Ok(self.graph.nodes()?.len())
    }

    /// Writes it in Graphviz' language.
    pub(super) fn dump(&self, path: &std::path::Path) -> Result<(), Failure> {
        Ok(self.graph.debug_dump(path)?)
    }
}
