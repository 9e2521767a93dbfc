//! What several anyaccel backends need and none should write twice.
//!
//! - [`Slab`]: objects behind handles that are never given out again, looked up without a lock (H2).
//! - [`Callbacks`]: threads for functions of the user, which may block; more of them appear when they do (H13).
//! - [`Roster`]: which threads of a group are awake, and whom to wake.
//! - [`spin()`]: looking for a short while before sleeping.
//! - [`Published`]: a value that is published once, without a lock.
//! - [`Mutex`], [`Condvar`]: locks without poisoning, whose order a thread sanitizer sees.
//! - [`Thread`]: threads that start in a child of a fork too.
//! - [`native`], [`symbols!`], [`handles!`]: a vendor's C library, opened at run time, its functions in a table of lines.
//!
//! Nothing here is static: all state belongs to the value, so a new generation of the process after a fork builds its own
//! and never meets a lock of its parent (H24). A [`native::NativeLibrary`] is meant for a static, and has no lock.

mod callbacks;
pub mod native;
mod published;
mod roster;
mod slab;
mod spin;
mod sync;
mod thread;

pub use callbacks::{CallbackConfig, Callbacks};
pub use published::Published;
pub use roster::{Call, Roster};
pub use slab::Slab;
pub use spin::spin;
pub use sync::{Condvar, Guard, Mutex};
pub use thread::Thread;
