//! Putting the fake where it can be loaded from, as a driver for the real loader or as a loader of some version.

use anyaccel_fake::library::{self, Control};
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

/// Variables of the interface, and of the backend's search, that would change what a process sees of a fake.
pub const FOREIGN: [&str; 9] = [
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZES_ENABLE_SYSMAN",
    "ZE_ENABLE_VALIDATION_LAYER",
    "ZE_ENABLE_PARAMETER_VALIDATION",
    "ZE_ENABLE_ALT_DRIVERS",
    "ANYACCEL_ZE_LIBRARY",
    "ANYACCEL_BACKEND",
];

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
    let mut bytes = library::built("anyaccel_fake_level_zero")?;
    library::hide(&mut bytes, |name| match as_what {
        _ if !name.starts_with("ze") => false,
        // What a program has linked of the same name must not come between the fake and its own.
        Loader::Real => !name.ends_with("ProcAddrTable"),
        Loader::Own(major, minor) => {
            let newer = NEWER.iter().any(|&(other, since)| other == name && since > (major, minor));
            newer || BY_ADDRESS.iter().any(|part| name.contains(part))
        }
    });
    library::place(&bytes, folder, as_what.file())?;
    Ok(Installed::at(folder, as_what))
}

impl Loader {
    /// The name of the file that is installed.
    const fn file(self) -> &'static str {
        match self {
            Self::Real => "libze_fake_gpu.so.1",
            Self::Own(..) => "libze_loader.so.1",
        }
    }
}

impl Installed {
    /// The fake that was installed in a folder.
    pub fn at(folder: &Path, as_what: Loader) -> Self {
        let driver = folder.join(as_what.file());
        Self { loader: (as_what != Loader::Real).then(|| driver.clone()), driver }
    }

    /// Finds the control of this fake, which is loaded if it was not.
    ///
    /// # Errors
    /// The library is not there, or no fake.
    pub fn control(&self) -> io::Result<Control> {
        Control::of(&self.driver, "anyaccel_fake_ze")
    }
}
