//! Functions that make tensors.

use super::{Tensor, buffer, dlpack, fills, shape};
use crate::device::{Arg, default_device, named};
use crate::dtype::PyDType;
use anyaccel::{DType, Device, DeviceArg};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyList, PyTuple};

/// Where a tensor is to go.
fn place(device: DeviceArg<'static>) -> PyResult<Device> {
    match device {
        DeviceArg::Device(device) => Ok(device),
        other => Ok(named(other)?.unwrap_or_else(default_device)),
    }
}

fn element_type(dtype: Option<&Bound<'_, PyDType>>) -> DType {
    dtype.map_or(DType::F32, |dtype| dtype.get().0)
}

macro_rules! of_size {
    ($($(#[$doc:meta])* $name:ident holds $number:expr;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(
            signature = (*size, dtype=None, device=Arg::CURRENT, pin_memory=false),
            text_signature = "(*size, dtype=None, device=None, pin_memory=False)"
        )]
        pub(crate) fn $name(
            py: Python<'_>,
            size: &Bound<'_, PyTuple>,
            dtype: Option<&Bound<'_, PyDType>>,
            device: Arg,
            pin_memory: bool,
        ) -> PyResult<Tensor> {
            let shape = shape::of_args(size)?;
            holding(py, Tensor::empty(py, place(device.0)?, element_type(dtype), shape, pin_memory)?, $number)
        }
    )*};
}
of_size! {
    /// A tensor with undefined contents: `empty(2, 3)` or `empty((2, 3))`. On the host unless a device is named.
    ///
    /// >>> import anyaccel
    /// >>> anyaccel.empty(2, 3, dtype=anyaccel.int32).shape
    /// (2, 3)
    empty holds None;
    /// A tensor of zeros.
    zeros holds Some(0);
    /// A tensor of ones.
    ones holds Some(1);
}

macro_rules! like {
    ($($(#[$doc:meta])* $name:ident holds $number:expr;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(
            signature = (input, *, dtype=None, device=None, pin_memory=false),
            text_signature = "(input, *, dtype=None, device=None, pin_memory=False)"
        )]
        pub(crate) fn $name(
            py: Python<'_>,
            input: &Bound<'_, Tensor>,
            dtype: Option<&Bound<'_, PyDType>>,
            device: Option<Arg>,
            pin_memory: bool,
        ) -> PyResult<Tensor> {
            let input = input.get();
            let device = device.map_or_else(|| Ok(input.storage.device()), |device| place(device.0))?;
            let dtype = dtype.map_or(input.dtype, |dtype| dtype.get().0);
            holding(py, Tensor::empty(py, device, dtype, input.shape.clone(), pin_memory)?, $number)
        }
    )*};
}
like! {
    /// A tensor like another, with undefined contents.
    empty_like holds None;
    /// A tensor of zeros like another.
    zeros_like holds Some(0);
}

/// The tensor, filled with a number if one is given.
#[inline]
fn holding(py: Python<'_>, tensor: Tensor, number: Option<u8>) -> PyResult<Tensor> {
    if let Some(number) = number {
        fills::whole(py, &tensor, number)?;
    }
    Ok(tensor)
}

/// A tensor filled with one number.
#[pyfunction]
#[pyo3(
    signature = (size, fill_value, *, dtype=None, device=Arg::CURRENT, pin_memory=false),
    text_signature = "(size, fill_value, *, dtype=None, device=None, pin_memory=False)"
)]
pub(crate) fn full(
    py: Python<'_>,
    size: &Bound<'_, PyAny>,
    fill_value: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyDType>>,
    device: Arg,
    pin_memory: bool,
) -> PyResult<Tensor> {
    let shape = shape::of_args(&PyTuple::new(py, [size])?)?;
    let tensor = Tensor::empty(py, place(device.0)?, element_type(dtype), shape, pin_memory)?;
    fills::constant(py, &tensor, fill_value)?;
    Ok(tensor)
}

