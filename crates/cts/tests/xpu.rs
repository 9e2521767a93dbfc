//! The XPU backend keeps the contract, over the loader that the machine has with a driver of this repository's own, and over
//! loaders and drivers of other versions.
//!
//! This program starts itself once for each way, so that each run loads its own libraries. Without `ANYACCEL_FAKE_ZE_WAYS=all` it
//! runs the first that it can: a run takes more than a minute.

mod fake_driver;

use anyaccel_cts::subjects;
use anyaccel_fake_level_zero::{FOREIGN, Installed, Loader, install};
use anyaccel_hal::Kind;
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A way to reach the fake.
struct Way {
    name: &'static str,
    loader: Loader,
    /// Variables that only this way sets.
    variables: &'static [(&'static str, &'static str)],
}

/// The ways. Those over the real loader need it installed (`libze1`).
const WAYS: [Way; 6] = [
    Way { name: "real loader", loader: Loader::Real, variables: &[] },
    Way {
        name: "real loader with its validation layer",
        loader: Loader::Real,
        variables: &[("ZE_ENABLE_VALIDATION_LAYER", "1"), ("ZE_ENABLE_PARAMETER_VALIDATION", "1")],
    },
    Way { name: "loader of 1.13", loader: Loader::Own(1, 13), variables: &[] },
    Way {
        name: "loader of 1.13, driver without order, graphs and virtual memory",
        loader: Loader::Own(1, 13),
        variables: &[("ANYACCEL_FAKE_ZE_WITHOUT", "in_order,graph,virtual_memory,host_function")],
    },
    Way {
        name: "real loader, driver of 1.3 with Sysman",
        loader: Loader::Real,
        variables: &[("ANYACCEL_FAKE_ZE_API", "1.3"), ("ZES_ENABLE_SYSMAN", "1")],
    },
    Way {
        name: "loader of 1.9, cards of two tiles",
        loader: Loader::Own(1, 9),
        variables: &[
            ("ANYACCEL_FAKE_ZE_DEVICES", "Fake XPU:tiles2,Fake XPU:tiles2"),
            ("ANYACCEL_FAKE_ZE_API", "1.9"),
            ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"),
        ],
    },
];

/// In the processes that run the suite: where their fake is, and which way it is.
const FOLDER: &str = "ANYACCEL_CTS_FAKE_ZE";
const WAY: &str = "ANYACCEL_CTS_FAKE_ZE_WAY";

fn main() -> ExitCode {
    if let Some(folder) = env::var_os(FOLDER) {
        let name = env::var(WAY).unwrap_or_default();
        let Some(way) = WAYS.iter().find(|way| way.name == name) else { return ExitCode::FAILURE };
        let control = Installed::at(Path::new(&folder), way.loader).control().ok();
        return fake_driver::conforms(subjects::xpu(), Kind::XPU, control, way.name);
    }
    let filter = fake_driver::filter();
    let all = env::var_os("ANYACCEL_FAKE_ZE_WAYS").is_some_and(|which| which == "all");
    // All means all: where the loader of the machine is missing, the ways over it fail.
    let ways: Vec<&Way> =
        if all { WAYS.iter().collect() } else { WAYS.iter().find(|way| way.possible()).into_iter().collect() };
    let bad: Vec<&str> = ways.iter().filter(|way| !way.conforms(&filter)).map(|way| way.name).collect();
    println!("{} of {} ways to a driver were used", ways.len(), WAYS.len());
    bad.iter().for_each(|name| println!("FAIL  {name}"));
    if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Way {
    fn possible(&self) -> bool {
        self.loader != Loader::Real || anyaccel_xpu::sys::loader().is_ok()
    }

    /// Runs the suite in a process that loads a driver this way.
    fn conforms(&self, filter: &[String]) -> bool {
        let name: String = self.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-ze-{name}"));
        let installed = match install(&folder, self.loader) {
            Ok(installed) => installed,
            Err(error) => {
                println!("no fake driver: {error}");
                return false;
            }
        };
        let Ok(program) = env::current_exe() else { return false };
        let mut command = Command::new(program);
        command.args(filter).env(FOLDER, &folder).env(WAY, self.name);
        FOREIGN.iter().for_each(|name| _ = command.env_remove(name));
        match installed.loader {
            Some(loader) => command.env("ANYACCEL_ZE_LIBRARY", loader),
            None => command.env("ZE_ENABLE_ALT_DRIVERS", installed.driver),
        };
        command.env("ANYACCEL_FAKE_ZE_MEMORY", (192_u64 << 20).to_string());
        command.envs(self.variables.iter().copied());
        command.status().is_ok_and(|status| status.success())
    }
}
