//! `anyaccel info`: what there is.

use crate::doctor::first_lost;
use crate::environment::{chosen, problems, why_none};
use crate::layout::{bytes, item};
use crate::output::{Class, Failure, Output, one_line};
use anyaccel::{Backend, DType, DeviceInfo, Selection, backends, selection};
use serde::Serialize;

const LONG: &str = "\
Lists the backends of this build, their devices and their properties, and why
a backend has no device. Starts no runtime: what only a started one knows is
said to be so.

Example:
  $ anyaccel info
  $ ANYACCEL_BACKEND=host anyaccel info --json | jq '.backends[].devices'

JSON (schema anyaccel.info.v1):
  version       of anyaccel
  selection     variable (the value of ANYACCEL_BACKEND, or null), kind (or
                null), reason
  backends[]    kind, chosen_by_itself, visible and present (devices after and
                before masks, null if unknown), absence (why none is visible,
                or null), devices[]
    devices[]   index, known; if known also name, vendor, driver, uuid, pci,
                memory_bytes, max_alloc_bytes, alignment_bytes, cores,
                clock_mhz, integrated, priority_least, priority_greatest,
                stamp_ns, dtypes[]; null is unknown
  problems[]    mistakes in the environment

Exit code: 0; 1 if a variable can't be used or names a backend without device.";

/// Show devices, properties, and why a backend has none
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// The document of `info --json`.
#[derive(Serialize)]
struct Document {
    /// `anyaccel.info.v1`.
    schema: &'static str,
    /// The version of anyaccel.
    version: &'static str,
    /// Which backend is used.
    selection: Choice,
    /// The backends of this build, the most preferred first.
    backends: Vec<BackendDocument>,
    /// Mistakes in the environment.
    problems: Vec<String>,
}

/// Which backend is used, and why.
#[derive(Serialize)]
pub(crate) struct Choice {
    /// The value of `ANYACCEL_BACKEND`, if it is set and not empty.
    variable: Option<String>,
    /// The kind, if there is one.
    kind: Option<&'static str>,
    /// Why it is that one, or what is wrong.
    reason: String,
}

impl Choice {
    pub(crate) fn new(selection: &Selection, backends: &[Backend]) -> Self {
        Self {
            variable: selection.variable.clone(),
            kind: selection.kind.map(anyaccel::Kind::name),
            reason: chosen(selection, backends),
        }
    }
}

/// A backend.
#[derive(Serialize)]
struct BackendDocument {
    /// Its kind.
    kind: &'static str,
    /// Whether it can be chosen without being named.
    chosen_by_itself: bool,
    /// Devices that can be used; null if its probe would have to start it.
    visible: Option<u32>,
    /// Devices before masks, if known.
    present: Option<u32>,
    /// Why none is visible, if none is.
    absence: Option<String>,
    /// The visible devices.
    devices: Vec<DeviceDocument>,
}

/// A device.
#[derive(Serialize)]
struct DeviceDocument {
    /// Its index.
    index: u32,
    /// Whether its properties are known without starting it. If not, they are missing here.
    known: bool,
    /// Its properties.
    #[serde(flatten)]
    properties: Option<Properties>,
}

/// A device's properties; null is unknown.
#[derive(Serialize)]
pub(crate) struct Properties {
    /// The marketing name.
    name: String,
    /// Who makes it.
    vendor: String,
    /// The version of the native driver.
    driver: String,
    /// Its identity.
    uuid: Option<String>,
    /// Its place on the bus.
    pci: Option<String>,
    /// Memory.
    memory_bytes: u64,
    /// The largest single allocation.
    max_alloc_bytes: u64,
    /// What addresses of allocations are multiples of.
    alignment_bytes: u64,
    /// Compute units.
    cores: Option<u32>,
    /// The highest clock.
    clock_mhz: Option<u32>,
    /// Whether it shares the host's memory.
    integrated: Option<bool>,
    /// The least urgent priority of streams.
    priority_least: i32,
    /// The most urgent priority of streams; lower is more urgent.
    priority_greatest: i32,
    /// Resolution of event times in nanoseconds.
    stamp_ns: u32,
    /// Element types.
    dtypes: Vec<&'static str>,
}

