//! A device of a plugin: each method is one call.

use super::capability::Capabilities;
use super::check::Tables;
use super::driver::Handle;
use crate::convert::{self, alone};
use crate::fault::{call, call_or_time_out};
use crate::raw;
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, Gates, Graphs, HostFn, Kernel, Kernels, Launch, Mark, Mem,
    MemoryInfo, NativeEvents, Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Telemetry, Until, VirtualMemory,
    WaitMode, Waited,
};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// An open device, and what keeps its driver.
pub(crate) struct Open {
    raw: NonNull<raw::Device>,
    driver: Arc<Handle>,
}

// SAFETY: H18: a device's functions may be called on any thread.
unsafe impl Send for Open {}
// SAFETY: H18, as above, also at the same time.
unsafe impl Sync for Open {}

impl Open {
    #[inline]
    pub(crate) fn raw(&self) -> *mut raw::Device {
        self.raw.as_ptr()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(close) = self.driver.plugin().tables().driver.close {
            // SAFETY: from open, closed once, and its driver lives.
            unsafe { close(self.raw()) }
        }
    }
}

/// Makes one call of a function that may be missing, as a fault of that name.
macro_rules! ask {
    ($table:expr, $device:expr, $function:ident($($arg:expr),*)) => {
        match $table.$function {
            // SAFETY: a function of the plugin under its type, on its device, with what the method's caller promised
            // (H1 to H15); what it writes to is valid for the call.
            Some(function) => call(stringify!($function), |fault| unsafe { function($device, $($arg,)* fault) }),
            None => Err(Fault::unsupported(stringify!($function))),
        }
    };
}
pub(crate) use ask;

/// The device.
pub(crate) struct PluginDevice {
    open: Arc<Open>,
    tables: &'static Tables,
    info: DeviceInfo,
    capabilities: Capabilities,
}

impl fmt::Debug for PluginDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginDevice").field("plugin", &self.open.driver.plugin()).finish_non_exhaustive()
    }
}

impl PluginDevice {
    pub(crate) fn new(driver: Arc<Handle>, raw: NonNull<raw::Device>) -> Result<Self, Fault> {
        let tables = driver.plugin().tables();
        let open = Arc::new(Open { raw, driver });
        let info = convert::info(|info| ask!(tables.device, open.raw(), info(info)).map(|()| true))?;
        let Some(info) = info else { return Err(Fault::unsupported("info")) };
        let capabilities = Capabilities::of(tables, &open)?;
        Ok(Self { open, tables, info, capabilities })
    }
}

/// A segment, if it is what H3 promises.
pub(crate) fn sound(api: &'static str, asked: u64, alignment: u64, segment: raw::Segment) -> Result<Segment, Fault> {
    let raw::Segment { addr, len, .. } = segment;
    if len < asked || addr % alignment != 0 || addr.checked_add(len).is_none() {
        let note =
            format!("H3: the plugin gave {len} bytes at {addr:#x} for {asked} bytes at multiples of {alignment}");
        return Err(Fault::new(FaultKind::Driver, api).note(note));
    }
    Ok(convert::to_segment(segment))
}

pub(crate) const NO_SEGMENT: raw::Segment = raw::Segment { mem: 0, addr: 0, len: 0 };

