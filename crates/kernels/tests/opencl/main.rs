//! The built-ins in OpenCL C, and in SPIR-V where that is taken, on every OpenCL device of this machine, against the host, byte
//! for byte.
//!
//! Without a driver each test says so and passes; if `ANYACCEL_REQUIRE` lists `opencl`, it fails instead. If it lists `spirv`, a
//! device that takes no SPIR-V is a failure, too.

#[path = "../cases/mod.rs"]
mod cases;
mod driver;

use anyaccel_kernels::Builtin;
use anyaccel_kernels::device::Program;
use anyaccel_kernels::device::opencl::{self, Features};
use anyaccel_kernels::device::spirv::Module;
use cases::Case;
use driver::{Built, Device};
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// PoCL sometimes finds no device while another thread asks, too.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn required(what: &str) -> bool {
    std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == what))
}

/// A form that the kernels come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Source,
    SpirV,
}

/// The forms that a device takes.
fn forms(device: &Device) -> Vec<Form> {
    if device.spirv() {
        return vec![Form::Source, Form::SpirV];
    }
    assert!(!required("spirv"), "ANYACCEL_REQUIRE asks for spirv, but {} takes none", device.name());
    eprintln!("{} takes no SPIR-V", device.name());
    vec![Form::Source]
}

fn build<'a>(device: &'a Device, program: Program, form: Form, features: &Features) -> Built<'a> {
    match form {
        Form::Source => device.build(opencl::source(program), opencl::options(features)),
        Form::SpirV => device.build_spirv(Module::of(program, features.fp64()).code()),
    }
}

/// Runs a test on every device; its turn ends with the value that comes along.
fn devices() -> (Vec<Device>, MutexGuard<'static, ()>) {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = driver::devices().unwrap_or_else(|reason| {
        assert!(!required("opencl"), "ANYACCEL_REQUIRE asks for opencl, but {reason}");
        eprintln!("skipped: {reason}");
        Vec::new()
    });
    (devices, turn)
}

/// Runs the cases of a program on every device, in every kind of memory that it has, in launches of several shapes.
fn on_every_device(program: Program, cases: fn() -> Vec<Case>) {
    let (devices, _turn) = devices();
    let cases = if devices.is_empty() { Vec::new() } else { cases() };
    for device in devices {
        let features = device.features();
        // As if the device had no double precision, too: then every 10th case is enough.
        let single = Features { double_fp_config: 0, ..features };
        for form in forms(&device) {
            for (features, step) in [(features, 1), (single, 10)] {
                on_a_device(&device, program, form, &features, step, &cases);
            }
        }
    }
}

/// Runs every `step`th case that a device with these features has.
fn on_a_device(device: &Device, program: Program, form: Form, features: &Features, step: usize, cases: &[Case]) {
    let missing: Vec<Builtin> = program.builtins().filter(|&builtin| !opencl::has(builtin, features)).collect();
    let built = build(device, program, form, features);
    for (other, memory) in device.memories().into_iter().enumerate() {
        // How a kernel is given its places matters less than what it computes.
        let step = if other == 0 { step } else { 10 };
        let mut tried = 0;
        for (i, case) in cases.iter().enumerate().step_by(step) {
            if missing.contains(&case.builtin) || !features.fp64() && case.needs_fp64 {
                continue;
            }
            let shape = cases::shape(i / step, device.max_threads(), features.fp64());
            case.check(shape, |plan, dst, src| built.launch(memory, case, plan, dst, src));
            tried += 1;
        }
        let (name, program, fp64) = (device.name(), program.name(), features.fp64());
        eprintln!(
            "{name}: {tried} cases of {program} equal from {form:?} in {memory:?}, fp64 {fp64}; not there: {missing:?}"
        );
        assert!(tried > 0 || !missing.is_empty());
    }
}

/// Launches of any built-in with any arguments; proptest's own variables say how many, and from which seed.
#[test]
fn anything() {
    let (devices, _turn) = devices();
    for device in devices {
        let features = device.features();
        let memories = device.memories();
        for form in forms(&device) {
            let built: Vec<_> = Program::ALL.iter().map(|&program| build(&device, program, form, &features)).collect();
            proptest!(|(seed: u64)| {
                let case = cases::anything(seed);
                if opencl::has(case.builtin, &features) && (features.fp64() || !case.needs_fp64) {
                    let program = Program::ALL.iter().position(|&program| program == Program::of(case.builtin));
                    let built = &built[program.expect("every program is listed")];
                    let memory = memories[seed as usize % memories.len()];
                    let shape = cases::shape(seed as usize / 8, device.max_threads(), features.fp64());
                    case.check(shape, |plan, dst, src| built.launch(memory, &case, plan, dst, src));
                }
            });
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
