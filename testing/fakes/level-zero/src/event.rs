//! Events: flags in memory, which queues and hosts set, reset and wait for; and the pools that they are slots of.

use crate::abi::*;
use crate::call::{Registry, Result, array, exports, fill, get, list, lock, put};
use crate::clock;
use crate::config::{Card, config};
use crate::control::alive;
use crate::device::{self, Device};
use crate::driver_calls::CONTEXTS;
use crate::turn;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) struct Pool {
    context: Handle,
    devices: Vec<&'static Device>,
    flags: u32,
    count: u32,
    taken: Mutex<BTreeSet<u32>>,
}

pub(crate) struct Event {
    pool: Arc<Pool>,
    index: u32,
    signaled: AtomicBool,
    /// When what signaled it began and ended.
    began: AtomicU64,
    ended: AtomicU64,
    /// Commands that are not over and name it.
    pub(crate) uses: AtomicU32,
    /// The card that is to signal it.
    by: AtomicPtr<Card>,
}

static POOLS: Registry<Pool> = Registry::new(0x00B0_0000_0000);
static EVENTS: Registry<Event> = Registry::new(0x00E0_0000_0000);

impl Event {
    pub(crate) fn signaled(&self) -> bool {
        self.signaled.load(Ordering::Acquire)
    }

    /// Sets it; whoever calls announces that.
    pub(crate) fn signal(&self, began: u64, ended: u64) {
        self.began.store(began, Ordering::Relaxed);
        self.ended.store(ended, Ordering::Relaxed);
        self.signaled.store(true, Ordering::Release);
    }

    pub(crate) fn reset(&self) {
        self.signaled.store(false, Ordering::Release);
    }

    /// Notes who is to signal it.
    pub(crate) fn signaled_by(&self, card: &'static Card) {
        self.by.store(std::ptr::from_ref(card).cast_mut(), Ordering::Release);
    }

    /// Fails if nobody will signal it because a card is lost.
    fn alive(&self) -> Result {
        // SAFETY: null, or one of the cards, which are never freed.
        match unsafe { self.by.load(Ordering::Acquire).as_ref() } {
            Some(card) if !self.signaled() => alive(card),
            _ => Ok(()),
        }
    }

    /// Fails if a host may not look at it.
    fn for_hosts(&self) -> Result {
        match self.pool.flags & ZE_EVENT_POOL_FLAG_HOST_VISIBLE {
            0 => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            _ => Ok(()),
        }
    }

    /// Its times, as a device's timer has them.
    pub(crate) fn times(&self) -> Result<ze_kernel_timestamp_result_t> {
        if self.pool.flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        self.alive()?;
        if !self.signaled() {
            return Err(ZE_RESULT_NOT_READY);
        }
        let bits = config().timer.kernel_bits;
        let time = |at: &AtomicU64| clock::ticks(at.load(Ordering::Relaxed), bits);
        let times = ze_kernel_timestamp_data_t { kernelStart: time(&self.began), kernelEnd: time(&self.ended) };
        Ok(ze_kernel_timestamp_result_t { global: times, context: times })
    }
}

/// Events of a context that a device may use.
pub(crate) fn usable(handles: &[Handle], context: Handle, device: &Device) -> Result<Vec<Arc<Event>>> {
    let one = |&handle: &Handle| {
        let event = EVENTS.get(handle)?;
        let seen = event.pool.devices.iter().any(|other| std::ptr::eq(other.card, device.card));
        if event.pool.context == context && seen { Ok(event) } else { Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) }
    };
    handles.iter().map(one).collect()
}

/// The event that something is to signal, if any.
pub(crate) fn to_signal(handle: Handle, context: Handle, device: &Device) -> Result<Option<Arc<Event>>> {
    let given = usize::from(handle != 0);
    Ok(usable(&[handle][..given], context, device)?.pop())
}

exports! {
    fn zeEventPoolCreate(
        context: Handle,
        desc: *const ze_event_pool_desc_t,
        count: u32,
        devices: *const Handle,
        out: *mut Handle,
    ) {
        let context = CONTEXTS.get(context)?;
        let desc = get(desc)?;
        if desc.count == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // Mapped timestamps came with 1.9.
        if desc.flags > if config().api >= version(1, 9) { 0xF } else { 7 } {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let devices: Vec<&'static Device> = match count {
            0 => context.devices.clone(),
            _ => array(devices, count)?.iter().map(|&device| context.device(device)).collect::<Result<_>>()?,
        };
        // What one device has lost the others still use.
        if devices.iter().all(|device| alive(device.card).is_err()) {
            return Err(ZE_RESULT_ERROR_DEVICE_LOST);
        }
        let taken = Mutex::default();
        let pool = Pool { context: context.handle, devices, flags: desc.flags, count: desc.count, taken };
        put(out, POOLS.add(pool))
    }

    fn zeEventPoolDestroy(pool: Handle) {
        POOLS.remove(pool, |pool| match lock(&pool.taken).is_empty() {
            true => Ok(()),
            false => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
        }).map(drop)
    }

    fn zeEventCreate(pool: Handle, desc: *const ze_event_desc_t, out: *mut Handle) {
        let (pool, desc) = (POOLS.get(pool)?, get(desc)?);
        if desc.signal > 7 || desc.wait > 7 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if desc.index >= pool.count || !lock(&pool.taken).insert(desc.index) {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        put(out, EVENTS.add(Event {
            pool,
            index: desc.index,
            signaled: AtomicBool::new(false),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            by: AtomicPtr::new(std::ptr::null_mut()),
        }))
    }

    fn zeEventDestroy(event: Handle) {
        let event = EVENTS.remove(event, |event| match event.uses.load(Ordering::Acquire) {
            0 => Ok(()),
            _ if event.alive().is_err() => Ok(()),
            _ => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
        })?;
        lock(&event.pool.taken).remove(&event.index);
        Ok(())
    }

    fn zeEventHostSignal(event: Handle) {
        let event = EVENTS.get(event)?;
        event.for_hosts()?;
        let now = clock::now();
        event.signal(now, now);
        turn::announce();
        Ok(())
    }

    fn zeEventHostReset(event: Handle) {
        let event = EVENTS.get(event)?;
        event.for_hosts()?;
        event.reset();
        Ok(())
    }

    fn zeEventQueryStatus(event: Handle) {
        let event = EVENTS.get(event)?;
        event.for_hosts()?;
        event.alive()?;
        if event.signaled() { Ok(()) } else { Err(ZE_RESULT_NOT_READY) }
    }

    fn zeEventHostSynchronize(event: Handle, timeout: u64) {
        let event = EVENTS.get(event)?;
        event.for_hosts()?;
        let over = turn::wait(timeout, || event.signaled() || event.alive().is_err());
        event.alive()?;
        if over { Ok(()) } else { Err(ZE_RESULT_NOT_READY) }
    }

    fn zeEventQueryKernelTimestamp(event: Handle, out: *mut ze_kernel_timestamp_result_t) {
        put(out, EVENTS.get(event)?.times()?)
    }

    fn zeEventQueryTimestampsExp(
        event: Handle,
        device: Handle,
        count: *mut u32,
        out: *mut ze_kernel_timestamp_result_t,
    ) {
        device::get(device)?;
        let times = EVENTS.get(event)?.times()?;
        fill(count)?;
        list(count, out, [times].into_iter(), |to, from| *to = from)
    }
}
