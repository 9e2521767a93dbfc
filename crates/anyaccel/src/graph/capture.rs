//! The scope of a capture, which restores everything on every exit.

use super::{BeforeReplay, Graph, GraphError};
use crate::buffer::BufferSlice;
use crate::error::{Error, Result};
use crate::guard::StreamGuard;
use anyaccel_hal::Written;
use std::fmt;

/// A capture under way, from [`Graph::scope`]. Dropped without [`Capture::end`], by an early return or a panic, it leaves
/// the capture without a graph. Either way allocator, pinned memory, current device and streams are as they were before.
#[must_use = "dropping it gives the capture up"]
pub struct Capture<'a> {
    graph: &'a Graph,
    /// What was current when it began.
    current: Option<StreamGuard>,
    open: bool,
}

impl fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("graph", &self.graph).finish_non_exhaustive()
    }
}

impl Graph {
    /// Begins a capture that ends with [`Capture::end`], and is given up when the scope is left otherwise. Waits for the
    /// device and empties both caches first, unless this thread captures already. May start the runtime.
    ///
    /// # Errors
    /// Those of [`Graph::capture_begin`] and of synchronizing.
    pub fn scope(&self) -> Result<Capture<'_>> {
        let runtime = &self.0.runtime;
        let current = runtime.current_stream(())?;
        if runtime.may_wait("Graph.scope").is_ok() {
            runtime.synchronize(())?;
            runtime.empty_cache()?;
            runtime.empty_host_cache()?;
        }
        let current = current.enter()?;
        self.capture_begin()?;
        Ok(Capture { graph: self, current: Some(current), open: true })
    }

    /// Captures what `body` enqueues. If it fails or panics the capture is given up and its error is the one that is
    /// returned, whatever follows from it.
    ///
    /// ```
    /// use anyaccel::{Error, GraphError, GraphOptions};
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// let stream = runtime.current_stream(())?;
    /// let graph = runtime.graph(GraphOptions::default());
    /// let failed = graph.capture(|| stream.synchronize());
    /// assert!(matches!(failed, Err(Error::Graph(GraphError::Waits { .. }))));
    /// assert!(!stream.is_capturing()?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The body's; those of [`Graph::scope`] and [`Graph::capture_end`].
    pub fn capture<T, E: From<Error>>(&self, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let scope = self.scope()?;
        let made = body()?;
        scope.end()?;
        Ok(made)
    }

    /// Inside a capture: before each replay, in its order, writes to `dst` what `bytes` puts into a zeroed buffer of its
    /// length, at most 64 bytes. The function runs on the replaying thread and must not call the runtime. This is how a
    /// replay gets a counter or a step size of its own. The buffer was allocated outside of the capture.
    ///
    /// # Errors
    /// [`GraphError::NotCapturing`]; [`GraphError::CellInside`]; [`Error::Length`] for more than 64 bytes;
    /// [`Error::ForeignRuntime`], [`Error::ForeignDevice`].
    pub fn before_replay(
        &self,
        dst: &BufferSlice<'_>,
        mut bytes: impl FnMut(&mut [u8]) + Send + 'static,
    ) -> Result<()> {
        let state = self.0.state("Graph.before_replay")?;
        let Some(recording) = state.recording.clone() else { return Err(GraphError::NotCapturing.into()) };
        drop(state);
        if dst.len() > Written::MAX as u64 {
            return Err(Error::Length {
                what: "before_replay (at most)",
                expected: Written::MAX as u64,
                got: dst.len(),
            });
        }
        if !dst.buffer().runtime().same(&self.0.runtime) {
            return Err(Error::ForeignRuntime { what: "buffer" });
        }
        let Some(part) = dst.part()? else { return Ok(()) };
        let port = std::sync::Arc::clone(&part.block.port);
        if !std::sync::Arc::ptr_eq(&port, &recording.port) {
            let (given, wanted) = (port.device, recording.port.device);
            return Err(Error::ForeignDevice { what: "buffer", given, wanted });
        }
        if part.block.pool == Some(recording.pool) {
            return Err(GraphError::CellInside.into());
        }
        recording.keep_block(&port, &recording.origin, part.block)?;
        recording.before_replay(BeforeReplay::new(&part, move |room| {
            bytes(room);
            Ok(())
        }))
    }
}

impl Capture<'_> {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// Ends the capture well.
    ///
    /// # Errors
    /// Those of [`Graph::capture_end`] after which the capture has ended.
    pub fn end(mut self) -> Result<()> {
        self.open = false;
        let ended = self.graph.end();
        drop(self.current.take());
        ended
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.open {
            self.graph.abort();
        }
    }
}
