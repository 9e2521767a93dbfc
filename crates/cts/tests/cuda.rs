//! The CUDA backend keeps the contract, on a driver library of this repository's own, with the symbols of each version.
//!
//! This program starts itself once for each version, so that each run loads its own library. Without
//! `ANYACCEL_FAKE_CUDA_VERSIONS=all` it runs one of them: a run takes more than a minute.

mod fake_driver;

use anyaccel_cts::subjects;
use anyaccel_fake_cuda::{Installed, install};
use anyaccel_hal::Kind;
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Drivers of these versions of CUDA.
const VERSIONS: [(u32, u32); 5] = [(12, 2), (11, 8), (12, 0), (12, 8), (13, 0)];
/// In the processes that run the suite: where their fake is.
const FOLDER: &str = "ANYACCEL_CTS_FAKE_CUDA";

fn main() -> ExitCode {
    if let Some(folder) = env::var_os(FOLDER) {
        let control = Installed::at(Path::new(&folder)).control().ok();
        let version = env::var("ANYACCEL_FAKE_CUDA_DRIVER").unwrap_or_default();
        return fake_driver::conforms(subjects::cuda(), Kind::CUDA, control, &format!("a driver of CUDA {version}"));
    }
    let filter = fake_driver::filter();
    let all = env::var_os("ANYACCEL_FAKE_CUDA_VERSIONS").is_some_and(|which| which == "all");
    let versions = &VERSIONS[..if all { VERSIONS.len() } else { 1 }];
    let good = versions.iter().all(|&version| conforms(version, &filter));
    println!("{} of {} versions of the driver were used", versions.len(), VERSIONS.len());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
