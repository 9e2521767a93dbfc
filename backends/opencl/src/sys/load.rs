//! The library, found by the system's own search.

use super::table::Api;
use anyaccel_kit::native::{Missing, NativeLibrary};

static LIBRARY: NativeLibrary<Library> = NativeLibrary::new(
    "ANYACCEL_OPENCL_LIBRARY",
    if cfg!(target_os = "macos") {
        &["/System/Library/Frameworks/OpenCL.framework/OpenCL"]
    } else {
        &["libOpenCL.so.1", "libOpenCL.so"]
    },
);

/// The loader's library.
#[derive(Debug)]
pub(crate) struct Library {
    /// The name that it was found by.
    pub(crate) name: String,
    /// Its functions.
    pub(crate) api: Api,
}

impl Library {
    /// The library of this system, loaded now if it was not. Runs nothing of it but what loading runs.
    pub(crate) fn load() -> Result<&'static Library, Missing> {
        // SAFETY: N1: a loader's initialisers start no platform. N2: C5.
        unsafe { LIBRARY.get(|library| Ok(Self { name: library.name().to_owned(), api: library.table()? })) }
    }
}
