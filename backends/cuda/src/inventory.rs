//! What the management library knows of the cards, without the driver being started.
//!
//! The library is initialised for one look and shut down after it, so no file stays open (H22).

use crate::conv::Failed;
use crate::mask;
use crate::sys::*;
use anyaccel_hal::{DTypeSet, DeviceInfo, PatternSizes, PciAddress, PriorityRange, Uuid};
use std::ffi::{CStr, CString, c_char};

/// A card, or an instance of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Unit {
    /// As the library writes it: `GPU-` or `MIG-` and the identity.
    pub(crate) text: String,
    pub(crate) info: DeviceInfo,
}

/// A card and what it is cut into.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Card {
    pub(crate) unit: Unit,
    pub(crate) cut: bool,
    pub(crate) instances: Vec<Unit>,
}

/// All cards, in the order of the bus.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Inventory {
    pub(crate) cards: Vec<Card>,
}

/// Ends what one initialisation began.
struct Open(&'static Nvml);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: pairs with the initialisation that made this value.
        let _ended = unsafe { self.0.nvmlShutdown() };
    }
}

/// A text that the library writes into a buffer.
pub(crate) fn text(write: impl FnOnce(*mut c_char, u32) -> Result<(), Failed>) -> Result<String, Failed> {
    let mut buffer = [0 as c_char; 128];
    write(buffer.as_mut_ptr(), buffer.len() as u32 - 1)?;
    // SAFETY: the last byte is zero whatever was written before it.
    Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}

/// The identity in a text of the library's.
pub(crate) fn identity(text: &str) -> Option<Uuid> {
    let digits = text.split_once('-')?.1;
    let mut bytes = [0; 16];
    let mut nibbles = digits.chars().filter(|&c| c != '-').map(|c| c.to_digit(16));
    for byte in &mut bytes {
        let (high, low) = (nibbles.next()??, nibbles.next()??);
        *byte = (high << 4 | low) as u8;
    }
    nibbles.next().is_none().then_some(Uuid(bytes))
}

/// What the built-in kernels' code is made for.
pub(crate) const LEAST_CAPABILITY: (i32, i32) = (6, 0);

/// Element types of the built-in conversion by compute capability.
pub(crate) fn dtypes(capability: (i32, i32)) -> DTypeSet {
    if capability >= LEAST_CAPABILITY { crate::builtin::dtypes() } else { DTypeSet::EMPTY }
}

/// Priorities of streams. Older cards have two levels; a level that a card lacks is clamped by its driver.
pub(crate) const fn priorities(capability: (i32, i32)) -> PriorityRange {
    PriorityRange { least: 0, greatest: if capability.0 >= 7 { -5 } else { -1 } }
}

/// Lanes of a multiprocessor, where the vendor has published them.
const fn lanes(capability: (i32, i32)) -> Option<u32> {
    match capability {
        (6, 0) | (7, _) | (8, 0) => Some(64),
        (6, _) | (8, _) | (9, _) | (10, _) | (12, _) => Some(128),
        _ => None,
    }
}

/// What every device of this backend has alike.
pub(crate) fn blank(capability: (i32, i32)) -> DeviceInfo {
    DeviceInfo {
        name: String::new(),
        vendor: "NVIDIA".to_owned(),
        driver: String::new(),
        uuid: None,
        pci: None,
        memory: 0,
        max_alloc: 0,
        // What cuMemAlloc promises.
        alignment: 256,
        place_alignment: 1,
        host_ends: true,
        stamp_ns: 500,
        fill_patterns: PatternSizes(0b0_0111),
        cores: None,
        clock_mhz: None,
        integrated: None,
        priorities: priorities(capability),
        dtypes: dtypes(capability),
    }
}

impl Inventory {
    /// Looks once.
    ///
    /// # Errors
    /// The first call that failed for a reason that concerns all cards.
    pub(crate) fn read(nvml: &'static Nvml) -> Result<Self, Failed> {
        // SAFETY: no arguments; ended by `Open`.
        unsafe { nvml.nvmlInit_v2() }?;
        let open = Open(nvml);
        // SAFETY: the pointer is valid for the length that goes with it.
        let driver = text(|out, len| unsafe { nvml.nvmlSystemGetDriverVersion(out, len) })?;
        let mut count = 0;
        // SAFETY: a valid place for the answer.
        unsafe { nvml.nvmlDeviceGetCount_v2(&raw mut count) }?;
        let mut cards = Vec::new();
        for index in 0..count {
            let mut device = NvmlDevice::NULL;
            // SAFETY: a valid place for the answer. A card that this user may not see is none.
            if unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) }.is_ok() {
                cards.push(card(nvml, device, &driver)?);
            }
        }
        drop(open);
        Ok(Self { cards })
    }

    /// The cards as the mask names them, in an order.
    pub(crate) fn named(&self, order: &[usize]) -> Vec<mask::Card> {
        let named = |&at: &usize| {
            let card = &self.cards[at];
            let instances = card.instances.iter().map(|unit| unit.text.clone()).collect();
            mask::Card { uuid: card.unit.text.clone(), cut: card.cut, instances }
        };
        order.iter().map(named).collect()
    }

    /// Whoever has that identity.
    pub(crate) fn find(&self, uuid: Uuid) -> Option<&Unit> {
        let units = self.cards.iter().flat_map(|card| std::iter::once(&card.unit).chain(&card.instances));
        units.into_iter().find(|unit| unit.info.uuid == Some(uuid))
    }
}

