//! What other libraries on the device are told: in which order they may use our memory, and what it is.
//!
//! DLPack's consumer names a stream, and the producer sees to it that work enqueued there from now on finds the data. For
//! a stream of this runtime, known by its native handle, that is an event between two streams, and so it is for another
//! library's stream of CUDA. Where such a number names what this runtime can't use, or nothing, the host waits.

use super::Tensor;
use super::copies;
use super::storage::Storage;
use crate::device::{arg, index_of};
use crate::dtype::{self, PyDType};
use crate::error::{OrRaise, type_name};
use crate::gate::detach;
use anyaccel::{Buffer, DType, Kind, Runtime};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// DLPack's numbers of the kinds whose streams the array API standard speaks of.
pub(super) const CPU: i32 = 1;
pub(super) const CUDA: i32 = 2;
pub(super) const ROCM: i32 = 10;

/// What a consumer asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Nothing: it sees to that itself.
    Own,
    /// The data, whatever uses it.
    Ready,
    /// The data on the stream with that native handle.
    On(u64),
}

/// What `stream=` of `__dlpack__` asks for on a type of device, as the array API standard has it.
pub(super) fn order(device_type: i32, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Order> {
    let Some(stream) = stream.filter(|stream| !stream.is_none()) else { return Ok(Order::Ready) };
    let Some(number) = index_of(stream)? else {
        return Err(PyTypeError::new_err(format!("stream must be an int or None, not {}", type_name(stream))));
    };
    let refuse = |why: &str| Err(PyValueError::new_err(format!("stream={number}: {why}")));
    match (device_type, number) {
        (_, -1) => Ok(Order::Own),
        (CPU, _) => refuse("memory of the host has no streams; pass None, or -1 to wait for nothing"),
        (CUDA, 0) => refuse("ambiguous; 1 is CUDA's legacy default stream and 2 that of the thread"),
        (ROCM, 1 | 2) => refuse("no stream of ROCm; 0 is its default stream"),
        (_, ..-1) => refuse("streams are not negative, but for -1, which waits for nothing"),
        // The default stream, of which there is no handle.
        (ROCM, 0) => Ok(Order::Ready),
        _ => Ok(Order::On(number.unsigned_abs())),
    }
}

/// Sees to it that a consumer finds what this thread's current stream does with a buffer.
pub(super) fn hand_over(py: Python<'_>, buffer: &Buffer, order: Order) -> PyResult<()> {
    if order == Order::Own {
        return Ok(());
    }
    let stream = copies::current(py, buffer.device())?;
    let device = arg(buffer.device());
    let kind = buffer.device().kind();
    detach(py, || {
        let theirs = match order {
            Order::On(handle) => Runtime::global().stream_from_native(device, handle)?,
            _ => None,
        };
        match theirs {
            Some(theirs) => {
                theirs.wait_stream(&stream)?;
                buffer.record_stream(&theirs)
            }
            None => match order {
                // SAFETY: the consumer says that it is a stream of the tensor's device, as DLPack has it, which holds it
                // while it asks for the tensor.
                Order::On(handle) if kind == Kind::CUDA && unsafe { stream.external_wait(handle) }.is_ok() => Ok(()),
                _ => stream.synchronize(),
            },
        }
    })
    .or_raise()
}

/// `__cuda_array_interface__` of version 3. The consumer synchronizes with the stream that it names, the current one here.
pub(super) fn cuda_array_interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyDict>> {
    let missing = || PyAttributeError::new_err("__cuda_array_interface__");
    let Storage::Device(buffer) = &*tensor.storage else { return Err(missing()) };
    if buffer.device().kind() != Kind::CUDA {
        return Err(missing());
    }
    let typestr = typestr(tensor.dtype).ok_or_else(missing)?;
    let stream = copies::current(py, buffer.device())?;
    let handle = stream.native_handle().or_raise()?;
    if handle == 0 {
        copies::synchronize(py, &stream)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("shape", PyTuple::new(py, &tensor.shape)?)?;
    dict.set_item("typestr", typestr)?;
    dict.set_item("data", (if tensor.bytes() == 0 { 0 } else { buffer.address() }, false))?;
    dict.set_item("version", 3)?;
    dict.set_item("strides", py.None())?;
    dict.set_item("stream", (handle != 0).then_some(handle))?;
    Ok(dict)
}

/// How array interfaces write a type: byte order, letter, bytes. `None` where they have no letter.
fn typestr(dtype: DType) -> Option<String> {
    let letter = match dtype::format(dtype)?.to_bytes() {
        b"?" => 'b',
        b"b" | b"h" | b"i" | b"q" => 'i',
        b"B" | b"H" | b"I" | b"Q" => 'u',
        _ if dtype.is_complex() => 'c',
        _ => 'f',
    };
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let order = if dtype.size() == 1 { '|' } else { native };
    Some(format!("{order}{letter}{}", dtype.size()))
}

/// What a `stream=` asks for on a type of device: `"own"`, `"ready"` or a handle. For tests: a machine has few types.
#[pyfunction]
pub(crate) fn _dlpack_order(
    py: Python<'_>,
    device_type: i32,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    Ok(match order(device_type, stream)? {
        Order::Own => "own".into_pyobject(py)?.into_any().unbind(),
        Order::Ready => "ready".into_pyobject(py)?.into_any().unbind(),
        Order::On(handle) => handle.into_pyobject(py)?.into_any().unbind(),
    })
}

/// How array interfaces write a type, or None. For tests: only CUDA's tensors show it.
#[pyfunction]
pub(crate) fn _typestr(dtype: &Bound<'_, PyDType>) -> Option<String> {
    typestr(dtype.get().0)
}
