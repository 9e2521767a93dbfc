//! What a device does. Everything is "not yet"; each method says what it will have to do.
//!
//! The order to fill it in: `alloc` and `free`; a stream with `mark`, `completed` and `wait_host`; `copy`, `fill` and `write`;
//! `wait`; `host_call`; stamps. After each, `cargo test -p anyaccel-template` tells which entries of `tests/suite.rs` are stale.

use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, FaultKind, HostFn, Kernel, Launch, Mark, Mem, MemoryInfo, Pattern, Place,
    Segment, Stamp, StreamId, Until, WaitMode, Waited,
};
use std::time::Instant;

/// An open device.
#[derive(Debug)]
pub(crate) struct TemplateDevice {
    info: DeviceInfo,
}

impl TemplateDevice {
    pub(crate) fn new(info: DeviceInfo) -> Self {
        Self { info }
    }
}

/// What every method answers until it is written.
fn not_yet<T>(api: &'static str) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::Unsupported, api).note("not yet: the template has to be filled in"))
}

// SAFETY: every method refuses, without an effect (H19), so no rule marked (backend) can be broken. Once it does something,
// this comment names what keeps each rule: H2 (handles are never given out again), H3, H6 to H13, H18, H20, H25.
unsafe impl Device for TemplateDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Free and total memory now, all processes together; `free: None` where the native driver can't tell.
    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        not_yet("memory_info")
    }

    /// H3: backed, aligned, apart from every other live segment. Called rarely: the engine caches.
    fn alloc(&self, _len: u64) -> Result<Segment, Fault> {
        not_yet("alloc")
    }

    /// H4: all work that names it has ended.
    unsafe fn free(&self, _mem: Mem) -> Result<(), Fault> {
        not_yet("free")
    }

    /// Names memory of others. `Unsupported` is a good answer where memory has no addresses.
    unsafe fn import(&self, _native: u64, _len: u64) -> Result<Segment, Fault> {
        not_yet("import")
    }

    /// What another library calls the memory by.
    unsafe fn native_mem(&self, _mem: Mem) -> u64 {
        0
    }

    /// H2: unique per driver, not per device. `anyaccel_kit::Slab` gives out such handles.
    fn create_stream(&self, _priority: i32) -> Result<StreamId, Fault> {
        not_yet("create_stream")
    }

    unsafe fn destroy_stream(&self, _stream: StreamId) -> Result<(), Fault> {
        not_yet("destroy_stream")
    }

    unsafe fn native_stream(&self, _stream: StreamId) -> u64 {
        0
    }

    /// H7, H11: the number of this point, higher than all before it on this stream; what is before it is submitted.
    unsafe fn mark(&self, _stream: StreamId) -> Result<Mark, Fault> {
        not_yet("mark")
    }

    /// H8: never blocks the caller, and holds up nothing that is already in the stream.
    unsafe fn wait(&self, _stream: StreamId, _of: StreamId, _mark: Mark) -> Result<(), Fault> {
        not_yet("wait")
    }

    /// H10: other threads may call anything meanwhile. H33: returns the fault of work that failed, once.
    unsafe fn wait_host(
        &self,
        _stream: StreamId,
        _until: Until,
        _deadline: Option<Instant>,
        _mode: WaitMode,
    ) -> Result<Waited, Fault> {
        not_yet("wait_host")
    }

    /// H9: the highest mark that has ended, from a number that the device or a thread of the backend raises.
    unsafe fn completed(&self, _stream: StreamId) -> Result<u64, Fault> {
        not_yet("completed")
    }

    /// H17: the device's time when the stream gets here.
    unsafe fn stamp(&self, _stream: StreamId) -> Result<Stamp, Fault> {
        not_yet("stamp")
    }

    unsafe fn elapsed_ns(&self, _from: Stamp, _to: Stamp) -> Result<i64, Fault> {
        not_yet("elapsed_ns")
    }

    unsafe fn drop_stamp(&self, _stamp: Stamp) {}

    /// H5: host memory is read or written in stream order. A copy with host memory may block the caller, nothing else may.
    unsafe fn copy(&self, _stream: StreamId, _dst: End, _src: End, _len: u64) -> Result<(), Fault> {
        not_yet("copy")
    }

    /// H14: the pattern over and over.
    unsafe fn fill(&self, _stream: StreamId, _dst: Place, _pattern: Pattern, _len: u64) -> Result<(), Fault> {
        not_yet("fill")
    }

    /// H12: at most 64 bytes, taken before it returns.
    unsafe fn write(&self, _stream: StreamId, _dst: Place, _bytes: &[u8]) -> Result<(), Fault> {
        not_yet("write")
    }

    /// H13: called once, in stream order, on a thread that may block without stopping others: `anyaccel_kit::Callbacks`
    /// are such threads. Dropping the function, as here, is right for a call that fails.
    unsafe fn host_call(&self, _stream: StreamId, _function: HostFn) -> Result<(), Fault> {
        not_yet("host_call")
    }

    /// None: the engine computes on the host, through copies. Kernels of your own come last, one at a time.
    fn builtin(&self, _number: u32) -> Option<Kernel> {
        None
    }

    unsafe fn launch(
        &self,
        _stream: StreamId,
        _kernel: Kernel,
        _launch: Launch,
        _args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        not_yet("launch")
    }

    // Capabilities: pinned(), peers(), virtual_memory(), graphs(), kernels(), native_events(), gates(), telemetry(). Each is
    // absent until it is overridden, and the engine does without. Pinned memory is the first that is worth its work.
}
