//! The built-ins in device languages: [`opencl`] has them as source, [`spirv`] as modules made of that, [`cuda`] as PTX and the
//! source that it was made of.
//!
//! There is one text for all languages. Beside the host code of each built-in lies its `device.c`, written in a dialect that
//! a header of a few macros turns into each language: `opencl.h` into OpenCL C, `cuda.h` into CUDA C++. So what is
//! proven of one language holds of the arithmetic in all. Conversions are computed on integers alone, and random floats with nothing but
//! additions, multiplications and `fma`: no result depends on a device's library, compiler flags or lack of double precision.
//!
//! # How a kernel is called
//!
//! - Its symbol is [`Builtin::name`]; it is part of the [`Program`] of its built-in.
//! - Its arguments are two for each place, in order: the memory (a pointer, or a buffer object) and an offset in bytes, u64. Then
//!   come the bytes of its `Params`, as one argument passed by value. A place needs no alignment beyond that of its built-in.
//! - It runs with any number of groups of any size along x, the other two dimensions being 1; [`plan`] tells good ones.
//!   Group-local memory is static: the launch brings none.

/// The strings of a program: the header of a language, then the text in the dialect.
macro_rules! sources {
    ($header:expr, $program:expr) => {
        match $program {
            Program::Noop => const { &$crate::device::join::<2>($header, Program::Noop) },
            Program::FillPattern => const { &$crate::device::join::<2>($header, Program::FillPattern) },
            Program::Convert => const { &$crate::device::join::<3>($header, Program::Convert) },
            Program::Histogram => const { &$crate::device::join::<2>($header, Program::Histogram) },
            Program::Random => const { &$crate::device::join::<8>($header, Program::Random) },
        }
    };
}
use sources;

pub mod cuda;
pub mod opencl;
mod plan;
pub mod spirv;

pub use plan::{Device, Plan, Planned, plan, planned};

use crate::Builtin;

/// Built-ins that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// [`Builtin::Noop`].
    Noop,
    /// [`Builtin::FillPattern`].
    FillPattern,
    /// [`Builtin::Convert`].
    Convert,
    /// [`Builtin::Histogram`].
    Histogram,
    /// All of [`random`](crate::random).
    Random,
}

impl Program {
    /// Every program.
    pub const ALL: &'static [Program] =
        &[Program::Noop, Program::FillPattern, Program::Convert, Program::Histogram, Program::Random];

    /// The program that a built-in is part of.
    pub const fn of(builtin: Builtin) -> Program {
        match builtin {
            Builtin::Noop => Program::Noop,
            Builtin::FillPattern => Program::FillPattern,
            Builtin::Convert => Program::Convert,
            Builtin::Histogram => Program::Histogram,
            _ => Program::Random,
        }
    }

    /// Its built-ins.
    pub fn builtins(self) -> impl Iterator<Item = Builtin> {
        Builtin::ALL.iter().copied().filter(move |&builtin| Program::of(builtin) == self)
    }

    /// A name for messages and files.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Noop => "noop",
            Program::FillPattern => "fill_pattern",
            Program::Convert => "convert",
            Program::Histogram => "histogram",
            Program::Random => "random",
        }
    }

    /// The parts of its text in the dialect, without the header of a language.
    const fn text(self) -> &'static [&'static str] {
        const NUMBER: &str = include_str!("../convert/number.c");
        match self {
            Program::Noop => &[include_str!("../noop/device.c")],
            Program::FillPattern => &[include_str!("../fill_pattern/device.c")],
            Program::Convert => &[NUMBER, include_str!("../convert/device.c")],
            Program::Histogram => &[include_str!("../histogram/device.c")],
            Program::Random => &[
                NUMBER,
                include_str!("../philox/device.c"),
                include_str!("../random/device/draw.c"),
                include_str!("../random/device/math.c"),
                include_str!("../random/device/integers.c"),
                include_str!("../random/device/floats.c"),
                include_str!("../random/device/permutation.c"),
            ],
        }
    }
}

/// `N` is one more than the parts of the program's text.
const fn join<const N: usize>(header: &'static str, program: Program) -> [&'static str; N] {
    let parts = program.text();
    assert!(parts.len() + 1 == N);
    let mut all = [header; N];
    let mut i = 1;
    while i < N {
        all[i] = parts[i - 1];
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests;
