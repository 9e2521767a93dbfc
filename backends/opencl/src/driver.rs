//! The driver: looks, starts, opens.
//!
//! Starting is one exchange of a pointer, null before, as a child of a fork may meet a driver in any state (H24). Two threads
//! that start at once ask the platforms twice; one of the results is dropped.

use crate::config::{DEVICES, OpenClConfig, Settings};
use crate::device::OpenClDevice;
use crate::discovery::{self, Discovery, Found};
use crate::info::{Facts, drop_shared_identities};
use crate::machine::Machine;
use crate::object::Context;
use crate::part::Part;
use crate::query::DeviceId;
use crate::sys::{Library, Missing};
use crate::{doctor, icd};
use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, FaultKind, Kind, Layer, Probe};
use anyaccel_kit::Published;
use std::fmt;
use std::sync::Arc;

/// What exists once the driver has started.
struct Started {
    settings: Settings,
    devices: Vec<Arc<OpenClDevice>>,
}

/// The driver of OpenCL devices.
pub(crate) struct OpenClDriver {
    config: OpenClConfig,
    started: Published<Started>,
}

impl fmt::Debug for OpenClDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.started().map(|started| started.devices.len());
        f.debug_struct("OpenClDriver").field("config", &self.config).field("devices", &devices).finish()
    }
}

/// What can be told without asking a platform.
enum Quiet {
    /// There is none, for this reason.
    None(Absence),
    /// There may be some.
    Library(&'static Library),
}

fn missing(layer: Layer, subject: impl Into<String>, found: impl Into<String>) -> Absence {
    Absence::Missing { layer, subject: subject.into(), found: found.into() }
}

/// Looks at the loader and at the files that name drivers.
fn look() -> Quiet {
    let library = match Library::load() {
        Ok(library) => library,
        Err(Missing::Symbol { library, symbol, .. }) => {
            let (major, minor) = symbol.since;
            let found = format!("no {} (OpenCL {major}.{minor})", symbol.name);
            return Quiet::None(missing(Layer::Version, library, found));
        }
        Err(absent) => return Quiet::None(absent.absence()),
    };
    let search = icd::search();
    if search.possible() {
        return Quiet::Library(library);
    }
    let found = match (&search.trouble, search.icds.as_slice()) {
        (Some(trouble), []) => trouble.clone(),
        (None, []) => "no driver is named there".to_owned(),
        (_, icds) => {
            let states: Vec<String> = icds.iter().map(doctor::describe).collect();
            states.join("; ")
        }
    };
    Quiet::None(missing(Layer::Library, search.places, found))
}

impl OpenClDriver {
    pub(crate) const fn new(config: OpenClConfig) -> Self {
        Self { config, started: Published::new() }
    }

    fn started(&self) -> Option<&Started> {
        self.started.get()
    }

