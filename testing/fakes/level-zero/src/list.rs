//! Command lists: immediate ones, which run what is appended at once, and those that are closed, then executed.

use crate::abi::*;
use crate::call::{Registry, Result, array, lock};
use crate::device::Device;
use crate::device_calls::ENGINES;
use crate::event;
use crate::graph::Capture;
use crate::lane::{Command, Lane, Order};
use crate::memory;
use crate::work::Work;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Commands that are collected.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) commands: Vec<Command>,
    pub(crate) closed: bool,
}

pub(crate) enum Kind {
    Immediate {
        lane: Arc<Lane>,
        waits: bool,
        /// Where commands go instead while the list is recorded.
        capture: Mutex<Option<Arc<Capture>>>,
    },
    Regular {
        recorded: Mutex<Recorded>,
        /// Its commands that are not over.
        pending: Arc<AtomicU32>,
    },
}

pub(crate) struct List {
    pub(crate) handle: Handle,
    pub(crate) context: Handle,
    pub(crate) device: &'static Device,
    /// The group of engines.
    pub(crate) group: usize,
    pub(crate) in_order: bool,
    pub(crate) kind: Kind,
}

pub(crate) static LISTS: Registry<List> = Registry::new(0x0057_0000_0000);

/// A list whose device lives.
pub(crate) fn live(handle: Handle) -> Result<Arc<List>> {
    let list = LISTS.get(handle)?;
    crate::control::alive(list.device.card)?;
    Ok(list)
}

/// A list that takes kernels.
pub(crate) fn computing(handle: Handle) -> Result<Arc<List>> {
    let list = live(handle)?;
    match ENGINES[list.group].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE {
        0 => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        _ => Ok(list),
    }
}

/// What a command waits for, what it signals, and what may go on around it.
pub(crate) struct Sync<'a> {
    signal: Handle,
    waits: &'a [Handle],
    order: Order,
}

impl<'a> Sync<'a> {
    /// As every function that appends takes it.
    ///
    /// # Safety
    /// `waits` is null or has so many handles, while the call runs.
    pub(crate) unsafe fn new(signal: Handle, count: u32, waits: *const Handle) -> Result<Self> {
        // SAFETY: this function's contract.
        let waits = unsafe { array(waits, count) }.map_err(|_| ZE_RESULT_ERROR_INVALID_SIZE)?;
        Ok(Self { signal, waits, order: Order::Free })
    }

    pub(crate) fn none() -> Self {
        Self { signal: 0, waits: &[], order: Order::Free }
    }

    pub(crate) fn with(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

impl List {
    /// Appends a command.
    pub(crate) fn append(&self, work: Work, sync: Sync<'_>) -> Result {
        let signal = event::to_signal(sync.signal, self.context, self.device)?;
        let waits = event::usable(sync.waits, self.context, self.device)?;
        let order = if self.in_order { Order::Barrier } else { sync.order };
        let command = Command { work, order, signal, waits, of: None };
        match &self.kind {
            Kind::Immediate { lane, waits, capture } => {
                let taken = crate::graph::take(self, capture, command)?;
                let Some(command) = taken else { return Ok(()) };
                lane.push([command])?;
                if *waits {
                    lane.wait(FOREVER)?;
                }
                Ok(())
            }
            Kind::Regular { recorded, pending } => {
                let mut recorded = lock(recorded);
                if recorded.closed {
                    return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
                }
                recorded.commands.push(Command { of: Some(Arc::clone(pending)), ..command });
                Ok(())
            }
        }
    }

    /// Checks a range that a command will touch: memory of this context that the device reaches, or a host's.
    pub(crate) fn check(&self, at: u64, len: u64, writes: bool) -> Result {
        if at == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let memory = memory::read();
        let ours = memory.find(at).is_none_or(|(_, block)| [self.context, memory::ANY].contains(&block.context));
        let usable = ours && memory.usable(at, len, self.device, writes, true);
        if usable { Ok(()) } else { Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) }
    }

    pub(crate) fn idle(&self) -> bool {
        match &self.kind {
            Kind::Immediate { lane, .. } => lane.idle(),
            Kind::Regular { pending, .. } => pending.load(Ordering::Acquire) == 0,
        }
    }

    /// What a queue is to run, each list behind what came before.
    pub(crate) fn executable(&self) -> Result<Vec<Command>> {
        let Kind::Regular { recorded, .. } = &self.kind else { return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE) };
        let recorded = lock(recorded);
        if !recorded.closed {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let barrier = Command { work: Work::Nothing, order: Order::Barrier, signal: None, waits: Vec::new(), of: None };
        Ok([barrier].into_iter().chain(recorded.commands.iter().cloned()).collect())
    }
}
