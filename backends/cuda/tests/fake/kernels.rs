//! Kernels of the user, in PTX and as binaries, and what is refused of them.

use crate::Scenario;
use crate::lab::{Lab, arg, calls, eventually};
use anyaccel_hal::{Arg, FaultKind, Format, Launch};
use anyaccel_kernels::{Builtin, fill_pattern};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("ptx_runs", ptx_runs),
    Scenario::new("ptx_runs_on_a_driver_that_tells_parameters", ptx_runs)
        .with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "13.0")]),
    Scenario::new("a_binary_runs", a_binary_runs),
    Scenario::new("ptx_that_does_not_assemble", does_not_assemble),
    Scenario::new("ptx_that_is_too_new", too_new).with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "11.8")]),
    Scenario::new("wrong_arguments_are_refused", wrong_arguments),
    Scenario::new("wrong_arguments_are_refused_by_what_the_driver_tells", wrong_arguments)
        .with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "12.8")]),
    Scenario::new("launches_beyond_limits_are_refused", beyond_limits),
    Scenario::new("memory_that_is_none", memory_that_is_none),
    Scenario::new("writes_of_any_length_and_place", writes),
    Scenario::new("drivers_of_a_process_share_code", drivers_share_code),
    Scenario::new("a_launch_loads_nothing", launch_loads_nothing),
    Scenario::new("a_launch_loads_nothing_that_a_driver_put_off", launch_loads_nothing)
        .with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "12.8")]),
];

/// Adds one to each of `count` words.
const INCREMENT: &str = include_str!("increment.ptx");
/// The same, assembled.
const BINARY: &[u8] = include_bytes!("increment.sm_75.cubin");

fn ptx_runs() {
    let lab = Lab::new();
    let stream = lab.stream();
    let kernel = lab.load(Format::Ptx, INCREMENT.as_bytes(), "increment").expect("a kernel");
    let place = lab.memory(4096);
    lab.fill(stream, place, 0, 4096).expect("a fill");
    for _ in 0..3 {
        let count = 1000_u32.to_le_bytes();
        lab.launch(stream, kernel, Launch::linear(4, 256), &[arg(place, 4000), Arg::Bytes(&count)]).expect("a launch");
    }
    let seen = lab.read(stream, place, 4096);
    let words = |part: &[u8]| part.chunks_exact(4).map(|word| word[0]).collect::<Vec<_>>();
    assert_eq!(words(&seen[..4000]), [3; 1000]);
    assert_eq!(words(&seen[4000..]), [0; 24]);
    let kernels = lab.device.kernels().expect("kernels");
    // SAFETY: H1, H4: all launches have ended.
    unsafe { kernels.unload(kernel) };
}

fn a_binary_runs() {
    let lab = Lab::new();
    let stream = lab.stream();
    lab.load(Format::Cubin, BINARY, "increment").expect("a kernel");
    let missing = lab.load(Format::Cubin, BINARY, "decrement").expect_err("it has no such function");
    assert_eq!(missing.kind, FaultKind::Invalid);
    let text = lab.load(Format::Cubin, INCREMENT.as_bytes(), "increment").expect_err("it is text");
    assert_eq!(text.kind, FaultKind::Invalid);
    lab.finish(stream).expect("an end");
}

fn does_not_assemble() {
    let lab = Lab::new();
    let bad = INCREMENT.replace("add.s32", "frobnicate.s32");
    let fault = lab.load(Format::Ptx, bad.as_bytes(), "increment").expect_err("it does not assemble");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "cuModuleLoadDataEx", 218));
    let log = fault.note.expect("the log");
    assert!(log.contains("frobnicate.s32") && log.contains("line 27"), "{log}");
    let fault = lab.load(Format::Ptx, b"not even nearly", "increment").expect_err("it is no PTX");
    assert_eq!(fault.kind, FaultKind::Invalid);
    let fault = lab.load(Format::Ptx, INCREMENT.as_bytes(), "decrement").expect_err("it has no such function");
    assert_eq!((fault.kind, fault.api), (FaultKind::Invalid, "cuModuleGetFunction"));
    assert!(fault.note.is_some_and(|note| note.contains("decrement")));
    let fault = lab.load(Format::Ptx, INCREMENT.as_bytes(), "in\0crement").expect_err("it is no name");
    assert_eq!(fault.kind, FaultKind::Invalid);
    for format in [Format::SpirV, Format::OpenClC, Format::Msl] {
        let fault = lab.load(format, b"", "main").expect_err("another language");
        assert_eq!(fault.kind, FaultKind::Unsupported);
    }
    // The device goes on.
    lab.load(Format::Ptx, INCREMENT.as_bytes(), "increment").expect("a kernel");
}

