//! The backend on the fake driver: what the conformance suite has no words for.
//!
//! What the fake is like is said by variables, and a library is loaded once a process. So each scenario runs in a process of
//! its own: this program starts itself for each.

mod compiler;
mod discovery;
mod failure;
mod graphs;
mod kernels;
mod lab;
mod sharing;

use anyaccel_fake_cuda::install;
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
pub(crate) const LOG: &str = "ANYACCEL_FAKE_CUDA_LOG";
/// Where the fake is.
pub(crate) const FOLDER: &str = "ANYACCEL_TEST_FOLDER";

fn main() -> ExitCode {
    let all = || {
        let lists = [compiler::ALL, discovery::ALL, failure::ALL, graphs::ALL, kernels::ALL, sharing::ALL];
        lists.into_iter().flatten()
    };
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
    let value = |name: &str| scenario.variables.iter().find(|(other, _)| *other == name).map(|&(_, value)| value);
    let version = value("ANYACCEL_FAKE_CUDA_DRIVER").unwrap_or("12.2");
    let number = |text: &str| text.parse().unwrap_or(0);
    let (major, minor) = version.split_once('.').map_or((0, 0), |(major, minor)| (number(major), number(minor)));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-{major}.{minor}"));
    let installed = match install(&folder, (major, minor)) {
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
    let status = Command::new(program)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .env(CHOICE, scenario.name)
        .env(FOLDER, &folder)
        .env(LOG, &log)
        .env("ANYACCEL_CUDA_LIBRARY", installed.cuda)
        .env("ANYACCEL_NVML_LIBRARY", installed.nvml)
        .env("ANYACCEL_FAKE_CUDA_MEMORY", (64_u64 << 20).to_string())
        .envs(scenario.variables.iter().copied())
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
