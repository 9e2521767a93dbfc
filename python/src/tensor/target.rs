//! Where `Tensor.to` goes.

use super::Tensor;
use crate::device::{Arg, named};
use crate::dtype::PyDType;
use crate::error::type_name;
use anyaccel::{DType, Device};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyDictMethods, PyTuple};

/// What `Tensor.to` is asked for.
pub(super) struct Target {
    pub(super) device: Option<Device>,
    pub(super) dtype: Option<DType>,
    pub(super) non_blocking: bool,
    pub(super) copy: bool,
}

impl Target {
    /// Reads `to(device, dtype, non_blocking, copy)`, `to(dtype, ...)`, `to(other, ...)`.
    pub(super) fn of(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut target = Target { device: None, dtype: None, non_blocking: false, copy: false };
        let mut flags = 0;
        for arg in args.iter() {
            if let Ok(flag) = arg.cast::<PyBool>() {
                match flags {
                    0 => target.non_blocking = flag.is_true(),
                    1 => target.copy = flag.is_true(),
                    _ => return Err(PyTypeError::new_err("to() takes two flags, non_blocking and copy")),
                }
                flags += 1;
            } else if let Ok(other) = arg.cast::<Tensor>() {
                target.device = Some(other.get().storage.device());
                target.dtype = Some(other.get().dtype);
            } else if let Ok(dtype) = arg.cast::<PyDType>() {
                target.dtype = Some(dtype.get().0);
            } else if !arg.is_none() {
                target.device = named(arg.extract::<Arg>()?.0)?;
            }
        }
        for (key, value) in kwargs.into_iter().flat_map(PyDictMethods::iter) {
            let key: String = key.extract()?;
            match key.as_str() {
                "device" => target.device = named(value.extract::<Arg>()?.0)?,
                "dtype" if value.is_none() => {}
                "dtype" => match value.cast::<PyDType>() {
                    Ok(dtype) => target.dtype = Some(dtype.get().0),
                    Err(_) => {
                        return Err(PyTypeError::new_err(format!("dtype must be a dtype, not {}", type_name(&value))));
                    }
                },
                "non_blocking" => target.non_blocking = value.extract()?,
                "copy" => target.copy = value.extract()?,
                _ => return Err(PyTypeError::new_err(format!("to() got an unexpected keyword argument '{key}'"))),
            }
        }
        Ok(target)
    }
}
