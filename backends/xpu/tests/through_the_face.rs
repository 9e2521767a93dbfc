//! What a user of the runtime sees of this backend, on the fake driver: errors that name the kernel, and numbers that a card can't
//! make itself.

use anyaccel::random::{Distribution, Generator, Options, Seed};
use anyaccel::{DType, Format, GraphOptions, Runtime, get_device_name};
use anyaccel_fake::scenario::{self, Scenario};
use anyaccel_fake_level_zero::{FOREIGN, Loader, install};
use anyaccel_kernels::device::{Program, spirv};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const ALL: &[Scenario] = &[
    Scenario::new("a_build_that_fails_names_kernel_and_log", does_not_build),
    Scenario::new("a_build_that_fails_late_names_kernel_and_log", does_not_build_late)
        .with(&[("ANYACCEL_FAKE_ZE_LAZY", "1")]),
    Scenario::new("a_kernel_that_fails_is_named", kernel_fails)
        .with(&[("ANYACCEL_FAKE_ZE_FAIL", "zeKernelCreate:all:0x7ffffffe")]),
    Scenario::new("float64_without_double_precision", without_double)
        .with(&[("ANYACCEL_FAKE_ZE_DEVICES", "Plain:no64")]),
];

fn main() -> ExitCode {
    scenario::run(&[ALL], "ANYACCEL_FAKE_ZE_LOG", prepare)
}

/// Lets a process find the fake, as the backend that it uses.
fn prepare(_scenario: &Scenario, process: &mut Command) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("level-zero-face");
    let fake = install(&folder, Loader::Own(1, 13))?;
    FOREIGN.iter().for_each(|name| _ = process.env_remove(name));
    process.env("ANYACCEL_ZE_LIBRARY", fake.driver).env("ANYACCEL_BACKEND", "xpu");
    Ok(folder)
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
