//! Handles, structs and numbers of the compute interface, laid out as the published headers say.
//!
//! Handles are pointers of the driver's that nobody else follows, so they are held as numbers here. Structs that a driver
//! fills begin with their number and the next one of a chain; `new` makes one with all else 0.

#![allow(missing_docs, reason = "the names are the interface's own, its documentation describes them")]

use anyaccel_kit::handles;
use std::ffi::{c_char, c_void};
use std::ptr;

handles!(
    ZeDriver,
    ZeDevice,
    ZeContext,
    ZeCommandList,
    ZeEventPool,
    ZeEvent,
    ZeModule,
    ZeModuleBuildLog,
    ZeKernel,
    ZePhysicalMem,
    /// Of the record-and-replay extension.
    ZeGraph,
    /// Of the record-and-replay extension.
    ZeExecutableGraph,
);

/// `ZE_MAKE_VERSION`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

macro_rules! structs {
    ($layouts:ident; $($(#[$doc:meta])* $name:ident as $native:ident = $stype:expr => { $($field:ident as $($member:ident).+ : $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name {
                pub stype: u32,
                pub next: *mut c_void,
                $(pub $field: $type,)*
            }

            impl $name {
                /// Its number in `stype`.
                pub const STYPE: u32 = $stype;

                /// All 0 but its number.
                pub const fn new() -> Self {
                    // SAFETY: numbers, null pointers and null handles, for all of which 0 is a value.
                    let zero: Self = unsafe { std::mem::zeroed() };
                    Self { stype: Self::STYPE, next: ptr::null_mut(), ..zero }
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new()
                }
            }
        )*

        /// Size and members of every struct, for tests that compare them with the published headers.
        pub fn $layouts() -> Vec<Layout> {
            vec![$(Layout {
                name: stringify!($native),
                size: size_of::<$name>(),
                members: vec![$((stringify!($($member).+), std::mem::offset_of!($name, $field))),*],
            }),*]
        }
    };
}
pub(super) use structs;

/// How a struct lies in memory.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Its name in the headers.
    pub name: &'static str,
    pub size: usize,
    /// Names in the headers, and where they begin.
    pub members: Vec<(&'static str, usize)>,
}

