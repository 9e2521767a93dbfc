//! The driver: counts, describes and opens devices.
//!
//! Starting is one exchange of a pointer, null before. No lock: a child of a fork may meet a driver that another thread
//! of its parent was about to start (H24), and then finds it started or not, never in between.

use crate::config::HostConfig;
use crate::config::Settings;
use crate::device::HostDevice;
use crate::machine::Machine;
use crate::probe;
use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, Kind, Probe};
use anyaccel_kit::Published;
use std::fmt;
use std::sync::Arc;

/// What exists once the driver has started.
struct Started {
    settings: Settings,
    devices: Vec<Arc<HostDevice>>,
}

impl Started {
    fn new(settings: Settings) -> Self {
        let Settings { devices, memory, workers } = settings;
        let machine = Arc::new(Machine::new(devices, memory, workers, probe::PRIORITIES.levels()));
        let info = probe::describe(&settings);
        let device = |ordinal| Arc::new(HostDevice::new(Arc::clone(&machine), ordinal, info.clone()));
        Self { settings, devices: (0..devices).map(device).collect() }
    }
}

/// The driver of host devices.
pub(crate) struct HostDriver {
    config: HostConfig,
    started: Published<Started>,
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.started().map(|started| started.settings);
        f.debug_struct("HostDriver").field("config", &self.config).field("started", &settings).finish()
    }
}

impl HostDriver {
    pub(crate) const fn new(config: HostConfig) -> Self {
        Self { config, started: Published::new() }
    }

    fn started(&self) -> Option<&Started> {
        self.started.get()
    }

    /// The settings that count now: frozen by the start, else read anew.
    fn settings(&self) -> Result<Settings, Absence> {
        self.started().map_or_else(|| self.config.settings(), |started| Ok(started.settings))
    }
}

impl Driver for HostDriver {
    fn kind(&self) -> Kind {
        Kind::HOST
    }

    fn fork_safe_probe(&self) -> bool {
        true
    }

    fn probe(&self) -> Probe {
        probe::probe(&self.started().map_or_else(|| self.config.count(), |started| Ok(started.settings.devices)))
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        let settings = self.settings().ok()?;
        (ordinal < settings.devices).then(|| probe::describe(&settings))
    }

    fn start(&self) -> Result<u32, Fault> {
        if let Some(started) = self.started() {
            return Ok(started.settings.devices);
        }
        let settings = match self.config.settings() {
            Ok(settings) => settings,
            Err(Absence::BadVariable { name, value, expected }) => {
                return Err(Fault::invalid("start", format!("{name}={value}: expected {expected}")));
            }
            Err(_) => Settings { devices: 0, memory: 0, workers: 1 },
        };
        Ok(self.started.publish(Started::new(settings)).settings.devices)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let Some(started) = self.started() else {
            return Err(Fault::invalid("open", "the driver has not started"));
        };
        match started.devices.get(ordinal as usize) {
            Some(device) => Ok(Arc::clone(device) as Arc<dyn Device>),
            None => {
                let count = started.devices.len();
                Err(Fault::invalid("open", format!("device {ordinal} of {count}")))
            }
        }
    }

    fn restartable(&self) -> bool {
        true
    }

    fn checks(&self) -> Vec<Check> {
        probe::checks(self.started().map(|started| &started.settings), &self.config.settings())
    }
}
