//! `include/anyaccel/anyaccel.h` is what cbindgen makes of the sources, and compiles as C11 and as C++17.
//!
//! After a change of the sources: `ANYACCEL_WRITE_HEADER=1 cargo test -p anyaccel-capi --test header`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// In the order of the header.
const SOURCES: [&str; 13] = [
    "types",
    "result",
    "runtime",
    "stream",
    "event",
    "memory",
    "copy",
    "host_memory",
    "random",
    "graph",
    "pool",
    "stats",
    "history",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    root().join("../../include/anyaccel/anyaccel.h")
}

#[test]
fn the_header_is_the_one_of_the_sources() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root().join("src").join(source).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    if std::env::var_os("ANYACCEL_WRITE_HEADER").is_some() {
        std::fs::write(header(), &made).expect("written");
    }
    let kept = std::fs::read_to_string(header()).expect("the header");
    let differs = kept.lines().zip(made.lines()).enumerate().find(|(_, (kept, made))| kept != made);
    assert!(kept == made, "out of date: set ANYACCEL_WRITE_HEADER=1. The first line that differs: {differs:#?}");
}

#[test]
fn every_source_with_functions_of_the_api_is_in_the_header() {
    for entry in std::fs::read_dir(root().join("src")).expect("src") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert_eq!(text.contains("#[unsafe(no_mangle)]"), SOURCES[1..].contains(&name), "{name}");
    }
}

#[test]
fn c_and_cpp_take_the_header_without_a_warning() {
    for (compiler, standard, language) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "c++")] {
        let out = Command::new(std::env::var_os(compiler.to_uppercase()).unwrap_or(compiler.into()))
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language])
            .arg(header())
            .output()
            .expect("a compiler");
        assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