structs! {
    ze_layouts;
    ZeInitDriverTypeDesc as ze_init_driver_type_desc_t = 0x2_0021 => { flags as flags: u32 }
    ZeDriverProperties as ze_driver_properties_t = 0x1 => { uuid as uuid: [u8; 16], driver_version as driverVersion: u32 }
    ZeDeviceProperties as ze_device_properties_t = 0x3 => {
        kind as type: u32,
        vendor_id as vendorId: u32,
        device_id as deviceId: u32,
        flags as flags: u32,
        subdevice_id as subdeviceId: u32,
        core_clock_rate as coreClockRate: u32,
        max_mem_alloc_size as maxMemAllocSize: u64,
        max_hardware_contexts as maxHardwareContexts: u32,
        max_command_queue_priority as maxCommandQueuePriority: u32,
        threads_per_eu as numThreadsPerEU: u32,
        eu_simd_width as physicalEUSimdWidth: u32,
        eus_per_subslice as numEUsPerSubslice: u32,
        subslices_per_slice as numSubslicesPerSlice: u32,
        slices as numSlices: u32,
        timer_resolution as timerResolution: u64,
        timestamp_valid_bits as timestampValidBits: u32,
        kernel_timestamp_valid_bits as kernelTimestampValidBits: u32,
        uuid as uuid: [u8; 16],
        name as name: [c_char; 256],
    }
    ZeDeviceComputeProperties as ze_device_compute_properties_t = 0x4 => {
        max_total_group_size as maxTotalGroupSize: u32,
        max_group_size as maxGroupSizeX: [u32; 3],
        max_group_count as maxGroupCountX: [u32; 3],
        max_shared_local_memory as maxSharedLocalMemory: u32,
        num_sub_group_sizes as numSubGroupSizes: u32,
        sub_group_sizes as subGroupSizes: [u32; 8],
    }
    ZeDeviceModuleProperties as ze_device_module_properties_t = 0x5 => {
        spirv_version as spirvVersionSupported: u32,
        flags as flags: u32,
        fp16_flags as fp16flags: u32,
        fp32_flags as fp32flags: u32,
        fp64_flags as fp64flags: u32,
        max_arguments_size as maxArgumentsSize: u32,
        printf_buffer_size as printfBufferSize: u32,
        native_kernel_supported as nativeKernelSupported: [u8; 16],
    }
    ZeCommandQueueGroupProperties as ze_command_queue_group_properties_t = 0x6 => {
        flags as flags: u32,
        max_fill_pattern as maxMemoryFillPatternSize: usize,
        queues as numQueues: u32,
    }
    ZeDeviceMemoryProperties as ze_device_memory_properties_t = 0x7 => {
        flags as flags: u32,
        max_clock_rate as maxClockRate: u32,
        max_bus_width as maxBusWidth: u32,
        total_size as totalSize: u64,
        name as name: [c_char; 256],
    }
    ZePciExtProperties as ze_pci_ext_properties_t = 0x1_0008 => {
        address as address: [u32; 4],
        gen_version as maxSpeed.genVersion: i32,
        width as maxSpeed.width: i32,
        max_bandwidth as maxSpeed.maxBandwidth: i64,
    }
    ZeContextDesc as ze_context_desc_t = 0xd => { flags as flags: u32 }
    ZeCommandQueueDesc as ze_command_queue_desc_t = 0xe => {
        ordinal as ordinal: u32,
        index as index: u32,
        flags as flags: u32,
        mode as mode: u32,
        priority as priority: u32,
    }
    ZeCommandListDesc as ze_command_list_desc_t = 0xf => { ordinal as commandQueueGroupOrdinal: u32, flags as flags: u32 }
    ZeEventPoolDesc as ze_event_pool_desc_t = 0x10 => { flags as flags: u32, count as count: u32 }
    ZeEventDesc as ze_event_desc_t = 0x11 => { index as index: u32, signal as signal: u32, wait as wait: u32 }
    ZeDeviceMemAllocDesc as ze_device_mem_alloc_desc_t = 0x15 => { flags as flags: u32, ordinal as ordinal: u32 }
    ZeHostMemAllocDesc as ze_host_mem_alloc_desc_t = 0x16 => { flags as flags: u32 }
    ZeRelaxedAllocationLimitsExpDesc as ze_relaxed_allocation_limits_exp_desc_t = 0x2_0001 => { flags as flags: u32 }
    ZePhysicalMemDesc as ze_physical_mem_desc_t = 0x20 => { flags as flags: u32, size as size: usize }
    ZeModuleDesc as ze_module_desc_t = 0x1b => {
        format as format: u32,
        input_size as inputSize: usize,
        input as pInputModule: *const u8,
        build_flags as pBuildFlags: *const c_char,
        constants as pConstants: *const c_void,
    }
    ZeKernelDesc as ze_kernel_desc_t = 0x1d => { flags as flags: u32, name as pKernelName: *const c_char }
    ZeKernelProperties as ze_kernel_properties_t = 0x1e => {
        num_args as numKernelArgs: u32,
        required_group_size as requiredGroupSizeX: [u32; 3],
        required_sub_groups as requiredNumSubGroups: u32,
        required_sub_group_size as requiredSubgroupSize: u32,
        max_sub_group_size as maxSubgroupSize: u32,
        max_sub_groups as maxNumSubgroups: u32,
        local_mem_size as localMemSize: u32,
        private_mem_size as privateMemSize: u32,
        spill_mem_size as spillMemSize: u32,
        uuid as uuid: [u8; 32],
    }
    /// Chained to the properties of a kernel, since version 1.5: the most threads of its groups.
    ZeKernelMaxGroupSizePropertiesExt as ze_kernel_max_group_size_properties_ext_t = 0x1_0013 => {
        max_group_size as maxGroupSize: u32,
    }
}

