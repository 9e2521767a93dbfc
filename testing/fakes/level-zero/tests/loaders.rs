//! A program in C on the fake, through the real loader and through our own.

mod common;

use anyaccel_fake_level_zero::{Loader, install};
use common::{folder, present, program, said};
use std::ffi::{CStr, CString};
use std::process::Command;

/// The program on the real loader.
fn real(name: &str) -> Command {
    let folder = folder(name);
    let installed = install(&folder, Loader::Real).expect("a fake");
    let mut command = program(&folder, "program.c", "-lze_loader");
    command.env("ZE_ENABLE_ALT_DRIVERS", installed.driver);
    command
}

#[test]
fn a_program_in_c_runs_through_the_real_loader() {
    if !present() {
        return;
    }
    let log = folder("real").join("calls");
    let _old = std::fs::remove_file(&log);
    let output = real("real").env("ANYACCEL_FAKE_ZE_LOG", &log).output().expect("a program");
    assert_eq!(said(&output), "good\n");
    let calls = std::fs::read_to_string(log).expect("a log");
    assert!(calls.lines().filter(|line| line.ends_with("ProcAddrTable")).count() >= 53);
    assert!(calls.contains("zeCommandListAppendLaunchKernel\n"));
}

#[test]
fn two_drivers_go_together() {
    if !present() {
        return;
    }
    let other = install(&folder("second"), Loader::Real).expect("a fake").driver;
    let mut command = real("first");
    let first = folder("first").join("libze_fake_gpu.so.1");
    let both = format!("{},{}", first.display(), other.display());
    // With several drivers the loader hands out handles of its own.
    assert_eq!(said(&command.arg("no logs").env("ZE_ENABLE_ALT_DRIVERS", both).output().expect("a program")), "good\n");
}

#[test]
fn the_validation_layer_has_nothing_against_the_fake() {
    if !present() {
        return;
    }
    let output = real("validated")
        .env("ZE_ENABLE_VALIDATION_LAYER", "1")
        .env("ZE_ENABLE_PARAMETER_VALIDATION", "1")
        .output()
        .expect("a program");
    assert_eq!(said(&output), "good\n");
}

#[test]
fn a_program_in_c_runs_on_our_own_loader() {
    if !present() {
        return;
    }
    let folder = folder("own");
    let installed = install(&folder, Loader::Own(1, 13)).expect("a fake");
    let loader = installed.loader.expect("a loader");
    let output = program(&folder, "program.c", loader.to_str().expect("text")).output().expect("a program");
    assert_eq!(said(&output), "good\n");
}

#[test]
fn loaders_have_what_their_version_has() {
    let has = |version, name: &CStr| {
        let folder = folder(&format!("version{version}"));
        let installed = install(&folder, Loader::Own(1, version)).expect("a fake");
        let path = CString::new(installed.loader.expect("a loader").as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: C strings; the library is our own, and its initialisers do nothing.
        let symbol =
            unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL), name.as_ptr()) };
        !symbol.is_null()
    };
    assert!(has(4, c"zeInit") && !has(4, c"zesInit") && !has(4, c"zeInitDrivers"));
    assert!(has(9, c"zesInit") && has(9, c"zesDeviceGet") && !has(9, c"zeInitDrivers"));
    assert!(has(13, c"zeInitDrivers") && !has(13, c"zeCommandListAppendGraphExp"));
}
