//! Where a tensor's bytes lie, and who may touch them.
//!
//! Host memory is shared with whatever Python shares it with (arrays, views, other tensors of the same storage), from any
//! thread and without locks, as NumPy's is: who writes it while somebody else reads it gets either's bytes. It stays where
//! it is until the last owner is gone. Pinned memory is behind a lock, and a view waits for copies in flight. Device memory
//! is the runtime's.

use crate::device::arg;
use crate::error::{OrRaise, OutOfMemoryError, raise};
use crate::gate::{self, detach};
use anyaccel::{Buffer, Device, Error, Kind, PinnedBuffer, Runtime};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// What keeps host memory.
enum Owner {
    /// This value.
    Layout(Layout),
    /// An exporter of the buffer protocol.
    Buffer(Box<ffi::Py_buffer>),
    /// A producer of DLPack, by what tells it that we are done.
    DlPack { _imported: super::dlpack::Imported },
}

/// Host memory.
pub(crate) struct HostMemory {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
}

// SAFETY: the memory is plain bytes, shared as the module's protocol says; the owners are released on any thread, those of
// Python with the interpreter.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory, aligned for any element and any vector.
    fn zeroed(len: usize) -> PyResult<Self> {
        let refuse = || {
            OutOfMemoryError::new_err(format!(
                "host memory: tried to allocate {len} bytes, and the system gave none. Free other tensors first."
            ))
        };
        let layout = Layout::from_size_align(len.max(1), 64).map_err(|_| refuse())?;
        // SAFETY: the size is not 0.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(refuse)?;
        Ok(Self { ptr, len, writable: true, owner: Owner::Layout(layout) })
    }

    /// Memory of an exporter of the buffer protocol, which is C-contiguous.
    pub(super) fn of_buffer(view: Box<ffi::Py_buffer>) -> Self {
        let ptr = NonNull::new(view.buf.cast::<u8>()).unwrap_or(NonNull::dangling());
        let (len, writable) = (usize::try_from(view.len).unwrap_or(0), view.readonly == 0);
        Self { ptr, len, writable, owner: Owner::Buffer(view) }
    }

    /// Memory of a producer of DLPack.
    pub(super) fn of_dlpack(ptr: NonNull<u8>, len: usize, writable: bool, imported: super::dlpack::Imported) -> Self {
        Self { ptr, len, writable, owner: Owner::DlPack { _imported: imported } }
    }

    /// Where it begins.
    pub(super) fn address(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Whether it may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: valid for `len` initialised bytes while the owner lives, which is as long as `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    #[expect(clippy::mut_from_ref, reason = "shared as the module's protocol says")]
    fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as in `bytes`; writable as its callers checked.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match &mut self.owner {
            // SAFETY: allocated with this layout, and freed once.
            Owner::Layout(layout) => unsafe { std::alloc::dealloc(self.ptr.as_ptr(), *layout) },
            Owner::Buffer(view) => {
                // SAFETY: filled by PyObject_GetBuffer and released once, with the interpreter. If that is closing, the
                // exporter is kept for good.
                let _closing = gate::with_python(|_| unsafe { ffi::PyBuffer_Release(&raw mut **view) });
            }
            // Releases itself.
            Owner::DlPack { .. } => {}
        }
    }
}

/// Pinned host memory.
pub(crate) struct PinnedMemory {
    buffer: Mutex<PinnedBuffer>,
    /// The device that it was pinned for; to others it is ordinary memory.
    device: Device,
    /// The process that made it: in a child its lock may be held for ever.
    process: u32,
}

impl PinnedMemory {
    /// Whether copies of that device reach it directly.
    pub(super) fn serves(&self, device: Device) -> bool {
        self.device == device
    }

    pub(super) fn lock(&self) -> anyaccel::Result<MutexGuard<'_, PinnedBuffer>> {
        if std::process::id() != self.process {
            return Err(Error::StaleHandle { what: "pinned tensor" });
        }
        gate::lock(&self.buffer, "pinned tensor")
    }

    /// Where it begins, once copies into it have ended.
    pub(super) fn address(&self, py: Python<'_>) -> PyResult<*mut u8> {
        let address = detach(py, || {
            let mut buffer = self.lock()?;
            buffer.with_mut(|bytes| bytes.as_mut_ptr().expose_provenance())
        });
        address.map(std::ptr::with_exposed_provenance_mut).or_raise()
    }
}

/// Where a tensor's bytes lie.
pub(crate) enum Storage {
    Host(HostMemory),
    Pinned(PinnedMemory),
    Device(Buffer),
    /// Nowhere.
    Meta,
}

impl Storage {
    /// Memory of a device, zeroed on the host and undefined elsewhere.
    #[inline]
    pub(super) fn new(py: Python<'_>, device: Device, len: u64, pin: bool) -> PyResult<Self> {
        let kind = device.kind();
        if kind == Kind::META {
            return Ok(Self::Meta);
        }
        if kind != Kind::CPU {
            if pin {
                return Err(PyRuntimeError::new_err("Only dense CPU tensors can be pinned"));
            }
            let (runtime, device) = (Runtime::global(), arg(device));
            // What the cache has at hand is not worth giving the interpreter away.
            if let Some(buffer) = runtime.alloc_cached(device, len).or_raise()? {
                return Ok(Self::Device(buffer));
            }
            return detach(py, || runtime.alloc_on(device, len)).map(Self::Device).or_raise();
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if pin {
            let buffer = detach(py, || Runtime::global().pinned(len)).or_raise()?;
            let device = buffer.device();
            return Ok(Self::Pinned(PinnedMemory { buffer: Mutex::new(buffer), device, process: std::process::id() }));
        }
        HostMemory::zeroed(len).map(Self::Host)
    }

    /// Its device.
    pub(super) fn device(&self) -> Device {
        match self {
            Self::Host(_) | Self::Pinned(_) => Device::new(Kind::CPU, None),
            Self::Device(buffer) => buffer.device(),
            Self::Meta => Device::new(Kind::META, None),
        }
    }

    /// Lends the bytes of host memory.
    pub(super) fn read<T: Send>(&self, py: Python<'_>, look: impl FnOnce(&[u8]) -> T + Send) -> PyResult<T> {
        match self {
            Self::Host(memory) => Ok(detach(py, || look(memory.bytes()))),
            Self::Pinned(memory) => detach(py, || memory.lock()?.with(look)).or_raise(),
            Self::Device(buffer) => {
                let mut bytes = vec![0; usize::try_from(buffer.len()).unwrap_or(usize::MAX)];
                download(py, buffer, &mut bytes)?;
                Ok(look(&bytes))
            }
            Self::Meta => Err(no_data()),
        }
    }

    /// Lends the bytes of host memory to write.
    pub(super) fn write<T: Send>(&self, py: Python<'_>, change: impl FnOnce(&mut [u8]) -> T + Send) -> PyResult<T> {
        match self {
            Self::Host(memory) if memory.writable => Ok(detach(py, || change(memory.bytes_mut()))),
            Self::Host(_) => Err(read_only()),
            Self::Pinned(memory) => detach(py, || memory.lock()?.with_mut(change)).or_raise(),
            Self::Device(buffer) => {
                Err(raise(Error::Unsupported { what: "writing from the host", device: buffer.device() }))
            }
            Self::Meta => Err(no_data()),
        }
    }
}

/// Copies device memory to the host, in the order of the current stream of its device. Ctrl-C ends the wait.
pub(super) fn download(py: Python<'_>, buffer: &Buffer, bytes: &mut [u8]) -> PyResult<()> {
    let device = arg(buffer.device());
    detach(py, || Runtime::global().current_stream(device)?.download(bytes, &buffer.all())).or_raise()
}

pub(super) fn no_data() -> PyErr {
    PyNotImplementedError::new_err("Cannot copy out of meta tensor; no data!")
}

fn read_only() -> PyErr {
    PyRuntimeError::new_err("this tensor shares read-only memory and can't be written; clone() it first")
}
