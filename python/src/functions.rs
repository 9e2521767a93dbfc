//! The functions of `anyaccel.accelerator` on devices and streams.

use crate::device::{Arg, PyDevice, index_of, of_kind};
use crate::dtype;
use crate::error::{OrRaise, raise, type_name};
use crate::gate::detach;
use crate::scope::{self, Scope};
use crate::stream::PyStream;
use anyaccel::{DeviceArg, DeviceInfo, Error, Runtime};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

/// Whether the current kind of accelerator has at least one visible device. Never raises, and starts nothing unless the
/// backend's probe has to.
#[pyfunction]
pub(crate) fn is_available() -> bool {
    Runtime::global().is_available()
}

/// How many devices of the current kind are visible, masks applied; 0 if none. Never raises.
#[pyfunction]
pub(crate) fn device_count() -> u32 {
    Runtime::global().device_count()
}

/// The device, without index, of the kind in use; None if there is none, or with `check_available` unless one is there.
///
/// >>> from anyaccel import accelerator
/// >>> accelerator.current_accelerator()
/// device(type='host')
#[pyfunction]
#[pyo3(signature = (check_available=false))]
pub(crate) fn current_accelerator(py: Python<'_>, check_available: bool) -> PyResult<Option<Py<PyDevice>>> {
    Runtime::global().current_accelerator(check_available).map(|device| of_kind(py, device)).transpose()
}

/// This thread's current device; 0 if it never chose one. Starts nothing.
#[pyfunction]
pub(crate) fn current_device_index() -> PyResult<u32> {
    Runtime::global().current_device_index().or_raise()
}

/// Makes a device current on this thread. A negative index changes nothing.
#[pyfunction]
#[pyo3(signature = (device, /))]
pub(crate) fn set_device_index(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let arg = match Arg::of(device)? {
        Some(DeviceArg::Current) | None => {
            return Err(raise(Error::ExpectedIndex { got: device.str()?.to_cow()?.into_owned() }));
        }
        Some(arg) => arg,
    };
    match arg {
        DeviceArg::Index(index) if index < 0 => Ok(()),
        _ if Runtime::global().is_started() => Runtime::global().set_device_index(arg).or_raise(),
        _ => detach(py, || Runtime::global().set_device_index(arg)).or_raise(),
    }
}

/// Context manager that makes a device current and restores the one before; None changes nothing.
///
/// >>> from anyaccel import accelerator
/// >>> with accelerator.device_index(0):
/// ...     accelerator.current_device_index()
/// 0
#[pyclass(name = "device_index", module = "anyaccel.accelerator", frozen, subclass)]
pub(crate) struct PyDeviceIndex {
    index: Option<i64>,
    number: u64,
}

#[pymethods]
impl PyDeviceIndex {
    #[new]
    #[pyo3(signature = (device, /))]
    fn new(device: &Bound<'_, PyAny>) -> PyResult<Self> {
        let index = if device.is_none() {
            None
        } else {
            match index_of(device)? {
                Some(index) => Some(index),
                None => {
                    return Err(PyTypeError::new_err(format!(
                        "device_index expected an int or None, not {}",
                        type_name(device)
                    )));
                }
            }
        };
        Ok(Self { index, number: scope::number() })
    }

    /// The index that it makes current, or None.
    #[getter]
    fn idx(&self) -> Option<i64> {
        self.index
    }

    #[inline]
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let Some(index) = self.index else { return Ok(()) };
        let runtime = Runtime::global();
        if !runtime.is_started() {
            // Starting may take long and run other code; the guard then belongs to this thread all the same.
            detach(py, || runtime.current_stream(DeviceArg::Index(index)).map(drop)).or_raise()?;
        }
        scope::enter(self.number, Scope::Device { _guard: runtime.device_index(index).or_raise()? });
        Ok(())
    }

    #[inline]
    #[pyo3(signature = (_type=None, _value=None, _traceback=None, /))]
    fn __exit__(
        &self,
        _type: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) {
        scope::leave(self.number);
    }

    fn __repr__(&self) -> String {
        match self.index {
            Some(index) => format!("device_index({index})"),
            None => "device_index(None)".to_owned(),
        }
    }
}

/// This thread's current stream of a device: the default one until another is set.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn current_stream(py: Python<'_>, device: Arg) -> PyResult<PyStream> {
    let runtime = Runtime::global();
    let stream = if runtime.is_started() {
        runtime.current_stream(device.0)
    } else {
        detach(py, || Runtime::global().current_stream(device.0))
    };
    stream.map(PyStream::of).or_raise()
}

/// The default stream of a device, with the id 0.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn default_stream(py: Python<'_>, device: Arg) -> PyResult<PyStream> {
    detach(py, || Runtime::global().default_stream(device.0)).map(PyStream::of).or_raise()
}

/// Makes a stream current on this thread, and its device too.
#[pyfunction]
pub(crate) fn set_stream(stream: &Bound<'_, PyStream>) -> PyResult<()> {
    Runtime::global().set_stream(&stream.get().stream).or_raise()
}

