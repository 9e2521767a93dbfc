//! What can go wrong, one variant for each thing that a caller would treat differently.

use crate::device::Device;
use crate::graph::GraphError;
use anyaccel_abi::LoadError;
use anyaccel_engine::alloc::{FractionError, OutOfMemory, PoolError, SettingsError};
use anyaccel_engine::pinned::HostOutOfMemory;
use anyaccel_engine::random::RandomError;
use anyaccel_hal::{DType, Fault, FaultKind, Kind};
use anyaccel_kernels::KernelError;
use std::fmt;
use std::panic::Location;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error: which exception a binding raises for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorClass {
    /// An argument has the right type and a wrong value (Python: `ValueError`).
    Value,
    /// An argument has a wrong type (`TypeError`).
    Type,
    /// The call can't be made now (`RuntimeError`).
    Runtime,
    /// The device or its driver refused (`AcceleratorError`).
    Accelerator,
    /// Memory ran out (`OutOfMemoryError`).
    OutOfMemory,
    /// This backend can't do it (`NotImplementedError`).
    NotImplemented,
}

/// A failed call.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No kind of accelerator has a device here.
    #[error("Cannot access accelerator device when none is available.")]
    NoAccelerator,
    /// A value that names no index where one is needed.
    #[error("Expected a torch.device with a specified index or an integer, but got:{got}")]
    ExpectedIndex {
        /// The value, printed.
        got: String,
    },
    /// A device string that begins with no known type.
    #[error("Expected one of {} device type at start of device string: {text}", Names(.known))]
    UnknownDeviceType {
        /// The string.
        text: String,
        /// The types that exist.
        known: Vec<Kind>,
    },
    /// A device string whose index can't be read.
    #[error("Invalid device string: '{text}'")]
    InvalidDeviceString {
        /// The string.
        text: String,
    },
    /// A device of another kind than the runtime's.
    #[error("{given} doesn't match the current accelerator {current}.")]
    WrongKind {
        /// The device that was named.
        given: Device,
        /// The runtime's kind.
        current: Kind,
    },
    /// An index that no device has.
    #[error("Device index {index} is out of range: {}", Count(*.count))]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// How many devices there are; `None` if that can't be known before the runtime starts.
        count: Option<u32>,
    },
    /// A backend that was not built in.
    #[error("Unknown backend '{name}'{}. Known: {}.{}", From(.variable), Names(.known), Refused(.refused))]
    UnknownBackend {
        /// The name.
        name: String,
        /// The variable that it came from, if it came from one.
        variable: Option<&'static str>,
        /// What is built in, registered or loaded.
        known: Vec<Kind>,
        /// Plugins that the environment names and that are none: the backend may have been in one of them.
        refused: Vec<LoadError>,
    },
    /// A library that can't be used as a plugin.
    #[error("Plugin {0}.")]
    Plugin(LoadError),
    /// An environment variable that can't be understood.
    #[error("{name}='{value}' can't be used: expected {expected}.")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may hold.
        expected: &'static str,
    },
    /// The runtime was started before this process was forked, and its kind can't start again.
    #[error(
        "Cannot re-initialize {} in forked subprocess. To use {} with multiprocessing, you must use the 'spawn' start \
         method. (It was started by {call} in process {pid}.)",
        Upper(.kind), Upper(.kind)
    )]
    ForkedChild {
        /// The kind.
        kind: Kind,
        /// The call that started it.
        call: &'static str,
        /// The process in which it was called.
        pid: u32,
    },
    /// A handle from before a fork, or of a runtime that is gone.
    #[error("This {what} belongs to a runtime from before a fork; make a new one in this process.")]
    StaleHandle {
        /// What kind of handle.
        what: &'static str,
    },
    /// The process is exiting.
    #[error("{call} can't be called while the process exits.")]
    Exiting {
        /// The call.
        call: &'static str,
    },
    /// A handle of another runtime.
    #[error("This {what} belongs to another runtime.")]
    ForeignRuntime {
        /// What kind of handle.
        what: &'static str,
    },
    /// A handle of another device.
    #[error("This {what} is on {given}, but {wanted} is needed.")]
    ForeignDevice {
        /// What kind of handle.
        what: &'static str,
        /// Its device.
        given: Device,
        /// The device that it should be on.
        wanted: Device,
    },
    /// A stream of another kind than the runtime's.
    #[error("stream's device type {given} doesn't match the current accelerator {current}")]
    StreamKind {
        /// The stream's kind.
        given: Kind,
        /// The runtime's kind.
        current: Kind,
    },
    /// An id that no stream has.
    #[error("{device} has no stream with id {id}.")]
    UnknownStream {
        /// The id.
        id: u64,
        /// The device.
        device: Device,
    },
    /// An address that lies in no memory that was given out by address.
    #[error("{addr:#x} lies in no live {what}: it was freed already, or never given out by address.")]
    UnknownAddress {
        /// What was looked for.
        what: &'static str,
        /// The address.
        addr: u64,
    },
    /// An event recorded on a stream of another device than before.
    #[error("Event device {event} does not match recording stream's device {stream}.")]
    EventDevice {
        /// Where the event was first recorded.
        event: Device,
        /// Where the stream is.
        stream: Device,
    },
    /// An event recorded on a stream of another kind.
    #[error("Event device type {event} does not match recording stream's device type {stream}.")]
    EventKind {
        /// The event's kind.
        event: Kind,
        /// The stream's kind.
        stream: Kind,
    },
    /// Two events of different kinds compared.
    #[error("Event device type {this} does not match other's device type {other}.")]
    EventKinds {
        /// One kind.
        this: Kind,
        /// The other.
        other: Kind,
    },
    /// Two events of different devices compared.
    #[error("Event device {this} does not match other's device {other}.")]
    EventDevices {
        /// One device.
        this: Device,
        /// The other.
        other: Device,
    },
    /// An event without a clock.
    #[error("Both events must be created with argument 'enable_timing=True'.")]
    EventTimingDisabled,
    /// An event that was never recorded.
    #[error("Both events must be recorded before calculating elapsed time.")]
    EventNotRecorded,
    /// An event whose work goes on.
    #[error("Both events must be completed before calculating elapsed time.")]
    EventNotCompleted,
    /// An option of an event that this device does not have.
    #[error("Event option '{option}' is not supported on {kind} devices.")]
    EventOption {
        /// The option.
        option: &'static str,
        /// The kind.
        kind: Kind,
    },
    /// Memory ran out.
    #[error("{}", Memory(.device, *.requested, *.free, *.total, .report.as_deref()))]
    OutOfMemory {
        /// Where.
        device: Device,
        /// What was asked, in bytes.
        requested: u64,
        /// What was free, if the driver tells.
        free: Option<u64>,
        /// The device's memory in bytes.
        total: u64,
        /// What the device's cache holds and what to try; `None` where the cache was not asked.
        report: Option<Box<OutOfMemory>>,
    },
    /// Host memory ran out. Nothing changed.
    #[error("{what}: {}", HostMemory(*.requested, .report.as_deref()))]
    HostOutOfMemory {
        /// For what it was: `pinned memory`, the call that copies to the host.
        what: &'static str,
        /// What was asked, in bytes.
        requested: u64,
        /// What the cache of pinned memory holds and what to try; `None` for ordinary memory.
        report: Option<Box<HostOutOfMemory>>,
    },
    /// Allocator settings that can't be used; those in force stay.
    #[error("{0}")]
    Settings(SettingsError),
    /// A memory fraction outside of 0 to 1.
    #[error("{0}")]
    Fraction(FractionError),
    /// A memory pool that can't be entered.
    #[error("{0}")]
    Pool(PoolError),
    /// A memory snapshot that could not be written; what was at the path before is still there.
    #[error("The memory snapshot can't be written to '{path}': {reason}.")]
    SnapshotFile {
        /// Where it was to go.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A graph that can't do what was asked, or a call that a capture forbids.
    #[error("{0}")]
    Graph(GraphError),
    /// A generator that can't do what was asked: a seed, state, offset or layout out of range, or its end.
    #[error("{0}")]
    Generator(#[from] RandomError),
    /// Arguments that a distribution does not take.
    #[error("{0}")]
    Random(KernelError),
    /// A host function enqueued on a stream panicked.
    #[error("A host function on stream {stream} of {device} panicked: {message}")]
    HostPanic {
        /// The device.
        device: Device,
        /// The stream's id.
        stream: u64,
        /// What it said.
        message: String,
    },
    /// The runtime was called from a host function.
    #[error("{call} can't be called from inside a host function: it could wait for itself.")]
    InsideHostFunction {
        /// The call.
        call: &'static str,
    },
    /// A wait was given up, as [`interruptible`](crate::interruptible) was told to. The work goes on.
    #[error("{call}: the wait was interrupted; the work goes on.")]
    Interrupted {
        /// The call.
        call: &'static str,
    },
    /// Too many calls wait for the runtime to start.
    #[error("{limit} calls already wait for the runtime to start; this one was refused.")]
    DeferredFull {
        /// The most that are kept.
        limit: usize,
    },
    /// A call that had waited for the runtime to start failed.
    #[error("A call deferred at {at} failed once the runtime had started: {source}")]
    Deferred {
        /// Why.
        source: Box<Error>,
        /// The place that queued it.
        at: &'static Location<'static>,
    },
    /// A closure panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// What kind of closure.
        what: &'static str,
        /// What it said.
        message: String,
    },
    /// The runtime could not start.
    #[error("The {kind} runtime did not start: {fault}")]
    StartFailed {
        /// The kind.
        kind: Kind,
        /// Why.
        fault: Fault,
    },
    /// The device can't do this.
    #[error("{what} is not supported on {device}.")]
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// The device.
        device: Device,
    },
    /// The device is gone.
    #[error("{device} is lost ({fault}). Restart the process to use it again.")]
    DeviceLost {
        /// The device.
        device: Device,
        /// The call that saw it.
        fault: Fault,
    },
    /// The native driver refused.
    #[error("{call} failed on {device}: {fault}")]
    Driver {
        /// Our call.
        call: &'static str,
        /// The device.
        device: Device,
        /// The driver's words.
        fault: Fault,
    },
    /// A range that does not lie in a buffer.
    #[error("Bytes {start}..{end} are outside a buffer of {len} bytes.")]
    Range {
        /// The first byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// The buffer's length.
        len: u64,
    },
    /// Lengths that do not fit each other.
    #[error("{what}: expected {expected} bytes, got {got}.")]
    Length {
        /// What is too long or too short.
        what: &'static str,
        /// What it should be.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// A place that is not aligned as the operation needs.
    #[error("{what}: byte offset {offset} is not a multiple of {alignment}.")]
    Misaligned {
        /// What is misaligned.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// What it should be a multiple of.
        alignment: u64,
    },
    /// Two places that overlap where they must not.
    #[error("{what}: source and destination overlap.")]
    Overlap {
        /// The operation.
        what: &'static str,
    },
    /// An element type that the device does not have.
    #[error("dtype {dtype} is not supported on {device}.", dtype = .dtype.name())]
    DTypeUnsupported {
        /// The type.
        dtype: DType,
        /// The device.
        device: Device,
    },
    /// An argument that makes no sense, with the reason.
    #[error("{argument}: {reason}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A backend that was registered too late or twice.
    #[error("Backend '{kind}' can't be registered: {reason}.")]
    Registration {
        /// The kind.
        kind: Kind,
        /// Why not.
        reason: &'static str,
    },
}

