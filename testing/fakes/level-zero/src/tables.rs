//! Where the loader finds the functions: a table for each kind of object, in the order of the header.
//!
//! A loader fills its own tables by asking for each. It may be of an older version than the driver, with shorter tables: so
//! only what version 1.4 has is written, which is what every loader has room for. What came later has its own name in the
//! library (`install`), or is to be asked for by name, as an extension.

use crate::device_calls::*;
use crate::driver_calls::*;
use crate::event::*;
use crate::graph::*;
use crate::kernel_calls::*;
use crate::list_calls::*;
use crate::memory_calls::*;
use crate::module::*;
use crate::queue::*;
use crate::sysman::*;
use crate::virtual_memory::*;
use std::ffi::c_void;

/// The address of a function; null where the driver lacks it.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub(crate) *const c_void);

// SAFETY: an address of code, the same for all threads.
unsafe impl Sync for Address {}

/// A table, for comparison with the header.
#[cfg(test)]
pub(crate) struct Table {
    /// The struct of the header.
    pub(crate) name: &'static str,
    /// What the names of its functions begin with.
    pub(crate) prefix: &'static str,
    /// Its functions; `_` for those that the driver lacks.
    pub(crate) entries: &'static [&'static str],
}

/// A function of an extension.
pub(crate) struct Extension {
    pub(crate) name: &'static str,
    /// What a driver without it lacks.
    pub(crate) feature: &'static str,
    pub(crate) address: Address,
}

macro_rules! address {
    (_) => {
        Address(std::ptr::null())
    };
    ($name:ident) => {
        Address($name as *const c_void)
    };
}

macro_rules! extensions {
    ($($feature:literal [$($name:ident),* $(,)?])*) => {
        /// Functions that are asked for by name.
        pub(crate) static EXTENSIONS: &[Extension] = &[$($(
            Extension { name: stringify!($name), feature: $feature, address: address!($name) }
        ),*),*];
    };
}

macro_rules! tables {
    ($(fn $getter:ident: $name:ident, $prefix:literal [$($entry:tt),* $(,)?])*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unreachable_pub, reason = "exported by its name")]
            #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, reason = "the interface's own")]
            pub unsafe extern "system" fn $getter(_version: u32, out: *mut Address) -> crate::abi::Code {
                const ENTRIES: &[Address] = &[$(address!($entry)),*];
                crate::call::call(stringify!($getter), || {
                    if out.is_null() {
                        return Err(crate::abi::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
                    }
                    // SAFETY: every loader's table is at least as long as that of version 1.4.
                    unsafe { std::ptr::copy_nonoverlapping(ENTRIES.as_ptr(), out, ENTRIES.len()) };
                    Ok(())
                })
            }
        )*
        /// All tables.
        #[cfg(test)]
        pub(crate) const TABLES: &[Table] = &[$(
            Table { name: stringify!($name), prefix: $prefix, entries: &[$(stringify!($entry)),*] }
        ),*];
    };
}

extensions! {
    "host_function" [zeCommandListAppendHostFunction]
    "graph_exp" [zeCommandListAppendGraphExp, zeCommandListBeginCaptureIntoGraphExp, zeCommandListBeginGraphCaptureExp, zeCommandListEndGraphCaptureExp, zeCommandListInstantiateGraphExp, zeCommandListIsGraphCaptureEnabledExp, zeExecutableGraphDestroyExp, zeGraphCreateExp, zeGraphDestroyExp, zeGraphDumpContentsExp, zeGraphIsEmptyExp]
    "graph_ext" [zeCommandListAppendGraphExt, zeCommandListBeginCaptureIntoGraphExt, zeCommandListBeginGraphCaptureExt, zeCommandListEndGraphCaptureExt, zeCommandListIsGraphCaptureEnabledExt, zeExecutableGraphDestroyExt, zeGraphCreateExt, zeGraphDestroyExt, zeGraphInstantiateExt, zeGraphIsEmptyExt]
    "import" [zexDriverImportExternalPointer, zexDriverReleaseImportedPointer]
}

