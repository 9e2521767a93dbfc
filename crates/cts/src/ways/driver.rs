//! A driver whose devices capture what they are given.

use super::Way;
use super::device::Capturing;
use super::tape::Tape;
use crate::case::Level;
use anyaccel_hal::{Check, Device, DeviceInfo, Driver, Fault, Kind, Probe};
use std::sync::Arc;

/// The same driver, for a case of that level run in that way.
pub(crate) fn over(driver: Arc<dyn Driver>, way: Way, level: Level) -> Arc<dyn Driver> {
    match (way, level) {
        (Way::Eager, _) | (Way::Captured, Level::Face) => driver,
        (Way::Recorded, Level::Face) => Arc::new(Wrapped { good: driver, tape: None }),
        (_, Level::Hal) => Arc::new(Wrapped { good: driver, tape: Some(Tape::new(way)) }),
    }
}

struct Wrapped {
    good: Arc<dyn Driver>,
    /// `None`: it only hides graphs.
    tape: Option<Arc<Tape>>,
}

impl Driver for Wrapped {
    fn kind(&self) -> Kind {
        self.good.kind()
    }

    fn fork_safe_probe(&self) -> bool {
        self.good.fork_safe_probe()
    }

    fn probe(&self) -> Probe {
        self.good.probe()
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        self.good.describe(ordinal)
    }

    fn start(&self) -> Result<u32, Fault> {
        self.good.start()
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        Ok(Arc::new(Capturing { good: self.good.open(ordinal)?, tape: self.tape.clone() }))
    }

    fn restartable(&self) -> bool {
        self.good.restartable()
    }

    fn checks(&self) -> Vec<Check> {
        self.good.checks()
    }
}
