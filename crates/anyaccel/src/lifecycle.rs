//! Starting: from `Fresh` through `Starting` to `Live`, once, whatever threads and forks do.
//!
//! # Protocol
//!
//! - `phase` is `Fresh`, `Starting` (by one thread) or `Live`. Only the starting thread leaves `Starting`; others wait on
//!   `changed`. `live` is the same fact for the fast path: null until everything, the deferred calls included, is done.
//! - The starting thread works without the lock. Once the driver runs it publishes `early`, which only it may use, so
//!   that deferred calls can call the runtime.
//! - `live` is published when the queue of deferred calls is found empty and is closed, under its lock: who sees it finds
//!   all calls done that were queued before.
//! - A failed start goes back to `Fresh` with the deferred calls untouched, and its trace is withdrawn.
//! - None of this is touched in another epoch: `epoch` is compared first.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork::{self, Fenced};
use crate::local::{self, Key};
use crate::memory::MemoryRules;
use crate::port::Port;
use crate::random::Generator;
use crate::runtime::{Core, Runtime};
use crate::{env, linked, plugins};
use anyaccel_hal::{Absence, Driver, FaultKind, Kind, Probe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

/// A runtime's driver and devices, from its start on.
pub(crate) struct Live {
    pub(crate) driver: Fenced<Arc<dyn Driver>>,
    pub(crate) kind: Kind,
    pub(crate) forever: bool,
    pub(crate) memory: Arc<MemoryRules>,
    /// The default generators of the devices.
    pub(crate) generators: Box<[Generator]>,
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    port: OnceLock<Arc<Port>>,
    opening: Mutex<()>,
}

impl Live {
    /// How many devices there are.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// A device, opened when first needed. The ordinal is in range.
    #[inline]
    pub(crate) fn port(&self, ordinal: u32) -> Result<&Arc<Port>> {
        match self.slots.get(ordinal as usize).and_then(|slot| slot.port.get()) {
            Some(port) => Ok(port),
            None => self.open(ordinal),
        }
    }

    #[cold]
    fn open(&self, ordinal: u32) -> Result<&Arc<Port>> {
        let Some(slot) = self.slots.get(ordinal as usize) else {
            return Err(Error::IndexOutOfRange { index: ordinal.into(), count: Some(self.count()) });
        };
        let _one_at_a_time = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = slot.port.get() {
            return Ok(port);
        }
        let device = Device::new(self.kind, Some(ordinal));
        let hal = self.driver.open(ordinal).map_err(|fault| Error::from_fault("opening the device", device, fault))?;
        let settings = self.memory.settings();
        let port = Port::new(hal, device, ordinal, self.forever, settings.clone());
        self.memory.greet(&port);
        let port = slot.port.get_or_init(|| port);
        self.memory.history.greet(port);
        // Others may have been set for all open devices before this was one.
        let now = self.memory.settings();
        if now != settings {
            port.set_settings(&now);
        }
        Ok(port)
    }

    /// The devices that are open.
    pub(crate) fn open_ports(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.slots.iter().filter_map(|slot| slot.port.get())
    }

    /// A device if it is open.
    pub(crate) fn open_port(&self, ordinal: u32) -> Option<&Arc<Port>> {
        self.slots.get(ordinal as usize)?.port.get()
    }
}

/// How far a runtime has come.
pub(crate) enum Phase {
    Fresh,
    Starting(ThreadId),
    Live,
}

/// Where a runtime's driver comes from.
pub(crate) enum Source {
    /// The first kind that has a device, or the one that the environment names.
    Search(Vec<(Kind, Fenced<Arc<dyn Driver>>)>),
    /// This one.
    Fixed(Fenced<Arc<dyn Driver>>),
}

/// A driver that was chosen, and what its probe said if it was asked.
pub(crate) struct Chosen<'a> {
    pub(crate) driver: &'a Arc<dyn Driver>,
    pub(crate) probe: Option<Probe>,
}

