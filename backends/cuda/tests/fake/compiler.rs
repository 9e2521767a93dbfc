//! CUDA C++, compiled by a real NVRTC, which needs no card.
//!
//! Where none is installed each scenario says so and passes; if `ANYACCEL_REQUIRE` lists `nvrtc`, it fails instead. Which one
//! is loaded says `ANYACCEL_NVRTC_LIBRARY`.

use crate::Scenario;
use crate::lab::{Lab, arg};
use anyaccel::{LaunchArg, Runtime};
use anyaccel_cuda::{compile, compiler_version};
use anyaccel_hal::{Arg, FaultKind, Format, Launch};
use std::env;

/// A driver that reads the PTX of every compiler so far.
const NEWEST: &[(&str, &str)] = &[("ANYACCEL_FAKE_CUDA_DRIVER", "13.9")];

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("nvrtc_makes_ptx_that_loads", ptx_that_loads).with(NEWEST),
    Scenario::new("nvrtc_newer_than_the_driver", newer_than_the_driver),
    Scenario::new("nvrtc_tells_lines", lines_are_told),
    Scenario::new("nvrtc_takes_options", options),
    Scenario::new("nvrtc_behind_the_face", behind_the_face).with(NEWEST),
    Scenario::new("nvrtc_on_several_threads", several_threads),
    Scenario::new("no_compiler_has_a_reason", no_compiler)
        .with(&[("ANYACCEL_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so")]),
];

const SOURCE: &str = r#"extern "C" __global__ void increment(unsigned int *words, unsigned int count)
{
    unsigned int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) {
        words[at] += STEP;
    }
}
"#;
const STEP: &str = "--define-macro=STEP=1";

/// The version of the compiler, if there is one.
fn installed() -> Option<(u32, u32)> {
    match compiler_version() {
        Ok(version) => {
            println!("NVRTC of CUDA {}.{}", version.0, version.1);
            Some(version)
        }
        Err(fault) => {
            let required = env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == "nvrtc"));
            assert!(!required, "ANYACCEL_REQUIRE asks for nvrtc, but {fault}");
            println!("skipped: {fault}");
            None
        }
    }
}

fn text(ptx: Vec<u8>) -> String {
    String::from_utf8(ptx).expect("text")
}

fn ptx_that_loads() {
    let Some(_version) = installed() else { return };
    let ptx = compile(SOURCE, &[STEP, "--gpu-architecture=compute_90"]).expect("it compiles");
    assert!(!ptx.contains(&0), "the zero at the end is no part of it");
    let lab = Lab::new();
    let stream = lab.stream();
    let kernel = lab.load(Format::Ptx, &ptx, "increment").expect("a kernel");
    let place = lab.memory(4096);
    lab.fill(stream, place, 0, 4096).expect("a fill");
    let count = 1000_u32.to_le_bytes();
    lab.launch(stream, kernel, Launch::linear(4, 256), &[arg(place, 4096), Arg::Bytes(&count)]).expect("a launch");
    assert_eq!(lab.read(stream, place, 4000), [1, 0, 0, 0].repeat(1000));
    // Its parameters were understood.
    let few = lab.launch(stream, kernel, Launch::linear(1, 1), &[arg(place, 4096)]);
    assert_eq!(few.map_err(|fault| fault.kind), Err(FaultKind::Invalid));
}

/// The fake is a driver of CUDA 12.2.
fn newer_than_the_driver() {
    let Some(version) = installed() else { return };
    let ptx = compile(SOURCE, &[STEP]).expect("it compiles");
    let loaded = Lab::new().load(Format::Ptx, &ptx, "increment");
    if version <= (12, 2) {
        loaded.expect("a kernel");
        return;
    }
    let fault = loaded.expect_err("the driver does not read it");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Unsupported, "cuModuleLoadDataEx", 222));
    assert!(fault.note.is_some_and(|note| note.contains("8.2")), "what it reads is told");
}

fn lines_are_told() {
    let Some(_version) = installed() else { return };
    let fault = compile(SOURCE, &[]).expect_err("STEP is not defined");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "nvrtcCompileProgram", 6));
    let log = fault.note.expect("the log");
    assert!(log.contains("kernel.cu(5): error:") && log.contains("STEP"), "{log}");
    let fault = compile("#include <nowhere.h>\n", &[]).expect_err("there is no such file");
    assert!(fault.note.as_deref().is_some_and(|log| log.contains("kernel.cu(1)") && log.contains("nowhere.h")));
    // What is wrong in many lines is told of each.
    let wrong: String = (0..50).map(|at| format!("int wrong{at} = missing{at};\n")).collect();
    let log = compile(&wrong, &[]).expect_err("nothing is defined").note.expect("the log");
    for at in 0..50 {
        assert!(log.contains(&format!("kernel.cu({}): error", at + 1)), "{log}");
    }
}

