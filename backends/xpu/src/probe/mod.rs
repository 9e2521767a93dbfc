//! What can be seen without a start: how many devices, which, and why none (H22).
//!
//! | file | subject |
//! |---|---|
//! | `mask` | `ZE_AFFINITY_MASK` and the hierarchy that it counts in |
//! | `inventory` | the cards, as Sysman knows them |
//! | `nodes` | the kernel's device nodes, and whether this user may open them |
//! | `doctor` | the layers, one by one |
//!
//! Sysman starts apart from the runtime where the loader has `zesInit`, so counting and naming start nothing, and on some cards it
//! has to be started before. An older loader starts Sysman with the runtime and only where `ZES_ENABLE_SYSMAN=1` was set
//! before; there only the runtime can count ([`Blind::Runtime`]), and a probe that asks it says that it started it. It is not
//! asked where no node of the kernel's leads to a card.
//!
//! Sysman knows cards whatever is hidden, so the mask is applied here, to the cards of each driver in Sysman's order, discrete ones
//! first. The runtime may count in another. As long as cards differ only in their place, that makes no difference to anybody; of
//! cards that differ, names are told before the start only if `ZE_ENABLE_PCI_ID_DEVICE_ORDER=1` says which is which.
//!
//! # Protocol
//!
//! The cards are read once a process and published by an exchange of a pointer, as are the variables of the first start, which is
//! when the driver reads them too: no lock, so that a forked child finds them or not, never in between (H24). A look that failed is
//! not kept.
//!
//! Public for the tests of this crate. No stable part of it.

mod doctor;
pub mod inventory;
pub mod mask;
mod nodes;

use crate::conv::Failed;
use crate::sys::{self, *};
use anyaccel_hal::{Absence, Check, DeviceInfo, Fault, Layer, PciAddress, Probe, Uuid};
use anyaccel_kit::Published;
use inventory::{Inventory, Unit};
use mask::{Hierarchy, Pick, Visible, discrete_first, visible};
use std::env;

/// Hides devices.
pub const MASK: &str = "ZE_AFFINITY_MASK";
/// What counts as a device.
pub const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";
/// Whether devices are counted in the order of the bus.
pub const ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
/// Starts Sysman with the runtime, the way of loaders before `zesInit`. The two ways exclude each other.
pub const SYSMAN: &str = "ZES_ENABLE_SYSMAN";

/// What a mask may hold.
const EXPECTED: &str = "numbers of devices, parted by commas, or of a device and its tile like 0.1";

/// The variables that count, as they are now. A start freezes them: the driver reads them once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// [`MASK`].
    pub mask: Option<String>,
    /// [`HIERARCHY`].
    pub hierarchy: Hierarchy,
    /// [`ORDER`].
    pub by_bus: bool,
}

impl Settings {
    /// Reads them.
    pub fn now() -> Self {
        let text = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let number = text(ORDER).and_then(|order| order.trim().parse::<i64>().ok());
        Self {
            mask: text(MASK),
            hierarchy: Hierarchy::of(text(HIERARCHY).as_deref()),
            by_bus: number.is_some_and(|number| number != 0),
        }
    }

    fn visible(&self, cards: &[u32]) -> Result<Visible, Absence> {
        visible(self.mask.as_deref(), self.hierarchy, cards).map_err(|_| {
            let value = self.mask.clone().unwrap_or_default();
            Absence::BadVariable { name: MASK, value, expected: EXPECTED }
        })
    }
}

/// Why nothing can be seen without a start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blind {
    /// There is nothing, or a variable is bad. A start would find the same.
    Absent(Absence),
    /// This loader's management side can't be started alone: only the runtime can count.
    Runtime,
}

/// Whether counting starts nothing: unless there is a loader whose management side can't be started alone.
pub fn fork_safe() -> bool {
    sys::loader().map_or(true, starts_alone)
}

/// Whether a loader's management side can be started without the runtime.
pub(crate) fn starts_alone(loader: &Loader) -> bool {
    ["zesInit", "zesDriverGet", "zesDeviceGet", "zesDeviceGetProperties"].iter().all(|name| loader.zes.has(name))
}

/// A device that is left visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    /// The card's place in the inventory.
    card: usize,
    pick: Pick,
}

