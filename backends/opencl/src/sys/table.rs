//! The functions of OpenCL that this backend calls, one line each: whether it can do without, since which version or
//! extension the specification has it, and its type.

use super::{EventCallback, Properties, Raw, Status};
use std::ffi::{CStr, c_char, c_void};

/// A function that has to be there and is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MissingSymbol {
    pub(crate) name: &'static str,
    pub(crate) since: &'static str,
}

macro_rules! field {
    (required, $kind:ty) => { $kind };
    (optional, $kind:ty) => { Option<$kind> };
}

macro_rules! found {
    (required, $pointer:expr, $kind:ty, $missing:expr) => {
        match $pointer {
            pointer if pointer.is_null() => return Err($missing),
            // SAFETY: C5, and it is not null.
            pointer => unsafe { std::mem::transmute::<*mut c_void, $kind>(pointer) },
        }
    };
    (optional, $pointer:expr, $kind:ty, $missing:expr) => {
        match $pointer {
            pointer if pointer.is_null() => None,
            // SAFETY: C5, and it is not null.
            pointer => Some(unsafe { std::mem::transmute::<*mut c_void, $kind>(pointer) }),
        }
    };
}

macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $($need:ident $since:literal $name:ident($($arg:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names are those of the specification")]
        pub(crate) struct $table {
            $(pub(crate) $name: field!($need, unsafe extern "C" fn($($arg),*) $(-> $result)?),)*
        }

        impl $table {
            /// The functions that `find` finds, which answers null for the others.
            ///
            /// # Safety
            /// What `find` finds has the type that the specification gives that name (C5).
            pub(crate) unsafe fn load(find: &dyn Fn(&CStr) -> *mut c_void) -> Result<Self, MissingSymbol> {
                Ok(Self { $($name: {
                    let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c"");
                    found!(
                        $need,
                        find(name),
                        unsafe extern "C" fn($($arg),*) $(-> $result)?,
                        MissingSymbol { name: stringify!($name), since: $since }
                    )
                },)* })
            }
        }
    };
}

/// What a build of a program calls when it has ended. Never given.
type BuildCallback = *const c_void;
/// What a context calls to tell of errors. Never given.
type ContextCallback = *const c_void;

