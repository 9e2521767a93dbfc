//! The device: handles become objects, calls become native calls. It decides nothing.

use crate::builtin::Builtins;
use crate::context::Context;
use crate::inventory::Sensors;
use crate::kernel::Native;
use crate::machine::{Machine, StampEvent};
use crate::memory::{Holder, Memory};
use crate::stream::{Event, Stream};
use crate::sys::*;
use crate::wait::wait_host;
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gates, Graphs, HostFn, Kernel, Kernels, Launch, Mark, Mem,
    MemoryInfo, NativeEvents, Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Telemetry, Until, VirtualMemory,
    WaitMode, Waited, Written,
};
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Degrees of what a device can, asked when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_threads: u32,
    pub(crate) max_groups: [u32; 3],
    pub(crate) max_shared: u32,
    /// Memory of others can be pinned.
    pub(crate) register: bool,
    /// What mappings are multiples of; 0 where there are none.
    pub(crate) granularity: u64,
    /// Lists can be made graphs.
    pub(crate) graphs: bool,
    pub(crate) graph_host_calls: bool,
    pub(crate) shared_events: bool,
    /// It is a whole card, which has sensors.
    pub(crate) sensors: bool,
}

/// An open device.
pub(crate) struct CudaDevice {
    pub(crate) context: Arc<Context>,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) builtins: Builtins,
    /// Which ordinals it reaches directly, and to which that was enabled.
    pub(crate) peers: Vec<bool>,
    pub(crate) enabled: Vec<AtomicBool>,
    /// Where memory comes and goes in stream order, if it does.
    pub(crate) ordered: Option<Arc<Stream>>,
    pub(crate) sensors: Option<Sensors>,
    /// Whether a run-time compiler is installed, once somebody has asked.
    pub(crate) compiles: OnceLock<bool>,
    pub(crate) machine: Arc<Machine>,
}

#[cold]
pub(crate) fn unknown(api: &'static str, what: &str) -> Fault {
    Fault::invalid(api, format!("an unknown {what}"))
}

impl CudaDevice {
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
        unsafe { self.machine.memory.get(mem.0) }.ok_or_else(|| unknown(api, "memory"))
    }

    /// The address of `len` bytes at a place.
    ///
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn place(&self, place: Place, len: u64, api: &'static str) -> Result<CUdeviceptr, Fault> {
        // SAFETY: as this function.
        unsafe { self.memory(place.mem, api)? }.part(place.offset, len, api)
    }

    /// Hands the launch that stores some bytes to `act`. The context is current.
    ///
    /// # Safety
    /// H1.
    pub(crate) unsafe fn writing<R>(
        &self,
        dst: Place,
        bytes: &[u8],
        act: impl FnOnce(Native<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        if bytes.is_empty() || bytes.len() > Written::MAX {
            return Err(Fault::invalid("write", format!("{} bytes, at most {}", bytes.len(), Written::MAX)));
        }
        // SAFETY: as this function.
        let mut address = unsafe { self.place(dst, bytes.len() as u64, "write")? };
        let function = self.builtins.write()?;
        let mut room = [0_u8; Written::MAX];
        room[..bytes.len()].copy_from_slice(bytes);
        let mut len = bytes.len() as u32;
        let params: &mut [*mut c_void] =
            &mut [(&raw mut address).cast(), room.as_mut_ptr().cast(), (&raw mut len).cast()];
        act(Native { function, groups: [1; 3], threads: [Written::MAX as u32, 1, 1], shared: 0, params })
    }

    fn run(&self, stream: &Stream, native: Native<'_>) -> Result<(), Fault> {
        let Native { function, groups: [gx, gy, gz], threads: [bx, by, bz], shared, params } = native;
        // SAFETY: function and stream live; there are as many parameters as the function has, where that is known, and
        // H15 where it is not.
        let launched = unsafe {
            let params = params.as_mut_ptr();
            self.context.cuda.cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                stream.raw,
                params,
                std::ptr::null_mut(),
            )
        };
        stream.touch();
        self.context.check(launched)
    }

    fn timed(&self) -> Result<Event, Fault> {
        Event::new(&self.context, CU_EVENT_BLOCKING_SYNC)
    }
}

