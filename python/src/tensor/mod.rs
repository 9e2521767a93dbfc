//! `anyaccel.Tensor`: memory with a shape and an element type, and no arithmetic.

mod buffer;
pub(crate) mod consumer;
mod copies;
mod dlpack;
pub(crate) mod factory;
mod fills;
mod methods;
mod shape;
mod storage;
mod target;
mod values;

use crate::device::PyDevice;
use crate::dtype::PyDType;
use crate::error::OrRaise;
use anyaccel::{DType, Device, Kind, Runtime};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;
use storage::Storage;

/// Memory on a device or the host, with a shape and an element type. C-contiguous; no arithmetic.
///
/// Host tensors have the buffer protocol, so `numpy.asarray(t)` shares their memory. All have DLPack.
///
/// >>> import anyaccel
/// >>> d = anyaccel.accelerator.current_accelerator()
/// >>> x = anyaccel.tensor([1.0, 2.0, 3.0], device=d)
/// >>> x.cpu().tolist()
/// [1.0, 2.0, 3.0]
#[pyclass(name = "Tensor", module = "anyaccel", frozen, weakref)]
pub(crate) struct Tensor {
    pub(crate) storage: Arc<Storage>,
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: DType,
}

impl Tensor {
    #[inline]
    pub(crate) fn empty(py: Python<'_>, device: Device, dtype: DType, shape: Vec<u64>, pin: bool) -> PyResult<Self> {
        let storage = Storage::new(py, device, shape::bytes(&shape, dtype)?, pin)?;
        Ok(Self { storage: Arc::new(storage), shape, dtype })
    }

    /// A host tensor that holds these bytes.
    fn of_host_bytes(py: Python<'_>, bytes: &[u8], dtype: DType, shape: &[u64]) -> PyResult<Self> {
        let tensor = Self::empty(py, Device::new(Kind::CPU, None), dtype, shape.to_vec(), false)?;
        tensor.storage.write(py, |to| to.copy_from_slice(bytes))?;
        Ok(tensor)
    }

    /// A host tensor of few bytes.
    pub(crate) fn of_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Self::of_host_bytes(py, bytes, DType::U8, &[bytes.len() as u64])
    }

    /// The bytes of a generator's state.
    pub(crate) fn state_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        if self.dtype != DType::U8 || self.storage.device().kind() != Kind::CPU {
            return Err(PyTypeError::new_err("RNG state must be a anyaccel.ByteTensor: a uint8 tensor on the host"));
        }
        self.storage.read(py, <[u8]>::to_vec)
    }

    /// The number of elements.
    fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The number of bytes.
    fn bytes(&self) -> u64 {
        self.count() * self.dtype.size() as u64
    }

    /// The same tensor in other words.
    fn alias(&self) -> Self {
        Self { storage: Arc::clone(&self.storage), shape: self.shape.clone(), dtype: self.dtype }
    }

    /// A copy on the same device.
    fn cloned(&self, py: Python<'_>) -> PyResult<Self> {
        let pinned = matches!(&*self.storage, Storage::Pinned(_));
        let copy = Self::empty(py, self.storage.device(), self.dtype, self.shape.clone(), pinned)?;
        copies::copy(py, &copy, self, false)?;
        Ok(copy)
    }

    /// A copy elsewhere, or as another type.
    fn moved(&self, py: Python<'_>, device: Device, dtype: DType, pin: bool, non_blocking: bool) -> PyResult<Self> {
        if matches!(&*self.storage, Storage::Meta) && device.kind() != Kind::META {
            return Err(storage::no_data());
        }
        let copy = Self::empty(py, device, dtype, self.shape.clone(), pin)?;
        copies::copy(py, &copy, self, non_blocking)?;
        Ok(copy)
    }

    /// The same memory as elements of another type; the last extent changes with their size.
    fn reinterpreted(&self, dtype: DType, flat: bool) -> PyResult<Self> {
        let (from, to) = (self.dtype.size() as u64, dtype.size() as u64);
        let mut shape = if flat { vec![self.count()] } else { self.shape.clone() };
        let misfit = || {
            PyRuntimeError::new_err(format!(
                "a tensor of shape {:?} and type {} can't be viewed as {}",
                self.shape,
                self.dtype.name(),
                dtype.name()
            ))
        };
        if from != to {
            let last = shape.last_mut().ok_or_else(misfit)?;
            let bytes = *last * from;
            if !bytes.is_multiple_of(to) {
                return Err(misfit());
            }
            *last = bytes / to;
        }
        Ok(Self { storage: Arc::clone(&self.storage), shape, dtype })
    }

    /// Whether it lies on that device, an index-less one being the current one.
    fn lies_on(&self, device: Device) -> PyResult<bool> {
        let here = self.storage.device();
        if here.kind() != device.kind() || device.kind() == Kind::CPU || device.kind() == Kind::META {
            return Ok(here.kind() == device.kind());
        }
        let index = match device.index() {
            Some(index) => index,
            None => Runtime::global().current_device_index().or_raise()?,
        };
        Ok(here.index() == Some(index))
    }

    /// Whether another tensor has the same shape, type and elements: zeros of both signs are equal, NaNs are not.
    fn equals(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if self.shape != other.shape || self.dtype != other.dtype {
            return Ok(false);
        }
        let (a, b) = (self.storage.read(py, <[u8]>::to_vec)?, other.storage.read(py, <[u8]>::to_vec)?);
        Ok(values::equal(self.dtype, &a, &b))
    }
}

/// The tensor that `pickle` and `copy` make anew.
#[pyfunction]
pub(crate) fn _rebuild_tensor(
    py: Python<'_>,
    data: &[u8],
    dtype: &Bound<'_, PyDType>,
    shape: Vec<u64>,
    device: &Bound<'_, PyDevice>,
) -> PyResult<Tensor> {
    let dtype = dtype.get().0;
    if shape::bytes(&shape, dtype)? != data.len() as u64 {
        return Err(PyValueError::new_err("a pickled tensor whose bytes don't fit its shape"));
    }
    let host = Tensor::of_host_bytes(py, data, dtype, &shape)?;
    let device = device.get().0;
    if device.kind() == Kind::CPU { Ok(host) } else { host.moved(py, device, dtype, false, false) }
}