/// The cards and the variables, as they are now.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// The cards.
    pub inventory: &'a Inventory,
    /// The variables.
    pub settings: Settings,
    seen: Vec<Seen>,
    /// How many there would be without a mask.
    present: u32,
    /// Items of the mask that name nothing.
    idle: Vec<String>,
}

static INVENTORY: Published<Inventory> = Published::new();
static FROZEN: Published<Settings> = Published::new();

/// The cards, read by the first look.
fn inventory(zes: &Zes) -> Result<&'static Inventory, Failed> {
    INVENTORY.get_or_make(|| Inventory::read(zes))
}

/// Looks, and says what is missing if something is.
///
/// # Errors
/// Why nothing is seen.
pub fn look() -> Result<Look<'static>, Blind> {
    let loader = sys::loader().map_err(|missing| Blind::Absent(missing.absence()))?;
    let settings = Settings::now();
    // A mask that can't be read would end the driver, and the process with it.
    settings.visible(&[]).map_err(Blind::Absent)?;
    if !starts_alone(loader) {
        return Err(nodes::nowhere().map_or(Blind::Runtime, Blind::Absent));
    }
    let inventory = inventory(&loader.zes).map_err(|failed| Blind::Absent(nodes::why(failed)))?;
    Look::of(inventory, settings).map_err(Blind::Absent)
}

/// What the driver's probe answers before a start; `None` where only the runtime can count.
pub fn probe() -> Option<Probe> {
    match look() {
        Ok(look) => Some(look.probe()),
        Err(Blind::Absent(absence)) => Some(Probe::absent(absence)),
        Err(Blind::Runtime) => None,
    }
}

/// A device's properties before a start; `None` where only the runtime knows them.
pub fn describe(ordinal: u32) -> Option<DeviceInfo> {
    look().ok()?.unit(ordinal).map(|unit| unit.info)
}

/// Starts Sysman, which on some cards can't be started after the runtime, and freezes the variables. Whether the runtime is worth
/// a start: not without a loader, nor where the mask hides everything.
///
/// # Errors
/// `Invalid` for a variable that would end the driver.
pub fn prepare() -> Result<bool, Fault> {
    let some = match look() {
        Ok(look) => look.count() > 0,
        Err(Blind::Absent(Absence::BadVariable { name, value, expected })) => {
            return Err(Fault::invalid("start", format!("{name}={value}: expected {expected}")));
        }
        Err(Blind::Absent(_) | Blind::Runtime) => sys::loader().is_ok(),
    };
    if some && FROZEN.get().is_none() {
        FROZEN.publish(Settings::now());
    }
    Ok(some)
}

/// What a probe answers that had to start the runtime.
pub(crate) fn counted(runtime: Result<usize, Fault>) -> Probe {
    let mask = Settings::now().mask.filter(|mask| !mask.is_empty());
    let probe = match runtime {
        Ok(0) => match mask {
            Some(value) => Probe::absent(Absence::Masked { name: MASK, value }),
            None => Probe::absent(nodes::no_card(0)),
        },
        Ok(count) => Probe::found(count as u32),
        Err(fault) => {
            let (subject, found) = ("the runtime".into(), fault.to_string());
            Probe::absent(Absence::Missing { layer: Layer::Probe, subject, found })
        }
    };
    Probe { started: true, ..probe }
}

/// The layers for the doctor. `started` is how many devices a started runtime has.
pub fn checks(started: Option<usize>) -> Vec<Check> {
    let frozen = started.map(|devices| doctor::Frozen { devices, settings: FROZEN.get() });
    doctor::checks(frozen, &look())
}

/// Whether Sysman came up with the runtime, the way of loaders before `zesInit`.
pub(crate) fn old_style() -> bool {
    !fork_safe() && env::var_os(SYSMAN).is_some_and(|value| value == "1")
}

/// What a device of the started runtime is on the management side, as [`Inventory::find`] joins them.
pub(crate) fn join(uuid: Option<Uuid>, pci: Option<PciAddress>, tile: Option<u32>) -> Option<Unit> {
    let loader = sys::loader().ok().filter(|loader| starts_alone(loader))?;
    inventory(&loader.zes).ok()?.find(uuid, pci, tile)
}

