//! The contract between the anyaccel engine and a backend: plain types, and the traits that a backend implements.
//!
//! There is no logic here. A [`Driver`] discovers devices and opens them; a [`Device`] acts. About twenty methods are
//! required. Everything else is a *capability*: a small trait that [`Device`] hands out as `Option<&dyn Trait>`. Its
//! presence is the capability, and its `limits()` is the only place for its degrees. Handles are `u64` newtypes, the
//! traits are object-safe and have no associated types, so the same contract is a C vtable.
//!
//! A backend translates; it never decides. Validation, caching, life cycle and fork checks are the caller's. A double
//! check below may be a `debug_assert!`, nobody relies on it.
//!
//! # The rules
//!
//! Each rule has a number. Every `unsafe` block in this project cites the rules that make it sound, and the
//! conformance suite (`anyaccel cts --list`) names the cases that prove each one. *Caller* is who calls a method
//! (the engine's ports), *backend* is who implements it.
//!
//! ## Handles
//!
//! - **H1** (caller) A handle passed to a method is live: it came from the same driver, of the device that the method
//!   is called on unless the method says otherwise, and has not been freed, destroyed or dropped.
//! - **H2** (backend) Handles are unique among all that this driver ever gave out, of their type: a stale handle never
//!   names a newer object. [`StreamId`]s are unique per driver, not per device.
//!
//! ## Memory
//!
//! - **H3** (backend) `Ok` from [`Device::alloc`] means backed: using the memory later can't fail for want of memory.
//!   `len` is at least what was asked, `addr` is a multiple of [`DeviceInfo::alignment`], and no two live segments of a
//!   device overlap in `addr .. addr + len`. The caller never dereferences `addr`.
//! - **H4** (caller) Memory is freed only after all enqueued work that names it has ended (by a mark), a [`Place`] with
//!   its length lies inside its segment, and lengths are greater than 0.
//! - **H5** (caller) Host memory named by a copy is valid for the whole length, is not written by anyone else (for a
//!   source) nor read or written (for a destination) from the call until a mark enqueued after it has ended. (backend)
//!   It is accessed in stream order, never before its turn and never after such a mark. A copy with [`End::Host`] may
//!   block the caller until its turn has come and gone; every other call that enqueues never waits for the device.
//!
//! ## Order
//!
//! - **H6** (backend) The operations of one stream take effect one after the other, in the order of the calls. Between
//!   streams there is no order but by waits.
//! - **H7** (backend) The marks of a stream rise strictly: `At(a)` then `At(b)` means `a < b`. A mark has *ended* when
//!   all work enqueued on its stream before it has ended and is visible to the host and to work that waits for it.
//! - **H8** (backend) [`Device::wait`]: work enqueued on `stream` after it begins after the mark on `of` has ended.
//!   Later work on `of` is not waited for, earlier work on `stream` is not held up. It never blocks the caller.
//! - **H9** (backend) [`Device::completed`] returns the highest ended mark of the stream (0 before the first), never
//!   one that has not ended, never falls, never blocks, and runs no user code.
//! - **H10** (backend) [`Device::wait_host`] returns [`Waited::Ended`] only after the mark has ended (for
//!   [`Until::Now`]: everything enqueued before the call), and [`Waited::TimedOut`] not before its deadline. Other
//!   threads can call anything meanwhile.
//! - **H11** (backend) Progress: work enqueued before a `mark`, `host_call` or `wait_host` is submitted by that call and
//!   ends without further calls. Anything else may be put off until then.
//!
//! ## Work
//!
//! - **H12** (backend) What a call takes by reference ([`Device::write`]'s bytes, [`Device::launch`]'s arguments) is
//!   taken before it returns.
//! - **H13** (backend) A [`HostFn`] is called in stream order exactly once, then dropped, without any lock held and on a
//!   thread that may block: any number may block without stopping copies or functions of other streams. If its turn
//!   can't come (device lost, driver dropped, earlier work of the stream failed), it is called with
//!   [`HostStatus::Cancelled`]. (caller) It neither unwinds nor calls this driver.
//! - **H14** (backend) [`Device::fill`] writes the pattern over and over from the start of the place. (caller) The
//!   pattern's size is one of [`DeviceInfo::fill_patterns`], and the place's offset and the length are multiples of it.
//! - **H15** (caller) The arguments of [`Device::launch`] match the kernel, and the launch is within its limits.
//!   (backend) What can be checked is refused with [`FaultKind::Invalid`] before anything is enqueued.
//! - **H16** (backend) [`Device::builtin`] answers the same for the device's whole life. A built-in computes what the
//!   reference in `anyaccel-kernels` computes, bit for bit.
//!
//! ## Time
//!
//! - **H17** (backend) A [`Stamp`] is the device's time at its turn in the stream. [`Device::elapsed_ns`] of two stamps
//!   of one device whose turns have come is their difference (negative if reversed), else [`FaultKind::NotReady`].
//!
//! ## Threads
//!
//! - **H18** (backend) Any method may be called from any thread, also concurrently for one stream (then in some order).
//!   The thread's native state (a current context) is left as found.
//!
//! ## Failure
//!
//! - **H19** (backend) A call that returns a [`Fault`] had no effect, but for the contents of the bytes that it was to
//!   write, which are then undefined.
//! - **H20** (backend) [`FaultKind::DeviceLost`] is for good: every later call on the device returns it, but `free`,
//!   `destroy_stream`, `drop_stamp` and the like succeed, and all marks count as ended. Other devices are not touched.
//! - **H21** (backend) [`FaultKind::OutOfMemory`] means that the same call can succeed once memory was freed.
//!   [`FaultKind::Unsupported`] means never on this device.
//! - **H33** (backend) Work that fails while the device lives has ended, and so do marks after it. Its fault is kept by the
//!   stream and returned, once, by the next `wait_host` on it; until then host functions behind it are cancelled
//!   (H13). The destinations of failed work are undefined.
//!
//! ## Life
//!
//! - **H22** (backend) Constructing a driver, [`Driver::kind`], [`Driver::checks`], and [`Driver::probe`] and
//!   [`Driver::describe`] where [`Driver::fork_safe_probe`] is true, start nothing: no thread, no open file, no driver
//!   state that a fork would break.
//! - **H23** (backend) [`Driver::open`] takes memory and makes queues on no other device than the one that it opens; a
//!   second call gives the same device.
//! - **H24** (backend) No method before [`Driver::start`] and no constructor touches a lock or a lazily initialised
//!   static that another generation of the process (the parent of a fork) may have held.
//! - **H25** (backend) When the last reference to a driver's devices goes away, on any thread, its threads end. That drop
//!   does not wait for the device: work not yet begun is dropped or still runs, host functions end by H13 either way.
//! - **H26** (backend) Capabilities and their limits are constant for a device's life.
//!
//! ## Capabilities
//!
//! - **H27** [`Pinned`]: the host pointer is valid from `alloc` to `free`, page-aligned, and may be an end of a copy.
//! - **H28** [`Peers`]: a copy between two devices is ordered in the stream that it is enqueued on, as any operation.
//! - **H29** [`VirtualMemory`]: mapped bytes of a reservation act as one segment; a reservation has stable addresses.
//! - **H30** [`Gates`]: work after a closed gate does not begin before [`Gates::open`]; opening submits what it held up.
//! - **H31** [`Graphs`]: a replay is ordered in its stream as one operation, and where the limits say so behind the replay
//!   before of the same graph on any stream; capture is left by `end` or `abort`, and
//!   `abort` always succeeds.
//! - **H32** [`NativeEvents`], [`Telemetry`], [`Kernels`]: as their methods say.

