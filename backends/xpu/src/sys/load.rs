//! The loader. Opening it loads no driver and starts nothing.

use super::table::{Ze, Zes};
use anyaccel_kit::native::{Missing, NativeLibrary};

/// The Level Zero loader, where it is looked for.
pub static LOADER: NativeLibrary<Loader> = NativeLibrary::new(
    "ANYACCEL_ZE_LIBRARY",
    if cfg!(windows) { &["ze_loader.dll"] } else { &["libze_loader.so.1", "libze_loader.so"] },
);

/// The loader's two tables: compute, and Sysman, the management side.
#[derive(Clone, Debug)]
pub struct Loader {
    /// What was opened.
    pub path: String,
    /// Compute.
    pub ze: Ze,
    /// Management.
    pub zes: Zes,
}

/// The loader's tables.
///
/// # Errors
/// Why there is none.
pub fn loader() -> Result<&'static Loader, Missing> {
    // SAFETY: N1, N2: the loader of the interface, or what stands in for it.
    unsafe {
        LOADER
            .get(|library| Ok(Loader { path: library.name().to_owned(), ze: library.table()?, zes: library.table()? }))
    }
}