tables! {
    fn zeGetGlobalProcAddrTable: ze_global_dditable_t, "ze" [zeInit]
    fn zeGetDriverProcAddrTable: ze_driver_dditable_t, "zeDriver" [zeDriverGet, zeDriverGetApiVersion, zeDriverGetProperties, zeDriverGetIpcProperties, zeDriverGetExtensionProperties, zeDriverGetExtensionFunctionAddress]
    fn zeGetDeviceProcAddrTable: ze_device_dditable_t, "zeDevice" [zeDeviceGet, zeDeviceGetSubDevices, zeDeviceGetProperties, zeDeviceGetComputeProperties, zeDeviceGetModuleProperties, zeDeviceGetCommandQueueGroupProperties, zeDeviceGetMemoryProperties, zeDeviceGetMemoryAccessProperties, zeDeviceGetCacheProperties, _, zeDeviceGetExternalMemoryProperties, zeDeviceGetP2PProperties, zeDeviceCanAccessPeer, zeDeviceGetStatus, zeDeviceGetGlobalTimestamps, _, _, zeDevicePciGetPropertiesExt]
    fn zeGetDeviceExpProcAddrTable: ze_device_exp_dditable_t, "" []
    fn zeGetContextProcAddrTable: ze_context_dditable_t, "zeContext" [zeContextCreate, zeContextDestroy, zeContextGetStatus, zeContextSystemBarrier, zeContextMakeMemoryResident, zeContextEvictMemory, _, _, zeContextCreateEx]
    fn zeGetCommandQueueProcAddrTable: ze_command_queue_dditable_t, "zeCommandQueue" [zeCommandQueueCreate, zeCommandQueueDestroy, zeCommandQueueExecuteCommandLists, zeCommandQueueSynchronize]
    fn zeGetCommandListProcAddrTable: ze_command_list_dditable_t, "zeCommandList" [zeCommandListCreate, zeCommandListCreateImmediate, zeCommandListDestroy, zeCommandListClose, zeCommandListReset, zeCommandListAppendWriteGlobalTimestamp, zeCommandListAppendBarrier, zeCommandListAppendMemoryRangesBarrier, zeCommandListAppendMemoryCopy, zeCommandListAppendMemoryFill, zeCommandListAppendMemoryCopyRegion, zeCommandListAppendMemoryCopyFromContext, _, _, _, _, zeCommandListAppendMemoryPrefetch, zeCommandListAppendMemAdvise, zeCommandListAppendSignalEvent, zeCommandListAppendWaitOnEvents, zeCommandListAppendEventReset, zeCommandListAppendQueryKernelTimestamps, zeCommandListAppendLaunchKernel, zeCommandListAppendLaunchCooperativeKernel, zeCommandListAppendLaunchKernelIndirect, _, _, _]
    fn zeGetImageProcAddrTable: ze_image_dditable_t, "" []
    fn zeGetImageExpProcAddrTable: ze_image_exp_dditable_t, "" []
    fn zeGetFenceProcAddrTable: ze_fence_dditable_t, "zeFence" [zeFenceCreate, zeFenceDestroy, zeFenceHostSynchronize, zeFenceQueryStatus, zeFenceReset]
    fn zeGetEventPoolProcAddrTable: ze_event_pool_dditable_t, "zeEventPool" [zeEventPoolCreate, zeEventPoolDestroy, _, _, _]
    fn zeGetEventProcAddrTable: ze_event_dditable_t, "zeEvent" [zeEventCreate, zeEventDestroy, zeEventHostSignal, zeEventHostSynchronize, zeEventQueryStatus, zeEventHostReset, zeEventQueryKernelTimestamp]
    fn zeGetEventExpProcAddrTable: ze_event_exp_dditable_t, "zeEvent" [zeEventQueryTimestampsExp]
    fn zeGetModuleProcAddrTable: ze_module_dditable_t, "zeModule" [zeModuleCreate, zeModuleDestroy, _, zeModuleGetNativeBinary, _, zeModuleGetKernelNames, zeModuleGetProperties, _, _]
    fn zeGetModuleBuildLogProcAddrTable: ze_module_build_log_dditable_t, "zeModuleBuildLog" [zeModuleBuildLogDestroy, zeModuleBuildLogGetString]
    fn zeGetKernelProcAddrTable: ze_kernel_dditable_t, "zeKernel" [zeKernelCreate, zeKernelDestroy, zeKernelSetCacheConfig, zeKernelSetGroupSize, zeKernelSuggestGroupSize, zeKernelSuggestMaxCooperativeGroupCount, zeKernelSetArgumentValue, zeKernelSetIndirectAccess, zeKernelGetIndirectAccess, _, zeKernelGetProperties, zeKernelGetName]
    fn zeGetKernelExpProcAddrTable: ze_kernel_exp_dditable_t, "" []
    fn zeGetSamplerProcAddrTable: ze_sampler_dditable_t, "" []
    fn zeGetPhysicalMemProcAddrTable: ze_physical_mem_dditable_t, "zePhysicalMem" [zePhysicalMemCreate, zePhysicalMemDestroy]
    fn zeGetMemProcAddrTable: ze_mem_dditable_t, "zeMem" [zeMemAllocShared, zeMemAllocDevice, zeMemAllocHost, zeMemFree, zeMemGetAllocProperties, zeMemGetAddressRange, _, _, _, zeMemFreeExt]
    fn zeGetVirtualMemProcAddrTable: ze_virtual_mem_dditable_t, "zeVirtualMem" [zeVirtualMemReserve, zeVirtualMemFree, zeVirtualMemQueryPageSize, zeVirtualMemMap, zeVirtualMemUnmap, zeVirtualMemSetAccessAttribute, zeVirtualMemGetAccessAttribute]
    fn zeGetFabricVertexExpProcAddrTable: ze_fabric_vertex_exp_dditable_t, "" []
    fn zeGetFabricEdgeExpProcAddrTable: ze_fabric_edge_exp_dditable_t, "" []
    fn zesGetDriverProcAddrTable: zes_driver_dditable_t, "" []
    fn zesGetDeviceProcAddrTable: zes_device_dditable_t, "zesDevice" [zesDeviceGetProperties, zesDeviceGetState, _, _, zesDevicePciGetProperties, _, _, _, _, zesDeviceEnumEngineGroups, _, _, _, _, zesDeviceEnumFrequencyDomains, _, zesDeviceEnumMemoryModules, _, zesDeviceEnumPowerDomains, zesDeviceGetCardPowerDomain, _, _, _, _, zesDeviceEnumTemperatureSensors, _, _, _, _]
    fn zesGetSchedulerProcAddrTable: zes_scheduler_dditable_t, "" []
    fn zesGetPerformanceFactorProcAddrTable: zes_performance_factor_dditable_t, "" []
    fn zesGetPowerProcAddrTable: zes_power_dditable_t, "zesPower" [zesPowerGetProperties, zesPowerGetEnergyCounter, _, _, _, _, _, _]
    fn zesGetFrequencyProcAddrTable: zes_frequency_dditable_t, "zesFrequency" [zesFrequencyGetProperties, _, _, _, zesFrequencyGetState, _, _, _, _, _, _, _, _, _, _, _, _]
    fn zesGetEngineProcAddrTable: zes_engine_dditable_t, "zesEngine" [zesEngineGetProperties, zesEngineGetActivity]
    fn zesGetStandbyProcAddrTable: zes_standby_dditable_t, "" []
    fn zesGetFirmwareProcAddrTable: zes_firmware_dditable_t, "" []
    fn zesGetMemoryProcAddrTable: zes_memory_dditable_t, "zesMemory" [zesMemoryGetProperties, zesMemoryGetState, zesMemoryGetBandwidth]
    fn zesGetFabricPortProcAddrTable: zes_fabric_port_dditable_t, "" []
    fn zesGetTemperatureProcAddrTable: zes_temperature_dditable_t, "zesTemperature" [zesTemperatureGetProperties, _, _, zesTemperatureGetState]
    fn zesGetPsuProcAddrTable: zes_psu_dditable_t, "" []
    fn zesGetFanProcAddrTable: zes_fan_dditable_t, "" []
    fn zesGetLedProcAddrTable: zes_led_dditable_t, "" []
    fn zesGetRasProcAddrTable: zes_ras_dditable_t, "" []
    fn zesGetDiagnosticsProcAddrTable: zes_diagnostics_dditable_t, "" []
    fn zetGetDeviceProcAddrTable: zet_device_dditable_t, "" []
    fn zetGetContextProcAddrTable: zet_context_dditable_t, "" []
    fn zetGetCommandListProcAddrTable: zet_command_list_dditable_t, "" []
    fn zetGetModuleProcAddrTable: zet_module_dditable_t, "" []
    fn zetGetKernelProcAddrTable: zet_kernel_dditable_t, "" []
    fn zetGetMetricGroupProcAddrTable: zet_metric_group_dditable_t, "" []
    fn zetGetMetricGroupExpProcAddrTable: zet_metric_group_exp_dditable_t, "" []
    fn zetGetMetricProcAddrTable: zet_metric_dditable_t, "" []
    fn zetGetMetricStreamerProcAddrTable: zet_metric_streamer_dditable_t, "" []
    fn zetGetMetricQueryPoolProcAddrTable: zet_metric_query_pool_dditable_t, "" []
    fn zetGetMetricQueryProcAddrTable: zet_metric_query_dditable_t, "" []
    fn zetGetTracerExpProcAddrTable: zet_tracer_exp_dditable_t, "" []
    fn zetGetDebugProcAddrTable: zet_debug_dditable_t, "" []
}
