//! A device: what is known of its loss, and who waits for it.
//!
//! # Protocol
//!
//! The first code that says so makes the device lost, for good: `lost` is set before the functions that wait for their turn are
//! cancelled, and whoever adds one looks at `lost` under the lock that cancelling takes.

use crate::conv::{Failed, is_lost};
use crate::host_call::Job;
use crate::platform::{Platform, Stamped};
use crate::sys::{Ze, ZeDevice};
use crate::watch::Watch;
use anyaccel_hal::{Fault, FaultKind};
use anyaccel_kit::{Callbacks, Mutex};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// How many fruitless looks at an event there are between two questions whether the device lives. A driver tells the loss to
/// who waits, and not to who only looks.
const LOOKS: u32 = 4096;

/// Something that holds functions whose turn may not come.
pub(crate) trait Cancel: Send + Sync {
    /// Hands them to callback threads as cancelled, and lets the device go on.
    fn cancel(&self);
}

pub(crate) struct Context {
    pub(crate) ze: &'static Ze,
    pub(crate) platform: Arc<Platform>,
    pub(crate) device: ZeDevice,
    pub(crate) ordinal: u32,
    /// Where streams are made: the group of queues.
    pub(crate) group: u32,
    /// Whether the driver keeps the order of a stream's commands, or has to be told by barriers.
    pub(crate) in_order: bool,
    pub(crate) callbacks: Arc<Callbacks<Job>>,
    pub(crate) watch: Arc<Watch>,
    lost: AtomicBool,
    first: Mutex<Option<Failed>>,
    cancels: Mutex<Vec<Weak<dyn Cancel>>>,
    looks: AtomicU32,
    /// Stamps that were dropped before their turn.
    fading: Mutex<Vec<Stamped>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("ordinal", &self.ordinal).field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(
        platform: Arc<Platform>,
        device: ZeDevice,
        ordinal: u32,
        group: u32,
        callbacks: Arc<Callbacks<Job>>,
        watch: Arc<Watch>,
    ) -> Self {
        Self {
            ze: platform.ze,
            in_order: platform.version >= crate::IN_ORDER_SINCE,
            platform,
            device,
            ordinal,
            group,
            callbacks,
            watch,
            lost: AtomicBool::new(false),
            first: Mutex::new(None),
            cancels: Mutex::new(Vec::new()),
            looks: AtomicU32::new(0),
            fading: Mutex::new(Vec::new()),
        }
    }

    /// Refuses on a device that is lost.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), Fault> {
        if self.is_lost() { Err(self.lost_fault()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// What every call on a lost device returns: the first one that failed.
    #[cold]
    pub(crate) fn lost_fault(&self) -> Fault {
        match *self.first.lock() {
            Some(failed) => Fault { kind: FaultKind::DeviceLost, ..failed.fault() },
            None => Fault::new(FaultKind::DeviceLost, "device"),
        }
    }

    /// The fault of a failed call. One that tells of the device's loss is kept.
    #[inline]
    pub(crate) fn check<T>(&self, result: Result<T, Failed>) -> Result<T, Fault> {
        result.map_err(|failed| self.fault(failed))
    }

    #[cold]
    pub(crate) fn fault(&self, failed: Failed) -> Fault {
        if !is_lost(failed.code) {
            return failed.fault();
        }
        self.lose(failed);
        self.lost_fault()
    }

    /// The device is gone for good.
    #[cold]
    pub(crate) fn lose(&self, failed: Failed) {
        let mut first = self.first.lock();
        let news = first.is_none();
        first.get_or_insert(failed);
        self.lost.store(true, Ordering::Release);
        drop(first);
        if news {
            self.cancel_functions();
        }
    }

    /// The same for a call that concerns all devices of the driver: another's loss is not this one's.
    #[inline]
    pub(crate) fn check_shared<T>(&self, result: Result<T, Failed>) -> Result<T, Fault> {
        result.map_err(|failed| self.shared_fault(failed))
    }

    #[cold]
    fn shared_fault(&self, failed: Failed) -> Fault {
        if is_lost(failed.code) && self.ask_status().is_ok() {
            let fault = failed.fault();
            return Fault { kind: FaultKind::Driver, ..fault.note("another device of this driver is lost") };
        }
        self.fault(failed)
    }

    /// Asks whether the device lives.
    #[cold]
    pub(crate) fn ask_status(&self) -> Result<(), Fault> {
        // SAFETY: a live device.
        self.check(unsafe { self.ze.zeDeviceGetStatus(self.device) })
    }

    /// Somebody looked at an event and it had not ended: now and then asks whether the device lives.
    #[inline]
    pub(crate) fn looked(&self) -> Result<(), Fault> {
        if self.looks.fetch_add(1, Ordering::Relaxed) % LOOKS == LOOKS - 1 { self.ask_status() } else { Ok(()) }
    }

    /// Remembers whom to cancel.
    pub(crate) fn register(&self, cancel: Weak<dyn Cancel>) {
        let mut cancels = self.cancels.lock();
        if cancels.len() == cancels.capacity() {
            cancels.retain(|cancel| cancel.strong_count() > 0);
        }
        cancels.push(cancel);
    }

    /// Cancels all functions whose turn has not come.
    pub(crate) fn cancel_functions(&self) {
        let cancels = self.cancels.lock().clone();
        for cancel in cancels.iter().filter_map(Weak::upgrade) {
            cancel.cancel();
        }
    }

    /// Lets go of a stamp once the device has written it.
    pub(crate) fn fade(&self, stamp: Option<Stamped>) {
        let mut fading = self.fading.lock();
        fading.retain(|stamp| !stamp.settled());
        fading.extend(stamp.filter(|stamp| !stamp.settled()));
    }
}
