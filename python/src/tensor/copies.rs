//! Copies between tensors, wherever they lie.

use super::storage::{Storage, download};
use super::{Tensor, values};
use crate::device::arg;
use crate::error::OrRaise;
use crate::gate::detach;
use anyaccel::{Buffer, DType, Device, PinnedBuffer, Runtime, Stream};
use anyaccel_kernels::convert;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::prelude::*;
use std::sync::Arc;

/// Copies `src` into `dst`, which have one shape, and converts. Unless `non_blocking`, returns once neither side of pinned
/// memory is used any more; ordinary host memory never is.
pub(super) fn copy(py: Python<'_>, dst: &Tensor, src: &Tensor, non_blocking: bool) -> PyResult<()> {
    if dst.shape != src.shape {
        return Err(PyRuntimeError::new_err(format!(
            "copy_: the shapes differ: {:?} is to take {:?}",
            dst.shape, src.shape
        )));
    }
    match (&*dst.storage, &*src.storage) {
        (Storage::Meta, _) => Ok(()),
        (_, Storage::Meta) => Err(PyNotImplementedError::new_err("Cannot copy out of meta tensor; no data!")),
        _ if Arc::ptr_eq(&dst.storage, &src.storage) => {
            if dst.dtype == src.dtype {
                return Ok(());
            }
            // Two views of one storage.
            let between = src.cloned(py)?;
            copy(py, dst, &between, non_blocking)
        }
        _ if dst.dtype != src.dtype => converting(py, dst, src, non_blocking),
        (Storage::Device(to), Storage::Device(from)) => between_devices(py, to, from),
        (Storage::Device(to), Storage::Pinned(from)) if from.serves(to.device()) => {
            let stream = ready(py, to.device(), non_blocking)?;
            detach(py, || {
                let from = from.lock()?;
                pinned_upload(&stream, to, &from)
            })
            .or_raise()?;
            finish(py, &stream, non_blocking)
        }
        (Storage::Device(to), _) => {
            let stream = current(py, to.device())?;
            src.storage.read(py, |bytes| stream.upload(&to.all(), bytes))?.or_raise()
        }
        (Storage::Pinned(to), Storage::Device(from)) if to.serves(from.device()) => {
            let stream = ready(py, from.device(), non_blocking)?;
            detach(py, || {
                let mut to = to.lock()?;
                stream.download_pinned(&mut to, 0, &from.all())
            })
            .or_raise()?;
            finish(py, &stream, non_blocking)
        }
        (_, Storage::Device(from)) => {
            let mut bytes = Vec::new();
            if let Storage::Host(memory) = &*dst.storage
                && memory.is_writable()
            {
                // Straight to where it belongs.
                let stream = current(py, from.device())?;
                return dst.storage.write(py, |to| stream.download(to, &from.all()))?.or_raise();
            }
            bytes.resize(usize::try_from(from.len()).unwrap_or(usize::MAX), 0);
            download(py, from, &mut bytes)?;
            dst.storage.write(py, |to| to.copy_from_slice(&bytes))
        }
        _ => {
            let bytes = src.storage.read(py, <[u8]>::to_vec)?;
            dst.storage.write(py, |to| to.copy_from_slice(&bytes))
        }
    }
}

fn pinned_upload(stream: &Stream, to: &Buffer, from: &PinnedBuffer) -> anyaccel::Result<()> {
    stream.upload_pinned(&to.all(), from, 0)
}

/// The current stream of a device.
pub(super) fn current(py: Python<'_>, device: Device) -> PyResult<Stream> {
    let runtime = Runtime::global();
    if runtime.is_started() {
        return runtime.current_stream(arg(device)).or_raise();
    }
    detach(py, || Runtime::global().current_stream(device)).or_raise()
}

/// The current stream, if a copy that blocks may be enqueued on it.
fn ready(py: Python<'_>, device: Device, non_blocking: bool) -> PyResult<Stream> {
    let stream = current(py, device)?;
    if !non_blocking && stream.is_capturing().or_raise()? {
        // Refused, by the name of what it would do.
        synchronize(py, &stream)?;
    }
    Ok(stream)
}

/// Waits for all work of a stream.
pub(super) fn synchronize(py: Python<'_>, stream: &Stream) -> PyResult<()> {
    detach(py, || stream.synchronize()).or_raise()
}

fn finish(py: Python<'_>, stream: &Stream, non_blocking: bool) -> PyResult<()> {
    if non_blocking { Ok(()) } else { synchronize(py, stream) }
}

/// In the order of both devices' current streams.
fn between_devices(py: Python<'_>, to: &Buffer, from: &Buffer) -> PyResult<()> {
    detach(py, || {
        let runtime = Runtime::global();
        let (stream, other) = (runtime.current_stream(to.device())?, runtime.current_stream(from.device())?);
        if stream == other {
            return stream.copy(&to.all(), &from.all());
        }
        stream.wait_stream(&other)?;
        stream.copy(&to.all(), &from.all())?;
        other.wait_stream(&stream)
    })
    .or_raise()
}

/// The same with a change of type: where the source lies if both are device memory, else on the host.
fn converting(py: Python<'_>, dst: &Tensor, src: &Tensor, non_blocking: bool) -> PyResult<()> {
    let (to, from) = (dst.dtype, src.dtype);
    match (&*dst.storage, &*src.storage) {
        (Storage::Device(target), Storage::Device(source)) if target.device() == source.device() => {
            let stream = current(py, target.device())?;
            detach(py, || stream.convert(&target.all(), to, &source.all(), from)).or_raise()
        }
        (_, Storage::Device(source)) if matches!(&*dst.storage, Storage::Device(_)) => {
            let between = Tensor::empty(py, source.device(), to, src.shape.clone(), false)?;
            copy(py, &between, src, non_blocking)?;
            copy(py, dst, &between, non_blocking)
        }
        (Storage::Device(_), _) => {
            let between = Tensor::of_host_bytes(
                py,
                &src.storage.read(py, |bytes| values::converted(to, from, bytes))?,
                to,
                &src.shape,
            )?;
            copy(py, dst, &between, non_blocking)
        }
        _ => {
            let bytes = src.storage.read(py, <[u8]>::to_vec)?;
            // The lengths fit, which is all that can be wrong.
            dst.storage.write(py, move |target| convert_into(to, target, from, &bytes))
        }
    }
}

fn convert_into(to: DType, target: &mut [u8], from: DType, bytes: &[u8]) {
    let _fits = convert::convert(to, target, from, bytes);
}
