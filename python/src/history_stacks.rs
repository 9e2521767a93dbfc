//! Python's stacks for memory histories: file, line and function of every frame, the innermost first.
//!
//! A frame is known by its code object and the instruction that it is at. Code objects are kept as long as the recording goes on,
//! so that none takes the place of one that is known.
//!
//! # Protocol
//!
//! The locks here are held neither while Python code could run nor while another thread could take the interpreter, and taken by
//! its holders alone: a forked child, whose one thread held the interpreter at the fork, finds them free.

use crate::gate;
use anyaccel::{FrameSource, StackFrame, StackSource, StackTable};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stacks of this process: those of the recording that goes on, so that its events keep theirs, or new ones.
pub(crate) fn source(_py: Python<'_>) -> Arc<dyn StackSource> {
    type Current = (u32, Weak<StackTable<PythonFrames>>);
    static CURRENT: Mutex<Current> = Mutex::new((0, Weak::new()));
    let mut current = lock(&CURRENT);
    let process = std::process::id();
    let known = if current.0 == process { current.1.upgrade() } else { None };
    known.unwrap_or_else(|| {
        let made = Arc::new(StackTable::new(PythonFrames::default()));
        *current = (process, Arc::downgrade(&made));
        made
    })
}

/// A code object's address, and an instruction of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Site {
    code: usize,
    at: i32,
}

#[derive(Default)]
struct PythonFrames {
    /// By address.
    codes: Mutex<HashMap<usize, Py<PyAny>>>,
}

impl PythonFrames {
    fn code(&self, py: Python<'_>, site: Site) -> Option<Py<PyAny>> {
        lock(&self.codes).get(&site.code).map(|code| code.clone_ref(py))
    }
}

/// Writes the present thread's frames.
fn walk(py: Python<'_>, sites: &mut [Site]) -> PyResult<usize> {
    // SAFETY: the interpreter is held; the result is borrowed from the running frame, or null without one.
    let innermost = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    let mut next = innermost;
    let mut count = 0;
    for site in sites {
        let Some(frame) = next else { break };
        // SAFETY: a frame object, which every frame's f_back and PyEval_GetFrame are; a strong reference is returned, never null.
        let code = unsafe { Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame.as_ptr().cast()).cast()) };
        let at = frame.getattr(intern!(py, "f_lasti"))?.extract()?;
        *site = Site { code: code.as_ptr() as usize, at };
        count += 1;
        let back: Bound<'_, PyAny> = frame.getattr(intern!(py, "f_back"))?;
        next = (!back.is_none()).then_some(back);
    }
    Ok(count)
}

/// The line that an instruction of a code object belongs to; 0 for one that belongs to none.
fn line(code: &Bound<'_, PyAny>, at: i32) -> PyResult<u32> {
    for range in code.call_method0(intern!(code.py(), "co_lines"))?.try_iter()? {
        let (start, end, line): (i32, i32, Option<u32>) = range?.extract()?;
        if (start..end).contains(&at) {
            return Ok(line.unwrap_or(0));
        }
    }
    Ok(0)
}

fn tell(code: &Bound<'_, PyAny>, at: i32) -> PyResult<StackFrame> {
    let text = |of: Bound<'_, PyAny>| -> PyResult<Arc<str>> { Ok(of.cast::<PyString>()?.to_string_lossy().into()) };
    Ok(StackFrame {
        name: text(code.getattr(intern!(code.py(), "co_name"))?)?,
        file: text(code.getattr(intern!(code.py(), "co_filename"))?)?,
        line: line(code, at)?,
    })
}

/// Runs `f` with the interpreter. What it raises is nobody's, and an exception that is being handled stays as it is.
fn quietly<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
    let run = |py: Python<'_>| {
        let pending = PyErr::take(py);
        let result = f(py).ok();
        if let Some(pending) = pending {
            pending.restore(py);
        }
        result
    };
    gate::with_python(run).flatten()
}

impl FrameSource for PythonFrames {
    type Frame = Site;

    fn capture(&self, frames: &mut [Site]) -> usize {
        // SAFETY: may be called from any thread at any time; null for one that has never run Python.
        if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return 0;
        }
        quietly(|py| walk(py, frames)).unwrap_or(0)
    }

    fn keep(&self, site: Site) {
        quietly(|py| {
            // SAFETY: the code object of a frame that runs on this thread, which holds it.
            let code = unsafe { Bound::from_borrowed_ptr(py, site.code as *mut ffi::PyObject) };
            lock(&self.codes).entry(site.code).or_insert_with(|| code.unbind());
            Ok(())
        });
    }

    fn resolve(&self, frames: &[Site]) -> Vec<Vec<StackFrame>> {
        // The interpreter once for all of them: others may have it for milliseconds in between.
        let told = quietly(|py| {
            let told = |site: &Site| tell(self.code(py, *site)?.bind(py), site.at).ok();
            Ok(frames.iter().map(|site| told(site).into_iter().collect()).collect())
        });
        told.unwrap_or_else(|| vec![Vec::new(); frames.len()])
    }
}
