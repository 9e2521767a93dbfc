//! Why a library is no plugin, one line each.

use anyaccel_hal::Kind;
use std::path::{Path, PathBuf};

/// A library that can't be used as a plugin: which, and why. Prints as one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct LoadError {
    /// The library.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Refusal,
}

impl LoadError {
    /// What is wrong with the library at `path`.
    pub fn new(path: &Path, reason: Refusal) -> Self {
        Self { path: path.to_owned(), reason }
    }
}

/// What is wrong with a plugin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A relative path, which would name different files in different folders.
    #[error("the path is relative; name the plugin by its absolute path")]
    Relative,
    /// The file can't be read.
    #[error("the file can't be read: {found}")]
    Unreadable {
        /// What the system says.
        found: String,
    },
    /// The file is something else.
    #[error("no shared library: {found}")]
    NoLibrary {
        /// What it is.
        found: String,
    },
    /// A library whose end is missing.
    #[error("the file is cut off: it ends at byte {size}, its {part} at byte {needed}")]
    CutOff {
        /// The file's size in bytes.
        size: u64,
        /// What does not end within it.
        part: &'static str,
        /// Where that ends.
        needed: u64,
    },
    /// A library of another kind of machine.
    #[error("a library for {found}; this process needs one for {wanted}")]
    OtherMachine {
        /// What it is for.
        found: String,
        /// What this process runs on.
        wanted: String,
    },
    /// The system refused to load it.
    #[error("it does not load: {found}")]
    DoesNotLoad {
        /// What the loader of the system says.
        found: String,
    },
    /// It is no plugin.
    #[error("no plugin: it does not export anyaccel_plugin_entry")]
    NoEntry,
    /// The plugin says that it can't work with this version.
    #[error("the plugin declines: anyaccel_plugin_entry returned NULL for ABI {}.{}", .ours.0, .ours.1)]
    Declined {
        /// The ABI of this process.
        ours: (u32, u32),
    },
    /// Another major version.
    #[error("built for ABI {}.{}, this is ABI {}.{}; build it with this version's plugin.h", .theirs.0, .theirs.1, .ours.0, .ours.1)]
    Version {
        /// The plugin's.
        theirs: (u32, u32),
        /// The ABI of this process.
        ours: (u32, u32),
    },
    /// A table that is shorter than every version's.
    #[error("{table} says that it has {size} bytes, ABI {}.0 has at least {least}", crate::raw::ABI_MAJOR)]
    TooShort {
        /// Which.
        table: &'static str,
        /// What its `struct_size` says.
        size: u32,
        /// What the first minor version has.
        least: usize,
    },
    /// A table that is not all there.
    #[error("{table} says that it has {size} bytes, and the memory of the process ends before that")]
    Beyond {
        /// Which.
        table: &'static str,
        /// What its `struct_size` says.
        size: usize,
    },
    /// A table that every plugin has.
    #[error("{table} is NULL, and it is required")]
    NoTable {
        /// Which.
        table: &'static str,
    },
    /// A function that every plugin has.
    #[error("{table}.{function} is NULL, and it is required{}", because(.why))]
    NoFunction {
        /// Its table.
        table: &'static str,
        /// Which.
        function: &'static str,
        /// What makes it so, if it is not always.
        why: &'static str,
    },
    /// A function that is none.
    #[error("{table}.{function} is no function: there is no code at {address:#x}")]
    NoCode {
        /// Its table.
        table: &'static str,
        /// Which.
        function: &'static str,
        /// Where it points.
        address: usize,
    },
    /// A name that no kind can have.
    #[error("the kind's name is {name:?}; names are lower-case letters, digits and _, first a letter, at most 32")]
    BadName {
        /// The name.
        name: String,
    },
    /// A number and a name that don't belong together.
    #[error("kind {number} and the name {name:?} don't belong together; {right}")]
    BadKind {
        /// The number.
        number: u32,
        /// The name.
        name: String,
        /// What would be right.
        right: &'static str,
    },
    /// The same library a second time.
    #[error("it is loaded already, as '{kind}'")]
    Twice {
        /// Its kind.
        kind: Kind,
    },
    /// Another backend has that name.
    #[error("its kind '{kind}' is taken by {holder}")]
    KindTaken {
        /// The name.
        kind: Kind,
        /// Who has it: a plugin's path, or words for a backend that is built in.
        holder: String,
    },
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" {why}") }
}
