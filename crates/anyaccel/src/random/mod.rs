//! Random numbers: generators, seeds and states under the names of
//! [`torch.accelerator.random`](https://pytorch.org/docs/stable/accelerator.html), and fills of device memory.
//!
//! Each device has a default generator, which starts with 53 random bits unless it is seeded; [`Generator`]s of one's own
//! belong to no device. A generator is a seed and an offset, how far the sequence of that seed was drawn. A fill takes its
//! part when it is enqueued, so its numbers depend on nothing that happens on a device: they are the same bits on every
//! backend and however the work is split.
//!
//! The functions of this module act on the process-wide [`Runtime`]; each is one call of its method with the same name.
//!
//! # Before the start
//!
//! Reading a state may start the runtime. Seeding and setting never do: they wait for the start, in program order, each
//! applied once, and of those that overwrite one another only the last is kept. Where there is no accelerator they are
//! ignored; so they are in a forked child of a kind that can't start again.
//!
//! In a forked child the default generators start anew: from the seed that was chosen before the fork, if one was, with
//! offset 0, else from 53 random bits of the child's own.
//!
//! ```
//! use anyaccel::Runtime;
//! use anyaccel::random::{Distribution, Options};
//!
//! let runtime = Runtime::builder().backend("host").build()?;
//! runtime.manual_seed(0)?;
//! let stream = runtime.stream(())?;
//! let noise = runtime.array::<f32>(1000)?;
//! noise.random(&stream, Distribution::NORMAL, &Options::default())?;
//! stream.synchronize()?;
//! let mean = noise.to_vec()?.iter().sum::<f32>() / 1000.0;
//! assert!(mean.abs() < 0.2);
//! assert_eq!(runtime.get_rng_state(())?.offset(), 1000);
//! # Ok::<(), anyaccel::Error>(())
//! ```

mod defaults;
mod distribution;
mod entropy;
mod fills;
mod generator;
mod inherit;
mod seed;
mod shared;

pub use anyaccel_engine::random::{Layout, RandomError, State};
pub use defaults::RngGuard;
pub use distribution::Distribution;
pub use fills::Options;
pub use generator::Generator;
pub(crate) use inherit::Seeds;
pub use seed::Seed;

use crate::device::DeviceArg;
use crate::error::Result;
use crate::runtime::Runtime;

/// [`Runtime::initial_seed`] of [`Runtime::global`].
///
/// # Errors
/// As there.
pub fn initial_seed<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().initial_seed(device)
}

/// [`Runtime::get_rng_state`] of [`Runtime::global`].
///
/// # Errors
/// As there.
pub fn get_rng_state<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<State> {
    Runtime::global().get_rng_state(device)
}

/// [`Runtime::get_rng_state_all`] of [`Runtime::global`].
///
/// # Errors
/// As there.
pub fn get_rng_state_all() -> Result<Vec<State>> {
    Runtime::global().get_rng_state_all()
}

/// [`Runtime::get_rng_state_offset`] of [`Runtime::global`].
///
/// # Errors
/// As there.
pub fn get_rng_state_offset<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().get_rng_state_offset(device)
}

/// [`Runtime::manual_seed`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn manual_seed(seed: impl Into<Seed>) -> Result<()> {
    Runtime::global().manual_seed(seed)
}

/// [`Runtime::manual_seed_all`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn manual_seed_all(seed: impl Into<Seed>) -> Result<()> {
    Runtime::global().manual_seed_all(seed)
}

/// [`Runtime::seed`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn seed() -> Result<u64> {
    Runtime::global().seed()
}

/// [`Runtime::seed_all`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn seed_all() -> Result<u64> {
    Runtime::global().seed_all()
}

/// [`Runtime::set_rng_state`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn set_rng_state<'a, D: Into<DeviceArg<'a>>>(state: State, device: D) -> Result<()> {
    Runtime::global().set_rng_state(state, device)
}

/// [`Runtime::set_rng_state_all`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn set_rng_state_all(states: &[State]) -> Result<()> {
    Runtime::global().set_rng_state_all(states)
}

/// [`Runtime::set_rng_state_offset`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[track_caller]
pub fn set_rng_state_offset<'a, D: Into<DeviceArg<'a>>>(offset: impl Into<i128>, device: D) -> Result<()> {
    Runtime::global().set_rng_state_offset(offset, device)
}

/// [`Runtime::fork_rng`] of [`Runtime::global`].
///
/// # Errors
/// As there.
pub fn fork_rng(devices: Option<&[DeviceArg<'_>]>) -> Result<RngGuard> {
    Runtime::global().fork_rng(devices)
}
