//! Shapes.

use crate::device::index_of;
use crate::error::type_name;
use anyaccel::DType;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// A shape from `*size`: ints, or one sequence of ints.
pub(super) fn of_args(size: &Bound<'_, PyTuple>) -> PyResult<Vec<u64>> {
    if size.len() == 1 {
        let only = size.get_borrowed_item(0)?;
        if let Ok(tuple) = only.cast::<PyTuple>() {
            return tuple.iter_borrowed().map(|extent| extent_of(&extent)).collect();
        }
        if let Ok(list) = only.cast::<PyList>() {
            return list.iter().map(|extent| extent_of(&extent)).collect();
        }
    }
    size.iter_borrowed().map(|extent| extent_of(&extent)).collect()
}

fn extent_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let extent = index_of(object)?
        .ok_or_else(|| PyTypeError::new_err(format!("a size must be an int, not {}", type_name(object))))?;
    u64::try_from(extent)
        .map_err(|_| PyRuntimeError::new_err(format!("Trying to create tensor with negative dimension {extent}")))
}

/// The bytes of elements of that shape.
pub(super) fn bytes(shape: &[u64], dtype: DType) -> PyResult<u64> {
    let too_large = || PyRuntimeError::new_err(format!("a tensor of shape {shape:?} is too large"));
    // As many as signed sizes hold, which is what Python and its protocols count in.
    let bytes = shape.iter().try_fold(dtype.size() as u64, |bytes, &extent| bytes.checked_mul(extent));
    bytes.filter(|&bytes| i64::try_from(bytes).is_ok()).ok_or_else(too_large)
}

/// The strides of a C-contiguous tensor, in elements.
pub(super) fn strides(shape: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * (shape[at].max(1) as i64);
    }
    strides
}

/// One extent, counted from the end if `dim` is negative.
pub(super) fn extent(shape: &[u64], dim: isize) -> PyResult<u64> {
    let at = if dim < 0 { shape.len().checked_add_signed(dim) } else { Some(dim as usize) };
    let extent = at.and_then(|at| shape.get(at)).copied();
    extent.ok_or_else(|| PyIndexError::new_err(format!("dimension {dim} of a tensor that has {}", shape.len())))
}

/// A shape of as many elements, from a size that may leave one extent open as -1.
pub(super) fn reshaped(size: &Bound<'_, PyTuple>, count: u64) -> PyResult<Vec<u64>> {
    let only = if size.len() == 1 { Some(size.get_item(0)?) } else { None };
    let items: Vec<Bound<'_, PyAny>> = match &only {
        Some(only) if only.is_instance_of::<PyTuple>() || only.is_instance_of::<PyList>() => {
            only.try_iter()?.collect::<PyResult<_>>()?
        }
        _ => size.iter().collect(),
    };
    let mut open = None;
    let mut shape = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        if index_of(item)? == Some(-1) && open.is_none() {
            open = Some(at);
            shape.push(1);
        } else {
            shape.push(extent_of(item)?);
        }
    }
    let known = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent));
    if let (Some(at), Some(known)) = (open, known)
        && known > 0
        && count.is_multiple_of(known)
    {
        shape[at] = count / known;
        return Ok(shape);
    }
    if open.is_none() && known == Some(count) {
        return Ok(shape);
    }
    Err(PyRuntimeError::new_err(format!("a tensor of {count} elements can't have that shape")))
}
