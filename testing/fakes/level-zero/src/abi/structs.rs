//! Structs, with the names of the header.

#![allow(non_camel_case_types, non_snake_case, reason = "the interface's own")]

use std::ffi::{c_char, c_void};

macro_rules! structs {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name { $(pub(crate) $field: $type),* }
        )*
        /// Names, sizes, and fields with their offsets, for comparison with the header.
        #[cfg(test)]
        pub(crate) const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &[$(
            (stringify!($name), size_of::<$name>(), &[$((stringify!($field), std::mem::offset_of!($name, $field))),*])
        ),*];
    };
}

structs! {
    ze_driver_properties_t { stype: u32, pNext: *mut c_void, uuid: [u8; 16], driverVersion: u32 }
    ze_driver_ipc_properties_t { stype: u32, pNext: *mut c_void, flags: u32 }
    ze_driver_extension_properties_t { name: [c_char; 256], version: u32 }
    ze_device_properties_t {
        stype: u32, pNext: *mut c_void, r#type: u32, vendorId: u32, deviceId: u32, flags: u32, subdeviceId: u32,
        coreClockRate: u32, maxMemAllocSize: u64, maxHardwareContexts: u32, maxCommandQueuePriority: u32,
        numThreadsPerEU: u32, physicalEUSimdWidth: u32, numEUsPerSubslice: u32, numSubslicesPerSlice: u32,
        numSlices: u32, timerResolution: u64, timestampValidBits: u32, kernelTimestampValidBits: u32, uuid: [u8; 16],
        name: [c_char; 256],
    }
    ze_device_compute_properties_t {
        stype: u32, pNext: *mut c_void, maxTotalGroupSize: u32, maxGroupSizeX: u32, maxGroupSizeY: u32,
        maxGroupSizeZ: u32, maxGroupCountX: u32, maxGroupCountY: u32, maxGroupCountZ: u32, maxSharedLocalMemory: u32,
        numSubGroupSizes: u32, subGroupSizes: [u32; 8],
    }
    ze_device_module_properties_t {
        stype: u32, pNext: *mut c_void, spirvVersionSupported: u32, flags: u32, fp16flags: u32, fp32flags: u32,
        fp64flags: u32, maxArgumentsSize: u32, printfBufferSize: u32, nativeKernelSupported: [u8; 16],
    }
    ze_command_queue_group_properties_t {
        stype: u32, pNext: *mut c_void, flags: u32, maxMemoryFillPatternSize: usize, numQueues: u32,
    }
    ze_device_memory_properties_t {
        stype: u32, pNext: *mut c_void, flags: u32, maxClockRate: u32, maxBusWidth: u32, totalSize: u64,
        name: [c_char; 256],
    }
    ze_device_memory_access_properties_t {
        stype: u32, pNext: *mut c_void, hostAllocCapabilities: u32, deviceAllocCapabilities: u32,
        sharedSingleDeviceAllocCapabilities: u32, sharedCrossDeviceAllocCapabilities: u32,
        sharedSystemAllocCapabilities: u32,
    }
    ze_device_cache_properties_t { stype: u32, pNext: *mut c_void, flags: u32, cacheSize: usize }
    ze_device_external_memory_properties_t {
        stype: u32, pNext: *mut c_void, memoryAllocationImportTypes: u32, memoryAllocationExportTypes: u32,
        imageImportTypes: u32, imageExportTypes: u32,
    }
    ze_device_p2p_properties_t { stype: u32, pNext: *mut c_void, flags: u32 }
    ze_pci_address_ext_t { domain: u32, bus: u32, device: u32, function: u32 }
    ze_pci_speed_ext_t { genVersion: i32, width: i32, maxBandwidth: i64 }
    ze_pci_ext_properties_t {
        stype: u32, pNext: *mut c_void, address: ze_pci_address_ext_t, maxSpeed: ze_pci_speed_ext_t,
    }
    ze_context_desc_t { stype: u32, pNext: *const c_void, flags: u32 }
    ze_command_queue_desc_t {
        stype: u32, pNext: *const c_void, ordinal: u32, index: u32, flags: u32, mode: u32, priority: u32,
    }
    ze_command_list_desc_t { stype: u32, pNext: *const c_void, commandQueueGroupOrdinal: u32, flags: u32 }
    ze_copy_region_t { originX: u32, originY: u32, originZ: u32, width: u32, height: u32, depth: u32 }
    ze_event_pool_desc_t { stype: u32, pNext: *const c_void, flags: u32, count: u32 }
    ze_event_desc_t { stype: u32, pNext: *const c_void, index: u32, signal: u32, wait: u32 }
    ze_kernel_timestamp_data_t { kernelStart: u64, kernelEnd: u64 }
    ze_kernel_timestamp_result_t { global: ze_kernel_timestamp_data_t, context: ze_kernel_timestamp_data_t }
    ze_fence_desc_t { stype: u32, pNext: *const c_void, flags: u32 }
    ze_device_mem_alloc_desc_t { stype: u32, pNext: *const c_void, flags: u32, ordinal: u32 }
    ze_host_mem_alloc_desc_t { stype: u32, pNext: *const c_void, flags: u32 }
    ze_memory_allocation_properties_t { stype: u32, pNext: *mut c_void, r#type: u32, id: u64, pageSize: u64 }
    ze_memory_free_ext_desc_t { stype: u32, pNext: *const c_void, freePolicy: u32 }
    ze_physical_mem_desc_t { stype: u32, pNext: *const c_void, flags: u32, size: usize }
    ze_module_desc_t {
        stype: u32, pNext: *const c_void, format: u32, inputSize: usize, pInputModule: *const u8,
        pBuildFlags: *const c_char, pConstants: *const c_void,
    }
    ze_module_properties_t { stype: u32, pNext: *mut c_void, flags: u32 }
    ze_kernel_desc_t { stype: u32, pNext: *const c_void, flags: u32, pKernelName: *const c_char }
    ze_kernel_uuid_t { kid: [u8; 16], mid: [u8; 16] }
    ze_kernel_properties_t {
        stype: u32, pNext: *mut c_void, numKernelArgs: u32, requiredGroupSizeX: u32, requiredGroupSizeY: u32,
        requiredGroupSizeZ: u32, requiredNumSubGroups: u32, requiredSubgroupSize: u32, maxSubgroupSize: u32,
        maxNumSubgroups: u32, localMemSize: u32, privateMemSize: u32, spillMemSize: u32, uuid: ze_kernel_uuid_t,
    }
    ze_group_count_t { groupCountX: u32, groupCountY: u32, groupCountZ: u32 }

    zes_device_properties_t {
        stype: u32, pNext: *mut c_void, core: ze_device_properties_t, numSubdevices: u32, serialNumber: [c_char; 64],
        boardNumber: [c_char; 64], brandName: [c_char; 64], modelName: [c_char; 64], vendorName: [c_char; 64],
        driverVersion: [c_char; 64],
    }
    zes_device_state_t { stype: u32, pNext: *const c_void, reset: u32, repaired: u32 }
    zes_pci_address_t { domain: u32, bus: u32, device: u32, function: u32 }
    zes_pci_speed_t { r#gen: i32, width: i32, maxBandwidth: i64 }
    zes_pci_properties_t {
        stype: u32, pNext: *mut c_void, address: zes_pci_address_t, maxSpeed: zes_pci_speed_t,
        haveBandwidthCounters: u8, havePacketCounters: u8, haveReplayCounters: u8,
    }
    zes_mem_properties_t {
        stype: u32, pNext: *mut c_void, r#type: u32, onSubdevice: u8, subdeviceId: u32, location: u32,
        physicalSize: u64, busWidth: i32, numChannels: i32,
    }
    zes_mem_state_t { stype: u32, pNext: *const c_void, health: u32, free: u64, size: u64 }
    zes_temp_properties_t {
        stype: u32, pNext: *mut c_void, r#type: u32, onSubdevice: u8, subdeviceId: u32, maxTemperature: f64,
        isCriticalTempSupported: u8, isThreshold1Supported: u8, isThreshold2Supported: u8,
    }
    zes_power_properties_t {
        stype: u32, pNext: *mut c_void, onSubdevice: u8, subdeviceId: u32, canControl: u8,
        isEnergyThresholdSupported: u8, defaultLimit: i32, minLimit: i32, maxLimit: i32,
    }
    zes_power_energy_counter_t { energy: u64, timestamp: u64 }
    zes_freq_properties_t {
        stype: u32, pNext: *mut c_void, r#type: u32, onSubdevice: u8, subdeviceId: u32, canControl: u8,
        isThrottleEventSupported: u8, min: f64, max: f64,
    }
    zes_freq_state_t {
        stype: u32, pNext: *const c_void, currentVoltage: f64, request: f64, tdp: f64, efficient: f64, actual: f64,
        throttleReasons: u32,
    }
    zes_engine_properties_t { stype: u32, pNext: *mut c_void, r#type: u32, onSubdevice: u8, subdeviceId: u32 }
    zes_engine_stats_t { activeTime: u64, timestamp: u64 }
    zes_mem_bandwidth_t { readCounter: u64, writeCounter: u64, maxBandwidth: u64, timestamp: u64 }
}

/// Which of a card's tiles has which identity; since 1.9.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct zes_subdevice_exp_properties_t {
    pub(crate) stype: u32,
    pub(crate) pNext: *mut c_void,
    pub(crate) subdeviceId: u32,
    pub(crate) uuid: [u8; 16],
}