/// A tensor of the numbers in nested lists: float32, int64, bool or complex64 unless a type is named.
///
/// >>> import anyaccel
/// >>> anyaccel.tensor([[1, 2], [3, 4]]).dtype
/// anyaccel.int64
#[pyfunction]
#[pyo3(
    signature = (data, *, dtype=None, device=Arg::CURRENT, pin_memory=false),
    text_signature = "(data, *, dtype=None, device=None, pin_memory=False)"
)]
pub(crate) fn tensor(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyDType>>,
    device: Arg,
    pin_memory: bool,
) -> PyResult<Tensor> {
    let mut shape = Vec::new();
    let mut items = Vec::new();
    flatten(data, 0, &mut shape, &mut items)?;
    let dtype = dtype.map_or_else(|| inferred(&items), |dtype| dtype.get().0);
    let mut bytes = Vec::with_capacity(items.len() * dtype.size());
    for item in &items {
        bytes.extend(super::values::element(py, dtype, item)?);
    }
    let device = place(device.0)?;
    let host = Tensor::of_host_bytes(py, &bytes, dtype, &shape)?;
    if pin_memory || device != host.storage.device() {
        let target = Tensor::empty(py, device, dtype, shape, pin_memory)?;
        super::copies::copy(py, &target, &host, false)?;
        return Ok(target);
    }
    Ok(host)
}

fn flatten<'py>(
    data: &Bound<'py, PyAny>,
    depth: usize,
    shape: &mut Vec<u64>,
    items: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<()> {
    if !data.is_instance_of::<PyList>() && !data.is_instance_of::<PyTuple>() {
        if depth != shape.len() {
            return Err(PyValueError::new_err("nested lists of different depths"));
        }
        items.push(data.clone());
        return Ok(());
    }
    if depth > 64 {
        return Err(PyValueError::new_err("lists nested deeper than 64"));
    }
    let len = data.len()? as u64;
    match shape.get(depth) {
        None if items.is_empty() => shape.push(len),
        Some(&known) if known == len => {}
        _ => return Err(PyValueError::new_err("nested lists of different lengths")),
    }
    for item in data.try_iter()? {
        flatten(&item?, depth + 1, shape, items)?;
    }
    Ok(())
}

fn inferred(items: &[Bound<'_, PyAny>]) -> DType {
    let any = |is: fn(&Bound<'_, PyAny>) -> bool| items.iter().any(is);
    if items.is_empty()
        || any(|item| item.is_instance_of::<PyFloat>()) && !any(|item| item.is_instance_of::<PyComplex>())
    {
        DType::F32
    } else if any(|item| item.is_instance_of::<PyComplex>()) {
        DType::C64
    } else if items.iter().all(|item| item.is_instance_of::<PyBool>()) {
        DType::Bool
    } else {
        DType::I64
    }
}

/// A tensor that shares the memory of an array (anything with the buffer protocol). It must be C-contiguous.
#[pyfunction]
#[pyo3(signature = (ndarray, /))]
pub(crate) fn from_numpy(ndarray: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    buffer::import(ndarray)
}

/// A one-dimensional tensor that shares the memory of a buffer, whatever its elements are there.
#[pyfunction]
#[pyo3(signature = (buffer, *, dtype))]
pub(crate) fn frombuffer(buffer: &Bound<'_, PyAny>, dtype: &Bound<'_, PyDType>) -> PyResult<Tensor> {
    buffer::import(buffer)?.reinterpreted(dtype.get().0, true)
}

/// A tensor that shares host memory with another library's, by `__dlpack__`; with `copy=True`, or on another `device`, a
/// copy of it.
#[pyfunction]
#[pyo3(signature = (ext_tensor, /, *, device=None, copy=None), text_signature = "(ext_tensor, /, *, device=None, copy=None)")]
pub(crate) fn from_dlpack(
    py: Python<'_>,
    ext_tensor: &Bound<'_, PyAny>,
    device: Option<Arg>,
    copy: Option<bool>,
) -> PyResult<Tensor> {
    let device = device.map(|device| place(device.0)).transpose()?;
    let shared = dlpack::import(ext_tensor, device.is_some() && copy != Some(false))?;
    match device {
        Some(device) if device != shared.storage.device() => match copy {
            Some(false) => Err(PyValueError::new_err(format!("{device} can't have this memory without a copy"))),
            _ => shared.moved(py, device, shared.dtype, false, false),
        },
        _ if copy == Some(true) => shared.cloned(py),
        _ => Ok(shared),
    }
}
