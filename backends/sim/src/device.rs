//! A device: the required part of the hal.

use crate::config::DeviceConfig;
use crate::counters::{Call, Method};
use crate::driver::Life;
use crate::state::{StampState, State};
use crate::stream::{Aligned, Code, LaunchArg, Stream, Work};
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gates, HostFn, Kernel, Kernels, Launch, Mark, Mem, MemoryInfo,
    Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Telemetry, Until, Uuid, VirtualMemory, WaitMode, Waited,
    Written,
};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A simulated device.
pub(crate) struct SimDevice {
    life: Arc<Life>,
    ordinal: u32,
    info: DeviceInfo,
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

impl SimDevice {
    pub(crate) fn new(life: Arc<Life>, ordinal: u32) -> Self {
        let info = life.shared.config.devices[ordinal as usize].info(ordinal);
        Self { life, ordinal, info }
    }

    pub(crate) fn config(&self) -> &DeviceConfig {
        &self.life.shared.config.devices[self.ordinal as usize]
    }

    pub(crate) fn devices(&self) -> &[DeviceConfig] {
        &self.life.shared.config.devices
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.config().identity(self.ordinal)
    }

    /// A call that a lost device refuses (H20).
    pub(crate) fn call<T>(
        &self,
        call: Call,
        run: impl FnOnce(&mut State, u32) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let method = call.method;
        self.call_even_lost(call, |state, ordinal| {
            if state.device(ordinal).lost {
                return Err(Fault::new(FaultKind::DeviceLost, method.name()));
            }
            run(state, ordinal)
        })
    }

    /// A call that succeeds on a lost device too.
    pub(crate) fn call_even_lost<T>(
        &self,
        mut call: Call,
        run: impl FnOnce(&mut State, u32) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        call.device = Some(self.ordinal);
        self.life.shared.change(|state| {
            let result = state.admit(call).and_then(|()| run(state, self.ordinal));
            if let Err(fault) = &result {
                let number = state.ledger.last();
                state.ledger.failed(number, fault.kind);
            }
            result
        })
    }

    /// A call that returns nothing that could say how it failed.
    pub(crate) fn call_infallible(&self, call: Call, run: impl FnOnce(&mut State, u32)) {
        // What could be wrong is among the violations.
        let _told = self.call_even_lost(call, |state, ordinal| {
            run(state, ordinal);
            Ok(())
        });
    }
}

impl State {
    /// A mark of any live stream of the driver that `stream` may wait for.
    fn awaited(&mut self, ordinal: u32, of: StreamId, mark: Mark) -> Result<u64, Fault> {
        let Mark::At(mark) = mark else {
            let note = "a mark of a capture, on a device that can't capture";
            return Err(self.violations.refuse("H1", Method::Wait, note));
        };
        let Some(owner) = self.ordinal_of(of) else {
            return Err(self.unknown(Method::Wait, "stream", of.0, crate::handle::device_of(of.0)));
        };
        let issued = self.stream(Method::Wait, of, owner)?.issued;
        if mark > issued {
            let note = format!("mark {mark} was never given out by stream {}, the last is {issued}", self.named(of.0));
            return Err(self.violations.refuse("H1", Method::Wait, note));
        }
        if owner != ordinal && !self.device(ordinal).config.capabilities.foreign_waits {
            return Err(Fault::unsupported(Method::Wait.name()));
        }
        Ok(mark)
    }

