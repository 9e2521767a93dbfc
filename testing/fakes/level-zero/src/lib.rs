//! A Level Zero driver and loader for machines without an Intel GPU, for tests only.
//!
//! One library is both. As a driver it is loaded by the real loader (`ZE_ENABLE_ALT_DRIVERS`), which takes what it needs from
//! the tables of functions. As a loader of our own it has the functions under their names, those of newer versions
//! included: so what only new loaders have can be tried where there is an old one. [`install`] makes either.
//!
//! It has the documented meaning as far as the backend leans on it: several cards with tiles, contexts, memory with a limit
//! (of this machine's, at real addresses), virtual memory, events with times of a timer that wraps, immediate lists, queues,
//! fences, modules, kernels, recorded graphs, host functions, Sysman in both styles, and calls that fail in a child of an
//! initialised parent. Kernels run by name: the built-in ones of `anyaccel-kernels`, and a few for tests (`anyaccel_fake::kernels`); modules
//! are SPIR-V, of which it reads the kernels and their arguments (`spirv`).
//!
//! Where the real driver leaves room the fake takes the strict side: commands that nothing orders run newest first, what is
//! in use isn't destroyed, events that hosts may not see are refused to hosts, handles and ranges are checked.
//!
//! What it is like is said by variables, read once:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ANYACCEL_FAKE_ZE_DEVICES` | cards in the order of the bus, as `name`, with `:tilesN`, `:integrated`, `:no64` | two alike |
//! | `ANYACCEL_FAKE_ZE_MEMORY` | bytes a tile | 1 GiB |
//! | `ANYACCEL_FAKE_ZE_HOST_MEMORY` | bytes of pinned memory | no limit |
//! | `ANYACCEL_FAKE_ZE_API` | version of the interface; lists are in order by flag since 1.9 | 1.13 |
//! | `ANYACCEL_FAKE_ZE_HIERARCHY` | `COMPOSITE`: of a driver that isn't flat unless told | `FLAT` |
//! | `ANYACCEL_FAKE_ZE_PEERS` | 0: cards don't reach each other | 1 |
//! | `ANYACCEL_FAKE_ZE_TIMER` | `frequency:bits:kernel bits:start` of the timer | 19200000:36:32:0 |
//! | `ANYACCEL_FAKE_ZE_WITHOUT` | what it lacks: `in_order`, `virtual_memory`, `host_function`, `import`, `graph_exp`, `graph_ext`, `sysman`, `fp16`, and `sysman_late`, for a Sysman that doesn't start after the runtime | |
//! | `ANYACCEL_FAKE_ZE_FAIL` | `call:n:code,...`: the n-th call of that name fails; `call:all:code`: all; `*`: of any name | |
//! | `ANYACCEL_FAKE_ZE_LAZY` | 1: code that can't be built becomes a module, and its kernels fail | 0 |
//! | `ANYACCEL_FAKE_ZE_LOG` | a file that gets a line for each call | |
//!
//! The driver's own are read too: `ZE_AFFINITY_MASK`, `ZE_FLAT_DEVICE_HIERARCHY`, `ZE_ENABLE_PCI_ID_DEVICE_ORDER`,
//! `ZES_ENABLE_SYSMAN`.

mod abi;
mod call;
mod clock;
mod config;
mod control;
mod device;
mod device_calls;
mod driver_calls;
mod event;
mod graph;
#[cfg(test)]
mod hammer;
mod install;
mod kernel;
mod kernel_calls;
mod lane;
mod list;
mod list_calls;
mod memory;
mod memory_calls;
mod module;
mod queue;
mod spirv;
mod sysman;
mod tables;
mod turn;
mod virtual_memory;
mod work;

pub use anyaccel_fake::library::Control;
pub use install::{FOREIGN, Installed, Loader, install};
