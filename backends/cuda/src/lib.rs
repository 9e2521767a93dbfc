//! NVIDIA GPUs, over the CUDA driver that the machine has.
//!
//! Nothing is linked: the driver, the management library and NVRTC are loaded at run time, from a table of symbols
//! ([`sys`]). A library, symbol or device that is missing is an answer with a reason. Drivers of CUDA 11.8 and newer.
//!
//! | file | subject |
//! |---|---|
//! | `sys/` | types, symbols, loading |
//! | `conv` | codes become faults |
//! | `mask`, `inventory`, `probe` | `CUDA_VISIBLE_DEVICES`, the cards, what can be seen without a start |
//! | `driver`, `machine`, `device` | starting and opening; what devices share; calls become native calls |
//! | `context` | the primary context, made current around calls; loss of the device |
//! | `stream`, `wait` | streams, marks, host threads that wait |
//! | `host_call`, `node_call`, `words`, `gate` | functions of the host in streams and graphs, and what holds streams up |
//! | `memory`, `virtual_memory` | segments, pinned memory, peers; growable segments |
//! | `returns` | what is given back, by a thread that may wait for the driver |
//! | `kernel`, `params`, `builtin` | loading and launching; the built-in kernels |
//! | `compiler` | CUDA C++ to PTX, where NVRTC is installed; kernels are loaded from either |
//! | `graph` | native graphs of captures and lists |
//! | `native_events`, `telemetry` | events with names of their own; sensors |
//!
//! Counting and describing ask the management library and start nothing. Cards are joined by identity, so that index, name
//! and sensors always mean one card. The order in which the driver counts cards of different models is known only once it
//! has started, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` or a mask of identities says it.
//!
//! Variables: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` as the driver reads them; `ANYACCEL_CUDA_LIBRARY`,
//! `ANYACCEL_NVML_LIBRARY` and `ANYACCEL_NVRTC_LIBRARY` name files to load; `ANYACCEL_CUDA_ALLOC=async` takes memory from the
//! driver's stream-ordered pool, so that giving it back does not wait for the device.

mod builtin;
mod compiler;
mod context;
mod conv;
mod device;
mod driver;
mod gate;
mod graph;
mod host_call;
mod inventory;
mod kernel;
mod machine;
pub mod mask;
mod memory;
mod native_events;
mod node_call;
mod params;
mod probe;
mod returns;
mod stream;
pub mod sys;
mod telemetry;
mod virtual_memory;
mod wait;
mod words;

pub use compiler::{compile, compiler_version};
pub use conv::Failed;

use anyaccel_hal::Driver;
use std::sync::Arc;

/// The driver. Starts nothing.
pub fn driver() -> Arc<dyn Driver> {
    Arc::new(driver::CudaDriver::new())
}
