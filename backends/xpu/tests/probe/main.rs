//! Counting, naming, joining and reading sensors, on the fake driver, with loaders of several versions and the real one.

mod failure;
mod lab;
mod looking;
mod sensors;
mod views;

use anyaccel_fake::scenario;
use anyaccel_fake_level_zero::{FOREIGN, Loader, install};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) use scenario::Scenario;

/// The variable that names the file for the log of calls.
pub(crate) const LOG: &str = "ANYACCEL_FAKE_ZE_LOG";
/// The file to load as the loader.
pub(crate) const LIBRARY: &str = "ANYACCEL_ZE_LIBRARY";

/// A loader of today, which a scenario has if it says nothing.
pub(crate) const NEW: Loader = Loader::Own(1, 13);
/// Says which loader a scenario has, if not that.
const LOADER: &str = "ANYACCEL_TEST_LOADER";
/// One of 1.8, such as that of Debian 12: version 1.4 of the interface.
pub(crate) const OLD: &[(&str, &str)] = &[(LOADER, "old")];
/// That of the machine, which finds no driver.
pub(crate) const REAL: &[(&str, &str)] = &[(LOADER, "real")];
/// That of the machine, which finds the fake.
pub(crate) const REAL_WITH_DRIVER: &[(&str, &str)] = &[(LOADER, "real with a driver")];

fn main() -> ExitCode {
    scenario::run(&[&looking::all(), &views::all(), &failure::all(), &sensors::all()], LOG, prepare)
}

/// Lets a process find the fake by its loader, without what the caller's environment says of devices.
fn prepare(scenario: &Scenario, process: &mut Command) -> io::Result<PathBuf> {
    let loader = match scenario.value(LOADER) {
        None => NEW,
        Some("old") => Loader::Own(1, 4),
        Some(_) => Loader::Real,
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(match loader {
        Loader::Own(major, minor) => format!("level-zero-{major}.{minor}"),
        Loader::Real => "level-zero-driver".to_owned(),
    });
    let installed = install(&folder, loader)?;
    FOREIGN.iter().for_each(|name| _ = process.env_remove(name));
    if let Some(loader) = installed.loader {
        process.env(LIBRARY, loader);
    } else if scenario.value(LOADER) == Some("real with a driver") {
        process.env("ZE_ENABLE_ALT_DRIVERS", installed.driver);
    }
    process.env("ANYACCEL_FAKE_ZE_MEMORY", (64_u64 << 20).to_string());
    Ok(folder)
}
