//! What the devices of a driver share: objects by their handles, the contexts, the threads; and its end.
//!
//! # Protocol
//!
//! The machine goes with the last device. Nobody can call it then, but commands may still run or wait: for gates that
//! nobody will open, for functions whose turn can't come. So the end opens all gates, cancels the functions that wait,
//! and hands everything that OpenCL could still be using to a thread of [`Calls`], which waits for the queues and then
//! gives it back (H25). The thread is not waited for. A driver without streams gives everything back at once.

use crate::gate::Gate;
use crate::graph::Graph;
use crate::host_call::Calls;
use crate::kernel::Loaded;
use crate::memory::{Addresses, Block};
use crate::object::Event;
use crate::part::Part;
use crate::stream::Stream;
use anyaccel_kit::Slab;
use std::fmt;
use std::sync::Arc;

/// Shared by the devices of a driver.
pub(crate) struct Machine {
    pub(crate) parts: Vec<Arc<Part>>,
    pub(crate) streams: Slab<Arc<Stream>>,
    pub(crate) memory: Slab<Block>,
    pub(crate) stamps: Slab<Event>,
    pub(crate) gates: Slab<Arc<Gate>>,
    pub(crate) kernels: Slab<Loaded>,
    pub(crate) graphs: Slab<Graph>,
    pub(crate) addresses: Addresses,
    pub(crate) calls: Arc<Calls>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("devices", &self.parts.len()).finish_non_exhaustive()
    }
}

impl Machine {
    pub(crate) fn new(parts: Vec<Arc<Part>>) -> Self {
        Self {
            parts,
            streams: Slab::new(),
            memory: Slab::new(),
            stamps: Slab::new(),
            gates: Slab::new(),
            kernels: Slab::new(),
            graphs: Slab::new(),
            addresses: Addresses::new(),
            calls: Arc::new(Calls::new()),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for gate in self.gates.snapshot() {
            gate.open_for_good();
        }
        let streams = std::mem::take(&mut self.streams);
        let all = streams.snapshot();
        let left = (
            streams,
            std::mem::take(&mut self.memory),
            std::mem::take(&mut self.graphs),
            std::mem::take(&mut self.kernels),
            std::mem::take(&mut self.stamps),
            std::mem::take(&mut self.gates),
            std::mem::take(&mut self.parts),
        );
        if all.is_empty() || self.calls.ensure_thread().is_err() {
            if all.is_empty() {
                drop(left);
            } else {
                // Work may be under way, and there is nobody to wait for it.
                std::mem::forget(left);
            }
            self.calls.close(None);
            return;
        }
        self.calls.close(Some(Box::new(move || {
            for stream in &all {
                // A fault of work that nobody asks for any more.
                let _ended = stream.queue.finish();
            }
            drop(all);
            drop(left);
        })));
    }
}
