//! One Level Zero driver and the context that its devices share, with the pools of events and of places for times.
//!
//! # Protocol
//!
//! An event is signalled once a use. Whoever may still look at it, or has a command that waits for it, keeps a count of it; the
//! last count that goes makes it ready for the next use, and only if it has been signalled: one whose signal is still to come is
//! never used again, since the signal would end another's wait. So an event that a destroyed stream left behind costs its
//! place in a pool until the context goes, and nothing else.
//!
//! The context stays until the process ends if work may be under way when its last device goes: destroying it would take
//! what the device uses (H25).

use crate::conv::{Failed, is_lost};
use crate::sys::*;
use anyaccel_kit::Mutex;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Events of the first pool; each further pool has twice as many, up to [`MOST`].
const FIRST: u32 = 64;
const MOST: u32 = 4096;
/// Bytes taken at a time for places of times.
const PAGE: usize = 4096;

#[derive(Debug, Default)]
struct Events {
    pools: Vec<ZeEventPool>,
    /// Every event that was made, to be destroyed with the pools.
    all: Vec<ZeEvent>,
    /// Those that are reset and used by nobody.
    free: Vec<ZeEvent>,
    /// Places left in the last pool, and how many it had.
    left: u32,
    size: u32,
}

#[derive(Debug, Default)]
struct Times {
    pages: Vec<usize>,
    free: Vec<usize>,
}

