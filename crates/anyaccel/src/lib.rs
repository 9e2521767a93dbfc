//! One accelerator runtime for every chip: devices, streams, events and memory under the names of
//! [`torch.accelerator`](https://pytorch.org/docs/stable/accelerator.html).
//!
//! The free functions of this crate act on the process-wide [`Runtime`]; each is one call of the method with the same
//! name, where its documentation is. [`Runtime::builder`] makes independent runtimes.
//!
//! # Which backend
//!
//! `ANYACCEL_BACKEND=name`, or the builder; else the first kind with a device of `cuda`, `hip`, `xpu`, `mps`, `mtia`,
//! registered private kinds, `opencl`, as far as they are built in. Vendors' plugins join them: `ANYACCEL_PLUGINS=/abs/a.so:/abs/b.so`
//! or [`load_plugin`]. The built-in `host` device and the simulated one are
//! never chosen silently: name them.
//!
//! # Starting
//!
//! Naming, counting and asking start nothing. The first operation that touches a device starts the runtime. A process
//! forked before that is as good as new. One forked after it starts anew where the kind can (`host`, `sim`), and gets
//! [`Error::ForkedChild`] where it can't; handles from before the fork are [`Error::StaleHandle`].
//!
//! ```
//! use anyaccel::Runtime;
//!
//! let runtime = Runtime::builder().backend("host").build()?;
//! let stream = runtime.stream(())?;
//! let data = runtime.buffer_from(b"to be or not to be")?;
//! let counts = runtime.zeros(2048)?;
//! runtime.synchronize(())?;
//!
//! stream.histogram(&counts.all(), &data.all())?;
//! stream.synchronize()?;
//! let counts = counts.to_vec()?;
//! let of = |byte: u8| u64::from_le_bytes(counts[8 * usize::from(byte)..][..8].try_into().unwrap());
//! assert_eq!((of(b'o'), of(b't'), of(b'x')), (4, 3, 0));
//! # Ok::<(), anyaccel::Error>(())
//! ```

mod buffer;
mod deferred;
mod device;
mod discover;
mod env;
mod error;
mod event;
mod fork;
mod functions;
mod graph;
mod guard;
mod history;
mod interrupt;
mod kernel;
mod lane;
mod lifecycle;
mod linked;
mod local;
mod memory;
mod plugins;
mod port;
mod properties;
pub mod random;
mod raw;
mod runtime;
mod stream;
mod typed;
mod work;

/// What the caches of device and pinned memory report: counters, errors and their parts.
pub mod allocator {
    pub use anyaccel_engine::alloc::{
        Cause, FractionError, OutOfMemory, Pin, PoolError, PoolStat, Settings, SettingsError, Stat, Stats,
    };
    pub use anyaccel_engine::pinned::{HostOutOfMemory, HostStats, TimeStat};
}

pub use anyaccel_abi::{LoadError, Refusal};
pub use anyaccel_engine::alloc::{OutOfMemory, Settings as AllocatorSettings};
pub use anyaccel_engine::history::{Action as HistoryAction, ContextLevel, StackFrame, StackId, StackSource};
pub use anyaccel_hal::{
    self as hal, Check, DType, DTypeSet, DeviceInfo, Format, KernelArg, Kind, Launch, Layer, Probe, Verdict, WorkGroup,
};
pub use anyaccel_snapshot::{Event as SnapshotEvent, FrameId as SnapshotFrame, Snapshot};
pub use buffer::{Buffer, BufferSlice, PinnedBuffer};
pub use deferred::{DEFERRED_LIMIT, DeferKey};
pub use device::{Device, DeviceArg};
pub use discover::{Backend, Selection, backends, selection};
pub use error::{Error, ErrorClass, Result};
pub use event::{Event, EventOptions, UniqueEvent};
pub use functions::*;
pub use graph::{Capture, CaptureErrorMode, Graph, GraphError, GraphNode, GraphOptions, GraphUpdate};
pub use guard::{DeviceIndexGuard, StreamGuard};
pub use history::{
    FrameSource, HistoryOptions, HistoryStacks, HistoryStatus, MOST_FRAMES, MemoryAnnotation, Recorded, StackTable,
};
pub use interrupt::interruptible;
pub use kernel::{Kernel, LaunchArg};
pub use linked::{Constructor, register_backend};
pub use memory::{HostMemoryStats, MemPool, MemPoolGuard, MemoryStats};
pub use plugins::{PluginReport, load_plugin, plugins};
pub use properties::DeviceCapability;
pub use raw::{MemoryFacts, PinnedAt};
pub use runtime::{Runtime, RuntimeBuilder};
pub use stream::{Stream, StreamOptions};
pub use typed::{Element, TypedBuffer, TypedSlice};
