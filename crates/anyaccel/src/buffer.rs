//! Buffers: device memory and pinned host memory.

use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::graph::{GraphError, Replays, Viewing};
use crate::lane::LaneRef;
use crate::local;
use crate::port::{Block, HostBlock, Part};
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::{Until, WaitMode};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};

/// Device memory. Freed when dropped, once all work that uses it has ended: no call is needed before.
///
/// Contents are undefined until written. Several threads may enqueue work on one buffer; the order of that work is the
/// streams'.
///
/// ```
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let stream = runtime.current_stream(())?;
/// let buffer = runtime.buffer_from(b"abcdef")?;
/// stream.write(&buffer.slice(2..4)?, b"XY")?;
/// assert_eq!(buffer.to_vec()?, b"abXYef");
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct Buffer {
    runtime: Runtime,
    device: Device,
    len: u64,
    /// None for no bytes. Shared with the graphs that use it.
    block: Option<Arc<Block>>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("device", &self.device).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A part of a [`Buffer`].
#[derive(Clone, Copy, Debug)]
pub struct BufferSlice<'a> {
    buffer: &'a Buffer,
    offset: u64,
    len: u64,
}

impl<'a> BufferSlice<'a> {
    /// The buffer that it is a part of.
    pub fn buffer(&self) -> &'a Buffer {
        self.buffer
    }

    /// Where it begins, in bytes from the buffer's start.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of this part.
    ///
    /// # Errors
    /// [`Error::Range`].
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<BufferSlice<'a>> {
        let (start, end) = bounds(range, self.len)?;
        Ok(BufferSlice { buffer: self.buffer, offset: self.offset + start, len: end - start })
    }

    /// The part as the port takes it; `None` if it has no bytes.
    #[inline]
    pub(crate) fn part(&self) -> Result<Option<Part<'a>>> {
        match &self.buffer.block {
            Some(block) if self.len > 0 => block.part(self.offset..self.offset + self.len).map(Some),
            _ => Ok(None),
        }
    }
}

#[inline]
fn bounds(range: impl RangeBounds<u64>, len: u64) -> Result<(u64, u64)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len { Ok((start, end)) } else { Err(Error::Range { start, end, len }) }
}

/// A vector with room for `bytes` bytes of elements, which this process may not have.
pub(crate) fn room<T>(what: &'static str, bytes: u64) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    let count = usize::try_from(bytes).map(|bytes| bytes / size_of::<T>().max(1));
    match count.map(|count| elements.try_reserve_exact(count)) {
        Ok(Ok(())) => Ok(elements),
        _ => Err(Error::HostOutOfMemory { what, requested: bytes, report: None }),
    }
}

impl Buffer {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Its address on the device, synthetic on devices whose memory has none; 0 if it has no bytes.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.addr())
    }

    /// The whole buffer.
    #[inline]
    pub fn all(&self) -> BufferSlice<'_> {
        BufferSlice { buffer: self, offset: 0, len: self.len }
    }

    /// A part of it, in bytes.
    ///
    /// # Errors
    /// [`Error::Range`].
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<BufferSlice<'_>> {
        self.all().slice(range)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn block(&self) -> Option<&Arc<Block>> {
        self.block.as_ref()
    }

    /// A handle of a block that others may have handles of.
    #[inline]
    pub(crate) fn of_block(runtime: Runtime, block: Arc<Block>) -> Self {
        Self { runtime, device: block.port.device, len: block.len, block: Some(block) }
    }

    pub(crate) fn empty(runtime: Runtime, device: Device) -> Self {
        Self { runtime, device, len: 0, block: None }
    }

    /// Leaves the block alone, which someone else counts.
    #[inline]
    pub(crate) fn forget_block(&mut self) {
        std::mem::forget(self.block.take());
    }

    pub(crate) fn into_block(self) -> Option<Arc<Block>> {
        self.block
    }

    /// Its bytes, once all work on this thread's current stream of its device has ended.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`] if this process has no room for them; the driver's.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = room("Buffer.to_vec", self.len)?;
        bytes.resize(self.len as usize, 0);
        let stream = self.runtime.current_stream(self.device)?;
        stream.download(&mut bytes, &self.all())?;
        Ok(bytes)
    }

    /// Notes that work on `stream`, enqueued by other means than this crate, uses the buffer: dropping it waits for what
    /// is on that stream by then. Work enqueued through this crate is noted by itself.
    /// [`torch.Tensor.record_stream`](https://pytorch.org/docs/stable/generated/torch.Tensor.record_stream.html)
    ///
    /// # Errors
    /// [`Error::ForeignRuntime`], [`Error::ForeignDevice`], [`Error::StaleHandle`].
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.on(stream)?;
        if let Some(block) = &self.block {
            let port = stream.port("Buffer.record_stream")?;
            match stream.lane.recording() {
                Some(recording) => recording.keep_block(port, &stream.lane, block)?,
                None => block.used_on(port, &stream.lane)?,
            }
        }
        Ok(())
    }

    /// Checks that the buffer and the stream share a runtime and a device.
    #[inline]
    pub(crate) fn on(&self, stream: &Stream) -> Result<()> {
        self.of(stream)?;
        // Within a runtime the index says it all.
        if self.device.index() == Some(stream.lane.ordinal) {
            Ok(())
        } else {
            Err(Error::ForeignDevice { what: "buffer", given: self.device, wanted: stream.device() })
        }
    }

    /// Checks that the buffer and the stream share a runtime.
    #[inline]
    pub(crate) fn of(&self, stream: &Stream) -> Result<()> {
        if self.runtime.same(&stream.runtime) {
            Ok(())
        } else if !self.runtime.core.current() {
            Err(Error::StaleHandle { what: "buffer" })
        } else {
            Err(Error::ForeignRuntime { what: "buffer" })
        }
    }
}

