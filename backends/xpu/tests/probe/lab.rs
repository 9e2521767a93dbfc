//! What the scenarios share: the driver, the log of calls, and the fake's control.

use anyaccel_fake_level_zero::{Control, Installed};
use anyaccel_hal::{Check, DeviceInfo, Driver, Layer, Verdict};
use std::sync::Arc;

pub(crate) use anyaccel_fake::scenario::calls;

pub(crate) const DEVICES: &str = "ANYACCEL_FAKE_ZE_DEVICES";
pub(crate) const FAIL: &str = "ANYACCEL_FAKE_ZE_FAIL";
pub(crate) const WITHOUT: &str = "ANYACCEL_FAKE_ZE_WITHOUT";
pub(crate) const MASK: &str = "ZE_AFFINITY_MASK";
pub(crate) const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";
pub(crate) const ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";

pub(crate) fn driver() -> Arc<dyn Driver> {
    anyaccel_xpu::driver()
}

/// What this process does to its fake.
pub(crate) fn control() -> Control {
    Installed::at(&anyaccel_fake::scenario::folder(), crate::NEW).control().expect("a fake")
}

/// The first call of the runtime's: what a look must not make. The management side and tables of functions are none.
pub(crate) fn runtime_call() -> Option<String> {
    let of_runtime = |call: &String| !call.starts_with("zes") && !call.ends_with("ProcAddrTable");
    calls().into_iter().find(of_runtime)
}

pub(crate) fn names(driver: &dyn Driver, count: u32) -> Vec<Option<String>> {
    (0..count).map(|ordinal| driver.describe(ordinal).map(|info| info.name)).collect()
}

pub(crate) fn infos(driver: &dyn Driver, count: u32) -> Vec<Option<DeviceInfo>> {
    (0..count).map(|ordinal| driver.describe(ordinal)).collect()
}

/// The first check of a layer that went like that.
pub(crate) fn check(checks: &[Check], layer: Layer, verdict: Verdict) -> &Check {
    let found = checks.iter().find(|check| check.layer == layer && check.verdict == verdict);
    found.unwrap_or_else(|| panic!("no {verdict:?} of {layer:?} in {checks:#?}"))
}
