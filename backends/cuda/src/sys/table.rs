//! The symbols, one line each. Versions are those of CUDA that a driver implements, (11, 8) for what every supported one has.

use super::types::*;
use crate::conv::Failed;
use anyaccel_kit::native::FailedCall;
use anyaccel_kit::symbols;
use std::ffi::{c_char, c_void};

impl FailedCall for Failed {
    type Code = Code;
    const SUCCESS: Code = CUDA_SUCCESS;
    const ABSENT: Code = ABSENT;

    fn new(api: &'static str, code: Code) -> Self {
        Self { api, code }
    }
}

symbols! {
    /// The CUDA driver, `libcuda.so.1`.
    pub struct Cuda -> Result<(), Failed>;
    (11, 8) required cuInit(flags: u32);
    (11, 8) required cuDriverGetVersion(version: *mut i32);
    (11, 8) required cuDeviceGetCount(count: *mut i32);
    (11, 8) required cuDeviceGet(device: *mut CUdevice, ordinal: i32);
    (11, 8) required cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice);
    (11, 8) required cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    (11, 8) required cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    (11, 8) required cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: CUdevice);
    (11, 8) required cuDeviceCanAccessPeer(can: *mut i32, device: CUdevice, peer: CUdevice);
    (11, 8) required cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    (11, 8) required cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    (11, 8) required cuCtxPushCurrent_v2(context: CUcontext);
    (11, 8) required cuCtxPopCurrent_v2(context: *mut CUcontext);
    (11, 8) required cuCtxEnablePeerAccess(peer: CUcontext, flags: u32);
    (11, 8) required cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    (11, 8) required cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    (11, 8) required cuMemFree_v2(address: CUdeviceptr);
    (11, 8) required cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32);
    (11, 8) required cuMemFreeHost(pointer: *mut c_void);
    (11, 8) required cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32);
    (11, 8) required cuMemHostUnregister(pointer: *mut c_void);
    (11, 8) required cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: u32);
    (11, 8) required cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    (11, 8) required cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    (11, 8) required cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    (11, 8) required cuMemcpyPeerAsync(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream);
    (11, 8) required cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    (11, 8) required cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    (11, 8) required cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    (11, 8) required cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32);
    (11, 8) required cuStreamDestroy_v2(stream: CUstream);
    (11, 8) required cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
    (11, 8) required cuStreamIsCapturing(stream: CUstream, status: *mut u32);
    (11, 8) required cuEventCreate(event: *mut CUevent, flags: u32);
    (11, 8) required cuEventRecord(event: CUevent, stream: CUstream);
    (11, 8) required cuEventQuery(event: CUevent);
    (11, 8) required cuEventSynchronize(event: CUevent);
    (11, 8) required cuEventElapsedTime(millis: *mut f32, from: CUevent, to: CUevent);
    (11, 8) required cuEventDestroy_v2(event: CUevent);
    (11, 8) required cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    (11, 8) required cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void);
    (11, 8) required cuModuleUnload(module: CUmodule);
    (11, 8) required cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    (11, 8) required cuFuncGetAttribute(value: *mut i32, attribute: i32, function: CUfunction);
    (11, 8) required cuFuncSetAttribute(function: CUfunction, attribute: i32, value: i32);
    (11, 8) required cuLaunchKernel(function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    (11, 8) required cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    (11, 8) optional cuGetErrorName(code: Code, name: *mut *const c_char);
    (11, 8) optional cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    (11, 8) optional cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    (11, 8) optional cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    (11, 8) optional cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: u32);
    (11, 8) optional cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64);
    (11, 8) optional cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    (11, 8) optional cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64);
    (11, 8) optional cuMemRelease(handle: CUmemGenericAllocationHandle);
    (11, 8) optional cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    (11, 8) optional cuMemUnmap(address: CUdeviceptr, bytes: usize);
    (11, 8) optional cuMemSetAccess(address: CUdeviceptr, bytes: usize, desc: *const CUmemAccessDesc, count: usize);
    (11, 8) optional cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
    (11, 8) optional cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);
    (11, 8) optional cuStreamBeginCapture_v2(stream: CUstream, mode: u32);
    (11, 8) optional cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    (11, 8) optional cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut CUgraph, dependencies: *mut *const CUgraphNode, count: *mut usize);
    (11, 8) optional cuGraphCreate(graph: *mut CUgraph, flags: u32);
    (11, 8) optional cuGraphDestroy(graph: CUgraph);
    (11, 8) optional cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    (11, 8) optional cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext);
    (11, 8) optional cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
    (11, 8) optional cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1);
    (11, 8) optional cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
    (11, 8) optional cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    (11, 8) optional cuGraphExecDestroy(exec: CUgraphExec);
    (11, 8) optional cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    (11, 8) optional cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    (11, 8) optional cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2, context: CUcontext);
    (11, 8) optional cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
    (11, 8) optional cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32);
    (12, 4) optional cuFuncLoad(function: CUfunction);
    (12, 4) optional cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
}

