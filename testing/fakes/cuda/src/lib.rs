//! A CUDA driver for machines without a card: `libcuda.so.1` and `libnvidia-ml.so.1` of our own, for tests only.
//!
//! It exports what the table in `anyaccel_cuda::sys` names, with the documented meaning as far as that backend leans on it:
//! several devices, asynchronous streams, events, memory with a limit (of this machine's, at real addresses), pinned and
//! virtual memory, modules, graphs and stream capture, host functions on one thread, and calls that fail in a child of an
//! initialised parent. Kernels run by name: the built-in ones of `anyaccel-kernels`, and a few for tests (`anyaccel_fake::kernels`).
//!
//! Where the real driver leaves room the fake takes the strict side: a call without the right context fails, memory that is
//! freed and code that is loaded wait for the device, calls at exit fail once the driver's own handler has run, one blocked host function blocks all others, handles are checked.
//!
//! What it is like is said by variables, read once:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ANYACCEL_FAKE_CUDA_DEVICES` | cards in the order of the bus, as `name:major.minor`, with `:migN` for N instances | two alike |
//! | `ANYACCEL_FAKE_CUDA_MEMORY` | bytes a card | 1 GiB |
//! | `ANYACCEL_FAKE_CUDA_DRIVER` | version of CUDA that it says it implements | 12.2 |
//! | `ANYACCEL_FAKE_CUDA_PEERS` | 0: cards don't reach each other | 1 |
//! | `ANYACCEL_FAKE_CUDA_IPC` | 0: no events of several processes | 1 |
//! | `ANYACCEL_FAKE_CUDA_FAIL` | `call:n:code,...`: the n-th call of that name fails | |
//! | `ANYACCEL_FAKE_CUDA_LATE` | `abort`: a call after the driver has shut down at exit ends the process | an error |
//! | `ANYACCEL_FAKE_CUDA_LOG` | a file that gets a line for each call | |
//!
//! [`install`] puts a copy where it can be loaded from, without the symbols that its version of the driver lacks.

mod call;
mod config;
mod context;
mod control;
mod device_calls;
mod event;
mod graph;
mod graph_calls;
mod install;
mod kernel;
mod memory;
mod memory_calls;
mod module;
mod module_calls;
mod nvml;
mod ptx;
mod schedule;
mod stream;
mod stream_calls;
mod virtual_memory;

pub use anyaccel_fake::library::Control;
pub use install::{Installed, install};
