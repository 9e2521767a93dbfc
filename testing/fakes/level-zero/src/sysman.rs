//! Sysman: what a card says of itself, with no runtime.
//!
//! Its devices are cards, whatever the hierarchy and the mask say. Their handles are of its own, once `zesInit` was called;
//! the old style, for runtimes that start under `ZES_ENABLE_SYSMAN=1`, takes those of the runtime. Nothing here locks or
//! allocates what must outlive a fork: it all answers in a child too.

use crate::abi::*;
use crate::call::{Result, exports, fill, initialised, list, put, text};
use crate::clock;
use crate::config::{Card, config, uuid};
use crate::device::{self, Device};
use crate::device_calls::{bus, describe};
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

static STARTED: AtomicBool = AtomicBool::new(false);

const DRIVER: Handle = 0x00D5_0000_0000;
const FIRST: Handle = 0x005E_0000_0000;
/// Handles of the parts of a card: its own, and this much for each kind of part.
const KIND: Handle = 0x10_0000;
const CARD: Handle = 0x1_0000;

/// Kinds of parts.
#[derive(Clone, Copy)]
enum Part {
    Memory = 1,
    Temperature,
    Power,
    Frequency,
    Engine,
}

const SENSORS: [u32; 3] = [ZES_TEMP_SENSORS_GLOBAL, ZES_TEMP_SENSORS_GPU, ZES_TEMP_SENSORS_MEMORY];
const DOMAINS: [u32; 2] = [ZES_FREQ_DOMAIN_GPU, ZES_FREQ_DOMAIN_MEMORY];
const GROUPS: [u32; 3] = [ZES_ENGINE_GROUP_ALL, ZES_ENGINE_GROUP_COMPUTE_ALL, ZES_ENGINE_GROUP_COPY_ALL];

fn old_style() -> bool {
    initialised() && env::var("ZES_ENABLE_SYSMAN").as_deref() == Ok("1")
}

fn sysman() -> Result {
    match config().has("sysman") && (STARTED.load(Ordering::Acquire) || old_style()) {
        true => Ok(()),
        false => Err(ZE_RESULT_ERROR_UNINITIALIZED),
    }
}

/// The card that a handle of either style names.
fn card(handle: Handle) -> Result<&'static Card> {
    sysman()?;
    let cards = &config().cards;
    if handle == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    if STARTED.load(Ordering::Acquire)
        && let Some(place) = handle.checked_sub(FIRST).filter(|at| at.is_multiple_of(16)).map(|at| at / 16)
        && let Some(card) = cards.get(place)
    {
        return Ok(card);
    }
    if old_style() {
        return Ok(device::get(handle)?.card);
    }
    Err(ZE_RESULT_ERROR_INVALID_ARGUMENT)
}

fn part_handle(card: &Card, part: Part, at: usize) -> Handle {
    FIRST + part as usize * KIND + (1 + card.place as usize) * CARD + 16 * at
}

/// The card and the number of a part.
fn part(handle: Handle, part: Part) -> Result<(&'static Card, usize)> {
    sysman()?;
    if handle == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    let at = handle.checked_sub(FIRST + part as usize * KIND).filter(|&at| at < KIND);
    let at = at.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    let card = (at / CARD).checked_sub(1).and_then(|place| config().cards.get(place));
    Ok((card.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?, at % CARD / 16))
}

/// Lists the parts of a kind.
///
/// # Safety
/// As for `list`.
unsafe fn parts(handle: Handle, of: Part, many: usize, count: *mut u32, out: *mut Handle) -> Result {
    let card = card(handle)?;
    // SAFETY: this function's contract.
    unsafe { list(count, out, (0..many).map(|at| part_handle(card, of, at)), |to, handle| *to = handle) }
}

/// Tiles, for parts of which each has one.
fn tiles(handle: Handle) -> Result<usize> {
    card(handle).map(|card| card.tiles as usize)
}

fn on_tile(card: &Card, at: usize) -> (u8, u32) {
    if card.tiles > 1 { (1, at as u32) } else { (0, 0) }
}

