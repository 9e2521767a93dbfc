//! Elements as Python objects, and back.

use crate::dtype;
use anyaccel::DType;
use anyaccel_kernels::convert;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList};

/// The widest type that holds elements of a type: bool, i64, u64, f64 or complex128.
const fn wide(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::Bool,
        DType::U64 => DType::U64,
        _ if dtype.is_complex() => DType::C128,
        _ if dtype.is_floating_point() => DType::F64,
        _ => DType::I64,
    }
}

/// Elements of one type as those of another, on the host.
pub(super) fn converted(to: DType, from: DType, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; bytes.len() / from.size() * to.size()];
    // The lengths fit, which is all that can be wrong.
    let _fits = convert::convert(to, &mut out, from, bytes);
    out
}

/// Elements as Python objects.
pub(super) fn objects<'py>(py: Python<'py>, dtype: DType, bytes: &[u8]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wide = wide(dtype);
    let bytes = converted(wide, dtype, bytes);
    let (words, _) = bytes.as_chunks::<8>();
    Ok(match wide {
        DType::Bool => bytes.iter().map(|&byte| PyBool::new(py, byte != 0).to_owned().into_any()).collect(),
        DType::F64 => words.iter().map(|&word| PyFloat::new(py, f64::from_ne_bytes(word)).into_any()).collect(),
        DType::C128 => words
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[re, im]| PyComplex::from_doubles(py, f64::from_ne_bytes(re), f64::from_ne_bytes(im)).into_any())
            .collect(),
        DType::U64 => words
            .iter()
            .map(|&word| Ok(u64::from_ne_bytes(word).into_pyobject(py)?.into_any()))
            .collect::<PyResult<_>>()?,
        _ => words
            .iter()
            .map(|&word| Ok(i64::from_ne_bytes(word).into_pyobject(py)?.into_any()))
            .collect::<PyResult<_>>()?,
    })
}

/// Whether as many elements of one type are equal, by value.
pub(super) fn equal(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    if !dtype.is_floating_point() && !dtype.is_complex() {
        return a == b;
    }
    let wide = wide(dtype);
    let (a, b) = (converted(wide, dtype, a), converted(wide, dtype, b));
    a.as_chunks().0.iter().zip(b.as_chunks().0).all(|(a, b)| f64::from_ne_bytes(*a) == f64::from_ne_bytes(*b))
}

/// Nested lists of a shape.
pub(super) fn nested<'py>(
    py: Python<'py>,
    shape: &[u64],
    items: &mut impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match shape {
        [] => items.next().ok_or_else(|| PyRuntimeError::new_err("no element")),
        [extent, rest @ ..] => {
            let list = PyList::empty(py);
            for _ in 0..*extent {
                list.append(nested(py, rest, items)?)?;
            }
            Ok(list.into_any())
        }
    }
}

/// A number as one element of a type.
pub(super) fn element(py: Python<'_>, dtype: DType, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let overflow =
        || PyRuntimeError::new_err(format!("value cannot be converted to type {} without overflow", dtype.name()));
    let is_integer = !dtype.is_floating_point() && !dtype.is_complex() && dtype != DType::Bool;
    if value.is_instance_of::<PyBool>() {
        return Ok(converted(dtype, DType::Bool, &[u8::from(value.is_truthy()?)]));
    }
    if value.is_instance_of::<PyInt>() {
        if dtype == DType::U64 {
            return Ok(value.extract::<u64>().map_err(|_| overflow())?.to_ne_bytes().to_vec());
        }
        if !is_integer && value.extract::<i64>().is_err() {
            let value = value.extract::<f64>().map_err(|_| overflow())?;
            return Ok(converted(dtype, DType::F64, &value.to_ne_bytes()));
        }
        let value = value.extract::<i64>().map_err(|_| overflow())?.to_ne_bytes();
        let out = converted(dtype, DType::I64, &value);
        return if is_integer && converted(DType::I64, dtype, &out) != value { Err(overflow()) } else { Ok(out) };
    }
    if let Ok(value) = value.cast::<PyComplex>() {
        use pyo3::types::PyComplexMethods;
        if !dtype.is_complex() {
            return Err(PyRuntimeError::new_err(format!("a complex value can't fill a tensor of {}", dtype.name())));
        }
        let mut bytes = value.real().to_ne_bytes().to_vec();
        bytes.extend(value.imag().to_ne_bytes());
        return Ok(converted(dtype, DType::C128, &bytes));
    }
    let Ok(number) = value.extract::<f64>() else {
        return Err(PyTypeError::new_err(format!("expected a number, not {}", crate::error::type_name(value))));
    };
    if is_integer {
        // Towards zero, if there is such an integer.
        if !number.is_finite() {
            return Err(overflow());
        }
        let whole = PyFloat::new(py, number.trunc()).call_method0("__int__")?;
        return element(py, dtype, &whole);
    }
    Ok(converted(dtype, DType::F64, &number.to_ne_bytes()))
}

/// The word for a type in messages.
pub(super) fn no_buffer(dtype: DType) -> String {
    debug_assert!(dtype::format(dtype).is_none());
    format!("Python's buffers have no {}; view() it as uint8 or uint16 first", dtype.name())
}
