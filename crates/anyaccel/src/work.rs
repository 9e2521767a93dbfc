//! What streams do: copies, fills, conversion, counting, kernels.

use crate::buffer::{BufferSlice, PinnedBuffer};
use crate::error::{Error, Result};
use crate::graph::{GraphError, not_captured};
use crate::lane::LaneRef;
use crate::port::{LaunchPart, Part, Port};
use crate::stream::Stream;
use anyaccel_hal::{DType, Launch, Pattern, Written};
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram};
use std::sync::Arc;

/// Up to here borrowed bytes are staged; more is copied before the call returns.
const SMALL_STAGING: usize = 64 << 10;

impl Stream {
    /// Copies between buffers of equal length, on one device or on two of the runtime. Between devices it goes directly
    /// where they reach each other, else through pinned memory; either way in the order of this stream.
    ///
    /// # Errors
    /// [`Error::Length`]; [`Error::Overlap`]; [`Error::ForeignRuntime`]; [`Error::ForeignDevice`] if the stream is on
    /// neither device; the driver's.
    pub fn copy(&self, dst: &BufferSlice<'_>, src: &BufferSlice<'_>) -> Result<()> {
        let call = "Stream.copy";
        let port = self.port(call)?;
        dst.buffer().of(self)?;
        src.buffer().of(self)?;
        same_length("copy", dst.len(), src.len())?;
        if dst.buffer().device() != self.device() {
            src.buffer().on(self)?;
        }
        let (Some(to), Some(from)) = (dst.part()?, src.part()?) else { return Ok(()) };
        if to.overlaps(&from) {
            return Err(Error::Overlap { what: "copy" });
        }
        let (here, there) = (&to.block.port, &from.block.port);
        if here.ordinal == there.ordinal {
            return port.copy(&self.lane, to, from);
        }
        if here.ordinal == port.ordinal && here.can_access_peer(there.ordinal) {
            return port.copy_peer(&self.lane, to, there.ordinal, from);
        }
        self.copy_staged(to, from)
    }

    /// A copy between devices that don't reach each other: down on the source's side, up on the destination's.
    fn copy_staged(&self, to: Part<'_>, from: Part<'_>) -> Result<()> {
        let call = "Stream.copy";
        let (here, there) = (&to.block.port, &from.block.port);
        if self.lane.is_capturing() {
            let what = "Stream.copy between devices that don't reach each other";
            return Err(GraphError::NotCapturable { what, device: self.device() }.into());
        }
        let lane_on = |port: &Arc<Port>| -> Result<LaneRef> {
            if port.ordinal == self.lane.ordinal { Ok(self.lane.clone()) } else { port.lanes.transfer(port) }
        };
        let (up, down) = (lane_on(here)?, lane_on(there)?);
        let own = self.port(call)?;
        let carried = there.alloc_host(to.len as usize)?;
        there.wait(&down, own, &self.lane, own.mark(call, &self.lane)?)?;
        there.download(&down, &carried, 0, from)?;
        if here.info().host_ends {
            // The destination's driver knows the memory only by its address: it was pinned for the source's.
            here.wait(&up, there, &down, there.mark(call, &down)?)?;
            here.upload_foreign(&up, to, carried)?;
        } else {
            let landed = here.alloc_host(to.len as usize)?;
            let landed = there.carry(call, &down, carried, landed)?;
            here.wait(&up, there, &down, there.mark(call, &down)?)?;
            here.upload(&up, to, &landed, 0)?;
        }
        own.wait(&self.lane, here, &up, here.mark(call, &up)?)
    }

    /// Copies bytes to a buffer. The slice may be changed as soon as this returns: up to 64 KiB travel with the
    /// operation, more is copied before it returns.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::ForeignRuntime`], [`Error::ForeignDevice`]; the driver's.
    pub fn upload(&self, dst: &BufferSlice<'_>, src: &[u8]) -> Result<()> {
        let port = self.port("Stream.upload")?;
        dst.buffer().on(self)?;
        same_length("upload", dst.len(), src.len() as u64)?;
        let Some(to) = dst.part()? else { return Ok(()) };
        if src.len() <= Written::MAX {
            return port.write(&self.lane, to, src);
        }
        if src.len() > SMALL_STAGING && (self.lane.is_capturing() || port.info().host_ends) {
            self.may_borrow("Stream.upload", src.len())?;
            return port.upload_now(&self.lane, to, src);
        }
        let staging = port.alloc_host_with(src.len(), |bytes| bytes.copy_from_slice(src))?;
        port.upload(&self.lane, to, &staging, 0)
    }

