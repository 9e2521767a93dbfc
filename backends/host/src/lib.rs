//! The built-in device: this machine's memory and cores behind the same contract as any accelerator.
//!
//! It is the embedded default and the reference: real memory with a limit for each device, real asynchrony on a few
//! threads, real time. A stream is a mailbox that costs no thread; thousands of them share a small crew of workers.
//! Host functions run on threads of their own, so one that blocks stops nobody else. A thread that waits does small work
//! of the awaited stream itself instead of sleeping.
//!
//! | file | subject |
//! |---|---|
//! | `driver`, `config`, `probe` | counting, describing and starting; the environment |
//! | `graph/` | lists of operations, flattened and run as one |
//! | `device`, `memory`, `pinned`, `peers`, `virtual_memory`, `gate`, `kernel`, `stamp` | calls become operations and objects |
//! | `stream`, `run`, `op`, `wait` | the mailbox protocol, who runs it, what operations do, who waits |
//! | `crew`, `ready`, `split`, `bulk` | workers, their queue, large operations in chunks and past the caches |
//! | `machine` | what devices share, and its end |
//!
//! Facts that a caller may rely on: addresses of segments are multiples of 4096, and of 2 MiB for segments of 2 MiB and
//! more; segments are rounded up to 4096 bytes and cost memory only where touched; priorities go from 0 to -3; a
//! driver built by [`driver`] or [`driver_with`] has no thread before its first stream, and never a file. Dropping the
//! last of a driver's devices waits for nothing; work that runs is finished, the rest is dropped, and host functions that
//! had not begun are called with [`HostStatus::Cancelled`](anyaccel_hal::HostStatus) on their threads.
//!
//! Nothing is static: a child of a fork builds its own driver and leaves the parent's alone (H24).

mod bulk;
mod config;
mod crew;
mod device;
mod driver;
mod gate;
mod graph;
mod kernel;
#[cfg(all(test, loom))]
mod loom_models;
mod machine;
mod memory;
mod op;
mod peers;
mod pinned;
mod probe;
mod ready;
mod run;
mod split;
mod stamp;
mod stream;
mod sync;
mod virtual_memory;
mod wait;

pub use config::HostConfig;

use anyaccel_hal::Driver;
use std::sync::Arc;

/// A driver as the environment says, see [`HostConfig`]. Starts nothing.
pub fn driver() -> Arc<dyn Driver> {
    driver_with(HostConfig::new())
}

/// A driver as configured. Starts nothing.
pub fn driver_with(config: HostConfig) -> Arc<dyn Driver> {
    Arc::new(driver::HostDriver::new(config))
}
