//! What a user of the runtime sees of this backend, on the fake driver: errors that name the kernel, and numbers that a card can't
//! make itself.
//!
//! What the fake is like is said by variables, and a library is loaded once a process. So each scenario runs in a process of
//! its own: this program starts itself for each.

use anyaccel::random::{Distribution, Generator, Options, Seed};
use anyaccel::{DType, Format, GraphOptions, Runtime, get_device_name};
use anyaccel_fake_level_zero::{Loader, install};
use anyaccel_kernels::device::{Program, spirv};
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

type Variables = &'static [(&'static str, &'static str)];

/// Its name, the variables of the fake, and what it does. A panic is its failure.
const ALL: &[(&str, Variables, fn())] = &[
    ("a_build_that_fails_names_kernel_and_log", &[], does_not_build),
    ("a_build_that_fails_late_names_kernel_and_log", &[("ANYACCEL_FAKE_ZE_LAZY", "1")], does_not_build_late),
    ("a_kernel_that_fails_is_named", &[("ANYACCEL_FAKE_ZE_FAIL", "zeKernelCreate:all:0x7ffffffe")], kernel_fails),
    ("float64_without_double_precision", &[("ANYACCEL_FAKE_ZE_DEVICES", "Plain:no64")], without_double),
];

/// Tells a process which scenario it is.
const CHOICE: &str = "ANYACCEL_TEST_SCENARIO";

fn main() -> ExitCode {
    if let Ok(name) = env::var(CHOICE) {
        let Some((_, _, run)) = ALL.iter().find(|(one, ..)| *one == name) else { return ExitCode::FAILURE };
        run();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for &(name, variables, _) in ALL {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let passed = passes(name, variables);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(name: &str, variables: Variables) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("level-zero-face");
    let (Ok(fake), Ok(program)) = (install(&folder, Loader::Own(1, 13)), env::current_exe()) else { return false };
    let mut command = Command::new(program);
    for inherited in ["ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"] {
        command.env_remove(inherited);
    }
    command.env(CHOICE, name).env("ANYACCEL_ZE_LIBRARY", fake.driver).env("ANYACCEL_BACKEND", "xpu");
    command.envs(variables.iter().copied()).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn good() -> &'static [u8] {
    spirv::Module::of(Program::FillPattern, false).code()
}

/// It ends in the middle of an instruction.
fn cut() -> &'static [u8] {
    &good()[..good().len() / 8 * 4]
}

fn refusal(code: &[u8], entry: &str) -> String {
    // SAFETY: it is not launched.
    let loaded = unsafe { Runtime::global().load_kernel((), Format::SpirV, code, entry) };
    loaded.expect_err("code that can't be used").to_string()
}

fn all_in(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

fn does_not_build() {
    all_in(&refusal(cut(), "mine"), &["xpu:0", "zeModuleCreate", "kernel \"mine\": ", "error"]);
    all_in(&refusal(good(), "mine"), &["xpu:0", "zeKernelCreate", "no kernel \"mine\""]);
    assert!(!refusal(good(), "mine").contains("compiler"), "it had nothing to say");
}

fn does_not_build_late() {
    let words = ["xpu:0", "zeKernelCreate", "kernel \"mine\"", "its compiler said: ", "error"];
    all_in(&refusal(cut(), "mine"), &words);
    // The device is none the worse for it.
    // SAFETY: it is not launched.
    drop(unsafe { Runtime::global().load_kernel((), Format::SpirV, good(), "fill_pattern") }.expect("a kernel"));
}

fn kernel_fails() {
    all_in(&refusal(good(), "fill_pattern"), &["xpu:0", "zeKernelCreate", "kernel \"fill_pattern\""]);
}

/// Numbers of a type and a distribution, drawn on a runtime.
fn drawn(runtime: &Runtime, dtype: DType, distribution: Distribution) -> Vec<u8> {
    let generator = Generator::seeded(Seed::from(7)).expect("a seed");
    let buffer = runtime.alloc(1000 * dtype.size() as u64).expect("memory");
    let stream = runtime.current_stream(()).expect("a stream");
    let options = Options { generator: Some(&generator), ..Options::default() };
    stream.random(&buffer.all(), dtype, distribution, &options).expect("numbers");
    buffer.to_vec().expect("bytes")
}

/// The host draws what the card can't, and nobody sees a difference.
fn without_double() {
    assert_eq!(get_device_name(0).expect("a name"), "Plain");
    let host = Runtime::builder().backend("host").build().expect("a runtime");
    let normal = Distribution::Normal { mean: 1.0, std: 2.0 };
    let uniform = Distribution::Uniform { from: 0.0, to: 1.0 };
    for distribution in [normal, uniform, Distribution::Exponential { lambda: 1.5 }] {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
            let here = drawn(&Runtime::global(), dtype, distribution);
            assert!(here == drawn(&host, dtype, distribution), "{dtype:?} {distribution:?}");
            assert!(here.iter().any(|&byte| byte != 0));
        }
    }
    // A graph has no host function to do it.
    let runtime = Runtime::global();
    let buffer = runtime.alloc(800).expect("memory");
    let graph = runtime.graph(GraphOptions::default());
    let captured =
        graph.capture(|| runtime.current_stream(())?.random(&buffer.all(), DType::F64, normal, &Options::default()));
    let refused = captured.and_then(|()| graph.replay()).expect_err("a graph that can't be").to_string();
    all_in(&refused, &["xpu:0", "random"]);
}
