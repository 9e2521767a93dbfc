//! The OpenCL devices of this machine keep the contract, in every form of memory that they have.
//!
//! Without a driver this says so and passes; if `ANYACCEL_REQUIRE` lists `opencl`, it fails instead. It is its own helper
//! for the cases that need a process of their own.

use anyaccel_cts::{Options, Subject, fork, run, subjects};
use anyaccel_hal::Kind;
use anyaccel_opencl::Addressing;
use std::process::ExitCode;

fn required() -> bool {
    std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|kind| kind.trim() == Kind::OPENCL.name()))
}

fn main() -> ExitCode {
    let by_default = subjects::opencl();
    let forms = Addressing::ALL.map(subjects::opencl_by);
    let mut all: Vec<Subject> = vec![by_default.clone()];
    all.extend(forms.iter().cloned());
    fork::child_main(&all);
    let options = |filter: &[&str]| Options {
        filter: filter.iter().map(|&one| one.into()).collect(),
        child: std::env::current_exe().ok(),
        require: if required() { vec![Kind::OPENCL] } else { Vec::new() },
        timeout: std::time::Duration::from_secs(120),
        ..Options::default()
    };
    // First the whole suite as anybody gets the devices.
    let report = run(&by_default, &options(&[]));
    println!("{report}");
    let mut ok = report.is_ok();
    if let Some(absent) = &report.absent {
        println!("SKIPPED: no OpenCL device here: {absent}");
        return if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Then each form of memory, with the cases that are about what is in memory.
    let about_memory = [
        "memory.*",
        "copy.*",
        "fill.*",
        "write.*",
        "order.*",
        "pinned.*",
        "peers.*",
        "builtins.*",
        "graph*",
        "copies.*",
    ];
    for subject in forms {
        let report = run(&subject, &Options { require: Vec::new(), ..options(&about_memory) });
        match &report.absent {
            // Which forms there are depends on the driver; one was tested above.
            Some(absent) => println!("SKIPPED: {}: {absent}", subject.name()),
            None => println!("{report}"),
        }
        ok &= report.is_ok();
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
