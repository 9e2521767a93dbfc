//! The one place that reads this crate's environment variables.

use std::path::PathBuf;

/// Which backend the process-wide runtime uses.
pub(crate) const BACKEND: &str = "ANYACCEL_BACKEND";

/// Vendors' plugins to load: absolute paths, with the system's separator between them.
pub(crate) const PLUGINS: &str = "ANYACCEL_PLUGINS";

/// A variable's value as a list of paths; empty ones are left out.
pub(crate) fn paths(name: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// A variable's value; one that is not Unicode is read with replacement characters, so that it can be named.
pub(crate) fn read(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