/// A driver's context.
pub(crate) struct Platform {
    pub(crate) ze: &'static Ze,
    pub(crate) driver: ZeDriver,
    pub(crate) context: ZeContext,
    /// All of its devices.
    devices: Vec<ZeDevice>,
    /// The driver's own handles of both, for its extensions.
    pub(crate) native: (ZeDriver, ZeContext),
    /// The version of the interface that the driver implements.
    pub(crate) version: u32,
    pub(crate) extensions: Extensions,
    events: Mutex<Events>,
    times: Mutex<Times>,
    /// Work may be under way that nobody waits for any more.
    busy: AtomicBool,
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Platform {
    /// Makes the context of a driver.
    pub(crate) fn new(ze: &'static Ze, driver: ZeDriver, devices: Vec<ZeDevice>) -> Result<Self, Failed> {
        let mut version = 0;
        let mut context = ZeContext::NULL;
        let desc = ZeContextDesc::new();
        let extensions = Extensions::of(ze, driver)?;
        // SAFETY: a live driver and valid places for the answers; the context is destroyed by Drop.
        unsafe {
            ze.zeDriverGetApiVersion(driver, &raw mut version)?;
            ze.zeContextCreate(driver, &raw const desc, &raw mut context)?;
        }
        Ok(Self {
            ze,
            driver,
            context,
            devices,
            native: (ze.native_driver(driver), ze.native_context(context)),
            version,
            extensions,
            events: Mutex::new(Events::default()),
            times: Mutex::new(Times::default()),
            busy: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Work may be left that nobody waits for: the context stays.
    pub(crate) fn leave_busy(&self) {
        self.busy.store(true, Ordering::Release);
    }

    /// Has a first pool of events made, while all devices live.
    pub(crate) fn ready(&self) {
        if let Ok(event) = self.take_event() {
            self.put_event(event);
        }
    }

    fn take_event(&self) -> Result<ZeEvent, Failed> {
        let mut events = self.events.lock();
        if let Some(event) = events.free.pop() {
            return Ok(event);
        }
        if events.left == 0 {
            let size = (events.size * 2).clamp(FIRST, MOST);
            let pool = self.make_pool(size)?;
            events.pools.push(pool);
            (events.left, events.size) = (size, size);
        }
        let pool = events.pools.last().copied().unwrap_or(ZeEventPool::NULL);
        let mut event = ZeEvent::NULL;
        let mut desc = ZeEventDesc::new();
        desc.index = events.size - events.left;
        desc.signal = ZE_EVENT_SCOPE_FLAG_HOST;
        desc.wait = ZE_EVENT_SCOPE_FLAG_HOST;
        // SAFETY: a valid place for the answer; the pool lives and has that place, which nobody else was given.
        unsafe { self.ze.zeEventCreate(pool, &raw const desc, &raw mut event)? };
        events.left -= 1;
        events.all.push(event);
        Ok(event)
    }

    /// A pool for all devices that live: with one that is lost there may be none.
    fn make_pool(&self, count: u32) -> Result<ZeEventPool, Failed> {
        let mut desc = ZeEventPoolDesc::new();
        desc.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
        desc.count = count;
        let make = |mut devices: Vec<ZeDevice>| -> Result<ZeEventPool, Failed> {
            let mut pool = ZeEventPool::NULL;
            let (count, all) = (devices.len() as u32, devices.as_mut_ptr());
            // SAFETY: a valid place for the answer; devices of this context.
            unsafe { self.ze.zeEventPoolCreate(self.context, &raw const desc, count, all, &raw mut pool)? };
            Ok(pool)
        };
        match make(self.devices.clone()) {
            Err(failed) if is_lost(failed.code) => {
                // SAFETY: live handles.
                let lives = |&&device: &&ZeDevice| unsafe { self.ze.zeDeviceGetStatus(device) }.is_ok();
                let living: Vec<ZeDevice> = self.devices.iter().filter(lives).copied().collect();
                if living.is_empty() { Err(failed) } else { make(living) }
            }
            made => made,
        }
    }

    fn put_event(&self, event: ZeEvent) {
        self.events.lock().free.push(event);
    }

    /// A place for a time, in memory that host and devices share.
    pub(crate) fn take_time(self: &Arc<Self>) -> Result<Time, Failed> {
        let mut times = self.times.lock();
        if times.free.is_empty() {
            let mut page: *mut c_void = ptr::null_mut();
            let desc = ZeHostMemAllocDesc::new();
            // SAFETY: a valid place for the answer; freed by Drop.
            unsafe { self.ze.zeMemAllocHost(self.context, &raw const desc, PAGE, 64, &raw mut page)? };
            let page = page.expose_provenance();
            times.pages.push(page);
            times.free.extend((page..page + PAGE).step_by(size_of::<u64>()));
        }
        let place =
            times.free.pop().ok_or(Failed { api: "zeMemAllocHost", code: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY })?;
        Ok(Time { platform: Arc::clone(self), place })
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if *self.busy.get_mut() {
            return;
        }
        let (events, times) = (self.events.lock(), self.times.lock());
        // SAFETY: made by this context, and used by nobody any more; the context goes last.
        unsafe {
            for &event in &events.all {
                let _destroyed = self.ze.zeEventDestroy(event);
            }
            for &pool in &events.pools {
                let _destroyed = self.ze.zeEventPoolDestroy(pool);
            }
            for &page in &times.pages {
                let _freed = self.ze.zeMemFree(self.context, ptr::with_exposed_provenance_mut(page));
            }
            let _destroyed = self.ze.zeContextDestroy(self.context);
        }
    }
}

/// An event of a pool, not signalled when it is made.
#[derive(Debug)]
pub(crate) struct Event {
    platform: Arc<Platform>,
    pub(crate) raw: ZeEvent,
}

impl Event {
    pub(crate) fn new(platform: &Arc<Platform>) -> Result<Self, Failed> {
        let raw = platform.take_event()?;
        Ok(Self { platform: Arc::clone(platform), raw })
    }

    /// Whether it is signalled.
    #[inline]
    pub(crate) fn ended(&self) -> Result<bool, Failed> {
        // SAFETY: the event lives.
        match unsafe { self.platform.ze.zeEventQueryStatus(self.raw) } {
            Ok(()) => Ok(true),
            Err(Failed { code: ZE_RESULT_NOT_READY, .. }) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// Waits until it is signalled, for at most so many nanoseconds, and says whether it is.
    pub(crate) fn wait(&self, nanoseconds: u64) -> Result<bool, Failed> {
        // SAFETY: the event lives as long as this count of it.
        match unsafe { self.platform.ze.zeEventHostSynchronize(self.raw, nanoseconds) } {
            Ok(()) => Ok(true),
            Err(Failed { code: ZE_RESULT_NOT_READY, .. }) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// Signals it from the host.
    pub(crate) fn signal(&self) -> Result<(), Failed> {
        // SAFETY: the event lives.
        unsafe { self.platform.ze.zeEventHostSignal(self.raw) }
    }

    /// Makes it one that is not signalled: nobody has another count of it, and it was signalled.
    #[inline]
    pub(crate) fn renew(&mut self) -> Result<(), Failed> {
        // SAFETY: the event lives; `&mut` says that nobody waits for it.
        unsafe { self.platform.ze.zeEventHostReset(self.raw) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(true)) && self.renew().is_ok() {
            self.platform.put_event(self.raw);
        }
    }
}

/// Where a device writes its time.
#[derive(Debug)]
pub(crate) struct Time {
    platform: Arc<Platform>,
    place: usize,
}

impl Time {
    pub(crate) fn pointer(&self) -> *mut u64 {
        ptr::with_exposed_provenance_mut(self.place)
    }

    /// What was written. Its event has ended.
    pub(crate) fn read(&self) -> u64 {
        // SAFETY: an aligned word of a page that lives as long as the platform; the device's write has ended before.
        unsafe { AtomicU64::from_ptr(self.pointer()) }.load(Ordering::Acquire)
    }

    /// Gives the place back: the device has written it.
    fn put(&self) {
        self.platform.times.lock().free.push(self.place);
    }
}

/// A point whose time is kept.
#[derive(Debug)]
pub(crate) struct Stamped {
    pub(crate) event: Event,
    pub(crate) time: Time,
}

impl Stamped {
    pub(crate) fn new(platform: &Arc<Platform>) -> Result<Self, Failed> {
        Ok(Self { event: Event::new(platform)?, time: platform.take_time()? })
    }

    /// Whether the device has written it, as far as can be told.
    pub(crate) fn settled(&self) -> bool {
        matches!(self.event.ended(), Ok(true))
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        // A place that the device has yet to write is used no more.
        if self.settled() {
            self.time.put();
        }
    }
}
