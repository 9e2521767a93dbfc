//! What can be seen without a start, and what the doctor says of it (H22).

use crate::conv::Failed;
use crate::inventory::{Inventory, Unit};
use crate::mask::{Visible, visible};
use crate::sys::{self, NVML_ERROR_DRIVER_NOT_LOADED, Nvml};
use anyaccel_hal::{Absence, Check, Layer, Probe, Verdict};
use std::env;
use std::fs;

/// Hides devices.
const MASK: &str = "CUDA_VISIBLE_DEVICES";
/// The order in which the driver counts them.
const ORDER: &str = "CUDA_DEVICE_ORDER";
/// The oldest driver whose symbols are enough: that of CUDA 11.8.
const OLDEST: i32 = 11_080;
/// The kernel's node through which every process reaches the driver.
const NODE: &str = "/dev/nvidiactl";

/// The cards and the mask, as they are now.
pub(crate) struct Look<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) mask: Option<String>,
    /// The driver's order of the cards, where it is known without asking it.
    order: Option<Vec<usize>>,
}

/// The order in which the driver counts cards: that of the bus if it is told to, else the fastest first, whatever that
/// means to it. Cards of one model are alike, and then it is the bus again.
fn order(inventory: &Inventory) -> Option<Vec<usize>> {
    let by_bus = env::var(ORDER).is_ok_and(|order| order == "PCI_BUS_ID");
    let mut names = inventory.cards.iter().map(|card| &card.unit.info.name);
    let first = names.next();
    let alike = names.all(|name| Some(name) == first);
    (by_bus || alike).then(|| (0..inventory.cards.len()).collect())
}

/// Looks, and says what is missing if something is.
pub(crate) fn look<'a>(read: impl FnOnce(&'static Nvml) -> Result<&'a Inventory, Failed>) -> Result<Look<'a>, Absence> {
    sys::cuda().map_err(|missing| missing.absence())?;
    let (major, minor) = (OLDEST / 1000, OLDEST % 1000 / 10);
    match version() {
        Some(version) if version < OLDEST => {
            return Err(Absence::Missing {
                layer: Layer::Version,
                subject: format!("a driver of CUDA {major}.{minor} or newer"),
                found: format!("one of CUDA {}.{}", version / 1000, version % 1000 / 10),
            });
        }
        _ => {}
    }
    let nvml = sys::nvml().map_err(|missing| missing.absence())?;
    let inventory = read(nvml).map_err(|failed| {
        let Failed { api, code } = failed;
        let layer = if code == NVML_ERROR_DRIVER_NOT_LOADED { Layer::DeviceNodes } else { Layer::Probe };
        let subject = if layer == Layer::Probe { "the management library" } else { NODE };
        Absence::Missing { layer, subject: subject.into(), found: format!("{api} says {code}") }
    })?;
    if inventory.cards.is_empty() {
        let (subject, found) = ("cards".into(), "none".into());
        return Err(Absence::Missing { layer: Layer::Probe, subject, found });
    }
    let mask = env::var_os(MASK).map(|mask| mask.to_string_lossy().into_owned());
    Ok(Look { inventory, mask, order: order(inventory) })
}

/// The version of CUDA that the driver implements. Asking starts nothing.
fn version() -> Option<i32> {
    let cuda = sys::cuda().ok()?;
    let mut version = 0;
    // SAFETY: a valid place for the answer.
    unsafe { cuda.cuDriverGetVersion(&raw mut version) }.ok()?;
    Some(version)
}

impl Look<'_> {
    fn listed(&self) -> Vec<usize> {
        // Where the order is unknown, counting goes by any.
        self.order.clone().unwrap_or_else(|| (0..self.inventory.cards.len()).collect())
    }

    /// What the mask leaves.
    pub(crate) fn visible(&self) -> Visible {
        visible(self.mask.as_deref(), &self.inventory.named(&self.listed()))
    }

    pub(crate) fn probe(&self) -> Probe {
        let visible = self.visible().picks.len() as u32;
        let absence = (visible == 0).then(|| match &self.mask {
            Some(value) => Absence::Masked { name: MASK, value: value.clone() },
            None => Absence::Missing {
                layer: Layer::Probe,
                subject: "devices".into(),
                found: "cards in MIG mode without an instance".into(),
            },
        });
        Probe { visible, present: Some(self.inventory.cards.len() as u32), absence, started: false }
    }

    /// The device of an ordinal; `None` where only a started driver knows which one that is.
    pub(crate) fn unit(&self, ordinal: u32) -> Option<&Unit> {
        let by_identity = self.mask.as_ref().is_some_and(|mask| mask.starts_with("GPU-") || mask.starts_with("MIG-"));
        if self.order.is_none() && !by_identity {
            return None;
        }
        let pick = *self.visible().picks.get(ordinal as usize)?;
        let card = &self.inventory.cards[*self.listed().get(pick.card)?];
        match pick.instance {
            None => Some(&card.unit),
            Some(instance) => card.instances.get(instance),
        }
    }
}

