//! What Python sees of a tensor.

use super::storage::Storage;
use super::target::Target;
use super::{Tensor, buffer, consumer, copies, dlpack, fills, shape, values};
use crate::device::PyDevice;
use crate::dtype::{self, PyDType};
use crate::error::{OrRaise, raise};
use crate::gate::detach;
use crate::random::PyGenerator;
use crate::stream::PyStream;
use anyaccel::random::Distribution;
use anyaccel::{Device, Error, Kind};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyTuple};
use std::ffi::c_int;

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
        match dim {
            Some(dim) => Ok(shape::extent(&self.shape, dim)?.into_pyobject(py)?.into_any()),
            None => Ok(PyTuple::new(py, &self.shape)?.into_any()),
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
        Ok(Self { shape, ..self.alias() })
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
        let target = Target::of(args, kwargs)?;
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
        self.equals(py, other.get())
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
        fills::whole(slf.py(), slf.get(), 0)?;
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
        fills::random(slf, Distribution::Uniform { from, to }, generator)
    }

    /// Fills it with normal numbers.
    #[pyo3(signature = (mean=0.0, std=1.0, *, generator=None))]
    fn normal_<'py>(
        slf: Bound<'py, Self>,
        mean: f64,
        std: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf, Distribution::Normal { mean, std }, generator)
    }

    /// Fills it with exponentials of normal numbers.
    #[pyo3(signature = (mean=1.0, std=2.0, *, generator=None))]
    fn log_normal_<'py>(
        slf: Bound<'py, Self>,
        mean: f64,
        std: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf, Distribution::LogNormal { mean, std }, generator)
    }

    /// Fills it with exponentially distributed numbers.
    #[pyo3(signature = (lambd=1.0, *, generator=None))]
    fn exponential_<'py>(
        slf: Bound<'py, Self>,
        lambd: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf, Distribution::Exponential { lambda: lambd }, generator)
    }

    /// Fills it with the numbers of trials until the first success.
    #[pyo3(signature = (p, *, generator=None))]
    fn geometric_<'py>(
        slf: Bound<'py, Self>,
        p: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf, Distribution::Geometric { p }, generator)
    }

    /// Fills it with ones, with that probability, and zeros.
    #[pyo3(signature = (p=0.5, *, generator=None))]
    fn bernoulli_<'py>(
        slf: Bound<'py, Self>,
        p: f64,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> PyResult<Bound<'py, Self>> {
        fills::random(slf, Distribution::Bernoulli { p }, generator)
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
        fills::random(slf, distribution, generator)
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
        match dtype {
            Some(dtype) if !array.getattr("dtype")?.eq(&dtype)? => match copy {
                Some(false) => Err(PyValueError::new_err("another dtype needs a copy, which copy=False forbids")),
                _ => array.call_method1("astype", (dtype,)),
            },
            _ if copy == Some(true) => array.call_method0("copy"),
            _ => Ok(array),
        }
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

    /// The memory as a DLPack capsule. `stream` is where the consumer will use it, as an int: what the current stream does
    /// with it so far comes before. None waits for that, -1 does not and leaves it to the consumer; host memory, the built-in
    /// device's too, takes only these two. `max_version=(1, 0)` gives the versioned structure, which can be read-only.
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

    /// Its memory for CUDA libraries, which wait for the stream that it names; there on CUDA devices alone.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        consumer::cuda_array_interface(py, self)
    }
}
