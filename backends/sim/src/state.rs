//! The state of a simulation, and the one lock around it.
//!
//! # Protocol
//!
//! - All state of a driver and its devices is in [`State`], under one mutex. Whoever holds it may touch everything.
//! - Code of users (host functions, host kernels, their destructors) never runs under it. A stream whose first operation
//!   runs such code is `running`: until it ends, nobody else runs work of that stream; all else goes on.
//! - What must be dropped without the lock goes to the [`Bin`], which [`Held`] empties after it has unlocked.
//! - `changed` is signalled after every change that could let a sleeping waiter go on. A thread sleeps on it only with
//!   nothing left to run that it may run.

use crate::clock::Costs;
use crate::config::{DeviceConfig, SimConfig};
use crate::counters::{Call, Ledger, Method};
use crate::execute::Job;
use crate::fault::Injections;
use crate::handle::{self, Handles};
use crate::hold::GateState;
use crate::memory::{Backing, Shortage, Space};
use crate::misuse::Violations;
use crate::order::{Knowledge, Uses};
use crate::pinned::PinnedSpace;
use crate::schedule::{Executed, Picker};
use crate::stream::{Code, Item, Stream, Work};
use crate::telemetry::Management;
use anyaccel_hal::{Fault, FaultKind, Gate, HostFn, HostKernel, Kernel, Mem, Probe, Stamp, StreamId};
use anyaccel_kit::Callbacks;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