    /// Refuses a copy of borrowed memory that would have to wait while a capture forbids it.
    fn may_borrow(&self, call: &'static str, bytes: usize) -> Result<()> {
        if self.lane.is_capturing() {
            return Err(GraphError::Borrowed { call, bytes, limit: SMALL_STAGING }.into());
        }
        self.runtime().may_wait(call)
    }

    /// Copies a buffer to borrowed memory, and waits for it.
    ///
    /// # Errors
    /// As [`Stream::upload`]; [`Error::HostPanic`] of an earlier host function of this stream, once.
    pub fn download(&self, dst: &mut [u8], src: &BufferSlice<'_>) -> Result<()> {
        let call = "Stream.download";
        let port = self.port(call)?;
        src.buffer().on(self)?;
        same_length("download", dst.len() as u64, src.len())?;
        not_captured(call, &self.lane)?;
        self.runtime().may_wait(call)?;
        let Some(from) = src.part()? else { return Ok(()) };
        if port.info().host_ends {
            port.download_now(&self.lane, dst, from)?;
        } else {
            let staging = port.alloc_host(dst.len())?;
            port.download(&self.lane, &staging, 0, from)?;
            self.synchronize()?;
            staging.copy_to(dst);
        }
        self.lane.take_panic()
    }

    /// Copies from pinned memory, from byte `at` on, and returns at once.
    ///
    /// # Errors
    /// [`Error::Range`], and as [`Stream::upload`].
    pub fn upload_pinned(&self, dst: &BufferSlice<'_>, src: &PinnedBuffer, at: usize) -> Result<()> {
        let call = "Stream.upload_pinned";
        let port = self.port(call)?;
        dst.buffer().on(self)?;
        src.on(self)?;
        pinned_range(at, dst.len(), src.len())?;
        let (Some(to), Some(block)) = (dst.part()?, src.block()) else { return Ok(()) };
        port.upload(&self.lane, to, block, at)?;
        if let Some(recording) = self.lane.recording() {
            src.note_graph(&recording.replays, false);
            return Ok(());
        }
        let mark = port.mark(call, &self.lane);
        src.note_read(&self.lane, mark.as_ref().ok().copied());
        mark.map(|_noted| ())
    }

    /// Copies to pinned memory, from byte `at` on, and returns at once. Views of it wait for the copy.
    ///
    /// # Errors
    /// [`Error::Range`], and as [`Stream::upload`].
    pub fn download_pinned(&self, dst: &mut PinnedBuffer, at: usize, src: &BufferSlice<'_>) -> Result<()> {
        let call = "Stream.download_pinned";
        let port = self.port(call)?;
        src.buffer().on(self)?;
        dst.on(self)?;
        pinned_range(at, src.len(), dst.len())?;
        let (Some(from), Some(block)) = (src.part()?, dst.block()) else { return Ok(()) };
        if let Some(recording) = self.lane.recording() {
            // First, so that no view is handed out that a replay could meet.
            dst.note_graph(&recording.replays, true);
            return port.download(&self.lane, block, at, from);
        }
        port.download(&self.lane, block, at, from)?;
        let mark = port.mark(call, &self.lane);
        dst.note_write(&self.lane, mark.as_ref().ok().copied());
        mark.map(|_noted| ())
    }

