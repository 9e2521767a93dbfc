//! What the devices of a driver share: the objects behind handles, and their end (H25).

use crate::builtin::Builtins;
use crate::gate::Gate;
use crate::graph::Graph;
use crate::host_call::{Job, run};
use crate::kernel::Loaded;
use crate::memory::Memory;
use crate::platform::Stamped;
use crate::stream::Stream;
use crate::virtual_memory::Reservation;
use crate::watch::Watch;
use anyaccel_hal::Mem;
use anyaccel_kit::{CallbackConfig, Callbacks, Mutex, Slab, spin};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a machine looks whether work that is about to end has ended, so that its memory can be given back. It
/// does not wait for the device beyond that (H25).
const GRACE: Duration = Duration::from_millis(20);

pub(crate) struct Machine {
    pub(crate) callbacks: Arc<Callbacks<Job>>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) memory: Slab<Memory>,
    pub(crate) streams: Slab<Arc<Stream>>,
    pub(crate) stamps: Slab<Stamped>,
    pub(crate) kernels: Slab<Arc<Loaded>>,
    pub(crate) gates: Slab<Arc<Gate>>,
    pub(crate) graphs: Slab<Arc<Graph>>,
    pub(crate) ranges: Slab<(Arc<Reservation>, Mem)>,
    /// Those of opened devices: they go after the streams, never before.
    builtins: Mutex<Vec<Arc<Builtins>>>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            callbacks: Arc::new(Callbacks::new(CallbackConfig::named("anyaccel-xpu"), run)),
            watch: Watch::new(),
            memory: Slab::new(),
            streams: Slab::new(),
            stamps: Slab::new(),
            kernels: Slab::new(),
            gates: Slab::new(),
            graphs: Slab::new(),
            ranges: Slab::new(),
            builtins: Mutex::new(Vec::new()),
        }
    }

    /// A device was opened that launches these.
    pub(crate) fn keep(&self, builtins: &Arc<Builtins>) {
        self.builtins.lock().push(Arc::clone(builtins));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What was held up goes on, so that the driver can finish it.
        for gate in self.gates.snapshot() {
            // It fails on a device that is lost, where nothing waits.
            let _open = gate.open();
        }
        let streams = self.streams.snapshot();
        for stream in &streams {
            stream.context.cancel_functions();
        }
        let until = Instant::now() + GRACE;
        for stream in &streams {
            let left = until.saturating_duration_since(Instant::now());
            let _settled = spin(left, || stream.context.is_lost() || stream.idle());
            // What work may still use is not given back.
            if !stream.idle() {
                stream.context.platform.leave_busy();
            }
        }
        self.callbacks.finish();
        self.watch.close();
    }
}