table! {
    /// The core of OpenCL, exported by the loader.
    Api:
    required "1.0" clGetPlatformIDs(u32, *mut Raw, *mut u32) -> Status;
    required "1.0" clGetPlatformInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clGetDeviceIDs(Raw, u64, u32, *mut Raw, *mut u32) -> Status;
    required "1.0" clGetDeviceInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.2" clGetExtensionFunctionAddressForPlatform(Raw, *const c_char) -> *mut c_void;
    required "1.0" clCreateContext(Properties, u32, *const Raw, ContextCallback, *mut c_void, *mut Status) -> Raw;
    required "1.0" clReleaseContext(Raw) -> Status;
    required "2.0" clCreateCommandQueueWithProperties(Raw, Raw, Properties, *mut Status) -> Raw;
    required "1.0" clReleaseCommandQueue(Raw) -> Status;
    required "1.0" clFlush(Raw) -> Status;
    required "1.0" clFinish(Raw) -> Status;
    required "1.0" clWaitForEvents(u32, *const Raw) -> Status;
    required "1.0" clGetEventInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clGetEventProfilingInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.1" clSetEventCallback(Raw, Status, EventCallback, *mut c_void) -> Status;
    required "1.1" clCreateUserEvent(Raw, *mut Status) -> Raw;
    required "1.1" clSetUserEventStatus(Raw, Status) -> Status;
    required "1.0" clRetainEvent(Raw) -> Status;
    required "1.0" clReleaseEvent(Raw) -> Status;
    required "1.2" clEnqueueMarkerWithWaitList(Raw, u32, *const Raw, *mut Raw) -> Status;
    required "1.2" clEnqueueBarrierWithWaitList(Raw, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clCreateBuffer(Raw, u64, usize, *mut c_void, *mut Status) -> Raw;
    required "1.1" clCreateSubBuffer(Raw, u64, u32, *const c_void, *mut Status) -> Raw;
    optional "3.0" clCreateBufferWithProperties(Raw, Properties, u64, usize, *mut c_void, *mut Status) -> Raw;
    required "1.0" clGetMemObjectInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clRetainMemObject(Raw) -> Status;
    required "1.0" clReleaseMemObject(Raw) -> Status;
    required "1.0" clEnqueueReadBuffer(Raw, Raw, u32, usize, usize, *mut c_void, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clEnqueueWriteBuffer(Raw, Raw, u32, usize, usize, *const c_void, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clEnqueueCopyBuffer(Raw, Raw, Raw, usize, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    required "1.2" clEnqueueFillBuffer(Raw, Raw, *const c_void, usize, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clEnqueueMapBuffer(Raw, Raw, u32, u64, usize, usize, u32, *const Raw, *mut Raw, *mut Status) -> *mut c_void;
    required "1.0" clEnqueueUnmapMemObject(Raw, Raw, *mut c_void, u32, *const Raw, *mut Raw) -> Status;
    required "1.2" clEnqueueMigrateMemObjects(Raw, u32, *const Raw, u64, u32, *const Raw, *mut Raw) -> Status;
    optional "2.0" clSVMAlloc(Raw, u64, usize, u32) -> *mut c_void;
    optional "2.0" clSVMFree(Raw, *mut c_void);
    optional "2.0" clEnqueueSVMMemcpy(Raw, u32, *mut c_void, *const c_void, usize, u32, *const Raw, *mut Raw) -> Status;
    optional "2.0" clEnqueueSVMMemFill(Raw, *mut c_void, *const c_void, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    optional "2.1" clEnqueueSVMMigrateMem(Raw, u32, *const *const c_void, *const usize, u64, u32, *const Raw, *mut Raw) -> Status;
    optional "2.0" clSetKernelArgSVMPointer(Raw, u32, *const c_void) -> Status;
    required "1.0" clCreateProgramWithSource(Raw, u32, *const *const c_char, *const usize, *mut Status) -> Raw;
    optional "2.1" clCreateProgramWithIL(Raw, *const c_void, usize, *mut Status) -> Raw;
    required "1.0" clBuildProgram(Raw, u32, *const Raw, *const c_char, BuildCallback, *mut c_void) -> Status;
    required "1.0" clGetProgramBuildInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clReleaseProgram(Raw) -> Status;
    required "1.0" clCreateKernel(Raw, *const c_char, *mut Status) -> Raw;
    required "1.0" clReleaseKernel(Raw) -> Status;
    required "1.0" clGetKernelInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.2" clGetKernelArgInfo(Raw, u32, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clGetKernelWorkGroupInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    required "1.0" clSetKernelArg(Raw, u32, usize, *const c_void) -> Status;
    required "1.0" clEnqueueNDRangeKernel(Raw, Raw, u32, *const usize, *const usize, *const usize, u32, *const Raw, *mut Raw) -> Status;
}

table! {
    /// `cl_intel_unified_shared_memory`.
    Usm:
    required "1.0" clDeviceMemAllocINTEL(Raw, Raw, Properties, usize, u32, *mut Status) -> *mut c_void;
    required "1.0" clHostMemAllocINTEL(Raw, Properties, usize, u32, *mut Status) -> *mut c_void;
    required "1.0" clMemFreeINTEL(Raw, *mut c_void) -> Status;
    required "1.0" clSetKernelArgMemPointerINTEL(Raw, u32, *const c_void) -> Status;
    required "1.0" clEnqueueMemcpyINTEL(Raw, u32, *mut c_void, *const c_void, usize, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clEnqueueMemFillINTEL(Raw, *mut c_void, *const c_void, usize, usize, u32, *const Raw, *mut Raw) -> Status;
}

table! {
    /// `cl_ext_buffer_device_address`.
    DeviceAddress:
    required "1.0" clSetKernelArgDevicePointerEXT(Raw, u32, u64) -> Status;
}

table! {
    /// `cl_khr_command_buffer` as it was until 0.9.4: commands for buffers take no properties.
    Buffers09:
    required "0.9" clCreateCommandBufferKHR(u32, *const Raw, Properties, *mut Status) -> Raw;
    required "0.9" clFinalizeCommandBufferKHR(Raw) -> Status;
    required "0.9" clReleaseCommandBufferKHR(Raw) -> Status;
    required "0.9" clEnqueueCommandBufferKHR(u32, *mut Raw, Raw, u32, *const Raw, *mut Raw) -> Status;
    required "0.9" clCommandCopyBufferKHR(Raw, Raw, Raw, Raw, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    required "0.9" clCommandFillBufferKHR(Raw, Raw, Raw, *const c_void, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    required "0.9" clCommandNDRangeKernelKHR(Raw, Raw, Properties, Raw, u32, *const usize, *const usize, *const usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
}

table! {
    /// The same from 0.9.5 on, which 1.0 kept: every command takes properties.
    Buffers10:
    required "1.0" clCreateCommandBufferKHR(u32, *const Raw, Properties, *mut Status) -> Raw;
    required "1.0" clFinalizeCommandBufferKHR(Raw) -> Status;
    required "1.0" clReleaseCommandBufferKHR(Raw) -> Status;
    required "1.0" clEnqueueCommandBufferKHR(u32, *mut Raw, Raw, u32, *const Raw, *mut Raw) -> Status;
    required "1.0" clCommandCopyBufferKHR(Raw, Raw, Properties, Raw, Raw, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    required "1.0" clCommandFillBufferKHR(Raw, Raw, Properties, Raw, *const c_void, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    required "1.0" clCommandNDRangeKernelKHR(Raw, Raw, Properties, Raw, u32, *const usize, *const usize, *const usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
}
