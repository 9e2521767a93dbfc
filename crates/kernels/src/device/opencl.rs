//! The built-ins in OpenCL C.
//!
//! A program is built from the strings of [`source`], in order, with [`options`]. Nothing else may be among the options: some of
//! OpenCL's trade exact results for speed.

use super::Program;
use crate::Builtin;

/// `CL_FP_DENORM` of a floating-point configuration: subnormal numbers are kept.
const FP_DENORM: u64 = 1 << 0;
/// `CL_FP_INF_NAN`.
const FP_INF_NAN: u64 = 1 << 1;
/// `CL_FP_ROUND_TO_NEAREST`.
const FP_ROUND_TO_NEAREST: u64 = 1 << 2;

/// The group-local memory that [`Builtin::Histogram`] takes, in bytes.
const HISTOGRAM_LOCAL: u64 = 256 * 8 * 4;
/// The group-local memory that [`Builtin::RandomPermutation`] takes, in bytes.
const PERMUTATION_LOCAL: u64 = 2 * 4096 * 2 + 16 * 8;

/// What a device says of itself, in OpenCL's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `CL_DEVICE_VERSION`, major and minor.
    pub version: (u32, u32),
    /// `CL_DEVICE_ENDIAN_LITTLE`.
    pub little_endian: bool,
    /// `CL_DEVICE_SINGLE_FP_CONFIG`.
    pub single_fp_config: u64,
    /// `CL_DEVICE_DOUBLE_FP_CONFIG`, 0 where there is no double precision.
    pub double_fp_config: u64,
    /// `CL_DEVICE_LOCAL_MEM_SIZE`.
    pub local_memory: u64,
}

impl Features {
    /// Whether float64 is computed with, which random float64 needs: [`Device::fp64`](super::Device::fp64).
    pub const fn fp64(&self) -> bool {
        exact(self.double_fp_config)
    }
}

const fn exact(config: u64) -> bool {
    const ALL: u64 = FP_DENORM | FP_INF_NAN | FP_ROUND_TO_NEAREST;
    config & ALL == ALL
}

/// Whether the device gives a built-in's defined results. Where not, it has no such built-in, and the engine goes by way of
/// the host.
///
/// OpenCL 1.1 will do. Random floats need subnormal numbers and rounding to nearest in single precision, and two built-ins
/// some group-local memory.
pub const fn has(builtin: Builtin, features: &Features) -> bool {
    if !features.little_endian || features.version.0 < 1 || (features.version.0 == 1 && features.version.1 < 1) {
        return false;
    }
    match builtin {
        Builtin::Histogram => features.local_memory >= HISTOGRAM_LOCAL,
        Builtin::RandomPermutation => features.local_memory >= PERMUTATION_LOCAL,
        Builtin::RandomUniform
        | Builtin::RandomNormal
        | Builtin::RandomLogNormal
        | Builtin::RandomExponential
        | Builtin::RandomGeometric => exact(features.single_fp_config),
        _ => true,
    }
}

/// The strings of a program, for `clCreateProgramWithSource`.
pub const fn source(program: Program) -> &'static [&'static str] {
    const HEADER: &str = include_str!("opencl.h");
    super::sources!(HEADER, program)
}

/// The options to build a program with.
pub const fn options(features: &Features) -> &'static str {
    // OpenCL C 1.2 is what every later device takes, too; 1.1 is the default of the devices before.
    match (features.version.0 > 1 || features.version.1 >= 2, features.fp64()) {
        (true, true) => "-cl-std=CL1.2 -D ANYACCEL_F64",
        (true, false) => "-cl-std=CL1.2",
        (false, true) => "-D ANYACCEL_F64",
        (false, false) => "",
    }
}
