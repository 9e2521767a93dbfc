//! Sensors, by Sysman, joined by identity (H32).

use anyaccel_hal::{Fault, MemoryInfo, Telemetry, TelemetryLimits, Uuid};

/// The sensors of a device.
#[derive(Debug)]
pub(crate) enum Sensors {}

impl Sensors {
    /// By identity, never by number.
    pub(crate) fn find(_uuid: Uuid, _subdevice: Option<u32>) -> Option<Self> {
        None
    }

    /// Memory of the card, all processes together.
    pub(crate) fn memory(&self) -> Option<MemoryInfo> {
        match *self {}
    }
}

impl Telemetry for Sensors {
    fn limits(&self) -> TelemetryLimits {
        match *self {}
    }

    fn utilization(&self) -> Result<f32, Fault> {
        match *self {}
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        match *self {}
    }

    fn temperature(&self) -> Result<f32, Fault> {
        match *self {}
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        match *self {}
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        match *self {}
    }
}