fn too_new() {
    let lab = Lab::new();
    let newer = INCREMENT.replace(".version 6.0", ".version 8.2");
    let fault = lab.load(Format::Ptx, newer.as_bytes(), "increment").expect_err("the driver is older");
    assert_eq!((fault.kind, fault.code), (FaultKind::Unsupported, 222));
    assert!(fault.note.is_some_and(|note| note.contains("7.8")));
    let other = INCREMENT.replace("sm_50", "sm_100");
    let fault = lab.load(Format::Ptx, other.as_bytes(), "increment").expect_err("the card is older");
    assert_eq!((fault.kind, fault.code), (FaultKind::Unsupported, 209));
}

fn wrong_arguments() {
    let lab = Lab::new();
    let stream = lab.stream();
    let kernel = lab.load(Format::Ptx, INCREMENT.as_bytes(), "increment").expect("a kernel");
    let place = arg(lab.memory(64), 64);
    let wrong: [&[Arg<'_>]; 6] = [
        &[],
        &[place],
        &[place, place],
        &[place, Arg::Bytes(&[1; 8])],
        &[place, Arg::Local(4)],
        &[place, Arg::Bytes(&[1; 4]), place],
    ];
    for args in wrong {
        let fault = lab.launch(stream, kernel, Launch::linear(1, 1), args).expect_err("it was to be refused");
        assert_eq!(fault.kind, FaultKind::Invalid, "{args:?}");
    }
    // A place that is shorter than it says.
    let fault = lab
        .launch(stream, kernel, Launch::linear(1, 1), &[arg(lab.memory(64), 65), Arg::Bytes(&[1; 4])])
        .expect_err("it was to be refused");
    assert_eq!(fault.kind, FaultKind::Invalid);
    lab.finish(stream).expect("nothing was enqueued");
}

fn beyond_limits() {
    let lab = Lab::new();
    let stream = lab.stream();
    let kernel = lab.load(Format::Ptx, INCREMENT.as_bytes(), "increment").expect("a kernel");
    let limits = lab.device.kernels().expect("kernels").limits();
    let args = [arg(lab.memory(64), 64), Arg::Bytes(&[0; 4])];
    let launch = Launch::linear(1, 1);
    let wrong = [
        Launch { groups: [0, 1, 1], ..launch },
        Launch { threads: [1, 0, 1], ..launch },
        Launch { threads: [limits.max_threads + 1, 1, 1], ..launch },
        Launch { threads: [limits.max_threads, 2, 1], ..launch },
        Launch { threads: [u32::MAX, u32::MAX, 2], ..launch },
        Launch { groups: [1, limits.max_groups[1] + 1, 1], ..launch },
        Launch { groups: [1, 1, limits.max_groups[2] + 1], ..launch },
        Launch { shared: limits.max_shared + 1, ..launch },
    ];
    for launch in wrong {
        let fault = lab.launch(stream, kernel, launch, &args).expect_err("it was to be refused");
        assert_eq!(fault.kind, FaultKind::Invalid, "{launch:?}");
    }
    // More than a group has without being asked for.
    lab.launch(stream, kernel, Launch { shared: limits.max_shared, ..launch }, &args).expect("a launch");
    lab.launch(stream, kernel, Launch { threads: [limits.max_threads, 1, 1], ..launch }, &args).expect("a launch");
    lab.finish(stream).expect("an end");
}

fn memory_that_is_none() {
    let lab = Lab::new();
    let stream = lab.stream();
    let fault = lab.fill(stream, lab.nowhere(64), 1, 64).expect_err("there is no memory");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "cuMemsetD8Async", 1));
    lab.finish(stream).expect("nothing was enqueued");
}

