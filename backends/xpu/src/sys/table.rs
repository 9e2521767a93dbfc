//! The symbols, one line each. Versions are those of the interface.

use super::codes::{ABSENT, Code, ZE_RESULT_SUCCESS};
use super::sysman::*;
use super::types::*;
use crate::conv::Failed;
use anyaccel_kit::native::FailedCall;
use anyaccel_kit::symbols;
use std::ffi::{c_char, c_void};

impl FailedCall for Failed {
    type Code = Code;
    const SUCCESS: Code = ZE_RESULT_SUCCESS;
    const ABSENT: Code = ABSENT;

    fn new(api: &'static str, code: Code) -> Self {
        Self { api, code }
    }
}

symbols! {
    /// The compute side of the Level Zero loader, `libze_loader.so.1`.
    pub struct Ze -> Result<(), Failed>;
    (1, 0) required zeInit(flags: u32);
    (1, 10) optional zeInitDrivers(count: *mut u32, drivers: *mut ZeDriver, desc: *mut ZeInitDriverTypeDesc);
    (1, 0) required zeDriverGet(count: *mut u32, drivers: *mut ZeDriver);
    (1, 0) required zeDriverGetApiVersion(driver: ZeDriver, version: *mut u32);
    (1, 0) required zeDriverGetProperties(driver: ZeDriver, properties: *mut ZeDriverProperties);
    (1, 0) required zeDriverGetExtensionProperties(
        driver: ZeDriver,
        count: *mut u32,
        properties: *mut ZeDriverExtensionProperties,
    );
    (1, 1) optional zeDriverGetExtensionFunctionAddress(driver: ZeDriver, name: *const c_char, address: *mut *mut c_void);
    (1, 4) optional zelLoaderTranslateHandle(kind: u32, handle: usize, native: *mut usize);
    (1, 0) required zeDeviceGet(driver: ZeDriver, count: *mut u32, devices: *mut ZeDevice);
    (1, 0) required zeDeviceGetSubDevices(device: ZeDevice, count: *mut u32, devices: *mut ZeDevice);
    (1, 0) required zeDeviceGetProperties(device: ZeDevice, properties: *mut ZeDeviceProperties);
    (1, 0) required zeDeviceGetComputeProperties(device: ZeDevice, properties: *mut ZeDeviceComputeProperties);
    (1, 0) required zeDeviceGetModuleProperties(device: ZeDevice, properties: *mut ZeDeviceModuleProperties);
    (1, 0) required zeDeviceGetCommandQueueGroupProperties(
        device: ZeDevice,
        count: *mut u32,
        properties: *mut ZeCommandQueueGroupProperties,
    );
    (1, 0) required zeDeviceGetMemoryProperties(
        device: ZeDevice,
        count: *mut u32,
        properties: *mut ZeDeviceMemoryProperties,
    );
    (1, 1) optional zeDevicePciGetPropertiesExt(device: ZeDevice, properties: *mut ZePciExtProperties);
    (1, 0) required zeDeviceCanAccessPeer(device: ZeDevice, peer: ZeDevice, can: *mut u8);
    (1, 0) required zeDeviceGetStatus(device: ZeDevice);
    (1, 1) optional zeDeviceGetGlobalTimestamps(device: ZeDevice, host: *mut u64, stamp: *mut u64);
    (1, 0) required zeContextCreate(driver: ZeDriver, desc: *const ZeContextDesc, context: *mut ZeContext);
    (1, 0) required zeContextDestroy(context: ZeContext);
    (1, 0) required zeContextMakeMemoryResident(context: ZeContext, device: ZeDevice, pointer: *mut c_void, size: usize);
    (1, 0) required zeContextEvictMemory(context: ZeContext, device: ZeDevice, pointer: *mut c_void, size: usize);
    (1, 0) required zeCommandListCreate(
        context: ZeContext,
        device: ZeDevice,
        desc: *const ZeCommandListDesc,
        list: *mut ZeCommandList,
    );
    (1, 0) required zeCommandListCreateImmediate(
        context: ZeContext,
        device: ZeDevice,
        desc: *const ZeCommandQueueDesc,
        list: *mut ZeCommandList,
    );
    (1, 0) required zeCommandListDestroy(list: ZeCommandList);
    (1, 0) required zeCommandListClose(list: ZeCommandList);
    (1, 6) optional zeCommandListHostSynchronize(list: ZeCommandList, timeout: u64);
    (1, 9) optional zeCommandListImmediateAppendCommandListsExp(
        list: ZeCommandList,
        count: u32,
        lists: *mut ZeCommandList,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (1, 0) required zeCommandListAppendWriteGlobalTimestamp(
        list: ZeCommandList,
        dst: *mut u64,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (1, 0) required zeCommandListAppendBarrier(list: ZeCommandList, signal: ZeEvent, waits: u32, events: *mut ZeEvent);
    (1, 0) required zeCommandListAppendMemoryCopy(
        list: ZeCommandList,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (1, 0) required zeCommandListAppendMemoryFill(
        list: ZeCommandList,
        dst: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (1, 0) required zeCommandListAppendSignalEvent(list: ZeCommandList, event: ZeEvent);
    (1, 0) required zeCommandListAppendWaitOnEvents(list: ZeCommandList, count: u32, events: *mut ZeEvent);
    (1, 0) required zeCommandListAppendEventReset(list: ZeCommandList, event: ZeEvent);
    (1, 0) required zeCommandListAppendLaunchKernel(
        list: ZeCommandList,
        kernel: ZeKernel,
        groups: *const ZeGroupCount,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (1, 0) required zeEventPoolCreate(
        context: ZeContext,
        desc: *const ZeEventPoolDesc,
        devices: u32,
        device: *mut ZeDevice,
        pool: *mut ZeEventPool,
    );
    (1, 0) required zeEventPoolDestroy(pool: ZeEventPool);
    (1, 0) required zeEventCreate(pool: ZeEventPool, desc: *const ZeEventDesc, event: *mut ZeEvent);
    (1, 0) required zeEventDestroy(event: ZeEvent);
    (1, 0) required zeEventHostSignal(event: ZeEvent);
    (1, 0) required zeEventHostSynchronize(event: ZeEvent, timeout: u64);
    (1, 0) required zeEventQueryStatus(event: ZeEvent);
    (1, 0) required zeEventHostReset(event: ZeEvent);
    (1, 0) required zeMemAllocDevice(
        context: ZeContext,
        desc: *const ZeDeviceMemAllocDesc,
        size: usize,
        alignment: usize,
        device: ZeDevice,
        pointer: *mut *mut c_void,
    );
    (1, 0) required zeMemAllocHost(
        context: ZeContext,
        desc: *const ZeHostMemAllocDesc,
        size: usize,
        alignment: usize,
        pointer: *mut *mut c_void,
    );
    (1, 0) required zeMemFree(context: ZeContext, pointer: *mut c_void);
    (1, 0) optional zeVirtualMemReserve(context: ZeContext, start: *const c_void, size: usize, pointer: *mut *mut c_void);
    (1, 0) optional zeVirtualMemFree(context: ZeContext, pointer: *const c_void, size: usize);
    (1, 0) optional zeVirtualMemQueryPageSize(context: ZeContext, device: ZeDevice, size: usize, page: *mut usize);
    (1, 0) optional zeVirtualMemMap(
        context: ZeContext,
        pointer: *const c_void,
        size: usize,
        memory: ZePhysicalMem,
        offset: usize,
        access: u32,
    );
    (1, 0) optional zeVirtualMemUnmap(context: ZeContext, pointer: *const c_void, size: usize);
    (1, 0) optional zePhysicalMemCreate(
        context: ZeContext,
        device: ZeDevice,
        desc: *mut ZePhysicalMemDesc,
        memory: *mut ZePhysicalMem,
    );
    (1, 0) optional zePhysicalMemDestroy(context: ZeContext, memory: ZePhysicalMem);
    (1, 0) required zeModuleCreate(
        context: ZeContext,
        device: ZeDevice,
        desc: *const ZeModuleDesc,
        module: *mut ZeModule,
        log: *mut ZeModuleBuildLog,
    );
    (1, 0) required zeModuleDestroy(module: ZeModule);
    (1, 0) required zeModuleBuildLogDestroy(log: ZeModuleBuildLog);
    (1, 0) required zeModuleBuildLogGetString(log: ZeModuleBuildLog, size: *mut usize, text: *mut c_char);
    (1, 0) required zeKernelCreate(module: ZeModule, desc: *const ZeKernelDesc, kernel: *mut ZeKernel);
    (1, 0) required zeKernelDestroy(kernel: ZeKernel);
    (1, 0) required zeKernelGetProperties(kernel: ZeKernel, properties: *mut ZeKernelProperties);
    (1, 0) required zeKernelSetGroupSize(kernel: ZeKernel, x: u32, y: u32, z: u32);
    (1, 0) required zeKernelSetArgumentValue(kernel: ZeKernel, index: u32, size: usize, value: *const c_void);
}

symbols! {
    /// Sysman, the management side of the same library.
    pub struct Zes -> Result<(), Failed>;
    (1, 5) optional zesInit(flags: u32);
    (1, 5) optional zesDriverGet(count: *mut u32, drivers: *mut ZesDriver);
    (1, 5) optional zesDeviceGet(driver: ZesDriver, count: *mut u32, devices: *mut ZesDevice);
    (1, 0) optional zesDeviceGetProperties(device: ZesDevice, properties: *mut ZesDeviceProperties);
    (1, 9) optional zesDeviceGetSubDevicePropertiesExp(
        device: ZesDevice,
        count: *mut u32,
        properties: *mut ZesSubdeviceExpProperties,
    );
    (1, 0) optional zesDevicePciGetProperties(device: ZesDevice, properties: *mut ZesPciProperties);
    (1, 0) optional zesDeviceEnumEngineGroups(device: ZesDevice, count: *mut u32, engines: *mut ZesEngine);
    (1, 0) optional zesEngineGetProperties(engine: ZesEngine, properties: *mut ZesEngineProperties);
    (1, 0) optional zesEngineGetActivity(engine: ZesEngine, stats: *mut ZesEngineStats);
    (1, 0) optional zesDeviceEnumPowerDomains(device: ZesDevice, count: *mut u32, domains: *mut ZesPower);
    (1, 0) optional zesPowerGetProperties(domain: ZesPower, properties: *mut ZesPowerProperties);
    (1, 0) optional zesPowerGetEnergyCounter(domain: ZesPower, counter: *mut ZesPowerEnergyCounter);
    (1, 0) optional zesDeviceEnumTemperatureSensors(device: ZesDevice, count: *mut u32, sensors: *mut ZesTemp);
    (1, 0) optional zesTemperatureGetProperties(sensor: ZesTemp, properties: *mut ZesTempProperties);
    (1, 0) optional zesTemperatureGetState(sensor: ZesTemp, celsius: *mut f64);
    (1, 0) optional zesDeviceEnumFrequencyDomains(device: ZesDevice, count: *mut u32, domains: *mut ZesFreq);
    (1, 0) optional zesFrequencyGetProperties(domain: ZesFreq, properties: *mut ZesFreqProperties);
    (1, 0) optional zesFrequencyGetState(domain: ZesFreq, state: *mut ZesFreqState);
    (1, 0) optional zesDeviceEnumMemoryModules(device: ZesDevice, count: *mut u32, modules: *mut ZesMem);
    (1, 0) optional zesMemoryGetProperties(module: ZesMem, properties: *mut ZesMemProperties);
    (1, 0) optional zesMemoryGetState(module: ZesMem, state: *mut ZesMemState);
    (1, 0) optional zesMemoryGetBandwidth(module: ZesMem, bandwidth: *mut ZesMemBandwidth);
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyaccel_kit::native::SymbolTable;
    use std::collections::HashSet;

    #[test]
    fn what_is_required_is_in_every_supported_loader() {
        let mut seen = HashSet::new();
        for symbol in Ze::SYMBOLS.iter().chain(Zes::SYMBOLS) {
            assert!(seen.insert(symbol.name), "{} twice", symbol.name);
            assert!(!symbol.required || symbol.since == (1, 0), "{symbol:?}");
        }
        assert!(Zes::SYMBOLS.iter().all(|symbol| !symbol.required), "compute goes without management");
    }
}
