//! A device: memory, order, work, time. The required part of a backend.

use crate::capability::{Gates, Graphs, Kernels, NativeEvents, Peers, Pinned, Telemetry, VirtualMemory};
use crate::fault::Fault;
use crate::handle::{Kernel, Mark, Mem, Place, Segment, Stamp, StreamId};
use crate::host_fn::HostFn;
use crate::info::{DeviceInfo, MemoryInfo};
use crate::op::{Arg, End, Launch, Pattern};
use std::time::Instant;

/// What a host thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The end of a mark of that stream.
    Mark(u64),
    /// The end of everything enqueued on that stream before this call.
    Now,
}

/// How a host thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WaitMode {
    /// Whatever is quickest, then asleep.
    Auto = 1,
    /// Asleep from the start, for long waits.
    Block = 2,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Waited {
    /// What was waited for has ended.
    Ended,
    /// The deadline came first.
    TimedOut,
}

/// An open device.
///
/// # Safety
/// An implementation keeps the rules marked (backend) in the crate's documentation; unsafe code above relies on them.
/// Each `unsafe` method's caller keeps those marked (caller): H1 for every handle, H4 for memory, H5 for host pointers,
/// and the further ones named at the method.
pub unsafe trait Device: Send + Sync {
    /// Its properties. Constant, costs nothing.
    fn info(&self) -> &DeviceInfo;

    /// Free and total memory now, all processes together.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    fn memory_info(&self) -> Result<MemoryInfo, Fault>;

    // Memory

    /// Takes at least `len > 0` bytes (H3). Contents are undefined. May wait for the device; legal beside any capture.
    ///
    /// # Errors
    /// `OutOfMemory`; `Invalid` for 0 or more than [`DeviceInfo::max_alloc`]; `DeviceLost`.
    fn alloc(&self, len: u64) -> Result<Segment, Fault>;

    /// Gives memory back. May wait for the device; legal beside any capture.
    ///
    /// # Errors
    /// The native runtime's fault.
    ///
    /// # Safety
    /// H1, H4.
    unsafe fn free(&self, mem: Mem) -> Result<(), Fault>;

    /// Names memory that somebody else owns: by its address on this device, or where memory has none by its native
    /// object. [`Device::free`] forgets it without freeing.
    ///
    /// # Errors
    /// `Unsupported` where operations can't name raw addresses.
    ///
    /// # Safety
    /// `native` is valid on this device for `len` bytes until the handle is freed.
    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault>;

    /// The counterpart: what another library would name the memory by, its device address or native object.
    ///
    /// # Safety
    /// H1.
    unsafe fn native_mem(&self, mem: Mem) -> u64;

    // Streams

    /// A new stream of a priority in [`DeviceInfo::priorities`].
    ///
    /// # Errors
    /// `OutOfMemory` (also: no more native queues), `DeviceLost`, `Driver`.
    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault>;

    /// Gives a stream back.
    ///
    /// # Errors
    /// The native runtime's fault.
    ///
    /// # Safety
    /// H1; its work has ended (by a mark), and nobody asks for its marks any more. Work of an imported stream need not have
    /// ended if it is nothing but waits for other streams' marks.
    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault>;

    /// The native stream, for libraries of the vendor (a `CUstream`, a `cl_command_queue`); 0 where there is none.
    ///
    /// # Safety
    /// H1.
    unsafe fn native_stream(&self, stream: StreamId) -> u64;

    /// Names a stream that somebody else made, by its native name. [`Device::destroy_stream`] lets go of it without
    /// destroying it. What others enqueue on it counts for marks as if it had been enqueued here.
    ///
    /// # Errors
    /// `Unsupported` where streams of others can't be used; `Invalid` where the driver knows no such stream.
    ///
    /// # Safety
    /// `native` is a stream of this device, and lives until the handle is given back.
    unsafe fn import_stream(&self, native: u64) -> Result<StreamId, Fault> {
        let _ = native;
        Err(Fault::unsupported("import_stream"))
    }

    // Order

    /// Marks this point of the stream (H7) and submits what is before it (H11).
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault>;

    /// Makes `stream` wait for a mark of `of` (H8), which may belong to another device of the driver.
    ///
    /// # Errors
    /// `Unsupported` across devices that can't: the engine then parks a host function.
    ///
    /// # Safety
    /// H1; `mark` came from `of`.
    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault>;

    /// Waits on this thread (H10).
    ///
    /// # Errors
    /// `DeviceLost`; the fault of work that failed (H33).
    ///
    /// # Safety
    /// H1; a mark in `until` came from `stream`.
    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault>;

    /// The highest ended mark (H9).
    ///
    /// # Errors
    /// `DeviceLost` is no error here: all marks have ended (H20) and the highest given out is returned.
    ///
    /// # Safety
    /// H1.
    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault>;

    // Time

    /// Keeps the device's time at this point of the stream (H17).
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault>;

    /// Nanoseconds from `from` to `to` (H17).
    ///
    /// # Errors
    /// `NotReady` until both turns have come; `DeviceLost`.
    ///
    /// # Safety
    /// H1.
    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault>;

    /// Forgets a stamp, whether its turn has come or not.
    ///
    /// # Safety
    /// H1.
    unsafe fn drop_stamp(&self, stamp: Stamp);

    // Work

    /// Copies `len` bytes. At least one end is on this device, none on another.
    ///
    /// # Errors
    /// `Invalid` for two host ends; `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1, H4, H5; the ends don't overlap.
    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault>;

    /// Fills `len` bytes with a pattern (H14).
    ///
    /// # Errors
    /// `Unsupported` for a pattern's size that the device lacks; `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1, H4, H14.
    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault>;

    /// Stores at most 64 bytes, taken before it returns (H12).
    ///
    /// # Errors
    /// `Invalid` for more than 64 bytes; `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1, H4.
    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault>;

    /// Calls a function of the host in stream order (H13), and submits what is before it (H11).
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`; the function is then dropped without a call (H19).
    ///
    /// # Safety
    /// H1, H13.
    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault>;

    // Kernels

    /// The built-in with that number in `anyaccel-kernels` (H16); `None`: the engine stages through the host instead.
    fn builtin(&self, number: u32) -> Option<Kernel>;

    /// Launches a kernel. Arguments are taken before it returns (H12).
    ///
    /// # Errors
    /// `Invalid` for a wrong number of arguments or a size beyond limits (H15); `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1, H4, H15.
    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault>;

    // Capabilities (H26)

    /// Host memory that the device reaches directly.
    fn pinned(&self) -> Option<&dyn Pinned> {
        None
    }

    /// Direct access to other devices.
    fn peers(&self) -> Option<&dyn Peers> {
        None
    }

    /// Address ranges that are backed piece by piece.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Native graphs.
    fn graphs(&self) -> Option<&dyn Graphs> {
        None
    }

    /// Loading of kernels.
    fn kernels(&self) -> Option<&dyn Kernels> {
        None
    }

    /// Events that other processes or libraries can name.
    fn native_events(&self) -> Option<&dyn NativeEvents> {
        None
    }

    /// Waits that the host ends.
    fn gates(&self) -> Option<&dyn Gates> {
        None
    }

    /// Sensors.
    fn telemetry(&self) -> Option<&dyn Telemetry> {
        None
    }
}
