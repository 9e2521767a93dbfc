//! Streams and their marks.
//!
//! # Protocol
//!
//! A mark is a number; what realises it is an event, recorded under the lock of the stream's ring, so numbers rise in the
//! order of the queue. The ring holds the events of marks that may not have ended, the oldest first. Whoever looks at the
//! oldest one and finds it ended takes it out and raises `ended`; the event is used again once nobody else waits on it.
//!
//! A mark behind which nothing was enqueued since the last one ends with that one, and needs no event of its own. `dirty`
//! says whether there was something: it is set after the driver took an operation, so whoever clears it and then records an
//! event records it behind that operation. A stream whose native name was given away is always dirty.

use crate::context::Context;
use crate::conv::Failed;
use crate::host_call::Functions;
use crate::sys::*;
use anyaccel_hal::{CaptureId, Fault, Mark};
use anyaccel_kit::{Guard, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Events that a stream keeps for later marks.
const KEPT: usize = 1024;

/// A native event.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<Context>,
    pub(crate) raw: CUevent,
}

impl Event {
    /// The context is current.
    pub(crate) fn new(context: &Arc<Context>, flags: u32) -> Result<Self, Fault> {
        let mut raw = CUevent::NULL;
        // SAFETY: a valid place for the answer.
        context.check(unsafe { context.cuda.cuEventCreate(&raw mut raw, flags) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// One that somebody else made for us to keep.
    pub(crate) fn adopt(context: &Arc<Context>, raw: CUevent) -> Self {
        Self { context: Arc::clone(context), raw }
    }

    /// Whether its last recording has ended. The context is current, captures are relaxed.
    pub(crate) fn ended(&self) -> Result<bool, Failed> {
        // SAFETY: the event lives.
        match unsafe { self.context.cuda.cuEventQuery(self.raw) } {
            Ok(()) => Ok(true),
            Err(Failed { code: CUDA_ERROR_NOT_READY, .. }) => Ok(false),
            Err(failed) => Err(failed),
        }
    }
}

impl Event {
    /// Notes what looking at it came to.
    pub(crate) fn failed(&self, failed: Failed) {
        let _fault = self.context.fault(failed);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: made by `new` or handed over, used no more. Work that it was recorded in goes on.
            let _destroyed = unsafe { self.context.cuda.cuEventDestroy_v2(self.raw) };
        }
    }
}

#[derive(Debug)]
struct Ring {
    /// The number of the next mark.
    next: u64,
    /// The events of the marks before, without gaps.
    entries: VecDeque<Arc<Event>>,
    free: Vec<Arc<Event>>,
    /// How many entries there are before a mark that needs an event looks for ended ones: a stream that is held up is not
    /// asked again at each mark.
    look_at: usize,
}

/// A stream's part in a native capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) id: CaptureId,
    marks: Vec<Arc<Event>>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: CUstream,
    pub(crate) functions: Arc<Functions>,
    /// Somebody else made it and destroys it.
    borrowed: bool,
    dirty: AtomicBool,
    /// Others may enqueue on it.
    shared: AtomicBool,
    ended: AtomicU64,
    given: AtomicU64,
    ring: Mutex<Ring>,
    capturing: AtomicBool,
    pub(crate) capture: Mutex<Option<Captured>>,
}

impl Stream {
    /// The context is current.
    pub(crate) fn create(context: &Arc<Context>, priority: i32) -> Result<Self, Fault> {
        let mut raw = CUstream::NULL;
        let _relaxed = context.relaxed();
        // SAFETY: a valid place for the answer.
        let created =
            unsafe { context.cuda.cuStreamCreateWithPriority(&raw mut raw, CU_STREAM_NON_BLOCKING, priority) };
        context.check(created)?;
        Ok(Self::of(context, raw, false))
    }

    /// A stream that somebody else made.
    pub(crate) fn borrow(context: &Arc<Context>, raw: CUstream) -> Self {
        Self::of(context, raw, true)
    }

    fn of(context: &Arc<Context>, raw: CUstream, borrowed: bool) -> Self {
        Self {
            context: Arc::clone(context),
            raw,
            functions: Functions::new(Arc::clone(context)),
            borrowed,
            dirty: AtomicBool::new(false),
            shared: AtomicBool::new(borrowed),
            ended: AtomicU64::new(0),
            given: AtomicU64::new(0),
            ring: Mutex::new(Ring { next: 1, entries: VecDeque::new(), free: Vec::new(), look_at: 0 }),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
        }
    }

