//! `anyaccel.Stream`.

use crate::device::{Arg, index_of};
use crate::error::{OrRaise, type_name};
use crate::event::PyEvent;
use crate::gate::{self, detach};
use crate::scope::{self, Scope};
use anyaccel::{DeviceArg, Runtime, Stream, StreamOptions};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A stream: work enqueued on it runs in order, and without order to other streams but by events.
///
/// `Stream(device=None, *, priority=0)` is the next stream of that device's pool of 32 per priority (lower is more
/// urgent). `Stream(stream_id, device_index, device_type, *, priority=0)` is the one with those numbers. As a context
/// manager it makes itself and its device current, and restores what was.
///
/// >>> import anyaccel
/// >>> s = anyaccel.Stream()
/// >>> with s:
/// ...     assert anyaccel.accelerator.current_stream() == s
/// >>> s.synchronize(); s.query()
/// True
#[pyclass(name = "Stream", module = "anyaccel", frozen, subclass, weakref)]
pub(crate) struct PyStream {
    pub(crate) stream: Stream,
    number: u64,
}

impl PyStream {
    #[inline]
    pub(crate) fn of(stream: Stream) -> Self {
        Self { stream, number: scope::number() }
    }
}

/// A stream argument that may be None.
pub(crate) fn optional<'a>(stream: Option<&'a Bound<'_, PyStream>>) -> Option<&'a Stream> {
    stream.map(|stream| &stream.get().stream)
}

fn integer(name: &str, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    index_of(object)?.ok_or_else(|| PyTypeError::new_err(format!("{name} must be an int, not {}", type_name(object))))
}

