//! What the devices of one started driver share: the crew, the objects behind handles, and their end.

use crate::crew::Crew;
use crate::gate::GateState;
use crate::graph::Exec;
use crate::memory::{Budget, Memory};
use crate::stamp::StampCell;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::virtual_memory::Reservation;
use anyaccel_hal::HostKernel;
use anyaccel_kit::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The shared part of a driver's devices. Dropped with the last of them (H25).
pub(crate) struct Machine {
    pub(crate) crew: Arc<Crew>,
    pub(crate) epoch: Instant,
    pub(crate) streams: Slab<Arc<Stream>>,
    pub(crate) stamps: Slab<Arc<StampCell>>,
    pub(crate) kernels: Slab<Arc<HostKernel>>,
    pub(crate) gates: Slab<Arc<GateState>>,
    pub(crate) graphs: Slab<Arc<Exec>>,
    /// Host memory that was registered: its length by its address.
    pub(crate) registered: Mutex<BTreeMap<u64, u64>>,
    budgets: Vec<Arc<Budget>>,
    holdings: Arc<Holdings>,
}

/// Memory that threads of the crew may be working on: they keep it until they have ended.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) memory: Slab<Memory>,
    pub(crate) ranges: Slab<Reservation>,
}

impl Machine {
    /// `devices` devices with `memory` bytes each. Starts no thread.
    pub(crate) fn new(devices: u32, memory: u64, workers: usize, levels: usize) -> Self {
        let holdings = Arc::new(Holdings::default());
        Self {
            crew: Arc::new(Crew::new(workers, levels, Arc::clone(&holdings))),
            epoch: Instant::now(),
            streams: Slab::new(),
            stamps: Slab::new(),
            kernels: Slab::new(),
            gates: Slab::new(),
            graphs: Slab::new(),
            registered: Mutex::new(BTreeMap::new()),
            holdings,
            budgets: (0..devices).map(|_| Arc::new(Budget::new(memory))).collect(),
        }
    }

    pub(crate) fn memory(&self) -> &Slab<Memory> {
        &self.holdings.memory
    }

    pub(crate) fn ranges(&self) -> &Slab<Reservation> {
        &self.holdings.ranges
    }

    pub(crate) fn devices(&self) -> u32 {
        self.budgets.len() as u32
    }

    pub(crate) fn budget(&self, ordinal: u32) -> &Arc<Budget> {
        &self.budgets[ordinal as usize]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.crew.close(self.streams.snapshot());
    }
}
