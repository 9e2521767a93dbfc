//! A driver that says other things of itself than the good one in it.

use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, FaultKind, Kind, Layer, Probe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A driver, bent: for what a runtime does with drivers that hide, fail to start, or can't start again.
pub(crate) struct Bent {
    good: Arc<dyn Driver>,
    kind: Kind,
    restartable: bool,
    hidden: bool,
    /// How many starts are still to fail.
    failures: AtomicU32,
    starts: AtomicU32,
    opened: [AtomicU32; 2],
}

impl Bent {
    pub(crate) fn new(good: Arc<dyn Driver>) -> Self {
        let (kind, restartable) = (good.kind(), good.restartable());
        let (failures, starts, opened) = (AtomicU32::new(0), AtomicU32::new(0), Default::default());
        Self { good, kind, restartable, hidden: false, failures, starts, opened }
    }

    /// A kind of its own.
    pub(crate) fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// It can't start again in a forked child.
    pub(crate) fn frozen(mut self) -> Self {
        self.restartable = false;
        self
    }

    /// It has no device.
    pub(crate) fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Its first starts fail.
    pub(crate) fn failing(self, times: u32) -> Self {
        self.failures.store(times, Ordering::SeqCst);
        self
    }

    /// How often it was asked to start.
    pub(crate) fn starts(&self) -> u32 {
        self.starts.load(Ordering::SeqCst)
    }

    /// How often its device 0 or 1 was opened.
    pub(crate) fn opened(&self, ordinal: usize) -> u32 {
        self.opened[ordinal].load(Ordering::SeqCst)
    }
}

impl Driver for Bent {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn fork_safe_probe(&self) -> bool {
        self.hidden || self.good.fork_safe_probe()
    }

    fn probe(&self) -> Probe {
        if self.hidden {
            let (subject, found) = ("a device".into(), "none, on purpose".into());
            return Probe::absent(Absence::Missing { layer: Layer::Probe, subject, found });
        }
        self.good.probe()
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        if self.hidden { None } else { self.good.describe(ordinal) }
    }

    fn start(&self) -> Result<u32, Fault> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let fails = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            return Err(Fault::new(FaultKind::Driver, "start").code(99));
        }
        if self.hidden { Ok(0) } else { self.good.start() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        if let Some(opened) = self.opened.get(ordinal as usize) {
            opened.fetch_add(1, Ordering::SeqCst);
        }
        self.good.open(ordinal)
    }

    fn restartable(&self) -> bool {
        self.restartable
    }

    fn checks(&self) -> Vec<Check> {
        self.good.checks()
    }
}
