//! Streams and their marks.
//!
//! # Protocol
//!
//! A stream is an immediate command list. Lists are not thread-safe, so every command is appended under the stream's lock
//! ([`Stream::list`]), which also guards all else that belongs to the order of the queue.
//!
//! A mark is a number; what realises it is an event that the list signals. The ring holds the events of marks that may not have
//! ended, the oldest first. Whoever looks at the oldest one and finds it signalled takes it out and raises `ended`. An event is
//! reset, and used again, only when nobody has another count of it: a host thread that waits, or a list with a wait for it that
//! may not have begun. Such a list keeps its counts in `waits`, each with the number of the list's own next mark, and lets go of
//! them when that mark has ended. A list that waits often and is never marked marks itself now and then; those marks have numbers
//! that nobody is told.
//!
//! A mark behind which nothing was enqueued since the last one ends with that one, and needs no event of its own. A stream whose
//! native name was given away always needs one.

use crate::context::Context;
use crate::conv::Failed;
use crate::host_call::Functions;
use crate::platform::Event;
use crate::sys::*;
use anyaccel_hal::{Fault, Mark};
use anyaccel_kit::{Guard, Mutex};
use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events that a stream keeps for later marks.
const KEPT: usize = 256;
/// Waits after which a list marks itself.
const UNMARKED: usize = 64;

#[derive(Debug)]
pub(crate) struct Ring {
    /// The number of the next mark.
    next: u64,
    /// The events of the marks before, without gaps.
    entries: VecDeque<Arc<Event>>,
    free: Vec<Arc<Event>>,
    /// How many entries there are before a mark that needs an event looks for ended ones: a stream that is held up is not
    /// asked again at each mark.
    look_at: usize,
    /// Whether something was enqueued since the last mark.
    dirty: bool,
    /// Others may enqueue on it.
    shared: bool,
    /// Events that the list waits for, and the mark that ends after the wait.
    waits: VecDeque<(u64, Arc<Event>)>,
    /// Waits since the last mark.
    unmarked: usize,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    raw: ZeCommandList,
    /// The driver's own handle of the list, for its extensions.
    pub(crate) native: ZeCommandList,
    pub(crate) functions: Arc<Functions>,
    /// Somebody else made it and destroys it.
    borrowed: bool,
    /// Whether the list keeps the order itself.
    in_order: bool,
    ended: AtomicU64,
    /// The highest mark that somebody was told.
    given: AtomicU64,
    ring: Mutex<Ring>,
}

/// The list of a stream, for whoever appends to it.
pub(crate) struct List<'a> {
    stream: &'a Stream,
    ring: Guard<'a, Ring>,
}

impl List<'_> {
    /// Appends with `act`.
    #[inline]
    pub(crate) fn append(&mut self, act: impl FnOnce(&Ze, ZeCommandList) -> Result<(), Failed>) -> Result<(), Fault> {
        let Stream { context, raw, in_order, .. } = self.stream;
        self.ring.dirty = true;
        let mut appended = act(context.ze, *raw);
        if !in_order && appended.is_ok() {
            // SAFETY: the list lives (H1), and this thread has its lock.
            appended = unsafe { context.ze.zeCommandListAppendBarrier(*raw, ZeEvent::NULL, 0, ptr::null_mut()) };
        }
        context.check(appended)
    }

    /// Signals an event at this point.
    pub(crate) fn signal(&mut self, event: &Event) -> Result<(), Fault> {
        // SAFETY: list and event live (H1), and this thread has the list's lock.
        self.append(|ze, list| unsafe { ze.zeCommandListAppendSignalEvent(list, event.raw) })
    }

    /// Waits for an event, and keeps it until the wait has ended.
    pub(crate) fn wait(&mut self, event: &Arc<Event>) -> Result<(), Fault> {
        let mut raw = event.raw;
        // SAFETY: list and event live (H1), and this thread has the list's lock.
        self.append(|ze, list| unsafe { ze.zeCommandListAppendWaitOnEvents(list, 1, &raw mut raw) })?;
        let next = self.ring.next;
        self.ring.waits.push_back((next, Arc::clone(event)));
        self.ring.unmarked += 1;
        if self.ring.unmarked >= UNMARKED {
            // Without it the counts are kept a little longer.
            let _marked = self.stream.mark_in(&mut self.ring);
        }
        Ok(())
    }
}

impl Stream {
    pub(crate) fn create(context: &Arc<Context>, priority: i32) -> Result<Self, Fault> {
        let mut raw = ZeCommandList::NULL;
        let mut desc = ZeCommandQueueDesc::new();
        desc.ordinal = context.group;
        desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        desc.flags = if context.in_order { ZE_COMMAND_QUEUE_FLAG_IN_ORDER } else { 0 };
        desc.priority = match priority {
            0 => ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
            1.. => ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
            _ => ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
        };
        let (ze, native) = (context.ze, context.platform.context);
        let mut make = |desc: &ZeCommandQueueDesc| {
            // SAFETY: a valid place for the answer; context and device live.
            unsafe { ze.zeCommandListCreateImmediate(native, context.device, ptr::from_ref(desc), &raw mut raw) }
        };
        let mut in_order = context.in_order;
        let mut made = make(&desc);
        if in_order && matches!(made, Err(Failed { code: ZE_RESULT_ERROR_INVALID_ENUMERATION, .. })) {
            // A layer between that is older than the driver.
            in_order = false;
            desc.flags = 0;
            made = make(&desc);
        }
        context.check(made)?;
        Ok(Self::of(context, raw, false, in_order))
    }

