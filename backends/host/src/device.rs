//! The device: handles become objects, calls become operations of streams. It decides nothing.

use crate::gate::GateState;
use crate::machine::Machine;
use crate::memory::{Budget, Holder, Memory};
use crate::op::Op;
use crate::stamp::StampCell;
use crate::stream::Stream;
use crate::wait::wait_host;
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gate, Gates, Graphs, HostFn, HostPtr, Kernel, Kernels, Launch,
    Mark, Mem, MemoryInfo, Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Until, VirtualMemory, WaitMode,
    Waited, Written,
};
use anyaccel_kernels::{Builtin, fill_pattern};
use std::sync::Arc;
use std::time::Instant;

/// An open device.
pub(crate) struct HostDevice {
    machine: Arc<Machine>,
    ordinal: u32,
    info: DeviceInfo,
}

impl HostDevice {
    pub(crate) fn new(machine: Arc<Machine>, ordinal: u32, info: DeviceInfo) -> Self {
        Self { machine, ordinal, info }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.machine.budget(self.ordinal)
    }

    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn stream(&self, stream: StreamId, api: &'static str) -> Result<&Arc<Stream>, Fault> {
        // SAFETY: H1: nobody destroys the stream during a call that names it.
        unsafe { self.machine.streams.get(stream.0) }.ok_or_else(|| unknown(api, "stream"))
    }

    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn memory(&self, mem: Mem, api: &'static str) -> Result<&Memory, Fault> {
        // SAFETY: H1: nobody frees the memory during a call that names it.
        unsafe { self.machine.memory().get(mem.0) }.ok_or_else(|| unknown(api, "memory"))
    }

    /// The address of `len` bytes at a place.
    ///
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn place(&self, place: Place, len: u64, api: &'static str) -> Result<*mut u8, Fault> {
        // SAFETY: as this function.
        unsafe { self.memory(place.mem, api)? }.part(place.offset, len, api)
    }

    /// # Safety
    /// H1.
    pub(crate) unsafe fn gate(&self, gate: Gate, api: &'static str) -> Result<&Arc<GateState>, Fault> {
        // SAFETY: H1: nobody destroys the gate during a call that names it.
        unsafe { self.machine.gates.get(gate.0) }.ok_or_else(|| unknown(api, "gate"))
    }

    /// # Safety
    /// H1.
    unsafe fn end(&self, end: End, len: u64) -> Result<*mut u8, Fault> {
        match end {
            // SAFETY: as this function.
            End::Device(place) | End::Pinned(place) => unsafe { self.place(place, len, "copy") },
            End::Host(HostPtr(ptr)) => Ok(ptr),
        }
    }

    /// # Safety
    /// H1.
    unsafe fn stamp_time(&self, stamp: Stamp) -> Result<u64, Fault> {
        // SAFETY: H1: nobody drops the stamp during a call that names it.
        let stamp = unsafe { self.machine.stamps.get(stamp.0) }.ok_or_else(|| unknown("elapsed_ns", "stamp"))?;
        stamp.get().ok_or(Fault::new(FaultKind::NotReady, "elapsed_ns"))
    }
}

#[cold]
fn unknown(api: &'static str, what: &str) -> Fault {
    Fault::invalid(api, format!("an unknown {what}"))
}

