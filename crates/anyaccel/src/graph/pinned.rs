//! Who may look at pinned memory that a graph's replays use.
//!
//! # Protocol
//!
//! A graph and the pinned buffers that it uses share one [`Replays`]. While the graph is alive a replay can begin at any
//! time, so plain views, which the borrow checker can't tie to it, are refused; [`Replays::view`] lends one instead: it
//! counts itself as a viewer, waits for the last replay, and no replay begins while there are viewers. Once the graph is
//! gone nothing can begin any more, and its last replay is waited for like any copy.

use super::error::GraphError;
use crate::error::{Error, Result};
use crate::lane::LaneRef;
use crate::port::Port;
use anyaccel_hal::{GraphExec, Until, WaitMode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A point that a replay has passed when it has ended.
#[derive(Clone)]
pub(crate) struct Passed {
    pub(crate) port: Arc<Port>,
    pub(crate) lane: LaneRef,
    /// The mark behind it. `None` where the backend orders the graph's replays and nobody is to need it: a mark that is made
    /// later ends later than the replay.
    pub(crate) mark: Option<u64>,
    /// The native graph that it was a replay of.
    pub(crate) exec: Option<GraphExec>,
}

impl Passed {
    /// A mark that ends with the replay, or after it: behind everything that its lane has by now.
    pub(crate) fn mark(&self, call: &'static str) -> Result<u64> {
        match self.mark {
            Some(mark) => Ok(mark),
            None => self.port.mark(call, &self.lane),
        }
    }
}

#[derive(Default)]
struct State {
    gone: bool,
    viewers: u32,
    last: Option<Passed>,
}

/// The replays of one graph, as far as its pinned memory is concerned.
#[derive(Default)]
pub(crate) struct Replays(Mutex<State>);

impl Replays {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a replay, unless pinned memory is being viewed. `enqueue` gets the replay before and says when its own has
    /// ended; it calls no user code.
    pub(crate) fn replay(&self, enqueue: impl FnOnce(Option<&Passed>) -> Result<Passed>) -> Result<()> {
        let mut state = self.lock();
        if state.viewers > 0 {
            return Err(GraphError::Viewed.into());
        }
        let passed = enqueue(state.last.as_ref())?;
        let before = state.last.replace(passed);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Refuses a replay while pinned memory is viewed, before anything is drawn for it.
    pub(crate) fn not_viewed(&self) -> Result<()> {
        if self.lock().viewers > 0 { Err(GraphError::Viewed.into()) } else { Ok(()) }
    }

    /// The graph is gone. Returns its last replay.
    pub(crate) fn end(&self) -> Option<Passed> {
        let mut state = self.lock();
        state.gone = true;
        state.last.clone()
    }

    /// Where the last replay ends.
    pub(crate) fn last(&self) -> Option<Passed> {
        self.lock().last.clone()
    }

    /// Whether a replay can begin at any time.
    pub(crate) fn may_begin(&self) -> bool {
        !self.lock().gone
    }

    /// Keeps replays from beginning until what it returns is dropped.
    pub(crate) fn view(self: &Arc<Self>) -> Viewing {
        self.lock().viewers += 1;
        Viewing(Arc::clone(self))
    }

    /// Waits for the last replay.
    pub(crate) fn wait(&self, call: &'static str) -> Result<()> {
        let Some(last) = self.last() else { return Ok(()) };
        let waited = last
            .mark(call)
            .and_then(|mark| last.port.wait_host(call, &last.lane, Until::Mark(mark), None, WaitMode::Auto));
        match waited {
            // A lost device has let go of all memory (H20).
            Ok(_) | Err(Error::DeviceLost { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A view of pinned memory.
pub(crate) struct Viewing(Arc<Replays>);

impl Drop for Viewing {
    fn drop(&mut self) {
        self.0.lock().viewers -= 1;
    }
}