impl std::convert::From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Plugin(error)
    }
}

impl Error {
    /// The class, which decides what a binding raises.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::ExpectedIndex { .. }
            | Self::WrongKind { .. }
            | Self::EventTimingDisabled
            | Self::EventNotRecorded
            | Self::Range { .. }
            | Self::Length { .. }
            | Self::Misaligned { .. }
            | Self::Overlap { .. }
            | Self::Settings(_)
            | Self::Fraction(_)
            | Self::Plugin(_)
            | Self::Argument { .. } => ErrorClass::Value,
            Self::Generator(RandomError::Seed { .. } | RandomError::StateCount { .. } | RandomError::Layout { .. }) => {
                ErrorClass::Value
            }
            Self::Random(KernelError::RandomDType { .. }) => ErrorClass::NotImplemented,
            Self::Random(_) => ErrorClass::Value,
            Self::OutOfMemory { .. } | Self::HostOutOfMemory { .. } => ErrorClass::OutOfMemory,
            Self::Unsupported { .. } | Self::EventOption { .. } | Self::DTypeUnsupported { .. } => {
                ErrorClass::NotImplemented
            }
            Self::IndexOutOfRange { .. } | Self::StartFailed { .. } | Self::DeviceLost { .. } | Self::Driver { .. } => {
                ErrorClass::Accelerator
            }
            Self::Deferred { source, .. } => source.class(),
            Self::Graph(error) => error.class(),
            _ => ErrorClass::Runtime,
        }
    }

    /// A backend's fault in a call of ours on a device.
    pub(crate) fn from_fault(call: &'static str, device: Device, fault: Fault) -> Self {
        match fault.kind {
            FaultKind::DeviceLost => Self::DeviceLost { device, fault },
            FaultKind::Unsupported => Self::Unsupported { what: call, device },
            _ => Self::Driver { call, device, fault },
        }
    }
}

