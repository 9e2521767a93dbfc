//! Memory history for Python: the functions of `anyaccel.memory`.

use crate::error::{raise, type_name};
use crate::gate::detach;
use crate::history_stacks;
use crate::scope::{self, Scope};
use anyaccel::{ContextLevel, HistoryAction, HistoryOptions, HistoryStacks, Recorded, Runtime};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::path::PathBuf;

const ACTIONS: [(&str, HistoryAction); 10] = [
    ("alloc", HistoryAction::Alloc),
    ("free_requested", HistoryAction::FreeRequested),
    ("free_completed", HistoryAction::FreeCompleted),
    ("segment_alloc", HistoryAction::SegmentAlloc),
    ("segment_free", HistoryAction::SegmentFree),
    ("segment_map", HistoryAction::SegmentMap),
    ("segment_unmap", HistoryAction::SegmentUnmap),
    ("oom", HistoryAction::Oom),
    ("snapshot", HistoryAction::Snapshot),
    ("annotate", HistoryAction::Annotate),
];

/// The value of an argument that is one of some words, or None.
fn choice<T: Copy>(argument: &str, given: Option<&Bound<'_, PyAny>>, words: &[(&str, T)], none: T) -> PyResult<T> {
    let Some(given) = given else { return Ok(none) };
    let known = || words.iter().map(|(word, _)| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let Ok(word) = given.cast::<PyString>() else {
        let found = type_name(given);
        return Err(PyTypeError::new_err(format!("{argument} must be one of {} or None, not {found}", known())));
    };
    let word = word.to_cow()?;
    let found = words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        PyValueError::new_err(format!("expected {argument} to be one of {} or None, not '{word}'", known()))
    })
}

fn skipped(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<HistoryAction>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if given.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("skip_actions must be a list of names, not one name"));
    }
    given.try_iter()?.map(|item| choice("skip_actions", Some(&item?), &ACTIONS, HistoryAction::Alloc)).collect()
}

/// See `anyaccel.memory.record_memory_history`.
#[pyfunction]
#[pyo3(signature = (enabled, context, stacks, max_entries, clear_history, skip_actions, record_pinned_host_memory))]
#[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
pub(crate) fn _record_memory_history(
    py: Python<'_>,
    enabled: Option<&Bound<'_, PyAny>>,
    context: Option<&Bound<'_, PyAny>>,
    stacks: Option<&Bound<'_, PyAny>>,
    max_entries: &Bound<'_, PyAny>,
    clear_history: bool,
    skip_actions: Option<&Bound<'_, PyAny>>,
    record_pinned_host_memory: bool,
) -> PyResult<()> {
    let levels = [("state", ContextLevel::State), ("alloc", ContextLevel::Alloc), ("all", ContextLevel::All)];
    let max_entries = match crate::device::index_of(max_entries)? {
        Some(count) => usize::try_from(count).map_err(|_| PyValueError::new_err("max_entries must not be negative"))?,
        None => {
            let found = type_name(max_entries);
            return Err(PyTypeError::new_err(format!("max_entries must be an int, not {found}")));
        }
    };
    let options = HistoryOptions {
        enabled: choice("enabled", enabled, &[("state", Recorded::State), ("all", Recorded::All)], Recorded::Nothing)?,
        context: choice("context", context, &levels, ContextLevel::Never)?,
        stacks: match choice("stacks", stacks, &[("python", true), ("all", true)], false)? {
            true => HistoryStacks::From(history_stacks::source(py)),
            false => HistoryStacks::None,
        },
        max_entries,
        skip: skipped(skip_actions)?,
        pinned: record_pinned_host_memory,
        clear: clear_history,
    };
    detach(py, || Runtime::global().record_memory_history(options)).map_err(raise)
}

/// See `anyaccel.memory.snapshot`.
#[pyfunction]
pub(crate) fn _memory_snapshot(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // With the interpreter, which resolving stacks needs: taking it for each of them would wait for other threads each time.
    let snapshot = Runtime::global().memory_snapshot().map_err(raise)?;
    let pickle = detach(py, || snapshot.to_pickle());
    // Plain data only: our own, just written.
    py.import("pickle")?.call_method1("loads", (PyBytes::new(py, &pickle),))
}

/// See `anyaccel.memory.dump_snapshot`.
#[pyfunction]
pub(crate) fn _dump_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let snapshot = Runtime::global().memory_snapshot().map_err(raise)?;
    detach(py, || snapshot.save(path)).map_err(|error| PyOSError::new_err(error.to_string()))
}

/// See `anyaccel.memory.history_status`.
#[pyfunction]
pub(crate) fn _history_status(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let status = detach(py, || Runtime::global().memory_history()).map_err(raise)?;
    let out = PyDict::new(py);
    out.set_item("recording", status.recording)?;
    out.set_item("entries", status.entries)?;
    out.set_item("dropped", status.dropped)?;
    Ok(out)
}

/// Enters an annotated range on this thread; the number leaves it.
#[pyfunction]
pub(crate) fn _enter_annotation(name: &str) -> u64 {
    let number = scope::number();
    scope::enter(number, Scope::Annotation { _guard: Runtime::global().memory_annotation(name) });
    number
}

/// Leaves an annotated range.
#[pyfunction]
pub(crate) fn _leave_annotation(number: u64) {
    scope::leave(number);
}