    /// A stream that somebody else made, who knows whether it keeps the order.
    pub(crate) fn borrow(context: &Arc<Context>, raw: ZeCommandList) -> Self {
        Self::of(context, raw, true, false)
    }

    fn of(context: &Arc<Context>, raw: ZeCommandList, borrowed: bool, in_order: bool) -> Self {
        Self {
            context: Arc::clone(context),
            raw,
            native: context.ze.native_list(raw),
            functions: Functions::new(Arc::clone(context)),
            borrowed,
            in_order,
            ended: AtomicU64::new(0),
            given: AtomicU64::new(0),
            ring: Mutex::new(Ring {
                next: 1,
                entries: VecDeque::new(),
                free: Vec::new(),
                look_at: 0,
                dirty: false,
                shared: borrowed,
                waits: VecDeque::new(),
                unmarked: 0,
            }),
        }
    }

    /// The list, to append to. Nobody else appends meanwhile.
    #[inline]
    pub(crate) fn list(&self) -> Result<List<'_>, Fault> {
        self.context.alive()?;
        Ok(List { stream: self, ring: self.ring.lock() })
    }

    /// What was appended so far was recorded, not enqueued.
    pub(crate) fn recorded(&self) {
        self.ring.lock().dirty = false;
    }

    /// Others learn its native name.
    pub(crate) fn share(&self) -> ZeCommandList {
        self.ring.lock().shared = true;
        self.raw
    }

    /// The highest mark given out.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// Takes ended marks out of the ring.
    fn reap(&self, ring: &mut Ring) -> Result<(), Failed> {
        let mut ended = self.ended.load(Ordering::Acquire);
        while let Some(front) = ring.entries.front() {
            if !front.ended()? {
                break;
            }
            ended = ring.next - ring.entries.len() as u64;
            self.ended.store(ended, Ordering::Release);
            if let Some(mut event) = ring.entries.pop_front()
                && ring.free.len() < KEPT
                && let Some(own) = Arc::get_mut(&mut event)
                && own.renew().is_ok()
            {
                ring.free.push(event);
            }
        }
        while ring.waits.front().is_some_and(|&(mark, _)| mark <= ended) {
            ring.waits.pop_front();
        }
        Ok(())
    }

    /// Marks this point, and says by which number.
    fn mark_in(&self, ring: &mut Ring) -> Result<u64, Fault> {
        let mark = ring.next;
        if !ring.dirty && !ring.shared {
            match ring.entries.back().cloned() {
                Some(last) => ring.entries.push_back(last),
                None => self.ended.store(mark, Ordering::Release),
            }
            ring.next += 1;
            return Ok(mark);
        }
        if ring.free.is_empty() && ring.entries.len() >= ring.look_at {
            let reaped = self.reap(ring);
            self.context.check(reaped)?;
            let left = ring.entries.len();
            ring.look_at = if ring.free.is_empty() { left + left / 4 + 4 } else { 0 };
        }
        let event = match ring.free.pop() {
            Some(event) => event,
            None => Arc::new(self.context.check_shared(Event::new(&self.context.platform))?),
        };
        let ze = self.context.ze;
        // SAFETY: list and event live (H1), and this thread has the list's lock.
        self.context.check(unsafe { ze.zeCommandListAppendSignalEvent(self.raw, event.raw) })?;
        ring.next += 1;
        ring.entries.push_back(event);
        ring.dirty = false;
        ring.unmarked = 0;
        Ok(mark)
    }

    /// Marks this point.
    #[inline]
    pub(crate) fn mark(&self) -> Result<Mark, Fault> {
        self.context.alive()?;
        let mut ring = self.ring.lock();
        let mark = self.mark_in(&mut ring)?;
        self.given.store(mark, Ordering::Release);
        Ok(Mark::At(mark))
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

    /// Makes `stream` wait for a mark of this one.
    pub(crate) fn hold_up(&self, stream: &Stream, mark: u64) -> Result<(), Fault> {
        match self.event_of(mark) {
            // The count that it keeps is what keeps the event from being used again.
            Some(event) => stream.list()?.wait(&event),
            None => stream.context.alive(),
        }
    }

    /// The highest ended mark.
    pub(crate) fn completed(&self) -> Result<u64, Failed> {
        let mut ring = self.ring.lock();
        self.reap(&mut ring)?;
        drop(ring);
        // A mark of its own may be higher than what anybody was told.
        Ok(self.ended.load(Ordering::Acquire).min(self.given()))
    }

    /// Whether all that was enqueued has ended, as far as one look tells.
    pub(crate) fn idle(&self) -> bool {
        if self.mark().is_err() {
            return false;
        }
        let mut ring = self.ring.lock();
        self.reap(&mut ring).is_ok() && ring.entries.is_empty()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.is_lost() || !self.idle() {
            if !self.borrowed {
                self.context.platform.leave_busy();
            }
            // What the list may still wait for is not used again.
            std::mem::forget(std::mem::take(&mut self.ring.lock().waits));
            return;
        }
        if !self.borrowed {
            // SAFETY: made by `create`, used no more, and all its commands have ended.
            let _destroyed = unsafe { self.context.ze.zeCommandListDestroy(self.raw) };
        }
    }
}