struct Names<'a>(&'a [Kind]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in self.0.iter().enumerate() {
            write!(f, "{}{kind}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Refused<'a>(&'a [LoadError]);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| write!(f, " Refused: {error}."))
    }
}

struct Upper<'a>(&'a Kind);

impl fmt::Display for Upper<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name().to_ascii_uppercase())
    }
}

struct Count(Option<u32>);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("indices are not negative."),
            Some(0) => f.write_str("there is no device."),
            Some(1) => f.write_str("there is 1 device, with index 0."),
            Some(count) => write!(f, "there are {count} devices, with indices 0 to {}.", count - 1),
        }
    }
}

struct Memory<'a>(&'a Device, u64, Option<u64>, u64, Option<&'a OutOfMemory>);

impl fmt::Display for Memory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(device, requested, free, total, report) = self;
        match (report, free) {
            (Some(report), _) => report.write(f, format_args!("{device}")),
            (None, Some(free)) => {
                write!(
                    f,
                    "{device} out of memory: tried to allocate {requested} bytes; {free} of {total} bytes are free."
                )
            }
            (None, None) => write!(f, "{device} out of memory: tried to allocate {requested} of {total} bytes."),
        }
    }
}

struct HostMemory<'a>(u64, Option<&'a HostOutOfMemory>);

impl fmt::Display for HostMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(_, Some(report)) => write!(f, "{report}"),
            Self(requested, None) => {
                write!(f, "out of host memory: {requested} bytes could not be allocated; nothing was copied")
            }
        }
    }
}

struct From<'a>(&'a Option<&'static str>);

impl fmt::Display for From<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(variable) => write!(f, " in {variable}"),
            None => Ok(()),
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "(no message)".to_owned()
    }
}