impl Runtime {
    /// Device memory on this thread's current device. Contents are undefined. May start the runtime.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; what starting reports.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        self.alloc_on(DeviceArg::Current, bytes)
    }

    /// Device memory on a device. Contents are undefined. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::alloc`], and those of the device argument.
    pub fn alloc_on<'a>(&self, device: impl Into<DeviceArg<'a>>, bytes: u64) -> Result<Buffer> {
        let call = "alloc";
        let ordinal = self.resolve(call, device.into())?;
        let port = self.live(call)?.port(ordinal)?;
        let lane = match local::stream(self.core.key(), ordinal) {
            Some(lane) => lane,
            None => port.lanes.default(port)?,
        };
        Ok(Buffer { runtime: self.clone(), device: port.device, len: bytes, block: port.alloc(&lane, bytes)? })
    }

    /// The same if it takes neither a driver nor a wait: the runtime has started and the cache has the memory at hand. Else
    /// `None`, which is no error: [`Runtime::alloc_on`] tells. For callers that would otherwise have to prepare for a wait.
    ///
    /// # Errors
    /// Those of the device argument.
    #[inline]
    pub fn alloc_cached<'a>(&self, device: impl Into<DeviceArg<'a>>, bytes: u64) -> Result<Option<Buffer>> {
        let Some(live) = self.core.started().filter(|_| !local::in_host_fn()) else { return Ok(None) };
        let ordinal = self.resolve("alloc", device.into())?;
        let Some(port) = live.open_port(ordinal) else { return Ok(None) };
        let Some(lane) = local::stream(self.core.key(), ordinal).or_else(|| port.lanes.default(port).ok()) else {
            return Ok(None);
        };
        let block = port.alloc_cached(&lane, bytes)?;
        Ok(block.map(|block| Buffer { runtime: self.clone(), device: port.device, len: bytes, block: Some(block) }))
    }

    /// Device memory on this thread's current device, zeroed in the order of its current stream.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn zeros(&self, bytes: u64) -> Result<Buffer> {
        let buffer = self.alloc(bytes)?;
        self.current_stream(buffer.device)?.fill(&buffer.all(), &[0])?;
        Ok(buffer)
    }

    /// Device memory on this thread's current device that holds these bytes, in the order of its current stream.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.alloc(bytes.len() as u64)?;
        self.current_stream(buffer.device)?.upload(&buffer.all(), bytes)?;
        Ok(buffer)
    }

    /// Pinned host memory for this thread's current device, from a cache: it holds what its last user left. Ordinary memory
    /// where the device pins none. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn pinned(&self, bytes: usize) -> Result<PinnedBuffer> {
        let port = self.port("pinned", DeviceArg::Current)?;
        let block = if bytes == 0 { None } else { Some(port.alloc_host(bytes)?) };
        Ok(PinnedBuffer { runtime: self.clone(), device: port.device, len: bytes, block, flights: Mutex::default() })
    }
}

/// Copies in flight of a pinned buffer: the last mark of each lane.
#[derive(Default)]
struct Flights {
    /// The device reads it.
    reads: Vec<(LaneRef, u64)>,
    /// The device writes it.
    writes: Vec<(LaneRef, u64)>,
    /// Graphs whose replays use it, and whether they write it.
    graphs: Vec<(Arc<Replays>, bool)>,
}