    /// Fills a buffer with a pattern of 1, 2, 4, 8 or 16 bytes, over and over from its start; a last, partial repetition
    /// is cut.
    ///
    /// # Errors
    /// [`Error::Argument`] for another length of pattern; [`Error::ForeignRuntime`], [`Error::ForeignDevice`]; the
    /// driver's.
    #[inline]
    pub fn fill(&self, dst: &BufferSlice<'_>, pattern: &[u8]) -> Result<()> {
        let call = "Stream.fill";
        let port = self.port(call)?;
        dst.buffer().on(self)?;
        let Some(given) = Pattern::new(pattern) else {
            return Err(Error::Argument {
                argument: "pattern",
                reason: format!("expected 1, 2, 4, 8 or 16 bytes, got {}", pattern.len()),
            });
        };
        let Some(to) = dst.part()? else { return Ok(()) };
        let short = if pattern.len() == 1 { given } else { given.reduced() };
        let size = short.bytes().len() as u64;
        if port.info().fill_patterns.has(size as usize) && to.offset.is_multiple_of(size) {
            let whole = to.len - to.len % size;
            if whole > 0 {
                port.fill(&self.lane, Part { len: whole, ..to }, short)?;
            }
            if whole < to.len {
                let tail = Part { offset: to.offset + whole, len: to.len - whole, ..to };
                port.write(&self.lane, tail, &short.bytes()[..tail.len as usize])?;
            }
            return Ok(());
        }
        self.fill_otherwise(port, to, short)
    }

    /// A fill that the device does not have natively: by kernel, else from the host.
    #[cold]
    fn fill_otherwise(&self, port: &Arc<Port>, to: Part<'_>, pattern: Pattern) -> Result<()> {
        let call = "Stream.fill";
        let Ok(pattern) = fill_pattern::Pattern::new(pattern.bytes()) else {
            return Err(Error::Argument { argument: "pattern", reason: "not a power of two".into() });
        };
        if let Some(kernel) = usable(port, Builtin::FillPattern, &[to]) {
            let params = fill_pattern::Params::new(pattern, to.len).to_bytes();
            let launch = Launch::linear(fill_pattern::split(to.len).chunks(), 1);
            // SAFETY: H15: the arguments are those of the built-in's documented layout.
            return unsafe {
                port.launch(call, &self.lane, kernel, launch, &[LaunchPart::Part(to), LaunchPart::Bytes(&params)])
            };
        }
        let staging = port.alloc_host_with(to.len as usize, |bytes| fill_pattern::fill(bytes, pattern))?;
        port.upload(&self.lane, to, &staging, 0)
    }

    /// Stores at most 64 bytes, which travel with the operation.
    ///
    /// # Errors
    /// [`Error::Length`] if the lengths differ or exceed 64; [`Error::ForeignRuntime`], [`Error::ForeignDevice`]; the
    /// driver's.
    #[inline]
    pub fn write(&self, dst: &BufferSlice<'_>, bytes: &[u8]) -> Result<()> {
        let port = self.port("Stream.write")?;
        dst.buffer().on(self)?;
        same_length("write", dst.len(), bytes.len() as u64)?;
        if bytes.len() > Written::MAX {
            return Err(Error::Length {
                what: "write (at most)",
                expected: Written::MAX as u64,
                got: bytes.len() as u64,
            });
        }
        match dst.part()? {
            Some(to) => port.write(&self.lane, to, bytes),
            None => Ok(()),
        }
    }

    /// Adds to 256 u64 counters (little-endian, 2048 bytes at a multiple of 8) how often each byte value occurs.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Misaligned`], [`Error::Overlap`]; [`Error::ForeignRuntime`],
    /// [`Error::ForeignDevice`]; the driver's.
    pub fn histogram(&self, counts: &BufferSlice<'_>, bytes: &BufferSlice<'_>) -> Result<()> {
        let call = "Stream.histogram";
        let port = self.port(call)?;
        counts.buffer().on(self)?;
        bytes.buffer().on(self)?;
        same_length("histogram counts", 2048, counts.len())?;
        if !counts.offset().is_multiple_of(8) {
            return Err(Error::Misaligned { what: "histogram counts", offset: counts.offset(), alignment: 8 });
        }
        let (Some(to), Some(from)) = (counts.part()?, bytes.part()?) else { return Ok(()) };
        if to.overlaps(&from) {
            return Err(Error::Overlap { what: "histogram" });
        }
        if let Some(kernel) = usable(port, Builtin::Histogram, &[to, from]) {
            let params = histogram::Params::new(from.len).to_bytes();
            let launch = Launch::linear(histogram::split(from.len).chunks(), 1);
            let args = [LaunchPart::Part(to), LaunchPart::Part(from), LaunchPart::Bytes(&params)];
            // SAFETY: H15: the arguments are those of the built-in's documented layout, aligned and apart.
            return unsafe { port.launch(call, &self.lane, kernel, launch, &args) };
        }
        self.on_host(call, port, to, from, true, |counts, bytes| {
            let mut sums = [0; 256];
            histogram::count(bytes, &mut sums);
            for (word, sum) in counts.chunks_exact_mut(8).zip(sums) {
                let mut before = [0; 8];
                before.copy_from_slice(word);
                word.copy_from_slice(&u64::from_le_bytes(before).wrapping_add(sum).to_le_bytes());
            }
        })
    }

