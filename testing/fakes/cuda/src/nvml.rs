//! The management library: answers without the driver being started, in the order of the bus.

use crate::call::{exports, put};
use crate::config::{Card, config, uuid_text};
use crate::device_calls::put_text;
use anyaccel_cuda::sys::*;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI64, Ordering};

static STARTED: AtomicI64 = AtomicI64::new(0);

fn started() -> crate::call::Result {
    if STARTED.load(Ordering::Acquire) > 0 { Ok(()) } else { Err(NVML_ERROR_UNINITIALIZED) }
}

/// Handles are places on the bus and instances, so that the same card has the same one at any time.
fn handle(place: u32, instance: Option<u32>) -> NvmlDevice {
    NvmlDevice(0x1000 + place as usize * 256 + instance.map_or(0, |instance| 1 + instance as usize))
}

fn find(device: NvmlDevice) -> crate::call::Result<(&'static Card, Option<u32>)> {
    started()?;
    let number = device.0.checked_sub(0x1000).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
    let card = config().cards.get(number / 256).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
    let instance = (number % 256).checked_sub(1).map(|instance| instance as u32);
    Ok((card, instance))
}

/// A sensor of a card; instances have none.
fn sensor(device: NvmlDevice) -> crate::call::Result<&'static Card> {
    let (card, instance) = find(device)?;
    if card.lost.load(Ordering::Acquire) != 0 {
        return Err(NVML_ERROR_GPU_IS_LOST);
    }
    if instance.is_some() { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(card) }
}

exports! {
    fn nvmlInit_v2() {
        if config().cards.is_empty() {
            return Err(NVML_ERROR_DRIVER_NOT_LOADED);
        }
        STARTED.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn nvmlShutdown() {
        started()?;
        STARTED.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    fn nvmlSystemGetDriverVersion(version: *mut c_char, len: u32) {
        started()?;
        let branch = match config().driver {
            (..=11, _) => "520.61.05",
            (12, 0..=1) => "525.60.13",
            (12, 2..=7) => "535.261.03",
            (12, _) => "570.86.10",
            _ => "580.65.06",
        };
        put_text(version, len as usize, branch)
    }

    fn nvmlDeviceGetCount_v2(count: *mut u32) {
        started()?;
        put(count, config().cards.len() as u32)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: *mut NvmlDevice) {
        started()?;
        if index as usize >= config().cards.len() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        put(out, handle(index, None))
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut NvmlDevice) {
        started()?;
        let wanted = CStr::from_ptr(uuid).to_string_lossy();
        for card in &config().cards {
            for instance in std::iter::once(None).chain((0..card.instances).map(Some)) {
                if uuid_text(card.place, instance) == wanted {
                    return put(out, handle(card.place, instance));
                }
            }
        }
        Err(NVML_ERROR_NOT_FOUND)
    }

    fn nvmlDeviceGetName(device: NvmlDevice, name: *mut c_char, len: u32) {
        put_text(name, len as usize, &find(device)?.0.name)
    }

    fn nvmlDeviceGetUUID(device: NvmlDevice, uuid: *mut c_char, len: u32) {
        let (card, instance) = find(device)?;
        put_text(uuid, len as usize, &uuid_text(card.place, instance))
    }

    fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory) {
        let card = find(device)?.0;
        let used = card.used.load(Ordering::Acquire);
        put(memory, NvmlMemory { total: card.memory + RESERVED, free: card.memory.saturating_sub(used), used: used + RESERVED })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut NvmlMemoryV2) {
        let card = find(device)?.0;
        if (*memory).version != NVML_MEMORY_V2 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let used = card.used.load(Ordering::Acquire);
        let (total, free) = (card.memory + RESERVED, card.memory.saturating_sub(used));
        put(memory, NvmlMemoryV2 { version: NVML_MEMORY_V2, total, reserved: RESERVED, free, used })
    }

    fn nvmlDeviceGetPciInfo_v3(device: NvmlDevice, pci: *mut NvmlPciInfo) {
        let card = find(device)?.0;
        put(pci, NvmlPciInfo {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0x10 + card.place,
            device: 0,
            pciDeviceId: 0x2335_10de,
            pciSubSystemId: 0,
            busId: [0; 32],
        })
    }

    fn nvmlDeviceGetUtilizationRates(device: NvmlDevice, rates: *mut NvmlUtilization) {
        let card = sensor(device)?;
        put(rates, NvmlUtilization { gpu: 30 + card.place, memory: 10 + card.place })
    }

    fn nvmlDeviceGetTemperature(device: NvmlDevice, sensor_kind: u32, celsius: *mut u32) {
        let card = sensor(device)?;
        if sensor_kind != NVML_TEMPERATURE_GPU {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        put(celsius, 40 + card.place)
    }

    fn nvmlDeviceGetPowerUsage(device: NvmlDevice, milliwatts: *mut u32) {
        put(milliwatts, 100_500 + 1000 * sensor(device)?.place)
    }

    fn nvmlDeviceGetClockInfo(device: NvmlDevice, clock: u32, mhz: *mut u32) {
        let card = sensor(device)?;
        if clock != NVML_CLOCK_SM {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        put(mhz, 1200 + card.place)
    }

    fn nvmlDeviceGetMaxClockInfo(device: NvmlDevice, clock: u32, mhz: *mut u32) {
        sensor(device)?;
        if clock != NVML_CLOCK_SM {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        put(mhz, 1980)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: NvmlDevice, major: *mut i32, minor: *mut i32) {
        let card = find(device)?.0;
        put(major, card.major)?;
        put(minor, card.minor)
    }

    fn nvmlDeviceGetNumGpuCores(device: NvmlDevice, cores: *mut u32) {
        find(device)?;
        put(cores, 512)
    }

    fn nvmlDeviceGetMigMode(device: NvmlDevice, current: *mut u32, pending: *mut u32) {
        let (card, _) = find(device)?;
        let on = u32::from(card.instances > 0);
        put(current, on)?;
        put(pending, on)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: NvmlDevice, count: *mut u32) {
        let (card, _) = find(device)?;
        put(count, if card.instances > 0 { 7 } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: NvmlDevice, index: u32, out: *mut NvmlDevice) {
        let (card, _) = find(device)?;
        if index >= card.instances {
            return Err(NVML_ERROR_NOT_FOUND);
        }
        put(out, handle(card.place, Some(index)))
    }
}

/// What a card keeps for itself.
const RESERVED: u64 = 64 << 20;
