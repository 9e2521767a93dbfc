//! The built-ins in SPIR-V 1.0, which every OpenCL 2.1 and Level Zero driver takes.
//!
//! The modules of this tree were made of [`opencl::source`](super::opencl::source) by `cargo xtask spirv`, with Debian 12's clang
//! and llvm-spirv. They are left unoptimised, since the translator has no words for what LLVM's optimiser makes (vector reductions,
//! integers of odd widths); the driver that takes them optimises. Every kernel says that products and sums stay apart.
//!
//! A module is built without options: those that Level Zero has beside levels of optimisation trade exact results for speed. Whether a
//! device gives a built-in's defined results is what [`opencl::has`](super::opencl::has) tells: the floating-point flags of
//! `ze_device_module_properties_t` are the bits of OpenCL's.

use super::Program;

/// The bytes of a file, aligned as words.
macro_rules! words {
    ($path:literal) => {
        const { &Words(*include_bytes!($path)).0 }
    };
}

#[repr(C, align(4))]
struct Words<const N: usize>([u8; N]);

/// What the source is compiled with, as options of clang beside those that name input and output.
pub const OPTIONS: &[&str] =
    &["--target=spir64", "-x", "cl", "-cl-std=CL1.2", "-O0", "-Xclang", "-disable-O0-optnone", "-ffp-contract=off"];

/// What clang's bitcode is translated with, as options of llvm-spirv.
pub const TRANSLATION: &[&str] = &["--spirv-max-version=1.0", "--spirv-fp-contract=off"];

/// A module of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The program.
    pub program: Program,
    /// Whether it computes with float64. A device that lacks it refuses a module that does.
    pub fp64: bool,
}

impl Module {
    /// Every module.
    pub const ALL: &'static [Module] = &[
        Module::of(Program::Noop, false),
        Module::of(Program::FillPattern, false),
        Module::of(Program::Convert, false),
        Module::of(Program::Histogram, false),
        Module::of(Program::Random, false),
        Module::of(Program::Random, true),
    ];

    /// The module for a device with or without float64. Most programs have one for both.
    pub const fn of(program: Program, fp64: bool) -> Module {
        Module { program, fp64: fp64 && matches!(program, Program::Random) }
    }

    /// Where it is checked in, from the root of the workspace on.
    pub const fn path(self) -> &'static str {
        match (self.program, self.fp64) {
            (Program::Noop, _) => "crates/kernels/src/noop/noop.spv",
            (Program::FillPattern, _) => "crates/kernels/src/fill_pattern/fill_pattern.spv",
            (Program::Convert, _) => "crates/kernels/src/convert/convert.spv",
            (Program::Histogram, _) => "crates/kernels/src/histogram/histogram.spv",
            (Program::Random, false) => "crates/kernels/src/random/device/random.spv",
            (Program::Random, true) => "crates/kernels/src/random/device/random_f64.spv",
        }
    }

    /// Its bytes, which begin at a multiple of 4: SPIR-V is a sequence of 32-bit words.
    pub const fn code(self) -> &'static [u8] {
        match (self.program, self.fp64) {
            (Program::Noop, _) => words!("../noop/noop.spv"),
            (Program::FillPattern, _) => words!("../fill_pattern/fill_pattern.spv"),
            (Program::Convert, _) => words!("../convert/convert.spv"),
            (Program::Histogram, _) => words!("../histogram/histogram.spv"),
            (Program::Random, false) => words!("../random/device/random.spv"),
            (Program::Random, true) => words!("../random/device/random_f64.spv"),
        }
    }
}
