//! The library: found by the system's own search, loaded once, never unloaded.
//!
//! # Protocol
//!
//! `LOADED` is a list of leaked entries, one for each name that was ever loaded with success. Entries are linked before they are
//! published and then only read. There is no lock, so a child of a fork may look at any time (H24); two threads that
//! load at once leak one entry.

use super::table::{Api, MissingSymbol};
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The name of a library to load instead of the system's, as `dlopen` takes it.
pub(crate) const VARIABLE: &str = "ANYACCEL_OPENCL_LIBRARY";

/// Names of the loader, the best first.
#[cfg(target_os = "macos")]
const NAMES: &[&str] = &["/System/Library/Frameworks/OpenCL.framework/OpenCL"];
#[cfg(not(target_os = "macos"))]
const NAMES: &[&str] = &["libOpenCL.so.1", "libOpenCL.so"];

/// The loader's library.
pub(crate) struct Library {
    /// The name that it was found by.
    pub(crate) name: String,
    /// Its functions.
    pub(crate) api: Api,
    next: *const Library,
}

// SAFETY: names and function pointers, only read once published.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why there is no library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    /// None of the names loads, and what the system said of the first.
    NotFound { name: String, said: String },
    /// It loads and lacks a function.
    TooOld { name: String, missing: MissingSymbol },
}

static LOADED: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

/// The name that is looked for first.
pub(crate) fn library_name() -> String {
    match std::env::var(VARIABLE) {
        Ok(name) if !name.is_empty() => name,
        _ => NAMES[0].to_owned(),
    }
}

impl Library {
    /// The library of this system, loaded now if it was not. Runs nothing of it but what loading runs.
    pub(crate) fn load() -> Result<&'static Library, Absent> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => Self::named(&name),
            _ => {
                let first = Self::named(NAMES[0]);
                match first {
                    Err(Absent::NotFound { .. }) => {
                        NAMES[1..].iter().find_map(|name| Self::named(name).ok()).map_or(first, Ok)
                    }
                    other => other,
                }
            }
        }
    }

    fn named(name: &str) -> Result<&'static Library, Absent> {
        if let Some(library) = loaded(name) {
            return Ok(library);
        }
        let not_found = |said: &str| Absent::NotFound { name: name.to_owned(), said: said.to_owned() };
        let Ok(path) = CString::new(name) else { return Err(not_found("a name with a 0 in it")) };
        // SAFETY: the name is a C string; the flags bind at once and keep the symbols to this handle.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(not_found(&said()));
        }
        // SAFETY: the handle is open and stays so; the name is a C string.
        let find = |symbol: &CStr| -> *mut c_void { unsafe { libc::dlsym(handle, symbol.as_ptr()) } };
        // SAFETY: C5: a library of that name is OpenCL's, whose functions have the types of the specification.
        let api = unsafe { Api::load(&find) };
        let api = api.map_err(|missing| Absent::TooOld { name: name.to_owned(), missing })?;
        Ok(publish(Library { name: name.to_owned(), api, next: ptr::null() }))
    }
}

fn loaded(name: &str) -> Option<&'static Library> {
    let mut at: *const Library = LOADED.load(Ordering::Acquire);
    // SAFETY: null, or an entry: leaked, linked before it was published, never freed.
    while let Some(library) = unsafe { at.as_ref() } {
        if library.name == name {
            return Some(library);
        }
        at = library.next;
    }
    None
}

fn publish(library: Library) -> &'static Library {
    let entry: *mut Library = Box::leak(Box::new(library));
    let mut head = LOADED.load(Ordering::Acquire);
    loop {
        // SAFETY: leaked just now and not yet shared, so writing through it is exclusive.
        unsafe { (*entry).next = head };
        match LOADED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked above, never freed, and from here on only read.
            Ok(_) => return unsafe { &*entry },
            Err(now) => head = now,
        }
    }
}

/// What the dynamic linker said last, on this thread.
fn said() -> String {
    // SAFETY: dlerror returns null or a C string that stays until this thread's next call of the linker.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let Err(Absent::NotFound { name, said }) = Library::named("libno-such-opencl.so.9") else {
            panic!("a library that does not exist was loaded");
        };
        assert_eq!(name, "libno-such-opencl.so.9");
        assert!(said.contains("libno-such-opencl.so.9"), "{said}");
        assert!(matches!(Library::named("a\0b"), Err(Absent::NotFound { .. })));
    }

    #[test]
    fn a_library_that_is_not_opencl_is_too_old() {
        // The C library is there wherever this test runs.
        let found = Library::named("libc.so.6");
        if cfg!(target_os = "linux") {
            let Err(Absent::TooOld { missing, .. }) = found else { panic!("{found:?}") };
            assert_eq!(missing.name, "clGetPlatformIDs");
        }
    }
}