fn options() {
    let Some(_version) = installed() else { return };
    let target = |architecture: &str| {
        compile(SOURCE, &[STEP, &format!("--gpu-architecture={architecture}")])
            .map(|ptx| text(ptx).lines().any(|line| line == ".target sm_80"))
    };
    assert_eq!(target("compute_80"), Ok(true));
    assert_eq!(target("sm_80"), Ok(true));
    assert_eq!(target("compute_90"), Ok(false));
    for (wrong, word) in [("--gpu-architecture=compute_12345", "gpu-architecture"), ("--no-such-option", "no-such")] {
        let fault = compile(SOURCE, &[STEP, wrong]).expect_err(wrong);
        assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "nvrtcCompileProgram", 5));
        assert!(fault.note.is_some_and(|log| log.contains(word)), "{wrong}");
    }
    let fault = compile(SOURCE, &[STEP, "-dlto"]).expect_err("that makes no PTX");
    assert_eq!((fault.kind, fault.api), (FaultKind::Invalid, "nvrtcGetPTX"));
    for fault in [compile("a\0b", &[]), compile(SOURCE, &["-D\0"])].map(|made| made.expect_err("a zero")) {
        assert_eq!((fault.kind, fault.api), (FaultKind::Invalid, "nvrtcCreateProgram"));
    }
    assert!(!text(compile("", &[]).expect("nothing compiles, too")).contains(".entry"));
}

fn several_threads() {
    let Some(_version) = installed() else { return };
    let options = [STEP, "--gpu-architecture=compute_80"];
    let alone = compile(SOURCE, &options).expect("it compiles");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|at| {
                let wrong = format!("\n\nint wrong = missing{at};\n");
                scope.spawn(move || (compile(SOURCE, &options), compile(&wrong, &[])))
            })
            .collect();
        for (at, thread) in threads.into_iter().enumerate() {
            let (right, wrong) = thread.join().expect("no panic");
            assert_eq!(right.as_ref(), Ok(&alone));
            let log = wrong.expect_err("nothing is defined").note.expect("the log");
            assert!(log.contains("kernel.cu(3): error") && log.contains(&format!("missing{at}")), "{log}");
        }
    });
}

/// Source is a program like any other.
fn behind_the_face() {
    let Some(_version) = installed() else { return };
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let formats = runtime.kernel_formats(()).expect("formats");
    assert_eq!(formats.last(), Some(&Format::CudaC), "{formats:?}");
    let load = |source: &str, entry: &str| {
        // SAFETY: launched below with the arguments that it expects.
        unsafe { runtime.load_kernel((), Format::CudaC, source.as_bytes(), entry) }
    };
    let source = SOURCE.replace("STEP", "1");
    let kernel = load(&source, "increment").expect("a kernel");
    let (stream, buffer) = (runtime.current_stream(()).expect("a stream"), runtime.zeros(4000).expect("memory"));
    let args = [LaunchArg::Buffer(buffer.all()), LaunchArg::Bytes(&1000_u32.to_le_bytes())];
    // SAFETY: as above.
    unsafe { stream.launch(&kernel, Launch::linear(4, 256), &args) }.expect("a launch");
    assert_eq!(buffer.to_vec().expect("bytes"), [1, 0, 0, 0].repeat(1000));
    let broken = load(&source.replace("words[at]", "word[at]"), "increment").expect_err("it does not compile");
    assert!(broken.to_string().contains("kernel.cu(5)"), "{broken}");
    let missing = load(&source, "decrement").expect_err("it has no such function");
    assert!(missing.to_string().contains("decrement"), "{missing}");
}

fn no_compiler() {
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    assert_eq!(runtime.kernel_formats(()).expect("formats"), [Format::Cubin, Format::Ptx]);
    // SAFETY: nothing is loaded.
    let refused = unsafe { runtime.load_kernel((), Format::CudaC, SOURCE.as_bytes(), "increment") };
    let refused = refused.expect_err("there is none").to_string();
    assert!(refused.contains("/nonexistent/libnvrtc.so"), "{refused}");
    for fault in [compile(SOURCE, &[]).map(drop), compiler_version().map(drop)] {
        let fault = fault.expect_err("there is none");
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert!(fault.note.is_some_and(|note| note.contains("/nonexistent/libnvrtc.so")));
    }
}
