//! The backend and its fake, for scenarios.

use anyaccel_fake_level_zero::{Control, Installed};
use anyaccel_hal::Driver;
use std::sync::Arc;

pub(crate) use anyaccel_fake::lab::{arg, eventually};
pub(crate) use anyaccel_fake::scenario::calls;

/// An open device.
pub(crate) type Lab = anyaccel_fake::lab::Lab<Xpu>;

#[derive(Debug)]
pub(crate) struct Xpu;

impl anyaccel_fake::lab::Backend for Xpu {
    fn driver() -> Arc<dyn Driver> {
        driver()
    }
}

pub(crate) fn driver() -> Arc<dyn Driver> {
    anyaccel_xpu::driver()
}

/// What this process does to its fake.
pub(crate) fn control() -> Control {
    Installed::at(&anyaccel_fake::scenario::folder(), crate::NEW).control().expect("a fake")
}