#[pymethods]
impl PyStream {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = "(device=None, *, priority=0)")]
    fn new(py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (mut device, mut stream_id, mut device_index, mut device_type) = (None, None, None, None);
        let mut priority = 0;
        match args.len() {
            0 => {}
            1 => device = Some(args.get_item(0)?),
            3 => {
                stream_id = Some(args.get_item(0)?);
                device_index = Some(args.get_item(1)?);
                device_type = Some(args.get_item(2)?);
            }
            count => {
                return Err(PyTypeError::new_err(format!(
                    "Stream takes a device, or stream_id, device_index and device_type; got {count} arguments"
                )));
            }
        }
        for (key, value) in kwargs.into_iter().flat_map(|kwargs| kwargs.iter()) {
            let key = key.cast::<PyString>()?.to_cow()?.into_owned();
            let place = match key.as_str() {
                "device" => &mut device,
                "stream_id" => &mut stream_id,
                "device_index" => &mut device_index,
                "device_type" => &mut device_type,
                "priority" => {
                    let given = integer("priority", &value)?;
                    priority = given.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                    continue;
                }
                _ => return Err(PyTypeError::new_err(format!("Stream got an unexpected keyword argument '{key}'"))),
            };
            if place.replace(value).is_some() {
                return Err(PyTypeError::new_err(format!("Stream got multiple values for argument '{key}'")));
            }
        }
        match (device, stream_id, device_index, device_type) {
            (device, None, None, None) => {
                let device = device.map_or(Ok(Arg::CURRENT), |device| device.extract::<Arg>())?.0;
                Self::make(py, device, StreamOptions { priority, reserved: false })
            }
            (None, Some(id), Some(index), Some(kind)) => {
                let id = integer("stream_id", &id)?;
                let index = integer("device_index", &index)?;
                let kind = kind
                    .cast::<PyString>()
                    .map_err(|_| PyTypeError::new_err("device_type must be a str, as Stream.device_type gives it"))?;
                let kind = kind.to_cow()?.parse::<anyaccel::Device>().or_raise()?.kind();
                let id = u64::try_from(id).map_err(|_| PyValueError::new_err("stream_id must not be negative"))?;
                let stream = detach(py, move || match u32::try_from(index) {
                    Ok(ordinal) => Runtime::global().stream_from_id(id, ordinal, kind),
                    // Out of range; whoever resolves it says how many there are.
                    Err(_) => Runtime::global().default_stream(DeviceArg::Index(index)),
                });
                Ok(Self::of(stream.or_raise()?))
            }
            _ => {
                Err(PyTypeError::new_err("Stream takes a device, or stream_id, device_index and device_type together"))
            }
        }
    }

    /// A stream with a native queue of its own, or an error where there is none left.
    #[staticmethod]
    #[pyo3(signature = (device=Arg::CURRENT, *, priority=0), text_signature = "(device=None, *, priority=0)")]
    fn reserved(py: Python<'_>, device: Arg, priority: i32) -> PyResult<Self> {
        Self::make(py, device.0, StreamOptions { priority, reserved: true })
    }

    /// Its number on its device; 0 is the default stream.
    #[getter]
    fn stream_id(&self) -> u64 {
        self.stream.stream_id()
    }

    /// Its device's index.
    #[getter]
    fn device_index(&self) -> u32 {
        self.stream.device_index()
    }

    /// Its device's type, by name.
    #[getter]
    fn device_type(&self) -> &'static str {
        self.stream.device_type().name()
    }

    /// Its device.
    #[getter]
    fn device(&self) -> crate::device::PyDevice {
        crate::device::PyDevice(self.stream.device())
    }

    /// Its priority; lower is more urgent.
    #[getter]
    fn priority(&self) -> i32 {
        self.stream.priority()
    }

    /// Whether it has a native queue of its own.
    #[getter]
    fn is_reserved(&self) -> bool {
        self.stream.is_reserved()
    }

    /// The vendor's handle (a `CUstream`, say) as an int; 0 where there is none.
    #[getter]
    fn native_handle(&self) -> PyResult<u64> {
        self.stream.native_handle().or_raise()
    }

    /// Whether work on the two streams goes through one native queue.
    #[pyo3(signature = (other, /))]
    fn shares_queue_with(&self, other: &Bound<'_, PyStream>) -> bool {
        self.stream.shares_queue_with(&other.get().stream)
    }

    /// Whether all work enqueued so far has ended.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        detach(py, || self.stream.query()).or_raise()
    }

    /// Waits for all work enqueued so far. Ctrl-C ends the wait; the work goes on.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.stream.synchronize()).or_raise()
    }

    /// Makes later work wait for an event.
    fn wait_event(&self, py: Python<'_>, event: &Bound<'_, PyEvent>) -> PyResult<()> {
        let event = &event.get().0;
        detach(py, || self.stream.wait_event(event)).or_raise()
    }

    /// Makes later work wait for what is enqueued on another stream now.
    fn wait_stream(&self, py: Python<'_>, stream: &Bound<'_, PyStream>) -> PyResult<()> {
        let other = &stream.get().stream;
        detach(py, || self.stream.wait_stream(other)).or_raise()
    }

    /// Records an event here, a new one if none is given, and returns it.
    #[pyo3(signature = (event=None))]
    fn record_event<'py>(&self, py: Python<'py>, event: Option<Bound<'py, PyEvent>>) -> PyResult<Bound<'py, PyEvent>> {
        let given = event.as_ref().map(|event| &event.get().0);
        let recorded = detach(py, || self.stream.record_event(given)).or_raise()?;
        match event {
            Some(event) => Ok(event),
            None => Bound::new(py, PyEvent(recorded)),
        }
    }

    /// Whether it is being captured into a graph.
    fn is_capturing(&self) -> PyResult<bool> {
        self.stream.is_capturing().or_raise()
    }

    /// Calls `function(*args)` in stream order, on a thread of the backend; captured, at each replay. It must not call the
    /// runtime. What it raises is reported by the next wait for the stream. Once the interpreter closes it is not called.
    #[pyo3(signature = (function, /, *args))]
    fn host_fn(&self, py: Python<'_>, function: Py<PyAny>, args: Py<PyTuple>) -> PyResult<()> {
        if !function.bind(py).is_callable() {
            return Err(PyTypeError::new_err(format!(
                "host_fn expected a callable, not {}",
                type_name(function.bind(py))
            )));
        }
        let call = move || call_python(&function, &args);
        detach(
            py,
            move || if self.stream.is_capturing()? { self.stream.host_fn_mut(call) } else { self.stream.host_fn(call) },
        )
        .or_raise()
    }

    #[inline]
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        scope::enter(this.number, Scope::Stream { _guard: this.stream.enter().or_raise()? });
        Ok(slf)
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

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let equal = || other.cast::<PyStream>().is_ok_and(|other| other.get().stream == self.stream);
        match op {
            CompareOp::Eq => Ok(equal().into_pyobject(py)?.to_owned().into_any().unbind()),
            CompareOp::Ne => Ok((!equal()).into_pyobject(py)?.to_owned().into_any().unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __hash__(&self) -> u64 {
        let mut state = DefaultHasher::new();
        self.stream.hash(&mut state);
        state.finish()
    }

    fn __repr__(&self) -> String {
        format!("<anyaccel.Stream device={} stream_id={}>", self.stream.device(), self.stream.stream_id())
    }
}

impl PyStream {
    fn make(py: Python<'_>, device: DeviceArg<'static>, options: StreamOptions) -> PyResult<Self> {
        detach(py, move || Runtime::global().stream_with(device, options)).map(Self::of).or_raise()
    }
}

/// Calls a Python function on a thread of the runtime. What it raises goes on as a panic, which the stream keeps.
fn call_python(function: &Py<PyAny>, args: &Py<PyTuple>) {
    let raised = gate::with_python(|py| {
        let error = function.bind(py).call1(args.bind(py)).err()?;
        let kind = error.get_type(py).name().map_or_else(|_| "exception".to_owned(), |name| name.to_string());
        Some(format!("{kind}: {}", error.value(py)))
    });
    if let Some(Some(message)) = raised {
        // Not `panic!`: nobody needs the hook's report of what is reported anyway.
        std::panic::resume_unwind(Box::new(message));
    }
}
