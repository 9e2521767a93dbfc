//! Cells: a few bytes of device memory that are written anew before each replay.
//!
//! This is how what differs from replay to replay gets into a graph: counters and step sizes of the user's, and where a
//! random fill begins in its generator's sequence. A cell lies outside of the capture's pool: the pool's memory is used
//! again inside the capture, so a node before the cell's first use could write it.

use super::work::Spot;
use crate::error::{Error, Result, panic_message};
use crate::local;
use crate::port::{Block, Part};
use anyaccel_hal::Written;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Ask = Box<dyn FnMut(&mut [u8]) -> Result<()> + Send>;

/// A cell, and what its bytes are to be.
pub(crate) struct BeforeReplay {
    pub(super) spot: Spot,
    len: usize,
    ask: Ask,
    _block: Arc<Block>,
}

impl BeforeReplay {
    /// A cell of at most 64 bytes.
    pub(crate) fn new(part: &Part<'_>, ask: impl FnMut(&mut [u8]) -> Result<()> + Send + 'static) -> Self {
        Self { spot: Spot::of(part), len: part.len as usize, ask: Box::new(ask), _block: Arc::clone(part.block) }
    }

    /// What is to be written before this replay.
    pub(super) fn ask(&mut self) -> Result<Written> {
        let mut room = [0; Written::MAX];
        let Self { len, ask, .. } = self;
        let (bytes, _) = room.split_at_mut((*len).min(Written::MAX));
        let asked = AssertUnwindSafe(|| ask(bytes));
        // As a host function: under the graph's lock it must not call the runtime.
        let what = "A function called before a replay";
        local::as_host_fn(|| catch_unwind(asked))
            .map_err(|payload| Error::Panicked { what, message: panic_message(&*payload) })??;
        let expected = Written::MAX as u64;
        Written::new(bytes).ok_or(Error::Length { what: "a cell (at most)", expected, got: *len as u64 })
    }
}