impl Core {
    /// The key of this runtime's thread-local state.
    #[inline]
    pub(crate) fn key(&self) -> Key {
        Key { id: self.id, epoch: self.epoch }
    }

    /// Whether this runtime belongs to this generation of the process.
    #[inline]
    pub(crate) fn current(&self) -> bool {
        self.epoch == fork::epoch()
    }

    /// The started runtime, if it has started and belongs to this generation.
    #[inline]
    pub(crate) fn started(&self) -> Option<&Live> {
        if !self.current() {
            return None;
        }
        // SAFETY: `live` is null or what Box::into_raw gave, owned by this core and freed by its drop alone.
        unsafe { self.live.load(Ordering::Acquire).as_ref() }
    }

    /// The started runtime. The thread that starts it, in a deferred call, has it already.
    pub(crate) fn running(&self) -> Option<&Live> {
        self.started().or_else(|| if self.current() { self.early() } else { None })
    }

    #[cold]
    fn early(&self) -> Option<&Live> {
        let early = self.early.load(Ordering::Acquire);
        if early.is_null() {
            return None;
        }
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        match *phase {
            // SAFETY: set by this thread while it starts, to the box that it is about to publish in `live`.
            Phase::Starting(thread) if thread == std::thread::current().id() => unsafe { early.as_ref() },
            _ => None,
        }
    }

    /// Which driver this runtime would start now; `Ok(None)` if no kind is to be had. Starts nothing, unless a probe
    /// has to, which `call` is then noted for.
    pub(crate) fn choose(&self, call: &'static str) -> Result<Option<Chosen<'_>>> {
        match &self.source {
            Source::Fixed(driver) => Ok(Some(Chosen { driver, probe: None })),
            Source::Search(drivers) => {
                if let Some(name) = env::read(env::BACKEND).filter(|name| !name.is_empty()) {
                    return match drivers.iter().find(|(kind, _)| kind.name() == name) {
                        Some((_, driver)) => Ok(Some(Chosen { driver, probe: None })),
                        None => {
                            let (known, refused) = (linked::kinds(), plugins::refused());
                            Err(Error::UnknownBackend { name, variable: Some(env::BACKEND), known, refused })
                        }
                    };
                }
                let mut first = None;
                for (kind, driver) in drivers.iter().filter(|(kind, _)| linked::by_itself(*kind)) {
                    let probe = self.probe(driver, *kind, call);
                    // Hidden devices end the search: hiding a card must not reopen it through another kind.
                    if probe.visible > 0 || probe.present.is_some_and(|present| present > 0) {
                        return Ok(Some(Chosen { driver, probe: Some(probe) }));
                    }
                    first.get_or_insert((driver, probe));
                }
                Ok(first.map(|(driver, probe)| Chosen { driver, probe: Some(probe) }))
            }
        }
    }

    /// Asks a driver how many devices it has. In a child that can't start the kind again, a probe that would have to
    /// start it is not made.
    pub(crate) fn probe(&self, driver: &Arc<dyn Driver>, kind: Kind, call: &'static str) -> Probe {
        if driver.fork_safe_probe() {
            return driver.probe();
        }
        if fork::refused(&**driver) {
            return Probe { visible: 0, present: None, absence: None, started: false };
        }
        let trace = fork::touch(kind, call);
        let probe = driver.probe();
        if !probe.started {
            trace.withdraw();
        }
        probe
    }

    /// The chosen driver with its probe.
    pub(crate) fn probed(&self, call: &'static str) -> Result<Option<(&Arc<dyn Driver>, Probe)>> {
        let chosen = self.choose(call)?;
        Ok(chosen.map(|Chosen { driver, probe }| {
            let probe = probe.unwrap_or_else(|| self.probe(driver, driver.kind(), call));
            (driver, probe)
        }))
    }
}

impl Runtime {
    /// The started runtime, started now if need be. `call` names who asks.
    #[inline]
    pub(crate) fn live(&self, call: &'static str) -> Result<&Live> {
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        match self.core.started() {
            Some(live) => Ok(live),
            None => self.start(call),
        }
    }

