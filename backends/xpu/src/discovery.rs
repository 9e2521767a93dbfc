//! The GPUs of a loader that has started, and what they say of themselves.

use crate::builtin::{self, Builtins};
use crate::conv::Failed;
use crate::device::Limits;
use crate::graph::Recorder;
use crate::platform::Platform;
use crate::probe;
use crate::probe::inventory::{Unit, blank, identity, list, place, text};
use crate::probe::mask::discrete_first;
use crate::sys::*;
use anyaccel_hal::{DTypeSet, DeviceInfo, PatternSizes, PriorityRange};
use std::sync::Arc;

/// Priorities of streams: low, normal, high. The interface has these three on every device; one that a device lacks its
/// driver takes as the nearest.
pub(crate) const PRIORITIES: PriorityRange = PriorityRange { least: 1, greatest: -1 };

/// Intel's number on the bus.
const INTEL: u32 = 0x8086;
/// The extension that lifts the limit of single allocations.
const RELAXED: &str = "ZE_experimental_relaxed_allocation_limits";

/// Starts the drivers of GPUs, by the newest call that the loader has.
pub(crate) fn drivers(ze: &Ze) -> Result<Vec<ZeDriver>, Failed> {
    if ze.has("zeInitDrivers") {
        let mut desc = ZeInitDriverTypeDesc::new();
        desc.flags = ZE_INIT_DRIVER_TYPE_FLAG_GPU;
        let mut desc = [desc];
        let desc = desc.as_mut_ptr();
        // SAFETY: valid places for the answers and the question.
        let found = list(ZeDriver::NULL, |count, all| unsafe { ze.zeInitDrivers(count, all, desc) });
        return none_is_empty(found);
    }
    // SAFETY: no pointers.
    match unsafe { ze.zeInit(0) } {
        Ok(()) => {
            // SAFETY: valid places for the answers.
            none_is_empty(list(ZeDriver::NULL, |count, all| unsafe { ze.zeDriverGet(count, all) }))
        }
        Err(failed) => none_is_empty(Err(failed)),
    }
}

/// A loader without a driver says that it is not initialised.
fn none_is_empty(found: Result<Vec<ZeDriver>, Failed>) -> Result<Vec<ZeDriver>, Failed> {
    match found {
        Err(Failed { code: ZE_RESULT_ERROR_UNINITIALIZED, .. }) => Ok(Vec::new()),
        found => found,
    }
}

/// A device and its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gpu {
    pub(crate) driver: ZeDriver,
    pub(crate) device: ZeDevice,
    integrated: bool,
}

/// The GPUs of drivers, in the order of the interface. Where there are cards, GPUs inside of processors are left out, as
/// other runtimes over this interface do.
pub(crate) fn gpus(ze: &Ze, drivers: &[ZeDriver]) -> Result<Vec<Gpu>, Failed> {
    let mut all = Vec::new();
    for &driver in drivers {
        // SAFETY: a live driver, valid places for the answers.
        let devices = list(ZeDevice::NULL, |count, all| unsafe { ze.zeDeviceGet(driver, count, all) })?;
        for device in devices {
            let mut properties = ZeDeviceProperties::new();
            // SAFETY: a live device, a valid place for the answer.
            unsafe { ze.zeDeviceGetProperties(device, &raw mut properties) }?;
            if properties.kind == ZE_DEVICE_TYPE_GPU {
                let integrated = properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0;
                all.push(Gpu { driver, device, integrated });
            }
        }
    }
    Ok(discrete_first(all, |gpu| gpu.integrated))
}

/// Nanoseconds between ticks of a timer of that frequency, rounded.
pub(crate) fn stamp_ns(frequency: u64) -> u32 {
    u32::try_from((1_000_000_000 + frequency / 2) / frequency.max(1)).unwrap_or(u32::MAX).max(1)
}

/// A version of a driver as its vendor writes it: major, minor, build.
fn driver_version(number: u32) -> String {
    format!("{}.{}.{}", number >> 24, number >> 16 & 0xff, number & 0xffff)
}

/// Whether a driver lists an extension.
fn has_extension(ze: &Ze, driver: ZeDriver, name: &str) -> bool {
    let blank = ZeDriverExtensionProperties { name: [0; 256], version: 0 };
    // SAFETY: a live driver, valid places for the answers.
    let all = list(blank, |count, all| unsafe { ze.zeDriverGetExtensionProperties(driver, count, all) });
    all.is_ok_and(|all| all.iter().any(|extension| text(&extension.name) == name))
}

/// What a device says of itself.
pub(crate) struct Told {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) builtins: Arc<Builtins>,
    /// The group of queues that computes.
    pub(crate) group: u32,
    /// What it is on the management side.
    pub(crate) unit: Option<Unit>,
}

