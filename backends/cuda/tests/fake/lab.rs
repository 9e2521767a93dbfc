//! The backend and its fake, for scenarios.

use anyaccel_fake_cuda::{Control, Installed};
use anyaccel_hal::Driver;
use std::sync::Arc;

pub(crate) use anyaccel_fake::lab::{PATIENCE, arg, eventually};
pub(crate) use anyaccel_fake::scenario::calls;

/// An open device.
pub(crate) type Lab = anyaccel_fake::lab::Lab<Cuda>;

#[derive(Debug)]
pub(crate) struct Cuda;

impl anyaccel_fake::lab::Backend for Cuda {
    fn driver() -> Arc<dyn Driver> {
        driver()
    }
}

pub(crate) fn driver() -> Arc<dyn Driver> {
    anyaccel_cuda::driver()
}

/// What this process does to its fake.
pub(crate) fn control() -> Control {
    Installed::at(&anyaccel_fake::scenario::folder()).control().expect("a fake")
}
