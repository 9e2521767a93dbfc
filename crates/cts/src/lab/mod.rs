//! Open devices, as cases use them: the one place of this crate that calls the unsafe methods of the hal.
//!
//! The suite is the caller of the contract, so it keeps the rules marked (caller):
//! - **H1**: [`Stream`], [`Region`], [`Stamp`](anyaccel_hal::Stamp)s and the like come from a lab and are used with that
//!   lab. What a lab hands out stays live until the lab goes, unless a case gives it back by a method of the lab, which
//!   first waits for all its work; a case does not use it afterwards.
//! - **H4**: a [`Region`] can only be narrowed, and memory is freed after a wait for all streams of the driver.
//! - **H5**: [`Host`] memory belongs to the lab, is never borrowed (a broken backend may be writing it), and lives until all streams have ended. If they do not end, everything is left behind.
//! - **H14**, **H15**: checked at the call.

mod hold;
mod memory;

pub(crate) use hold::{Delay, Hold, Latch};
pub(crate) use memory::{Host, Region, arg, bytes};

use crate::case::{Outcome, fail};
use anyaccel_hal::{Device, Driver, Fault, HostFn, HostStatus, Mark, Stamp, StreamId, Until, WaitMode, Waited};
use memory::Kept;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long something is watched that must not happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(25);

/// A stream of a lab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) id: StreamId,
}

/// A driver with its devices open, and all that a case took from them.
pub(crate) struct Lab {
    driver: Arc<dyn Driver>,
    devices: Vec<Arc<dyn Device>>,
    pub(crate) patience: Duration,
    streams: Mutex<Vec<Stream>>,
    kept: Mutex<Kept>,
}

