//! What a case gets: a way to make drivers, a seed, and how patient to be.

use crate::case::{Capability, Level, Outcome, Stop};
use crate::lab::{Lab, locked};
use crate::subject::{Abilities, Ask, Complaints, Made, Subject};
use crate::ways::{self, Way};
use crate::words;
use anyaccel_hal::{Driver, Format, Kind};
use anyaccel_kernels::Builtin;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Memory of a device under test where it can be chosen: room for every case, small enough to run out of.
pub(crate) const MEMORY: u64 = 192 << 20;

/// The surroundings of one run of one case.
#[derive(Clone)]
pub struct Env {
    pub(crate) subject: Subject,
    pub(crate) seed: u64,
    /// After how long something that must happen counts as not happening.
    pub(crate) patience: Duration,
    pub(crate) devices: u32,
    pub(crate) way: Way,
    pub(crate) level: Level,
    pub(crate) child: Option<PathBuf>,
    pub(crate) complaints: Arc<Mutex<Vec<Complaints>>>,
}

impl Env {
    /// The kind under test.
    pub fn kind(&self) -> Kind {
        self.subject.kind()
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A fresh driver, nothing started.
    pub(crate) fn make(&self) -> Outcome<Made> {
        let ask = Ask { devices: self.devices, memory: MEMORY, seed: self.seed };
        let made = self.subject.make(&ask).map_err(Stop::Skip)?;
        if let Some(complaints) = &made.complaints {
            locked(&self.complaints).push(complaints.clone());
        }
        let driver = ways::over(made.driver(), self.way, self.level);
        Ok(made.with_driver(driver))
    }

    /// The same without its handles.
    pub(crate) fn driver(&self) -> Outcome<Arc<dyn Driver>> {
        Ok(self.make()?.driver)
    }

    /// A fresh driver with its devices open.
    pub(crate) fn lab(&self) -> Outcome<Lab> {
        Lab::open(self.make()?.driver, self.devices, self.patience)
    }

    /// What the drivers of this case say of the suite, which is their caller.
    pub(crate) fn complaints(&self) -> Vec<String> {
        locked(&self.complaints).iter().flat_map(|complaints| complaints()).collect()
    }

    /// The program that runs the suite's scripts as a process of its own.
    pub(crate) fn child(&self) -> Option<&Path> {
        self.child.as_deref()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("subject", &self.subject).field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Asks a driver of the subject what it can, so that cases know beforehand whether they apply.
pub(crate) fn abilities(subject: &Subject, seed: u64, child: bool) -> Result<Abilities, String> {
    let Made { driver, lose, fail_work, .. } = subject.make(&Ask { devices: 2, memory: MEMORY, seed })?;
    let probe = driver.probe();
    if probe.visible == 0 {
        return Err(probe.absence.map_or_else(|| "no device is visible".into(), |absence| words::absence(&absence)));
    }
    let count = driver.start().map_err(|fault| fault.to_string())?;
    let device = driver.open(0).map_err(|fault| fault.to_string())?;
    let host_kernels = device.kernels().is_some_and(|kernels| kernels.formats().contains(&Format::HostFn));
    let peers = device.peers().is_some_and(|peers| (1..count).any(|ordinal| peers.can_access(ordinal)));
    let found = Abilities { devices: count, ..Abilities::default() };
    Ok(found
        .with(Capability::Pinned, device.pinned().is_some())
        .with(Capability::Peers, peers)
        .with(Capability::VirtualMemory, device.virtual_memory().is_some())
        .with(Capability::Gates, device.gates().is_some())
        .with(Capability::HostKernels, host_kernels)
        .with(Capability::Graphs, device.graphs().is_some_and(|graphs| graphs.limits().list))
        .with(Capability::Builtins, Builtin::ALL.iter().all(|builtin| device.builtin(builtin.number()).is_some()))
        .with(Capability::Telemetry, device.telemetry().is_some())
        .with(Capability::LoseDevice, lose.is_some())
        .with(Capability::FailWork, fail_work.is_some())
        .with(Capability::HostEnds, device.info().host_ends)
        .with(Capability::Child, child))
}
