//! Recorded histories for Python: replayed under other settings, searched for better ones, read for findings.

use crate::gate::{self, detach};
use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::replay::{Conf, DEFAULT_MEMORY, replay, row};
use anyaccel_snapshot::tune::{Candidate, candidates, tune};
use anyaccel_snapshot::{History, ReadError, Snapshot, findings, read_bytes, read_file};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::path::PathBuf;

/// A snapshot from a file, or from what `snapshot()` gave.
fn load(source: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let py = source.py();
    if source.is_instance_of::<PyDict>() {
        let pickle = py.import("pickle")?.call_method1("dumps", (source, 4))?;
        let bytes = pickle.cast::<PyBytes>()?.as_bytes();
        return read_bytes(bytes).map_err(|error| PyValueError::new_err(format!("the snapshot: {error}")));
    }
    let path: PathBuf = source.extract()?;
    let read = detach(py, || read_file(&path));
    read.map_err(|error| match error {
        ReadError::Io(error) => PyOSError::new_err(format!("can't read '{}': {error}", path.display())),
        other => PyValueError::new_err(format!("'{}': {other}", path.display())),
    })
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// JSON as Python's plain objects.
fn plain<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// See `anyaccel.memory.replay`.
#[pyfunction]
pub(crate) fn _replay<'py>(
    source: &Bound<'py, PyAny>,
    settings: Vec<String>,
    memory: Option<u64>,
) -> PyResult<Bound<'py, PyList>> {
    let py = source.py();
    let snapshot = load(source)?;
    let histories = detach(py, || History::all(&snapshot)).map_err(wrong)?;
    let out = PyList::empty(py);
    for text in settings {
        let parsed = Settings::parse(&text).map_err(wrong)?;
        for history in &histories {
            py.check_signals()?;
            let total = memory.or(history.total_memory()).unwrap_or(DEFAULT_MEMORY);
            let outcome = detach(py, || replay(history, &Conf::new(parsed.clone(), total)));
            let line = plain(py, &row(&outcome, &text, total).to_string())?;
            line.set_item("device", history.device())?;
            out.append(line)?;
        }
    }
    Ok(out)
}

/// The settings that a recording was made under.
#[pyfunction]
pub(crate) fn _recorded_settings(source: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(load(source)?.settings.map(|settings| settings.text).unwrap_or_default())
}

fn told<'py>(py: Python<'py>, candidate: &Candidate) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("settings", &candidate.settings)?;
    out.set_item("fits", candidate.fits)?;
    out.set_item("oom", candidate.oom)?;
    out.set_item("done", candidate.done)?;
    out.set_item("peak_allocated", candidate.peak_allocated)?;
    out.set_item("peak_reserved", candidate.peak_reserved)?;
    out.set_item("margin", candidate.margin)?;
    out.set_item("retries", candidate.retries)?;
    out.set_item("device_calls", candidate.device_calls)?;
    Ok(out)
}

/// See `anyaccel.memory.tune`.
#[pyfunction]
pub(crate) fn _tune<'py>(
    source: &Bound<'py, PyAny>,
    memory: u64,
    settings: usize,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = source.py();
    let snapshot = load(source)?;
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut interrupt = None;
    let found = detach(py, || {
        let histories = History::all(&snapshot).map_err(wrong)?;
        // A signal ends the search after the setting that is being tried.
        let mut go_on = |_done| match gate::with_python(|py| py.check_signals()) {
            Some(Err(raised)) => {
                interrupt = Some(raised);
                false
            }
            _ => true,
        };
        PyResult::Ok(tune(&histories, memory, &candidates(settings), threads, &mut go_on))
    })?;
    if let Some(raised) = interrupt {
        return Err(raised);
    }
    let found = found.ok_or_else(|| PyValueError::new_err("nothing could be tried"))?;
    let out = PyDict::new(py);
    out.set_item("memory", found.total)?;
    out.set_item("best", found.best().map(|best| told(py, best)).transpose()?)?;
    out.set_item("least_memory", found.least_memory)?;
    out.set_item("default", told(py, &found.default)?)?;
    let all = found.candidates.iter().map(|candidate| told(py, candidate)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("candidates", all)?;
    Ok(out)
}

/// See `anyaccel.memory.findings`.
#[pyfunction]
pub(crate) fn _findings<'py>(source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = source.py();
    let snapshot = load(source)?;
    let out = PyList::empty(py);
    for device in 0..snapshot.traces.len() {
        if snapshot.traces[device].events.is_empty() {
            continue;
        }
        let found = detach(py, || findings::findings(&snapshot, device)).map_err(wrong)?;
        out.append(plain(py, &found.to_json(&snapshot).to_string())?)?;
    }
    Ok(out)
}
