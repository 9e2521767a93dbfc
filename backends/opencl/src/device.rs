//! A device: calls become commands of OpenCL.

use crate::config::Addressing;
use crate::conv::check;
use crate::machine::Machine;
use crate::memory::{Block, Spot};
use crate::object::Event;
use crate::part::Part;
use crate::stream::Stream;
use crate::sys::{self, Raw};
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gates, Graphs, HostFn, Kernel, Kernels, Launch, Mark, Mem,
    MemoryInfo, Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Until, WaitMode, Waited, Written,
};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

/// A device of OpenCL.
pub(crate) struct OpenClDevice {
    pub(crate) machine: Arc<Machine>,
    pub(crate) part: Arc<Part>,
    pub(crate) ordinal: usize,
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClDevice")
            .field("ordinal", &self.ordinal)
            .field("name", &self.part.facts.info.name)
            .field("addressing", &self.part.facts.addressing)
            .finish_non_exhaustive()
    }
}

/// One end of a copy.
enum At {
    Device(Spot),
    Host(*mut u8),
}

impl OpenClDevice {
    pub(crate) fn new(machine: Arc<Machine>, ordinal: usize) -> Self {
        let part = Arc::clone(&machine.parts[ordinal]);
        Self { machine, part, ordinal }
    }

    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn stream(&self, stream: StreamId) -> Result<&Arc<Stream>, Fault> {
        // SAFETY: H1: not removed while this call runs.
        unsafe { self.machine.streams.get(stream.0) }.ok_or_else(|| unknown("stream"))
    }

    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn block(&self, mem: Mem) -> Result<&Block, Fault> {
        // SAFETY: H1: not removed while this call runs.
        unsafe { self.machine.memory.get(mem.0) }.ok_or_else(|| unknown("memory"))
    }

    /// # Safety
    /// H1.
    unsafe fn spot(&self, place: Place) -> Result<Spot, Fault> {
        // SAFETY: H1.
        Ok(unsafe { self.block(place.mem) }?.spot(place.offset))
    }

    /// # Safety
    /// H1.
    unsafe fn event(&self, stamp: Stamp) -> Result<&Event, Fault> {
        // SAFETY: H1: not removed while this call runs.
        unsafe { self.machine.stamps.get(stamp.0) }.ok_or_else(|| unknown("stamp"))
    }

    /// # Safety
    /// H1.
    unsafe fn end(&self, end: End) -> Result<At, Fault> {
        // SAFETY: H1.
        unsafe {
            Ok(match end {
                End::Device(place) => At::Device(self.spot(place)?),
                End::Pinned(place) => {
                    let host = self.block(place.mem)?.host().ok_or_else(|| unknown("pinned memory"))?;
                    At::Host(host.0.wrapping_add(place.offset as usize))
                }
                End::Host(host) => At::Host(host.0),
            })
        }
    }