impl<'a> Look<'a> {
    /// What the variables leave of the cards.
    ///
    /// # Errors
    /// There is no card, or a variable is bad.
    pub fn of(inventory: &'a Inventory, settings: Settings) -> Result<Self, Absence> {
        if inventory.cards.is_empty() {
            return Err(nodes::no_card(inventory.drivers));
        }
        let mut idle = Vec::new();
        let seen = see(inventory, &settings, Some(&mut idle))?;
        let present = see(inventory, &Settings { mask: None, ..settings.clone() }, None)?.len() as u32;
        Ok(Self { inventory, settings, seen, present, idle })
    }

    /// How many devices are visible.
    pub fn count(&self) -> u32 {
        self.seen.len() as u32
    }

    /// What the driver's probe answers.
    pub fn probe(&self) -> Probe {
        let absence = (self.seen.is_empty())
            .then(|| Absence::Masked { name: MASK, value: self.settings.mask.clone().unwrap_or_default() });
        Probe { visible: self.count(), present: Some(self.present), absence, started: false }
    }

    /// The device of an ordinal; `None` where only the runtime knows which one that is.
    pub fn unit(&self, ordinal: u32) -> Option<Unit> {
        let seen = self.seen.get(ordinal as usize)?;
        if !self.ordered() {
            return None;
        }
        self.inventory.unit(seen.card, seen.pick.tile)
    }

    /// Names of the visible devices, for messages.
    pub fn names(&self) -> Vec<String> {
        let name = |seen: &Seen| {
            let info: &DeviceInfo = &self.inventory.cards[seen.card].info;
            match seen.pick.tile {
                Some(tile) => format!("{} (tile {tile})", info.name),
                None => info.name.clone(),
            }
        };
        self.seen.iter().map(name).collect()
    }

    /// Items of the mask that name nothing here.
    pub fn idle(&self) -> &[String] {
        &self.idle
    }

    /// Whether an ordinal means the same device whatever order the runtime has.
    fn ordered(&self) -> bool {
        let alike = |cards: &[usize]| {
            let mut facts = cards.iter().map(|&card| {
                let card = &self.inventory.cards[card];
                (card.driver, &card.info.name, card.tiles, card.info.memory, card.integrated)
            });
            let first = facts.next();
            facts.all(|other| Some(other) == first)
        };
        // Without a mask it counts what is left; with one, what its numbers count.
        let counted: Vec<usize> = match self.settings.mask {
            None => self.seen.iter().map(|seen| seen.card).collect(),
            Some(_) => (0..self.inventory.cards.len()).collect(),
        };
        self.settings.by_bus || alike(&counted)
    }
}

/// The devices that the variables leave, driver after driver. A mask's numbers count the devices of each driver.
fn see(inventory: &Inventory, settings: &Settings, idle: Option<&mut Vec<String>>) -> Result<Vec<Seen>, Absence> {
    let (mut seen, mut everywhere) = (Vec::new(), None::<Vec<String>>);
    for driver in 0..inventory.drivers {
        let mut cards: Vec<usize> = (0..inventory.cards.len()).collect();
        cards.retain(|&card| inventory.cards[card].driver == driver);
        if cards.is_empty() {
            continue;
        }
        if settings.by_bus {
            let place = |&card: &usize| {
                inventory.cards[card].info.pci.map(|pci| (pci.domain, pci.bus, pci.device, pci.function))
            };
            cards.sort_by_key(place);
        } else {
            cards.sort_by_key(|&card| inventory.cards[card].integrated);
        }
        let tiles: Vec<u32> = cards.iter().map(|&card| inventory.cards[card].tiles).collect();
        let Visible { picks, idle } = settings.visible(&tiles)?;
        seen.extend(picks.into_iter().map(|pick| Seen { card: cards[pick.card], pick }));
        everywhere = Some(match everywhere {
            None => idle,
            Some(before) => before.into_iter().filter(|item| idle.contains(item)).collect(),
        });
    }
    if let (Some(out), Some(found)) = (idle, everywhere) {
        *out = found;
    }
    Ok(discrete_first(seen, |seen| inventory.cards[seen.card].integrated))
}

#[cfg(test)]
mod tests;
