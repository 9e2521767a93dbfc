//! What some devices can and others can't. The presence of a trait object is the capability (H26).

use crate::fault::Fault;
use crate::handle::{CaptureId, Gate, GraphExec, Kernel, Mem, NativeEvent, Place, Range, Segment, StreamId};
use crate::host_fn::HostKernel;
use crate::op::{Format, HostPtr, Launch, Op};

/// Degrees of [`Pinned`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedLimits {
    /// What lengths are rounded up to, in bytes.
    pub granularity: u64,
    /// Whether memory that others own can be registered.
    pub register: bool,
    /// Whether its `Mem` may be an argument of kernels.
    pub direct: bool,
}

/// Host memory that the device reaches directly (H27): page-locked on CUDA, USM host on Level Zero.
pub trait Pinned {
    /// Its degrees.
    fn limits(&self) -> PinnedLimits;

    /// Takes `len > 0` bytes.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceLost`, `Driver`.
    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault>;

    /// Makes memory that others own reachable; [`Pinned::free`] undoes it.
    ///
    /// # Errors
    /// `Unsupported` by [`PinnedLimits::register`]; `Invalid` if it is registered already.
    ///
    /// # Safety
    /// `ptr` is valid for `len` bytes until freed.
    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault>;

    /// Gives it back.
    ///
    /// # Errors
    /// The native runtime's fault.
    ///
    /// # Safety
    /// H1, H5.
    unsafe fn free(&self, mem: Mem) -> Result<(), Fault>;
}

/// Degrees of [`Peers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeersLimits {
    /// How many other devices can be reached at a time.
    pub reachable: u32,
}

/// Direct access to other devices of the driver (H28).
pub trait Peers {
    /// Its degrees.
    fn limits(&self) -> PeersLimits;

    /// Whether this device reaches the memory of the device with that ordinal. False for itself and out of range.
    fn can_access(&self, ordinal: u32) -> bool;

    /// Copies `len` bytes from memory of the device `from` to memory of this one, on a stream of this one.
    ///
    /// # Errors
    /// `Unsupported` where [`Peers::can_access`] is false: the engine stages through the host.
    ///
    /// # Safety
    /// H1 (`src` belongs to the device `from`), H4.
    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault>;
}

/// Degrees of [`VirtualMemory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualMemoryLimits {
    /// What offsets and lengths of mappings are multiples of, in bytes.
    pub granularity: u64,
}

/// Address ranges that are backed piece by piece (H29): growable segments.
pub trait VirtualMemory {
    /// Its degrees.
    fn limits(&self) -> VirtualMemoryLimits;

    /// Reserves addresses without memory. The segment's `mem` names the whole range.
    ///
    /// # Errors
    /// `OutOfMemory` when addresses run out; `Invalid` for a length off the granularity.
    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault>;

    /// Backs a part.
    ///
    /// # Errors
    /// `OutOfMemory`; `Invalid` if part of it is backed already.
    ///
    /// # Safety
    /// H1.
    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault>;

    /// Takes the backing of a part away.
    ///
    /// # Errors
    /// `Invalid` if part of it is not backed.
    ///
    /// # Safety
    /// H1, H4.
    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault>;

    /// Gives the addresses back, with what backs them.
    ///
    /// # Errors
    /// The native runtime's fault.
    ///
    /// # Safety
    /// H1, H4.
    unsafe fn release(&self, range: Range) -> Result<(), Fault>;
}

/// Degrees of [`Kernels`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelsLimits {
    /// The most threads in a group. A single kernel may allow fewer, and refuses more with `Invalid`.
    pub max_threads: u32,
    /// The most groups along x, y, z.
    pub max_groups: [u32; 3],
    /// The most group-local memory, in bytes.
    pub max_shared: u32,
}

/// Code to load.
#[derive(Debug)]
pub enum KernelSource<'a> {
    /// Source or binary.
    Code {
        /// Its form.
        format: Format,
        /// The text or the binary.
        code: &'a [u8],
        /// The function to launch.
        entry: &'a str,
    },
    /// A function of this process.
    Host(HostKernel),
}

