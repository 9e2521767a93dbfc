//! Functions about devices.

use crate::abi::*;
use crate::call::{exports, fill, get, list, put, text};
use crate::clock;
use crate::config::config;
use crate::control::alive;
use crate::device::{self, Device, view};
use crate::driver_calls::driver;

/// Threads of a group, at most.
pub(crate) const MOST_THREADS: u32 = 1024;
/// Groups of a launch along x, y and z, at most.
pub(crate) const MOST_GROUPS: [u32; 3] = [u32::MAX, u32::MAX, u32::MAX];
/// Bytes of local memory of a group.
pub(crate) const LOCAL_MEMORY: u32 = 64 << 10;
/// Bytes of arguments of a kernel.
pub(crate) const MOST_ARGUMENTS: u32 = 2048;

/// A group of engines.
pub(crate) struct Engines {
    pub(crate) flags: u32,
    pub(crate) fill: usize,
    pub(crate) queues: u32,
}

/// The groups of every device: one that computes and copies, one that only copies.
pub(crate) const ENGINES: [Engines; 2] = [
    Engines {
        flags: ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE
            | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
            | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS,
        fill: usize::MAX,
        queues: 4,
    },
    Engines { flags: ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY, fill: 1, queues: 1 },
];

/// The flags that are so.
fn flags<const N: usize>(flags: [(bool, u32); N]) -> u32 {
    flags.into_iter().filter(|&(so, _)| so).fold(0, |all, (_, flag)| all | flag)
}

/// What is said of a device, but for the header of the struct.
pub(crate) fn describe(device: &Device, out: &mut ze_device_properties_t) {
    let timer = &config().timer;
    let card = device.card;
    out.r#type = ZE_DEVICE_TYPE_GPU;
    out.vendorId = 0x8086;
    out.deviceId = if card.integrated { 0x9A49 } else { 0x0BD5 };
    out.flags = flags([
        (card.integrated, ZE_DEVICE_PROPERTY_FLAG_INTEGRATED),
        (device.is_part, ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE),
        (!card.integrated, ZE_DEVICE_PROPERTY_FLAG_ECC),
    ]);
    out.subdeviceId = device.tile().unwrap_or(0);
    out.coreClockRate = 1600;
    out.maxMemAllocSize = card.memory;
    out.maxHardwareContexts = 65536;
    out.maxCommandQueuePriority = 0;
    out.numThreadsPerEU = 8;
    out.physicalEUSimdWidth = 16;
    out.numEUsPerSubslice = 8;
    out.numSubslicesPerSlice = 2;
    out.numSlices = device.tiles.len() as u32;
    out.timerResolution = match out.stype {
        ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 => timer.frequency,
        _ => 1_000_000_000 / timer.frequency,
    };
    out.timestampValidBits = timer.bits;
    out.kernelTimestampValidBits = timer.kernel_bits;
    out.uuid = device.uuid();
    out.name = text(&card.name);
}