/// Waits for all streams of a device. Ctrl-C ends the wait; the work goes on. Before anything has started it only checks
/// its argument.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn synchronize(py: Python<'_>, device: Arg) -> PyResult<()> {
    detach(py, || Runtime::global().synchronize(device.0)).or_raise()
}

/// Gives back device memory that is kept for reuse.
#[pyfunction]
pub(crate) fn empty_cache(py: Python<'_>) -> PyResult<()> {
    detach(py, || Runtime::global().empty_cache()).or_raise()
}

/// Gives back pinned host memory that is kept for reuse.
#[pyfunction]
pub(crate) fn empty_host_cache(py: Python<'_>) -> PyResult<()> {
    detach(py, || Runtime::global().empty_host_cache()).or_raise()
}

/// The element types of a device.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn _supported_dtypes<'py>(py: Python<'py>, device: Arg) -> PyResult<Bound<'py, PyFrozenSet>> {
    let capability = detach(py, || Runtime::global().get_device_capability(device.0)).or_raise()?;
    let known = anyaccel::DType::ALL.iter().filter(|&&dtype| capability.supported_dtypes.contains(dtype));
    let dtypes = known.map(|&known| dtype::object(py, known)).collect::<PyResult<Vec<_>>>()?;
    PyFrozenSet::new(py, dtypes)
}

/// A device's name.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn get_device_name(py: Python<'_>, device: Arg) -> PyResult<String> {
    detach(py, || Runtime::global().get_device_name(device.0)).or_raise()
}

/// What a device says of itself. Unknown is None.
#[pyclass(name = "DeviceProperties", module = "anyaccel.accelerator", frozen)]
pub(crate) struct PyProperties(DeviceInfo);

#[pymethods]
impl PyProperties {
    /// The marketing name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Who makes it.
    #[getter]
    fn vendor(&self) -> &str {
        &self.0.vendor
    }

    /// The version of the native driver.
    #[getter]
    fn driver_version(&self) -> &str {
        &self.0.driver
    }

    /// Its identity.
    #[getter]
    fn uuid(&self) -> Option<String> {
        self.0.uuid.map(|uuid| uuid.to_string())
    }

    /// Its place on the bus.
    #[getter]
    fn pci_address(&self) -> Option<String> {
        self.0.pci.map(|pci| pci.to_string())
    }

    /// Memory in bytes.
    #[getter]
    fn total_memory(&self) -> u64 {
        self.0.memory
    }

    /// The largest single allocation in bytes.
    #[getter]
    fn max_allocation(&self) -> u64 {
        self.0.max_alloc
    }

    /// Compute units.
    #[getter]
    fn multi_processor_count(&self) -> Option<u32> {
        self.0.cores
    }

    /// The highest clock in MHz.
    #[getter]
    fn max_clock_rate(&self) -> Option<u32> {
        self.0.clock_mhz
    }

    /// Whether it shares the host's memory.
    #[getter]
    fn is_integrated(&self) -> Option<bool> {
        self.0.integrated
    }

    /// The priorities of its streams: the least urgent and the most urgent.
    #[getter]
    fn stream_priority_range(&self) -> (i32, i32) {
        (self.0.priorities.least, self.0.priorities.greatest)
    }

    fn __repr__(&self) -> String {
        let cores = self.0.cores.map_or_else(|| "?".to_owned(), |cores| cores.to_string());
        format!(
            "DeviceProperties(name='{}', vendor='{}', total_memory={} MiB, multi_processor_count={cores})",
            self.0.name,
            self.0.vendor,
            self.0.memory >> 20
        )
    }
}

/// A device's properties, the same record on every backend.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn get_device_properties(py: Python<'_>, device: Arg) -> PyResult<PyProperties> {
    detach(py, || Runtime::global().get_device_properties(device.0)).map(PyProperties).or_raise()
}

/// Whether a device reaches the memory of another directly; False for itself.
#[pyfunction]
#[pyo3(signature = (device, peer_device, /))]
pub(crate) fn can_device_access_peer(py: Python<'_>, device: Arg, peer_device: Arg) -> PyResult<bool> {
    detach(py, || Runtime::global().can_device_access_peer(device.0, peer_device.0)).or_raise()
}

macro_rules! sensors {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
        pub(crate) fn $name(py: Python<'_>, device: Arg) -> PyResult<f32> {
            detach(py, || Runtime::global().$name(device.0)).or_raise()
        }
    )*};
}
sensors! {
    /// Percent of the last interval in which the device worked.
    utilization;
    /// Percent of the last interval in which the device's memory was read or written.
    memory_usage;
    /// Degrees Celsius.
    temperature;
    /// Watts.
    power_draw;
    /// MHz.
    clock_rate;
}

/// Whether the runtime has started. Starts nothing.
#[pyfunction]
pub(crate) fn is_initialized() -> bool {
    Runtime::global().is_started()
}
