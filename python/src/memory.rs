//! The functions of `anyaccel.accelerator.memory`, and `MemPool`.

use crate::device::{Arg, PyDevice, index_of};
use crate::error::{OrRaise, raise, type_name};
use crate::gate::{self, detach};
use crate::scope::{self, Scope};
use anyaccel::{Device, MemPool, OutOfMemory, Runtime};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::sync::Arc;

/// An OrderedDict with the keys of one kind of statistics, made once: a copy with other values is much cheaper than a new
/// one.
struct Template {
    keys: Vec<Py<PyString>>,
    dict: Py<PyAny>,
}

static DEVICE: PyOnceLock<Template> = PyOnceLock::new();
static HOST: PyOnceLock<Template> = PyOnceLock::new();

/// An OrderedDict of flat statistics, whose keys are those of the template or none.
fn ordered<'py>(
    py: Python<'py>,
    template: &PyOnceLock<Template>,
    flat: &[(&'static str, i64)],
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "collections", "OrderedDict")?;
    if flat.is_empty() {
        return class.call0();
    }
    let template = template.get_or_try_init(py, || {
        let keys: Vec<_> = flat.iter().map(|(key, _)| PyString::intern(py, key).unbind()).collect();
        let dict = class.call0()?;
        for key in &keys {
            dict.set_item(key, 0)?;
        }
        PyResult::Ok(Template { keys, dict: dict.unbind() })
    })?;
    let copy = template.dict.bind(py).call_method0(intern!(py, "copy"))?;
    // The keys are there already: a plain dict's assignment changes their values and nothing else.
    let plain = copy.cast::<PyDict>()?;
    for (key, (_, value)) in template.keys.iter().zip(flat) {
        plain.set_item(key, value)?;
    }
    Ok(copy)
}

/// (free, total) bytes of a device, all processes together.
#[pyfunction]
#[pyo3(signature = (device_index=Arg::CURRENT, /), text_signature = "(device_index=None, /)")]
pub(crate) fn get_memory_info(py: Python<'_>, device_index: Arg) -> PyResult<(u64, u64)> {
    detach(py, || Runtime::global().get_memory_info(device_index.0)).or_raise()
}

/// The counters of a device's memory as a sorted flat OrderedDict; empty while nothing has started.
///
/// >>> import anyaccel
/// >>> x = anyaccel.empty(256, device=anyaccel.accelerator.current_accelerator())
/// >>> anyaccel.accelerator.memory_stats()["active_bytes.all.current"] >= 1024
/// True
#[pyfunction]
#[pyo3(signature = (device_index=Arg::CURRENT, /), text_signature = "(device_index=None, /)")]
pub(crate) fn memory_stats<'py>(py: Python<'py>, device_index: Arg) -> PyResult<Bound<'py, PyAny>> {
    ordered(py, &DEVICE, &Runtime::global().memory_stats(device_index.0).or_raise()?.flat())
}

/// The counters of a device's pinned host memory; empty while nothing has started.
#[pyfunction]
#[pyo3(signature = (device_index=Arg::CURRENT, /), text_signature = "(device_index=None, /)")]
pub(crate) fn host_memory_stats<'py>(py: Python<'py>, device_index: Arg) -> PyResult<Bound<'py, PyAny>> {
    let stats = detach(py, || Runtime::global().host_memory_stats(device_index.0)).or_raise()?;
    ordered(py, &HOST, &stats.flat())
}

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident -> $result:ty;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(signature = (device_index=Arg::CURRENT, /), text_signature = "(device_index=None, /)")]
        pub(crate) fn $name(device_index: Arg) -> PyResult<$result> {
            Runtime::global().$name(device_index.0).or_raise()
        }
    )*};
}
statistics! {
    /// Bytes in the hands of users now; 0 while nothing has started.
    memory_allocated -> u64;
    /// The most bytes that were in the hands of users since the start or the last reset of peaks.
    max_memory_allocated -> u64;
    /// Bytes taken from the device now, used or kept for reuse.
    memory_reserved -> u64;
    /// The most bytes that were taken from the device since the start or the last reset of peaks.
    max_memory_reserved -> u64;
    /// Sets every peak to its current value.
    reset_peak_memory_stats -> ();
    /// Sets `allocated`, `freed` and the `num_*` counters to 0.
    reset_accumulated_memory_stats -> ();
    /// Sets every peak of pinned memory to its current value.
    reset_peak_host_memory_stats -> ();
    /// Sets the accumulated counters of pinned memory to 0.
    reset_accumulated_host_memory_stats -> ();
}