// SAFETY: the rules marked (backend) are kept: H2 by the slabs; H3 and H21 in `memory`; H5 to H11 and H13 by the protocol
// of `stream`; H12 since operations hold their bytes; H14 to H16 in `op` and `kernel`; H17 in `stamp`; H18 since all state
// is behind locks and atomics; H19 since calls check before they enqueue; H25 in `machine`. A device is never lost (H20).
unsafe impl Device for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        let budget = self.budget();
        Ok(MemoryInfo { free: Some(budget.free()), total: budget.limit() })
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        if len == 0 || len > self.info.max_alloc {
            return Err(Fault::invalid("alloc", format!("{len} bytes, at most {}", self.info.max_alloc)));
        }
        let memory = Memory::segment(self.budget(), len)?;
        let (addr, len) = (memory.base.expose_provenance() as u64, memory.len);
        Ok(Segment { mem: Mem(self.machine.memory().insert(memory)), addr, len })
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        match unsafe { self.memory(mem, "free")? }.holder {
            Holder::Segment { .. } | Holder::Imported => {
                drop(self.machine.memory().remove(mem.0));
                Ok(())
            }
            _ => Err(Fault::invalid("free", "memory that is no segment")),
        }
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        let base = std::ptr::with_exposed_provenance_mut(native as usize);
        let memory = Memory { base, len, holder: Holder::Imported };
        Ok(Segment { mem: Mem(self.machine.memory().insert(memory)), addr: native, len })
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.memory(mem, "native_mem") }.map_or(0, |memory| memory.base.expose_provenance() as u64)
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        self.machine.crew.ensure_worker()?;
        let range = self.info.priorities;
        let level = (range.least - range.clamp(priority)) as usize;
        let stream = Stream::new(Arc::clone(&self.machine.crew), level);
        Ok(StreamId(self.machine.streams.insert(Arc::new(stream))))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        match self.machine.streams.remove(stream.0) {
            Some(_ended) => Ok(()),
            None => Err(unknown("destroy_stream", "stream")),
        }
    }

    unsafe fn native_stream(&self, _: StreamId) -> u64 {
        0
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, as this function's caller promises.
        Ok(Mark::At(unsafe { self.stream(stream, "mark")? }.mark()))
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        let Mark::At(mark) = mark else {
            return Err(Fault::invalid("wait", "a mark of a capture"));
        };
        // SAFETY: H1, as this function's caller promises.
        let (on, awaited) = unsafe { (self.stream(stream, "wait")?, self.stream(of, "wait")?) };
        // A stream is behind its own marks anyway.
        if stream != of && awaited.ended() < mark {
            on.push(Op::Wait { of: Arc::clone(awaited), mark });
        }
        Ok(())
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: H1, as this function's caller promises.
        Ok(wait_host(unsafe { self.stream(stream, "wait_host")? }, until, deadline, mode))
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "completed")? };
        stream.submit();
        Ok(stream.ended())
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "stamp")? };
        let stamp = Arc::new(StampCell::new(self.machine.epoch));
        stream.now_or_push(|| stamp.set(), Op::Stamp(Arc::clone(&stamp)));
        Ok(Stamp(self.machine.stamps.insert(stamp)))
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (from, to) = unsafe { (self.stamp_time(from)?, self.stamp_time(to)?) };
        Ok(to as i64 - from as i64)
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        drop(self.machine.stamps.remove(stamp.0));
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        if !matches!(dst, End::Device(_)) && !matches!(src, End::Device(_)) {
            return Err(Fault::invalid("copy", "two host ends"));
        }
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "copy")?;
            let (dst, src) = (self.end(dst, len)?, self.end(src, len)?);
            stream.push(Op::Copy { dst, src, len: len as usize });
        }
        Ok(())
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        let pattern = fill_pattern::Pattern::new(pattern.bytes())
            .map_err(|error| Fault::unsupported("fill").note(error.to_string()))?;
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "fill")?;
            stream.push(Op::Fill { dst: self.place(dst, len, "fill")?, pattern, len: len as usize });
        }
        Ok(())
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        let Some(written) = Written::new(bytes) else {
            return Err(Fault::invalid("write", format!("{} bytes, at most {}", bytes.len(), Written::MAX)));
        };
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "write")?;
            stream.push(Op::Write { dst: self.place(dst, bytes.len() as u64, "write")?, bytes: written });
        }
        Ok(())
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "host_call")? };
        self.machine.crew.ensure_callback_thread()?;
        stream.push_and_submit(Op::Call(function));
        Ok(())
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        Builtin::from_number(number).map(|builtin| Kernel(builtin.number().into()))
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "launch")?;
            stream.push(self.resolve(kernel, launch, args)?);
        }
        Ok(())
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(self)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        Some(self)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}
