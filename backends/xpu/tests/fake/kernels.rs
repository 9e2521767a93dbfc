//! Kernels of the user: what is refused and why.

use crate::Scenario;
use crate::lab::{Lab, arg};
use anyaccel_hal::{Arg, FaultKind, Format, KernelSource, Launch};
use anyaccel_kernels::device::{Program, spirv};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("a_kernel_of_the_user_runs", runs),
    Scenario::new("a_module_that_does_not_build_brings_its_log", does_not_build),
    Scenario::new("a_module_that_does_not_build_beside_another_driver", does_not_build_beside)
        .with(&[(crate::REAL_LOADER, "1")]),
    Scenario::new("code_that_is_none", no_code),
    Scenario::new("sizes_beyond_limits", beyond_limits),
    Scenario::new("arguments_that_do_not_fit", bad_arguments),
];

fn fill_pattern() -> &'static [u8] {
    spirv::Module::of(Program::FillPattern, false).code()
}

/// The parameters of the built-in fill, as its kernel takes them.
fn params(byte: u8, len: u64) -> [u8; 24] {
    let mut params = [byte; 24];
    params[16..].copy_from_slice(&len.to_ne_bytes());
    params
}

fn runs() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(1000);
    lab.fill(stream, place, 0, 1000).expect("a fill");
    let kernel = lab.load(Format::SpirV, fill_pattern(), "fill_pattern").expect("a kernel");
    let (offset, params) = (100_u64.to_ne_bytes(), params(7, 50));
    let args = [arg(place, 1000), Arg::Bytes(&offset), Arg::Bytes(&params)];
    lab.launch(stream, kernel, Launch::linear(2, 32), &args).expect("a launch");
    let mut expected = [0; 1000];
    expected[100..150].fill(7);
    assert_eq!(lab.read(stream, place, 1000), expected);
}

fn does_not_build() {
    let lab = Lab::new();
    // The code ends in the middle of an instruction.
    let code = fill_pattern();
    let cut = &code[..code.len() / 8 * 4];
    let fault = lab.load(Format::SpirV, cut, "fill_pattern").expect_err("it can't be built");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "zeModuleCreate", 0x7000_0004));
    let note = fault.note.expect("the log");
    assert!(note.contains("error"), "{note}");
    let fault = lab.load(Format::SpirV, code, "no_such_kernel").expect_err("it has no such kernel");
    assert_eq!((fault.kind, fault.api), (FaultKind::Invalid, "zeKernelCreate"));
    assert!(fault.note.is_some_and(|note| note.contains("no_such_kernel")));
    // The device is none the worse for it.
    lab.load(Format::SpirV, code, "fill_pattern").expect("a kernel");
}

/// The loader of 1.8 would crash on the log.
fn does_not_build_beside() {
    if let Err(missing) = anyaccel_xpu::sys::loader() {
        println!("skipped: {missing}");
        return;
    }
    let lab = Lab::new();
    let code = fill_pattern();
    let fault = lab.load(Format::SpirV, &code[..code.len() / 8 * 4], "fill_pattern").expect_err("it can't be built");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "zeModuleCreate", 0x7000_0004));
    assert!(fault.note.is_some(), "the log, or why there is none");
    lab.load(Format::SpirV, code, "fill_pattern").expect("a kernel");
}

fn no_code() {
    let lab = Lab::new();
    for code in [&b""[..], b"#version", b"\x03\x02\x23", &[0; 64]] {
        let fault = lab.load(Format::SpirV, code, "main").expect_err("no SPIR-V");
        assert_eq!((fault.kind, fault.api), (FaultKind::Invalid, "zeModuleCreate"));
    }
    let kernels = lab.device.kernels().expect("kernels");
    for format in [Format::Ptx, Format::OpenClC] {
        // SAFETY: refused.
        let loaded = unsafe { kernels.load(KernelSource::Code { format, code: b"code", entry: "main" }) };
        assert_eq!(loaded.expect_err("another format").kind, FaultKind::Unsupported);
    }
}

fn beyond_limits() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    let limits = lab.device.kernels().expect("kernels").limits();
    let kernel = lab.load(Format::SpirV, fill_pattern(), "fill_pattern").expect("a kernel");
    let (offset, params) = (0_u64.to_ne_bytes(), params(1, 64));
    let args = [arg(place, 64), Arg::Bytes(&offset), Arg::Bytes(&params)];
    let shapes = [
        Launch::linear(1, limits.max_threads + 1),
        Launch::linear(1, 0),
        Launch::linear(0, 1),
        Launch { groups: [1; 3], threads: [1 << 16, 1 << 16, 1], shared: 0 },
        Launch { shared: 64, ..Launch::linear(1, 1) },
    ];
    for shape in shapes {
        let fault = lab.launch(stream, kernel, shape, &args).expect_err("beyond limits");
        assert_eq!(fault.kind, FaultKind::Invalid, "{shape:?}: {fault}");
        assert!(fault.note.is_some(), "{shape:?} says what and how much");
    }
    lab.launch(stream, kernel, Launch::linear(1, limits.max_threads), &args).expect("the most");
    lab.finish(stream).expect("an end");
}

fn bad_arguments() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    let kernel = lab.load(Format::SpirV, fill_pattern(), "fill_pattern").expect("a kernel");
    let (offset, params) = (0_u64.to_ne_bytes(), params(1, 64));
    let lists: [&[Arg<'_>]; 4] = [
        &[],
        &[arg(place, 64), Arg::Bytes(&offset)],
        &[arg(place, 64), Arg::Bytes(&offset), Arg::Bytes(&params[..8])],
        &[arg(place, 65), Arg::Bytes(&offset), Arg::Bytes(&params)],
    ];
    for args in lists {
        let fault = lab.launch(stream, kernel, Launch::linear(1, 1), args).expect_err("they do not fit");
        assert_eq!(fault.kind, FaultKind::Invalid, "{args:?}: {fault}");
    }
    let args = [arg(place, 64), Arg::Bytes(&offset), Arg::Bytes(&params)];
    lab.launch(stream, kernel, Launch::linear(1, 1), &args).expect("they fit");
    assert_eq!(lab.read(stream, place, 64), [1; 64]);
}
