//! The driver: counts, describes and opens devices.
//!
//! # Protocol
//!
//! Before the start everything is read anew, but for the inventory of cards, which is read once and published by an exchange
//! of a pointer: no lock (H24). Starting is one more exchange. A device is opened under the lock of its own seat, so each is
//! opened once, and on no other device is anything taken (H23).

use crate::builtin::Builtins;
use crate::context::Context;
use crate::conv::Failed;
use crate::device::{CudaDevice, Limits, attribute, not_started};
use crate::inventory::{Inventory, Sensors, Unit, blank};
use crate::machine::Machine;
use crate::probe::{Look, checks, look};
use crate::stream::Stream;
use crate::sys::{self, *};
use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, FaultKind, Kind, PciAddress, Probe, Uuid};
use anyaccel_kit::{Mutex, Published};
use std::env;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Chooses where memory comes from: `async` for the driver's stream-ordered pool.
const ALLOC: &str = "ANYACCEL_CUDA_ALLOC";

/// A device that can be opened.
struct Seat {
    device: CUdevice,
    capability: (i32, i32),
    info: DeviceInfo,
    /// What the management side calls it.
    unit: Option<Unit>,
    open: Mutex<Option<Arc<CudaDevice>>>,
}

struct Started {
    machine: Arc<Machine>,
    seats: Vec<Seat>,
    /// The mask that counted at the start.
    mask: Option<String>,
}

/// The driver of NVIDIA GPUs.
pub(crate) struct CudaDriver {
    started: Published<Started>,
    inventory: Published<Inventory>,
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver").field("devices", &self.started().map(|started| started.seats.len())).finish()
    }
}

impl CudaDriver {
    pub(crate) const fn new() -> Self {
        Self { started: Published::new(), inventory: Published::new() }
    }

    fn started(&self) -> Option<&Started> {
        self.started.get()
    }

    fn inventory(&self, nvml: &'static Nvml) -> Result<&Inventory, Failed> {
        self.inventory.get_or_make(|| Inventory::read(nvml))
    }

    /// What is there now, as far as can be seen without a start.
    fn look(&self) -> Result<Look<'_>, Absence> {
        look(|nvml| self.inventory(nvml))
    }
}

impl Driver for CudaDriver {
    fn kind(&self) -> Kind {
        Kind::CUDA
    }

    fn fork_safe_probe(&self) -> bool {
        true
    }

    fn probe(&self) -> Probe {
        if let Some(started) = self.started() {
            return Probe::found(started.seats.len() as u32);
        }
        match self.look() {
            Ok(look) => look.probe(),
            Err(absence) => Probe::absent(absence),
        }
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        if let Some(started) = self.started() {
            return started.seats.get(ordinal as usize).map(|seat| seat.info.clone());
        }
        self.look().ok()?.unit(ordinal).map(|unit| unit.info.clone())
    }

    fn start(&self) -> Result<u32, Fault> {
        if let Some(started) = self.started() {
            return Ok(started.seats.len() as u32);
        }
        let Ok(look) = self.look() else { return Ok(0) };
        if look.visible().picks.is_empty() {
            return Ok(0);
        }
        let cuda =
            sys::cuda().map_err(|missing| Fault::new(FaultKind::Unsupported, "cuInit").note(missing.to_string()))?;
        // SAFETY: no flags.
        match unsafe { cuda.cuInit(0) } {
            Ok(()) => {}
            Err(Failed { code: CUDA_ERROR_NO_DEVICE, .. }) => return Ok(0),
            Err(failed) => return Err(failed.fault()),
        }
        let mut count = 0;
        // SAFETY: a valid place for the answer.
        unsafe { cuda.cuDeviceGetCount(&raw mut count) }.map_err(Failed::fault)?;
        let inventory = look.inventory;
        let seats = (0..count).map(|ordinal| seat(cuda, ordinal, inventory)).collect::<Result<_, _>>()?;
        let machine = Arc::new(Machine::new(cuda));
        let started = self.started.publish(Started { machine, seats, mask: look.mask });
        Ok(started.seats.len() as u32)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let started = self.started().ok_or_else(not_started)?;
        let Some(seat) = started.seats.get(ordinal as usize) else {
            return Err(Fault::invalid("open", format!("device {ordinal} of {}", started.seats.len())));
        };
        let mut open = seat.open.lock();
        if let Some(device) = &*open {
            return Ok(Arc::clone(device) as Arc<dyn Device>);
        }
        let device = Arc::new(opened(started, seat, ordinal)?);
        *open = Some(Arc::clone(&device));
        Ok(device)
    }

