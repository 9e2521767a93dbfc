//! The management side: cards with sensors, in an order of its own, joined to devices by identity.

use crate::config::DeviceConfig;
use crate::counters::{Call, Method};
use crate::device::SimDevice;
use anyaccel_hal::{Fault, FaultKind, Telemetry, TelemetryLimits, Uuid};

/// What a card's sensors read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sensors {
    /// Percent.
    pub utilization: f32,
    /// Percent.
    pub memory_usage: f32,
    /// Degrees Celsius.
    pub temperature: f32,
    /// Watts.
    pub power: f32,
    /// MHz.
    pub clock: f32,
}

impl Sensors {
    /// Readings that tell the cards apart: each is its usual value plus `n`.
    pub const fn distinct(n: u8) -> Self {
        let n = n as f32;
        Self {
            utilization: 10.0 + n,
            memory_usage: 20.0 + n,
            temperature: 40.0 + n,
            power: 100.0 + n,
            clock: 1000.0 + n,
        }
    }
}

/// A card as the management side lists it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Card {
    /// Its identity.
    pub uuid: Uuid,
    /// Its readings.
    pub sensors: Sensors,
}

/// The list of the management side.
pub(crate) struct Management(pub(crate) Vec<Card>);

impl Management {
    /// All devices, in their own order, each with readings of its own.
    pub(crate) fn new(devices: &[DeviceConfig]) -> Self {
        let card = |(ordinal, device): (usize, &DeviceConfig)| Card {
            uuid: device.identity(ordinal as u32),
            sensors: Sensors::distinct(ordinal as u8),
        };
        Self(devices.iter().enumerate().map(card).collect())
    }
}

impl SimDevice {
    fn read(&self, method: Method, known: bool, which: impl FnOnce(&Sensors) -> f32) -> Result<f32, Fault> {
        let uuid = self.uuid();
        self.call(Call::new(method), |state, _| {
            if !known {
                return Err(Fault::unsupported(method.name()));
            }
            match state.management.0.iter().find(|card| card.uuid == uuid) {
                Some(card) => Ok(which(&card.sensors)),
                None => {
                    let note = format!("no card {uuid} on the management side");
                    Err(Fault::new(FaultKind::NotReady, method.name()).note(note))
                }
            }
        })
    }
}

impl Telemetry for SimDevice {
    fn limits(&self) -> TelemetryLimits {
        self.config().sensors
    }

    fn utilization(&self) -> Result<f32, Fault> {
        self.read(Method::Utilization, self.config().sensors.utilization, |sensors| sensors.utilization)
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        self.read(Method::MemoryUsage, self.config().sensors.memory_usage, |sensors| sensors.memory_usage)
    }

    fn temperature(&self) -> Result<f32, Fault> {
        self.read(Method::Temperature, self.config().sensors.temperature, |sensors| sensors.temperature)
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        self.read(Method::PowerDraw, self.config().sensors.power, |sensors| sensors.power)
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        self.read(Method::ClockRate, self.config().sensors.clock, |sensors| sensors.clock)
    }
}
