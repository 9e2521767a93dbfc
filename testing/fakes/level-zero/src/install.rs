//! Putting the fake where it can be loaded from, as a driver for the real loader or as a loader of some version.

use std::env;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Functions that only loaders have which are newer than 1.8 (version 1.4 of the interface), and since which version.
const NEWER: &[(&str, (u32, u32))] = &[
    ("zesInit", (1, 5)),
    ("zesDriverGet", (1, 5)),
    ("zesDeviceGet", (1, 5)),
    ("zeCommandListHostSynchronize", (1, 6)),
    ("zeDeviceGetRootDevice", (1, 7)),
    ("zesDeviceGetSubDevicePropertiesExp", (1, 9)),
    ("zeCommandListIsImmediate", (1, 9)),
    ("zeCommandListImmediateAppendCommandListsExp", (1, 9)),
    ("zeInitDrivers", (1, 10)),
    ("zeCommandListAppendHostFunction", (1, 17)),
];

/// Functions of extensions, which have no names in any loader that is meant here.
const BY_ADDRESS: &[&str] = &["Graph", "zex"];

/// What the fake is installed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// A driver, for the real loader: only the tables have names.
    Real,
    /// A loader of its own, with what a loader of that version of the interface has.
    Own(u32, u32),
}

/// Where an installed fake is.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The driver, for `ZE_ENABLE_ALT_DRIVERS`.
    pub driver: PathBuf,
    /// The loader of our own, where one was asked for: the same file.
    pub loader: Option<PathBuf>,
}

/// Copies the library that Cargo built beside the calling test into a folder.
///
/// # Errors
/// The file system's.
pub fn install(folder: &Path, as_what: Loader) -> io::Result<Installed> {
    let name = format!("{}anyaccel_fake_level_zero{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let program = env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2).flat_map(|at| [at.join(&name), at.join("deps").join(&name)]);
    let built = beside.into_iter().find(|path| path.exists());
    let built = built.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} beside {program:?}")))?;
    let mut bytes = fs::read(built)?;
    hide(&mut bytes, |name| match as_what {
        // What a program has linked of the same name must not come between the fake and its own.
        Loader::Real => !name.ends_with("ProcAddrTable"),
        Loader::Own(major, minor) => {
            let newer = NEWER.iter().any(|&(other, since)| other == name && since > (major, minor));
            newer || BY_ADDRESS.iter().any(|part| name.contains(part))
        }
    });
    fs::create_dir_all(folder)?;
    let own = as_what != Loader::Real;
    let path = folder.join(if own { "libze_loader.so.1" } else { "libze_fake_gpu.so.1" });
    // Under another name first: another test may be loading the one that is there.
    let fresh = folder.join(format!("fresh.{}", std::process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, &path)?;
    Ok(Installed { loader: own.then(|| path.clone()), driver: path })
}

/// What a test does to a fake that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    lose: unsafe extern "C" fn(u32),
    heal: unsafe extern "C" fn(),
    fail: unsafe extern "C" fn(*const c_char, u32, u32),
}

impl Installed {
    /// Finds the control of this fake, which is loaded if it was not.
    ///
    /// # Errors
    /// The library is not there, or no fake.
    pub fn control(&self) -> io::Result<Control> {
        let path = CString::new(self.driver.as_os_str().as_encoded_bytes())?;
        let find = |name: &CStr| {
            // SAFETY: a C string names a library of our own, whose initialisers do nothing; it stays loaded.
            let symbol = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
            if symbol.is_null() { Err(io::Error::other(format!("{path:?} has no {name:?}"))) } else { Ok(symbol) }
        };
        // SAFETY: the fake exports these names with these signatures (`control`).
        unsafe {
            Ok(Control {
                lose: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32)>(find(c"anyaccel_fake_ze_lose")?),
                heal: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(find(c"anyaccel_fake_ze_heal")?),
                fail: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, u32, u32)>(find(
                    c"anyaccel_fake_ze_fail",
                )?),
            })
        }
    }
}

impl Control {
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

/// Makes functions of the interface local to the library: what it refers to it finds itself, and nothing else finds it.
fn hide(library: &mut [u8], hidden: impl Fn(&str) -> bool) {
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
            if name.to_str().is_ok_and(|name| name.starts_with("ze") && hidden(name)) {
                library[symbol + VISIBILITY] = HIDDEN;
            }
        }
    }
}
