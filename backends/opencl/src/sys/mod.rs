//! The C interface of OpenCL: types, constants, the tables of functions, and the library they come from.
//!
//! # Rules for unsafe code in this crate
//!
//! Beside the rules of the hal (H1 ..), blocks cite these, which say what the OpenCL specification asks of a caller:
//!
//! - **C1** Objects passed to a call are live: an owner in [`object`](crate::object) keeps each one until it is dropped,
//!   and a command that was enqueued keeps by itself what it uses. Memory without an object (USM, SVM) lives by H4.
//! - **C2** Pointers passed to a call are valid for what the call reads or writes: they point to locals or slices that
//!   outlive it, with the sizes that are passed beside them, or are null where the specification allows that.
//! - **C3** All functions but `clSetKernelArg*` may be called from any thread at any time; those are called for one
//!   kernel at a time.
//! - **C4** What a callback is given as user data was leaked for it, and is taken back by the one call that it gets.
//! - **C5** A function pointer has the type that the specification gives the symbol of that name, in the version that was
//!   asked for.

mod constants;
mod load;
mod table;

pub(crate) use anyaccel_kit::native::{Missing, SymbolTable};
pub(crate) use constants::*;
pub(crate) use load::Library;
pub(crate) use table::{Api, Buffers09, Buffers10, DeviceAddress, Usm};

use std::ffi::c_void;

/// A status, negative on failure.
pub(crate) type Status = i32;
/// Handles of the runtime. All are pointers to what only the runtime knows.
pub(crate) type Raw = *mut c_void;
/// A list of names and values that ends with a 0.
pub(crate) type Properties = *const u64;
/// What `clSetEventCallback` calls.
pub(crate) type EventCallback = unsafe extern "C" fn(Raw, Status, *mut c_void);
