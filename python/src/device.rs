//! `anyaccel.device`, and what functions take where they want a device.

use crate::error::{OrRaise, raise, type_name};
use anyaccel::{Device, DeviceArg, Error, Kind, Runtime};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

thread_local! {
    /// The devices that `with device:` made the default of this thread, the innermost last.
    static DEFAULTS: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

/// A device by name: a type and maybe an index. Making one starts nothing and checks nothing.
///
/// `device("host:1")`, `device("host", 1)`, or `device(1)` for that index of the current accelerator. As a context
/// manager it is where this thread's new tensors go unless they say otherwise.
///
/// >>> import anyaccel
/// >>> anyaccel.device("host:1")
/// device(type='host', index=1)
/// >>> str(anyaccel.device("cpu"))
/// 'cpu'
#[pyclass(name = "device", module = "anyaccel", frozen, eq, skip_from_py_object)]
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub(crate) struct PyDevice(pub(crate) Device);

/// An integer by `__index__`, the nearest one of 64 bits; `None` for what is no integer or a bool.
pub(crate) fn index_of(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_exact_instance_of::<PyInt>() {
        return saturated(object).map(Some);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    match object.lookup_special_index()? {
        Some(index) => saturated(&index).map(Some),
        None => Ok(None),
    }
}

fn saturated(integer: &Bound<'_, PyAny>) -> PyResult<i64> {
    match integer.extract::<i64>() {
        Ok(value) => Ok(value),
        Err(error) if error.is_instance_of::<PyOverflowError>(integer.py()) => {
            Ok(if integer.lt(0)? { i64::MIN } else { i64::MAX })
        }
        Err(error) => Err(error),
    }
}

/// Calls `__index__` if the type has it.
pub(crate) trait SpecialIndex<'py> {
    fn lookup_special_index(&self) -> PyResult<Option<Bound<'py, PyAny>>>;
}

impl<'py> SpecialIndex<'py> for Bound<'py, PyAny> {
    fn lookup_special_index(&self) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.is_instance_of::<PyInt>() {
            return Ok(Some(self.clone()));
        }
        if !self.get_type().hasattr("__index__")? {
            return Ok(None);
        }
        self.call_method0("__index__").map(Some)
    }
}

/// A device argument.
#[derive(Clone, Copy)]
pub(crate) struct Arg(pub(crate) DeviceArg<'static>);

impl Arg {
    pub(crate) const CURRENT: Arg = Arg(DeviceArg::Current);

    /// What an object means as a device; `None` if it means none.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<DeviceArg<'static>>> {
        if object.is_none() {
            return Ok(Some(DeviceArg::Current));
        }
        if object.is_exact_instance_of::<PyInt>() {
            return Ok(Some(DeviceArg::Index(saturated(object)?)));
        }
        if let Ok(device) = object.cast::<PyDevice>() {
            return Ok(Some(arg(device.get().0)));
        }
        if let Ok(text) = object.cast::<PyString>() {
            let device: Device = text.to_cow()?.parse().or_raise()?;
            return Ok(Some(DeviceArg::Device(device)));
        }
        if object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("expected a device, not a bool"));
        }
        if let Some(index) = index_of(object)? {
            return Ok(Some(DeviceArg::Index(index)));
        }
        // A torch.device says by its text what it is.
        if object.get_type().fully_qualified_name()?.to_cow()? == "torch.device" {
            let device: Device = object.str()?.to_cow()?.parse().or_raise()?;
            return Ok(Some(DeviceArg::Device(device)));
        }
        Ok(None)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Arg {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match Arg::of(&object)? {
            Some(device) => Ok(Arg(device)),
            None => Err(PyTypeError::new_err(format!(
                "expected a device, the name of one, an index or None, not {}",
                type_name(&object)
            ))),
        }
    }
}

