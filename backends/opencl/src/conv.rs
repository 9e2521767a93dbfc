//! Statuses of OpenCL as faults.

use crate::sys::{BUILD_PROGRAM_FAILURE, MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_HOST_MEMORY, SUCCESS, Status};
use anyaccel_hal::{Fault, FaultKind};

/// A status as a result. `api` is the function that returned it.
pub(crate) fn check(api: &'static str, status: Status) -> Result<(), Fault> {
    if status == SUCCESS { Ok(()) } else { Err(fault(api, status)) }
}

/// An object that a function returned beside its status.
pub(crate) fn made<T>(api: &'static str, object: *mut T, status: Status) -> Result<*mut T, Fault> {
    match status {
        SUCCESS if object.is_null() => Err(Fault::new(FaultKind::Driver, api).note("null without an error")),
        SUCCESS => Ok(object),
        failed => Err(fault(api, failed)),
    }
}

/// The fault that a status is.
#[cold]
pub(crate) fn fault(api: &'static str, status: Status) -> Fault {
    let kind = match status {
        MEM_OBJECT_ALLOCATION_FAILURE | OUT_OF_HOST_MEMORY => FaultKind::OutOfMemory,
        BUILD_PROGRAM_FAILURE => FaultKind::Invalid,
        // CL_INVALID_VALUE and all that follow it. CL_OUT_OF_RESOURCES (-5) means anything, so nothing.
        -72..=-30 => FaultKind::Invalid,
        _ => FaultKind::Driver,
    };
    let fault = Fault::new(kind, api).code(status.into());
    match name(status) {
        Some(name) => fault.note(name),
        None => fault,
    }
}

/// The specification's name of a status, for those that are met.
fn name(status: Status) -> Option<&'static str> {
    Some(match status {
        -1 => "CL_DEVICE_NOT_FOUND",
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -3 => "CL_COMPILER_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -7 => "CL_PROFILING_INFO_NOT_AVAILABLE",
        -8 => "CL_MEM_COPY_OVERLAP",
        -11 => "CL_BUILD_PROGRAM_FAILURE",
        -13 => "CL_MISALIGNED_SUB_BUFFER_OFFSET",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -33 => "CL_INVALID_DEVICE",
        -34 => "CL_INVALID_CONTEXT",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -38 => "CL_INVALID_MEM_OBJECT",
        -42 => "CL_INVALID_BINARY",
        -44 => "CL_INVALID_PROGRAM",
        -45 => "CL_INVALID_PROGRAM_EXECUTABLE",
        -46 => "CL_INVALID_KERNEL_NAME",
        -48 => "CL_INVALID_KERNEL",
        -49 => "CL_INVALID_ARG_INDEX",
        -50 => "CL_INVALID_ARG_VALUE",
        -51 => "CL_INVALID_ARG_SIZE",
        -52 => "CL_INVALID_KERNEL_ARGS",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -55 => "CL_INVALID_WORK_ITEM_SIZE",
        -57 => "CL_INVALID_EVENT_WAIT_LIST",
        -58 => "CL_INVALID_EVENT",
        -59 => "CL_INVALID_OPERATION",
        -61 => "CL_INVALID_BUFFER_SIZE",
        -1001 => "CL_PLATFORM_NOT_FOUND_KHR",
        -1138 => "CL_INVALID_COMMAND_BUFFER_KHR",
        -1139 => "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR",
        -1140 => "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_free_can_mend_is_out_of_memory() {
        let kind = |status| check("f", status).map_err(|fault| fault.kind);
        assert_eq!(kind(0), Ok(()));
        assert_eq!([-4, -6].map(kind), [Err(FaultKind::OutOfMemory); 2]);
        assert_eq!([-30, -51, -54, -11].map(kind), [Err(FaultKind::Invalid); 4]);
        assert_eq!([-1, -5, -14, -9999].map(kind), [Err(FaultKind::Driver); 4]);
    }

    #[test]
    fn faults_carry_the_name_of_their_status() {
        assert_eq!(
            fault("clSetKernelArg", -51).to_string(),
            "clSetKernelArg: invalid use (code -51): CL_INVALID_ARG_SIZE"
        );
        assert_eq!(fault("clFlush", -7777).note, None);
    }

    #[test]
    fn a_null_object_is_never_a_success() {
        let mut one = 1_u8;
        assert_eq!(made("f", &raw mut one, 0), Ok(&raw mut one));
        assert!(made::<u8>("f", std::ptr::null_mut(), 0).is_err());
        assert!(made("f", &raw mut one, -4).is_err());
    }
}
