//! Which exception an error becomes.

use anyaccel::{Error, ErrorClass};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    anyaccel,
    AcceleratorError,
    PyRuntimeError,
    "The device or its driver refused, or an index names no device."
);
pyo3::create_exception!(
    anyaccel,
    OutOfMemoryError,
    PyRuntimeError,
    "Memory of a device or of the host ran out; the text says what was asked, what holds it and what to try."
);

/// The exception for an error.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    if let Some(raised) = crate::gate::raised() {
        return raised;
    }
    if let Error::Deferred { .. } = &error
        && let Some(raised) = crate::random::deferred_failure()
    {
        return raised;
    }
    let text = match &error {
        Error::ExpectedIndex { .. } => error.to_string().replacen("torch.device", "anyaccel.device", 1),
        _ => error.to_string(),
    };
    match error.class() {
        ErrorClass::Value => PyValueError::new_err(text),
        ErrorClass::Type => PyTypeError::new_err(text),
        ErrorClass::Runtime => PyRuntimeError::new_err(text),
        ErrorClass::Accelerator => AcceleratorError::new_err(text),
        ErrorClass::OutOfMemory => OutOfMemoryError::new_err(text),
        ErrorClass::NotImplemented => PyNotImplementedError::new_err(text),
    }
}

/// `?` on results of the runtime.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for anyaccel::Result<T> {
    #[inline]
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raise)
    }
}

/// The name of an object's type, for messages.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