// SAFETY: the rules marked (backend) are kept: H2 by the slabs; H3 by cuMemAlloc, which backs what it gives; H5 to H10 by the
// driver's stream order and `stream`; H11 since native calls submit; H12 since the driver copies parameters; H13 in
// `host_call`; H14 to H16 here, in `kernel` and `builtin`; H17 by timed events; H18 since contexts are pushed and popped and
// all state is behind locks and atomics; H19 since calls check before they enqueue; H20 in `context`; H25 in `machine`.
unsafe impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        let _current = self.context.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid places for the answers.
        self.context.check(unsafe { self.context.cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free: Some(free as u64), total: total as u64 })
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        self.take_segment(len)
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1 and H4, as this function's caller promises.
        unsafe { self.give_back(mem, "free", false) }
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        let context = Arc::clone(&self.context);
        let memory = Memory { addr: native, host: 0, len, holder: Holder::Imported, range: None, context };
        Ok(Segment { mem: Mem(self.machine.memory.insert(memory)), addr: native, len })
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.memory(mem, "native_mem") }.map_or(0, |memory| memory.addr)
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        let _current = self.context.enter()?;
        let stream = Stream::create(&self.context, self.info.priorities.clamp(priority))?;
        Ok(StreamId(self.machine.streams.insert(Arc::new(stream))))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        match self.machine.streams.remove(stream.0) {
            Some(_ended) => Ok(()),
            None => Err(unknown("destroy_stream", "stream")),
        }
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.stream(stream, "native_stream") }.map_or(0, |stream| stream.share().0 as u64)
    }

    unsafe fn import_stream(&self, native: u64) -> Result<StreamId, Fault> {
        let _current = self.context.enter()?;
        let raw = CUstream(native as usize);
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream by this function's contract; the driver finds out if it is none.
        self.context.check(unsafe { self.context.cuda.cuStreamIsCapturing(raw, &raw mut status) })?;
        Ok(StreamId(self.machine.streams.insert(Arc::new(Stream::borrow(&self.context, raw)))))
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "mark")? };
        let _current = self.context.enter()?;
        stream.mark()
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (on, awaited) = unsafe { (self.stream(stream, "wait")?, self.stream(of, "wait")?) };
        let _current = self.context.enter()?;
        match mark {
            // A stream is behind its own marks anyway.
            Mark::At(_) if stream == of => Ok(()),
            Mark::At(mark) => awaited.hold_up(on, mark),
            Mark::Captured(point) => {
                let Some((id, event)) = awaited.captured_event(point) else {
                    return Err(Fault::invalid("wait", "a mark of a capture that has ended"));
                };
                // SAFETY: event and stream live.
                self.context.check(unsafe { self.context.cuda.cuStreamWaitEvent(on.raw, event.raw, 0) })?;
                on.set_capture(Some(id));
                Ok(())
            }
        }
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "wait_host")? };
        let _current = self.context.enter()?;
        wait_host(stream, until, deadline, mode)
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "completed")? };
        let looked = self.context.enter().and_then(|_current| self.context.check(stream.completed()));
        match looked {
            // All marks of a lost device have ended (H20).
            Err(_) if self.context.is_lost() => Ok(stream.given()),
            looked => looked,
        }
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "stamp")? };
        let _current = self.context.enter()?;
        let event = self.timed()?;
        // SAFETY: event and stream live.
        let recorded = unsafe { self.context.cuda.cuEventRecord(event.raw, stream.raw) };
        stream.touch();
        self.context.check(recorded)?;
        Ok(Stamp(self.machine.stamps.insert(StampEvent { event })))
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1: nobody drops a stamp during a call that names it.
        let (from, to) = unsafe {
            let get = |stamp: Stamp| self.machine.stamps.get(stamp.0).ok_or_else(|| unknown("elapsed_ns", "stamp"));
            (get(from)?, get(to)?)
        };
        let _current = self.context.enter()?;
        let mut millis = 0.0_f32;
        // SAFETY: a valid place for the answer; both events live.
        let read = unsafe { self.context.cuda.cuEventElapsedTime(&raw mut millis, from.event.raw, to.event.raw) };
        self.context.check(read)?;
        Ok((f64::from(millis) * 1e6) as i64)
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        drop(self.machine.stamps.remove(stamp.0));
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (stream, dst, src) = unsafe { (self.stream(stream, "copy")?, self.end(dst, len)?, self.end(src, len)?) };
        let _current = self.context.enter()?;
        let (cuda, bytes) = (self.context.cuda, len as usize);
        // SAFETY: H1, H4 and H5: both ends are live and as long as that; host memory stays until a later mark.
        let copied = unsafe {
            match (dst.host.is_null(), src.host.is_null()) {
                (true, true) => cuda.cuMemcpyDtoDAsync_v2(dst.device, src.device, bytes, stream.raw),
                (true, false) => cuda.cuMemcpyHtoDAsync_v2(dst.device, src.host.cast_const().cast(), bytes, stream.raw),
                (false, true) => cuda.cuMemcpyDtoHAsync_v2(dst.host.cast(), src.device, bytes, stream.raw),
                (false, false) => return Err(Fault::invalid("copy", "two host ends")),
            }
        };
        stream.touch();
        self.context.check(copied)
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (stream, dst) = unsafe { (self.stream(stream, "fill")?, self.place(dst, len, "fill")?) };
        let _current = self.context.enter()?;
        let (cuda, len) = (self.context.cuda, len as usize);
        // SAFETY: H1, H4 and H14: the range is live, and as long as whole patterns.
        let filled = unsafe {
            match *pattern.bytes() {
                [a] => cuda.cuMemsetD8Async(dst, a, len, stream.raw),
                [a, b] => cuda.cuMemsetD16Async(dst, u16::from_le_bytes([a, b]), len / 2, stream.raw),
                [a, b, c, d] => cuda.cuMemsetD32Async(dst, u32::from_le_bytes([a, b, c, d]), len / 4, stream.raw),
                ref other => {
                    return Err(Fault::unsupported("fill").note(format!("a pattern of {} bytes", other.len())));
                }
            }
        };
        stream.touch();
        self.context.check(filled)
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "write")?;
            let _current = self.context.enter()?;
            self.writing(dst, bytes, |native| self.run(stream, native))
        }
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "host_call")? };
        let _current = self.context.enter()?;
        // SAFETY: the stream lives.
        let enqueued = unsafe { stream.functions.enqueue(stream.raw, function) };
        stream.touch();
        enqueued
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        self.builtins.get(number).map(|builtin| Kernel(builtin.number().into()))
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let stream = self.stream(stream, "launch")?;
            let _current = self.context.enter()?;
            self.resolve(kernel, launch, args, |native| self.run(stream, native))
        }
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        if self.limits.granularity > 0 { Some(self) } else { None }
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        if self.limits.graphs { Some(self) } else { None }
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    fn native_events(&self) -> Option<&dyn NativeEvents> {
        Some(self)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        if self.context.holds { Some(self) } else { None }
    }

    fn telemetry(&self) -> Option<&dyn Telemetry> {
        Some(self)
    }
}