thread_local! {
    /// Whether this thread runs a host function, which may not call the driver (H13).
    static IN_HOST_FN: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that runs a host function, for the time of `run`.
pub(crate) fn in_host_fn(run: impl FnOnce()) {
    let before = IN_HOST_FN.replace(true);
    run();
    IN_HOST_FN.set(before);
}

/// What is dropped once the lock is free.
pub(crate) enum Debris {
    Backing(#[expect(dead_code, reason = "kept for its destructor")] Arc<Backing>),
    Kernel(#[expect(dead_code, reason = "kept for its destructor")] Arc<HostKernel>),
    Work(#[expect(dead_code, reason = "kept for its destructor")] Work),
}

/// A device, as far as it can change.
pub(crate) struct DeviceState {
    pub(crate) config: DeviceConfig,
    pub(crate) space: Space,
    pub(crate) pinned: PinnedSpace,
    pub(crate) costs: Costs,
    pub(crate) lost: bool,
    /// The turn of how many more operations passes before the device is lost.
    pub(crate) lose_after: Option<u64>,
    pub(crate) opened: Weak<crate::device::SimDevice>,
    pub(crate) builtins: BTreeMap<u32, Kernel>,
}

/// A stamp's device, and its time once its turn has come.
pub(crate) struct StampState {
    pub(crate) ordinal: u32,
    pub(crate) time: Option<u64>,
    pub(crate) knows: Arc<Knowledge>,
}

/// A kernel's device and code.
pub(crate) struct KernelState {
    pub(crate) ordinal: u32,
    pub(crate) code: Code,
}

/// Everything.
pub(crate) struct State {
    /// The host's time, in virtual nanoseconds.
    pub(crate) now: u64,
    /// What the host knows to have ended.
    pub(crate) host: Arc<Knowledge>,
    /// Whether order is watched at all.
    pub(crate) strict: bool,
    pub(crate) handles: Handles,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// The streams with something in their queue.
    pub(crate) active: BTreeSet<StreamId>,
    /// All streams in the order of their creation.
    pub(crate) created: Vec<StreamId>,
    pub(crate) gates: BTreeMap<Gate, GateState>,
    pub(crate) stamps: BTreeMap<Stamp, StampState>,
    pub(crate) kernels: BTreeMap<Kernel, KernelState>,
    pub(crate) picker: Picker,
    /// Nothing runs but what a wait needs.
    pub(crate) paused: bool,
    pub(crate) ledger: Ledger,
    pub(crate) injections: Injections,
    pub(crate) violations: Violations,
    pub(crate) management: Management,
    pub(crate) probe: Probe,
    pub(crate) started: Option<u32>,
    pub(crate) trace: VecDeque<Executed>,
    pub(crate) trace_kept: usize,
    /// Host functions whose turn can't come any more, still to be told so.
    pub(crate) cancelled: Vec<HostFn>,
    pub(crate) debris: Arc<Bin>,
    /// The threads for code of users, of [`Execution::Background`](crate::Execution::Background).
    pub(crate) callbacks: Option<Arc<Callbacks<Job>>>,
    /// Whether a driver or a device is alive, and which life it is. A thread of an earlier one ends.
    pub(crate) alive: bool,
    pub(crate) generation: u64,
    pub(crate) life: Weak<crate::driver::Life>,
}

impl State {
    pub(crate) fn new(config: &SimConfig, debris: Arc<Bin>) -> Self {
        let device = |(ordinal, config): (usize, &DeviceConfig)| DeviceState {
            config: config.clone(),
            space: Space::new(ordinal as u32, config),
            pinned: PinnedSpace::new(config.pinned_memory),
            costs: config.costs,
            lost: false,
            lose_after: None,
            opened: Weak::new(),
            builtins: BTreeMap::new(),
        };
        Self {
            now: 0,
            host: Arc::default(),
            strict: config.strict,
            handles: Handles::new(),
            devices: config.devices.iter().enumerate().map(device).collect(),
            streams: BTreeMap::new(),
            active: BTreeSet::new(),
            created: Vec::new(),
            gates: BTreeMap::new(),
            stamps: BTreeMap::new(),
            kernels: BTreeMap::new(),
            picker: Picker::new(config.interleaving.clone()),
            paused: false,
            ledger: Ledger::new(config.devices.len(), config.log),
            injections: Injections::default(),
            violations: Violations::default(),
            management: Management::new(&config.devices),
            probe: Probe::found(config.devices.len() as u32),
            started: None,
            trace: VecDeque::new(),
            trace_kept: config.log,
            cancelled: Vec::new(),
            debris,
            callbacks: None,
            alive: false,
            generation: 0,
            life: Weak::new(),
        }
    }

    /// A device. Ordinals come from open devices and checked arguments, so they are in range.
    pub(crate) fn device(&mut self, ordinal: u32) -> &mut DeviceState {
        &mut self.devices[ordinal as usize]
    }

    /// Enters a call, lets it meet its injection, and refuses it in a host function.
    pub(crate) fn admit(&mut self, call: Call) -> Result<(), Fault> {
        self.ledger.enter(call);
        if IN_HOST_FN.get() {
            let note = "called inside a host function";
            return Err(self.violations.refuse("H13", call.method, note));
        }
        match self.injections.meet(call.method, call.device) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// The fault of a shortage of memory.
    pub(crate) fn shortage(method: Method, shortage: Shortage) -> Fault {
        let fault = Fault::new(FaultKind::OutOfMemory, method.name());
        match shortage {
            Shortage::Device(note) => fault.note(note),
            Shortage::Host => fault.note("this machine has no memory to back it with"),
        }
    }

    /// H1 is broken: no live object of that device has this handle.
    pub(crate) fn unknown(&mut self, method: Method, what: &str, handle: u64, ordinal: u32) -> Fault {
        let note = self.handles.explain(what, handle, ordinal);
        self.violations.refuse("H1", method, note)
    }

    /// A handle as messages name it.
    pub(crate) fn named(&self, handle: u64) -> String {
        format!("{} of device {}", handle::short(handle), handle::device_of(handle))
    }

    /// A live stream of that device.
    pub(crate) fn stream(&mut self, method: Method, id: StreamId, ordinal: u32) -> Result<&mut Stream, Fault> {
        let live = self.streams.get(&id).is_some_and(|stream| stream.ordinal == ordinal);
        if !live {
            return Err(self.unknown(method, "stream", id.0, ordinal));
        }
        match self.streams.get_mut(&id) {
            Some(stream) => Ok(stream),
            None => Err(Fault::new(FaultKind::Invalid, method.name())),
        }
    }

    /// The device of a live stream.
    pub(crate) fn ordinal_of(&self, id: StreamId) -> Option<u32> {
        self.streams.get(&id).map(|stream| stream.ordinal)
    }

    /// Appends an operation to a stream.
    pub(crate) fn enqueue(&mut self, id: StreamId, work: Work) {
        let item = Item { work, since: self.now, knows: Arc::clone(&self.host) };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let lost = self.devices[stream.ordinal as usize].lost;
        if lost {
            // Only a hold of a test's gets here: nothing is held up any more.
            self.debris.push(Debris::Work(item.work));
            return;
        }
        for span in item.work.spans() {
            if let Some(uses) = uses_of(&mut self.devices, span.mem) {
                uses.pending += 1;
            }
        }
        stream.enqueued += 1;
        stream.queue.push_back(item);
        self.active.insert(id);
    }

    /// The operation has ended, or never will begin: its memory is free of it.
    pub(crate) fn end_uses(&mut self, work: &Work) {
        for span in work.spans() {
            if let Some(uses) = uses_of(&mut self.devices, span.mem) {
                uses.pending -= 1;
            }
        }
    }

    /// The device is gone for good (H20).
    pub(crate) fn lose(&mut self, ordinal: u32) {
        self.device(ordinal).lost = true;
        self.device(ordinal).lose_after = None;
        let streams: Vec<_> = self.streams.iter().filter(|(_, s)| s.ordinal == ordinal).map(|(&id, _)| id).collect();
        for id in streams {
            self.drop_work(id);
        }
    }

    /// Forgets what a stream has not begun; its marks count as ended.
    pub(crate) fn drop_work(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let queue = std::mem::take(&mut stream.queue);
        stream.done = stream.enqueued;
        stream.ended = stream.issued;
        self.active.remove(&id);
        for item in queue {
            self.end_uses(&item.work);
            match item.work {
                Work::HostCall(function) => self.cancelled.extend(function),
                work => self.debris.push(Debris::Work(work)),
            }
        }
    }
}

fn uses_of(devices: &mut [DeviceState], mem: Mem) -> Option<&mut Uses> {
    let device = &mut devices[handle::device_of(mem.0) as usize];
    device.space.uses(mem).or_else(|| device.pinned.uses(mem))
}

/// What is to be dropped without the lock, until it is.
#[derive(Default)]
pub(crate) struct Bin {
    littered: AtomicBool,
    debris: Mutex<Vec<Debris>>,
}

impl Bin {
    pub(crate) fn push(&self, debris: Debris) {
        self.debris.lock().unwrap_or_else(PoisonError::into_inner).push(debris);
        self.littered.store(true, Ordering::Release);
    }

    fn empty(&self) {
        if self.littered.swap(false, Ordering::Acquire) {
            let debris = std::mem::take(&mut *self.debris.lock().unwrap_or_else(PoisonError::into_inner));
            drop(debris);
        }
    }
}

/// A simulation: what [`Sim`](crate::Sim), the driver and the devices share.
pub(crate) struct Shared {
    pub(crate) config: SimConfig,
    process: u32,
    state: Mutex<State>,
    bin: Arc<Bin>,
    changed: Condvar,
    /// How many threads sleep on `changed`. Changed under the lock.
    sleepers: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(config: SimConfig) -> Self {
        let bin = Arc::new(Bin::default());
        let state = Mutex::new(State::new(&config, Arc::clone(&bin)));
        Self { config, process: std::process::id(), state, bin, changed: Condvar::new(), sleepers: AtomicUsize::new(0) }
    }

    pub(crate) fn lock(&self) -> Held<'_> {
        // A panic under the lock comes from a test's Interleaving::Chosen, which is called between two changes.
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Held { guard, sweep: Sweep(self) }
    }

    /// Whether it was made in this process, and not in one that this one was forked from: then its lock may be held by
    /// a thread that does not exist here (H24).
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Wakes whoever sleeps for a change. Called after the change, unlocked or not.
    pub(crate) fn signal(&self) {
        // Whoever counts itself after this thread has unlocked saw what this thread changed.
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }
}

/// The lock, held. Its fields are dropped in this order: first it is unlocked, then the debris goes.
pub(crate) struct Held<'a> {
    guard: MutexGuard<'a, State>,
    sweep: Sweep<'a>,
}

struct Sweep<'a>(&'a Shared);

impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        self.0.bin.empty();
    }
}

impl Held<'_> {
    /// Sleeps until something changes or the deadline passes; false if it has passed.
    pub(crate) fn sleep(self, deadline: Option<Instant>) -> (Self, bool) {
        let Self { guard, sweep } = self;
        let Shared { changed, sleepers, .. } = sweep.0;
        sleepers.fetch_add(1, Ordering::Relaxed);
        let (guard, in_time) = match deadline {
            None => (changed.wait(guard).unwrap_or_else(PoisonError::into_inner), true),
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                None => (guard, false),
                Some(left) => {
                    let (guard, _) = changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
                    (guard, Instant::now() < deadline)
                }
            },
        };
        sleepers.fetch_sub(1, Ordering::Relaxed);
        (Self { guard, sweep }, in_time)
    }
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}
