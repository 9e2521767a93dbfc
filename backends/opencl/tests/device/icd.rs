//! Drivers that are not there: each in a process of its own, whose environment says so.

use anyaccel_hal::{Absence, Layer, Verdict};
use anyaccel_opencl::driver_by_name;
use std::process::Command;

/// The variable that says what the helper below is to find.
const EXPECTED: &str = "ANYACCEL_TEST_ICD";

/// Runs [`helper`] with an environment of its own.
fn with(expected: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "icd::helper", "--nocapture"]).env(EXPECTED, expected);
    for name in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "ANYACCEL_OPENCL_LIBRARY", "ANYACCEL_OPENCL_DEVICES"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the helper to run");
    assert!(output.status.success(), "{expected}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the test process finds, unless it was started for nothing.
#[test]
fn helper() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    let driver = driver_by_name();
    let probe = driver.probe();
    assert!(!probe.started, "nothing was started to find that there is nothing: {probe:?}");
    assert_eq!(probe.visible, 0);
    let checks = driver.checks();
    let failed: Vec<_> = checks.iter().filter(|check| check.verdict == Verdict::Fail).collect();
    let says = |text: &str| failed.iter().any(|check| check.found.contains(text) || check.subject.contains(text));
    assert!(says(&expected), "the doctor names {expected:?}: {checks:#?}");
    match probe.absence {
        Some(Absence::Missing { layer, subject, found }) => {
            assert!(matches!(layer, Layer::Library | Layer::Version), "{layer:?}");
            assert!(subject.contains(&expected) || found.contains(&expected), "{subject}: {found}");
            assert_eq!(driver.start(), Ok(0), "a start without drivers finds none");
        }
        Some(Absence::BadVariable { value, .. }) => {
            assert_eq!(value, expected);
            let fault = driver.start().expect_err("a start with a bad variable");
            assert!(fault.note.as_deref().is_some_and(|note| note.contains(&expected)), "{fault}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_loader() {
    with("libno-such-loader.so.1", &[("ANYACCEL_OPENCL_LIBRARY", "libno-such-loader.so.1")]);
}

#[test]
fn a_loader_that_is_none() {
    if cfg!(target_os = "linux") {
        with("clGetPlatformIDs", &[("ANYACCEL_OPENCL_LIBRARY", "libc.so.6")]);
    }
}

/// The tests below need a loader: what they are about comes after it.
fn loader() -> bool {
    let there = crate::sys::Library::load().is_ok();
    if !there {
        eprintln!("skipped: no OpenCL loader here");
    }
    there
}

#[test]
fn no_icd() {
    if loader() {
        with("no-such-directory", &[("OCL_ICD_VENDORS", "/no-such-directory")]);
    }
}

#[test]
fn an_icd_that_names_a_missing_file() {
    if loader() {
        let directory = std::env::temp_dir().join(format!("anyaccel-vendors-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("gone.icd"), "/no/such/libdriver.so\n").expect("a file");
        with("/no/such/libdriver.so", &[("OCL_ICD_VENDORS", &directory.to_string_lossy())]);
        std::fs::remove_dir_all(&directory).expect("the directory to go");
    }
}

#[test]
fn a_mask_that_is_none() {
    with("none,please", &[("ANYACCEL_OPENCL_DEVICES", "none,please")]);
}
