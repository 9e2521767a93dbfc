//! The one place that reads this crate's environment variables.

/// Which backend the process-wide runtime uses.
pub(crate) const BACKEND: &str = "ANYACCEL_BACKEND";

/// A variable's value; one that is not Unicode is read with replacement characters, so that it can be named.
pub(crate) fn read(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
