//! The functions of OpenCL that this backend calls, one line each. Versions are those of OpenCL or of the extension.

use super::{EventCallback, Properties, Raw, Status};
use anyaccel_kit::symbols;
use std::ffi::{c_char, c_void};

/// What a build of a program calls when it has ended. Never given.
type BuildCallback = *const c_void;
/// What a context calls to tell of errors. Never given.
type ContextCallback = *const c_void;

symbols! {
    /// The core of OpenCL, exported by the loader.
    pub(crate) struct Api;
    (1, 0) required clGetPlatformIDs(u32, *mut Raw, *mut u32) -> Status;
    (1, 0) required clGetPlatformInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clGetDeviceIDs(Raw, u64, u32, *mut Raw, *mut u32) -> Status;
    (1, 0) required clGetDeviceInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 2) required clGetExtensionFunctionAddressForPlatform(Raw, *const c_char) -> *mut c_void;
    (1, 0) required clCreateContext(Properties, u32, *const Raw, ContextCallback, *mut c_void, *mut Status) -> Raw;
    (1, 0) required clReleaseContext(Raw) -> Status;
    (2, 0) required clCreateCommandQueueWithProperties(Raw, Raw, Properties, *mut Status) -> Raw;
    (1, 0) required clReleaseCommandQueue(Raw) -> Status;
    (1, 0) required clFlush(Raw) -> Status;
    (1, 0) required clFinish(Raw) -> Status;
    (1, 0) required clWaitForEvents(u32, *const Raw) -> Status;
    (1, 0) required clGetEventInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clGetEventProfilingInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 1) required clSetEventCallback(Raw, Status, EventCallback, *mut c_void) -> Status;
    (1, 1) required clCreateUserEvent(Raw, *mut Status) -> Raw;
    (1, 1) required clSetUserEventStatus(Raw, Status) -> Status;
    (1, 0) required clRetainEvent(Raw) -> Status;
    (1, 0) required clReleaseEvent(Raw) -> Status;
    (1, 2) required clEnqueueMarkerWithWaitList(Raw, u32, *const Raw, *mut Raw) -> Status;
    (1, 2) required clEnqueueBarrierWithWaitList(Raw, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clCreateBuffer(Raw, u64, usize, *mut c_void, *mut Status) -> Raw;
    (1, 1) required clCreateSubBuffer(Raw, u64, u32, *const c_void, *mut Status) -> Raw;
    (3, 0) optional clCreateBufferWithProperties(Raw, Properties, u64, usize, *mut c_void, *mut Status) -> Raw;
    (1, 0) required clGetMemObjectInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clRetainMemObject(Raw) -> Status;
    (1, 0) required clReleaseMemObject(Raw) -> Status;
    (1, 0) required clEnqueueReadBuffer(Raw, Raw, u32, usize, usize, *mut c_void, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clEnqueueWriteBuffer(Raw, Raw, u32, usize, usize, *const c_void, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clEnqueueCopyBuffer(Raw, Raw, Raw, usize, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    (1, 2) required clEnqueueFillBuffer(Raw, Raw, *const c_void, usize, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clEnqueueMapBuffer(Raw, Raw, u32, u64, usize, usize, u32, *const Raw, *mut Raw, *mut Status) -> *mut c_void;
    (1, 0) required clEnqueueUnmapMemObject(Raw, Raw, *mut c_void, u32, *const Raw, *mut Raw) -> Status;
    (1, 2) required clEnqueueMigrateMemObjects(Raw, u32, *const Raw, u64, u32, *const Raw, *mut Raw) -> Status;
    (2, 0) optional clSVMAlloc(Raw, u64, usize, u32) -> *mut c_void;
    (2, 0) optional clSVMFree(Raw, *mut c_void);
    (2, 0) optional clEnqueueSVMMemcpy(Raw, u32, *mut c_void, *const c_void, usize, u32, *const Raw, *mut Raw) -> Status;
    (2, 0) optional clEnqueueSVMMemFill(Raw, *mut c_void, *const c_void, usize, usize, u32, *const Raw, *mut Raw) -> Status;
    (2, 1) optional clEnqueueSVMMigrateMem(Raw, u32, *const *const c_void, *const usize, u64, u32, *const Raw, *mut Raw) -> Status;
    (2, 0) optional clSetKernelArgSVMPointer(Raw, u32, *const c_void) -> Status;
    (1, 0) required clCreateProgramWithSource(Raw, u32, *const *const c_char, *const usize, *mut Status) -> Raw;
    (2, 1) optional clCreateProgramWithIL(Raw, *const c_void, usize, *mut Status) -> Raw;
    (1, 0) required clBuildProgram(Raw, u32, *const Raw, *const c_char, BuildCallback, *mut c_void) -> Status;
    (1, 0) required clGetProgramBuildInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clReleaseProgram(Raw) -> Status;
    (1, 0) required clCreateKernel(Raw, *const c_char, *mut Status) -> Raw;
    (1, 0) required clReleaseKernel(Raw) -> Status;
    (1, 0) required clGetKernelInfo(Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 2) required clGetKernelArgInfo(Raw, u32, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clGetKernelWorkGroupInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> Status;
    (1, 0) required clSetKernelArg(Raw, u32, usize, *const c_void) -> Status;
    (1, 0) required clEnqueueNDRangeKernel(Raw, Raw, u32, *const usize, *const usize, *const usize, u32, *const Raw, *mut Raw) -> Status;
}

symbols! {
    /// `cl_intel_unified_shared_memory`.
    pub(crate) struct Usm;
    (1, 0) required clDeviceMemAllocINTEL(Raw, Raw, Properties, usize, u32, *mut Status) -> *mut c_void;
    (1, 0) required clHostMemAllocINTEL(Raw, Properties, usize, u32, *mut Status) -> *mut c_void;
    (1, 0) required clMemFreeINTEL(Raw, *mut c_void) -> Status;
    (1, 0) required clSetKernelArgMemPointerINTEL(Raw, u32, *const c_void) -> Status;
    (1, 0) required clEnqueueMemcpyINTEL(Raw, u32, *mut c_void, *const c_void, usize, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clEnqueueMemFillINTEL(Raw, *mut c_void, *const c_void, usize, usize, u32, *const Raw, *mut Raw) -> Status;
}

symbols! {
    /// `cl_ext_buffer_device_address`.
    pub(crate) struct DeviceAddress;
    (1, 0) required clSetKernelArgDevicePointerEXT(Raw, u32, u64) -> Status;
}

symbols! {
    /// `cl_khr_command_buffer` as it was until 0.9.4: commands for buffers take no properties.
    pub(crate) struct Buffers09;
    (0, 9) required clCreateCommandBufferKHR(u32, *const Raw, Properties, *mut Status) -> Raw;
    (0, 9) required clFinalizeCommandBufferKHR(Raw) -> Status;
    (0, 9) required clReleaseCommandBufferKHR(Raw) -> Status;
    (0, 9) required clEnqueueCommandBufferKHR(u32, *mut Raw, Raw, u32, *const Raw, *mut Raw) -> Status;
    (0, 9) required clCommandCopyBufferKHR(Raw, Raw, Raw, Raw, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    (0, 9) required clCommandFillBufferKHR(Raw, Raw, Raw, *const c_void, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    (0, 9) required clCommandNDRangeKernelKHR(Raw, Raw, Properties, Raw, u32, *const usize, *const usize, *const usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
}

symbols! {
    /// The same from 0.9.5 on, which 1.0 kept: every command takes properties.
    pub(crate) struct Buffers10;
    (1, 0) required clCreateCommandBufferKHR(u32, *const Raw, Properties, *mut Status) -> Raw;
    (1, 0) required clFinalizeCommandBufferKHR(Raw) -> Status;
    (1, 0) required clReleaseCommandBufferKHR(Raw) -> Status;
    (1, 0) required clEnqueueCommandBufferKHR(u32, *mut Raw, Raw, u32, *const Raw, *mut Raw) -> Status;
    (1, 0) required clCommandCopyBufferKHR(Raw, Raw, Properties, Raw, Raw, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    (1, 0) required clCommandFillBufferKHR(Raw, Raw, Properties, Raw, *const c_void, usize, usize, usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
    (1, 0) required clCommandNDRangeKernelKHR(Raw, Raw, Properties, Raw, u32, *const usize, *const usize, *const usize, u32, *const u32, *mut u32, *mut Raw) -> Status;
}
