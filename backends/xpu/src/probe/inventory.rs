//! What Sysman knows of the cards, without the runtime being started.
//!
//! Sysman has a start of its own (`zesInit`) and no end. It opens what it needs while it answers; nothing of ours stays behind (H22).

use crate::conv::Failed;
use crate::discovery::stamp_ns;
use crate::sys::*;
use anyaccel_hal::{DeviceInfo, PatternSizes, PciAddress, Uuid};
use std::ffi::c_char;
use std::ptr;

/// A card's memory module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Module {
    tile: Option<u32>,
    size: u64,
}

/// A card.
#[derive(Clone, PartialEq, Debug)]
pub struct Card {
    /// Which of the drivers it belongs to, by its place in their list.
    pub driver: usize,
    /// Its name on the management side.
    pub handle: ZesDevice,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// How many tiles it is made of; 0 if it is not.
    pub tiles: u32,
    /// The identities of its tiles, by their number, where the driver tells them.
    pub identities: Vec<(u32, Uuid)>,
    /// Its properties, as a whole.
    pub info: DeviceInfo,
    modules: Vec<Module>,
}

/// All cards, in the order of the management side.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inventory {
    /// How many drivers there are.
    pub drivers: usize,
    /// The cards that are GPUs, driver after driver.
    pub cards: Vec<Card>,
}

/// A device on the management side: a card or a tile of one.
#[derive(Clone, PartialEq, Debug)]
pub struct Unit {
    /// The card's name there.
    pub handle: ZesDevice,
    /// The tile, unless it is the card.
    pub tile: Option<u32>,
    /// Its properties.
    pub info: DeviceInfo,
}

