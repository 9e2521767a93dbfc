//! Putting the fake where it can be loaded from, as a driver of some version.

use anyaccel_cuda::sys::{Cuda, Nvml, SymbolTable};
use anyaccel_fake::library::{self, Control};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file.
const CUDA: &str = "libcuda.so.1";

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
    let mut bytes = library::built("anyaccel_fake_cuda")?;
    // The table does not know what is older than its oldest driver.
    let version = version.max((11, 8));
    let symbols = Cuda::SYMBOLS.iter().chain(Nvml::SYMBOLS).filter(|symbol| symbol.since > version);
    let newer: Vec<&str> = symbols.map(|symbol| symbol.name).collect();
    library::hide(&mut bytes, |name| newer.contains(&name));
    let installed = Installed::at(folder);
    library::place(&bytes, folder, CUDA)?;
    if fs::symlink_metadata(&installed.nvml).is_err() {
        match std::os::unix::fs::symlink(CUDA, &installed.nvml) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(installed)
}

impl Installed {
    /// The fake that was installed in a folder.
    pub fn at(folder: &Path) -> Self {
        Self { cuda: folder.join(CUDA), nvml: folder.join("libnvidia-ml.so.1") }
    }

    /// Finds the control of this fake, which is loaded if it was not.
    ///
    /// # Errors
    /// The library is not there, or no fake.
    pub fn control(&self) -> io::Result<Control> {
        Control::of(&self.cuda, "anyaccel_fake_cuda")
    }
}
