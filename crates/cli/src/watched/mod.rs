//! Work that calls vendors' plugins, in a process that is watched: a plugin that takes it down, ends it or hangs costs what it was
//! at, and nothing that was found before.
//!
//! # Protocol
//!
//! The command starts itself once more ([`Process`], outside) with a pipe where standard input would be. That process takes the
//! pipe for itself before it loads anything ([`open`]), and writes a line of JSON at once for each thing that is done or about to
//! begin ([`tell`], [`Told`]); the last one is [`Told::End`]. What it prints goes to standard error, whoever prints it: a plugin
//! that writes to standard output spoils no document.
//!
//! Where the work itself reads standard input, what stands there is a socket: what comes the other way is the command's own
//! standard input, passed on.
//!
//! Its exit status proves nothing, since a plugin can call `exit(0)`: without [`Told::End`] it has not come to its end.

mod inside;
mod outside;
mod work;

pub(crate) use inside::{open, tell};
pub(crate) use outside::{Next, Process, how_it_ended};
pub(crate) use work::{Reads, begins, work};

use crate::output::Class;
use anyaccel_cts::{CaseReport, Report};
use serde::{Deserialize, Serialize};

/// What a watched process says.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    /// A library is about to be loaded.
    Loads(String),
    /// A backend is about to be asked what it can: its name and its kind.
    Asks(String, String),
    /// Work begins on a backend: its library, if it is a plugin, and its kind.
    Works(String, String),
    /// It was asked: the report without a case, and how many there will be.
    Subject(Report, usize),
    /// The case of that id begins.
    Begins(String),
    /// A case was judged.
    Judged(CaseReport),
    /// All of a backend's cases were.
    Done,
    /// Text for standard output.
    Text(String),
    /// The command failed.
    Failed(Class, String),
    /// The command has come to its end.
    End,
}