// SAFETY: the rules marked (backend) are the plugin's to keep, as its header says; nothing here adds to a call or takes
// from it. What the engine indexes with is looked at (`sound`).
unsafe impl Device for PluginDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        let struct_size = size_of::<raw::MemoryInfo>() as u32;
        let mut info = raw::MemoryInfo { struct_size, free_known: 0, free: 0, total: 0 };
        ask!(self.tables.device, self.open.raw(), memory_info(&raw mut info))?;
        // SAFETY: a struct of this function's own.
        let (free, total) = unsafe { (alone(&raw const info.free), alone(&raw const info.total)) };
        Ok(MemoryInfo { free: (info.free_known != 0).then_some(free), total })
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        let mut segment = NO_SEGMENT;
        ask!(self.tables.device, self.open.raw(), alloc(len, &raw mut segment))?;
        sound("alloc", len, self.info.alignment, segment)
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        ask!(self.tables.device, self.open.raw(), free(mem.0))
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        let mut segment = NO_SEGMENT;
        ask!(self.tables.device, self.open.raw(), import(native, len, &raw mut segment))?;
        sound("import", len, 1, segment)
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: as in `ask`.
        self.tables.device.native_mem.map_or(0, |function| unsafe { function(self.open.raw(), mem.0) })
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        let mut stream = 0;
        ask!(self.tables.device, self.open.raw(), create_stream(priority, &raw mut stream))?;
        Ok(StreamId(stream))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        ask!(self.tables.device, self.open.raw(), destroy_stream(stream.0))
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: as in `ask`.
        self.tables.device.native_stream.map_or(0, |function| unsafe { function(self.open.raw(), stream.0) })
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        let mut mark = raw::Mark { value: 0, captured: 0, reserved: 0 };
        ask!(self.tables.device, self.open.raw(), mark(stream.0, &raw mut mark))?;
        Ok(convert::to_mark(mark))
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        ask!(self.tables.device, self.open.raw(), wait(stream.0, of.0, convert::mark(mark)))
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        let mark = match until {
            Until::Mark(mark) => mark,
            Until::Now => raw::NOW,
        };
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now()).as_nanos();
        let nanoseconds =
            deadline.map_or(raw::FOREVER, |deadline| u64::try_from(left(deadline)).unwrap_or(raw::FOREVER - 1));
        let mode = match mode {
            WaitMode::Auto => raw::WAIT_AUTO,
            WaitMode::Block => raw::WAIT_BLOCK,
        };
        let Some(function) = self.tables.device.wait_host else { return Err(Fault::unsupported("wait_host")) };
        let wait = |fault| {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), stream.0, mark, nanoseconds, mode, fault) }
        };
        Ok(if call_or_time_out("wait_host", wait)? { Waited::Ended } else { Waited::TimedOut })
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        let mut mark = 0;
        ask!(self.tables.device, self.open.raw(), completed(stream.0, &raw mut mark))?;
        Ok(mark)
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        let mut stamp = 0;
        ask!(self.tables.device, self.open.raw(), stamp(stream.0, &raw mut stamp))?;
        Ok(Stamp(stamp))
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        let mut nanoseconds = 0;
        ask!(self.tables.device, self.open.raw(), elapsed_ns(from.0, to.0, &raw mut nanoseconds))?;
        Ok(nanoseconds)
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        if let Some(function) = self.tables.device.drop_stamp {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), stamp.0) }
        }
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        ask!(self.tables.device, self.open.raw(), copy(stream.0, convert::end(&dst), convert::end(&src), len))
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        let bytes = pattern.bytes();
        let (pattern, pattern_len) = (bytes.as_ptr().cast(), bytes.len() as u32);
        ask!(self.tables.device, self.open.raw(), fill(stream.0, convert::place(dst), pattern, pattern_len, len))
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(Fault::invalid("write", format!("{} bytes", bytes.len())));
        };
        ask!(self.tables.device, self.open.raw(), write(stream.0, convert::place(dst), bytes.as_ptr().cast(), len))
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        if self.tables.device.host_call.is_none() {
            return Err(Fault::unsupported("host_call"));
        }
        let result = ask!(self.tables.device, self.open.raw(), host_call(stream.0, convert::host_fn(&function)));
        // The plugin's since the call, which does not unwind.
        std::mem::forget(function);
        result
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        let mut kernel = 0;
        let function = self.tables.device.builtin?;
        // SAFETY: as in `ask`.
        let has = unsafe { function(self.open.raw(), number, &raw mut kernel) };
        (has != 0).then_some(Kernel(kernel))
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        let (list, count) = (convert::args(args), args.len());
        ask!(self.tables.device, self.open.raw(), launch(stream.0, kernel.0, &raw const launch, list, count))
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        self.capabilities.pinned.as_ref().map(|pinned| pinned as &dyn Pinned)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        self.capabilities.peers.as_ref().map(|peers| peers as &dyn Peers)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.capabilities.virtual_memory.as_ref().map(|memory| memory as &dyn VirtualMemory)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.capabilities.graphs.as_ref().map(|graphs| graphs as &dyn Graphs)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.capabilities.kernels.as_ref().map(|kernels| kernels as &dyn Kernels)
    }

    fn native_events(&self) -> Option<&dyn NativeEvents> {
        self.capabilities.native_events.as_ref().map(|events| events as &dyn NativeEvents)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        self.capabilities.gates.as_ref().map(|gates| gates as &dyn Gates)
    }

    fn telemetry(&self) -> Option<&dyn Telemetry> {
        self.capabilities.telemetry.as_ref().map(|telemetry| telemetry as &dyn Telemetry)
    }
}
