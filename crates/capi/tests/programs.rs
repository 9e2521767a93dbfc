//! The programs in `tests/c`, compiled and run against the library: as it is, and under AddressSanitizer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where libanyaccel.so is. Cargo builds no library for tests that can't link to it as a crate, so this asks for it: for the
/// profile of this test.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline", "--quiet", "--package", "anyaccel-capi", "--lib"]);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        if profile == "release" {
            cargo.arg("--release");
        }
        let out = cargo.current_dir(root()).arg("--target-dir").arg(target).output().expect("cargo runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        target.join(profile)
    })
}

/// Compiles a program, and returns its path.
fn compile(name: &str, extra: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{}", extra.concat().replace('/', "_")));
    let library = library();
    let out = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"])
        .args(["-pthread", "-I"])
        .arg(root().join("../../include"))
        .args(extra)
        .arg("-o")
        .arg(&program)
        .arg(root().join("tests/c").join(name).with_extension("c"))
        .arg("-L")
        .arg(library)
        .arg("-lanyaccel")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    program
}

/// Runs a program in an environment without any variable of ours but those given.
fn run(program: &Path, variables: &[(&str, &str)]) {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ANYACCEL_") || name.to_string_lossy().contains("ALLOC_CONF") {
            command.env_remove(name);
        }
    }
    let out = command.envs(variables.iter().copied()).output().expect("runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program:?} {variables:?}: {}\n{stdout}{stderr}", out.status);
}

/// Whether the C compiler has AddressSanitizer with its library.
fn has_sanitizer() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
        let program = source.with_extension("asan");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        compiler.arg("-fsanitize=address").arg("-o").arg(&program).arg(&source);
        compiler.output().is_ok_and(|out| out.status.success())
    })
}

const TWO: (&str, &str) = ("ANYACCEL_HOST_DEVICES", "2");

/// As it is, on the host device, and under the sanitizer where there is one.
fn on_the_host(name: &str) {
    let variables = [("ANYACCEL_BACKEND", "host"), TWO];
    run(&compile(name, &[]), &variables);
    if has_sanitizer() {
        let options = ("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0");
        run(&compile(name, &["-fsanitize=address,undefined"]), &[variables[0], variables[1], options]);
    }
}

macro_rules! on_the_host {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            on_the_host(stringify!($name));
        })*
    };
}
on_the_host!(runtime, streams, events, memory, host_memory);
