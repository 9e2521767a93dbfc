//! Numbers of the OpenCL specification, by their names there without the prefix.

use super::Status;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const MEM_OBJECT_ALLOCATION_FAILURE: Status = -4;
pub(crate) const OUT_OF_HOST_MEMORY: Status = -6;
pub(crate) const DEVICE_NOT_FOUND: Status = -1;
pub(crate) const BUILD_PROGRAM_FAILURE: Status = -11;
pub(crate) const EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: Status = -14;
pub(crate) const PLATFORM_NOT_FOUND_KHR: Status = -1001;

pub(crate) const TRUE: u32 = 1;
pub(crate) const FALSE: u32 = 0;

pub(crate) const PLATFORM_NAME: u32 = 0x0902;

pub(crate) const DEVICE_TYPE: u32 = 0x1000;
pub(crate) const DEVICE_TYPE_CPU: u64 = 1 << 1;
pub(crate) const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub(crate) const DEVICE_TYPE_ACCELERATOR: u64 = 1 << 3;
pub(crate) const DEVICE_TYPE_CUSTOM: u64 = 1 << 4;
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
pub(crate) const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
pub(crate) const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
pub(crate) const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
pub(crate) const DEVICE_MAX_CLOCK_FREQUENCY: u32 = 0x100C;
pub(crate) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub(crate) const DEVICE_MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
pub(crate) const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
pub(crate) const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
pub(crate) const DEVICE_SINGLE_FP_CONFIG: u32 = 0x101B;
pub(crate) const DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
pub(crate) const DEVICE_DOUBLE_FP_CONFIG: u32 = 0x1032;
pub(crate) const DEVICE_PROFILING_TIMER_RESOLUTION: u32 = 0x1025;
pub(crate) const DEVICE_AVAILABLE: u32 = 0x1027;
pub(crate) const DEVICE_NAME: u32 = 0x102B;
pub(crate) const DEVICE_VENDOR: u32 = 0x102C;
pub(crate) const DRIVER_VERSION: u32 = 0x102D;
pub(crate) const DEVICE_VERSION: u32 = 0x102F;
pub(crate) const DEVICE_EXTENSIONS: u32 = 0x1030;
pub(crate) const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
pub(crate) const DEVICE_SVM_CAPABILITIES: u32 = 0x1053;
pub(crate) const DEVICE_SVM_COARSE_GRAIN_BUFFER: u64 = 1 << 0;
pub(crate) const DEVICE_SVM_FINE_GRAIN_BUFFER: u64 = 1 << 1;
pub(crate) const DEVICE_IL_VERSION: u32 = 0x105B;
pub(crate) const DEVICE_EXTENSIONS_WITH_VERSION: u32 = 0x1060;
pub(crate) const DEVICE_UUID_KHR: u32 = 0x106A;
pub(crate) const DEVICE_PCI_BUS_INFO_KHR: u32 = 0x410F;
pub(crate) const DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL: u32 = 0x4193;
pub(crate) const DEVICE_DEVICE_MEM_CAPABILITIES_INTEL: u32 = 0x4191;
pub(crate) const DEVICE_HOST_MEM_CAPABILITIES_INTEL: u32 = 0x4190;
pub(crate) const DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR: u32 = 0x12A9;
pub(crate) const COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR: u64 = 1 << 2;
pub(crate) const DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR: u32 = 0x12AA;

pub(crate) const CONTEXT_PLATFORM: u64 = 0x1084;
pub(crate) const QUEUE_PROPERTIES: u64 = 0x1093;
pub(crate) const QUEUE_PROFILING_ENABLE: u64 = 1 << 1;
pub(crate) const QUEUE_PRIORITY_KHR: u64 = 0x1096;
pub(crate) const QUEUE_PRIORITY_HIGH_KHR: u64 = 1 << 0;
pub(crate) const QUEUE_PRIORITY_MED_KHR: u64 = 1 << 1;

pub(crate) const MEM_READ_WRITE: u64 = 1 << 0;
pub(crate) const MEM_ALLOC_HOST_PTR: u64 = 1 << 4;
pub(crate) const MEM_SVM_FINE_GRAIN_BUFFER: u64 = 1 << 10;
pub(crate) const MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED: u64 = 1 << 1;
pub(crate) const BUFFER_CREATE_TYPE_REGION: u32 = 0x1220;
pub(crate) const MAP_READ: u64 = 1 << 0;
pub(crate) const MAP_WRITE: u64 = 1 << 1;
pub(crate) const MEM_DEVICE_PRIVATE_ADDRESS_EXT: u64 = 0x5000;
pub(crate) const MEM_DEVICE_ADDRESS_EXT: u32 = 0x5001;

pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(crate) const KERNEL_NUM_ARGS: u32 = 0x1191;
pub(crate) const KERNEL_ARG_ADDRESS_QUALIFIER: u32 = 0x1196;
pub(crate) const KERNEL_ARG_ADDRESS_GLOBAL: u32 = 0x119B;
pub(crate) const KERNEL_ARG_ADDRESS_LOCAL: u32 = 0x119C;
pub(crate) const KERNEL_ARG_ADDRESS_CONSTANT: u32 = 0x119D;
pub(crate) const KERNEL_ARG_ADDRESS_PRIVATE: u32 = 0x119E;
pub(crate) const KERNEL_WORK_GROUP_SIZE: u32 = 0x11B0;

pub(crate) const EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
pub(crate) const COMPLETE: Status = 0;
pub(crate) const PROFILING_COMMAND_END: u32 = 0x1283;

pub(crate) const COMMAND_BUFFER_FLAGS_KHR: u64 = 0x1293;
pub(crate) const COMMAND_BUFFER_SIMULTANEOUS_USE_KHR: u64 = 1 << 0;
