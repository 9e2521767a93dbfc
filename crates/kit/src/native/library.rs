//! Finding and opening a library.
//!
//! A library that was opened stays for the life of the process, with what was found in it ([`Published`]). Two threads that ask
//! at once open it twice, which the system counts. Failures are not kept: a library that was installed meanwhile is found by the
//! next look.

use super::symbols::{Symbol, SymbolTable};
use crate::published::Published;
use anyaccel_hal::{Absence, Layer};
use libloading::Library;
use std::env;
use std::error::Error;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::fmt;
use std::mem;
use std::ptr;

/// Why a library is not there. Its text names the library, what is wrong, and the variable by which another can be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// It does not open.
    Library {
        /// What was looked for.
        library: String,
        /// What the system said.
        reason: String,
        /// Names another file.
        variable: &'static str,
    },
    /// It opens and lacks a symbol that nothing goes without.
    Symbol {
        /// What was opened.
        library: String,
        /// What it lacks.
        symbol: Symbol,
        /// Names another file.
        variable: &'static str,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { library, reason, variable } => {
                write!(f, "{library} does not load: {reason} ({variable} can name another)")
            }
            Self::Symbol { library, symbol: Symbol { name, since: (major, minor), .. }, variable } => {
                write!(f, "{library} has no {name}, which is there since {major}.{minor} ({variable} can name another)")
            }
        }
    }
}

impl Error for Missing {}

impl Missing {
    /// What a probe says of it.
    pub fn absence(&self) -> Absence {
        let (subject, found) = match self {
            Self::Library { library, reason, .. } => (library.clone(), reason.clone()),
            Self::Symbol { library, symbol, .. } => (library.clone(), format!("a library without {}", symbol.name)),
        };
        Absence::Missing { layer: Layer::Library, subject, found }
    }
}

/// A vendor's library and what a backend has of it, opened when it is first asked for. Meant for a static.
pub struct NativeLibrary<T: 'static> {
    variable: &'static str,
    names: &'static [&'static str],
    found: Published<T>,
}

impl<T> NativeLibrary<T> {
    /// A library that is looked for under some names, the best first: what a driver's package installs, then what development
    /// packages add. A variable, where it is set and not empty, holds the one name or path that is tried instead.
    pub const fn new(variable: &'static str, names: &'static [&'static str]) -> Self {
        Self { variable, names, found: Published::new() }
    }

    /// The variable that names another file.
    pub const fn variable(&self) -> &'static str {
        self.variable
    }

    /// The names that are looked for without it.
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }
}

impl<T: Send> NativeLibrary<T> {
    /// What `find` made of the library: of the first name that opens, once. The variable counts until then.
    ///
    /// # Errors
    /// No name opens, told of the first; or what `find` says. It may be otherwise next time.
    ///
    /// # Safety
    /// N1 of [`native`](crate::native) holds for the names and for what the variable may name.
    pub unsafe fn get(&'static self, find: impl FnOnce(&Opened) -> Result<T, Missing>) -> Result<&'static T, Missing> {
        self.found.get_or_make(|| {
            let named = env::var_os(self.variable).filter(|name| !name.is_empty());
            // SAFETY: N1, which the caller promises.
            let opened = unsafe { self.open(named) }?;
            let found = find(&opened)?;
            // The functions are called until the process ends.
            mem::forget(opened.library);
            Ok(found)
        })
    }

    /// # Safety
    /// N1 for that name, or without it for those of the library.
    unsafe fn open(&self, named: Option<OsString>) -> Result<Opened, Missing> {
        let Some(named) = named else {
            // SAFETY: as the caller promises.
            let mut tried = self.names.iter().map(|name| unsafe { Opened::new(name.as_ref(), self.variable) });
            let first = tried.next().unwrap_or_else(|| {
                let (library, reason) = (String::new(), "it has no name here".to_owned());
                Err(Missing::Library { library, reason, variable: self.variable })
            });
            return first.or_else(|missing| tried.find_map(Result::ok).ok_or(missing));
        };
        // SAFETY: as the caller promises.
        unsafe { Opened::new(&named, self.variable) }
    }
}

impl<T> fmt::Debug for NativeLibrary<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.found.get().is_some();
        f.debug_struct("NativeLibrary").field("names", &self.names).field("open", &open).finish_non_exhaustive()
    }
}

/// A library that is open.
#[derive(Debug)]
pub struct Opened {
    name: String,
    library: Library,
    variable: &'static str,
}

