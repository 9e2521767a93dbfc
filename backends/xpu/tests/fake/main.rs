//! Work on the fake driver: what the conformance suite has no words for.

mod ending;
mod failure;
mod kernels;
mod lab;
mod order;

use anyaccel_fake::scenario;
use anyaccel_fake_level_zero::{FOREIGN, Loader, install};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) use scenario::Scenario;

/// A loader of today.
pub(crate) const NEW: Loader = Loader::Own(1, 13);
/// Set by scenarios that take the loader of the machine, with two drivers.
pub(crate) const REAL_LOADER: &str = "ANYACCEL_TEST_REAL_LOADER";

fn main() -> ExitCode {
    scenario::run(&[ending::ALL, failure::ALL, kernels::ALL, order::ALL], "ANYACCEL_FAKE_ZE_LOG", prepare)
}

/// Lets a process find the fake, without what the caller's environment says of devices.
fn prepare(scenario: &Scenario, process: &mut Command) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("level-zero-work");
    FOREIGN.iter().for_each(|name| _ = process.env_remove(name));
    if scenario.value(REAL_LOADER).is_some() {
        let driver = |name| install(&folder.join(name), Loader::Real).map(|fake| fake.driver.display().to_string());
        process.env("ZE_ENABLE_ALT_DRIVERS", [driver("first")?, driver("second")?].join(","));
    } else {
        process.env("ANYACCEL_ZE_LIBRARY", install(&folder, NEW)?.driver);
    }
    process.env("ANYACCEL_FAKE_ZE_MEMORY", (64_u64 << 20).to_string());
    Ok(folder)
}
