//! Counting, naming, joining and reading sensors, on the fake driver, with loaders of several versions and the real one.
//!
//! What the fake is like is said by variables, and a library is loaded once a process. So each scenario runs in a process of its
//! own: this program starts itself for each.

mod failure;
mod lab;
mod looking;
mod sensors;
mod views;

use anyaccel_fake_level_zero::{Loader, install};
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A scenario: its name, the loader and the variables that it needs, and what it does. A panic is its failure.
pub(crate) struct Scenario {
    name: String,
    loader: Option<Loader>,
    variables: Vec<(&'static str, String)>,
    run: fn(),
}

/// A loader of today.
const NEW: Loader = Loader::Own(1, 13);
/// What loaders of 1.8 have, among them that of Debian 12.
const OLD: Loader = Loader::Own(1, 4);

impl Scenario {
    pub(crate) fn new(name: impl Into<String>, run: fn()) -> Self {
        Self { name: name.into(), loader: Some(NEW), variables: Vec::new(), run }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn old(self) -> Self {
        Self { loader: Some(OLD), ..self }
    }

    /// With the real loader, which finds no driver unless a variable names one.
    pub(crate) fn real(self) -> Self {
        Self { loader: None, ..self }
    }
}

/// Tells a process which scenario it is.
const CHOICE: &str = "ANYACCEL_TEST_SCENARIO";
/// Where the log of calls is.
pub(crate) const LOG: &str = "ANYACCEL_FAKE_ZE_LOG";
/// Where the fake is.
pub(crate) const FOLDER: &str = "ANYACCEL_TEST_FOLDER";
/// The file to load as the loader.
pub(crate) const LIBRARY: &str = "ANYACCEL_ZE_LIBRARY";

/// Names drivers to the real loader, here the fake.
pub(crate) const ALT_DRIVERS: &str = "ZE_ENABLE_ALT_DRIVERS";

/// Variables of the interface that a caller may have set.
const INHERITED: [&str; 7] = [
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZES_ENABLE_SYSMAN",
    ALT_DRIVERS,
    "ANYACCEL_BACKEND",
    LIBRARY,
];

fn main() -> ExitCode {
    let all = || [looking::all(), views::all(), failure::all(), sensors::all()].into_iter().flatten();
    if let Ok(name) = env::var(CHOICE) {
        let Some(scenario) = all().find(|scenario| scenario.name == name) else { return ExitCode::FAILURE };
        (scenario.run)();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for scenario in all().filter(|scenario| wanted.is_empty() || wanted.iter().any(|name| scenario.name.contains(name)))
    {
        let passed = passes(&scenario);
        println!("test {} ... {}", scenario.name, if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a scenario in a process that finds the fake, without what the caller's environment says of devices.
fn passes(scenario: &Scenario) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(match scenario.loader {
        Some(Loader::Own(major, minor)) => format!("level-zero-{major}.{minor}"),
        _ => "level-zero-driver".to_owned(),
    });
    let installed = match install(&folder, scenario.loader.unwrap_or(Loader::Real)) {
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
    if let Some(loader) = &installed.loader {
        command.env(LIBRARY, loader);
    }
    let status = command
        .env(CHOICE, &scenario.name)
        .env(FOLDER, &folder)
        .env(LOG, &log)
        .env("ANYACCEL_FAKE_ZE_MEMORY", (64_u64 << 20).to_string())
        .envs(scenario.variables.iter().map(|(name, value)| (name, value)))
        .envs(
            scenario
                .variables
                .iter()
                .filter(|(name, _)| *name == ALT_DRIVERS)
                .map(|(name, _)| (name, &installed.driver)),
        )
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
