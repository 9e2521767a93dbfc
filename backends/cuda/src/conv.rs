//! What native codes mean: which faults callers act upon.

use crate::sys::*;
use anyaccel_hal::{Fault, FaultKind};
use std::ffi::{CStr, c_char};

/// A native call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The export.
    pub api: &'static str,
    /// What it returned, or [`ABSENT`].
    pub code: Code,
}

/// Whether a code poisons its context: every later call on the device returns it.
pub(crate) const fn is_sticky(code: Code) -> bool {
    matches!(
        code,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

const fn kind(code: Code) -> FaultKind {
    match code {
        CUDA_ERROR_OUT_OF_MEMORY => FaultKind::OutOfMemory,
        ABSENT
        | CUDA_ERROR_NOT_SUPPORTED
        | CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
        | CUDA_ERROR_UNSUPPORTED_LIMIT
        | CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUDA_ERROR_JIT_COMPILER_NOT_FOUND => FaultKind::Unsupported,
        CUDA_ERROR_NOT_READY => FaultKind::NotReady,
        CUDA_ERROR_INVALID_VALUE
        | CUDA_ERROR_INVALID_DEVICE
        | CUDA_ERROR_INVALID_IMAGE
        | CUDA_ERROR_INVALID_PTX
        | CUDA_ERROR_INVALID_SOURCE
        | CUDA_ERROR_INVALID_HANDLE
        | CUDA_ERROR_NOT_FOUND
        | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        | CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        | CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        | CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        | CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        | CUDA_ERROR_CAPTURED_EVENT
        | CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => FaultKind::Invalid,
        code if is_sticky(code) => FaultKind::DeviceLost,
        _ => FaultKind::Driver,
    }
}

/// The name of a code that faults are often about; the driver is not asked for those.
const fn name(code: Code) -> Option<&'static str> {
    Some(match code {
        ABSENT => "this driver does not export it",
        CUDA_ERROR_NOT_INITIALIZED => "CUDA_ERROR_NOT_INITIALIZED",
        CUDA_ERROR_INVALID_VALUE => "CUDA_ERROR_INVALID_VALUE",
        CUDA_ERROR_INVALID_CONTEXT => "CUDA_ERROR_INVALID_CONTEXT",
        CUDA_ERROR_INVALID_HANDLE => "CUDA_ERROR_INVALID_HANDLE",
        CUDA_ERROR_INVALID_IMAGE => "CUDA_ERROR_INVALID_IMAGE",
        CUDA_ERROR_INVALID_PTX => "CUDA_ERROR_INVALID_PTX",
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION => "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        CUDA_ERROR_NO_BINARY_FOR_GPU => "CUDA_ERROR_NO_BINARY_FOR_GPU",
        CUDA_ERROR_ILLEGAL_ADDRESS => "CUDA_ERROR_ILLEGAL_ADDRESS",
        CUDA_ERROR_LAUNCH_TIMEOUT => "CUDA_ERROR_LAUNCH_TIMEOUT",
        CUDA_ERROR_LAUNCH_FAILED => "CUDA_ERROR_LAUNCH_FAILED",
        CUDA_ERROR_ECC_UNCORRECTABLE => "CUDA_ERROR_ECC_UNCORRECTABLE",
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED => "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        _ => return None,
    })
}

impl Failed {
    /// The fault that tells of it.
    pub(crate) fn fault(self) -> Fault {
        let fault = Fault::new(kind(self.code), self.api);
        let fault = if self.code == ABSENT { fault } else { fault.code(self.code.into()) };
        match name(self.code) {
            Some(name) => fault.note(name),
            None => match self.told_name() {
                Some(name) => fault.note(name),
                None => fault,
            },
        }
    }

    /// What the driver calls its code, so that nobody is sent to a header.
    fn told_name(self) -> Option<String> {
        let cuda = cuda().ok().filter(|_| self.api.starts_with("cu"))?;
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: a valid place for the answer; asking starts nothing.
        unsafe { cuda.cuGetErrorName(self.code, &raw mut name) }.ok().filter(|()| !name.is_null())?;
        // SAFETY: a C string of the driver's, for as long as it is loaded.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_the_kinds_that_callers_act_upon() {
        let kind = |code| Failed { api: "cuTest", code }.fault().kind;
        assert_eq!(kind(CUDA_ERROR_OUT_OF_MEMORY), FaultKind::OutOfMemory);
        assert_eq!(kind(CUDA_ERROR_NOT_READY), FaultKind::NotReady);
        assert_eq!(kind(CUDA_ERROR_ILLEGAL_ADDRESS), FaultKind::DeviceLost);
        assert_eq!(kind(CUDA_ERROR_LAUNCH_FAILED), FaultKind::DeviceLost);
        assert_eq!(kind(ABSENT), FaultKind::Unsupported);
        assert_eq!(kind(CUDA_ERROR_NOT_INITIALIZED), FaultKind::Driver);
        assert_eq!(kind(12_345), FaultKind::Driver);
    }

    #[test]
    fn a_fault_names_call_and_code() {
        let fault = Failed { api: "cuMemAlloc_v2", code: CUDA_ERROR_INVALID_VALUE }.fault();
        assert_eq!(fault.to_string(), "cuMemAlloc_v2: invalid use (code 1): CUDA_ERROR_INVALID_VALUE");
    }
}
