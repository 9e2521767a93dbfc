//! The built-ins in OpenCL C on every OpenCL device of this machine, against the host, byte for byte.
//!
//! Without a driver each test says so and passes; if `ANYACCEL_REQUIRE` lists `opencl`, it fails instead.

#[path = "../cases/mod.rs"]
mod cases;
mod driver;

use anyaccel_kernels::Builtin;
use anyaccel_kernels::device::{Program, opencl};
use driver::Memory;
use std::sync::{Mutex, PoisonError};

/// PoCL sometimes finds no device while another thread asks, too.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs the cases of a program on every device, in every kind of memory that it has, in launches of several shapes.
fn on_every_device(program: Program, cases: fn() -> Vec<cases::Case>) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = match driver::devices() {
        Ok(devices) => devices,
        Err(reason) => {
            let required = std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == "opencl"));
            assert!(!required, "ANYACCEL_REQUIRE asks for opencl, but {reason}");
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let cases = cases();
    for device in devices {
        let features = device.features();
        let missing: Vec<Builtin> = program.builtins().filter(|&builtin| !opencl::has(builtin, &features)).collect();
        let built = device.build(opencl::source(program), opencl::options(&features));
        for memory in [Memory::Buffer, Memory::Svm, Memory::Usm] {
            if !device.has(memory) {
                continue;
            }
            let mut tried = 0;
            for (i, case) in cases.iter().enumerate() {
                if missing.contains(&case.builtin) || !features.fp64() && case.needs_fp64 {
                    continue;
                }
                let shape = cases::shape(i, device.max_threads(), features.fp64());
                case.check(shape, |plan, dst, src| built.launch(memory, case, plan, dst, src));
                tried += 1;
            }
            eprintln!(
                "{}: {} cases of {} equal in {memory:?}; not there: {missing:?}",
                device.name(),
                tried,
                program.name()
            );
            assert!(tried > 0 || !missing.is_empty());
        }
    }
}

#[test]
fn noop() {
    on_every_device(Program::Noop, cases::noop);
}

#[test]
fn fill_pattern() {
    on_every_device(Program::FillPattern, cases::fill_pattern);
}

#[test]
fn histogram() {
    on_every_device(Program::Histogram, cases::histogram);
}

#[test]
fn convert() {
    on_every_device(Program::Convert, cases::convert);
}

#[test]
fn random() {
    on_every_device(Program::Random, cases::random);
}