exports! {
    fn zesInit(flags: u32) {
        if flags != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        // On some cards one can't follow the other.
        if !config().has("sysman") || (initialised() && !config().has("sysman_late")) {
            return Err(ZE_RESULT_ERROR_UNINITIALIZED);
        }
        STARTED.store(true, Ordering::Release);
        Ok(())
    }

    fn zesDriverGet(count: *mut u32, out: *mut Handle) {
        if !STARTED.load(Ordering::Acquire) {
            return Err(ZE_RESULT_ERROR_UNINITIALIZED);
        }
        list(count, out, [DRIVER].into_iter(), |to, handle| *to = handle)
    }

    fn zesDeviceGet(driver: Handle, count: *mut u32, out: *mut Handle) {
        if !STARTED.load(Ordering::Acquire) {
            return Err(ZE_RESULT_ERROR_UNINITIALIZED);
        }
        if driver != DRIVER {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        list(count, out, (0..config().cards.len()).map(|at| FIRST + 16 * at), |to, handle| *to = handle)
    }

    fn zesDeviceGetProperties(device: Handle, out: *mut zes_device_properties_t) {
        let card = card(device)?;
        let out = fill(out)?;
        let tiles = (0..card.tiles).collect();
        let whole = Device { handle: 0, card, tiles, is_part: false, root: None, parts: Vec::new() };
        describe(&whole, &mut out.core);
        out.numSubdevices = if card.tiles > 1 { card.tiles } else { 0 };
        out.serialNumber = text(&format!("FAKE{:04}", card.place));
        out.boardNumber = text("unknown");
        out.brandName = text("Intel(R) Corporation");
        out.modelName = text(&card.name);
        out.vendorName = text("Intel(R) Corporation");
        out.driverVersion = text("anyaccel");
        Ok(())
    }

    fn zesDeviceGetSubDevicePropertiesExp(
        device: Handle,
        count: *mut u32,
        out: *mut zes_subdevice_exp_properties_t,
    ) {
        let card = card(device)?;
        let many = if card.tiles > 1 { card.tiles } else { 0 };
        list(count, out, (0..many as usize).map(|tile| zes_subdevice_exp_properties_t {
            stype: 0,
            pNext: std::ptr::null_mut(),
            subdeviceId: tile as u32,
            uuid: uuid(card.place, Some(tile as u32)),
        }), |to, from| (to.subdeviceId, to.uuid) = (from.subdeviceId, from.uuid))
    }

    fn zesDeviceGetState(device: Handle, out: *mut zes_device_state_t) {
        let card = card(device)?;
        let out = fill(out)?;
        out.reset = u32::from(card.lost.load(Ordering::Acquire));
        out.repaired = 0;
        Ok(())
    }

    fn zesDevicePciGetProperties(device: Handle, out: *mut zes_pci_properties_t) {
        let card = card(device)?;
        let out = fill(out)?;
        out.address = zes_pci_address_t { domain: 0, bus: bus(card.place), device: 0, function: 0 };
        out.maxSpeed = zes_pci_speed_t { r#gen: 5, width: 16, maxBandwidth: 64_000_000_000 };
        (out.haveBandwidthCounters, out.havePacketCounters, out.haveReplayCounters) = (0, 0, 0);
        Ok(())
    }

    fn zesDeviceEnumMemoryModules(device: Handle, count: *mut u32, out: *mut Handle) {
        parts(device, Part::Memory, tiles(device)?, count, out)
    }

    fn zesMemoryGetProperties(memory: Handle, out: *mut zes_mem_properties_t) {
        let (card, at) = part(memory, Part::Memory)?;
        let out = fill(out)?;
        out.r#type = ZES_MEM_TYPE_HBM;
        (out.onSubdevice, out.subdeviceId) = on_tile(card, at);
        out.location = if card.integrated { ZES_MEM_LOC_SYSTEM } else { ZES_MEM_LOC_DEVICE };
        out.physicalSize = card.memory;
        (out.busWidth, out.numChannels) = (128, 8);
        Ok(())
    }

    fn zesMemoryGetState(memory: Handle, out: *mut zes_mem_state_t) {
        let (card, at) = part(memory, Part::Memory)?;
        let used = card.used.get(at).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?.load(Ordering::Acquire);
        let out = fill(out)?;
        out.health = ZES_MEM_HEALTH_OK;
        (out.free, out.size) = (card.memory.saturating_sub(used), card.memory);
        Ok(())
    }

    fn zesMemoryGetBandwidth(memory: Handle, out: *mut zes_mem_bandwidth_t) {
        let (card, _) = part(memory, Part::Memory)?;
        let moved = card.moved.load(Ordering::Relaxed);
        let timestamp = clock::now() / 1000;
        put(out, zes_mem_bandwidth_t { readCounter: moved, writeCounter: moved, maxBandwidth: 1_600_000_000_000, timestamp })
    }

    fn zesDeviceEnumTemperatureSensors(device: Handle, count: *mut u32, out: *mut Handle) {
        parts(device, Part::Temperature, SENSORS.len(), count, out)
    }

    fn zesTemperatureGetProperties(sensor: Handle, out: *mut zes_temp_properties_t) {
        let (_, at) = part(sensor, Part::Temperature)?;
        let out = fill(out)?;
        out.r#type = *SENSORS.get(at).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        (out.onSubdevice, out.subdeviceId) = (0, 0);
        out.maxTemperature = 105.0;
        (out.isCriticalTempSupported, out.isThreshold1Supported, out.isThreshold2Supported) = (0, 0, 0);
        Ok(())
    }

    fn zesTemperatureGetState(sensor: Handle, out: *mut f64) {
        let (card, at) = part(sensor, Part::Temperature)?;
        put(out, 40.0 + f64::from(card.place) + 5.0 * at as f64)
    }

    fn zesDeviceEnumPowerDomains(device: Handle, count: *mut u32, out: *mut Handle) {
        parts(device, Part::Power, 1, count, out)
    }

    fn zesDeviceGetCardPowerDomain(device: Handle, out: *mut Handle) {
        put(out, part_handle(card(device)?, Part::Power, 0))
    }

    fn zesPowerGetProperties(power: Handle, out: *mut zes_power_properties_t) {
        part(power, Part::Power)?;
        let out = fill(out)?;
        (out.onSubdevice, out.subdeviceId) = (0, 0);
        (out.canControl, out.isEnergyThresholdSupported) = (0, 0);
        (out.defaultLimit, out.minLimit, out.maxLimit) = (300_000, -1, 600_000);
        Ok(())
    }

    fn zesPowerGetEnergyCounter(power: Handle, out: *mut zes_power_energy_counter_t) {
        part(power, Part::Power)?;
        let micros = clock::now() / 1000;
        // 150 watts.
        put(out, zes_power_energy_counter_t { energy: micros * 150, timestamp: micros })
    }

    fn zesDeviceEnumFrequencyDomains(device: Handle, count: *mut u32, out: *mut Handle) {
        parts(device, Part::Frequency, DOMAINS.len(), count, out)
    }

    fn zesFrequencyGetProperties(domain: Handle, out: *mut zes_freq_properties_t) {
        let (_, at) = part(domain, Part::Frequency)?;
        let out = fill(out)?;
        out.r#type = *DOMAINS.get(at).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        (out.onSubdevice, out.subdeviceId) = (0, 0);
        (out.canControl, out.isThrottleEventSupported) = (0, 0);
        (out.min, out.max) = (900.0, 1600.0);
        Ok(())
    }

    fn zesFrequencyGetState(domain: Handle, out: *mut zes_freq_state_t) {
        part(domain, Part::Frequency)?;
        let out = fill(out)?;
        out.currentVoltage = -1.0;
        (out.request, out.tdp, out.efficient, out.actual) = (1600.0, 1600.0, 900.0, 1500.0);
        out.throttleReasons = 0;
        Ok(())
    }

    fn zesDeviceEnumEngineGroups(device: Handle, count: *mut u32, out: *mut Handle) {
        parts(device, Part::Engine, GROUPS.len(), count, out)
    }

    fn zesEngineGetProperties(engine: Handle, out: *mut zes_engine_properties_t) {
        let (_, at) = part(engine, Part::Engine)?;
        let out = fill(out)?;
        out.r#type = *GROUPS.get(at).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        (out.onSubdevice, out.subdeviceId) = (0, 0);
        Ok(())
    }

    fn zesEngineGetActivity(engine: Handle, out: *mut zes_engine_stats_t) {
        let (card, at) = part(engine, Part::Engine)?;
        let busy = |which: usize| card.busy[which].load(Ordering::Relaxed) / 1000;
        let timestamp = clock::now() / 1000;
        let activeTime = match *GROUPS.get(at).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)? {
            ZES_ENGINE_GROUP_COMPUTE_ALL => busy(0),
            ZES_ENGINE_GROUP_COPY_ALL => busy(1),
            _ => busy(0) + busy(1),
        };
        put(out, zes_engine_stats_t { activeTime: activeTime.min(timestamp), timestamp })
    }
}