/// The device that an argument names; `None` for the current one. Starts nothing; whether it exists is not checked.
pub(crate) fn named(arg: DeviceArg<'_>) -> PyResult<Option<Device>> {
    match arg {
        DeviceArg::Current => Ok(None),
        DeviceArg::Device(device) => Ok(Some(device)),
        DeviceArg::Text(text) => text.parse().map(Some).or_raise(),
        DeviceArg::Index(index) => {
            let kind = Runtime::global().kind().ok_or(Error::NoAccelerator).or_raise()?;
            let Ok(ordinal) = u32::try_from(index) else {
                // Whoever starts nothing and checks its argument says how many there are.
                Runtime::global().memory_allocated(arg).or_raise()?;
                return Err(raise(Error::IndexOutOfRange { index, count: None }));
            };
            Ok(Some(Device::new(kind, Some(ordinal))))
        }
    }
}

/// A device as an argument, by its index where that is the same: which is resolved fastest.
#[inline]
pub(crate) fn arg(device: Device) -> DeviceArg<'static> {
    let runtime = Runtime::global();
    match device.index() {
        Some(index) if runtime.is_started() && runtime.kind() == Some(device.kind()) => DeviceArg::Index(index.into()),
        _ => DeviceArg::Device(device),
    }
}

/// The object of a kind without an index; the first one is kept.
pub(crate) fn of_kind(py: Python<'_>, device: Device) -> PyResult<Py<PyDevice>> {
    static FIRST: PyOnceLock<Py<PyDevice>> = PyOnceLock::new();
    let known = FIRST.get_or_try_init(py, || Py::new(py, PyDevice(device)))?;
    if known.get().0 == device { Ok(known.clone_ref(py)) } else { Py::new(py, PyDevice(device)) }
}

/// Where a new tensor goes that names no device.
pub(crate) fn default_device() -> Device {
    let scoped = DEFAULTS.try_with(|defaults| defaults.borrow().last().copied()).ok().flatten();
    scoped.unwrap_or(Device::new(Kind::CPU, None))
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None), text_signature = "(type, index=None)")]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let index = match index {
            None => None,
            Some(index) => match index_of(index)? {
                Some(index) => Some(index),
                None => return Err(PyTypeError::new_err(format!("index must be an int, not {}", type_name(index)))),
            },
        };
        if let Ok(text) = r#type.cast::<PyString>() {
            let text = text.to_cow()?;
            let device: Device = text.parse().or_raise()?;
            let Some(index) = index else { return Ok(Self(device)) };
            if device.index().is_some() {
                return Err(PyRuntimeError::new_err(format!(
                    "type (string) must not include an index because index was passed explicitly: {text}"
                )));
            }
            let ordinal = u32::try_from(index)
                .map_err(|_| PyRuntimeError::new_err(format!("Device index must not be negative, got {index}")))?;
            return Ok(Self(Device::new(device.kind(), Some(ordinal))));
        }
        if index.is_some() {
            return Err(PyTypeError::new_err(format!("type must be a str beside an index, not {}", type_name(r#type))));
        }
        match Arg::of(r#type)? {
            None | Some(DeviceArg::Current) => {
                Err(PyTypeError::new_err(format!("expected a device, a str or an int, not {}", type_name(r#type))))
            }
            Some(device) => Ok(Self(named(device)?.ok_or(Error::NoAccelerator).or_raise()?)),
        }
    }

    /// The type: `host`, `cuda`, `cpu`, ...
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.kind().name()
    }

    /// The index, or None.
    #[getter]
    fn index(&self) -> Option<u32> {
        self.0.index()
    }

    fn __repr__(&self) -> String {
        match self.0.index() {
            Some(index) => format!("device(type='{}', index={index})", self.0.kind().name()),
            None => format!("device(type='{}')", self.0.kind().name()),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        let mut state = DefaultHasher::new();
        self.0.hash(&mut state);
        state.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (kind, index) = (slf.get().0.kind().name(), slf.get().0.index());
        Ok((slf.get_type().into_any(), (kind, index).into_pyobject(slf.py())?))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        let _exiting = DEFAULTS.try_with(|defaults| defaults.borrow_mut().push(slf.get().0));
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        let _exiting = DEFAULTS.try_with(|defaults| {
            let mut defaults = defaults.borrow_mut();
            if let Some(at) = defaults.iter().rposition(|device| *device == self.0) {
                defaults.remove(at);
            }
        });
    }
}