mod capability;
mod device;
mod driver;
mod dtype;
mod fault;
mod handle;
mod host_fn;
mod info;
mod kind;
mod op;

pub use capability::{
    CaptureMode, Gates, GatesLimits, GraphNode, Graphs, GraphsLimits, KernelSource, Kernels, KernelsLimits,
    NativeEvents, NativeEventsLimits, Peers, PeersLimits, Pinned, PinnedLimits, Telemetry, TelemetryLimits,
    VirtualMemory, VirtualMemoryLimits,
};
pub use device::{Device, Until, WaitMode, Waited};
pub use driver::{Absence, Check, Driver, Layer, Probe, Verdict};
pub use dtype::{DType, DTypeSet, ParseDTypeError};
pub use fault::{Fault, FaultKind};
pub use handle::{CaptureId, Gate, GraphExec, Kernel, Mark, Mem, NativeEvent, Place, Range, Segment, Stamp, StreamId};
pub use host_fn::{HostFn, HostKernel, HostStatus, KernelArg, WorkGroup};
pub use info::{DeviceInfo, MemoryInfo, PatternSizes, PciAddress, PriorityRange, Uuid};
pub use kind::Kind;
pub use op::{Arg, End, Format, HostPtr, Launch, Op, OwnedArg, Pattern, Written};