/// The layers for the doctor. `frozen` is how many devices a started driver has, and the mask of its start.
pub(crate) fn checks(frozen: Option<(usize, Option<&str>)>, look: &Result<Look<'_>, Absence>) -> Vec<Check> {
    let check = |layer, verdict, subject: &str, found: String| Check { layer, verdict, subject: subject.into(), found };
    let skipped = |layer| check(layer, Verdict::NotApplicable, "", "an earlier layer failed".into());
    let mut all = Vec::new();
    let libraries = [(sys::CUDA.names()[0], sys::cuda().map(drop)), (sys::NVML.names()[0], sys::nvml().map(drop))];
    let mut loaded = true;
    for (name, found) in libraries {
        let (verdict, found) = match found {
            Ok(()) => (Verdict::Pass, "loads".to_owned()),
            Err(missing) => (Verdict::Fail, missing.to_string()),
        };
        loaded &= verdict == Verdict::Pass;
        all.push(check(Layer::Library, verdict, name, found));
    }
    if !loaded {
        let rest = [Layer::Version, Layer::DeviceNodes, Layer::Permissions, Layer::Mask, Layer::Probe];
        all.extend(rest.map(skipped));
        return all;
    }
    let written = version().map(|version| (version, format!("{}.{}", version / 1000, version % 1000 / 10)));
    all.push(match written {
        Some((version, text)) if version >= OLDEST => check(Layer::Version, Verdict::Pass, "CUDA of the driver", text),
        Some((_, text)) => {
            check(Layer::Version, Verdict::Fail, "CUDA of the driver", format!("{text}, 11.8 is needed"))
        }
        None => check(Layer::Version, Verdict::Warn, "CUDA of the driver", "it does not say".into()),
    });
    let missing_driver = matches!(look, Err(Absence::Missing { layer: Layer::DeviceNodes, .. }));
    all.push(match fs::metadata(NODE) {
        Ok(_) => check(Layer::DeviceNodes, Verdict::Pass, NODE, "exists".into()),
        Err(error) if missing_driver => check(Layer::DeviceNodes, Verdict::Fail, NODE, error.to_string()),
        // Some systems reach their cards by another way.
        Err(error) => check(Layer::DeviceNodes, Verdict::Warn, NODE, error.to_string()),
    });
    all.push(match fs::OpenOptions::new().read(true).write(true).open(NODE) {
        Ok(_) => check(Layer::Permissions, Verdict::Pass, NODE, "opens".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => skipped(Layer::Permissions),
        Err(error) => check(Layer::Permissions, Verdict::Fail, NODE, error.to_string()),
    });
    let set = |name: &str| match env::var_os(name) {
        Some(value) => format!("{name}={}", value.to_string_lossy()),
        None => format!("{name} not set"),
    };
    let variables = format!("{}, {}", set(MASK), set(ORDER));
    match look {
        Err(Absence::Missing { layer, subject, found }) => {
            all.push(check(Layer::Mask, Verdict::NotApplicable, "environment", variables));
            let found = format!("{}: {found}", layer.name());
            all.push(check(Layer::Probe, Verdict::Fail, subject, found));
        }
        Err(_) => all.extend([skipped(Layer::Mask), skipped(Layer::Probe)]),
        Ok(look) => {
            let Visible { picks, ended } = look.visible();
            let count = picks.len();
            let (verdict, found) = match (&ended, frozen) {
                (_, Some((count, mask))) if mask != look.mask.as_deref() => {
                    (Verdict::Warn, format!("{variables}: changed since the start, with {count} devices"))
                }
                (Some(ended), _) if count == 0 => (Verdict::Fail, format!("{variables}: {ended}")),
                (Some(ended), _) => (Verdict::Warn, format!("{variables}: the list ends early, {ended}")),
                (None, _) => (Verdict::Pass, variables),
            };
            all.push(check(Layer::Mask, verdict, "environment", found));
            let names: Vec<&str> = look.inventory.cards.iter().map(|card| card.unit.info.name.as_str()).collect();
            let count = frozen.map_or(count, |(count, _)| count);
            let verdict = if count > 0 { Verdict::Pass } else { Verdict::Fail };
            all.push(check(Layer::Probe, verdict, "devices", format!("{count} of the cards {}", names.join(", "))));
        }
    }
    all
}