/// Loading of kernels.
pub trait Kernels {
    /// Its degrees.
    fn limits(&self) -> KernelsLimits;

    /// The forms that can be loaded, the best first.
    fn formats(&self) -> &[Format];

    /// Loads and builds.
    ///
    /// # Errors
    /// `Unsupported` for another form; `Invalid` with the build log in the note.
    ///
    /// # Safety
    /// The code is sound to launch with matching arguments.
    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault>;

    /// Unloads a loaded kernel.
    ///
    /// # Safety
    /// H1; its launches have ended, as for memory (H4).
    unsafe fn unload(&self, kernel: Kernel);
}

/// Degrees of [`Gates`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatesLimits {
    /// How many gates may be closed at a time.
    pub closed: u32,
}

/// Waits that the host ends (H30).
pub trait Gates {
    /// Its degrees.
    fn limits(&self) -> GatesLimits;

    /// A closed gate.
    ///
    /// # Errors
    /// `OutOfMemory` beyond the limit.
    fn create(&self) -> Result<Gate, Fault>;

    /// Holds the stream up here until the gate is open.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault>;

    /// Opens it, for good.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn open(&self, gate: Gate) -> Result<(), Fault>;

    /// Forgets an open gate. A closed one is opened first.
    ///
    /// # Safety
    /// H1.
    unsafe fn destroy(&self, gate: Gate);
}

/// What a capture forbids to other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CaptureMode {
    /// Calls that could break a capture are refused on every thread.
    Global = 1,
    /// On the capturing thread only.
    ThreadLocal = 2,
    /// Nowhere.
    Relaxed = 3,
}

/// Degrees of [`Graphs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphsLimits {
    /// Streams can be captured; else graphs are built from lists.
    pub capture: bool,
    /// Lists of nodes can be built.
    pub list: bool,
    /// Host functions may be nodes.
    pub host_calls: bool,
    /// Copies from and to host memory may be nodes.
    pub host_copies: bool,
    /// Nodes can be updated.
    pub update: bool,
    /// Replays of one graph follow one another by themselves, whatever streams they go to.
    pub ordered: bool,
}

/// A node of an explicit graph.
#[derive(Debug)]
pub struct GraphNode {
    /// What it does.
    pub op: Op,
    /// Earlier nodes of the list that must end before it.
    pub after: Box<[u32]>,
}

/// Native graphs (H31), from captured streams or from a list, as the limits say.
pub trait Graphs {
    /// Its degrees.
    fn limits(&self) -> GraphsLimits;

    /// Begins to capture a stream instead of running what is enqueued.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid` if it is capturing.
    ///
    /// # Safety
    /// H1.
    unsafe fn begin(&self, stream: StreamId, mode: CaptureMode) -> Result<CaptureId, Fault>;

    /// Which capture the stream takes part in.
    ///
    /// # Errors
    /// The first fault of an invalidated capture.
    ///
    /// # Safety
    /// H1.
    unsafe fn capture_id(&self, stream: StreamId) -> Result<Option<CaptureId>, Fault>;

    /// Ends the capture that began on `stream` and makes it executable.
    ///
    /// # Errors
    /// The first fault of an invalidated capture, which has then ended as well.
    ///
    /// # Safety
    /// H1.
    unsafe fn end(&self, stream: StreamId) -> Result<GraphExec, Fault>;

    /// Leaves the capture, whatever its state.
    ///
    /// # Safety
    /// H1.
    unsafe fn abort(&self, stream: StreamId);

    /// Makes a list executable.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid` for a node after itself or a later one.
    ///
    /// # Safety
    /// H1, H4, H5, H15 for every node, for each replay.
    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault>;

    /// Runs the whole graph as one operation of the stream.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1, and what the nodes promised; the replay before has ended or is ordered before this one, by the caller or because the
    /// graphs are [`ordered`](GraphsLimits::ordered).
    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault>;