/// Locks; what a panicking thread left behind is still good for the suite's own lists.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lab {
    /// Starts a driver and opens its first `devices` devices.
    pub(crate) fn open(driver: Arc<dyn Driver>, devices: u32, patience: Duration) -> Outcome<Lab> {
        driver.start()?;
        let devices = (0..devices).map(|ordinal| driver.open(ordinal)).collect::<Result<_, _>>()?;
        Ok(Lab { driver, devices, patience, streams: Mutex::default(), kept: Mutex::default() })
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) fn device(&self, ordinal: usize) -> &dyn Device {
        &*self.devices[ordinal]
    }

    // Streams

    pub(crate) fn stream(&self) -> Result<Stream, Fault> {
        self.stream_on(0)
    }

    pub(crate) fn stream_on(&self, device: usize) -> Result<Stream, Fault> {
        self.stream_with(device, 0)
    }

    pub(crate) fn stream_with(&self, device: usize, priority: i32) -> Result<Stream, Fault> {
        let stream = Stream { device, id: self.device(device).create_stream(priority)? };
        locked(&self.streams).push(stream);
        Ok(stream)
    }

    pub(crate) fn streams(&self, count: usize) -> Result<Vec<Stream>, Fault> {
        (0..count).map(|_| self.stream()).collect()
    }

    /// Gives a stream back; the case has waited for its work.
    pub(crate) fn destroy(&self, stream: Stream) -> Result<(), Fault> {
        locked(&self.streams).retain(|kept| *kept != stream);
        // SAFETY: H1, the lab created it, its work has ended, and no case uses it afterwards.
        unsafe { self.device(stream.device).destroy_stream(stream.id) }
    }

    // Order

    /// The number of a mark outside of any capture.
    pub(crate) fn mark(&self, stream: Stream) -> Outcome<u64> {
        // SAFETY: H1, see the module.
        match unsafe { self.device(stream.device).mark(stream.id) }? {
            Mark::At(mark) => Ok(mark),
            Mark::Captured(point) => fail("H7", "a mark that can be waited for", format!("Captured({point})")),
        }
    }

    pub(crate) fn wait(&self, stream: Stream, of: Stream, mark: u64) -> Result<(), Fault> {
        // SAFETY: H1, see the module; cases take `mark` from `of`.
        unsafe { self.device(stream.device).wait(stream.id, of.id, Mark::At(mark)) }
    }

    pub(crate) fn wait_host(
        &self,
        stream: Stream,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: H1, see the module; cases take marks from `stream`.
        unsafe { self.device(stream.device).wait_host(stream.id, until, deadline, mode) }
    }

    pub(crate) fn completed(&self, stream: Stream) -> Result<u64, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device(stream.device).completed(stream.id) }
    }

    /// Waits until everything enqueued so far has ended.
    pub(crate) fn finish(&self, stream: Stream) -> Outcome {
        self.reach(stream, Until::Now)
    }

    /// Waits until that has ended, which it must.
    pub(crate) fn reach(&self, stream: Stream, until: Until) -> Outcome {
        let deadline = Instant::now() + self.patience;
        match self.wait_host(stream, until, Some(deadline), WaitMode::Auto)? {
            Waited::Ended => Ok(()),
            Waited::TimedOut => {
                fail("H11", "the work of the stream to end", format!("nothing for {:?}", self.patience))
            }
        }
    }

    /// Watches for a moment that a mark does not end.
    pub(crate) fn not_ended(&self, rule: &str, stream: Stream, mark: u64, why: &str) -> Outcome {
        let expected = || format!("mark {mark} not to have ended while {why}");
        let deadline = Instant::now() + MOMENT;
        match self.wait_host(stream, Until::Mark(mark), Some(deadline), WaitMode::Auto)? {
            Waited::Ended => fail(rule, expected(), "wait_host says Ended"),
            Waited::TimedOut => match self.completed(stream)? {
                ended if ended >= mark => fail(rule, expected(), format!("completed says {ended}")),
                _ => Ok(()),
            },
        }
    }

    /// Waits for something that must happen, by itself: nothing is called meanwhile.
    pub(crate) fn eventually(&self, rule: &str, what: &str, mut happened: impl FnMut() -> bool) -> Outcome {
        let deadline = Instant::now() + self.patience;
        while !happened() {
            if Instant::now() > deadline {
                return fail(rule, what, format!("it did not happen in {:?}", self.patience));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    // Time

    pub(crate) fn stamp(&self, stream: Stream) -> Result<Stamp, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device(stream.device).stamp(stream.id) }
    }

    pub(crate) fn elapsed(&self, device: usize, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1, cases take both stamps from that device and drop none before.
        unsafe { self.device(device).elapsed_ns(from, to) }
    }

    pub(crate) fn drop_stamp(&self, device: usize, stamp: Stamp) {
        // SAFETY: H1, cases drop a stamp of that device once, last.
        unsafe { self.device(device).drop_stamp(stamp) }
    }

    // Host functions

    pub(crate) fn call(&self, stream: Stream, function: impl FnMut(HostStatus) + Send + 'static) -> Result<(), Fault> {
        // SAFETY: H1, see the module; H13, HostFn::new contains panics and no case calls the driver inside.
        unsafe { self.device(stream.device).host_call(stream.id, HostFn::new(function)) }
    }

    /// Leaves the lab's own bookkeeping behind and hands over driver and devices, whatever they are doing. What the lab
    /// kept lives for ever: the backend may still use it.
    pub(crate) fn into_parts(self) -> (Arc<dyn Driver>, Vec<Arc<dyn Device>>) {
        let parts = (self.driver.clone(), self.devices.clone());
        let mut this = self;
        this.devices.clear();
        std::mem::forget(std::mem::take(&mut *locked(&this.kept)));
        locked(&this.streams).clear();
        parts
    }
}

impl Drop for Lab {
    /// Waits for all work, then gives everything back; if the work does not end, leaves everything behind (H5).
    fn drop(&mut self) {
        let deadline = Instant::now() + self.patience;
        let streams = std::mem::take(&mut *locked(&self.streams));
        let ended = streams.iter().all(|&stream| {
            // A fault of earlier work comes once (H33); a lost device has no work left to wait for (H20).
            let wait = || self.wait_host(stream, Until::Now, Some(deadline), WaitMode::Auto);
            let waited = wait().or_else(|_| wait());
            !matches!(waited, Ok(Waited::TimedOut))
        });
        let kept = std::mem::take(&mut *locked(&self.kept));
        if !ended {
            std::mem::forget((kept, self.devices.clone(), self.driver.clone()));
            return;
        }
        for stream in streams {
            // SAFETY: H1, the lab created it, and it is used no more.
            let _cleanup = unsafe { self.device(stream.device).destroy_stream(stream.id) };
        }
        kept.give_back(&self.devices);
    }
}