impl Opened {
    /// # Safety
    /// N1 for that name.
    unsafe fn new(name: &OsStr, variable: &'static str) -> Result<Self, Missing> {
        let library = name.to_string_lossy().into_owned();
        // SAFETY: N1, which the caller promises: its initialisers start nothing.
        match unsafe { Library::new(name) } {
            Ok(opened) => Ok(Self { name: library, library: opened, variable }),
            Err(error) => {
                // What the system said is what the error was made of.
                let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                Err(Missing::Library { library, reason, variable })
            }
        }
    }

    /// The name or path that it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the symbol of that name is; null where there is none.
    pub fn address(&self, symbol: &CStr) -> *mut c_void {
        // SAFETY: an address has any type, and is not followed here.
        let found = unsafe { self.library.get::<*mut c_void>(symbol.to_bytes_with_nul()) };
        found.map_or(ptr::null_mut(), |address| *address)
    }

    /// The table of its functions.
    ///
    /// # Errors
    /// The first required symbol that it lacks.
    ///
    /// # Safety
    /// N2 of [`native`](crate::native) holds for the table and this library.
    pub unsafe fn table<T: SymbolTable>(&self) -> Result<T, Missing> {
        // SAFETY: N2, which the caller promises.
        let table = unsafe { T::load(&|symbol| self.address(symbol)) };
        table.map_err(|symbol| Missing::Symbol { library: self.name.clone(), symbol, variable: self.variable })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const VARIABLE: &str = "ANYACCEL_TEST_LIBRARY";

    crate::symbols! {
        /// What every C library has.
        struct Strings;
        (1, 0) required strlen(*const std::ffi::c_char) -> usize;
    }

    crate::symbols! {
        /// What none has.
        struct Wishes;
        (3, 1) required strlen_of_tomorrow() -> usize;
    }

    static C_LIBRARY: NativeLibrary<Strings> = of(&["libc.so.6"]);

    const fn of(names: &'static [&'static str]) -> NativeLibrary<Strings> {
        NativeLibrary::new(VARIABLE, names)
    }

    fn strings(library: &'static NativeLibrary<Strings>) -> Result<&'static Strings, Missing> {
        // SAFETY: N1, N2: the C library.
        unsafe { library.get(|opened| opened.table()) }
    }

    #[test]
    fn a_library_that_is_missing_has_a_reason_and_a_way_out() {
        static NOWHERE: NativeLibrary<Strings> = of(&["/nonexistent/liba.so.1", "/nonexistent/liba.so"]);
        static NAMELESS: NativeLibrary<Strings> = of(&[]);
        let error = strings(&NOWHERE).expect_err("no such file");
        assert!(matches!(&error, Missing::Library { reason, .. } if reason.contains("No such file")), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("/nonexistent/liba.so.1 does not load: ") && text.contains(VARIABLE), "{text}");
        assert!(strings(&NAMELESS).is_err());
    }

    #[test]
    fn a_library_that_lacks_a_symbol_is_refused_by_its_name() {
        static WISHES: NativeLibrary<Wishes> = NativeLibrary::new(VARIABLE, &["libc.so.6"]);
        // SAFETY: N1, N2: the C library.
        let error = unsafe { WISHES.get(|opened| opened.table()) }.expect_err("it has no such symbol");
        let text = "libc.so.6 has no strlen_of_tomorrow, which is there since 3.1 \
                    (ANYACCEL_TEST_LIBRARY can name another)";
        assert_eq!(error.to_string(), text);
        let Absence::Missing { layer: Layer::Library, subject, found } = error.absence() else { panic!("{error}") };
        assert_eq!((subject.as_str(), found.as_str()), ("libc.so.6", "a library without strlen_of_tomorrow"));
    }

    #[test]
    fn the_first_name_that_opens_counts_and_a_given_name_counts_alone() {
        let library = of(&["/nonexistent/liba.so.1", "libc.so.6"]);
        // SAFETY: N1: the C library.
        let opened = unsafe { library.open(None) }.expect("the second name");
        assert_eq!(opened.name(), "libc.so.6");
        // SAFETY: N1: there is none.
        let given = unsafe { library.open(Some("/nonexistent/libb.so".into())) };
        assert!(matches!(given, Err(Missing::Library { library, .. }) if library == "/nonexistent/libb.so"));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_table() {
        let found: Vec<usize> = std::thread::scope(|scope| {
            let ask = || ptr::from_ref(strings(&C_LIBRARY).expect("the C library")).addr();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(found.iter().all(|&at| at == found[0]), "{found:?}");
        let strings = strings(&C_LIBRARY).expect("the C library");
        // SAFETY: a C string.
        assert_eq!(unsafe { (strings.strlen)(c"four".as_ptr()) }, 4);
    }
}
