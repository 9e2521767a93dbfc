//! What the devices of a driver share: the objects behind handles, and their end (H25).

use crate::gate::Gate;
use crate::graph::Graph;
use crate::host_call::{Job, run};
use crate::kernel::Loaded;
use crate::memory::Memory;
use crate::returns::Returns;
use crate::stream::{Event, Stream};
use crate::sys::Cuda;
use crate::virtual_memory::Reservation;
use anyaccel_hal::Mem;
use anyaccel_kit::{CallbackConfig, Callbacks, Mutex, Slab};
use std::sync::Arc;

/// A point whose time is kept.
pub(crate) struct StampEvent {
    pub(crate) event: Event,
}

pub(crate) struct Machine {
    pub(crate) cuda: &'static Cuda,
    pub(crate) callbacks: Arc<Callbacks<Job>>,
    pub(crate) memory: Slab<Memory>,
    pub(crate) streams: Slab<Arc<Stream>>,
    pub(crate) stamps: Slab<StampEvent>,
    pub(crate) kernels: Slab<Arc<Loaded>>,
    pub(crate) gates: Slab<Arc<Gate>>,
    pub(crate) graphs: Slab<Arc<Graph>>,
    pub(crate) events: Slab<Event>,
    pub(crate) ranges: Slab<(Arc<Reservation>, Mem)>,
    /// The last: what all others give back has been handed over then.
    pub(crate) opened: Opened,
}

/// The contexts that a driver retained.
#[derive(Default)]
pub(crate) struct Opened(Mutex<Vec<Arc<Returns>>>);

impl Opened {
    pub(crate) fn add(&self, returns: &Arc<Returns>) {
        self.0.lock().push(Arc::clone(returns));
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.lock().iter().for_each(|returns| returns.settle());
    }
}

impl Machine {
    pub(crate) fn new(cuda: &'static Cuda) -> Self {
        Self {
            cuda,
            callbacks: Arc::new(Callbacks::new(CallbackConfig::named("anyaccel-cuda"), run)),
            memory: Slab::new(),
            streams: Slab::new(),
            stamps: Slab::new(),
            kernels: Slab::new(),
            gates: Slab::new(),
            graphs: Slab::new(),
            events: Slab::new(),
            ranges: Slab::new(),
            opened: Opened::default(),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What was held up goes on, so that the driver can finish it.
        for gate in self.gates.snapshot() {
            gate.open();
        }
        for stream in self.streams.snapshot() {
            let context = &stream.context;
            context.cancel_functions();
            // What its work may still use is given back behind it.
            if let Ok(_current) = context.enter() {
                stream.leave();
            }
        }
        self.callbacks.finish();
    }
}
