//! Handles, structs and numbers of the native interfaces, laid out as the published headers say.
//!
//! Handles are pointers of the driver's that nobody else follows, so they are held as numbers here.

#![allow(non_snake_case, reason = "the interface's own names")]
#![allow(missing_docs, reason = "the names are the interface's own, its documentation describes them")]

use anyaccel_kit::handles;
use std::ffi::{c_char, c_void};

handles!(
    CUcontext,
    CUstream,
    CUevent,
    CUmodule,
    CUfunction,
    CUgraph,
    CUgraphExec,
    CUgraphNode,
    NvmlDevice,
    NvrtcProgram
);

pub type CUdevice = i32;
pub type CUdeviceptr = u64;
pub type CUmemGenericAllocationHandle = u64;
pub type CUhostFn = unsafe extern "C" fn(*mut c_void);

/// What a native call returned.
pub type Code = u32;

/// Not a code of any library: the export is not in the one that was loaded.
pub const ABSENT: Code = u32::MAX;

pub const CUDA_SUCCESS: Code = 0;
pub const CUDA_ERROR_INVALID_VALUE: Code = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: Code = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: Code = 3;
pub const CUDA_ERROR_DEINITIALIZED: Code = 4;
pub const CUDA_ERROR_NO_DEVICE: Code = 100;
pub const CUDA_ERROR_INVALID_DEVICE: Code = 101;
pub const CUDA_ERROR_INVALID_IMAGE: Code = 200;
pub const CUDA_ERROR_INVALID_CONTEXT: Code = 201;
pub const CUDA_ERROR_NO_BINARY_FOR_GPU: Code = 209;
pub const CUDA_ERROR_ECC_UNCORRECTABLE: Code = 214;
pub const CUDA_ERROR_UNSUPPORTED_LIMIT: Code = 215;
pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: Code = 217;
pub const CUDA_ERROR_INVALID_PTX: Code = 218;
pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: Code = 220;
pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: Code = 221;
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: Code = 222;
pub const CUDA_ERROR_CONTAINED: Code = 226;
pub const CUDA_ERROR_INVALID_SOURCE: Code = 300;
pub const CUDA_ERROR_INVALID_HANDLE: Code = 400;
pub const CUDA_ERROR_NOT_FOUND: Code = 500;
pub const CUDA_ERROR_NOT_READY: Code = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: Code = 700;
pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: Code = 701;
pub const CUDA_ERROR_LAUNCH_TIMEOUT: Code = 702;
pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: Code = 704;
pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: Code = 705;
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: Code = 709;
pub const CUDA_ERROR_ASSERT: Code = 710;
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub const CUDA_ERROR_HARDWARE_STACK_ERROR: Code = 714;
pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: Code = 715;
pub const CUDA_ERROR_MISALIGNED_ADDRESS: Code = 716;
pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: Code = 717;
pub const CUDA_ERROR_INVALID_PC: Code = 718;
pub const CUDA_ERROR_LAUNCH_FAILED: Code = 719;
pub const CUDA_ERROR_TENSOR_MEMORY_LEAK: Code = 721;
pub const CUDA_ERROR_NOT_PERMITTED: Code = 800;
pub const CUDA_ERROR_NOT_SUPPORTED: Code = 801;
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: Code = 900;
pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: Code = 901;
pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: Code = 904;
pub const CUDA_ERROR_CAPTURED_EVENT: Code = 907;
pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: Code = 908;
pub const CUDA_ERROR_EXTERNAL_DEVICE: Code = 911;
pub const CUDA_ERROR_UNKNOWN: Code = 999;

pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: i32 = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: i32 = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: i32 = 6;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: i32 = 7;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: i32 = 13;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: i32 = 16;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: i32 = 18;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: i32 = 33;
pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: i32 = 34;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: i32 = 41;
pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: i32 = 50;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: i32 = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: i32 = 76;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: i32 = 99;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: i32 = 102;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: i32 = 125;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: i32 = 115;