/// Stands for the mark of a copy that got none: all of the lane is waited for.
const UNMARKED: u64 = u64::MAX;

fn note(flights: &mut Vec<(LaneRef, u64)>, lane: &LaneRef, mark: Option<u64>) {
    let mark = mark.unwrap_or(UNMARKED);
    match flights.iter_mut().find(|(known, _)| known.raw == lane.raw) {
        Some((_, last)) => *last = mark,
        None => flights.push((lane.clone(), mark)),
    }
}

/// Host memory that the device reaches directly, so that copies overlap with everything else.
///
/// Views wait: [`PinnedBuffer::as_slice`] for copies into the buffer, [`PinnedBuffer::as_mut_slice`] for all copies. So
/// no view ever sees or changes bytes of a copy in flight. Freed when dropped, once its copies have ended.
///
/// ```
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let stream = runtime.current_stream(())?;
/// let (mut host, device) = (runtime.pinned(4)?, runtime.alloc(4)?);
/// host.as_mut_slice()?.copy_from_slice(b"ping");
/// stream.upload_pinned(&device.all(), &host, 0)?; // returns at once
/// host.as_mut_slice()?.copy_from_slice(b"pong"); // waits for the copy
/// assert_eq!(device.to_vec()?, b"ping");
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct PinnedBuffer {
    runtime: Runtime,
    device: Device,
    len: usize,
    block: Option<Arc<HostBlock>>,
    flights: Mutex<Flights>,
}

// SAFETY: the memory behind the block's pointer is this value's own; shared access only reads it, and H5's waits keep
// the device out of views.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above; what changes through a shared reference is behind a lock.
unsafe impl Sync for PinnedBuffer {}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("device", &self.device).field("len", &self.len).finish_non_exhaustive()
    }
}

