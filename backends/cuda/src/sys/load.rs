//! Finding and opening the libraries.
//!
//! # Protocol
//!
//! A loaded library stays for the life of the process: its table is leaked, its pointer published once by an exchange. No
//! lock, so that a forked child finds it loaded or not, never in between (H24); two threads that load at once open the
//! library twice, which the system counts, and one of the tables is dropped. Failures are not kept: a library that was
//! installed meanwhile is found by the next look.

use super::table::{Cuda, Nvml, Nvrtc};
use libloading::Library;
use std::env;
use std::error::Error;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Names the file to load as the CUDA driver, in place of the system's search.
pub const VARIABLE: &str = "ANYACCEL_CUDA_LIBRARY";
/// Names the file to load as the management library, in place of the system's search.
pub const NVML_VARIABLE: &str = "ANYACCEL_NVML_LIBRARY";
/// Names the file to load as the run-time compiler, in place of the system's search.
const NVRTC_VARIABLE: &str = "ANYACCEL_NVRTC_LIBRARY";

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

/// Where the libraries are looked for, apart from the variables.
#[derive(Debug)]
pub struct Libraries;

impl Libraries {
    /// Names of the driver.
    pub const CUDA: &'static [&'static str] =
        if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };
    /// Names of the management library.
    pub const NVML: &'static [&'static str] =
        if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1", "libnvidia-ml.so"] };
    /// Names of the run-time compiler, the newest first.
    pub const NVRTC: &'static [&'static str] = if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    };
}

static CUDA: AtomicPtr<Cuda> = AtomicPtr::new(ptr::null_mut());
static NVML: AtomicPtr<Nvml> = AtomicPtr::new(ptr::null_mut());
static NVRTC: AtomicPtr<Nvrtc> = AtomicPtr::new(ptr::null_mut());

/// The driver's table. Opening the library starts nothing.
///
/// # Errors
/// Why there is none.
pub fn cuda() -> Result<&'static Cuda, Missing> {
    keep(&CUDA, VARIABLE, Libraries::CUDA, Cuda::find)
}

/// The management library's table.
///
/// # Errors
/// Why there is none.
pub fn nvml() -> Result<&'static Nvml, Missing> {
    keep(&NVML, NVML_VARIABLE, Libraries::NVML, Nvml::find)
}

/// The run-time compiler's table.
///
/// # Errors
/// Why there is none.
pub fn nvrtc() -> Result<&'static Nvrtc, Missing> {
    keep(&NVRTC, NVRTC_VARIABLE, Libraries::NVRTC, Nvrtc::find)
}

fn keep<T>(
    kept: &'static AtomicPtr<T>,
    variable: &str,
    names: &[&str],
    find: fn(&Library, &str) -> Result<T, Missing>,
) -> Result<&'static T, Missing> {
    // SAFETY: null, or a table that was leaked below before it was published.
    if let Some(table) = unsafe { kept.load(Ordering::Acquire).as_ref() } {
        return Ok(table);
    }
    let named = env::var_os(variable).filter(|path| !path.is_empty());
    let (library, path) = match named {
        Some(path) => open(&path.to_string_lossy())?,
        None => first(names)?,
    };
    let table = Box::into_raw(Box::new(find(&library, &path)?));
    // The functions are called until the process ends.
    std::mem::forget(library);
    match kept.compare_exchange(ptr::null_mut(), table, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just now, and never freed since it was published.
        Ok(_) => Ok(unsafe { &*table }),
        Err(theirs) => {
            // SAFETY: made above and seen by nobody else.
            drop(unsafe { Box::from_raw(table) });
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
            // The first name is the one that a driver installs; the others are for development packages.
            Err(missing) => reason = reason.or(Some(missing)),
        }
    }
    Err(reason.unwrap_or_else(|| Missing::Library { library: String::new(), reason: "it has no name here".into() }))
}

fn open(path: &str) -> Result<(Library, String), Missing> {
    // SAFETY: what the user or the system names as the vendor's library runs its own initialisers, which start nothing.
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
        let error = open("/nonexistent/libcuda.so.1").map(drop).expect_err("no such file");
        assert!(matches!(&error, Missing::Library { reason, .. } if reason.contains("No such file")), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_library_that_lacks_a_symbol_is_refused_by_its_name() {
        let (library, path) = open("libc.so.6").expect("the C library");
        let error = Cuda::find(&library, &path).expect_err("it is no driver");
        assert_eq!(error, Missing::Symbol { library: "libc.so.6".into(), symbol: "cuInit" });
    }
}