exports! {
    fn zeDeviceGet(handle: Handle, count: *mut u32, out: *mut Handle) {
        driver(handle)?;
        let devices = view().map_or(&[][..], |view| &view.devices);
        list(count, out, devices.iter().map(|device| device.handle), |to, handle| *to = handle)
    }

    fn zeDeviceGetSubDevices(device: Handle, count: *mut u32, out: *mut Handle) {
        let parts = &device::get(device)?.parts;
        list(count, out, parts.iter().map(|device| device.handle), |to, handle| *to = handle)
    }

    fn zeDeviceGetRootDevice(device: Handle, out: *mut Handle) {
        put(out, device::get(device)?.root.unwrap_or(0))
    }

    fn zeDeviceGetProperties(device: Handle, out: *mut ze_device_properties_t) {
        let device = device::get(device)?;
        describe(device, fill(out)?);
        Ok(())
    }

    fn zeDeviceGetComputeProperties(device: Handle, out: *mut ze_device_compute_properties_t) {
        device::get(device)?;
        let out = fill(out)?;
        out.maxTotalGroupSize = MOST_THREADS;
        (out.maxGroupSizeX, out.maxGroupSizeY, out.maxGroupSizeZ) = (MOST_THREADS, MOST_THREADS, MOST_THREADS);
        [out.maxGroupCountX, out.maxGroupCountY, out.maxGroupCountZ] = MOST_GROUPS;
        out.maxSharedLocalMemory = LOCAL_MEMORY;
        out.numSubGroupSizes = 2;
        out.subGroupSizes = [16, 32, 0, 0, 0, 0, 0, 0];
        Ok(())
    }

    fn zeDeviceGetModuleProperties(device: Handle, out: *mut ze_device_module_properties_t) {
        let card = device::get(device)?.card;
        let out = fill(out)?;
        let half = config().has("fp16");
        let float = ZE_DEVICE_FP_FLAG_DENORM
            | ZE_DEVICE_FP_FLAG_INF_NAN
            | ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST
            | ZE_DEVICE_FP_FLAG_FMA;
        out.spirvVersionSupported = version(1, 4);
        out.flags = flags([
            (half, ZE_DEVICE_MODULE_FLAG_FP16),
            (card.fp64, ZE_DEVICE_MODULE_FLAG_FP64),
            (true, ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS),
        ]);
        out.fp16flags = u32::from(half) * float;
        out.fp32flags = float;
        out.fp64flags = u32::from(card.fp64) * float;
        out.maxArgumentsSize = MOST_ARGUMENTS;
        out.printfBufferSize = 4 << 20;
        out.nativeKernelSupported = [0; 16];
        Ok(())
    }

    fn zeDeviceGetCommandQueueGroupProperties(
        device: Handle,
        count: *mut u32,
        out: *mut ze_command_queue_group_properties_t,
    ) {
        device::get(device)?;
        // Only the header is the caller's, and it stays.
        let groups = ENGINES.iter().map(|group| ze_command_queue_group_properties_t {
            stype: 0,
            pNext: std::ptr::null_mut(),
            flags: group.flags,
            maxMemoryFillPatternSize: group.fill,
            numQueues: group.queues,
        });
        list(count, out, groups, |to, from| {
            (to.flags, to.maxMemoryFillPatternSize, to.numQueues) =
                (from.flags, from.maxMemoryFillPatternSize, from.numQueues);
        })
    }

    fn zeDeviceGetMemoryProperties(device: Handle, count: *mut u32, out: *mut ze_device_memory_properties_t) {
        let total = device::get(device)?.memory();
        list(count, out, [total].into_iter().map(|totalSize| ze_device_memory_properties_t {
            stype: 0,
            pNext: std::ptr::null_mut(),
            flags: 0,
            maxClockRate: 3200,
            maxBusWidth: 1024,
            totalSize,
            name: text("HBM"),
        }), |to, from| *to = ze_device_memory_properties_t { stype: to.stype, pNext: to.pNext, ..from })
    }

    fn zeDeviceGetMemoryAccessProperties(device: Handle, out: *mut ze_device_memory_access_properties_t) {
        let device = device::get(device)?;
        let out = fill(out)?;
        let all = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC;
        out.hostAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
        out.deviceAllocCapabilities = all;
        out.sharedSingleDeviceAllocCapabilities = all;
        out.sharedCrossDeviceAllocCapabilities = if config().peers { all } else { 0 };
        // The system's own memory is not for kernels.
        out.sharedSystemAllocCapabilities = 0;
        debug_assert!(!device.tiles.is_empty());
        Ok(())
    }

    fn zeDeviceGetCacheProperties(device: Handle, count: *mut u32, out: *mut ze_device_cache_properties_t) {
        device::get(device)?;
        list(count, out, [4_usize << 20].into_iter().map(|cacheSize| ze_device_cache_properties_t {
            stype: 0,
            pNext: std::ptr::null_mut(),
            flags: 0,
            cacheSize,
        }), |to, from| (to.flags, to.cacheSize) = (from.flags, from.cacheSize))
    }

    fn zeDeviceGetExternalMemoryProperties(device: Handle, out: *mut ze_device_external_memory_properties_t) {
        device::get(device)?;
        let out = fill(out)?;
        (out.memoryAllocationImportTypes, out.memoryAllocationExportTypes) = (0, 0);
        (out.imageImportTypes, out.imageExportTypes) = (0, 0);
        Ok(())
    }

    fn zeDeviceGetP2PProperties(device: Handle, peer: Handle, out: *mut ze_device_p2p_properties_t) {
        let reaches = device::get(device)?.reaches(device::get(peer)?);
        fill(out)?.flags =
            u32::from(reaches) * (ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS | ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS);
        Ok(())
    }

    fn zeDeviceCanAccessPeer(device: Handle, peer: Handle, out: *mut u8) {
        put(out, u8::from(device::get(device)?.reaches(device::get(peer)?)))
    }

    fn zeDeviceGetStatus(device: Handle) {
        alive(device::get(device)?.card)
    }

    fn zeDeviceGetGlobalTimestamps(device: Handle, host: *mut u64, ticks: *mut u64) {
        alive(device::get(device)?.card)?;
        get(host)?;
        let now = clock::now();
        put(host, clock::host(now))?;
        put(ticks, clock::ticks(now, config().timer.bits))
    }

    fn zeDevicePciGetPropertiesExt(device: Handle, out: *mut ze_pci_ext_properties_t) {
        let card = device::get(device)?.card;
        let out = fill(out)?;
        let bus = bus(card.place);
        out.address = ze_pci_address_ext_t { domain: 0, bus, device: 0, function: 0 };
        out.maxSpeed = ze_pci_speed_ext_t { genVersion: 5, width: 16, maxBandwidth: 64_000_000_000 };
        Ok(())
    }
}

/// The bus that a card is on.
pub(crate) fn bus(place: u32) -> u32 {
    0x20 + place
}
