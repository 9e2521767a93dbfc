//! The GPUs of a loader that has started, and what they say of themselves.

use crate::builtin::{self, Builtins};
use crate::conv::Failed;
use crate::device::Limits;
use crate::memory::ALIGNMENT;
use crate::platform::Platform;
use crate::probe::mask::discrete_first;
use crate::sys::*;
use anyaccel_hal::{DTypeSet, DeviceInfo, PatternSizes, PciAddress, PriorityRange, Uuid};
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

/// Priorities of streams: low, normal, high. The interface has these three on every device; one that a device lacks its
/// driver takes as the nearest.
pub(crate) const PRIORITIES: PriorityRange = PriorityRange { least: 1, greatest: -1 };

/// Intel's number on the bus.
const INTEL: u32 = 0x8086;
/// The extension that lifts the limit of single allocations.
const RELAXED: &str = "ZE_experimental_relaxed_allocation_limits";

/// A native text.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks for a list in the interface's way: how many, then all.
pub(crate) fn list<T: Clone>(blank: T, ask: impl Fn(*mut u32, *mut T) -> Result<(), Failed>) -> Result<Vec<T>, Failed> {
    let mut count = 0;
    ask(&raw mut count, ptr::null_mut())?;
    let mut all = vec![blank; count as usize];
    if count > 0 {
        ask(&raw mut count, all.as_mut_ptr())?;
        // It may have become fewer.
        all.truncate(count as usize);
    }
    Ok(all)
}

/// An identity, unless the driver left it blank.
pub(crate) fn identity(bytes: [u8; 16]) -> Option<Uuid> {
    (bytes != [0; 16]).then_some(Uuid(bytes))
}

/// A place on the bus as the interface writes it.
pub(crate) fn place([domain, bus, device, function]: [u32; 4]) -> PciAddress {
    PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 }
}

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

/// What every device of this backend has alike.
pub(crate) fn blank() -> DeviceInfo {
    DeviceInfo {
        name: String::new(),
        vendor: "Intel".to_owned(),
        driver: String::new(),
        uuid: None,
        pci: None,
        memory: 0,
        max_alloc: 0,
        alignment: ALIGNMENT,
        place_alignment: 1,
        host_ends: true,
        stamp_ns: 1,
        fill_patterns: PatternSizes(1),
        cores: None,
        clock_mhz: None,
        integrated: None,
        priorities: PRIORITIES,
        dtypes: builtin::dtypes(),
    }
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
    /// Which part of a card it is, if it is one.
    pub(crate) subdevice: Option<u32>,
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
        granularity: 0,
        frequency,
        clock_bits: match properties.timestamp_valid_bits {
            0 => 64,
            bits => bits,
        },
    };
    let info = DeviceInfo {
        name: text(&properties.name),
        vendor: if properties.vendor_id == INTEL {
            "Intel".to_owned()
        } else {
            format!("{:#06x}", properties.vendor_id)
        },
        driver: driver_version(driver.driver_version),
        uuid: identity(properties.uuid),
        pci: on_bus.then(|| place(pci.address)),
        memory,
        max_alloc: if relaxed { memory } else { plain_alloc },
        stamp_ns: u32::try_from(1_000_000_000_u64.div_ceil(frequency)).unwrap_or(u32::MAX).max(1),
        fill_patterns: PatternSizes((1_u32 << (max_pattern.ilog2() + 1).min(5)) - 1),
        cores: Some(cores).filter(|&cores| cores > 0),
        clock_mhz: Some(properties.core_clock_rate).filter(|&mhz| mhz > 0),
        integrated: Some(properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0),
        dtypes: if builtins.converts() { builtin::dtypes() } else { DTypeSet::EMPTY },
        ..blank()
    };
    let part = properties.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE != 0;
    Ok(Told {
        info,
        limits,
        builtins: Arc::new(builtins),
        group: group as u32,
        subdevice: part.then_some(properties.subdevice_id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_the_vendor_writes_them() {
        assert_eq!(driver_version(0x0103_74f0), "1.3.29936");
    }

    #[test]
    fn texts_end_at_their_zero_or_their_length() {
        let chars: Vec<c_char> = b"Arc\0junk".iter().map(|&byte| byte as c_char).collect();
        assert_eq!(text(&chars), "Arc");
        assert_eq!(text(&chars[..2]), "Ar");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn a_list_that_shrinks_between_its_calls_is_what_is_left() {
        let shrinking = |count: *mut u32, out: *mut u32| {
            // SAFETY: the places that `list` gives.
            unsafe {
                if out.is_null() {
                    *count = 3;
                } else {
                    *count = 1;
                    *out = 7;
                }
            }
            Ok(())
        };
        assert_eq!(list(0, shrinking), Ok(vec![7]));
        let failed = Failed { api: "zesDriverGet", code: ZE_RESULT_ERROR_UNINITIALIZED };
        assert_eq!(list(0_u32, |_, _| Err(failed)), Err(failed));
    }
}