    /// Enqueues a copy within the context.
    ///
    /// # Safety
    /// H1, H4, H5; the ends don't overlap.
    pub(crate) unsafe fn enqueue_copy(&self, stream: &Stream, dst: Spot, src: Spot, len: u64) -> Result<(), Fault> {
        let (queue, api, len) = (stream.queue.raw(), self.part.api(), len as usize);
        let _order = stream.enqueue();
        // SAFETY: C1, C2: places inside live memory by H1 and H4, host memory by H5.
        unsafe {
            match (dst, src) {
                (Spot::Address(dst), Spot::Address(src)) => self.copy_addresses(queue, dst, src, len),
                (Spot::Object(to, at), Spot::Object(from, start)) => check(
                    "clEnqueueCopyBuffer",
                    (api.clEnqueueCopyBuffer)(queue, from, to, start, at, len, 0, ptr::null(), ptr::null_mut()),
                ),
                (Spot::Object(to, at), Spot::Address(src)) => {
                    let write = api.clEnqueueWriteBuffer;
                    let status = write(queue, to, sys::FALSE, at, len, src.cast(), 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueWriteBuffer", status)
                }
                (Spot::Address(dst), Spot::Object(from, start)) => {
                    let read = api.clEnqueueReadBuffer;
                    let status = read(queue, from, sys::FALSE, start, len, dst.cast(), 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueReadBuffer", status)
                }
            }
        }
    }

    /// # Safety
    /// H1, H4, H5.
    unsafe fn copy_addresses(&self, queue: Raw, dst: *mut u8, src: *mut u8, len: usize) -> Result<(), Fault> {
        let (facts, api) = (&self.part.facts, self.part.api());
        // SAFETY: C1, C2, as for the caller.
        unsafe {
            match (&facts.usm, facts.addressing, api.clEnqueueSVMMemcpy) {
                (Some(usm), Addressing::Usm, _) => {
                    let copy = usm.clEnqueueMemcpyINTEL;
                    let status = copy(queue, sys::FALSE, dst.cast(), src.cast(), len, 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueMemcpyINTEL", status)
                }
                (_, _, Some(copy)) => {
                    let status = copy(queue, sys::FALSE, dst.cast(), src.cast(), len, 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueSVMMemcpy", status)
                }
                _ => Err(Fault::unsupported("copy")),
            }
        }
    }

    /// Enqueues a fill of whole repetitions. The stream's order is held.
    ///
    /// # Safety
    /// H1, H4, H14.
    unsafe fn enqueue_fill(&self, queue: Raw, dst: Spot, pattern: &[u8], len: usize) -> Result<(), Fault> {
        let (facts, api) = (&self.part.facts, self.part.api());
        let (bytes, size) = (pattern.as_ptr().cast(), pattern.len());
        // SAFETY: C1, C2: the pattern is taken before the call returns; places by H1, H4.
        unsafe {
            match (dst, &facts.usm, api.clEnqueueSVMMemFill) {
                (Spot::Object(to, at), _, _) => {
                    let fill = api.clEnqueueFillBuffer;
                    let status = fill(queue, to, bytes, size, at, len, 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueFillBuffer", status)
                }
                (Spot::Address(dst), Some(usm), _) if facts.addressing == Addressing::Usm => {
                    let fill = usm.clEnqueueMemFillINTEL;
                    let status = fill(queue, dst.cast(), bytes, size, len, 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueMemFillINTEL", status)
                }
                (Spot::Address(dst), _, Some(fill)) => {
                    let status = fill(queue, dst.cast(), bytes, size, len, 0, ptr::null(), ptr::null_mut());
                    check("clEnqueueSVMMemFill", status)
                }
                _ => Err(Fault::unsupported("fill")),
            }
        }
    }
}

/// The pieces of a write as fills: each as long as its pattern, at a multiple of its length. A fill takes its pattern
/// before it returns, which no copy does.
pub(crate) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = len - at;
        if left == 0 {
            return None;
        }
        let aligned = 1_usize << (offset + at as u64).trailing_zeros().min(6);
        let size = aligned.min(1 << left.ilog2());
        at += size;
        Some(at - size..at)
    })
}

fn unknown(what: &'static str) -> Fault {
    Fault::invalid(what, "an unknown handle")
}

// SAFETY: the backend's rules: H2 by the slabs of the machine, H3 and H4 in `memory`, H6, H7, H9 to H11 in `stream`, H13 in
// `host_call`, H25 in `machine`; the other ones at the methods that they are about.
unsafe impl Device for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        &self.part.facts.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        Ok(MemoryInfo { free: None, total: self.part.facts.info.memory })
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        let most = self.part.facts.info.max_alloc;
        if len == 0 || len > most {
            return Err(Fault::invalid("alloc", format!("{len} bytes, at least 1 and at most {most}")));
        }
        let block = Block::new(&self.part, len, &self.machine.addresses)?;
        let addr = block.addr;
        Ok(Segment { mem: Mem(self.machine.memory.insert(block)), addr, len })
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        match self.machine.memory.remove(mem.0) {
            Some(block) => {
                drop(block);
                Ok(())
            }
            None => Err(unknown("memory")),
        }
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        if native == 0 || len == 0 {
            return Err(Fault::invalid("import", format!("{len} bytes at {native:#x}")));
        }
        // SAFETY: as this function's caller promises.
        let block = unsafe { Block::borrow(&self.part, native, len, &self.machine.addresses) }?;
        let addr = block.addr;
        Ok(Segment { mem: Mem(self.machine.memory.insert(block)), addr, len })
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: H1.
        unsafe { self.block(mem) }.map_or(0, Block::native)
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        let hint = match priority {
            _ if !self.part.facts.priorities => 0,
            ..=-1 => sys::QUEUE_PRIORITY_HIGH_KHR,
            _ => sys::QUEUE_PRIORITY_MED_KHR,
        };
        let queue = self.part.context.queue(self.part.facts.id.raw, hint)?;
        let stream = Stream::new(Arc::clone(&self.part), queue);
        Ok(StreamId(self.machine.streams.insert(Arc::new(stream))))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        match self.machine.streams.remove(stream.0) {
            Some(stream) => {
                drop(stream);
                Ok(())
            }
            None => Err(unknown("stream")),
        }
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: H1.
        unsafe { self.stream(stream) }.map_or(0, |stream| stream.show().expose_provenance() as u64)
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1.
        unsafe { self.stream(stream) }?.mark().map(Mark::At)
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        let Mark::At(mark) = mark else { return Err(Fault::invalid("wait", "a mark of a capture")) };
        if stream == of {
            return Ok(());
        }
        // SAFETY: H1.
        let (stream, of) = unsafe { (self.stream(stream)?, self.stream(of)?) };
        let Some(marker) = of.marker(mark) else { return Ok(()) };
        if stream.part.group != of.part.group {
            return Err(Fault::unsupported("wait").note("a stream of another platform"));
        }
        let _order = stream.enqueue();
        stream.queue.barrier(&marker)
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        _mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: H1.
        let stream = unsafe { self.stream(stream) }?;
        let mark = match until {
            Until::Mark(mark) => mark,
            Until::Now => stream.mark()?,
        };
        stream.wait_host(mark, deadline)
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: H1.
        Ok(unsafe { self.stream(stream) }?.completed())
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: H1.
        let stream = unsafe { self.stream(stream) }?;
        let _order = stream.enqueue();
        Ok(Stamp(self.machine.stamps.insert(stream.queue.marker()?)))
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1.
        let events = unsafe { [self.event(from)?, self.event(to)?] };
        if events.iter().any(|event| event.status() > 0) {
            return Err(Fault::new(FaultKind::NotReady, "elapsed_ns"));
        }
        let [from, to] = [events[0].end_ns()?, events[1].end_ns()?];
        Ok(to.wrapping_sub(from) as i64)
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        drop(self.machine.stamps.remove(stamp.0));
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5.
        unsafe {
            let stream = self.stream(stream)?;
            match (self.end(dst)?, self.end(src)?) {
                (At::Host(_), At::Host(_)) => Err(Fault::invalid("copy", "two ends on the host")),
                (At::Device(dst), At::Device(src)) => self.enqueue_copy(stream, dst, src, len),
                (At::Device(dst), At::Host(src)) => self.enqueue_copy(stream, dst, Spot::Address(src), len),
                (At::Host(dst), At::Device(src)) => self.enqueue_copy(stream, Spot::Address(dst), src, len),
            }
        }
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H14.
        unsafe {
            let (stream, dst) = (self.stream(stream)?, self.spot(dst)?);
            let _order = stream.enqueue();
            self.enqueue_fill(stream.queue.raw(), dst, pattern.bytes(), len as usize)
        }
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() > Written::MAX {
            return Err(Fault::invalid("write", format!("{} bytes, at most {}", bytes.len(), Written::MAX)));
        }
        // SAFETY: H1, H4; each piece lies inside the place.
        unsafe {
            let (stream, block) = (self.stream(stream)?, self.block(dst.mem)?);
            let _order = stream.enqueue();
            pieces(dst.offset, bytes.len()).try_for_each(|piece| {
                let spot = block.spot(dst.offset + piece.start as u64);
                self.enqueue_fill(stream.queue.raw(), spot, &bytes[piece.clone()], piece.len())
            })
        }
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: H1.
        let stream = unsafe { self.stream(stream) }?;
        self.machine.calls.enqueue(stream, &self.part.context, function)
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        self.find_builtin(number)
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, H4, H15.
        unsafe {
            match Self::as_builtin(kernel) {
                Some(builtin) => self.launch_builtin(stream, builtin, launch, args),
                None => self.launch_loaded(stream, kernel, launch, args),
            }
        }
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        (self.reachable() > 0).then_some(self)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.records().then_some(self)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn writes_fall_into_aligned_pieces() {
        for offset in 0..130 {
            for len in 0..=64 {
                let mut next = 0;
                let mut count = 0;
                for piece in pieces(offset, len) {
                    assert_eq!(piece.start, next);
                    assert!(
                        piece.len().is_power_of_two()
                            && (offset + piece.start as u64).is_multiple_of(piece.len() as u64)
                    );
                    next = piece.end;
                    count += 1;
                }
                assert_eq!(next, len);
                assert!(count <= 12, "{count} pieces for {len} bytes at {offset}");
            }
        }
    }
}