symbols! {
    /// The management library, `libnvidia-ml.so.1`, which answers without starting the driver.
    pub struct Nvml -> Result<(), Failed>;
    (11, 8) required nvmlInit_v2();
    (11, 8) required nvmlShutdown();
    (11, 8) required nvmlSystemGetDriverVersion(version: *mut c_char, len: u32);
    (11, 8) required nvmlDeviceGetCount_v2(count: *mut u32);
    (11, 8) required nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut NvmlDevice);
    (11, 8) required nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut NvmlDevice);
    (11, 8) required nvmlDeviceGetName(device: NvmlDevice, name: *mut c_char, len: u32);
    (11, 8) required nvmlDeviceGetUUID(device: NvmlDevice, uuid: *mut c_char, len: u32);
    (11, 8) required nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory);
    (11, 8) required nvmlDeviceGetPciInfo_v3(device: NvmlDevice, pci: *mut NvmlPciInfo);
    (11, 8) required nvmlDeviceGetUtilizationRates(device: NvmlDevice, rates: *mut NvmlUtilization);
    (11, 8) required nvmlDeviceGetTemperature(device: NvmlDevice, sensor: u32, celsius: *mut u32);
    (11, 8) required nvmlDeviceGetPowerUsage(device: NvmlDevice, milliwatts: *mut u32);
    (11, 8) required nvmlDeviceGetClockInfo(device: NvmlDevice, clock: u32, mhz: *mut u32);
    (11, 8) required nvmlDeviceGetMaxClockInfo(device: NvmlDevice, clock: u32, mhz: *mut u32);
    (11, 8) required nvmlDeviceGetCudaComputeCapability(device: NvmlDevice, major: *mut i32, minor: *mut i32);
    (11, 8) optional nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut NvmlMemoryV2);
    (11, 8) optional nvmlDeviceGetNumGpuCores(device: NvmlDevice, cores: *mut u32);
    (11, 8) optional nvmlDeviceGetMigMode(device: NvmlDevice, current: *mut u32, pending: *mut u32);
    (11, 8) optional nvmlDeviceGetMaxMigDeviceCount(device: NvmlDevice, count: *mut u32);
    (11, 8) optional nvmlDeviceGetMigDeviceHandleByIndex(device: NvmlDevice, index: u32, mig: *mut NvmlDevice);
}

symbols! {
    /// The run-time compiler of CUDA C, `libnvrtc.so`, which is no part of the driver.
    pub struct Nvrtc -> Result<(), Failed>;
    (11, 8) required nvrtcVersion(major: *mut i32, minor: *mut i32);
    (11, 8) required nvrtcCreateProgram(program: *mut NvrtcProgram, source: *const c_char, name: *const c_char, headers: i32, texts: *const *const c_char, names: *const *const c_char);
    (11, 8) required nvrtcDestroyProgram(program: *mut NvrtcProgram);
    (11, 8) required nvrtcCompileProgram(program: NvrtcProgram, count: i32, options: *const *const c_char);
    (11, 8) required nvrtcGetProgramLogSize(program: NvrtcProgram, size: *mut usize);
    (11, 8) required nvrtcGetProgramLog(program: NvrtcProgram, log: *mut c_char);
    (11, 8) required nvrtcGetPTXSize(program: NvrtcProgram, size: *mut usize);
    (11, 8) required nvrtcGetPTX(program: NvrtcProgram, ptx: *mut c_char);
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyaccel_kit::native::SymbolTable;
    use std::collections::HashSet;

    /// What the libraries of driver 535 (CUDA 12.2) export.
    const EXPORTS_535: &str = include_str!("../../../../testing/data/cuda/exports-535.txt");

    #[test]
    fn driver_535_has_every_symbol_of_its_age() {
        let exports: HashSet<&str> = EXPORTS_535.lines().collect();
        for symbol in Cuda::SYMBOLS.iter().chain(Nvml::SYMBOLS) {
            let expected = symbol.since <= (12, 2);
            assert_eq!(exports.contains(symbol.name), expected, "{symbol:?}");
        }
    }

    #[test]
    fn required_symbols_are_in_every_supported_driver() {
        let mut seen = HashSet::new();
        for symbol in Cuda::SYMBOLS.iter().chain(Nvml::SYMBOLS).chain(Nvrtc::SYMBOLS) {
            assert!(seen.insert(symbol.name), "{} twice", symbol.name);
            assert!(!symbol.required || symbol.since == (11, 8), "{symbol:?}");
        }
    }
}
