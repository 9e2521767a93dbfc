//! Finding and opening the loader.
//!
//! # Protocol
//!
//! The loaded library stays for the life of the process: its tables are leaked, their pointer published once by an exchange.
//! No lock, so that a forked child finds it loaded or not, never in between (H24); two threads that load at once open the
//! library twice, which the system counts, and one of the tables is dropped. Failures are not kept: a library that was
//! installed meanwhile is found by the next look.

use super::table::{Ze, Zes};
use libloading::Library;
use std::env;
use std::error::Error;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Names the file to load as the Level Zero loader, in place of the system's search.
pub const VARIABLE: &str = "ANYACCEL_ZE_LIBRARY";

/// Why a library is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// It does not open.
    Library {
        /// What was looked for.
        library: String,
        /// What the system said.
        reason: String,
    },
    /// It opens and lacks a symbol that nothing goes without.
    Symbol {
        /// What was opened.
        library: String,
        /// What it lacks.
        symbol: &'static str,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { library, reason } => write!(f, "{library} does not load: {reason}"),
            Self::Symbol { library, symbol } => write!(f, "{library} has no {symbol}"),
        }
    }
}

/// Where the loader is looked for, apart from the variable.
#[derive(Debug)]
pub struct Libraries;

impl Libraries {
    /// Names of the loader.
    pub const ZE: &'static [&'static str] =
        if cfg!(windows) { &["ze_loader.dll"] } else { &["libze_loader.so.1", "libze_loader.so"] };
}

/// The loader's two tables: compute, and Sysman, the management side.
#[derive(Clone, Debug)]
pub struct Loader {
    /// What was opened.
    pub path: String,
    /// Compute.
    pub ze: Ze,
    /// Management.
    pub zes: Zes,
}

static LOADER: AtomicPtr<Loader> = AtomicPtr::new(ptr::null_mut());

/// The loader. Opening it loads no driver and starts nothing.
///
/// # Errors
/// Why there is none.
pub fn loader() -> Result<&'static Loader, Missing> {
    // SAFETY: null, or tables that were leaked below before they were published.
    if let Some(loader) = unsafe { LOADER.load(Ordering::Acquire).as_ref() } {
        return Ok(loader);
    }
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let (library, path) = match named {
        Some(path) => open(&path.to_string_lossy())?,
        None => first(Libraries::ZE)?,
    };
    let (ze, zes) = (Ze::find(&library, &path)?, Zes::find(&library, &path)?);
    let loader = Box::into_raw(Box::new(Loader { path, ze, zes }));
    // The functions are called until the process ends.
    std::mem::forget(library);
    match LOADER.compare_exchange(ptr::null_mut(), loader, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just now, and never freed since it was published.
        Ok(_) => Ok(unsafe { &*loader }),
        Err(theirs) => {
            // SAFETY: made above and seen by nobody else.
            drop(unsafe { Box::from_raw(loader) });
            // SAFETY: published by another thread, leaked as above.
            Ok(unsafe { &*theirs })
        }
    }
}

fn first(names: &[&str]) -> Result<(Library, String), Missing> {
    let mut reason = None;
    for name in names {
        match open(name) {
            Ok(found) => return Ok(found),
            // The first name is the one that is installed; the other is of the development package.
            Err(missing) => reason = reason.or(Some(missing)),
        }
    }
    Err(reason.unwrap_or_else(|| Missing::Library { library: String::new(), reason: "it has no name here".into() }))
}

fn open(path: &str) -> Result<(Library, String), Missing> {
    // SAFETY: what the user or the system names as the loader runs its own initialisers, which start nothing.
    match unsafe { Library::new(path) } {
        Ok(library) => Ok((library, path.to_owned())),
        Err(error) => {
            // What the system said is what the error was made of.
            let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Err(Missing::Library { library: path.to_owned(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_has_a_reason() {
        let error = open("/nonexistent/libze_loader.so.1").map(drop).expect_err("no such file");
        assert!(matches!(&error, Missing::Library { reason, .. } if reason.contains("No such file")), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_library_that_lacks_a_symbol_is_refused_by_its_name() {
        let (library, path) = open("libc.so.6").expect("the C library");
        let error = Ze::find(&library, &path).expect_err("it is no loader");
        assert_eq!(error, Missing::Symbol { library: "libc.so.6".into(), symbol: "zeInit" });
    }
}
