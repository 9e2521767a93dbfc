//! Vendors' plugins.

use crate::error::OrRaise;
use crate::gate::detach;
use pyo3::prelude::*;
use std::path::PathBuf;

/// load_plugin(path)
/// --
///
/// Load a vendor's plugin, a shared library, by its absolute path, and return the name of its kind of device.
///
/// From then on ``device("npu:0")`` can be named, and the plugin is among those that are chosen from. Load it before the
/// first call that asks for devices. The library stays loaded. ``ANYACCEL_PLUGINS`` does the same from outside.
///
/// Raises ValueError if the library is no plugin, is loaded already, or has a name that is taken; RuntimeError if the
/// runtime has been used already.
#[pyfunction]
pub(crate) fn load_plugin(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
    detach(py, || anyaccel::load_plugin(path)).or_raise().map(anyaccel::Kind::name)
}