    fn stamp_time(&mut self, stamp: Stamp, ordinal: u32) -> Result<u64, Fault> {
        match self.stamps.get(&stamp) {
            Some(state) if state.ordinal == ordinal => {
                state.time.ok_or(Fault::new(FaultKind::NotReady, Method::ElapsedNs.name()))
            }
            _ => Err(self.unknown(Method::ElapsedNs, "stamp", stamp.0, ordinal)),
        }
    }
}

// SAFETY: the rules marked (backend): handles are serials (H2); memory.rs does the accounts (H3); schedule.rs takes one
// operation of a stream after the other, waits and gates by their state (H5 to H11, H30); the rest as each method says.
// Rules that the caller breaks are refused before anything is touched.
unsafe impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        self.call(Call::new(Method::MemoryInfo), |state, ordinal| {
            let device = state.device(ordinal);
            let free = device.config.capabilities.free_known.then(|| device.space.free_bytes());
            Ok(MemoryInfo { free, total: device.space.total() })
        })
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        self.call(Call::new(Method::Alloc).amount(len), |state, ordinal| {
            let max = state.device(ordinal).config.max_alloc;
            if len == 0 || len > max {
                let note = format!("{len} bytes asked, at most {max} at a time");
                return Err(Fault::invalid(Method::Alloc.name(), note));
            }
            let mem = Mem(state.handles.give(ordinal));
            let segment = state.device(ordinal).space.alloc(mem, len);
            segment.map_err(|shortage| State::shortage(Method::Alloc, shortage))
        })
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        self.call_even_lost(Call::new(Method::Free).mem(mem), |state, ordinal| {
            let space = &state.device(ordinal).space;
            if !space.has(mem) {
                return Err(state.unknown(Method::Free, "memory", mem.0, ordinal));
            }
            if space.is_reserved(mem) {
                let note = format!("memory {} belongs to a reserved range", state.named(mem.0));
                return Err(state.violations.refuse("H29", Method::Free, note));
            }
            state.release(Method::Free, mem, ordinal)
        })
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        self.call(Call::new(Method::Import).amount(len), |state, ordinal| {
            if !state.device(ordinal).config.capabilities.import {
                return Err(Fault::unsupported(Method::Import.name()));
            }
            if native == 0 || len == 0 {
                return Err(Fault::invalid(Method::Import.name(), "null, or 0 bytes"));
            }
            let mem = Mem(state.handles.give(ordinal));
            let segment = state.device(ordinal).space.import(mem, native, len);
            segment.map_err(|note| state.violations.refuse("import", Method::Import, note))
        })
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        let mut native = 0;
        self.call_infallible(Call::new(Method::NativeMem).mem(mem), |state, ordinal| {
            match state.device(ordinal).space.addr(mem) {
                Some(addr) => native = addr,
                None => {
                    let _told = state.unknown(Method::NativeMem, "memory", mem.0, ordinal);
                }
            }
        });
        native
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        let call = Call::new(Method::CreateStream).amount(priority as u64);
        self.call(call, |state, ordinal| {
            let range = state.device(ordinal).config.priorities;
            if range.clamp(priority) != priority {
                let note = format!("priority {priority} is not in {} to {}", range.greatest, range.least);
                return Err(state.violations.refuse("create_stream", Method::CreateStream, note));
            }
            let id = StreamId(state.handles.give(ordinal));
            state.streams.insert(id, Stream::new(ordinal));
            state.created.push(id);
            Ok(id)
        })
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        self.call_even_lost(Call::new(Method::DestroyStream).stream(stream), |state, ordinal| {
            state.stream(Method::DestroyStream, stream, ordinal)?;
            let left = state.left_to_do(stream);
            if left > 0 {
                let note = format!("stream {} has {left} operations that have not ended", state.named(stream.0));
                return Err(state.violations.refuse("destroy_stream", Method::DestroyStream, note));
            }
            state.forget_stream(stream);
            Ok(())
        })
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        self.call_infallible(Call::new(Method::NativeStream).stream(stream), |state, ordinal| {
            let _told = state.stream(Method::NativeStream, stream, ordinal);
        });
        if self.life.shared.config.native_streams { stream.0 } else { 0 }
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        self.call(Call::new(Method::Mark).stream(stream), |state, ordinal| {
            let target = state.stream(Method::Mark, stream, ordinal)?;
            target.issued += 1;
            let mark = target.issued;
            state.enqueue(stream, Work::Mark(mark));
            Ok(Mark::At(mark))
        })
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        let (Mark::At(number) | Mark::Captured(number)) = mark;
        self.call(Call::new(Method::Wait).stream(stream).amount(number), |state, ordinal| {
            state.stream(Method::Wait, stream, ordinal)?;
            let mark = state.awaited(ordinal, of, mark)?;
            state.enqueue(stream, Work::Wait { of, mark });
            Ok(())
        })
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        _mode: WaitMode,
    ) -> Result<Waited, Fault> {
        self.life.shared.wait_host(self.ordinal, stream, until, deadline)
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        self.call_even_lost(Call::new(Method::Completed).stream(stream), |state, ordinal| {
            state.stream(Method::Completed, stream, ordinal)?;
            let poll = state.device(ordinal).costs.poll_ns.max(1);
            if !state.device(ordinal).lost && matches!(state.picker.mode(), crate::Interleaving::ByTime) {
                state.now += poll;
            }
            state.look();
            // The look can have lost the device, not the stream.
            let target = state.stream(Method::Completed, stream, ordinal)?;
            let (ended, time) = (target.ended, target.times.of(target.ended));
            state.see(time);
            state.host_sees_mark(stream, ended);
            Ok(ended)
        })
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        self.call(Call::new(Method::Stamp).stream(stream), |state, ordinal| {
            state.stream(Method::Stamp, stream, ordinal)?;
            let stamp = Stamp(state.handles.give(ordinal));
            state.stamps.insert(stamp, StampState { ordinal, time: None, knows: Arc::default() });
            state.enqueue(stream, Work::Stamp(stamp));
            Ok(stamp)
        })
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        self.call(Call::new(Method::ElapsedNs).amount(from.0), |state, ordinal| {
            let times = [state.stamp_time(from, ordinal)?, state.stamp_time(to, ordinal)?];
            for stamp in [from, to] {
                if let Some(knows) = state.stamps.get(&stamp).map(|stamp| Arc::clone(&stamp.knows)) {
                    state.host_learns(&knows);
                }
            }
            Ok(times[1].wrapping_sub(times[0]) as i64)
        })
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        self.call_infallible(Call::new(Method::DropStamp).amount(stamp.0), |state, ordinal| {
            if state.stamps.get(&stamp).is_some_and(|state| state.ordinal == ordinal) {
                state.stamps.remove(&stamp);
            } else {
                let _told = state.unknown(Method::DropStamp, "stamp", stamp.0, ordinal);
            }
        });
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        let mut call = Call::new(Method::Copy).stream(stream).amount(len);
        call.mem = match (dst, src) {
            (End::Device(place), _) | (_, End::Device(place)) => Some(place.mem),
            _ => None,
        };
        self.call(call, |state, ordinal| {
            state.stream(Method::Copy, stream, ordinal)?;
            match (dst, src) {
                (End::Host(_) | End::Pinned(_), End::Host(_) | End::Pinned(_)) => {
                    return Err(Fault::invalid(Method::Copy.name(), "both ends are host memory"));
                }
                (End::Device(a), End::Device(b)) if a.mem == b.mem && a.offset.abs_diff(b.offset) < len => {
                    let note = format!("{len} bytes at offset {} and at {} overlap", a.offset, b.offset);
                    return Err(state.violations.refuse("copy", Method::Copy, note));
                }
                _ => {}
            }
            let (dst, src) = (state.side(ordinal, dst, len)?, state.side(ordinal, src, len)?);
            state.enqueue(stream, Work::Copy { dst, src, len });
            Ok(())
        })
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        self.call(Call::new(Method::Fill).stream(stream).mem(dst.mem).amount(len), |state, ordinal| {
            state.stream(Method::Fill, stream, ordinal)?;
            let size = pattern.bytes().len();
            if !state.device(ordinal).config.fill_patterns.has(size) {
                return Err(Fault::unsupported(Method::Fill.name()).note(format!("patterns of {size} bytes")));
            }
            if !dst.offset.is_multiple_of(size as u64) || !len.is_multiple_of(size as u64) {
                let offset = dst.offset;
                let note = format!("offset {offset} or length {len} is not a multiple of the pattern's {size} bytes");
                return Err(state.violations.refuse("H14", Method::Fill, note));
            }
            let dst = state.place(Method::Fill, ordinal, dst, len)?;
            state.enqueue(stream, Work::Fill { dst, pattern });
            Ok(())
        })
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        let len = bytes.len() as u64;
        self.call(Call::new(Method::Write).stream(stream).mem(dst.mem).amount(len), |state, ordinal| {
            state.stream(Method::Write, stream, ordinal)?;
            let Some(bytes) = Written::new(bytes) else {
                let note = format!("{len} bytes, at most {}", Written::MAX);
                return Err(Fault::invalid(Method::Write.name(), note));
            };
            let dst = state.place(Method::Write, ordinal, dst, len)?;
            state.enqueue(stream, Work::Write { dst, bytes });
            Ok(())
        })
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // Outside of the closure: a function that is refused is dropped without the lock.
        let mut function = Some(function);
        self.call(Call::new(Method::HostCall).stream(stream), |state, ordinal| {
            state.stream(Method::HostCall, stream, ordinal)?;
            state.enqueue(stream, Work::HostCall(function.take()));
            Ok(())
        })
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        let mut kernel = None;
        self.call_infallible(Call::new(Method::Builtin).amount(u64::from(number)), |state, ordinal| {
            kernel = state.builtin(ordinal, number);
        });
        kernel
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        self.call(Call::new(Method::Launch).stream(stream).amount(kernel.0), |state, ordinal| {
            state.stream(Method::Launch, stream, ordinal)?;
            let code = state.code(Method::Launch, kernel, ordinal)?;
            crate::kernels::check(&launch, args)?;
            let mut taken = Vec::with_capacity(args.len());
            for arg in args {
                taken.push(match *arg {
                    Arg::Place { place, len } => LaunchArg::Span(state.argument(ordinal, place, len)?),
                    Arg::Bytes(bytes) => LaunchArg::Bytes(Aligned::of(bytes)),
                    Arg::Local(len) => LaunchArg::Local(len),
                });
            }
            if let Code::Builtin(number) = code {
                let fits = crate::builtins::check(number, &launch, &mut taken);
                fits.map_err(|note| Fault::invalid(Method::Launch.name(), note))?;
            }
            state.enqueue(stream, Work::Launch { code, launch, args: taken });
            Ok(())
        })
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        self.config().capabilities.pinned.then_some(self)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        self.config().capabilities.peers.then_some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.config().capabilities.virtual_memory.then_some(self)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.config().capabilities.kernels.then_some(self)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        self.config().capabilities.gates.then_some(self)
    }

    fn telemetry(&self) -> Option<&dyn Telemetry> {
        self.config().capabilities.telemetry.then_some(self)
    }
}
