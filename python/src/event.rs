//! `anyaccel.Event`.

use crate::device::{Arg, PyDevice, named};
use crate::error::OrRaise;
use crate::gate::detach;
use crate::stream::{PyStream, optional};
use anyaccel::{Event, EventOptions, Runtime};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A point in a stream that can be waited for, asked about and timed. Making one starts nothing: it comes to life when it
/// is first recorded.
///
/// >>> import anyaccel
/// >>> start, end = anyaccel.Event(enable_timing=True), anyaccel.Event(enable_timing=True)
/// >>> start.query()
/// True
/// >>> start.record(); end.record(); end.synchronize()
/// >>> start.elapsed_time(end) >= 0.0
/// True
#[pyclass(name = "Event", module = "anyaccel", frozen, subclass, weakref)]
pub(crate) struct PyEvent(pub(crate) Event);

#[pymethods]
impl PyEvent {
    #[new]
    #[pyo3(
        signature = (device=Arg::CURRENT, *, enable_timing=false, blocking=false, interprocess=false),
        text_signature = "(device=None, *, enable_timing=False, blocking=False, interprocess=False)"
    )]
    fn new(device: Arg, enable_timing: bool, blocking: bool, interprocess: bool) -> PyResult<Self> {
        let options = EventOptions { device: named(device.0)?, enable_timing, blocking, interprocess };
        Runtime::global().event(options).map(Self).or_raise()
    }

    /// Records it on a stream, the current one if none is given. What was recorded before is forgotten.
    #[pyo3(signature = (stream=None))]
    fn record(&self, py: Python<'_>, stream: Option<&Bound<'_, PyStream>>) -> PyResult<()> {
        let stream = optional(stream);
        detach(py, || self.0.record(stream)).or_raise()
    }

    /// Makes later work of a stream (the current one if none is given) wait for the last recording.
    #[pyo3(signature = (stream=None))]
    fn wait(&self, py: Python<'_>, stream: Option<&Bound<'_, PyStream>>) -> PyResult<()> {
        let stream = optional(stream);
        detach(py, || self.0.wait(stream)).or_raise()
    }

    /// Whether the work before the last recording has ended; True if it was never recorded.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        detach(py, || self.0.query()).or_raise()
    }

    /// Waits for the work before the last recording. Ctrl-C ends the wait; the work goes on.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.synchronize()).or_raise()
    }

    /// Milliseconds from this event's last recording to another's. Both must be made with `enable_timing=True`.
    #[pyo3(signature = (end_event, /))]
    fn elapsed_time(&self, py: Python<'_>, end_event: &Bound<'_, PyEvent>) -> PyResult<f64> {
        let end = &end_event.get().0;
        detach(py, || self.0.elapsed_time(end)).or_raise()
    }

    /// Bytes that another process opens with `from_ipc_handle`, for an event made with `interprocess=True`: both then name one
    /// event, and wait for its last recording by any of them. Only where the device shares events (CUDA). May start the runtime.
    fn ipc_handle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &detach(py, || self.0.ipc_handle()).or_raise()?))
    }

    /// Opens another process's event of the same device. May start the runtime. `query()` may be a moment late for such events.
    #[staticmethod]
    fn from_ipc_handle(py: Python<'_>, device: Arg, handle: &[u8]) -> PyResult<Self> {
        detach(py, || Runtime::global().event_from_ipc_handle(device.0, handle)).map(Self).or_raise()
    }

    /// The device that it belongs to: the one asked for, or that of the first recording; else None.
    #[getter]
    fn device(&self) -> Option<PyDevice> {
        self.0.device().map(PyDevice)
    }

    /// Its number, unique in the process; 0 until it is recorded.
    #[getter]
    fn event_id(&self) -> u64 {
        self.0.event_id()
    }

    fn __repr__(&self) -> String {
        match self.0.device() {
            Some(device) => format!("<anyaccel.Event device={device} event_id={}>", self.0.event_id()),
            None => "<anyaccel.Event, not recorded>".to_owned(),
        }
    }
}
