//! Work on the fake driver: what the conformance suite has no words for.
//!
//! What the fake is like is said by variables, and a library is loaded once a process. So each scenario runs in a process of
//! its own: this program starts itself for each.

mod ending;
mod failure;
mod kernels;
mod lab;
mod order;

use anyaccel_fake_level_zero::{Loader, install};
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A scenario: its name, the variables that it needs, and what it does. A panic is its failure.
pub(crate) struct Scenario {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    run: fn(),
}

impl Scenario {
    pub(crate) const fn new(name: &'static str, run: fn()) -> Self {
        Self { name, variables: &[], run }
    }

    pub(crate) const fn with(mut self, variables: &'static [(&'static str, &'static str)]) -> Self {
        self.variables = variables;
        self
    }
}

/// Tells a process which scenario it is.
const CHOICE: &str = "ANYACCEL_TEST_SCENARIO";
/// Where the log of calls is, for scenarios that read it.
pub(crate) const LOG: &str = "ANYACCEL_FAKE_ZE_LOG";
/// The library that is the fake.
pub(crate) const LIBRARY: &str = "ANYACCEL_ZE_LIBRARY";
/// Set by scenarios that take the loader of the machine, with two drivers.
pub(crate) const REAL_LOADER: &str = "ANYACCEL_TEST_REAL_LOADER";
/// Names drivers to the loader of the machine.
const ALT_DRIVERS: &str = "ZE_ENABLE_ALT_DRIVERS";
/// Variables of the interface that a caller may have set.
const INHERITED: [&str; 6] = [
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZES_ENABLE_SYSMAN",
    ALT_DRIVERS,
    "ANYACCEL_BACKEND",
];

fn main() -> ExitCode {
    let all = || [ending::ALL, failure::ALL, kernels::ALL, order::ALL].into_iter().flatten();
    if let Ok(name) = env::var(CHOICE) {
        let Some(scenario) = all().find(|scenario| scenario.name == name) else { return ExitCode::FAILURE };
        (scenario.run)();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for scenario in all().filter(|scenario| wanted.is_empty() || wanted.iter().any(|name| scenario.name.contains(name)))
    {
        let passed = passes(scenario);
        println!("test {} ... {}", scenario.name, if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a scenario in a process that finds the fake, without what the caller's environment says of devices.
fn passes(scenario: &Scenario) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("level-zero-work");
    let installed = match install(&folder, Loader::Own(1, 13)) {
        Ok(installed) => installed,
        Err(error) => {
            println!("no fake driver: {error}");
            return false;
        }
    };
    let log = folder.join(format!("{}.log", scenario.name));
    // It may not be there yet.
    let _old = std::fs::remove_file(&log);
    let Ok(program) = env::current_exe() else { return false };
    let mut command = Command::new(program);
    for name in INHERITED {
        command.env_remove(name);
    }
    if scenario.variables.iter().any(|(name, _)| *name == REAL_LOADER) {
        let both: Result<Vec<String>, _> = ["first", "second"]
            .iter()
            .map(|name| install(&folder.join(name), Loader::Real).map(|fake| fake.driver.display().to_string()))
            .collect();
        let Ok(both) = both else { return false };
        command.env_remove(LIBRARY).env(ALT_DRIVERS, both.join(","));
    } else {
        command.env(LIBRARY, installed.driver);
    }
    let status = command
        .env(CHOICE, scenario.name)
        .env(LOG, &log)
        .env("ANYACCEL_FAKE_ZE_MEMORY", (64_u64 << 20).to_string())
        .envs(scenario.variables.iter().copied())
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
