//! What anyaccel decides.
//!
//! The engine holds the policy of the runtime and none of its mechanism: it sees a device only through small, safe,
//! object-safe *ports* (traits such as [`alloc::Segments`]). The face implements the ports over a backend; a replay or a
//! test implements them in a few lines over plain numbers. Nothing here contains `unsafe`, calls a driver, reads the
//! environment or starts a runtime.
#![forbid(unsafe_code)]

pub mod alloc;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
pub mod graph;
pub mod history;
#[cfg(all(test, loom))]
mod loom_models;
pub mod pinned;
pub mod random;
mod sync;
