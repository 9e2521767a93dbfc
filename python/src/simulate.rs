//! Simulated devices under another kind's name, for tests of what other kinds do.

use crate::error::OrRaise;
use anyaccel::hal::Driver;
use anyaccel::{Kind, register_backend};
use anyaccel_sim::{Execution, SimConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What is simulated, leaked: a forked child reads it without any lock.
static CONFIG: AtomicPtr<SimConfig> = AtomicPtr::new(std::ptr::null_mut());

fn driver() -> Arc<dyn Driver> {
    // SAFETY: null, or leaked by `_simulate` before this function was registered.
    let config = unsafe { CONFIG.load(Ordering::Acquire).as_ref() };
    Arc::new(config.cloned().unwrap_or_default().build().driver())
}

/// For tests: registers simulated devices of that kind, which like a vendor's can't start again in a forked child. Once,
/// before anything has asked for devices. Their addresses are the simulation's own: hand them to nobody.
#[pyfunction]
#[pyo3(signature = (kind, *, devices=1, restartable=false))]
pub(crate) fn _simulate(kind: &str, devices: u8, restartable: bool) -> PyResult<()> {
    let Some(kind) = Kind::private(Box::leak(Box::<str>::from(kind))) else {
        return Err(PyValueError::new_err(format!("'{kind}' is no name of a kind")));
    };
    let config = SimConfig::new()
        .memories(std::iter::repeat_n(1 << 30, devices.into()))
        .execution(Execution::Background)
        .kind(kind)
        .restartable(restartable)
        .native_streams(true);
    let config = Box::into_raw(Box::new(config));
    if CONFIG.compare_exchange(std::ptr::null_mut(), config, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above and not published.
        drop(unsafe { Box::from_raw(config) });
        return Err(PyValueError::new_err("another kind is simulated already"));
    }
    register_backend(kind, driver).or_raise()
}
