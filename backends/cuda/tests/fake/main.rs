//! The backend on the fake driver: what the conformance suite has no words for.

mod compiler;
mod discovery;
mod failure;
mod graphs;
mod kernels;
mod lab;
mod sharing;

use anyaccel_fake::scenario;
use anyaccel_fake_cuda::install;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) use scenario::Scenario;

fn main() -> ExitCode {
    let all = [compiler::ALL, discovery::ALL, failure::ALL, graphs::ALL, kernels::ALL, sharing::ALL];
    scenario::run(&all, "ANYACCEL_FAKE_CUDA_LOG", prepare)
}

/// Lets a process find the fake, as a driver of the version that it takes itself for.
fn prepare(scenario: &Scenario, process: &mut Command) -> io::Result<PathBuf> {
    let version = scenario.value("ANYACCEL_FAKE_CUDA_DRIVER").unwrap_or("12.2");
    let number = |text: &str| text.parse().unwrap_or(0);
    let (major, minor) = version.split_once('.').map_or((0, 0), |(major, minor)| (number(major), number(minor)));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-{major}.{minor}"));
    let installed = install(&folder, (major, minor))?;
    process
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .env("ANYACCEL_CUDA_LIBRARY", installed.cuda)
        .env("ANYACCEL_NVML_LIBRARY", installed.nvml)
        .env("ANYACCEL_FAKE_CUDA_MEMORY", (64_u64 << 20).to_string());
    Ok(folder)
}
