//! Putting the fake where it can be loaded from, as a driver of some version.

use anyaccel_cuda::sys::{Cuda, Nvml};
use std::env;
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

/// Renames an export in the tables of names, so that nothing finds it.
fn hide(library: &mut [u8], name: &str) {
    let wanted = format!("\0{name}\0").into_bytes();
    let mut from = 0;
    while let Some(at) = library[from..].windows(wanted.len()).position(|window| window == wanted) {
        library[from + at + 1] = b'_';
        from += at + wanted.len();
    }
}
