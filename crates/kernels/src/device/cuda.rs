//! The built-ins in CUDA C++ and PTX.
//!
//! The PTX of this tree was made of [`source`] by `cargo xtask ptx`, for compute capability 6.0 in the PTX ISA of CUDA 11.8, which
//! every driver since takes. A program takes no options; its kernels' places are addresses.

use super::Program;

/// What the source is compiled with, as options of NVRTC. Products and sums stay apart, and subnormal numbers are kept.
pub const OPTIONS: &[&str] = &["--gpu-architecture=compute_60", "--fmad=false", "--ftz=false"];

/// The strings of a program, which are one source in this order.
pub const fn source(program: Program) -> &'static [&'static str] {
    const HEADER: &str = include_str!("cuda.h");
    super::sources!(HEADER, program)
}

/// Where the PTX of a program is checked in, from the root of the workspace on.
pub const fn ptx_path(program: Program) -> &'static str {
    match program {
        Program::Noop => "crates/kernels/src/noop/noop.ptx",
        Program::FillPattern => "crates/kernels/src/fill_pattern/fill_pattern.ptx",
        Program::Convert => "crates/kernels/src/convert/convert.ptx",
        Program::Histogram => "crates/kernels/src/histogram/histogram.ptx",
        Program::Random => "crates/kernels/src/random/device/random.ptx",
    }
}

/// A program as PTX.
pub const fn ptx(program: Program) -> &'static str {
    match program {
        Program::Noop => include_str!("../noop/noop.ptx"),
        Program::FillPattern => include_str!("../fill_pattern/fill_pattern.ptx"),
        Program::Convert => include_str!("../convert/convert.ptx"),
        Program::Histogram => include_str!("../histogram/histogram.ptx"),
        Program::Random => include_str!("../random/device/random.ptx"),
    }
}
