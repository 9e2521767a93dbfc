//! What can be seen without opening a device, and what the doctor says of it (H22).

use crate::conv::Failed;
use crate::discovery::{self, Gpu};
use crate::sys::{self, Missing};
use anyaccel_hal::{Absence, Check, DeviceInfo, Layer, Probe, Verdict};

/// Whether probing starts nothing.
pub(crate) fn fork_safe() -> bool {
    sys::loader().is_err()
}

/// Readies what has to be ready before the runtime starts.
pub(crate) fn prepare() {}

fn look() -> Result<Vec<Gpu>, Absence> {
    let loader = sys::loader().map_err(|missing| {
        let (subject, found) = match missing {
            Missing::Library { library, reason } => (library, reason),
            Missing::Symbol { library, symbol } => (library, format!("a library without {symbol}")),
        };
        Absence::Missing { layer: Layer::Library, subject, found }
    })?;
    let failed = |Failed { api, code }| Absence::Missing {
        layer: Layer::Probe,
        subject: "the Level Zero loader".into(),
        found: format!("{api} says {code:#x}"),
    };
    let drivers = discovery::drivers(&loader.ze).map_err(failed)?;
    discovery::gpus(&loader.ze, &drivers).map_err(failed)
}

/// What is visible.
pub(crate) fn probe() -> Probe {
    match look() {
        Ok(gpus) if !gpus.is_empty() => Probe { started: true, ..Probe::found(gpus.len() as u32) },
        Ok(_) => {
            let (subject, found) = ("devices".into(), "none".into());
            Probe { started: true, ..Probe::absent(Absence::Missing { layer: Layer::Probe, subject, found }) }
        }
        Err(absence) => Probe::absent(absence),
    }
}

/// A device's properties.
pub(crate) fn describe(_ordinal: u32) -> Option<DeviceInfo> {
    None
}

/// The layers for the doctor.
pub(crate) fn checks(_started: Option<usize>) -> Vec<Check> {
    let (verdict, found) = match sys::loader() {
        Ok(loader) => (Verdict::Pass, loader.path.clone()),
        Err(missing) => (Verdict::Fail, missing.to_string()),
    };
    vec![Check { layer: Layer::Library, verdict, subject: "the Level Zero loader".into(), found }]
}
