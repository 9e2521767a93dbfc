//! OpenCL devices behind the anyaccel contract: OpenCL 2.0 to 3.1, loaded at run time.
//!
//! Every installed platform's GPUs and accelerators are devices of the kind `opencl`. CPUs count when the backend is asked for
//! by name (`ANYACCEL_BACKEND=opencl`, [`driver_by_name`]) or `ANYACCEL_OPENCL_DEVICE_TYPES` lists `cpu`: so a machine
//! that happens to have a CPU driver does not compute on it unasked.
//!
//! | variable | value |
//! |---|---|
//! | `ANYACCEL_OPENCL_DEVICE_TYPES` | some of `gpu`, `accelerator`, `custom`, `cpu`, `all`, separated by commas |
//! | `ANYACCEL_OPENCL_DEVICES` | numbers of devices, in the order in which they then count; empty hides all |
//! | `ANYACCEL_OPENCL_MEMORY` | `usm`, `address`, `svm` or `buffer`: how memory is named; the first that a device has |
//! | `ANYACCEL_OPENCL_LIBRARY` | the loader to use instead of the system's |
//!
//! | file | subject |
//! |---|---|
//! | `sys/` | symbols, constants, the library; the rules C1 to C5 for calls |
//! | `object`, `query`, `conv` | owners of objects, answers, faults |
//! | `config`, `icd`, `discovery`, `info`, `doctor` | the environment, files that name drivers, platforms, properties, explanations |
//! | `driver`, `machine`, `part` | starting, what devices share and its end, what a device owns |
//! | `device`, `memory`, `pinned`, `peers`, `gate`, `kernel`, `builtin` | calls become commands |
//! | `stream`, `host_call` | queues and marks; functions of the host |
//! | `graph`, `command_buffer` | lists of operations, recorded once |
//!
//! Facts that a caller may rely on:
//!
//! - **Fork.** Counting devices starts the platforms unless no loader or no driver is installed, and platforms do not
//!   survive a fork (PoCL hangs in a child). [`Probe::started`](anyaccel_hal::Probe::started) tells. A child of a process
//!   that started them gets a fault from every start, whoever asks.
//! - **Memory.** OpenCL does not tell what is free. A device gives out its total and no more: drivers for CPUs would go on.
//! - **Time.** Stamps are the ends of markers, so every queue keeps times.
//! - **Failure.** A fault of work that fails is told where the driver fails the marker behind it too (PoCL does). Work that
//!   has failed before a mark was made leaves no trace in OpenCL, nor does work whose failure the driver ignores.
//! - **End.** Dropping the last device waits for nothing: gates open, functions whose turn has not come are cancelled, and
//!   a thread gives back what commands still use.

mod builtin;
mod command_buffer;
mod config;
mod conv;
mod device;
mod discovery;
mod doctor;
mod driver;
mod gate;
mod graph;
mod host_call;
mod icd;
mod info;
mod kernel;
mod machine;
mod memory;
mod object;
mod part;
mod peers;
mod pinned;
mod query;
mod stream;
mod sys;

pub use config::{Addressing, OpenClConfig};

use anyaccel_hal::Driver;
use std::sync::Arc;

/// A driver as the environment says, see [`OpenClConfig`]. Starts nothing.
pub fn driver() -> Arc<dyn Driver> {
    driver_with(OpenClConfig::new())
}

/// The same for who asks for this backend by name: CPUs count as well, unless the environment names types. Starts nothing.
pub fn driver_by_name() -> Arc<dyn Driver> {
    driver_with(OpenClConfig::new().cpus(true))
}

/// A driver as configured. Starts nothing.
pub fn driver_with(config: OpenClConfig) -> Arc<dyn Driver> {
    Arc::new(driver::OpenClDriver::new(config))
}
