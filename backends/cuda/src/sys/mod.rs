//! The native interfaces: their types, their symbols and how they are loaded.
//!
//! Bindings of our own, from the published interfaces. [`Cuda`], [`Nvml`] and [`Nvrtc`] are tables of functions found at
//! run time; a method has the name of the export that it calls, so a fault names what a debugger shows. An export that the
//! loaded library lacks fails with [`ABSENT`].
//!
//! Public for the test equipment of this repository, which implements the same interfaces. No stable part of this crate.

mod load;
mod table;
mod types;

pub use anyaccel_kit::native::SymbolTable;
pub use load::{CUDA, NVML, cuda, nvml, nvrtc};
pub use table::{Cuda, Nvml, Nvrtc};
pub use types::*;
