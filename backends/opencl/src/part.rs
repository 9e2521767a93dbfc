//! One device's share of the driver: its facts, the context that it shares with its platform's other devices, how much
//! of its memory is taken, and a queue for calls that have to wait.

use crate::builtin::Builtins;
use crate::graph::Copier;
use crate::info::Facts;
use crate::object::{Context, Queue};
use crate::sys::Api;
use anyaccel_hal::{Fault, FaultKind};
use anyaccel_kit::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a device and all that was made of it keep.
pub(crate) struct Part {
    pub(crate) facts: Facts,
    pub(crate) context: Arc<Context>,
    /// Which context that is, among those of the driver.
    pub(crate) group: usize,
    /// Its place among the devices of the context.
    pub(crate) member: usize,
    pub(crate) builtins: Builtins,
    pub(crate) copier: Copier,
    /// Bytes that were given out.
    taken: AtomicU64,
    /// Made when first needed.
    own: Mutex<Option<Arc<Queue>>>,
}

impl Part {
    pub(crate) fn new(mut facts: Facts, context: Arc<Context>, group: usize, member: usize) -> Self {
        let builtins = Builtins::new(facts.id, facts.version);
        facts.info.dtypes = builtins.dtypes();
        Self {
            facts,
            builtins,
            copier: Copier::default(),
            context,
            group,
            member,
            taken: AtomicU64::new(0),
            own: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn api(&self) -> &'static Api {
        self.context.api()
    }

    /// A queue that no stream uses.
    pub(crate) fn own_queue(&self) -> Result<Arc<Queue>, Fault> {
        let mut own = self.own.lock();
        if let Some(queue) = &*own {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(self.context.queue(self.facts.id.raw, 0)?);
        *own = Some(Arc::clone(&queue));
        Ok(queue)
    }

    /// Takes note of `len` bytes. What the device has is enforced here: drivers for CPUs give out more.
    pub(crate) fn charge(&self, len: u64) -> Result<(), Fault> {
        let total = self.facts.info.memory;
        let more = |taken: u64| taken.checked_add(len).filter(|&sum| sum <= total);
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(()),
            Err(taken) => {
                let note = format!("{len} bytes, {taken} of {total} taken");
                Err(Fault::new(FaultKind::OutOfMemory, "alloc").note(note))
            }
        }
    }

    pub(crate) fn discharge(&self, len: u64) {
        self.taken.fetch_sub(len, Ordering::AcqRel);
    }
}