    /// Replaces the operation of a node by one of the same form, for later replays.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid` for another form or no such node.
    ///
    /// # Safety
    /// As for [`Graphs::build`].
    unsafe fn update(&self, graph: GraphExec, node: u32, op: Op) -> Result<(), Fault>;

    /// The graph as the driver made it, in Graphviz' DOT language, for people; `None` where it draws none. Updates need not
    /// show.
    ///
    /// # Safety
    /// H1.
    unsafe fn dot(&self, _graph: GraphExec) -> Option<String> {
        None
    }

    /// Forgets a graph.
    ///
    /// # Safety
    /// H1; its replays have ended, as for memory (H4).
    unsafe fn destroy(&self, graph: GraphExec);
}

/// Degrees of [`NativeEvents`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeEventsLimits {
    /// Bytes of an interprocess handle, 0 where there is none.
    pub ipc_bytes: u32,
}

/// Events that other processes or libraries can name (H32).
pub trait NativeEvents {
    /// Its degrees.
    fn limits(&self) -> NativeEventsLimits;

    /// A new event.
    ///
    /// # Errors
    /// `Unsupported`, `OutOfMemory`.
    fn create(&self, interprocess: bool) -> Result<NativeEvent, Fault>;

    /// Records it at this point of the stream.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn record(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault>;

    /// Makes the stream wait for its last record.
    ///
    /// # Errors
    /// `DeviceLost`, `Driver`.
    ///
    /// # Safety
    /// H1.
    unsafe fn wait(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault>;

    /// Writes its interprocess handle.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid` for a buffer shorter than the limits say.
    ///
    /// # Safety
    /// H1.
    unsafe fn export(&self, event: NativeEvent, handle: &mut [u8]) -> Result<(), Fault>;

    /// Opens another process's event.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid` for bytes that are no handle.
    fn import(&self, handle: &[u8]) -> Result<NativeEvent, Fault>;

    /// The vendor's object; 0 where one is born with each recording and there was none.
    ///
    /// # Safety
    /// H1.
    unsafe fn native(&self, event: NativeEvent) -> u64;

    /// Forgets it.
    ///
    /// # Safety
    /// H1.
    unsafe fn destroy(&self, event: NativeEvent);
}

/// Degrees of [`Telemetry`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TelemetryLimits {
    /// Percentages of use are known.
    pub utilization: bool,
    /// Memory traffic is known.
    pub memory_usage: bool,
    /// Temperature is known.
    pub temperature: bool,
    /// Power is known.
    pub power: bool,
    /// The clock is known.
    pub clock: bool,
}

/// Sensors, joined to the device by UUID or PCI address, never by order (H32).
///
/// Each fails with `Unsupported` where the limits say so, and with `NotReady` if the card is not on the management side.
/// An interval is the one since the last call or one of the driver's choice; a first call may be `NotReady`.
pub trait Telemetry {
    /// Its degrees.
    fn limits(&self) -> TelemetryLimits;

    /// Percent of the last interval with work on the device.
    ///
    /// # Errors
    /// As above.
    fn utilization(&self) -> Result<f32, Fault>;

    /// Percent of the last interval with memory traffic.
    ///
    /// # Errors
    /// As above.
    fn memory_usage(&self) -> Result<f32, Fault>;

    /// Degrees Celsius.
    ///
    /// # Errors
    /// As above.
    fn temperature(&self) -> Result<f32, Fault>;

    /// Watts.
    ///
    /// # Errors
    /// As above.
    fn power_draw(&self) -> Result<f32, Fault>;

    /// MHz now.
    ///
    /// # Errors
    /// As above.
    fn clock_rate(&self) -> Result<f32, Fault>;
}

const _: () = {
    // Object safety is part of the contract.
    const fn object_safe<T: ?Sized>() {}
    object_safe::<dyn Pinned>();
    object_safe::<dyn Peers>();
    object_safe::<dyn VirtualMemory>();
    object_safe::<dyn Kernels>();
    object_safe::<dyn Gates>();
    object_safe::<dyn Graphs>();
    object_safe::<dyn NativeEvents>();
    object_safe::<dyn Telemetry>();
    let _ = Launch::linear(1, 1);
};