    /// Something was enqueued.
    #[inline]
    pub(crate) fn touch(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Others learn its native name.
    pub(crate) fn share(&self) -> CUstream {
        self.shared.store(true, Ordering::Release);
        self.raw
    }

    /// Whether nothing was enqueued since the last mark. Asked under the ring's lock.
    fn clean(&self) -> bool {
        !self.dirty.swap(false, Ordering::AcqRel) && !self.shared.load(Ordering::Acquire)
    }

    /// The highest mark given out.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// Takes ended marks out of the ring. The context is current.
    fn reap(&self, ring: &mut Guard<'_, Ring>) -> Result<(), Failed> {
        if ring.entries.is_empty() {
            return Ok(());
        }
        let _relaxed = self.context.relaxed();
        while let Some(front) = ring.entries.front() {
            if !front.ended()? {
                break;
            }
            self.ended.store(ring.next - ring.entries.len() as u64, Ordering::Release);
            if let Some(mut event) = ring.entries.pop_front()
                && ring.free.len() < KEPT
                && Arc::get_mut(&mut event).is_some()
            {
                ring.free.push(event);
            }
        }
        Ok(())
    }

    fn fresh(&self) -> Result<Event, Fault> {
        Event::new(&self.context, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC)
    }

    /// Marks this point. The context is current.
    pub(crate) fn mark(&self) -> Result<Mark, Fault> {
        if self.capturing.load(Ordering::Acquire)
            && let Some(captured) = &mut *self.capture.lock()
        {
            return self.mark_captured(captured);
        }
        let mut ring = self.ring.lock();
        if self.clean() {
            let mark = ring.next;
            ring.next += 1;
            match ring.entries.back().cloned() {
                Some(last) => ring.entries.push_back(last),
                None => self.ended.store(mark, Ordering::Release),
            }
            self.given.store(mark, Ordering::Release);
            return Ok(Mark::At(mark));
        }
        if ring.free.is_empty() && ring.entries.len() >= ring.look_at {
            let reaped = self.reap(&mut ring);
            self.context.check(reaped).inspect_err(|_| self.touch())?;
            let left = ring.entries.len();
            ring.look_at = if ring.free.is_empty() { left + left / 4 + 4 } else { 0 };
        }
        let event = match ring.free.pop() {
            Some(event) => event,
            None => Arc::new(self.fresh().inspect_err(|_| self.touch())?),
        };
        // SAFETY: event and stream live (H1).
        if let Err(failed) = unsafe { self.context.cuda.cuEventRecord(event.raw, self.raw) } {
            self.touch();
            return Err(self.context.fault(failed));
        }
        let mark = ring.next;
        ring.next += 1;
        ring.entries.push_back(event);
        self.given.store(mark, Ordering::Release);
        Ok(Mark::At(mark))
    }

    fn mark_captured(&self, captured: &mut Captured) -> Result<Mark, Fault> {
        let event = self.fresh()?;
        // SAFETY: event and stream live (H1).
        self.context.check(unsafe { self.context.cuda.cuEventRecord(event.raw, self.raw) })?;
        captured.marks.push(Arc::new(event));
        Ok(Mark::Captured(captured.marks.len() as u64))
    }

    /// The event of a mark; `None` if it is known to have ended.
    pub(crate) fn event_of(&self, mark: u64) -> Option<Arc<Event>> {
        if self.ended.load(Ordering::Acquire) >= mark {
            return None;
        }
        let ring = self.ring.lock();
        let first = ring.next - ring.entries.len() as u64;
        let at = mark.checked_sub(first)?;
        ring.entries.get(at as usize).cloned()
    }

    /// Makes `stream` wait for a mark of this one. `stream`'s context is current.
    pub(crate) fn hold_up(&self, stream: &Stream, mark: u64) -> Result<(), Fault> {
        if self.ended.load(Ordering::Acquire) >= mark {
            return Ok(());
        }
        let ring = self.ring.lock();
        let first = ring.next - ring.entries.len() as u64;
        let Some(event) = mark.checked_sub(first).and_then(|at| ring.entries.get(at as usize)) else {
            return Ok(());
        };
        // Under the lock: the event stands for this mark until the ring lets go of it.
        // SAFETY: event and stream live (H1).
        let waited = unsafe { stream.context.cuda.cuStreamWaitEvent(stream.raw, event.raw, 0) };
        stream.touch();
        stream.context.check(waited)
    }

    /// The event of a point in a capture that this stream takes part in.
    pub(crate) fn captured_event(&self, point: u64) -> Option<(CaptureId, Arc<Event>)> {
        let capture = self.capture.lock();
        let captured = capture.as_ref()?;
        let event = captured.marks.get(usize::try_from(point).ok()?.checked_sub(1)?)?;
        Some((captured.id, Arc::clone(event)))
    }

    /// Notes that the stream takes part in a capture, or no longer.
    pub(crate) fn set_capture(&self, id: Option<CaptureId>) {
        let mut capture = self.capture.lock();
        self.capturing.store(id.is_some(), Ordering::Release);
        match id {
            Some(id) if capture.as_ref().is_some_and(|captured| captured.id == id) => {}
            id => *capture = id.map(|id| Captured { id, marks: Vec::new() }),
        }
    }

    /// The highest ended mark. The context is current.
    pub(crate) fn completed(&self) -> Result<u64, Failed> {
        let mut ring = self.ring.lock();
        self.reap(&mut ring)?;
        drop(ring);
        Ok(self.ended.load(Ordering::Acquire))
    }

    /// Nobody waits for this stream any more: if one look does not tell that all has ended, what is given back from now on
    /// comes after it. The context is current.
    pub(crate) fn leave(&self) {
        let context = &self.context;
        let left = self.mark().and_then(|_mark| {
            let mut ring = self.ring.lock();
            let looked = self.reap(&mut ring);
            context.check(looked)?;
            Ok(ring.entries.back().cloned())
        });
        match left {
            Ok(None) => {}
            Ok(Some(last)) => {
                context.leave_busy();
                context.returns.after(last);
            }
            // A lost device has let go of everything (H20).
            Err(_) if context.is_lost() => {}
            Err(_) => {
                context.leave_busy();
                context.returns.stick();
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(current) = self.context.enter() else { return };
        if !self.borrowed {
            self.leave();
            // SAFETY: made by `create`, used no more; the driver finishes what is enqueued.
            let _destroyed = unsafe { self.context.cuda.cuStreamDestroy_v2(self.raw) };
        }
        drop(current);
    }
}