pub const CU_STREAM_NON_BLOCKING: u32 = 1;
pub const CU_EVENT_BLOCKING_SYNC: u32 = 1;
pub const CU_EVENT_DISABLE_TIMING: u32 = 2;
pub const CU_EVENT_INTERPROCESS: u32 = 4;
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;
pub const CU_STREAM_WAIT_VALUE_GEQ: u32 = 0;
pub const CU_STREAM_WAIT_VALUE_EQ: u32 = 1;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_32: u32 = 1;
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: u32 = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: u32 = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: u32 = 2;
pub const CU_STREAM_CAPTURE_STATUS_NONE: u32 = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: u32 = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: u32 = 2;
pub const CU_MEMORYTYPE_HOST: u32 = 1;
pub const CU_MEMORYTYPE_DEVICE: u32 = 2;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: u32 = 1;
pub const CU_MEM_LOCATION_TYPE_DEVICE: u32 = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: u32 = 3;
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: u32 = 0;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: i32 = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: i32 = 1;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
pub const CU_JIT_INFO_LOG_BUFFER: u32 = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: u32 = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE: u32 = 1;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub gridDim: [u32; 3],
    pub blockDim: [u32; 3],
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMCPY3D_v2 {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: u32,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: usize,
    pub reserved0: usize,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: u32,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: usize,
    pub reserved1: usize,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS_v1 {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS_v1 {
    pub func: CUhostFn,
    pub userData: *mut c_void,
}

/// The wait of a `CUstreamBatchMemOpParams`, padded to the union's size.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUstreamMemOpWaitValueParams {
    pub operation: u32,
    pub address: CUdeviceptr,
    pub value: u64,
    pub flags: u32,
    pub alias: CUdeviceptr,
    pub pad: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamMemOpWaitValueParams,
    pub flags: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemLocation {
    pub kind: u32,
    pub id: i32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemAllocationProp {
    pub kind: u32,
    pub requestedHandleTypes: u32,
    pub location: CUmemLocation,
    pub win32HandleMetaData: usize,
    pub allocFlags: [u8; 8],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUipcEventHandle {
    pub reserved: [u8; 64],
}

pub const NVML_SUCCESS: Code = 0;
pub const NVML_ERROR_UNINITIALIZED: Code = 1;
pub const NVML_ERROR_INVALID_ARGUMENT: Code = 2;
pub const NVML_ERROR_NOT_SUPPORTED: Code = 3;
pub const NVML_ERROR_NOT_FOUND: Code = 6;
pub const NVML_ERROR_INSUFFICIENT_SIZE: Code = 7;
pub const NVML_ERROR_DRIVER_NOT_LOADED: Code = 9;
pub const NVML_ERROR_GPU_IS_LOST: Code = 15;
pub const NVML_TEMPERATURE_GPU: u32 = 0;
pub const NVML_CLOCK_SM: u32 = 1;
pub const NVML_MEMORY_V2: u32 = 0x0200_0028;

pub const NVRTC_ERROR_OUT_OF_MEMORY: Code = 1;
pub const NVRTC_ERROR_INVALID_OPTION: Code = 5;
pub const NVRTC_ERROR_COMPILATION: Code = 6;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NvmlUtilization {
    pub gpu: u32,
    pub memory: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NvmlMemory {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NvmlMemoryV2 {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NvmlPciInfo {
    pub busIdLegacy: [c_char; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub pciDeviceId: u32,
    pub pciSubSystemId: u32,
    pub busId: [c_char; 32],
}

const _: () = {
    // Sizes that a C compiler gives for the published headers on 64-bit systems (testing/fakes/cuda/check-header).
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_MEMCPY3D_v2>() == 200);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS_v1>() == 40);
    assert!(size_of::<CUDA_HOST_NODE_PARAMS_v1>() == 16);
    assert!(size_of::<CUstreamMemOpWaitValueParams>() == 48);
    assert!(size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1>() == 32);
    assert!(size_of::<CUmemAllocationProp>() == 32);
    assert!(size_of::<CUmemAccessDesc>() == 12);
    assert!(size_of::<CUipcEventHandle>() == 64);
    assert!(size_of::<NvmlPciInfo>() == 68);
    assert!(size_of::<NvmlMemoryV2>() == 40);
};