fn card(nvml: &Nvml, device: NvmlDevice, driver: &str) -> Result<Card, Failed> {
    let unit = unit(nvml, device, driver)?;
    let (mut current, mut pending) = (0, 0);
    // SAFETY: valid places for the answers. What has no such mode is whole.
    let mode = unsafe { nvml.nvmlDeviceGetMigMode(device, &raw mut current, &raw mut pending) };
    let cut = mode.is_ok() && current == 1;
    let mut instances = Vec::new();
    if cut {
        let mut most = 0;
        // SAFETY: a valid place for the answer.
        unsafe { nvml.nvmlDeviceGetMaxMigDeviceCount(device, &raw mut most) }?;
        for index in 0..most {
            let mut instance = NvmlDevice::NULL;
            // SAFETY: a valid place for the answer. There may be fewer instances than there could be.
            if unsafe { nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index, &raw mut instance) }.is_ok() {
                let mut part = self::unit(nvml, instance, driver)?;
                part.info.pci = part.info.pci.or(unit.info.pci);
                instances.push(part);
            }
        }
    }
    Ok(Card { unit, cut, instances })
}

fn unit(nvml: &Nvml, device: NvmlDevice, driver: &str) -> Result<Unit, Failed> {
    // SAFETY: a buffer of the length that goes with it.
    let name = text(|out, len| unsafe { nvml.nvmlDeviceGetName(device, out, len) })?;
    // SAFETY: as above.
    let identified = text(|out, len| unsafe { nvml.nvmlDeviceGetUUID(device, out, len) })?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: as above.
    unsafe { nvml.nvmlDeviceGetCudaComputeCapability(device, &raw mut major, &raw mut minor) }?;
    let capability = (major, minor);
    let memory = usable_memory(nvml, device)?;
    let (mut lanes_all, mut mhz) = (0, 0);
    // SAFETY: as above.
    let counted = unsafe { nvml.nvmlDeviceGetNumGpuCores(device, &raw mut lanes_all) }.is_ok();
    // SAFETY: as above. Instances have no clock of their own.
    let clocked = unsafe { nvml.nvmlDeviceGetMaxClockInfo(device, NVML_CLOCK_SM, &raw mut mhz) }.is_ok();
    let cores = lanes(capability).filter(|_| counted).map(|lanes| lanes_all / lanes).filter(|&cores| cores > 0);
    let info = DeviceInfo {
        name,
        driver: driver.to_owned(),
        uuid: identity(&identified),
        pci: pci(nvml, device),
        memory,
        max_alloc: memory,
        cores,
        clock_mhz: (clocked && mhz > 0).then_some(mhz),
        ..blank(capability)
    };
    Ok(Unit { text: identified, info })
}

/// Memory less what the driver keeps for itself, as the driver counts it too.
fn usable_memory(nvml: &Nvml, device: NvmlDevice) -> Result<u64, Failed> {
    let mut newer = NvmlMemoryV2 { version: NVML_MEMORY_V2, ..NvmlMemoryV2::default() };
    // SAFETY: a valid place for the answer, with its version in it.
    if unsafe { nvml.nvmlDeviceGetMemoryInfo_v2(device, &raw mut newer) }.is_ok() {
        return Ok(newer.total.saturating_sub(newer.reserved));
    }
    let mut memory = NvmlMemory::default();
    // SAFETY: a valid place for the answer.
    unsafe { nvml.nvmlDeviceGetMemoryInfo(device, &raw mut memory) }?;
    Ok(memory.total)
}

fn pci(nvml: &Nvml, device: NvmlDevice) -> Option<PciAddress> {
    let mut pci = NvmlPciInfo {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    };
    // SAFETY: a valid place for the answer.
    unsafe { nvml.nvmlDeviceGetPciInfo_v3(device, &raw mut pci) }.ok()?;
    Some(PciAddress { domain: pci.domain, bus: pci.bus as u8, device: pci.device as u8, function: 0 })
}

/// The management library's handle on a device, kept while sensors may be read.
#[derive(Debug)]
pub(crate) struct Sensors {
    nvml: &'static Nvml,
    device: NvmlDevice,
}

impl Sensors {
    /// By identity, never by number: the two libraries count in different orders.
    pub(crate) fn find(nvml: &'static Nvml, unit: &Unit) -> Option<Self> {
        let uuid = CString::new(unit.text.as_str()).ok()?;
        // SAFETY: no arguments; ended by Drop, or below.
        unsafe { nvml.nvmlInit_v2() }.ok()?;
        let mut sensors = Self { nvml, device: NvmlDevice::NULL };
        // SAFETY: a C string and a valid place for the answer.
        unsafe { nvml.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut sensors.device) }.ok()?;
        Some(sensors)
    }

    /// Asks one of them.
    pub(crate) fn ask<T: Default>(
        &self,
        read: impl FnOnce(&Nvml, NvmlDevice, *mut T) -> Result<(), Failed>,
    ) -> Result<T, Failed> {
        let mut answer = T::default();
        read(self.nvml, self.device, &raw mut answer)?;
        Ok(answer)
    }
}

impl Drop for Sensors {
    fn drop(&mut self) {
        // SAFETY: pairs with the initialisation in `find`.
        let _ended = unsafe { self.nvml.nvmlShutdown() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_from_text() {
        let uuid = identity("GPU-12345678-9abc-def0-0102-030405060708").expect("an identity");
        assert_eq!(uuid.to_string(), "12345678-9abc-def0-0102-030405060708");
        assert_eq!(identity("MIG-12345678-9abc-def0-0102-030405060708"), Some(uuid));
        for bad in [
            "",
            "GPU-",
            "GPU-1234",
            "GPU-12345678-9abc-def0-0102-0304050607080",
            "GPU-g2345678-9abc-def0-0102-030405060708",
        ] {
            assert_eq!(identity(bad), None, "{bad}");
        }
    }
}
