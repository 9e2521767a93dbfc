//! Order and time: marks, waits, stamps.

use super::Port;
use crate::error::{Error, Result};
use crate::fork;
use crate::graph::Recording;
use crate::interrupt;
use crate::lane::{Lane, LaneRef};
use crate::local;
use anyaccel_engine::graph::Point;
use anyaccel_hal::{FaultKind, HostFn, HostStatus, Mark, Stamp, Until, WaitMode, Waited};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

/// A recorded point of a lane, with its time if it was asked for.
pub(crate) struct Recorded {
    pub(crate) port: Arc<Port>,
    pub(crate) lane: LaneRef,
    pub(crate) mark: u64,
    /// The point of a capture that it is instead of a mark.
    pub(crate) captured: Option<(Weak<Recording>, Point)>,
    stamp: Option<Stamp>,
    epoch: u64,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(stamp) = self.stamp
            && self.epoch == fork::epoch()
        {
            if local::in_host_fn() {
                self.port.retire_stamp(stamp);
            } else {
                // SAFETY: H1: the stamp is this value's own, dropped once.
                unsafe { self.port.hal().drop_stamp(stamp) };
            }
        }
    }
}

impl Port {
    /// Marks a point of the lane; `call` names who asks.
    #[inline]
    pub(crate) fn mark(&self, call: &'static str, lane: &Lane) -> Result<u64> {
        // SAFETY: H1: a borrowed lane is a live stream.
        match unsafe { self.hal().mark(lane.raw) } {
            Ok(Mark::At(mark)) => Ok(mark),
            Ok(Mark::Captured(_)) => Err(Error::Unsupported { what: call, device: self.device }),
            Err(fault) => Err(self.error(call, fault)),
        }
    }

    /// Makes a stream that somebody else made wait for what is enqueued on a lane so far.
    ///
    /// # Safety
    /// `native` is a stream of this device, and lives until this returns.
    pub(crate) unsafe fn external_wait(&self, call: &'static str, lane: &Lane, native: u64) -> Result<()> {
        let mark = self.mark(call, lane)?;
        // SAFETY: by this function's contract it lives until it is given back below.
        let theirs = unsafe { self.hal().import_stream(native) }.map_err(|fault| self.error(call, fault))?;
        // SAFETY: H1: both are live, and the mark came from that lane.
        let waits = unsafe { self.hal().wait(theirs, lane.raw, Mark::At(mark)) };
        // SAFETY: H1: made above, given back once. It has nothing of ours but the wait, and no marks.
        let _left = unsafe { self.hal().destroy_stream(theirs) };
        waits.map_err(|fault| self.error(call, fault))
    }

    /// Records a point, with the device's time if `timing`.
    #[inline]
    pub(crate) fn record(self: &Arc<Self>, lane: &LaneRef, timing: bool) -> Result<Arc<Recorded>> {
        let call = "Event.record";
        if timing || lane.is_capturing() {
            return self.record_more(call, lane, timing);
        }
        let mark = self.mark(call, lane)?;
        // Made where it will stay: it is as long as a cache line and more, and this is called for each event.
        Ok(Arc::new(Recorded {
            port: Arc::clone(self),
            lane: lane.clone(),
            mark,
            captured: None,
            stamp: None,
            epoch: fork::epoch(),
        }))
    }

    /// The same with a stamp, or inside a capture.
    fn record_more(self: &Arc<Self>, call: &'static str, lane: &LaneRef, timing: bool) -> Result<Arc<Recorded>> {
        let mut recorded = Recorded {
            port: Arc::clone(self),
            lane: lane.clone(),
            mark: 0,
            captured: None,
            stamp: None,
            epoch: fork::epoch(),
        };
        if let Some(recording) = lane.recording() {
            recorded.captured = Some((Arc::downgrade(&recording), recording.point(lane)?));
            return Ok(Arc::new(recorded));
        }
        if timing {
            // The stamp comes first, so that an ended mark means a known time (H6, H17).
            // SAFETY: H1: a borrowed lane is a live stream.
            let stamp = unsafe { self.hal().stamp(lane.raw) }.map_err(|fault| self.error(call, fault))?;
            recorded.stamp = Some(stamp);
        }
        recorded.mark = self.mark(call, lane)?;
        Ok(Arc::new(recorded))
    }

