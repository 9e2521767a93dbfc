//! The built-in kernels: a few operations that every backend offers under the same number, with the same arguments and
//! the same results.
//!
//! Each has a folder of its own ([`random`] is that of nine), which holds
//! - the argument layout: the places in order, then a plain `#[repr(C)]` struct `Params` laid out to the byte;
//! - the scalar reference: the definition of the result, written to be read;
//! - the host code: safe functions from slices to slices, whose inner loops are chosen at run time for the CPU at hand;
//! - the same in device languages: see [`device`];
//! - the split: how the work falls into chunks that may run in any order and at the same time.
//!
//! A backend launches a built-in with the arguments `[place, .., Params]` and as many groups as [`Split::chunks`] says; group
//! `i` does the work of [`Split::range`]`(i)`. The layout of a number never changes: a different layout is a new [`Builtin`].
//!
//! Device memory holds numbers in little-endian byte order on every supported device, the host included. Buffers need no
//! alignment unless a kernel says so. Lengths that do not fit are refused with a [`KernelError`] before anything is
//! written; no function here panics, allocates, locks or starts a runtime, so all may be called in a forked child.
//!
//! # Rules for unsafe code in this crate
//!
//! - **K1** A function with `#[target_feature]` is called only by way of a `cpu::Isa` value, and such a value exists
//!   only after every feature it stands for was detected.
//! - **K2** A vector load or store goes through a pointer to a whole array of exactly the vector's size, and is an
//!   unaligned one.
//! - **K3** A float is converted to an integer without a check only after it was brought into the integer's range.

#[cfg(not(target_endian = "little"))]
compile_error!("device memory is little endian on every supported device, the host included");

mod arguments;
mod builtin;
pub mod convert;
mod cpu;
pub mod device;
mod error;
pub mod fill_pattern;
pub mod histogram;
pub mod noop;
pub mod philox;
pub mod random;
mod split;

pub use arguments::Arguments;
pub use builtin::Builtin;
pub use error::KernelError;
pub use split::Split;
