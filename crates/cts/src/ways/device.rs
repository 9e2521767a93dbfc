//! A device in front of a good one: work goes onto the tape, everything else to the good device, behind that work.

use super::tape::Tape;
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gate, Gates, GatesLimits, HostFn, Kernel, Kernels, Launch, Mark,
    Mem, MemoryInfo, NativeEvents, Op, Pattern, Peers, PeersLimits, Pinned, Place, Segment, Stamp, StreamId, Telemetry,
    Until, VirtualMemory, WaitMode, Waited, Written,
};
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Capturing {
    pub(super) good: Arc<dyn Device>,
    /// `None`: everything goes through, but the device has no graphs.
    pub(super) tape: Option<Arc<Tape>>,
}

impl Capturing {
    /// Puts an operation onto the tape, or gives it back where there is none.
    fn put_off(&self, stream: StreamId, op: Op) -> Result<(), Op> {
        match &self.tape {
            Some(tape) => {
                tape.record(&self.good, stream, op);
                Ok(())
            }
            None => Err(op),
        }
    }

    /// Submits what is on the tape for a stream, so that a call for the good device comes behind it.
    fn submit(&self, stream: StreamId) -> Result<(), Fault> {
        self.tape.as_ref().map_or(Ok(()), |tape| tape.submit(stream))
    }
}

// SAFETY: the good device keeps the rules. What is put off is submitted before anything that its caller could tell from
// that: a look at its marks, or work of another form on its stream. The suite is the only caller, and where a rule is
// about the moment of a call the case is not run this way.
unsafe impl Device for Capturing {
    fn info(&self) -> &DeviceInfo {
        self.good.info()
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        self.good.memory_info()
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        self.good.alloc(len)
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: forwarded; its work has ended (H4), so none of it is on the tape.
        unsafe { self.good.free(mem) }
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good.import(native, len) }
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: forwarded.
        unsafe { self.good.native_mem(mem) }
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        self.good.create_stream(priority)
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        self.submit(stream)?;
        if let Some(tape) = &self.tape {
            tape.forget(stream);
        }
        // SAFETY: forwarded.
        unsafe { self.good.destroy_stream(stream) }
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: forwarded.
        unsafe { self.good.native_stream(stream) }
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        match &self.tape {
            Some(tape) => tape.mark(&self.good, stream).map(Mark::At),
            // SAFETY: forwarded.
            None => unsafe { self.good.mark(stream) },
        }
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        match (&self.tape, mark) {
            (Some(tape), Mark::At(number)) => tape.wait(&self.good, stream, of, number),
            // SAFETY: forwarded.
            _ => unsafe { self.good.wait(stream, of, mark) },
        }
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        let until = match (&self.tape, until) {
            (Some(tape), Until::Mark(number)) => Until::Mark(tape.place_of(stream, number)?),
            (Some(tape), Until::Now) => tape.submit(stream).map(|()| Until::Now)?,
            (None, until) => until,
        };
        // SAFETY: forwarded; the mark is the good device's own.
        let waited = unsafe { self.good.wait_host(stream, until, deadline, mode) };
        if let (Some(tape), Ok(Waited::Ended)) = (&self.tape, &waited) {
            tape.sweep();
        }
        waited
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        self.submit(stream)?;
        // SAFETY: forwarded.
        let ended = unsafe { self.good.completed(stream) }?;
        Ok(self.tape.as_ref().map_or(ended, |tape| tape.number_at(stream, ended)))
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        self.submit(stream)?;
        // SAFETY: forwarded.
        unsafe { self.good.stamp(stream) }
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good.elapsed_ns(from, to) }
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        // SAFETY: forwarded.
        unsafe { self.good.drop_stamp(stamp) }
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        match self.put_off(stream, Op::Copy { dst, src, len }) {
            Ok(()) => Ok(()),
            // SAFETY: forwarded.
            Err(_) => unsafe { self.good.copy(stream, dst, src, len) },
        }
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        match self.put_off(stream, Op::Fill { dst, pattern, len }) {
            Ok(()) => Ok(()),
            // SAFETY: forwarded.
            Err(_) => unsafe { self.good.fill(stream, dst, pattern, len) },
        }
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        let written = Written::new(bytes).ok_or(Fault::new(FaultKind::Invalid, "write"))?;
        match self.put_off(stream, Op::Write { dst, bytes: written }) {
            Ok(()) => Ok(()),
            // SAFETY: forwarded.
            Err(_) => unsafe { self.good.write(stream, dst, bytes) },
        }
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        match self.put_off(stream, Op::HostCall(function)) {
            // SAFETY: forwarded.
            Err(Op::HostCall(function)) => unsafe { self.good.host_call(stream, function) },
            _ => Ok(()),
        }
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        self.good.builtin(number)
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        let owned = args.iter().map(|&arg| arg.into()).collect();
        match self.put_off(stream, Op::Launch { kernel, launch, args: owned }) {
            Ok(()) => Ok(()),
            // SAFETY: forwarded.
            Err(_) => unsafe { self.good.launch(stream, kernel, launch, args) },
        }
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        self.good.pinned()
    }

    fn peers(&self) -> Option<&dyn Peers> {
        self.good.peers().map(|_| self as &dyn Peers)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.good.virtual_memory()
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.good.kernels()
    }

    fn native_events(&self) -> Option<&dyn NativeEvents> {
        self.good.native_events().filter(|_| self.tape.is_none())
    }

    fn gates(&self) -> Option<&dyn Gates> {
        self.good.gates().map(|_| self as &dyn Gates)
    }

    fn telemetry(&self) -> Option<&dyn Telemetry> {
        self.good.telemetry()
    }
}

impl Peers for Capturing {
    fn limits(&self) -> PeersLimits {
        self.good.peers().map_or(PeersLimits { reachable: 0 }, Peers::limits)
    }

    fn can_access(&self, ordinal: u32) -> bool {
        self.good.peers().is_some_and(|peers| peers.can_access(ordinal))
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        self.submit(stream)?;
        let peers = self.good.peers().ok_or(Fault::new(FaultKind::Unsupported, "peer copy"))?;
        // SAFETY: forwarded.
        unsafe { peers.copy(stream, dst, from, src, len) }
    }
}

/// What forwards to gates that were handed out, so that the good device has them.
const GATES: Fault = Fault::new(FaultKind::Unsupported, "gates");

impl Gates for Capturing {
    fn limits(&self) -> GatesLimits {
        self.good.gates().map_or(GatesLimits { closed: 0 }, Gates::limits)
    }

    fn create(&self) -> Result<Gate, Fault> {
        self.good.gates().ok_or(GATES)?.create()
    }

    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        self.submit(stream)?;
        // SAFETY: forwarded.
        unsafe { self.good.gates().ok_or(GATES)?.wait(stream, gate) }
    }

    unsafe fn open(&self, gate: Gate) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.good.gates().ok_or(GATES)?.open(gate) }
    }

    unsafe fn destroy(&self, gate: Gate) {
        if let Some(gates) = self.good.gates() {
            // SAFETY: forwarded.
            unsafe { gates.destroy(gate) };
        }
    }
}
