//! The buffer protocol, both ways.

use super::storage::{HostMemory, Storage};
use super::{Tensor, shape, values};
use crate::dtype;
use crate::error::type_name;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// Shape and strides of an exported view, which live until it is released.
struct Exported {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// Fills in a view of host memory.
///
/// # Safety
/// `view` is what the interpreter passes to an exporter.
pub(super) unsafe fn export(tensor: Bound<'_, Tensor>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let this = tensor.get();
    let py = tensor.py();
    if view.is_null() {
        return Err(PyBufferError::new_err("a view is needed"));
    }
    let (address, writable) = match &*this.storage {
        Storage::Host(memory) => (memory.address(), memory.is_writable()),
        Storage::Pinned(memory) => (memory.address(py)?, true),
        _ => {
            return Err(PyBufferError::new_err(format!(
                "a tensor on {} is not in host memory; use cpu() first",
                this.storage.device()
            )));
        }
    };
    let Some(format) = dtype::format(this.dtype) else {
        return Err(PyBufferError::new_err(values::no_buffer(this.dtype)));
    };
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !writable {
        return Err(PyBufferError::new_err("this tensor shares read-only memory"));
    }
    let size = this.dtype.size() as ffi::Py_ssize_t;
    let mut exported = Box::new(Exported {
        shape: this.shape.iter().map(|&extent| extent as ffi::Py_ssize_t).collect(),
        strides: shape::strides(&this.shape).into_iter().map(|stride| stride as ffi::Py_ssize_t * size).collect(),
    });
    let wants = |flag: c_int| flags & flag == flag;
    // SAFETY: the interpreter passes a view to fill in; the pointers live until `release`, the memory as long as the
    // tensor, which the view owns.
    unsafe {
        (*view).buf = address.cast::<c_void>();
        (*view).len = this.bytes() as ffi::Py_ssize_t;
        (*view).itemsize = size;
        (*view).readonly = c_int::from(!writable);
        (*view).ndim = this.shape.len() as c_int;
        (*view).format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        (*view).shape = if wants(ffi::PyBUF_ND) { exported.shape.as_mut_ptr() } else { std::ptr::null_mut() };
        (*view).strides = if wants(ffi::PyBUF_STRIDES) { exported.strides.as_mut_ptr() } else { std::ptr::null_mut() };
        (*view).suboffsets = std::ptr::null_mut();
        (*view).internal = Box::into_raw(exported).cast::<c_void>();
        (*view).obj = tensor.into_any().into_ptr();
    }
    Ok(())
}

/// Gives back what `export` made.
///
/// # Safety
/// `view` was filled in by `export` and is released once.
pub(super) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: as the caller promises.
    unsafe {
        let internal = (*view).internal.cast::<Exported>();
        if !internal.is_null() {
            drop(Box::from_raw(internal));
        }
    }
}

/// A tensor that shares the memory of an exporter: an array, a bytearray, a memoryview. It must be C-contiguous.
pub(super) fn import(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let mut view = Box::new(ffi::Py_buffer::new());
    let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_C_CONTIGUOUS;
    // SAFETY: an object and an empty view; writable first, since what can be written should be.
    let mut got = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags | ffi::PyBUF_WRITABLE) };
    if got != 0 {
        drop(PyErr::take(object.py()));
        // SAFETY: as above; the first attempt failed and left nothing.
        got = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) };
    }
    if got != 0 {
        let error = PyErr::take(object.py());
        // NumPy raises ValueError, others BufferError; what is no exporter raises TypeError.
        if error.as_ref().is_some_and(|error| !error.is_instance_of::<PyTypeError>(object.py())) {
            return Err(PyBufferError::new_err(format!(
                "the memory of this {} is not C-contiguous; make a copy first",
                type_name(object)
            )));
        }
        return Err(PyTypeError::new_err(format!("expected an array or a buffer, not {}", type_name(object))));
    }
    // SAFETY: a view that was filled in has a format, null or a C string, and `ndim` extents.
    let (format, extents) = unsafe {
        let format = if view.format.is_null() { c"B" } else { CStr::from_ptr(view.format) };
        let ndim = usize::try_from(view.ndim).unwrap_or(0);
        let extents = if ndim == 0 || view.shape.is_null() {
            Vec::new()
        } else {
            std::slice::from_raw_parts(view.shape, ndim).iter().map(|&extent| extent as u64).collect()
        };
        (format.to_string_lossy().into_owned(), extents)
    };
    let size = usize::try_from(view.itemsize).unwrap_or(0);
    let memory = HostMemory::of_buffer(view);
    match dtype::from_format(&format, size) {
        Some(dtype) => Ok(Tensor { storage: Arc::new(Storage::Host(memory)), shape: extents, dtype }),
        None => Err(PyTypeError::new_err(format!(
            "elements of {size} bytes with the format '{format}' have no dtype here, or another byte order"
        ))),
    }
}
