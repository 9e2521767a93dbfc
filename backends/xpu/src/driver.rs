//! The driver: counts, describes and opens devices.
//!
//! # Protocol
//!
//! Before the start everything is read anew: no lock (H24). Starting is an exchange of a pointer. A device is opened under the
//! lock of its own seat, so each is opened once, and on no other device is anything taken (H23).

use crate::builtin::Builtins;
use crate::context::Context;
use crate::conv::Failed;
use crate::device::{Limits, XpuDevice};
use crate::discovery::{self, Told, told};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::probe;
use crate::sys::{self, ZeDevice};
use crate::telemetry::Sensors;
use crate::virtual_memory::granularity;
use anyaccel_hal::{Check, Device, DeviceInfo, Driver, Fault, Kind, Probe};
use anyaccel_kit::{Mutex, Published};
use std::fmt;
use std::sync::Arc;

/// A device that can be opened.
struct Seat {
    platform: Arc<Platform>,
    device: ZeDevice,
    told: Told,
    open: Mutex<Option<Arc<XpuDevice>>>,
}

struct Started {
    machine: Arc<Machine>,
    seats: Vec<Seat>,
}

/// The driver of Intel's GPUs.
pub(crate) struct XpuDriver {
    started: Published<Started>,
}

impl fmt::Debug for XpuDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XpuDriver").field("devices", &self.started().map(|started| started.seats.len())).finish()
    }
}

impl XpuDriver {
    pub(crate) const fn new() -> Self {
        Self { started: Published::new() }
    }

    fn started(&self) -> Option<&Started> {
        self.started.get()
    }
}

impl Driver for XpuDriver {
    fn kind(&self) -> Kind {
        Kind::XPU
    }

    fn fork_safe_probe(&self) -> bool {
        probe::fork_safe()
    }

    fn probe(&self) -> Probe {
        match self.started() {
            Some(started) if probe::fork_safe() => Probe::found(started.seats.len() as u32),
            Some(started) => probe::counted(Ok(started.seats.len())),
            None => probe::probe().unwrap_or_else(|| probe::counted(count_natively())),
        }
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        match self.started() {
            Some(started) => started.seats.get(ordinal as usize).map(|seat| seat.told.info.clone()),
            None => probe::describe(ordinal),
        }
    }

    fn start(&self) -> Result<u32, Fault> {
        if let Some(started) = self.started() {
            return Ok(started.seats.len() as u32);
        }
        let Ok(loader) = sys::loader() else { return Ok(0) };
        // On some cards Sysman can't be initialised after the runtime.
        if !probe::prepare()? {
            return Ok(0);
        }
        let drivers = discovery::drivers(&loader.ze).map_err(Failed::fault)?;
        let gpus = discovery::gpus(&loader.ze, &drivers).map_err(Failed::fault)?;
        if gpus.is_empty() {
            return Ok(0);
        }
        let mut platforms: Vec<Arc<Platform>> = Vec::new();
        let mut seats = Vec::with_capacity(gpus.len());
        for gpu in &gpus {
            let platform = match platforms.iter().find(|platform| platform.driver == gpu.driver) {
                Some(platform) => Arc::clone(platform),
                None => {
                    let devices = gpus.iter().filter(|other| other.driver == gpu.driver).map(|other| other.device);
                    let platform = Platform::new(&loader.ze, gpu.driver, devices.collect()).map_err(Failed::fault)?;
                    let platform = Arc::new(platform);
                    platforms.push(Arc::clone(&platform));
                    platform
                }
            };
            let told = told(&platform, gpu.device).map_err(Failed::fault)?;
            seats.push(Seat { platform, device: gpu.device, told, open: Mutex::new(None) });
        }
        let started = self.started.publish(Started { machine: Arc::new(Machine::new()), seats });
        Ok(started.seats.len() as u32)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let started = self.started().ok_or_else(|| Fault::invalid("open", "the driver has not started"))?;
        let Some(seat) = started.seats.get(ordinal as usize) else {
            return Err(Fault::invalid("open", format!("device {ordinal} of {}", started.seats.len())));
        };
        let mut open = seat.open.lock();
        if let Some(device) = &*open {
            return Ok(Arc::clone(device) as Arc<dyn Device>);
        }
        let device = Arc::new(opened(started, seat, ordinal));
        *open = Some(Arc::clone(&device));
        Ok(device)
    }

    fn restartable(&self) -> bool {
        false
    }

    fn checks(&self) -> Vec<Check> {
        probe::checks(self.started().map(|started| started.seats.len()))
    }
}

/// The number of devices where only the runtime knows it, which this starts.
fn count_natively() -> Result<usize, Fault> {
    if !probe::prepare()? {
        return Ok(0);
    }
    let Ok(loader) = sys::loader() else { return Ok(0) };
    let drivers = discovery::drivers(&loader.ze).map_err(Failed::fault)?;
    Ok(discovery::gpus(&loader.ze, &drivers).map_err(Failed::fault)?.len())
}

fn opened(started: &Started, seat: &Seat, ordinal: u32) -> XpuDevice {
    let (machine, platform, told) = (&started.machine, &seat.platform, &seat.told);
    let reaches = |other: &Seat| {
        let mut can = 0;
        let together = Arc::ptr_eq(platform, &other.platform) && other.device != seat.device;
        // SAFETY: live devices of one driver, a valid place for the answer.
        together
            && unsafe { platform.ze.zeDeviceCanAccessPeer(seat.device, other.device, &raw mut can) }.is_ok()
            && can != 0
    };
    let context = Context::new(
        Arc::clone(platform),
        seat.device,
        ordinal,
        told.group,
        Arc::clone(&machine.callbacks),
        Arc::clone(&machine.watch),
    );
    platform.ready();
    let builtins: Arc<Builtins> = Arc::clone(&told.builtins);
    machine.keep(&builtins);
    XpuDevice {
        info: told.info.clone(),
        limits: Limits { granularity: granularity(platform.ze, platform.context, seat.device), ..told.limits },
        builtins,
        peers: started.seats.iter().map(reaches).collect(),
        sensors: Sensors::find(told.unit.as_ref(), seat.device),
        context: Arc::new(context),
        machine: Arc::clone(machine),
    }
}