impl PinnedBuffer {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that it was pinned for.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The bytes that are held for it: its length, rounded by the cache.
    pub fn capacity(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.capacity())
    }

    /// Whether it really is pinned; false where the device pins no memory.
    pub fn is_pinned(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.is_pinned())
    }

    /// Its bytes, once copies into it have ended.
    ///
    /// # Errors
    /// The driver's; [`Error::InsideHostFunction`] if it would have to wait there; [`GraphError::PinnedInGraph`] while a
    /// graph lives whose replays write it: use [`PinnedBuffer::with`].
    pub fn as_slice(&self) -> Result<&[u8]> {
        self.land(false)?;
        Ok(match &self.block {
            // SAFETY: valid for `len` bytes while the block lives (H27); copies into it have ended, and enqueuing
            // another takes `&mut self`.
            Some(block) => unsafe { std::slice::from_raw_parts(block.ptr(), self.len) },
            None => &[],
        })
    }

    /// Its bytes to write, once all its copies have ended.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`], also for a graph whose replays only read it: use [`PinnedBuffer::with_mut`].
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        self.land(true)?;
        Ok(match &self.block {
            // SAFETY: as in `as_slice`, and copies from it have ended too; `&mut self` makes it the only view.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.ptr(), self.len) },
            None => &mut [],
        })
    }

    /// Lends its bytes to a function, once copies into it have ended, replays of graphs included. While it runs no replay
    /// of a graph that uses the buffer begins: it would be refused as [`GraphError::Viewed`].
    ///
    /// # Errors
    /// Those of waiting.
    pub fn with<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let viewing = self.view()?;
        self.land_copies(false)?;
        let looked = look(match &self.block {
            // SAFETY: as in `as_slice`; replays that write it have ended, and none begins while it is viewed.
            Some(block) => unsafe { std::slice::from_raw_parts(block.ptr(), self.len) },
            None => &[],
        });
        drop(viewing);
        Ok(looked)
    }

    /// The same to write, once all its copies have ended.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn with_mut<T>(&mut self, change: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let viewing = self.view()?;
        self.land_copies(true)?;
        let changed = change(match &self.block {
            // SAFETY: as in `as_mut_slice`; all replays that use it have ended, and none begins while it is viewed.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.ptr(), self.len) },
            None => &mut [],
        });
        drop(viewing);
        Ok(changed)
    }

    /// Keeps replays of graphs that use it from beginning, and waits for those that did.
    fn view(&self) -> Result<Vec<Viewing>> {
        let call = "PinnedBuffer";
        self.runtime.check_generation(call, "pinned buffer")?;
        let graphs: Vec<Arc<Replays>> = {
            let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            flights.graphs.iter().map(|(replays, _)| Arc::clone(replays)).collect()
        };
        if graphs.is_empty() {
            return Ok(Vec::new());
        }
        self.runtime.check_handle(call, "pinned buffer")?;
        let viewing = graphs.iter().map(Replays::view).collect();
        for replays in &graphs {
            replays.wait(call)?;
        }
        Ok(viewing)
    }

    /// A graph's replays use it from now on.
    pub(crate) fn note_graph(&self, replays: &Arc<Replays>, writes: bool) {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        match flights.graphs.iter_mut().find(|(known, _)| Arc::ptr_eq(known, replays)) {
            Some((_, known)) => *known |= writes,
            None => flights.graphs.push((Arc::clone(replays), writes)),
        }
    }

    /// Waits for replays of graphs that are gone; refuses while one is not.
    fn land_graphs(&self, all: bool) -> Result<()> {
        let call = "PinnedBuffer";
        let graphs = {
            let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            if flights.graphs.is_empty() {
                return Ok(());
            }
            flights.graphs.clone()
        };
        self.runtime.check_handle(call, "pinned buffer")?;
        for (replays, writes) in &graphs {
            if replays.may_begin() {
                if all || *writes {
                    return Err(GraphError::PinnedInGraph.into());
                }
            } else {
                replays.wait(call)?;
            }
        }
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.graphs.retain(|(replays, _)| {
            let waited = graphs.iter().any(|(known, _)| Arc::ptr_eq(known, replays));
            !waited || replays.may_begin()
        });
        Ok(())
    }

    /// Waits for copies into it, and for those from it too if `all`.
    fn land(&self, all: bool) -> Result<()> {
        self.runtime.check_generation("PinnedBuffer", "pinned buffer")?;
        self.land_graphs(all)?;
        self.land_copies(all)
    }

    fn land_copies(&self, all: bool) -> Result<()> {
        let call = "PinnedBuffer";
        let Some(block) = &self.block else { return Ok(()) };
        self.runtime.check_generation(call, "pinned buffer")?;
        let waits: Vec<(LaneRef, u64)> = {
            let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            let reads = if all { &flights.reads[..] } else { &[] };
            flights.writes.iter().chain(reads).cloned().collect()
        };
        if waits.is_empty() {
            return Ok(());
        }
        self.runtime.check_handle(call, "pinned buffer")?;
        for (lane, mark) in &waits {
            let until = if *mark == UNMARKED { Until::Now } else { Until::Mark(*mark) };
            match block.port.wait_host(call, lane, until, None, WaitMode::Auto) {
                // A lost device has let go of all memory (H20).
                Ok(_) | Err(Error::DeviceLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |kept: &mut Vec<(LaneRef, u64)>| {
            kept.retain(|(lane, mark)| !waits.iter().any(|(known, last)| known.raw == lane.raw && last >= mark));
        };
        over(&mut flights.writes);
        if all {
            over(&mut flights.reads);
        }
        Ok(())
    }

    pub(crate) fn block(&self) -> Option<&Arc<HostBlock>> {
        self.block.as_ref()
    }

    pub(crate) fn note_read(&self, lane: &LaneRef, mark: Option<u64>) {
        note(&mut self.flights.lock().unwrap_or_else(PoisonError::into_inner).reads, lane, mark);
    }

    pub(crate) fn note_write(&mut self, lane: &LaneRef, mark: Option<u64>) {
        note(&mut self.flights.get_mut().unwrap_or_else(PoisonError::into_inner).writes, lane, mark);
    }

    /// Checks that the buffer and the stream share a runtime and a device.
    pub(crate) fn on(&self, stream: &Stream) -> Result<()> {
        if !self.runtime.core.current() {
            Err(Error::StaleHandle { what: "pinned buffer" })
        } else if !self.runtime.same(&stream.runtime) {
            Err(Error::ForeignRuntime { what: "pinned buffer" })
        } else if self.device != stream.device() {
            Err(Error::ForeignDevice { what: "pinned buffer", given: self.device, wanted: stream.device() })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any process can address: an error, no abort.
    #[test]
    fn room_that_is_not_there_is_an_error() {
        for bytes in [1 << 57, u64::MAX] {
            let error = room::<u32>("Buffer.to_vec", bytes);
            assert_eq!(error, Err(Error::HostOutOfMemory { what: "Buffer.to_vec", requested: bytes, report: None }));
        }
        assert_eq!(room::<u32>("Buffer.to_vec", 9).map(|room| room.capacity()), Ok(2));
    }
}
