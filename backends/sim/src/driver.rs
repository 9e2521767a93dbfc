//! The driver: discovery, opening, and the life of what the devices share.

use crate::config::{DeviceConfig, Execution};
use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::execute::{self, Job};
use crate::state::Shared;
use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, Kind, Layer, Probe, Verdict};
use anyaccel_kit::Thread;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What the driver and its open devices hold together. When the last of them goes, work not yet begun is dropped (H25).
pub(crate) struct Life {
    pub(crate) shared: Arc<Shared>,
    generation: u64,
    thread: Mutex<Option<Thread>>,
}

impl Life {
    /// The life of a simulation: the one that is, or a new one.
    pub(crate) fn of(shared: &Arc<Shared>) -> Arc<Self> {
        let mut state = shared.lock();
        while state.alive {
            if let Some(life) = state.life.upgrade() {
                return life;
            }
            // Its end is under way.
            state = state.sleep(None).0;
        }
        state.alive = true;
        state.generation += 1;
        let generation = state.generation;
        let life = Arc::new(Self { shared: Arc::clone(shared), generation, thread: Mutex::new(None) });
        state.life = Arc::downgrade(&life);
        life
    }

    fn start_thread(&self) -> Result<(), Fault> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.config.execution == Execution::Background && thread.is_none() {
            *thread = Some(execute::start(&self.shared, self.generation)?);
        }
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.shared.is_of_this_process() {
            // In a forked child the lock may be held for ever, and the thread is not there.
            std::mem::forget(thread);
            return;
        }
        let mut state = self.shared.lock();
        state.alive = false;
        // The thread of the background sees that it is another's time.
        state.generation += 1;
        let all: Vec<_> = state.streams.keys().copied().collect();
        for id in all {
            state.drop_work(id);
        }
        let (cancelled, callbacks) = (std::mem::take(&mut state.cancelled), state.callbacks.take());
        drop(state);
        self.shared.signal();
        let jobs = match &callbacks {
            // They end on threads that may block; this one may not (H25).
            Some(callbacks) => {
                let refused = cancelled.into_iter().filter_map(|function| callbacks.push(Job::Cancel(function)).err());
                refused.collect::<Vec<_>>()
            }
            None => cancelled.into_iter().map(Job::Cancel).collect(),
        };
        // It can be the one that drops the last device: a kernel that it dropped may have owned it.
        if let Some(thread) = thread.filter(|thread| !thread.is_current()) {
            // It waits for no code of users, so not for this thread either. A panic in it has been reported by itself.
            thread.join();
        }
        jobs.into_iter().for_each(Job::cancel);
    }
}

/// The driver of simulated devices. Clones drive the same devices.
#[derive(Clone)]
pub struct SimDriver {
    pub(crate) life: Arc<Life>,
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDriver").field("devices", &self.config().len()).finish_non_exhaustive()
    }
}

impl SimDriver {
    fn config(&self) -> &[DeviceConfig] {
        &self.life.shared.config.devices
    }

    /// Counts a call that can't fail; not in a forked child, where the lock is the parent's (H24).
    fn count(&self, method: Method) {
        if self.life.shared.is_of_this_process() {
            self.life.shared.lock().ledger.enter(Call::new(method));
        }
    }

    fn settings(&self) -> Probe {
        if self.life.shared.is_of_this_process() {
            self.life.shared.lock().probe.clone()
        } else {
            Probe::found(self.config().len() as u32)
        }
    }

    fn call<T>(&self, call: Call, run: impl FnOnce(&mut crate::state::State) -> Result<T, Fault>) -> Result<T, Fault> {
        let shared = &self.life.shared;
        if !shared.is_of_this_process() {
            return Err(Fault::invalid(call.method.name(), "this driver was made by the parent of a fork"));
        }
        let mut state = shared.lock();
        let result = state.admit(call).and_then(|()| run(&mut state));
        if let Err(fault) = &result {
            let number = state.ledger.last();
            state.ledger.failed(number, fault.kind);
        }
        result
    }
}

impl Driver for SimDriver {
    fn kind(&self) -> Kind {
        self.life.shared.config.kind
    }

    fn fork_safe_probe(&self) -> bool {
        self.life.shared.config.fork_safe_probe
    }

    fn probe(&self) -> Probe {
        self.count(Method::Probe);
        self.settings()
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        self.count(Method::Describe);
        let visible = self.settings().visible;
        let config = self.config().get(ordinal as usize)?;
        (self.life.shared.config.describe && ordinal < visible).then(|| config.info(ordinal))
    }

    fn start(&self) -> Result<u32, Fault> {
        let count = self.call(Call::new(Method::Start), |state| {
            if let Some(count) = state.started {
                return Ok(count);
            }
            self.life.shared.config.check()?;
            if let Some(Absence::BadVariable { name, value, expected }) = &state.probe.absence {
                return Err(Fault::invalid("start", format!("{name}={value}: expected {expected}")));
            }
            let count = state.probe.visible.min(state.devices.len() as u32);
            state.started = Some(count);
            Ok(count)
        })?;
        self.life.start_thread()?;
        Ok(count)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let life = &self.life;
        self.call(Call::new(Method::Open).amount(u64::from(ordinal)), |state| {
            let Some(count) = state.started else {
                return Err(state.violations.refuse("H23", Method::Open, "opened before the driver was started"));
            };
            if ordinal >= count {
                return Err(Fault::invalid("open", format!("device {ordinal} of {count}")));
            }
            let device = match state.device(ordinal).opened.upgrade() {
                Some(device) => device,
                None => Arc::new(SimDevice::new(Arc::clone(life), ordinal)),
            };
            state.device(ordinal).opened = Arc::downgrade(&device);
            let device: Arc<dyn Device> = device;
            Ok(device)
        })
    }

    fn restartable(&self) -> bool {
        self.life.shared.config.restartable
    }

    fn checks(&self) -> Vec<Check> {
        self.count(Method::Checks);
        let probe = self.settings();
        let check =
            |layer, verdict, subject: &str, found: String| Check { layer, verdict, subject: subject.into(), found };
        let none = |layer| check(layer, Verdict::NotApplicable, "", String::new());
        let layers = [Layer::Library, Layer::Version, Layer::DeviceNodes, Layer::Permissions, Layer::Mask];
        let mut checks: Vec<_> = layers.map(none).into();
        checks.push(match &probe.absence {
            None => {
                let found =
                    if probe.visible == 1 { "1 device".to_owned() } else { format!("{} devices", probe.visible) };
                check(Layer::Probe, Verdict::Pass, "simulated devices", found)
            }
            Some(Absence::Missing { layer, subject, found }) => check(*layer, Verdict::Fail, subject, found.clone()),
            Some(Absence::BadVariable { name, value, .. } | Absence::Masked { name, value }) => {
                check(Layer::Mask, Verdict::Fail, name, value.clone())
            }
        });
        if let Some(failed) = checks.pop() {
            match checks.iter_mut().find(|other| other.layer == failed.layer) {
                Some(place) => {
                    *place = failed;
                    checks.push(none(Layer::Probe));
                }
                None => checks.push(failed),
            }
        }
        checks
    }
}
