//! The libraries. Opening them starts nothing.

use super::table::{Cuda, Nvml, Nvrtc};
use anyaccel_kit::native::{Missing, NativeLibrary};

/// The driver, where it is looked for.
pub static CUDA: NativeLibrary<Cuda> = NativeLibrary::new(
    "ANYACCEL_CUDA_LIBRARY",
    if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] },
);
/// The management library.
pub static NVML: NativeLibrary<Nvml> = NativeLibrary::new(
    "ANYACCEL_NVML_LIBRARY",
    if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1", "libnvidia-ml.so"] },
);
/// The run-time compiler, the newest first.
static NVRTC: NativeLibrary<Nvrtc> = NativeLibrary::new(
    "ANYACCEL_NVRTC_LIBRARY",
    if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    },
);

/// The driver's table.
///
/// # Errors
/// Why there is none.
pub fn cuda() -> Result<&'static Cuda, Missing> {
    // SAFETY: N1, N2: NVIDIA's libraries, or what stands in for them.
    unsafe { CUDA.get(|library| library.table()) }
}

/// The management library's table.
///
/// # Errors
/// Why there is none.
pub fn nvml() -> Result<&'static Nvml, Missing> {
    // SAFETY: N1, N2: as above.
    unsafe { NVML.get(|library| library.table()) }
}

/// The run-time compiler's table.
///
/// # Errors
/// Why there is none.
pub fn nvrtc() -> Result<&'static Nvrtc, Missing> {
    // SAFETY: N1, N2: as above.
    unsafe { NVRTC.get(|library| library.table()) }
}
