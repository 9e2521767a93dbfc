//! The native interface: its types, its symbols and how they are loaded.
//!
//! Bindings of our own, from the published interface. [`Ze`] and [`Zes`] are tables of functions found at run time in the
//! Level Zero loader; a method has the name of the export that it calls, so a fault names what a debugger shows. An export
//! that the loaded library lacks fails with [`ABSENT`]. [`Extensions`] are functions that a driver hands out by name, as a table of their own.
//!
//! Public for the test equipment of this repository, which implements the same interface. No stable part of this crate.

mod codes;
mod extension;
mod load;
mod sysman;
mod table;
mod types;

pub use anyaccel_kit::native::{Missing, Symbol, SymbolTable};
pub use codes::*;
pub use extension::Extensions;
pub use load::{LOADER, Loader, loader};
pub use sysman::*;
pub use table::{Ze, Zes};
pub use types::*;