    /// Converts elements of one type to another. The rules are those of `anyaccel_kernels::convert`.
    ///
    /// # Errors
    /// [`Error::DTypeUnsupported`]; [`Error::Length`] if the lengths are not those of equally many elements;
    /// [`Error::Overlap`]; [`Error::ForeignRuntime`], [`Error::ForeignDevice`]; the driver's.
    pub fn convert(&self, dst: &BufferSlice<'_>, to: DType, src: &BufferSlice<'_>, from: DType) -> Result<()> {
        let call = "Stream.convert";
        let port = self.port(call)?;
        dst.buffer().on(self)?;
        src.buffer().on(self)?;
        for dtype in [to, from] {
            if !port.dtypes().contains(dtype) {
                return Err(Error::DTypeUnsupported { dtype, device: port.device });
            }
        }
        let count = src.len() / from.size() as u64;
        same_length("source of a conversion", count * from.size() as u64, src.len())?;
        same_length("destination of a conversion", count * to.size() as u64, dst.len())?;
        let (Some(dst), Some(src)) = (dst.part()?, src.part()?) else { return Ok(()) };
        if dst.overlaps(&src) {
            return Err(Error::Overlap { what: "convert" });
        }
        if let Some(kernel) = usable(port, Builtin::Convert, &[dst, src]) {
            let params = convert::Params::new(to, from, count).to_bytes();
            let launch = Launch::linear(convert::split(count).chunks(), 1);
            let args = [LaunchPart::Part(dst), LaunchPart::Part(src), LaunchPart::Bytes(&params)];
            // SAFETY: H15: the arguments are those of the built-in's documented layout.
            return unsafe { port.launch(call, &self.lane, kernel, launch, &args) };
        }
        self.on_host(call, port, dst, src, false, move |dst, src| {
            // The lengths were checked above, which is all that can be wrong.
            let _fits = convert::convert(to, dst, from, src);
        })
    }

    /// A built-in that the device lacks: down, computed by a host function, up, all in stream order.
    fn on_host(
        &self,
        call: &'static str,
        port: &Arc<Port>,
        dst: Part<'_>,
        src: Part<'_>,
        reads_dst: bool,
        mut compute: impl FnMut(&mut [u8], &[u8]) + Send + 'static,
    ) -> Result<()> {
        let input = port.alloc_host(src.len as usize)?;
        let output = port.alloc_host(dst.len as usize)?;
        port.download(&self.lane, &input, 0, src)?;
        if reads_dst {
            port.download(&self.lane, &output, 0, dst)?;
        }
        let (from, to) = (Arc::clone(&input), Arc::clone(&output));
        self.host_call(call, move || {
            // SAFETY: H6: the copies into both blocks have ended and the copy out has not begun, so this function has
            // them to itself; both live while it holds them.
            let (dst, src) = unsafe { (to.bytes_in_turn(), from.bytes_in_turn()) };
            compute(dst, src);
        })?;
        port.upload(&self.lane, dst, &output, 0)
    }
}

/// The built-in, if the device has it and takes these places.
pub(crate) fn usable(port: &Port, builtin: Builtin, parts: &[Part<'_>]) -> Option<anyaccel_hal::Kernel> {
    let alignment = port.info().place_alignment.max(1);
    let aligned = parts.iter().all(|part| part.offset.is_multiple_of(alignment));
    if aligned { port.builtin(builtin.number()) } else { None }
}

fn same_length(what: &'static str, expected: u64, got: u64) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

fn pinned_range(at: usize, bytes: u64, len: usize) -> Result<()> {
    let (start, len) = (at as u64, len as u64);
    match start.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        end => Err(Error::Range { start, end: end.unwrap_or(u64::MAX), len }),
    }
}
