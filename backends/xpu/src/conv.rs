//! What native codes mean: which faults callers act upon.

use crate::sys::*;
use anyaccel_hal::{Fault, FaultKind};

/// A native call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The export.
    pub api: &'static str,
    /// What it returned, or [`ABSENT`].
    pub code: Code,
}

/// Whether a code says that the device is gone for good.
pub(crate) const fn is_lost(code: Code) -> bool {
    matches!(code, ZE_RESULT_ERROR_DEVICE_LOST | ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET)
}

const fn kind(code: Code) -> FaultKind {
    match code {
        ZE_RESULT_NOT_READY => FaultKind::NotReady,
        ZE_RESULT_ERROR_DEVICE_LOST | ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET => FaultKind::DeviceLost,
        ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY | ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY => FaultKind::OutOfMemory,
        ABSENT
        | ZE_RESULT_ERROR_UNSUPPORTED_VERSION
        | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
        | ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION
        | ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE => FaultKind::Unsupported,
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE
        | ZE_RESULT_ERROR_MODULE_LINK_FAILURE
        | ZE_RESULT_ERROR_INVALID_ARGUMENT
        | ZE_RESULT_ERROR_INVALID_NULL_HANDLE
        | ZE_RESULT_ERROR_INVALID_NULL_POINTER
        | ZE_RESULT_ERROR_INVALID_SIZE
        | ZE_RESULT_ERROR_UNSUPPORTED_SIZE
        | ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT
        | ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT
        | ZE_RESULT_ERROR_INVALID_ENUMERATION
        | ZE_RESULT_ERROR_INVALID_NATIVE_BINARY
        | ZE_RESULT_ERROR_INVALID_GLOBAL_NAME
        | ZE_RESULT_ERROR_INVALID_KERNEL_NAME
        | ZE_RESULT_ERROR_INVALID_FUNCTION_NAME
        | ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION
        | ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION
        | ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
        | ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE
        | ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE
        | ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED
        | ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE
        | ZE_RESULT_ERROR_OVERLAPPING_REGIONS => FaultKind::Invalid,
        _ => FaultKind::Driver,
    }
}

impl Failed {
    /// The fault that tells of it: which call, the code, and the code's name.
    pub(crate) fn fault(self) -> Fault {
        let fault = Fault::new(kind(self.code), self.api);
        if self.code == ABSENT {
            return fault.note("this loader does not export it");
        }
        let fault = fault.code(self.code.into());
        match code_name(self.code) {
            Some(name) => fault.note(name),
            None => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_the_kinds_that_callers_act_upon() {
        let kind = |code| Failed { api: "zeTest", code }.fault().kind;
        assert_eq!(kind(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY), FaultKind::OutOfMemory);
        assert_eq!(kind(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY), FaultKind::OutOfMemory);
        assert_eq!(kind(ZE_RESULT_NOT_READY), FaultKind::NotReady);
        assert_eq!(kind(ZE_RESULT_ERROR_DEVICE_LOST), FaultKind::DeviceLost);
        assert_eq!(kind(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE), FaultKind::Invalid);
        assert_eq!(kind(ABSENT), FaultKind::Unsupported);
        assert_eq!(kind(ZE_RESULT_ERROR_UNINITIALIZED), FaultKind::Driver);
        assert_eq!(kind(12_345), FaultKind::Driver);
    }

    #[test]
    fn out_of_device_memory_is_told_from_out_of_host_memory() {
        let text = |code| Failed { api: "zeMemAllocDevice", code }.fault().to_string();
        assert!(text(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY).ends_with("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"));
        assert!(text(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY).ends_with("ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"));
    }
}
