//! Intel GPUs, over the Level Zero loader that the machine has.
//!
//! Nothing is linked: the loader is loaded at run time, from a table of symbols ([`sys`]). A library, symbol or device that is
//! missing is an answer with a reason. Loaders of 1.8 and newer, drivers of version 1.0 of the interface and newer.
//!
//! | file | subject |
//! |---|---|
//! | `sys/` | types, symbols, loading |
//! | `conv` | codes become faults |
//! | `probe/`, `discovery` | what can be seen without a start; the devices of a loader that has started |
//! | `driver`, `machine`, `device` | starting and opening; what devices share; calls become native calls |
//! | `platform`, `context` | a driver's context with its events; a device, and its loss |
//! | `stream`, `wait` | streams, marks, host threads that wait |
//! | `host_call`, `watch`, `gate` | functions of the host, who sees their turn, and what holds streams up |
//! | `memory`, `virtual_memory` | segments, memory of the host, peers; growable segments |
//! | `kernel`, `builtin` | loading and launching; the built-in kernels |
//! | `graph` | native graphs, where the driver records and replays |
//! | `telemetry` | sensors |
//!
//! A stream is an immediate command list in order; drivers older than that are told the order by barriers.
//!
//! Counting and naming ask Sysman, the management side, and start nothing where the loader starts it alone. Devices are counted as
//! the runtime counts them: by `ZE_AFFINITY_MASK`, `ZE_FLAT_DEVICE_HIERARCHY` and `ZE_ENABLE_PCI_ID_DEVICE_ORDER`, which are the
//! driver's own, and cards hide the GPUs inside of processors. The two sides are joined by identity.
//!
//! A card without double precision draws no random float64 itself: the runtime has the host do it, to the same bits, but for a
//! fill inside a capture, which is refused. All other types it draws itself.
//!
//! `ANYACCEL_ZE_LIBRARY` names the file to load as the loader. With one older than `zesInit` sensors need `ZES_ENABLE_SYSMAN=1`.

mod builtin;
mod context;
mod conv;
mod device;
mod discovery;
mod driver;
mod gate;
mod graph;
mod host_call;
mod kernel;
mod machine;
mod memory;
mod platform;
pub mod probe;
mod stream;
pub mod sys;
pub mod telemetry;
mod virtual_memory;
mod wait;
mod watch;

pub use conv::Failed;

use anyaccel_hal::Driver;
use std::sync::Arc;

/// The first version of the interface whose drivers keep the order of a list when asked to.
const IN_ORDER_SINCE: u32 = sys::version(1, 9);

/// The driver. Starts nothing.
pub fn driver() -> Arc<dyn Driver> {
    Arc::new(driver::XpuDriver::new())
}