/// Asks a device. It is not opened by that.
pub(crate) fn told(platform: &Platform, device: ZeDevice) -> Result<Told, Failed> {
    let ze = platform.ze;
    let mut driver = ZeDriverProperties::new();
    let mut properties = ZeDeviceProperties::new();
    let by_frequency = platform.version >= version(1, 2);
    if by_frequency {
        properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    }
    let mut compute = ZeDeviceComputeProperties::new();
    let mut module = ZeDeviceModuleProperties::new();
    // SAFETY: live handles and valid places for the answers.
    unsafe {
        ze.zeDriverGetProperties(platform.driver, &raw mut driver)?;
        ze.zeDeviceGetProperties(device, &raw mut properties)?;
        ze.zeDeviceGetComputeProperties(device, &raw mut compute)?;
        ze.zeDeviceGetModuleProperties(device, &raw mut module)?;
    }
    // SAFETY: as above.
    let groups = list(ZeCommandQueueGroupProperties::new(), |count, all| unsafe {
        ze.zeDeviceGetCommandQueueGroupProperties(device, count, all)
    })?;
    // SAFETY: as above.
    let memories = list(ZeDeviceMemoryProperties::new(), |count, all| unsafe {
        ze.zeDeviceGetMemoryProperties(device, count, all)
    })?;
    let mut pci = ZePciExtProperties::new();
    // SAFETY: as above. Devices that are on no bus have none.
    let on_bus = unsafe { ze.zeDevicePciGetPropertiesExt(device, &raw mut pci) }.is_ok();
    let computes = |group: &&ZeCommandQueueGroupProperties| {
        group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0 && group.queues > 0
    };
    let group = groups.iter().position(|group| computes(&group)).unwrap_or(0);
    let max_pattern = groups.get(group).map_or(1, |group| group.max_fill_pattern).max(1);
    let frequency = match properties.timer_resolution {
        0 => 1_000_000_000,
        told if by_frequency => told,
        nanoseconds => 1_000_000_000 / nanoseconds.min(1_000_000_000),
    };
    let memory: u64 = memories.iter().map(|memory| memory.total_size).sum();
    let plain_alloc = properties.max_mem_alloc_size.min(memory);
    let relaxed = has_extension(ze, platform.driver, RELAXED);
    let cores = properties.slices.saturating_mul(properties.subslices_per_slice);
    let builtins = Builtins::new(
        module.fp32_flags,
        if module.flags & ZE_DEVICE_MODULE_FLAG_FP64 != 0 { module.fp64_flags } else { 0 },
        compute.max_shared_local_memory,
        compute.max_total_group_size.min(compute.max_group_size[0]),
        cores,
    );
    let registers = ["zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer"];
    let limits = Limits {
        max_threads: compute.max_total_group_size,
        max_threads_by_axis: compute.max_group_size,
        max_groups: compute.max_group_count,
        max_shared: compute.max_shared_local_memory,
        plain_alloc,
        max_pattern,
        register: registers.iter().all(|name| platform.extensions.has(name)),
        recorder: Recorder::of(&platform.extensions),
        granularity: 0,
        frequency,
        clock_bits: match properties.timestamp_valid_bits {
            0 => 64,
            bits => bits,
        },
    };
    let part = properties.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE != 0;
    let tile = part.then_some(properties.subdevice_id);
    let (uuid, pci) = (identity(properties.uuid), on_bus.then(|| place(pci.address)));
    let unit = probe::join(uuid, pci, tile);
    // What was said before the start holds after it, as far as it was known.
    let before = unit.as_ref().map(|unit| &unit.info);
    let memory = before.map(|info| info.memory).filter(|&memory| memory > 0).unwrap_or(memory);
    let plain_alloc = plain_alloc.min(memory);
    let info = DeviceInfo {
        name: before.map_or_else(|| text(&properties.name), |info| info.name.clone()),
        vendor: if properties.vendor_id == INTEL {
            "Intel".to_owned()
        } else {
            format!("{:#06x}", properties.vendor_id)
        },
        driver: before.map_or_else(|| driver_version(driver.driver_version), |info| info.driver.clone()),
        uuid,
        pci,
        memory,
        max_alloc: if relaxed { memory } else { plain_alloc },
        stamp_ns: stamp_ns(frequency),
        fill_patterns: PatternSizes((1_u32 << (max_pattern.ilog2() + 1).min(5)) - 1),
        cores: before.and_then(|info| info.cores).or(Some(cores).filter(|&cores| cores > 0)),
        clock_mhz: Some(properties.core_clock_rate).filter(|&mhz| mhz > 0),
        integrated: Some(properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0),
        dtypes: if builtins.converts() { builtin::dtypes() } else { DTypeSet::EMPTY },
        ..blank()
    };
    Ok(Told { info, limits, builtins: Arc::new(builtins), group: group as u32, unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_the_vendor_writes_them() {
        assert_eq!(driver_version(0x0103_74f0), "1.3.29936");
    }
}