    fn restartable(&self) -> bool {
        false
    }

    fn checks(&self) -> Vec<Check> {
        checks(self.started().map(|started| (started.seats.len(), started.mask.as_deref())), &self.look())
    }
}

/// What the driver says of a device that is not opened.
fn seat(cuda: &Cuda, ordinal: i32, inventory: &Inventory) -> Result<Seat, Fault> {
    let (mut device, mut uuid) = (0, [0_u8; 16]);
    // SAFETY: valid places for the answers.
    unsafe {
        cuda.cuDeviceGet(&raw mut device, ordinal).map_err(Failed::fault)?;
        cuda.cuDeviceGetUuid_v2(&raw mut uuid, device).map_err(Failed::fault)?;
    }
    let get = |which| attribute(cuda, device, which);
    let capability = (
        get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).unwrap_or(0) as i32,
        get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).unwrap_or(0) as i32,
    );
    let unit = inventory.find(Uuid(uuid)).cloned();
    let info = match &unit {
        Some(unit) => unit.info.clone(),
        None => native_info(cuda, device, capability, Uuid(uuid))?,
    };
    Ok(Seat { device, capability, info, unit, open: Mutex::new(None) })
}

/// The properties of a device that the management side does not know.
fn native_info(cuda: &Cuda, device: CUdevice, capability: (i32, i32), uuid: Uuid) -> Result<DeviceInfo, Fault> {
    let get = |which| attribute(cuda, device, which);
    // SAFETY: a buffer of the length that goes with it.
    let name = crate::inventory::text(|out, len| unsafe { cuda.cuDeviceGetName(out, len as i32, device) });
    let mut memory = 0;
    // SAFETY: a valid place for the answer.
    unsafe { cuda.cuDeviceTotalMem_v2(&raw mut memory, device) }.map_err(Failed::fault)?;
    let mut version = 0;
    // SAFETY: as above.
    unsafe { cuda.cuDriverGetVersion(&raw mut version) }.map_err(Failed::fault)?;
    let place = |domain, bus, device| PciAddress { domain, bus: bus as u8, device: device as u8, function: 0 };
    let pci = get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
        .zip(get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID))
        .zip(get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    Ok(DeviceInfo {
        name: name.map_err(Failed::fault)?,
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        uuid: Some(uuid),
        pci: pci.map(|((domain, bus), device)| place(domain, bus, device)),
        memory: memory as u64,
        max_alloc: memory as u64,
        cores: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).filter(|&count| count > 0),
        clock_mhz: get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(|khz| khz / 1000).filter(|&mhz| mhz > 0),
        integrated: get(CU_DEVICE_ATTRIBUTE_INTEGRATED).map(|integrated| integrated != 0),
        ..blank(capability)
    })
}

fn opened(started: &Started, seat: &Seat, ordinal: u32) -> Result<CudaDevice, Fault> {
    let (machine, device) = (&started.machine, seat.device);
    let cuda = machine.cuda;
    let whole = seat.unit.as_ref().is_none_or(|unit| !unit.text.starts_with("MIG-"));
    let reaches = |other: &Seat| {
        let mut can = 0;
        // SAFETY: a valid place for the answer.
        let asked = unsafe { cuda.cuDeviceCanAccessPeer(&raw mut can, device, other.device) };
        other.device != device && asked.is_ok() && can != 0
    };
    let context = Arc::new(Context::retain(cuda, device, ordinal, Arc::clone(&machine.callbacks))?);
    machine.opened.add(&context.returns);
    let limits = Limits::ask(&context, whole);
    let ordered = match env::var(ALLOC).as_deref() {
        Ok("async")
            if cuda.has("cuMemAllocAsync")
                && attribute(cuda, device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == Some(1) =>
        {
            let _current = context.enter()?;
            Some(Arc::new(Stream::create(&context, 0)?))
        }
        _ => None,
    };
    let multiprocessors = attribute(cuda, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(1);
    let sensors = match (sys::nvml(), &seat.unit) {
        (Ok(nvml), Some(unit)) => Sensors::find(nvml, unit),
        _ => None,
    };
    let builtins = {
        let _current = context.enter()?;
        Builtins::new(&context, seat.capability >= crate::inventory::LEAST_CAPABILITY, multiprocessors)
    };
    Ok(CudaDevice {
        info: seat.info.clone(),
        builtins,
        peers: started.seats.iter().map(reaches).collect(),
        enabled: started.seats.iter().map(|_| AtomicBool::new(false)).collect(),
        limits,
        ordered,
        sensors,
        compiles: OnceLock::new(),
        context,
        machine: Arc::clone(machine),
    })
}
