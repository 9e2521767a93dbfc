//! A program in C on the fake, through the real loader and through our own.

use anyaccel_fake_level_zero::{Installed, Loader, install};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Whether there is a header and a loader to test with; they must be where that is asked for.
fn present() -> bool {
    let there = Path::new("/usr/include/level_zero/ze_api.h").exists();
    assert!(there || std::env::var_os("ANYACCEL_REQUIRE_ZE_HEADERS").is_none(), "install libze-dev");
    there
}

/// A module with one kernel, `increment(words, count)`.
fn module() -> Vec<u8> {
    const KERNEL: u32 = 6;
    let text = |text: &str| -> Vec<u32> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len() / 4 * 4 + 4, 0);
        bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    };
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, 16, 0];
    let mut add = |code: u32, operands: &[u32]| {
        words.push((operands.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(operands);
    };
    for capability in [4, 6, 11] {
        add(17, &[capability]);
    }
    add(14, &[2, 2]);
    add(15, &[&[KERNEL, 1][..], &text("increment")].concat());
    add(19, &[2]);
    add(21, &[3, 32, 0]);
    add(32, &[4, 5, 3]);
    add(33, &[5, 2, 4, 3]);
    add(54, &[2, 1, 0, 5]);
    add(55, &[4, 6]);
    add(55, &[3, 7]);
    add(248, &[8]);
    add(253, &[]);
    add(56, &[]);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Compiles the program, and runs it on a fake.
fn run(folder: &Path, loader: &Path, installed: &Installed, variables: &[(&str, &str)]) -> Output {
    let (program, code) = (folder.join("program"), folder.join("increment.spv"));
    std::fs::write(&code, module()).expect("a module");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/program.c");
    let compiled =
        Command::new("cc").args(["-std=c11", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).arg(loader).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler");
    Command::new(program)
        .arg(code)
        .env("ZE_ENABLE_ALT_DRIVERS", &installed.driver)
        .env("LD_LIBRARY_PATH", folder)
        .env_remove("ZE_AFFINITY_MASK")
        .env_remove("ZE_FLAT_DEVICE_HIERARCHY")
        .envs(variables.iter().copied())
        .output()
        .expect("a program that runs")
}

fn good(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "good\n");
}

#[test]
fn a_program_in_c_runs_through_the_real_loader() {
    if !present() {
        return;
    }
    let folder = folder("real");
    let installed = install(&folder, Loader::Real).expect("a fake");
    let log = folder.join("calls");
    let _old = std::fs::remove_file(&log);
    let variables = [("ANYACCEL_FAKE_ZE_LOG", log.to_str().expect("text"))];
    good(&run(&folder, Path::new("-lze_loader"), &installed, &variables));
    let calls = std::fs::read_to_string(log).expect("a log");
    assert!(calls.lines().filter(|line| line.ends_with("ProcAddrTable")).count() >= 53);
    assert!(calls.contains("zeCommandListAppendLaunchKernel\n"));
}

#[test]
fn the_validation_layer_has_nothing_against_the_fake() {
    if !present() {
        return;
    }
    let folder = folder("validated");
    let installed = install(&folder, Loader::Real).expect("a fake");
    let variables = [("ZE_ENABLE_VALIDATION_LAYER", "1"), ("ZE_ENABLE_PARAMETER_VALIDATION", "1")];
    good(&run(&folder, Path::new("-lze_loader"), &installed, &variables));
}

#[test]
fn a_program_in_c_runs_on_our_own_loader() {
    if !present() {
        return;
    }
    let folder = folder("own");
    let installed = install(&folder, Loader::Own(1, 13)).expect("a fake");
    let loader = installed.loader.clone().expect("a loader");
    good(&run(&folder, &loader, &installed, &[]));
}
