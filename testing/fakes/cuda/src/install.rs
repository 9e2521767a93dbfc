//! Putting the fake where it can be loaded from, as a driver of some version.

use anyaccel_cuda::sys::{Cuda, Nvml};
use std::env;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where an installed fake is.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The driver.
    pub cuda: PathBuf,
    /// The management library: another name of the same file, so that both see one state.
    pub nvml: PathBuf,
}

/// Copies the library that Cargo built beside the calling test into a folder, as a driver of that version of CUDA: exports
/// that only later ones have are taken out of its symbol table.
///
/// # Errors
/// The file system's.
pub fn install(folder: &Path, version: (u32, u32)) -> io::Result<Installed> {
    let name = format!("{}anyaccel_fake_cuda{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let program = env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2).flat_map(|at| [at.join(&name), at.join("deps").join(&name)]);
    let built = beside.into_iter().find(|path| path.exists());
    let built = built.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} beside {program:?}")))?;
    let mut bytes = fs::read(built)?;
    // The table does not know what is older than its oldest driver.
    let version = version.max((11, 8));
    for symbol in Cuda::SYMBOLS.iter().chain(Nvml::SYMBOLS).filter(|symbol| symbol.since > version) {
        hide(&mut bytes, symbol.name);
    }
    fs::create_dir_all(folder)?;
    let (cuda, nvml) = (folder.join("libcuda.so.1"), folder.join("libnvidia-ml.so.1"));
    // Under another name first: another test may be loading the one that is there.
    let fresh = folder.join(format!("fresh.{}", std::process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, &cuda)?;
    if fs::symlink_metadata(&nvml).is_err() {
        match std::os::unix::fs::symlink("libcuda.so.1", &nvml) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(Installed { cuda, nvml })
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
        let path = CString::new(self.cuda.as_os_str().as_encoded_bytes())?;
        let find = |name: &CStr| {
            // SAFETY: a C string names a library of our own, whose initialisers do nothing; it stays loaded.
            let symbol = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
            if symbol.is_null() { Err(io::Error::other(format!("{path:?} has no {name:?}"))) } else { Ok(symbol) }
        };
        // SAFETY: the fake exports these names with these signatures (`control`).
        unsafe {
            Ok(Control {
                lose: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32)>(find(c"anyaccel_fake_cuda_lose")?),
                heal: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(find(c"anyaccel_fake_cuda_heal")?),
                fail: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, u32, u32)>(find(
                    c"anyaccel_fake_cuda_fail",
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

/// Renames an export in the tables of names, so that nothing finds it.
fn hide(library: &mut [u8], name: &str) {
    let wanted = format!("\0{name}\0").into_bytes();
    let mut from = 0;
    while let Some(at) = library[from..].windows(wanted.len()).position(|window| window == wanted) {
        library[from + at + 1] = b'_';
        from += at + wanted.len();
    }
}
