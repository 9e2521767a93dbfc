//! Builds small plugins with the system's C compiler. Shared by the tests of several crates.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin in `small.c`, built with these definitions (`MAJOR=2`), as a library of that name in `folder`.
pub(crate) fn small(folder: &str, name: &str, definitions: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/tests/plugins/small.c");
    library(folder, name, &source, definitions)
}

/// A library built from a source file.
pub(crate) fn library(folder: &str, name: &str, source: &Path, definitions: &[&str]) -> PathBuf {
    let to = Path::new(folder).join(format!("lib{name}.so"));
    // Another process may be building or loading the same one: each writes its own file, and puts it in place at once.
    let own = Path::new(folder).join(format!("lib{name}.{}.so", std::process::id()));
    let out = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fPIC",
            "-fvisibility=hidden",
            "-shared",
            "-I",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"))
        .args(definitions.iter().map(|definition| format!("-D{definition}")))
        .arg(source)
        .arg("-o")
        .arg(&own)
        .output()
        .unwrap_or_else(|error| panic!("cc: {error}"));
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    std::fs::rename(&own, &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    to
}