/// Two versions of [`ZeDeviceProperties`] differ in the unit of `timer_resolution`: nanoseconds a tick, or since 1.2 with this
/// number ticks a second.
pub const ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2: u32 = 0x2_0006;

/// Drivers of GPUs, in [`ZeInitDriverTypeDesc`]. Later than 1.4, so in none of the lists below.
pub const ZE_INIT_DRIVER_TYPE_FLAG_GPU: u32 = 1 << 0;

/// `ze_driver_extension_properties_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ZeDriverExtensionProperties {
    pub name: [c_char; 256],
    pub version: u32,
}

/// `ze_group_count_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ZeGroupCount(pub [u32; 3]);

macro_rules! constants {
    ($list:ident; $($name:ident: $type:ty = $value:expr;)*) => {
        $(pub const $name: $type = $value;)*

        /// Every constant, for tests that compare them with the published headers.
        pub const $list: &[(&str, u64)] = &[$((stringify!($name), $value as u64),)*];
    };
}
pub(super) use constants;

constants! {
    ZE_CONSTANTS;
    ZE_INIT_FLAG_GPU_ONLY: u32 = 1;
    ZE_DEVICE_TYPE_GPU: u32 = 1;
    ZE_DEVICE_TYPE_CPU: u32 = 2;
    ZE_DEVICE_TYPE_FPGA: u32 = 3;
    ZE_DEVICE_TYPE_MCA: u32 = 4;
    ZE_DEVICE_TYPE_VPU: u32 = 5;
    ZE_DEVICE_PROPERTY_FLAG_INTEGRATED: u32 = 1 << 0;
    ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE: u32 = 1 << 1;
    ZE_DEVICE_MODULE_FLAG_FP16: u32 = 1 << 0;
    ZE_DEVICE_MODULE_FLAG_FP64: u32 = 1 << 1;
    ZE_DEVICE_FP_FLAG_DENORM: u32 = 1 << 0;
    ZE_DEVICE_FP_FLAG_INF_NAN: u32 = 1 << 1;
    ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST: u32 = 1 << 2;
    ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE: u32 = 1 << 0;
    ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY: u32 = 1 << 1;
    ZE_COMMAND_QUEUE_MODE_DEFAULT: u32 = 0;
    ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: u32 = 1;
    ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS: u32 = 2;
    ZE_COMMAND_QUEUE_PRIORITY_NORMAL: u32 = 0;
    ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW: u32 = 1;
    ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH: u32 = 2;
    ZE_EVENT_POOL_FLAG_HOST_VISIBLE: u32 = 1 << 0;
    ZE_EVENT_POOL_FLAG_IPC: u32 = 1 << 1;
    ZE_EVENT_SCOPE_FLAG_SUBDEVICE: u32 = 1 << 0;
    ZE_EVENT_SCOPE_FLAG_DEVICE: u32 = 1 << 1;
    ZE_EVENT_SCOPE_FLAG_HOST: u32 = 1 << 2;
    ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE: u32 = 1 << 0;
    ZE_MEMORY_ACCESS_ATTRIBUTE_NONE: u32 = 0;
    ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE: u32 = 1;
    ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY: u32 = 2;
    ZE_MODULE_FORMAT_IL_SPIRV: u32 = 0;
    ZE_MODULE_FORMAT_NATIVE: u32 = 1;
}

/// Commands of a queue or an immediate list begin in their order. Later than 1.4, so not in the list above.
pub const ZE_COMMAND_QUEUE_FLAG_IN_ORDER: u32 = 1 << 1;
/// The same for a list that is closed and replayed.
pub const ZE_COMMAND_LIST_FLAG_IN_ORDER: u32 = 1 << 3;