    /// Why this runtime can't be used, if it is of another generation.
    #[inline]
    pub(crate) fn check_generation(&self, call: &'static str, what: &'static str) -> Result<()> {
        if self.core.current() { Ok(()) } else { Err(self.of_another_generation(call, what)) }
    }

    #[cold]
    fn of_another_generation(&self, call: &'static str, what: &'static str) -> Error {
        if fork::exiting() { Error::Exiting { call } } else { Error::StaleHandle { what } }
    }

    #[cold]
    fn start(&self, call: &'static str) -> Result<&Live> {
        fork::install();
        fork::notice();
        self.check_generation(call, "handle")?;
        let me = std::thread::current().id();
        let core = &*self.core;
        let mut phase = core.phase.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*phase {
                Phase::Fresh => break,
                Phase::Starting(thread) if *thread == me => {
                    drop(phase);
                    let early = core.early();
                    return early
                        .ok_or(Error::Argument { argument: call, reason: "called by the driver that starts".into() });
                }
                Phase::Starting(_) => {
                    phase = core.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
                }
                Phase::Live => {
                    // The pointer is published together with the phase.
                    return core.started().ok_or(Error::StaleHandle { what: "runtime" });
                }
            }
        }
        *phase = Phase::Starting(me);
        drop(phase);

        let back = BackToFresh(core);
        let live = Box::into_raw(Box::new(self.bring_up(call)?));
        core.early.store(live, Ordering::Release);
        let ran = core.deferred.run(self, || core.live.store(live, Ordering::Release));
        std::mem::forget(back);

        let mut phase = core.phase.lock().unwrap_or_else(PoisonError::into_inner);
        core.early.store(std::ptr::null_mut(), Ordering::Release);
        *phase = Phase::Live;
        drop(phase);
        core.changed.notify_all();
        // A deferred call's error is told once, to the call that started; the runtime is up all the same.
        ran?;
        core.started().ok_or(Error::StaleHandle { what: "runtime" })
    }

    fn bring_up(&self, call: &'static str) -> Result<Live> {
        let Some(Chosen { driver, .. }) = self.core.choose(call)? else { return Err(Error::NoAccelerator) };
        self.core.memory.read_environment()?;
        let kind = driver.kind();
        if !driver.restartable()
            && let Some(culprit) = fork::inherited(kind)
        {
            return Err(Error::ForkedChild { kind, call: culprit.call, pid: culprit.pid });
        }
        let trace = fork::touch(kind, call);
        match driver.start() {
            Ok(0) => {
                trace.withdraw();
                Err(Error::NoAccelerator)
            }
            Ok(count) => Ok(Live {
                driver: Fenced::new(Arc::clone(driver)),
                kind,
                forever: self.core.global,
                memory: Arc::clone(&*self.core.memory),
                generators: (0..count).map(|at| Generator::of_device(self.core.seeds.inherited(at))).collect(),
                slots: (0..count).map(|_| Slot::default()).collect(),
            }),
            Err(fault) => {
                trace.withdraw();
                if fault.kind == FaultKind::Invalid && driver.fork_safe_probe() {
                    // A bad variable is named by the probe, with what it may hold.
                    if let Some(Absence::BadVariable { name, value, expected }) = driver.probe().absence {
                        return Err(Error::BadVariable { name, value, expected });
                    }
                }
                Err(Error::StartFailed { kind, fault })
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let live = *self.live.get_mut();
        if !live.is_null() {
            // SAFETY: from Box::into_raw in `start`, freed once, here.
            let live = unsafe { Box::from_raw(live) };
            if self.current() {
                drop(live);
            } else {
                // Threads that a fork left behind may have been changing any of it.
                fork::keep(live);
            }
        }
    }
}

/// Leaves `Starting` on every path but success.
struct BackToFresh<'a>(&'a Core);

impl Drop for BackToFresh<'_> {
    fn drop(&mut self) {
        self.0.early.store(std::ptr::null_mut(), Ordering::Release);
        *self.0.phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Fresh;
        self.0.changed.notify_all();
    }
}
