//! Python's stacks for memory histories: file, line and function of every frame, the innermost first.
//!
//! A frame is known by its code object and the instruction that it is at, so its line is worked out once; a stack is a list
//! of numbers of such frames. Everything is kept for the life of the process, code objects too, so that no other code
//! object takes the place of one that is known.
//!
//! # Protocol
//!
//! The table is used only by threads that hold the interpreter, and its lock is never held while Python code could run or
//! another thread could take the interpreter: a forked child, whose one thread held the interpreter at the fork, finds the
//! lock free.

use crate::gate;
use anyaccel::{StackFrame, StackId, StackSource};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames of a stack that are kept, the innermost ones.
const DEPTH: usize = 256;
/// Different stacks that are kept; further ones count as unknown.
const MOST: usize = 1 << 20;

/// A code object that is known, so that it does not go.
struct Code {
    _object: Py<PyAny>,
    name: Arc<str>,
    file: Arc<str>,
}

#[derive(Default)]
struct Table {
    /// By code object and instruction.
    sites: HashMap<(usize, i32), u32>,
    frames: Vec<StackFrame>,
    codes: HashMap<usize, Code>,
    numbers: HashMap<Box<[u32]>, u32>,
    /// By number, from 1.
    stacks: Vec<Box<[u32]>>,
    trims: HashMap<&'static str, u32>,
}

#[derive(Default)]
struct PythonStacks(Mutex<Table>);

/// The stacks of this process.
pub(crate) fn source() -> Arc<dyn StackSource> {
    static SOURCE: PyOnceLock<Arc<PythonStacks>> = PyOnceLock::new();
    Python::attach(|py| SOURCE.get_or_init(py, Arc::default).clone())
}

impl PythonStacks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present thread's frames, as numbers.
    fn walk(&self, py: Python<'_>, call: Option<&'static str>) -> PyResult<Vec<u32>> {
        let mut numbers = Vec::new();
        if let Some(call) = call {
            numbers.push(self.trim(call));
        }
        // SAFETY: the interpreter is held; the result is borrowed from the running frame, or null without one.
        let innermost = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
        let mut next = innermost;
        while let Some(frame) = next.take().filter(|_| numbers.len() < DEPTH) {
            numbers.push(self.site(py, &frame)?);
            let back: Bound<'_, PyAny> = frame.getattr(intern!(py, "f_back"))?;
            next = (!back.is_none()).then_some(back);
        }
        Ok(numbers)
    }

    fn site(&self, py: Python<'_>, frame: &Bound<'_, PyAny>) -> PyResult<u32> {
        let raw = frame.as_ptr().cast::<ffi::PyFrameObject>();
        // SAFETY: `frame` is a frame object, which every frame's f_back and PyEval_GetFrame are; a strong reference is
        // returned, never null.
        let code = unsafe { Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(raw).cast()) };
        let at: i32 = frame.getattr(intern!(py, "f_lasti"))?.extract()?;
        let key = (code.as_ptr() as usize, at);
        let known = self.table().sites.get(&key).copied();
        if let Some(number) = known {
            return Ok(number);
        }
        // SAFETY: as above; the frame is not changed.
        let line = unsafe { ffi::PyFrame_GetLineNumber(raw) };
        let names = self.table().codes.get(&key.0).map(|code| (code.name.clone(), code.file.clone()));
        let (name, file) = match names {
            Some(names) => names,
            None => {
                let text = |of: Bound<'_, PyAny>| -> PyResult<Arc<str>> {
                    Ok(of.cast::<PyString>()?.to_string_lossy().into())
                };
                let name = text(code.getattr(intern!(py, "co_name"))?)?;
                let file = text(code.getattr(intern!(py, "co_filename"))?)?;
                let kept = Code { _object: code.clone().unbind(), name: name.clone(), file: file.clone() };
                self.table().codes.insert(key.0, kept);
                (name, file)
            }
        };
        let mut table = self.table();
        let number = table.frames.len() as u32;
        table.frames.push(StackFrame { name, file, line: u32::try_from(line).unwrap_or(0) });
        table.sites.insert(key, number);
        Ok(number)
    }

    /// The frame that names a trim.
    fn trim(&self, call: &'static str) -> u32 {
        let mut table = self.table();
        if let Some(&number) = table.trims.get(call) {
            return number;
        }
        let number = table.frames.len() as u32;
        table.frames.push(StackFrame { name: call.into(), file: "anyaccel".into(), line: 0 });
        table.trims.insert(call, number);
        number
    }

    fn number(&self, frames: Vec<u32>) -> StackId {
        if frames.is_empty() {
            return StackId::EMPTY;
        }
        let mut table = self.table();
        if let Some(&number) = table.numbers.get(&*frames) {
            return StackId(number);
        }
        if table.stacks.len() == MOST {
            return StackId::EMPTY;
        }
        let frames: Box<[u32]> = frames.into();
        table.stacks.push(frames.clone());
        let number = table.stacks.len() as u32;
        table.numbers.insert(frames, number);
        StackId(number)
    }
}

impl StackSource for PythonStacks {
    fn stack(&self, call: Option<&'static str>) -> StackId {
        // SAFETY: may be called from any thread at any time; null for one that has never run Python.
        if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return StackId::EMPTY;
        }
        let walked = gate::with_python(|py| {
            // What an attribute of a frame raises is nobody's: the stack is unknown then. An exception that is being
            // handled stays as it is.
            let pending = PyErr::take(py);
            let frames = self.walk(py, call).unwrap_or_default();
            if let Some(pending) = pending {
                pending.restore(py);
            }
            self.number(frames)
        });
        walked.unwrap_or(StackId::EMPTY)
    }

    fn frames(&self, stack: StackId) -> Vec<StackFrame> {
        let frames = gate::with_python(|_| {
            let table = self.table();
            let frames = table.stacks.get((stack.0 as usize).checked_sub(1)?)?;
            Some(frames.iter().map(|&at| table.frames[at as usize].clone()).collect())
        });
        frames.flatten().unwrap_or_default()
    }
}