/// The statistics as a table for people.
#[pyfunction]
#[pyo3(signature = (device_index=Arg::CURRENT, abbreviated=false), text_signature = "(device_index=None, abbreviated=False)")]
pub(crate) fn memory_summary(device_index: Arg, abbreviated: bool) -> PyResult<String> {
    Runtime::global().memory_summary(device_index.0, abbreviated).or_raise()
}

/// Limits what this process takes from a device to a fraction of its memory; 1.0 is no limit.
#[pyfunction]
#[pyo3(signature = (fraction, device=Arg::CURRENT), text_signature = "(fraction, device=None)")]
pub(crate) fn set_per_process_memory_fraction(py: Python<'_>, fraction: f64, device: Arg) -> PyResult<()> {
    detach(py, || Runtime::global().set_per_process_memory_fraction(fraction, device.0)).or_raise()
}

/// Limits what this process takes from a device to a number of bytes; None lifts the limit.
#[pyfunction]
#[pyo3(signature = (bytes, device=Arg::CURRENT), text_signature = "(bytes, device=None)")]
pub(crate) fn set_memory_budget(py: Python<'_>, bytes: Option<&Bound<'_, PyAny>>, device: Arg) -> PyResult<()> {
    let bytes = match bytes {
        None => None,
        Some(given) => {
            let count = index_of(given)?.ok_or_else(|| {
                PyTypeError::new_err(format!("bytes must be an int or None, not {}", type_name(given)))
            })?;
            Some(u64::try_from(count).map_err(|_| PyValueError::new_err("bytes must not be negative"))?)
        }
    };
    detach(py, || Runtime::global().set_memory_budget(bytes, device.0)).or_raise()
}

/// Puts other allocator settings in force, `"max_split_size_mb:128"` say, for all devices: all of them or none.
#[pyfunction]
pub(crate) fn set_allocator_settings(py: Python<'_>, settings: &str) -> PyResult<()> {
    detach(py, || Runtime::global().set_allocator_settings(settings)).or_raise()
}

/// Calls `observer(device_index, requested, total, free)` for every request for device memory that fails, on the failing
/// thread; `free` is None where the device can't tell. What it raises is printed and ignored.
#[pyfunction]
#[pyo3(signature = (observer, /))]
pub(crate) fn attach_out_of_memory_observer(observer: Py<PyAny>, py: Python<'_>) -> PyResult<()> {
    if !observer.bind(py).is_callable() {
        return Err(PyTypeError::new_err(format!("observer must be callable, not {}", type_name(observer.bind(py)))));
    }
    let tell = move |device: Device, report: &OutOfMemory| {
        let _closing = gate::with_python(|py| {
            let told = (device.index().unwrap_or(0), report.requested, report.total, report.free);
            if let Err(error) = observer.bind(py).call1(told) {
                error.write_unraisable(py, Some(observer.bind(py)));
            }
        });
    };
    detach(py, || Runtime::global().attach_out_of_memory_observer(tell));
    Ok(())
}

/// A private pool of device memory: tensors made inside `with pool:` share no segment with others.
///
/// >>> import anyaccel
/// >>> pool = anyaccel.MemPool()
/// >>> with pool:
/// ...     x = anyaccel.empty(1024, device=anyaccel.accelerator.current_accelerator())
#[pyclass(name = "MemPool", module = "anyaccel", frozen, weakref)]
pub(crate) struct PyMemPool {
    pool: Arc<MemPool>,
    number: u64,
}

#[pymethods]
impl PyMemPool {
    #[new]
    #[pyo3(signature = (device=Arg::CURRENT), text_signature = "(device=None)")]
    fn new(py: Python<'_>, device: Arg) -> PyResult<Self> {
        let pool = detach(py, || Runtime::global().mem_pool(device.0)).or_raise()?;
        Ok(Self { pool: Arc::new(pool), number: scope::number() })
    }

    /// Its id, which `Graph(pool=...)` takes.
    #[getter]
    fn id(&self) -> (u64, u64) {
        self.pool.id()
    }

    /// Its device.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.pool.device())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        scope::enter(this.number, Scope::pool(&this.pool).map_err(raise)?);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        scope::leave(self.number);
    }

    fn __repr__(&self) -> String {
        format!("<anyaccel.MemPool device={} id={:?}>", self.pool.device(), self.pool.id())
    }
}
