//! `anyaccel.Tensor`: memory with a shape and an element type, and no arithmetic.

mod buffer;
mod copies;
mod dlpack;
pub(crate) mod factory;
mod fills;
mod shape;
mod storage;
mod values;

use crate::device::PyDevice;
use crate::dtype::{self, PyDType};
use crate::error::{OrRaise, raise};
use crate::gate::detach;
use crate::random::PyGenerator;
use crate::stream::PyStream;
use anyaccel::random::Distribution;
use anyaccel::{DType, Device, Error, Kind, Runtime};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyTuple};
use std::ffi::c_int;
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

    fn fill<'py>(
        slf: Bound<'py, Self>,
        distribution: Distribution,
        generator: Option<&Bound<'_, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf.py(), slf.get(), distribution, generator)?;
        Ok(slf)
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

#[pymethods]
impl Tensor {
    /// The extents, a tuple of ints.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The element type.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype::object(py, self.dtype)
    }

    /// The device that it lies on.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.storage.device())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Its bytes, all elements together.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.dtype.size()
    }

    /// Whether it lies on the host.
    #[getter]
    fn is_cpu(&self) -> bool {
        self.storage.device().kind() == Kind::CPU
    }

    /// The extents, or one of them.
    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let Some(dim) = dim else { return Ok(PyTuple::new(py, &self.shape)?.into_any()) };
        let at = if dim < 0 { self.shape.len().checked_add_signed(dim) } else { Some(dim as usize) };
        match at.and_then(|at| self.shape.get(at)) {
            Some(&extent) => Ok(extent.into_pyobject(py)?.into_any()),
            None => Err(pyo3::exceptions::PyIndexError::new_err(format!(
                "dimension {dim} of a tensor that has {}",
                self.shape.len()
            ))),
        }
    }

    /// The steps between elements of each dimension, in elements.
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, shape::strides(&self.shape))
    }

    /// The number of dimensions.
    fn dim(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    fn numel(&self) -> u64 {
        self.count()
    }

    /// Bytes of an element.
    fn element_size(&self) -> usize {
        self.dtype.size()
    }

    /// True: all tensors here are.
    fn is_contiguous(&self) -> bool {
        true
    }

    /// Whether it lies in pinned host memory.
    fn is_pinned(&self) -> bool {
        matches!(&*self.storage, Storage::Pinned(_))
    }

    /// Its address, on its device.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(match &*self.storage {
            Storage::Host(memory) => memory.address().expose_provenance() as u64,
            Storage::Pinned(memory) => memory.address(py)?.expose_provenance() as u64,
            Storage::Device(buffer) => buffer.address(),
            Storage::Meta => 0,
        })
    }

    /// The same elements in another shape (one extent may be -1), or the same memory as another type.
    #[pyo3(signature = (*size))]
    fn view(&self, size: &Bound<'_, PyTuple>) -> PyResult<Self> {
        if size.len() == 1
            && let Ok(dtype) = size.get_item(0)?.cast::<PyDType>()
        {
            return self.reinterpreted(dtype.get().0, false);
        }
        self.reshape(size)
    }

    /// The same elements in another shape; one extent may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let shape = shape::reshaped(shape, self.count())?;
        Ok(Self { storage: Arc::clone(&self.storage), shape, dtype: self.dtype })
    }

    /// A copy on the same device.
    fn clone(&self, py: Python<'_>) -> PyResult<Self> {
        self.cloned(py)
    }

    /// Itself: there are no gradients here.
    fn detach(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Itself: all tensors here are.
    fn contiguous(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Copies another tensor of the same shape into this one, converting its elements. With `non_blocking` a copy to or
    /// from pinned memory returns at once.
    #[pyo3(signature = (src, non_blocking=false))]
    fn copy_<'py>(slf: Bound<'py, Self>, src: &Bound<'py, Self>, non_blocking: bool) -> PyResult<Bound<'py, Self>> {
        copies::copy(slf.py(), slf.get(), src.get(), non_blocking)?;
        Ok(slf)
    }

    /// Itself if device and type are as asked, else a copy: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(other)`,
    /// with `non_blocking=` and `copy=`.
    #[pyo3(signature = (*args, **kwargs))]
    fn to<'py>(
        slf: Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        let target = factory::target(args, kwargs)?;
        let dtype = target.dtype.unwrap_or(this.dtype);
        let device = match target.device {
            Some(device) if !this.lies_on(device)? => device,
            _ if dtype == this.dtype && !target.copy => return Ok(slf),
            _ => this.storage.device(),
        };
        Bound::new(py, this.moved(py, device, dtype, false, target.non_blocking)?)
    }

    /// On the host: itself, or a copy.
    fn cpu(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (py, this) = (slf.py(), slf.get());
        if this.storage.device().kind() == Kind::CPU {
            return Ok(slf);
        }
        Bound::new(py, this.moved(py, Device::new(Kind::CPU, None), this.dtype, false, false)?)
    }

    /// A copy in pinned host memory, from which copies to a device overlap with everything else; itself if it is there.
    fn pin_memory(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (py, this) = (slf.py(), slf.get());
        match &*this.storage {
            Storage::Pinned(_) => Ok(slf),
            Storage::Host(_) => Bound::new(py, this.moved(py, Device::new(Kind::CPU, None), this.dtype, true, false)?),
            _ => Err(PyRuntimeError::new_err(format!(
                "cannot pin a tensor on {}: only host tensors can be pinned",
                this.storage.device()
            ))),
        }
    }

    /// A NumPy array that shares the memory of a host tensor; with `force` a copy of any other.
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(slf: Bound<'py, Self>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let device = slf.get().storage.device();
        let host = if device.kind() == Kind::CPU {
            slf
        } else if force {
            Self::cpu(slf)?
        } else {
            return Err(PyTypeError::new_err(format!(
                "can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory \
                 first."
            )));
        };
        if dtype::format(host.get().dtype).is_none() {
            return Err(PyTypeError::new_err(values::no_buffer(host.get().dtype)));
        }
        py.import("numpy")?.call_method1("asarray", (PyMemoryView::from(&host)?,))
    }

    /// Nested lists of its elements.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self.storage.read(py, <[u8]>::to_vec)?;
        values::nested(py, &self.shape, &mut values::objects(py, self.dtype, &bytes)?.into_iter())
    }

    /// The one element that it has.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.count() != 1 {
            return Err(PyRuntimeError::new_err(format!(
                "a Tensor with {} elements cannot be converted to Scalar",
                self.count()
            )));
        }
        let bytes = self.storage.read(py, <[u8]>::to_vec)?;
        Ok(values::objects(py, self.dtype, &bytes)?.remove(0))
    }

    /// Whether another tensor has the same shape, type and elements.
    fn equal(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<bool> {
        let other = other.get();
        if self.shape != other.shape || self.dtype != other.dtype {
            return Ok(false);
        }
        let (a, b) = (self.storage.read(py, <[u8]>::to_vec)?, other.storage.read(py, <[u8]>::to_vec)?);
        if !self.dtype.is_floating_point() && !self.dtype.is_complex() {
            return Ok(a == b);
        }
        // By value: zeros of both signs are equal, NaNs are not.
        let wide = if self.dtype.is_complex() { DType::C128 } else { DType::F64 };
        let (a, b) = (values::converted(wide, self.dtype, &a), values::converted(wide, self.dtype, &b));
        Ok(a.as_chunks().0.iter().zip(b.as_chunks().0).all(|(a, b)| f64::from_ne_bytes(*a) == f64::from_ne_bytes(*b)))
    }

    /// Notes that work on a stream, enqueued by other means, uses its memory.
    fn record_stream(&self, py: Python<'_>, stream: &Bound<'_, PyStream>) -> PyResult<()> {
        match &*self.storage {
            Storage::Device(buffer) => {
                let stream = &stream.get().stream;
                detach(py, || buffer.record_stream(stream)).or_raise()
            }
            _ => Err(raise(Error::Unsupported { what: "record_stream", device: self.storage.device() })),
        }
    }

    /// Fills it with a number.
    fn fill_<'py>(slf: Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        fills::constant(slf.py(), slf.get(), value)?;
        Ok(slf)
    }

    /// Fills it with zeros.
    fn zero_(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        fills::pattern(slf.py(), slf.get(), &vec![0; slf.get().dtype.size()])?;
        Ok(slf)
    }

    /// Fills it with uniform numbers from `from` on and below `to`.
    #[pyo3(signature = (from=0.0, to=1.0, *, generator=None), text_signature = "($self, from=0.0, to=1.0, *, generator=None)")]
    fn uniform_<'py>(
        slf: Bound<'py, Self>,
        from: f64,
        to: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::Uniform { from, to }, generator)
    }

    /// Fills it with normal numbers.
    #[pyo3(signature = (mean=0.0, std=1.0, *, generator=None))]
    fn normal_<'py>(
        slf: Bound<'py, Self>,
        mean: f64,
        std: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::Normal { mean, std }, generator)
    }

    /// Fills it with exponentials of normal numbers.
    #[pyo3(signature = (mean=1.0, std=2.0, *, generator=None))]
    fn log_normal_<'py>(
        slf: Bound<'py, Self>,
        mean: f64,
        std: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::LogNormal { mean, std }, generator)
    }

    /// Fills it with exponentially distributed numbers.
    #[pyo3(signature = (lambd=1.0, *, generator=None))]
    fn exponential_<'py>(
        slf: Bound<'py, Self>,
        lambd: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::Exponential { lambda: lambd }, generator)
    }

    /// Fills it with the numbers of trials until the first success.
    #[pyo3(signature = (p, *, generator=None))]
    fn geometric_<'py>(
        slf: Bound<'py, Self>,
        p: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::Geometric { p }, generator)
    }

    /// Fills it with ones, with that probability, and zeros.
    #[pyo3(signature = (p=0.5, *, generator=None))]
    fn bernoulli_<'py>(
        slf: Bound<'py, Self>,
        p: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::fill(slf, Distribution::Bernoulli { p }, generator)
    }

    /// Fills it with integers from `from` on and below `to`: `random_()`, `random_(to)`, `random_(from, to)`.
    #[pyo3(signature = (from=None, to=None, *, generator=None), text_signature = "($self, from=None, to=None, *, generator=None)")]
    fn random_<'py>(
        slf: Bound<'py, Self>,
        from: Option<i128>,
        to: Option<i128>,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        let distribution = match (from, to) {
            (None, None) => Distribution::WholeNumbers,
            (Some(to), None) | (None, Some(to)) => Distribution::Integers { from: 0, to },
            (Some(from), Some(to)) => Distribution::Integers { from, to },
        };
        Self::fill(slf, distribution, generator)
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.shape.first() {
            Some(&extent) => Ok(extent as usize),
            None => Err(PyTypeError::new_err("len() of a 0-d tensor")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = PyTuple::new(py, &self.shape)?.repr()?;
        let (device, dtype) = (self.storage.device(), self.dtype.name());
        let pinned = if self.is_pinned() { ", pinned" } else { "" };
        Ok(format!("Tensor(shape={shape}, dtype=anyaccel.{dtype}, device='{device}'{pinned})"))
    }

    fn __copy__(&self) -> Self {
        self.alias()
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.cloned(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let rebuild = py.import("anyaccel._anyaccel")?.getattr("_rebuild_tensor")?;
        let data = PyBytes::new(py, &self.storage.read(py, <[u8]>::to_vec)?);
        let parts =
            (data, dtype::object(py, self.dtype)?, PyTuple::new(py, &self.shape)?, PyDevice(self.storage.device()));
        Ok((rebuild, parts.into_pyobject(py)?))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = Self::numpy(slf, false)?;
        let array = match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,))?,
            None => array,
        };
        if copy == Some(true) { array.call_method0("copy") } else { Ok(array) }
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter's view.
        unsafe { buffer::export(slf, view, flags) }
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter's view, which `export` filled in.
        unsafe { buffer::release(view) }
    }

    /// The memory as a DLPack capsule, once the work on the current stream has ended.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack::export(&slf, stream.as_ref(), max_version, dl_device, copy)
    }

    /// DLPack's type and number of its device.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        dlpack::device(self)
    }

    /// Its memory for CUDA libraries; there on CUDA devices alone.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dlpack::cuda_interface(py, self)
    }
}