fn writes() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(256);
    for len in 1..=64_usize {
        lab.fill(stream, place, 0xEE, 256).expect("a fill");
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        lab.write(stream, place.add(len as u64), &bytes).expect("a write");
        let seen = lab.read(stream, place, 256);
        assert_eq!(&seen[len..2 * len], bytes, "{len}");
        assert!(seen[..len].iter().chain(&seen[2 * len..]).all(|&byte| byte == 0xEE), "{len}");
    }
    assert_eq!(lab.write(stream, place, &[0; 65]).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
}

/// A second driver of the process, while the first one's work is held up: it finds the code loaded, also once the first is gone.
fn drivers_share_code() {
    let lab = Lab::new();
    let stream = lab.stream();
    let gates = lab.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    // SAFETY: H1.
    unsafe { gates.wait(stream, gate) }.expect("a wait");
    let loads = || calls().iter().filter(|call| *call == "cuModuleLoadDataEx").count();
    let before = loads();
    let other = Lab::new();
    assert_eq!(loads(), before);
    // SAFETY: H1.
    unsafe { gates.open(gate) }.expect("an open gate");
    lab.finish(stream).expect("an end");
    drop(lab);
    let (stream, place) = (other.stream(), other.memory(64));
    other.fill(stream, place, 0, 64).expect("a fill");
    other.write(stream, place, &[5; 64]).expect("a write");
    assert_eq!(other.read(stream, place, 64), [5; 64]);
    assert_eq!(loads(), before);
    drop(other);
    let ended = |name: &str| calls().iter().filter(|call| *call == name).count();
    eventually("both contexts go", || ended("cuDevicePrimaryCtxRelease_v2") == 2);
    assert_eq!(ended("cuModuleUnload"), before, "they go with the last driver");
    assert_eq!(ended("cuDevicePrimaryCtxRetain"), 2);
}

/// The fake waits for the device when it loads code. So what is launched beside a stream that is held up would never end, had
/// its code to be loaded.
fn launch_loads_nothing() {
    let lab = Lab::new();
    let (held, free) = (lab.stream(), lab.stream());
    let kernel = lab.load(Format::Ptx, INCREMENT.as_bytes(), "increment").expect("a kernel");
    let place = lab.memory(4096);
    let gates = lab.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    // SAFETY: H1.
    unsafe { gates.wait(held, gate) }.expect("a wait");
    let before = calls().len();
    lab.fill(free, place, 0, 4096).expect("a fill");
    lab.launch(free, kernel, Launch::linear(1, 1), &[arg(place, 64), Arg::Bytes(&[1, 0, 0, 0])]).expect("a launch");
    lab.write(free, place.add(64), &[7; 4]).expect("a write");
    let params = fill_pattern::Params { pattern: fill_pattern::Pattern::new(&[9]).expect("a pattern"), len: 64 };
    let builtin = |one: Builtin, args: &[Arg<'_>]| {
        let kernel = lab.device.builtin(one.number()).expect("a built-in");
        lab.launch(free, kernel, Launch::linear(1, 1), args).expect("a launch");
    };
    builtin(Builtin::FillPattern, &[arg(place.add(128), 64), Arg::Bytes(&params.to_bytes())]);
    assert_eq!(lab.read(free, place, 129), [&[1, 0, 0, 0][..], &[0; 60], &[7; 4], &[0; 60], &[9]].concat());
    let loading = ["cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncLoad"];
    let loaded: Vec<String> = calls().split_off(before).into_iter().filter(|call| loading.contains(&&**call)).collect();
    assert_eq!(loaded, [""; 0]);
    // All of them, though only some were launched.
    let count = |name: &str| calls().iter().filter(|call| *call == name).count();
    assert_eq!(
        count("cuModuleGetFunction"),
        Builtin::ALL.len() + 2,
        "the built-in ones, the writing one, and the user's"
    );
    // SAFETY: H1.
    unsafe { gates.open(gate) }.expect("an open gate");
    lab.finish(held).expect("an end");
}
