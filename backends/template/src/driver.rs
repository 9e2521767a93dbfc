//! What there is: counting, describing and opening devices.
//!
//! Everything here but `open` may be called in a child of a fork, before anything was started: no lock, no `OnceLock` (H24).

use crate::device::TemplateDevice;
use anyaccel_hal::{
    Check, DTypeSet, Device, DeviceInfo, Driver, Fault, Kind, Layer, PatternSizes, PriorityRange, Probe, Verdict,
};
use std::sync::Arc;

/// The name that devices are called by: `template:0`. Choose your own, or `Kind::MTIA` and the like if it is yours.
const KIND: Kind = match Kind::private("template") {
    Some(kind) => kind,
    None => panic!("the name breaks the rules of Kind::private"),
};

/// How many devices there are. A real backend asks the native library, without starting it where it can.
const DEVICES: u32 = 2;

/// The driver. What its devices share goes here: the native library, a context, a pool of threads.
#[derive(Debug, Default)]
pub(crate) struct TemplateDriver {}

/// A device's properties. Real values come from the native library.
fn info() -> DeviceInfo {
    DeviceInfo {
        name: "Template".into(),
        vendor: "nobody".into(),
        driver: "0".into(),
        uuid: None,
        pci: None,
        memory: 192 << 20,
        max_alloc: 192 << 20,
        // What addresses of segments are multiples of. 256 serves kernels of any kind.
        alignment: 256,
        // 1 where memory has addresses, so that kernels can be given any of them.
        place_alignment: 1,
        // Whether copies may name any host memory; if not, Pinned is needed, and the engine stages through it.
        host_ends: true,
        stamp_ns: 1,
        // What `fill` can repeat: the engine asks for no other size.
        fill_patterns: PatternSizes::ALL,
        cores: None,
        clock_mhz: None,
        integrated: None,
        priorities: PriorityRange { least: 0, greatest: 0 },
        // None: the engine converts on the host, all types.
        dtypes: DTypeSet::EMPTY,
    }
}

impl Driver for TemplateDriver {
    fn kind(&self) -> Kind {
        KIND
    }

    /// True if `probe` and `describe` start nothing, whatever they find (H22). A native library that can't be asked without
    /// being started says false, and is then asked only when somebody needs a device.
    fn fork_safe_probe(&self) -> bool {
        true
    }

    /// What is there. `Probe::absent` says why there is nothing: a library that is missing, a variable that hides devices.
    fn probe(&self) -> Probe {
        Probe::found(DEVICES)
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        (ordinal < DEVICES).then(info)
    }

    /// The first call that may start the native runtime. Called again, it answers the same.
    fn start(&self) -> Result<u32, Fault> {
        Ok(DEVICES)
    }

    /// Takes memory and makes queues on this device alone (H23), and gives the same device the second time: keep it.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        if ordinal >= DEVICES {
            return Err(Fault::invalid("open", format!("device {ordinal} of {DEVICES}")));
        }
        Ok(Arc::new(TemplateDevice::new(info())))
    }

    /// Whether a new driver works in a child that was forked after its parent had started one. Few native runtimes can.
    fn restartable(&self) -> bool {
        true
    }

    /// For `anyaccel doctor`: each layer, from the bottom up, with what was looked for and what was found.
    fn checks(&self) -> Vec<Check> {
        let found = "a template, which has no device; copy it and fill it in".into();
        vec![Check { layer: Layer::Probe, verdict: Verdict::Warn, subject: "devices".into(), found }]
    }
}
