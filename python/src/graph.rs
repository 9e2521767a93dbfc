//! What is under `anyaccel.accelerator.Graph`.

use crate::error::OrRaise;
use crate::gate::detach;
use anyaccel::{CaptureErrorMode, Graph, GraphOptions, Runtime};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A graph of the process-wide runtime.
#[pyclass(module = "anyaccel", frozen)]
pub(crate) struct _Graph(Graph);

/// Checks a mode's name.
#[pyfunction]
pub(crate) fn _check_capture_error_mode(mode: &str) -> PyResult<()> {
    mode.parse::<CaptureErrorMode>().map(drop).or_raise()
}

#[pymethods]
impl _Graph {
    #[new]
    fn new(keep_graph: bool) -> Self {
        Self(Runtime::global().graph(GraphOptions { keep_graph, ..GraphOptions::default() }))
    }

    fn capture_begin(&self, py: Python<'_>, pool: Option<(u64, u64)>, mode: &str) -> PyResult<()> {
        let mode: CaptureErrorMode = mode.parse().or_raise()?;
        self.0.set_graph_pool(pool);
        self.0.set_capture_error_mode(mode);
        detach(py, || self.0.capture_begin()).or_raise()
    }

    fn capture_end(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.capture_end()).or_raise()
    }

    fn instantiate(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.instantiate()).or_raise()
    }

    fn replay(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.replay()).or_raise()
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.reset()).or_raise()
    }

    fn pool(&self) -> (u64, u64) {
        self.0.pool()
    }

    fn is_capturing(&self) -> bool {
        self.0.is_capturing()
    }

    fn enable_debug_mode(&self) {
        self.0.enable_debug_mode();
    }

    fn debug_dump(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detach(py, || self.0.debug_dump(path)).or_raise()
    }
}
