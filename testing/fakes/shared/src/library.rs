//! The way to a library that Cargo built beside a test, and what the test does to it once it is loaded.

use std::env;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::io;
use std::mem::transmute;
use std::path::Path;

/// The bytes of the library of a crate that is a dependency of the calling test.
///
/// # Errors
/// The file system's, and that there is none.
pub fn built(name: &str) -> io::Result<Vec<u8>> {
    let name = format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let program = env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2).flat_map(|at| [at.join(&name), at.join("deps").join(&name)]);
    let built = beside.into_iter().find(|path| path.exists());
    let built = built.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} beside {program:?}")))?;
    fs::read(built)
}

/// Puts a library in its place, in a folder that is made if there is none.
///
/// # Errors
/// The file system's.
pub fn place(bytes: &[u8], folder: &Path, name: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Under another name first: another test may be loading the one that is there.
    let fresh = folder.join(format!("fresh.{}", std::process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, folder.join(name))
}

/// Makes exports of a library for 64 bits local to it: what it refers to it finds itself, and nothing else finds it.
pub fn hide(library: &mut [u8], hidden: impl Fn(&str) -> bool) {
    const DYNAMIC_SYMBOLS: usize = 11;
    const SYMBOL: usize = 24;
    const VISIBILITY: usize = 5;
    const HIDDEN: u8 = 2;
    let number = |library: &[u8], at: usize, len: usize| {
        let bytes = library.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0_usize, |number, &byte| number << 8 | usize::from(byte))
    };
    let header = |library: &[u8], section: usize| number(library, 0x28, 8) + section * number(library, 0x3a, 2);
    let mut sections = (0..number(library, 0x3c, 2)).map(|section| header(library, section));
    if let Some(section) = sections.find(|&at| number(library, at + 4, 4) == DYNAMIC_SYMBOLS) {
        let names = number(library, header(library, number(library, section + 0x28, 4)) + 0x18, 8);
        let (start, size) = (number(library, section + 0x18, 8), number(library, section + 0x20, 8));
        for symbol in (start..start + size).step_by(SYMBOL) {
            let name = library.get(names + number(library, symbol, 4)..).unwrap_or_default();
            let Ok(name) = CStr::from_bytes_until_nul(name) else { continue };
            if name.to_str().is_ok_and(&hidden) {
                library[symbol + VISIBILITY] = HIDDEN;
            }
        }
    }
}

/// What a test does to a fake that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    lose: unsafe extern "C" fn(u32),
    heal: unsafe extern "C" fn(),
    fail: unsafe extern "C" fn(*const c_char, u32, u32),
}

impl Control {
    /// Finds the control of a fake, which is loaded if it was not: its exports `PREFIX_lose`, `PREFIX_heal` and
    /// `PREFIX_fail`.
    ///
    /// # Errors
    /// The library is not there, or no fake.
    pub fn of(library: &Path, prefix: &str) -> io::Result<Self> {
        let path = CString::new(library.as_os_str().as_encoded_bytes())?;
        let find = |name: &str| {
            let name = CString::new(format!("{prefix}_{name}"))?;
            let name: &CStr = &name;
            // SAFETY: C strings; they name a library of our own, whose initialisers do nothing. It stays loaded.
            let symbol = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
            if symbol.is_null() { Err(io::Error::other(format!("{path:?} has no {name:?}"))) } else { Ok(symbol) }
        };
        // SAFETY: fakes export these names with these signatures.
        unsafe {
            Ok(Self {
                lose: transmute::<*mut c_void, unsafe extern "C" fn(u32)>(find("lose")?),
                heal: transmute::<*mut c_void, unsafe extern "C" fn()>(find("heal")?),
                fail: transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, u32, u32)>(find("fail")?),
            })
        }
    }

    /// Loses the card at that place of the bus, as by an illegal access.
    pub fn lose(&self, place: u32) {
        // SAFETY: any number is an answer.
        unsafe { (self.lose)(place) }
    }

    /// Makes all cards work again, once what they had to do is gone.
    pub fn heal(&self) {
        // SAFETY: no arguments.
        unsafe { (self.heal)() }
    }

    /// Makes the n-th call of that name from now on (1 is the next) fail with a code.
    ///
    /// # Panics
    /// For a name with a zero in it.
    pub fn fail(&self, name: &str, nth: u32, code: u32) {
        let name = CString::new(name).expect("names of functions have no zeros");
        // SAFETY: a C string.
        unsafe { (self.fail)(name.as_ptr(), nth, code) }
    }
}