impl Properties {
    pub(crate) fn new(info: &DeviceInfo) -> Self {
        Self {
            name: info.name.clone(),
            vendor: info.vendor.clone(),
            driver: info.driver.clone(),
            uuid: info.uuid.map(|uuid| uuid.to_string()),
            pci: info.pci.map(|pci| pci.to_string()),
            memory_bytes: info.memory,
            max_alloc_bytes: info.max_alloc,
            alignment_bytes: info.alignment,
            cores: info.cores,
            clock_mhz: info.clock_mhz,
            integrated: info.integrated,
            priority_least: info.priorities.least,
            priority_greatest: info.priorities.greatest,
            stamp_ns: info.stamp_ns,
            dtypes: info.dtypes.iter().map(DType::name).collect(),
        }
    }
}

pub(crate) fn run(output: &mut Output) -> Result<(), Failure> {
    if let Some(failure) = first_lost() {
        return Err(failure);
    }
    let (backends, selection) = (backends(), selection());
    let problems = problems(&backends, &selection);
    if output.is_json() {
        output.document(&Document {
            schema: "anyaccel.info.v1",
            version: env!("CARGO_PKG_VERSION"),
            selection: Choice::new(&selection, &backends),
            backends: backends.iter().map(document).collect(),
            problems: problems.clone(),
        })?;
    } else {
        let mut text = item(0, "anyaccel", 8, env!("CARGO_PKG_VERSION"));
        text.push_str(&item(0, "chosen", 8, &chosen(&selection, &backends)));
        for backend in &backends {
            text.push('\n');
            text.push_str(&for_people(backend));
        }
        output.text(&text)?;
    }
    match problems.into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(Failure::new(Class::Environment, problem)),
    }
}

fn document(backend: &Backend) -> BackendDocument {
    let device = |(index, info): (usize, &Option<DeviceInfo>)| DeviceDocument {
        index: index as u32,
        known: info.is_some(),
        properties: info.as_ref().map(Properties::new),
    };
    BackendDocument {
        kind: backend.kind.name(),
        chosen_by_itself: backend.chosen_by_itself,
        visible: backend.probe.as_ref().map(|probe| probe.visible),
        present: backend.probe.as_ref().and_then(|probe| probe.present),
        absence: why_none(backend),
        devices: backend.devices.iter().enumerate().map(device).collect(),
    }
}

fn for_people(backend: &Backend) -> String {
    let kind = backend.kind;
    if backend.probe.is_none() {
        return item(0, kind.name(), 8, "devices are known only once it has started");
    }
    if let Some(why) = why_none(backend) {
        return item(0, kind.name(), 8, &format!("no device: {why}"));
    }
    let mut text = String::new();
    for (index, info) in backend.devices.iter().enumerate() {
        let device = format!("{kind}:{index}");
        match info {
            None => text.push_str(&item(0, &device, 8, "properties are known only once it has started")),
            Some(info) => {
                text.push_str(&item(0, &device, 8, &one_line(&info.name)));
                for (label, value) in properties(info) {
                    text.push_str(&item(2, label, 14, &one_line(&value)));
                }
            }
        }
    }
    text
}

/// The known properties, labelled.
fn properties(info: &DeviceInfo) -> Vec<(&'static str, String)> {
    let exact = |size: u64| format!("{} ({size} bytes)", bytes(size));
    let levels = info.priorities;
    let mut rows = vec![("vendor", info.vendor.clone()), ("driver", info.driver.clone())];
    rows.extend(info.uuid.map(|uuid| ("uuid", uuid.to_string())));
    rows.extend(info.pci.map(|pci| ("pci", pci.to_string())));
    rows.push(("memory", exact(info.memory)));
    if info.max_alloc != info.memory {
        rows.push(("one buffer", format!("at most {}", exact(info.max_alloc))));
    }
    rows.push(("alignment", format!("{} bytes", info.alignment)));
    rows.extend(info.cores.map(|cores| ("cores", cores.to_string())));
    rows.extend(info.clock_mhz.map(|clock| ("clock", format!("{clock} MHz"))));
    let shares = |integrated| if integrated { "shared with the host" } else { "its own" };
    rows.extend(info.integrated.map(|integrated| ("memory is", shares(integrated).to_owned())));
    rows.push(("priorities", format!("{} (least urgent) to {}", levels.least, levels.greatest)));
    rows.push(("event clock", format!("{} ns", info.stamp_ns)));
    let dtypes: Vec<&str> = info.dtypes.iter().map(DType::name).collect();
    rows.push(("dtypes", dtypes.join(" ")));
    rows
}
