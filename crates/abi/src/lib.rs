//! The C ABI of anyaccel: a vendor's library as a backend, and a backend as a vendor's library.
//!
//! `include/anyaccel/plugin.h` is the ABI, and says what each function must do. This crate has its two ends:
//!
//! - [`Plugin::load`] loads a library, examines it, and makes drivers of it that are like any other.
//! - [`export!`] makes a library of a backend in Rust:
//!
//! ```ignore
//! // Cargo.toml: crate-type = ["cdylib"]
//! anyaccel_abi::export!(my_backend::driver);
//! ```
//!
//! # What is checked, and what is believed
//!
//! Before anything of a plugin is called, its version is understood, its tables are all there, what is required is not null,
//! and functions are code. What a function then does is the plugin's promise, as it is a linked backend's: the suite
//! examines it (`anyaccel cts ./libvendor.so`). What the engine indexes or dereferences is looked at (H3, H27).
//!
//! # Forks
//!
//! Nothing here has a lock. The lists of plugins and of texts that are kept for good grow by an exchange of one pointer, so a
//! child finds them whole (H24).

mod convert;
pub mod export;
mod fault;
mod kind;
mod loader;
pub mod raw;
mod text;

pub use anyaccel_hal as hal;
pub use loader::{LoadError, Plugin, Refusal};
