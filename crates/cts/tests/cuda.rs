//! The CUDA backend keeps the contract, on a driver library of this repository's own, with the symbols of each version.
//!
//! This program starts itself once for each version, so that each run loads its own library. Without
//! `ANYACCEL_FAKE_CUDA_VERSIONS=all` it runs one of them: a run takes more than a minute.

use anyaccel_cts::{Options, Step, Subject, fork, run, subjects};
use anyaccel_fake_cuda::{Installed, install};
use anyaccel_hal::Kind;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Drivers of these versions of CUDA.
const VERSIONS: [(u32, u32); 5] = [(12, 2), (11, 8), (12, 0), (12, 8), (13, 0)];
/// In the processes that run the suite: where their fake is.
const FOLDER: &str = "ANYACCEL_CTS_FAKE_CUDA";

/// The backend with a way to lose its devices. A lost card is healed before the next driver is made, for which a real one
/// needs a new process.
fn subject(installed: Option<Installed>) -> Subject {
    let control = installed.and_then(|installed| installed.control().ok());
    subjects::cuda().remade(move |made| {
        let Some(control) = control else { return made };
        control.heal();
        made.loses(move |ordinal| control.lose(ordinal))
    })
}

fn main() -> ExitCode {
    let installed = env::var_os(FOLDER).map(|folder| {
        let folder = PathBuf::from(folder);
        Installed { cuda: folder.join("libcuda.so.1"), nvml: folder.join("libnvidia-ml.so.1") }
    });
    let version = env::var("ANYACCEL_FAKE_CUDA_DRIVER");
    if installed.is_none() {
        let filter: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
        let all = env::var_os("ANYACCEL_FAKE_CUDA_VERSIONS").is_some_and(|which| which == "all");
        let versions = &VERSIONS[..if all { VERSIONS.len() } else { 1 }];
        let good = versions.iter().all(|&version| conforms(version, &filter));
        println!("{} of {} versions of the driver were used", versions.len(), VERSIONS.len());
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let subject = subject(installed).named("cuda");
    fork::child_main(std::slice::from_ref(&subject));
    let filter: Vec<String> = env::args().skip(1).collect();
    let child = env::current_exe().ok();
    let verbose = env::var_os("ANYACCEL_CTS_VERBOSE").is_some();
    let watch: fn(Step<'_>) = if verbose { |step| step.print() } else { |_| () };
    let require = vec![Kind::CUDA];
    // A case that fails in the middle may leave a hold behind that memory is waited for with, here as on a card: what is merely
    // slow must not end so.
    let timeout = Duration::from_secs(120);
    let report = run(&subject, &Options { filter, child, require, watch, timeout, ..Options::default() });
    println!("{}{report}", version.map_or_else(|_| String::new(), |version| format!("a driver of CUDA {version}: ")));
    if report.is_ok() && report.absent.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the suite in a process that loads a driver of that version.
fn conforms((major, minor): (u32, u32), filter: &[String]) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-cuda-{major}.{minor}"));
    let installed = match install(&folder, (major, minor)) {
        Ok(installed) => installed,
        Err(error) => {
            println!("no fake driver: {error}");
            return false;
        }
    };
    let Ok(program) = env::current_exe() else { return false };
    let status = Command::new(program)
        .args(filter)
        .env(FOLDER, &folder)
        .env("ANYACCEL_CUDA_LIBRARY", &installed.cuda)
        .env("ANYACCEL_NVML_LIBRARY", &installed.nvml)
        .env("ANYACCEL_FAKE_CUDA_DRIVER", format!("{major}.{minor}"))
        .env("ANYACCEL_FAKE_CUDA_MEMORY", (192_u64 << 20).to_string())
        .env("ANYACCEL_FAKE_CUDA_LATE", "abort")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .status();
    status.is_ok_and(|status| status.success())
}
