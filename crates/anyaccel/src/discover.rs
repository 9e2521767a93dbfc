//! What this build could use and why it can't: for `anyaccel info` and `anyaccel doctor`.

use crate::env;
use crate::error::Error;
use crate::linked;
use crate::runtime::Runtime;
use anyaccel_engine::alloc::Settings;
use anyaccel_hal::{Check, DeviceInfo, Kind, Probe};

/// A backend of this build, looked at without starting it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its kind.
    pub kind: Kind,
    /// Whether it is chosen without being named.
    pub chosen_by_itself: bool,
    /// What its probe found; `None` if the probe would have to start it.
    pub probe: Option<Probe>,
    /// Its visible devices, as far as the probe knows them.
    pub devices: Vec<Option<DeviceInfo>>,
    /// Its layers, examined.
    pub checks: Vec<Check>,
}

/// The backends of this build, the most preferred first. Starts nothing.
pub fn backends() -> Vec<Backend> {
    linked::all()
        .into_iter()
        .map(|linked| {
            let driver = linked.driver();
            let probe = driver.fork_safe_probe().then(|| driver.probe());
            let visible = probe.as_ref().map_or(0, |probe| probe.visible);
            Backend {
                kind: linked.kind,
                chosen_by_itself: linked::by_itself(linked.kind),
                devices: (0..visible).map(|ordinal| driver.describe(ordinal)).collect(),
                checks: driver.checks(),
                probe,
            }
        })
        .collect()
}

/// Which backend the process-wide runtime uses, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The value of `ANYACCEL_BACKEND`, if it is set and not empty.
    pub variable: Option<String>,
    /// The kind in use, or that would be used.
    pub kind: Option<Kind>,
    /// Whether it has started: then masks are frozen.
    pub started: bool,
    /// How many devices were visible at the start.
    pub count_at_start: Option<u32>,
    /// How many a probe finds now; differs if a mask was changed after the start.
    pub count_now: Option<u32>,
    /// What the first starting call would report.
    pub error: Option<Error>,
}

/// How the process-wide runtime chooses. Starts nothing, unless a probe on the way has to, as OpenCL's does where drivers are
/// installed.
pub fn selection() -> Selection {
    let runtime = Runtime::global();
    let variable = env::read(env::BACKEND).filter(|name| !name.is_empty());
    let live = runtime.core.started();
    let settings = || Settings::from_env(env::read).err().map(Error::Settings);
    let (error, probed) = match runtime.core.choose("doctor") {
        Ok(chosen) => (None, chosen.and_then(|chosen| chosen.probe).map(|probe| probe.visible)),
        Err(error) => (Some(error), None),
    };
    let error = error.or_else(|| if live.is_none() { settings() } else { None });
    let kind = runtime.kind();
    let count_now = kind.and_then(|kind| {
        let linked = linked::all().into_iter().find(|linked| linked.kind == kind)?;
        let driver = linked.driver();
        if driver.fork_safe_probe() { Some(driver.probe().visible) } else { probed }
    });
    Selection {
        variable,
        kind,
        started: live.is_some(),
        count_at_start: live.map(|live| live.count()),
        count_now,
        error,
    }
}
