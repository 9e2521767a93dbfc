//! The programs in `tests/c`, compiled and run against the library: as it is, and under AddressSanitizer.

#[path = "../../abi/tests/plugins/compile.rs"]
mod plugin;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where libanyaccel.so is.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("anyaccel-capi"))
}

/// Builds the library of a package, and returns where it is. Cargo builds none for tests that can't link to it as a crate, so this
/// asks for it: for the profile of this test.
fn build(package: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--quiet", "--package", package, "--lib"]);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    if profile == "release" {
        cargo.arg("--release");
    }
    let out = cargo.current_dir(root()).arg("--target-dir").arg(target).output().expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    target.join(profile)
}

/// Compiles a program, and returns its path.
fn compile(name: &str, extra: &[&str]) -> PathBuf {
    compile_with(name, extra, &["-lanyaccel"])
}

fn compile_with(name: &str, extra: &[&str], libraries: &[&str]) -> PathBuf {
    compile_source(&root().join("tests/c").join(name).with_extension("c"), name, extra, libraries)
}

fn compile_source(source: &Path, name: &str, extra: &[&str], libraries: &[&str]) -> PathBuf {
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{name}{}", extra.concat().replace('/', "_")));
    let library = library();
    let out = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"])
        .args(["-pthread", "-I"])
        .arg(root().join("../../include"))
        .args(extra)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg("-L")
        .arg(library)
        .args(libraries)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{source:?}: {}", String::from_utf8_lossy(&out.stderr));
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
on_the_host!(runtime, streams, events, memory, host_memory, random, graphs, stats, stacks, threads, order, exit);

/// Memory that the host can't reach, at made-up addresses.
#[test]
fn on_a_simulated_device() {
    for program in [compile("threads", &[]), compile("stacks", &[]), example("pi")] {
        run(&program, &[("ANYACCEL_BACKEND", "sim")]);
    }
}

/// On a driver that needs no card, and where there are none.
#[test]
fn events_of_several_processes() {
    on_the_host("shared_events");
    let driver = build("anyaccel-fake-cuda").join("libanyaccel_fake_cuda.so");
    let driver = driver.to_str().expect("text");
    let libraries = [("ANYACCEL_CUDA_LIBRARY", driver), ("ANYACCEL_NVML_LIBRARY", driver)];
    let program = compile("shared_events", &[]);
    run(&program, &[("ANYACCEL_BACKEND", "cuda"), ("SHARES", "1"), libraries[0], libraries[1]]);
}

#[test]
fn the_examples_run() {
    run(&example("pi"), &[("ANYACCEL_BACKEND", "host")]);
    // It writes beside itself what it recorded.
    let program = example("stacks");
    let file = program.with_extension("pickle");
    let out = Command::new(&program).arg(&file).env("ANYACCEL_BACKEND", "host").output().expect("runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let written = std::fs::read(&file).expect("the snapshot");
    let holds = |words: &[u8]| written.windows(words.len()).any(|part| part == words);
    assert!(holds(b"buffers") && holds(b"program.ten"), "the stacks are in the file");
}

/// A program of `examples/capi-c`.
fn example(name: &str) -> PathBuf {
    let source = root().join("../../examples/capi-c").join(name).with_extension("c");
    compile_source(&source, &format!("example-{name}"), &[], &["-lanyaccel"])
}

#[test]
fn children_of_fork_start_anew_where_the_kind_can() {
    run(&compile("fork", &[]), &[("ANYACCEL_BACKEND", "host"), TWO, ("FORK", "restarts")]);
}

#[test]
fn children_of_fork_get_the_one_error_where_the_kind_cannot() {
    let definitions = ["NAME=\"once\"", "FLAGS=ANYACCEL_FORK_SAFE_PROBE"];
    let plugin = plugin::small(env!("CARGO_TARGET_TMPDIR"), "capi_once", &definitions);
    let plugin = plugin.to_str().expect("a plain path");
    run(&compile("fork", &["-DONCE"]), &[("ANYACCEL_BACKEND", "once"), ("ANYACCEL_PLUGINS", plugin), ("FORK", "once")]);
}

/// Memory that only objects name has no addresses to give out.
#[test]
fn devices_without_addresses_refuse() {
    let plugin = plugin::small(env!("CARGO_TARGET_TMPDIR"), "capi_objects", &["NAME=\"objects\"", "PLACES=128"]);
    let plugin = plugin.to_str().expect("a plain path");
    run(&compile("objects", &[]), &[("ANYACCEL_BACKEND", "objects"), ("ANYACCEL_PLUGINS", plugin)]);
}

#[test]
fn without_a_device_every_call_says_so() {
    let absent = compile("absent", &[]);
    run(&absent, &[("ANYACCEL_BACKEND", "nope"), ("EXPECT", "ANYACCEL_ERROR_UNKNOWN_BACKEND")]);
    run(
        &absent,
        &[("ANYACCEL_BACKEND", "host"), ("ANYACCEL_HOST_DEVICES", "0"), ("EXPECT", "ANYACCEL_ERROR_NO_DEVICE")],
    );
    run(
        &absent,
        &[("ANYACCEL_BACKEND", "host"), ("ANYACCEL_HOST_DEVICES", "x"), ("EXPECT", "ANYACCEL_ERROR_SETTINGS")],
    );
}

#[test]
fn the_static_library_serves_as_well() {
    let program = compile_with("memory", &["-DSTATIC"], &["-l:libanyaccel.a", "-ldl", "-lm"]);
    run(&program, &[("ANYACCEL_BACKEND", "host"), TWO]);
}