    /// Nanoseconds between two recorded points of this device.
    pub(crate) fn elapsed_ns(&self, from: &Recorded, to: &Recorded) -> Result<i64> {
        let (Some(a), Some(b)) = (from.stamp, to.stamp) else { return Err(Error::EventTimingDisabled) };
        // SAFETY: H1: the stamps belong to the borrowed records, of this device by the caller's check.
        unsafe { self.hal().elapsed_ns(a, b) }.map_err(|fault| match fault.kind {
            FaultKind::NotReady => Error::EventNotCompleted,
            _ => self.error("Event.elapsed_time", fault),
        })
    }

    /// Whether a mark has ended.
    #[inline]
    pub(crate) fn ended(&self, call: &'static str, lane: &Lane, mark: u64) -> Result<bool> {
        // SAFETY: H1: a borrowed lane is a live stream.
        match unsafe { self.hal().completed(lane.raw) } {
            Ok(completed) => Ok(completed >= mark),
            Err(fault) => Err(self.error(call, fault)),
        }
    }

    /// Waits on this thread. False if the deadline came first.
    pub(crate) fn wait_host(
        &self,
        call: &'static str,
        lane: &Lane,
        mut until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<bool> {
        let interrupted = || Error::Interrupted { call };
        interrupt::in_slices(deadline, interrupted, |slice| {
            let ended = self.wait_through(call, lane, until, slice, mode)?;
            if !ended && slice != deadline && until == Until::Now {
                // What is enqueued meanwhile is not waited for.
                until = Until::Mark(self.mark(call, lane)?);
            }
            Ok(ended)
        })
    }

    /// The same for a wait that is not given up.
    pub(super) fn wait_through(
        &self,
        call: &'static str,
        lane: &Lane,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<bool> {
        // SAFETY: H1: a borrowed lane is a live stream, and its marks come from `mark` above.
        match unsafe { self.hal().wait_host(lane.raw, until, deadline, mode) } {
            Ok(waited) => Ok(waited == Waited::Ended),
            Err(fault) => Err(self.error(call, fault)),
        }
    }

    /// Makes `lane`, of this device, wait for a mark of a lane of any device of the runtime.
    #[inline]
    pub(crate) fn wait(&self, lane: &Lane, of_port: &Arc<Port>, of: &LaneRef, mark: u64) -> Result<()> {
        let call = "Event.wait";
        if lane.raw == of.raw {
            return Ok(());
        }
        // SAFETY: H1: both lanes are borrowed, hence live; the mark came from `of`.
        match unsafe { self.hal().wait(lane.raw, of.raw, Mark::At(mark)) } {
            Ok(()) => Ok(()),
            Err(fault) if fault.kind == FaultKind::Unsupported => self.wait_parked(lane, of_port, of, mark),
            Err(fault) => Err(self.error(call, fault)),
        }
    }

    /// The wait for devices that can't wait for one another: a thread waits for the mark, and a host function in
    /// `lane` waits for that thread. The function itself calls no driver (H13).
    fn wait_parked(&self, lane: &Lane, of_port: &Arc<Port>, of: &LaneRef, mark: u64) -> Result<()> {
        let call = "Event.wait";
        if of_port.ended(call, of, mark)? {
            return Ok(());
        }
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let opener = Arc::clone(&gate);
        let (of_port, of) = (Arc::clone(of_port), of.clone());
        std::thread::Builder::new()
            .name("anyaccel-wait".into())
            .spawn(move || {
                // A lost device ends all marks (H20): whatever the answer, the wait is over.
                let _over = of_port.wait_host(call, &of, Until::Mark(mark), None, WaitMode::Block);
                *opener.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                opener.1.notify_all();
            })
            .map_err(|cause| Error::Argument {
                argument: "wait across devices",
                reason: format!("no thread could be started: {cause}"),
            })?;
        self.host_call(
            call,
            lane,
            HostFn::new(move |status| {
                if status == HostStatus::Run {
                    let open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
                    drop(gate.1.wait_while(open, |open| !*open));
                }
            }),
        )
    }

    /// Enqueues a host function.
    pub(crate) fn host_call(&self, call: &'static str, lane: &Lane, function: HostFn) -> Result<()> {
        // SAFETY: H1: a borrowed lane is a live stream. H13: HostFn::new contains panics, and the face refuses calls
        // from inside host functions.
        unsafe { self.hal().host_call(lane.raw, function) }.map_err(|fault| self.error(call, fault))
    }

    /// The vendor's stream.
    pub(crate) fn native_stream(&self, lane: &Lane) -> u64 {
        // SAFETY: H1: a borrowed lane is a live stream.
        unsafe { self.hal().native_stream(lane.raw) }
    }
}
