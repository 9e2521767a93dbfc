//! A vendor's C library: found and opened at run time, its functions typed by a table of lines.
//!
//! The whole recipe, here for two functions of the C library:
//!
//! ```
//! use anyaccel_kit::native::{FailedCall, Missing, NativeLibrary, SymbolTable};
//! use std::ffi::c_char;
//!
//! /// What the backend makes of a call that fails. It knows what the codes mean, and becomes a fault there.
//! #[derive(Debug, PartialEq)]
//! pub struct Failed {
//!     api: &'static str,
//!     code: i32,
//! }
//!
//! impl FailedCall for Failed {
//!     type Code = i32;
//!     const SUCCESS: i32 = 0;
//!     const ABSENT: i32 = i32::MIN;
//!
//!     fn new(api: &'static str, code: i32) -> Self {
//!         Self { api, code }
//!     }
//! }
//!
//! anyaccel_kit::symbols! {
//!     /// What the backend calls of the C library.
//!     pub struct Files -> Result<(), Failed>;
//!     (1, 0) required access(path: *const c_char, mode: i32);
//!     (9, 5) optional access_on_the_moon(path: *const c_char, phase: u32);
//! }
//!
//! /// The library: the variable that may name another file, and the names that the system knows it by, the best first.
//! static FILES: NativeLibrary<Files> =
//!     NativeLibrary::new("MY_C_LIBRARY", &["libc.so.6", "libSystem.B.dylib", "ucrtbase.dll"]);
//!
//! /// The table. Opening the library starts nothing.
//! pub fn files() -> Result<&'static Files, Missing> {
//!     // SAFETY: N1: C libraries may be opened at any time. N2: the signatures are those of its headers.
//!     unsafe { FILES.get(|library| library.table()) }
//! }
//!
//! # if cfg!(target_os = "linux") {
//! let files = files().expect("a C library");
//! // SAFETY: a C string.
//! unsafe {
//!     assert_eq!(files.access(c"/".as_ptr(), 0), Ok(()));
//!     assert_eq!(files.access(c"/nowhere".as_ptr(), 0), Err(Failed { api: "access", code: -1 }));
//!     // What the library has not fails when it is called, and can be asked for before.
//!     assert_eq!(files.access_on_the_moon(c"/".as_ptr(), 3), Err(Failed { api: "access_on_the_moon", code: i32::MIN }));
//! }
//! assert!(files.has("access") && !files.has("access_on_the_moon"));
//! # }
//! ```
//!
//! Symbols that a driver hands out by name, in place of exporting them, make a table by [`SymbolTable::load`]. An interface
//! whose functions return handles and other things than codes has a table whose fields are called as they are; see
//! [`symbols!`](crate::symbols).
//!
//! # Rules for unsafe code
//!
//! - **N1** A library that is named here may be opened at any time, on any thread: its initialisers start nothing.
//! - **N2** The signature in a table's line is the published one of the symbol of that name, in each version of the interface
//!   that the table is loaded for.

mod library;
mod symbols;

pub use library::{Missing, NativeLibrary, Opened};
pub use symbols::{FailedCall, Symbol, SymbolTable};
// For the macro's expansion alone.
#[doc(hidden)]
pub use symbols::{c_name, describe, typed};
