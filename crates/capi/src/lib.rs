//! The C API of the face: `libanyaccel.so`, `libanyaccel.a` and `include/anyaccel/anyaccel.h`.
//!
//! Each function is one call of the face on the process-wide runtime, with plain handles: see the header, which cbindgen
//! makes from these files and whose rules C1 to C5 the `SAFETY` lines here cite.
//!
//! # Protocol
//!
//! - `result::call` is the one way out: it contains panics, turns errors into codes and keeps the message, per thread.
//! - Handles are numbers into [`table::Table`]s, which belong to one generation of the process; streams are device and id, and
//!   memory is its address, both looked up by the face.
//! - Nothing here has a lock while it calls the face, nor while it calls functions of the caller.

#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(unreachable_pub, reason = "what C sees is exported by its name")]
#![allow(clippy::missing_safety_doc, reason = "the conditions are C1 to C5, which the header has")]

mod copy;
mod event;
mod graph;
mod history;
mod host_function;
mod host_memory;
mod json;
mod memory;
mod pointer;
mod pool;
mod random;
mod result;
mod runtime;
mod stacks;
mod state;
mod stats;
mod stream;
mod table;
mod types;