    fn bring_up(&self) -> Result<Started, Fault> {
        let settings = self.config.settings().map_err(|absence| match absence {
            Absence::BadVariable { name, value, expected } => {
                Fault::invalid("start", format!("{name}={value}: expected {expected}"))
            }
            other => Fault::invalid("start", format!("{other:?}")),
        })?;
        if let Some(parent) = discovery::started_by_parent() {
            return Err(discovery::forked(parent));
        }
        let library = match look() {
            Quiet::None(_) => return Ok(Started { settings, devices: Vec::new() }),
            Quiet::Library(library) => library,
        };
        let found = masked(discovery::discover(library, &settings)?.devices, &settings);
        let machine = Arc::new(Machine::new(parts(&found, &settings)?));
        let device = |ordinal| Arc::new(OpenClDevice::new(Arc::clone(&machine), ordinal));
        Ok(Started { settings, devices: (0..found.len()).map(device).collect() })
    }
}

/// The devices that a mask leaves, in its order.
fn masked(all: Vec<Found>, settings: &Settings) -> Vec<Found> {
    let picked: Vec<Found> = match &settings.mask {
        None => all,
        Some(mask) => mask.iter().filter_map(|&at| all.get(at as usize).copied()).collect(),
    };
    let count = if picked.is_empty() { 0 } else { picked.len().max(settings.at_least as usize) };
    picked.iter().copied().cycle().take(count).collect()
}

/// One part a device, and one context over all devices of a platform that count.
fn parts(found: &[Found], settings: &Settings) -> Result<Vec<Arc<Part>>, Fault> {
    let mut facts = found.iter().map(|one| Facts::of(one, settings)).collect::<Result<Vec<_>, _>>()?;
    drop_shared_identities(&mut facts);
    let mut groups: Vec<Group> = Vec::new();
    for one in found {
        match groups.iter_mut().find(|group| group.platform == one.platform) {
            None => groups.push(Group { platform: one.platform, members: vec![one.id] }),
            Some(group) if group.members.iter().any(|member| member.raw == one.id.raw) => {}
            Some(group) => group.members.push(one.id),
        }
    }
    let contexts = groups.iter().map(Group::context).collect::<Result<Vec<_>, _>>()?;
    let part = |(one, facts): (&Found, Facts)| {
        let at = groups.iter().position(|group| group.platform == one.platform)?;
        let member = groups[at].members.iter().position(|member| member.raw == one.id.raw)?;
        Some(Arc::new(Part::new(facts, Arc::clone(&contexts[at]), at, member)))
    };
    Ok(found.iter().zip(facts).filter_map(part).collect())
}

/// The devices of a platform.
struct Group {
    platform: usize,
    members: Vec<DeviceId>,
}

impl Group {
    fn context(&self) -> Result<Arc<Context>, Fault> {
        let (first, all): (_, Vec<_>) = (self.members[0], self.members.iter().map(|member| member.raw).collect());
        Ok(Arc::new(Context::new(first.api, first.platform, &all)?))
    }
}

/// What a discovery means for who asks how many devices there are.
fn counted(discovery: Discovery, settings: &Settings) -> Probe {
    let present = discovery.devices.len() as u32;
    let visible = masked(discovery.devices, settings).len() as u32;
    let absence = match (present, visible) {
        (0, _) => {
            let types = if settings.cpus() { "" } else { " (CPUs count when this backend is named)" };
            let found = format!("{} platforms without a device that counts{types}", discovery.platforms);
            Some(missing(Layer::Probe, "OpenCL devices", found))
        }
        (_, 0) => {
            let value = std::env::var_os(DEVICES).unwrap_or_default().to_string_lossy().into_owned();
            Some(Absence::Masked { name: DEVICES, value })
        }
        _ => None,
    };
    Probe { visible, present: Some(present), absence, started: true }
}

impl Driver for OpenClDriver {
    fn kind(&self) -> Kind {
        Kind::OPENCL
    }

    fn fork_safe_probe(&self) -> bool {
        false
    }

    /// Starts nothing while no loader is there, none of the drivers that files name is there, or a variable is bad. Else
    /// only the platforms can tell, and asking them starts them: `started` says so.
    fn probe(&self) -> Probe {
        if let Some(parent) = discovery::started_by_parent() {
            let found = format!("started in process {parent} before this one was forked");
            return Probe::absent(missing(Layer::Probe, "OpenCL", found));
        }
        if let Some(started) = self.started() {
            return Probe { started: true, ..Probe::found(started.devices.len() as u32) };
        }
        let settings = match self.config.settings() {
            Ok(settings) => settings,
            Err(absence) => return Probe::absent(absence),
        };
        let library = match look() {
            Quiet::None(absence) => return Probe { present: Some(0), ..Probe::absent(absence) },
            Quiet::Library(library) => library,
        };
        match discovery::discover(library, &settings) {
            Ok(discovery) => counted(discovery, &settings),
            Err(fault) => {
                let absence = missing(Layer::Probe, "OpenCL platforms", fault.to_string());
                Probe { started: true, ..Probe::absent(absence) }
            }
        }
    }

    /// `None` until the driver has started: only a platform can tell.
    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        let device = self.started()?.devices.get(ordinal as usize)?;
        Some(device.info().clone())
    }

    fn start(&self) -> Result<u32, Fault> {
        let started = self.started.get_or_make(|| self.bring_up())?;
        Ok(started.devices.len() as u32)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let Some(started) = self.started() else {
            return Err(Fault::new(FaultKind::Invalid, "open").note("the driver has not started"));
        };
        match started.devices.get(ordinal as usize) {
            Some(device) => Ok(Arc::clone(device) as Arc<dyn Device>),
            None => Err(Fault::invalid("open", format!("device {ordinal} of {}", started.devices.len()))),
        }
    }

    fn restartable(&self) -> bool {
        false
    }

    fn checks(&self) -> Vec<Check> {
        doctor::checks(self.started().map(|started| &started.settings), &self.config.settings())
    }
}
