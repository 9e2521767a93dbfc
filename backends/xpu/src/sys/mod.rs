//! The native interface: its types, its symbols and how they are loaded.
//!
//! Bindings of our own, from the published interface. [`Ze`] and [`Zes`] are tables of functions found at run time in the
//! Level Zero loader; a method has the name of the export that it calls, so a fault names what a debugger shows. An export
//! that the loaded library lacks fails with [`ABSENT`]. [`Extensions`] are functions that a driver hands out by name.
//!
//! Public for the test equipment of this repository, which implements the same interface. No stable part of this crate.

mod codes;
mod extension;
mod load;
mod sysman;
mod table;
mod types;

pub use codes::*;
pub use extension::Extensions;
pub use load::{Libraries, Loader, Missing, VARIABLE, loader};
pub use sysman::*;
pub use table::{Symbol, Ze, Zes};
pub use types::*;