/// Asks a device for one of its attributes.
pub(crate) fn attribute(cuda: &Cuda, device: CUdevice, attribute: i32) -> Option<u32> {
    let mut value = 0;
    // SAFETY: a valid place for the answer.
    unsafe { cuda.cuDeviceGetAttribute(&raw mut value, attribute, device) }.ok()?;
    u32::try_from(value).ok()
}

impl Limits {
    pub(crate) fn ask(context: &Context, whole: bool) -> Self {
        let (cuda, device) = (context.cuda, context.device);
        let get = |which| attribute(cuda, device, which);
        let mapped = get(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == Some(1)
            && ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"]
                .iter()
                .all(|name| cuda.has(name));
        let shared = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK).unwrap_or(48 << 10);
        let graphs = ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch"];
        Self {
            max_threads: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK).unwrap_or(1024),
            max_groups: [
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X).unwrap_or(i32::MAX as u32),
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y).unwrap_or(65535),
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z).unwrap_or(65535),
            ],
            max_shared: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
                .map_or(shared, |more| more.max(shared)),
            register: get(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != Some(0),
            granularity: if mapped { CudaDevice::granularity(cuda, device).unwrap_or(0) } else { 0 },
            graphs: graphs.iter().all(|name| cuda.has(name)),
            graph_host_calls: context.holds && cuda.has("cuGraphAddBatchMemOpNode"),
            // Drivers that don't know the question have them.
            shared_events: get(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) != Some(0)
                && ["cuIpcGetEventHandle", "cuIpcOpenEventHandle"].iter().all(|name| cuda.has(name)),
            sensors: whole,
        }
    }
}

/// The kind of fault of what has not started.
pub(crate) fn not_started() -> Fault {
    Fault::new(FaultKind::Invalid, "open").note("the driver has not started")
}
