//! DLPack, both ways: the published structures of version 1, and the older ones without a version.

use super::storage::{HostMemory, Storage};
use super::{Tensor, consumer, shape};
use crate::error::type_name;
use crate::gate;
use anyaccel::{DType, Device, Kind};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";
const OLD_USED: &CStr = c"used_dltensor";
const NEW_USED: &CStr = c"used_dltensor_versioned";
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

#[repr(C)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What an exported structure points to.
struct Context {
    _storage: Arc<Storage>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

unsafe extern "C" fn delete_old(managed: *mut Managed) {
    if !managed.is_null() {
        // SAFETY: made by `export`, deleted once as DLPack demands.
        unsafe { drop((Box::from_raw((*managed).context.cast::<Context>()), Box::from_raw(managed))) };
    }
}

unsafe extern "C" fn delete_new(managed: *mut Versioned) {
    if !managed.is_null() {
        // SAFETY: as above.
        unsafe { drop((Box::from_raw((*managed).context.cast::<Context>()), Box::from_raw(managed))) };
    }
}

/// Deletes what nobody took.
unsafe extern "C" fn drop_old(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with the capsule; the name tells whether it was taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) != 0 {
            delete_old(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_new(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) != 0 {
            delete_new(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// DLPack's code and bits of a type.
const fn code(dtype: DType) -> (u8, u8) {
    let bits = (dtype.size() * 8) as u8;
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::Bf16 => 4,
        DType::C32 | DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
        DType::F8E4m3fn => 10,
        DType::F8E4m3fnuz => 11,
        DType::F8E5m2 => 12,
        DType::F8E5m2fnuz => 13,
        DType::F8E8m0fnu => 14,
    };
    (code, bits)
}

/// DLPack's number of a device's kind; `None` where its memory can't be handed out.
fn device_type(kind: Kind) -> Option<i32> {
    [
        // The built-in device's memory is the host's.
        (Kind::CPU, 1),
        (Kind::HOST, 1),
        (Kind::CUDA, 2),
        (Kind::OPENCL, 4),
        (Kind::MPS, 8),
        (Kind::HIP, 10),
        (Kind::XPU, 14),
    ]
    .into_iter()
    .find_map(|(known, number)| (known == kind).then_some(number))
}

/// `__dlpack_device__`.
pub(super) fn device(tensor: &Tensor) -> PyResult<(i32, i32)> {
    let device = tensor.storage.device();
    match device_type(device.kind()) {
        Some(1) => Ok((1, 0)),
        Some(number) => Ok((number, device.index().unwrap_or(0) as i32)),
        None => Err(PyBufferError::new_err(format!("memory of {device} can't be shared through DLPack"))),
    }
}

/// `__dlpack__`.
pub(super) fn export<'py>(
    tensor: &Bound<'py, Tensor>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let mut source = tensor.get().alias();
    let here = device(&source)?;
    let order = consumer::order(here.0, stream)?;
    let mut copied = true;
    if let Some(wanted) = dl_device
        && wanted != here
    {
        if wanted != (1, 0) {
            return Err(PyBufferError::new_err("a tensor goes to another device by to(), not through DLPack"));
        }
        if copy == Some(false) {
            return Err(PyValueError::new_err("the host can't have this memory without a copy"));
        }
        source = source.moved(py, Device::new(Kind::CPU, None), source.dtype, false, false)?;
    } else if copy == Some(true) {
        source = source.cloned(py)?;
    } else {
        copied = false;
    }
    let here = device(&source)?;
    let address = match &*source.storage {
        Storage::Host(memory) => memory.address().expose_provenance() as u64,
        Storage::Pinned(memory) => memory.address(py)?.expose_provenance() as u64,
        Storage::Device(buffer) => {
            consumer::hand_over(py, buffer, order)?;
            buffer.address()
        }
        Storage::Meta => return Err(PyBufferError::new_err("a meta tensor has no memory to share")),
    };
    let writable = !matches!(&*source.storage, Storage::Host(memory) if !memory.is_writable());
    let versioned = max_version.is_some_and(|(major, _)| major >= 1);
    if !versioned && !writable {
        return Err(PyBufferError::new_err("read-only memory needs DLPack 1.0 or newer to be shared"));
    }
    let mut context = Box::new(Context {
        _storage: Arc::clone(&source.storage),
        shape: source.shape.iter().map(|&extent| extent as i64).collect(),
        strides: shape::strides(&source.shape),
    });
    let (code, bits) = code(source.dtype);
    let data = if source.bytes() == 0 { ptr::null_mut() } else { ptr::with_exposed_provenance_mut(address as usize) };
    let described = DlTensor {
        data,
        device: DlDevice { kind: here.0, id: here.1 },
        ndim: source.shape.len() as i32,
        dtype: DlDataType { code, bits, lanes: 1 },
        shape: context.shape.as_mut_ptr(),
        strides: context.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(context).cast::<c_void>();
    // SAFETY: a structure with a deleter, under the name and with the destructor that DLPack's Python protocol asks for.
    // A capsule that can't be made leaves the structure to be deleted here.
    unsafe {
        if versioned {
            let flags = if writable { 0 } else { READ_ONLY } | if copied { IS_COPIED } else { 0 };
            let managed = Box::into_raw(Box::new(Versioned {
                major: 1,
                minor: 0,
                context,
                deleter: Some(delete_new),
                flags,
                tensor: described,
            }));
            let capsule = ffi::PyCapsule_New(managed.cast(), NEW.as_ptr(), Some(drop_new));
            Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| delete_new(managed))
        } else {
            let managed = Box::into_raw(Box::new(Managed { tensor: described, context, deleter: Some(delete_old) }));
            let capsule = ffi::PyCapsule_New(managed.cast(), OLD.as_ptr(), Some(drop_old));
            Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| delete_old(managed))
        }
    }
}

/// A structure that was taken from a producer; tells it when it is not needed any more.
pub(super) enum Imported {
    Old(NonNull<c_void>),
    New(NonNull<c_void>),
}

impl Drop for Imported {
    fn drop(&mut self) {
        // A producer in Python needs the interpreter; if that is closing, the memory is kept for good.
        let _closing = gate::with_python(|_| {
            // SAFETY: taken from its capsule, whose name says so, and deleted once.
            unsafe {
                match *self {
                    Imported::Old(managed) => {
                        let managed = managed.as_ptr().cast::<Managed>();
                        if let Some(deleter) = (*managed).deleter {
                            deleter(managed);
                        }
                    }
                    Imported::New(managed) => {
                        let managed = managed.as_ptr().cast::<Versioned>();
                        if let Some(deleter) = (*managed).deleter {
                            deleter(managed);
                        }
                    }
                }
            }
        });
    }
}

/// A tensor that shares host memory of a producer. With `to_host` the producer copies what lies elsewhere, if it can.
pub(super) fn import(object: &Bound<'_, PyAny>, to_host: bool) -> PyResult<Tensor> {
    let py = object.py();
    if !object.hasattr("__dlpack__")? {
        return Err(PyTypeError::new_err(format!("expected an object with __dlpack__, not {}", type_name(object))));
    }
    let keywords = PyDict::new(py);
    keywords.set_item("max_version", (1_u32, 0_u32))?;
    if to_host && object.call_method0("__dlpack_device__")?.extract::<(i64, i64)>()?.0 != i64::from(consumer::CPU) {
        keywords.set_item("dl_device", (consumer::CPU, 0))?;
    }
    let capsule = match object.call_method("__dlpack__", (), Some(&keywords)) {
        // From before version 1.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        capsule => capsule?,
    };
    // SAFETY: a capsule of one of the two names holds the structure of that name; renaming it takes it.
    let (imported, tensor, writable) = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NEW.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NEW.as_ptr());
            let Some(managed) = NonNull::new(managed) else { return Err(empty()) };
            if managed.cast::<Versioned>().as_ref().major > 1 {
                return Err(PyBufferError::new_err("this is a newer DLPack than version 1"));
            }
            ffi::PyCapsule_SetName(capsule.as_ptr(), NEW_USED.as_ptr());
            let versioned = &*managed.as_ptr().cast::<Versioned>();
            (Imported::New(managed), &raw const versioned.tensor, versioned.flags & READ_ONLY == 0)
        } else if ffi::PyCapsule_IsValid(capsule.as_ptr(), OLD.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), OLD.as_ptr());
            let Some(managed) = NonNull::new(managed) else { return Err(empty()) };
            ffi::PyCapsule_SetName(capsule.as_ptr(), OLD_USED.as_ptr());
            (Imported::Old(managed), &raw const (*managed.as_ptr().cast::<Managed>()).tensor, true)
        } else {
            return Err(PyTypeError::new_err("__dlpack__ gave no DLPack capsule"));
        }
    };
    // SAFETY: the structure lives until `imported` is dropped, and has `ndim` extents and as many strides, or none.
    let (described, extents, strides) = unsafe {
        let described = &*tensor;
        let ndim = usize::try_from(described.ndim).unwrap_or(0);
        let list = |at: *mut i64| (ndim > 0 && !at.is_null()).then(|| std::slice::from_raw_parts(at, ndim).to_vec());
        (described, list(described.shape).unwrap_or_default(), list(described.strides))
    };
    // The host's memory, pinned or not.
    if !matches!(described.device.kind, 1 | 3) {
        return Err(PyBufferError::new_err(format!(
            "DLPack device type {} is not the host; copy the tensor to the host first",
            described.device.kind
        )));
    }
    let code = (described.dtype.code, described.dtype.bits);
    let dtype = DType::ALL.iter().copied().find(|&dtype| self::code(dtype) == code && described.dtype.lanes == 1);
    let Some(dtype) = dtype else {
        return Err(PyBufferError::new_err(format!("DLPack type {code:?} has no dtype here")));
    };
    let extents = extents.into_iter().map(u64::try_from).collect::<Result<Vec<u64>, _>>();
    let extents = extents.map_err(|_| PyBufferError::new_err("a DLPack tensor has a negative extent"))?;
    let bytes = shape::bytes(&extents, dtype)?;
    let dense = strides.is_none_or(|strides| {
        let expected = shape::strides(&extents);
        bytes == 0 || (0..extents.len()).all(|at| extents[at] == 1 || strides[at] == expected[at])
    });
    if !dense {
        return Err(PyBufferError::new_err("the tensor is not C-contiguous; make it contiguous first"));
    }
    let offset = usize::try_from(described.byte_offset).unwrap_or(usize::MAX);
    let ptr = match NonNull::new(described.data.cast::<u8>()) {
        // SAFETY: within the memory that the producer describes.
        Some(base) if bytes > 0 => unsafe { base.add(offset) },
        None if bytes > 0 => return Err(empty()),
        _ => NonNull::dangling(),
    };
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let memory = HostMemory::of_dlpack(ptr, len, writable, imported);
    Ok(Tensor { storage: Arc::new(Storage::Host(memory)), shape: extents, dtype })
}

fn empty() -> PyErr {
    PyBufferError::new_err("the DLPack structure has no memory")
}