/// A text in a field of a struct, up to its zero.
pub(crate) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// A list that the interface hands out in two calls: how many, then which.
pub(crate) fn list<T: Copy>(empty: T, ask: impl Fn(*mut u32, *mut T) -> Result<(), Failed>) -> Result<Vec<T>, Failed> {
    let mut count = 0;
    ask(&raw mut count, ptr::null_mut())?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut all = vec![empty; count as usize];
    ask(&raw mut count, all.as_mut_ptr())?;
    // It may have become fewer.
    all.truncate(count as usize);
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

/// What every device of this backend has alike, and what only the runtime can tell as it is on Intel's GPUs.
pub(crate) fn blank() -> DeviceInfo {
    DeviceInfo {
        name: String::new(),
        vendor: "Intel".to_owned(),
        driver: String::new(),
        uuid: None,
        pci: None,
        memory: 0,
        max_alloc: 0,
        alignment: crate::memory::ALIGNMENT,
        place_alignment: 1,
        host_ends: true,
        stamp_ns: 52,
        fill_patterns: PatternSizes::ALL,
        cores: None,
        clock_mhz: None,
        integrated: None,
        priorities: crate::discovery::PRIORITIES,
        dtypes: crate::builtin::dtypes(),
    }
}

impl Inventory {
    /// Looks once.
    ///
    /// # Errors
    /// The first call that failed: then no number of cards is sure.
    pub fn read(zes: &Zes) -> Result<Self, Failed> {
        // SAFETY: no flags. A second call does nothing.
        unsafe { zes.zesInit(0) }?;
        // SAFETY: valid places for the answers, here and in the calls below: a count, and null or as many as it says.
        let drivers = list(ZesDriver::NULL, |count, out| unsafe { zes.zesDriverGet(count, out) })?;
        let mut cards = Vec::new();
        for (driver, &handle) in drivers.iter().enumerate() {
            // SAFETY: as above, of a driver that was just listed.
            for device in list(ZesDevice::NULL, |count, out| unsafe { zes.zesDeviceGet(handle, count, out) })? {
                cards.extend(card(zes, driver, device)?);
            }
        }
        Ok(Self { drivers: drivers.len(), cards })
    }

    /// The card at that place, or one of its tiles.
    pub fn unit(&self, card: usize, tile: Option<u32>) -> Option<Unit> {
        self.cards.get(card).map(|card| card.unit(tile))
    }

    /// What a device of the runtime is on this side: by its identity, else by its place on the bus where one card has that.
    /// Never by order: the two sides may list cards in different ones.
    ///
    /// `tile` is the tile that the runtime says the device is, which it may leave out where tiles are devices.
    pub fn find(&self, uuid: Option<Uuid>, pci: Option<PciAddress>, tile: Option<u32>) -> Option<Unit> {
        let named = uuid.and_then(|uuid| self.cards.iter().find_map(|card| Some((card, card.is(uuid)?))));
        if let Some((card, of_identity)) = named {
            return Some(card.unit(of_identity.or(tile)));
        }
        let mut there = self.cards.iter().filter(|card| pci.is_some() && card.info.pci == pci);
        match (there.next(), there.next()) {
            // Of several tiles only one that has a number is known.
            (Some(card), None) if card.tiles < 2 || tile.is_some() => Some(card.unit(tile)),
            _ => None,
        }
    }
}

impl Card {
    /// A card of which no more is known than this.
    #[cfg(test)]
    pub(crate) fn new(driver: usize, handle: ZesDevice, tiles: u32, info: DeviceInfo) -> Self {
        let integrated = info.integrated == Some(true);
        Self { driver, handle, integrated, tiles, identities: Vec::new(), info, modules: Vec::new() }
    }

    /// Whether an identity is this card's (`Some(None)`), or that of a tile.
    fn is(&self, uuid: Uuid) -> Option<Option<u32>> {
        let own = self.info.uuid;
        if own == Some(uuid) {
            return Some(None);
        }
        if let Some(&(tile, _)) = self.identities.iter().find(|&&(_, identity)| identity == uuid) {
            return Some(Some(tile));
        }
        // Drivers that do not tell a tile's identity make it of the card's: the last byte counts the tiles from 1.
        let (Uuid(own), Uuid(bytes)) = (own?, uuid);
        let tile = u32::from(bytes[15]).checked_sub(1)?;
        let made = self.identities.is_empty() && own[15] == 0 && own[..15] == bytes[..15] && tile < self.tiles;
        made.then_some(Some(tile))
    }

    fn unit(&self, tile: Option<u32>) -> Unit {
        let tile = tile.filter(|_| self.tiles > 1);
        let mut info = self.info.clone();
        if tile.is_some() {
            let identity = self.identities.iter().find(|&&(number, _)| Some(number) == tile);
            info.uuid = identity.map(|&(_, uuid)| uuid);
            let whole: u64 = info.memory;
            let own: u64 = self.modules.iter().filter(|module| module.tile == tile).map(|module| module.size).sum();
            info.memory = if own > 0 { own } else { whole / u64::from(self.tiles) };
            info.max_alloc = info.max_alloc.min(info.memory);
            info.cores = info.cores.map(|cores| cores / self.tiles);
        }
        Unit { handle: self.handle, tile, info }
    }
}

/// A card's properties; none if it is no GPU.
fn card(zes: &Zes, driver: usize, handle: ZesDevice) -> Result<Option<Card>, Failed> {
    let mut properties = ZesDeviceProperties::new();
    // With the timer's frequency in it, as every driver that has this function tells.
    properties.core =
        ZeDeviceProperties { stype: ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2, ..ZeDeviceProperties::new() };
    // SAFETY: a device that was just listed, and a struct with its number in it.
    unsafe { zes.zesDeviceGetProperties(handle, &raw mut properties) }?;
    let core = &properties.core;
    if core.kind != ZE_DEVICE_TYPE_GPU {
        return Ok(None);
    }
    let mut bus = ZesPciProperties::new();
    // SAFETY: as above. A card that does not tell its place has none.
    let placed = unsafe { zes.zesDevicePciGetProperties(handle, &raw mut bus) }.is_ok();
    let integrated = core.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0;
    let modules = modules(zes, handle);
    let memory = modules.iter().map(|module| module.size).sum();
    let name = [text(&core.name), text(&properties.model_name)].into_iter().find(|name| !name.is_empty());
    let cores = core.slices.saturating_mul(core.subslices_per_slice);
    let info = DeviceInfo {
        name: name.unwrap_or_else(|| format!("Intel GPU {:04x}", core.device_id)),
        driver: text(&properties.driver_version),
        uuid: identity(core.uuid),
        pci: placed.then(|| place(bus.address)),
        memory,
        max_alloc: if core.max_mem_alloc_size > 0 { core.max_mem_alloc_size } else { memory },
        cores: (cores > 0).then_some(cores),
        clock_mhz: (core.core_clock_rate > 0).then_some(core.core_clock_rate),
        integrated: Some(integrated),
        stamp_ns: if core.timer_resolution > 0 { stamp_ns(core.timer_resolution) } else { blank().stamp_ns },
        ..blank()
    };
    let identities = if properties.subdevices > 1 { identities(zes, handle) } else { Vec::new() };
    Ok(Some(Card { driver, handle, integrated, tiles: properties.subdevices, identities, info, modules }))
}

/// The identities of a card's tiles; none where the driver does not tell them.
fn identities(zes: &Zes, handle: ZesDevice) -> Vec<(u32, Uuid)> {
    let empty = ZesSubdeviceExpProperties::new();
    // SAFETY: a device that was just listed, a count, and null or as many structs as it says, each with its number.
    let told = list(empty, |count, out| unsafe { zes.zesDeviceGetSubDevicePropertiesExp(handle, count, out) });
    let told = told.unwrap_or_default();
    told.iter().filter_map(|tile| Some((tile.subdevice_id, identity(tile.uuid)?))).collect()
}

/// A card's own memory; of one that has none, what it shares with the host.
fn modules(zes: &Zes, handle: ZesDevice) -> Vec<Module> {
    // SAFETY: a device that was just listed, a count, and null or as many handles as it says.
    let told = list(ZesMem::NULL, |count, out| unsafe { zes.zesDeviceEnumMemoryModules(handle, count, out) });
    let (mut own, mut shared) = (Vec::new(), Vec::new());
    for module in told.unwrap_or_default() {
        let (mut properties, mut state) = (ZesMemProperties::new(), ZesMemState::new());
        // SAFETY: a module that was just listed, and a struct with its number in it.
        if unsafe { zes.zesMemoryGetProperties(module, &raw mut properties) }.is_err() {
            continue;
        }
        let tile = (properties.on_subdevice != 0).then_some(properties.subdevice_id);
        let mut size = properties.physical_size;
        // SAFETY: as above. What is usable is less than what is soldered on.
        if unsafe { zes.zesMemoryGetState(module, &raw mut state) }.is_ok() && state.size > 0 {
            size = state.size;
        }
        let list = if properties.location == ZES_MEM_LOC_DEVICE { &mut own } else { &mut shared };
        list.push(Module { tile, size });
    }
    if own.is_empty() { shared } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(number: u8, tiles: u32, told: bool) -> Card {
        let own = |tile: u8| {
            let mut bytes = [number; 16];
            bytes[15] = tile;
            Uuid(bytes)
        };
        let identities = (0..tiles).filter(|_| told).map(|tile| (tile, own(tile as u8 + 0x41))).collect();
        let pci = place([0, u32::from(number), 0, 0]);
        let info = DeviceInfo { uuid: Some(own(0)), pci: Some(pci), memory: 1000, cores: Some(8), ..blank() };
        let modules = vec![Module { tile: Some(0), size: 600 }, Module { tile: Some(1), size: 400 }];
        Card { driver: 0, handle: ZesDevice(number.into()), integrated: false, tiles, identities, info, modules }
    }

    fn found(
        inventory: &Inventory,
        uuid: [u8; 2],
        pci: Option<u32>,
        tile: Option<u32>,
    ) -> Option<(usize, Option<u32>)> {
        let mut bytes = [uuid[0]; 16];
        bytes[15] = uuid[1];
        let pci = pci.map(|bus| place([0, bus, 0, 0]));
        inventory.find(identity(bytes), pci, tile).map(|unit| (unit.handle.0, unit.tile))
    }

    #[test]
    fn devices_are_joined_by_identity_before_place() {
        let inventory = Inventory { drivers: 1, cards: vec![card(3, 2, true), card(4, 2, false), card(5, 1, false)] };
        let table = [
            ([3, 0], None, None, Some((3, None))),
            ([3, 0], Some(5), None, Some((3, None))),
            ([3, 0], None, Some(1), Some((3, Some(1)))),
            ([3, 0x42], None, None, Some((3, Some(1)))),
            // A card that tells its tiles' identities has no others.
            ([3, 2], None, None, None),
            ([4, 2], None, None, Some((4, Some(1)))),
            ([4, 3], None, None, None),
            ([5, 0], None, Some(0), Some((5, None))),
            ([9, 9], Some(5), None, Some((5, None))),
            ([0, 0], Some(5), Some(0), Some((5, None))),
            ([0, 0], Some(4), Some(1), Some((4, Some(1)))),
            // One of its tiles, and nobody says which.
            ([9, 9], Some(4), None, None),
            ([9, 9], Some(6), None, None),
            ([0, 0], None, None, None),
        ];
        for (uuid, pci, tile, want) in table {
            assert_eq!(found(&inventory, uuid, pci, tile), want, "{uuid:?} {pci:?} {tile:?}");
        }
    }

    #[test]
    fn two_cards_at_one_place_are_joined_by_identity_alone() {
        let inventory = Inventory { drivers: 2, cards: vec![card(3, 1, false), card(3, 1, false)] };
        assert_eq!(found(&inventory, [9, 9], Some(3), None), None);
    }

    #[test]
    fn a_tile_has_its_share() {
        let unit = card(3, 2, true).unit(Some(1));
        assert_eq!((unit.info.memory, unit.info.cores), (400, Some(4)));
        assert_eq!(unit.info.uuid.map(|uuid| uuid.0[15]), Some(0x42));
        let Card { info, .. } = card(3, 2, true);
        assert_eq!(card(3, 2, true).unit(None).info, info);
        assert_eq!(card(3, 1, true).unit(Some(0)).info, info, "a card of one tile is that tile");
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

    #[test]
    fn texts_end_at_their_zero_or_their_field() {
        let field = |text: &str| -> Vec<c_char> { text.bytes().map(|byte| byte as c_char).collect() };
        assert_eq!(text(&field("Arc\0junk")), "Arc");
        assert_eq!(text(&field(" no zero ")), "no zero");
        assert_eq!(text(&[]), "");
    }
}
