//! Streams: in-order queues, their marks, and who waits for them.
//!
//! # Protocol
//!
//! - `order` is held by who enqueues. What takes several commands (a host function) is one operation by that, and marks
//!   get their numbers in the order of their commands (H7). Nothing that waits for the device runs under it. A mark
//!   behind nothing new shares the marker of the one before, and has ended with it: so a stream without work is
//!   seen to be idle at once. Who holds the native queue may enqueue unseen, so then every mark gets a marker.
//! - `marks` holds the markers that were not seen to have ended, oldest first, and the first fault of failed work (H33).
//!   It is taken for a moment only, inside `order` or alone, so asking never waits for who enqueues (H9).
//! - `completed` only rises, under `marks`.
//! - A thread that waits with a deadline sleeps on a [`Watch`] that its marker's callback wakes. The callback holds a
//!   reference of its own, so neither needs the stream.

use crate::conv;
use crate::object::{Event, Queue};
use crate::part::Part;
use crate::sys::{Raw, Status};
use anyaccel_hal::{Fault, Waited};
use anyaccel_kit::{Condvar, Guard, Mutex};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// How many markers are left lying before a new one looks whether the oldest have ended.
const LAID_UP: usize = 32;

/// A stream of a device.
pub(crate) struct Stream {
    pub(crate) part: Arc<Part>,
    pub(crate) queue: Queue,
    order: Mutex<Order>,
    marks: Mutex<Marks>,
    completed: AtomicU64,
    /// Whether somebody was told the native queue.
    shown: AtomicBool,
}

/// What who enqueues holds.
pub(crate) struct Order {
    last: u64,
    /// Whether something was enqueued behind the last marker.
    fresh: bool,
}

#[derive(Default)]
struct Marks {
    pending: VecDeque<Pending>,
    fault: Option<Fault>,
}

struct Pending {
    number: u64,
    marker: Event,
    watch: Option<Arc<Watch>>,
}

/// Wakes threads when a marker has ended.
#[derive(Default)]
struct Watch {
    ended: Mutex<bool>,
    changed: Condvar,
}

unsafe extern "C" fn wake(_event: Raw, _status: Status, data: *mut c_void) {
    // SAFETY: C4: `watch` leaked one reference for this call.
    let watch = unsafe { Arc::from_raw(data.cast::<Watch>().cast_const()) };
    *watch.ended.lock() = true;
    watch.changed.notify_all();
}

impl Watch {
    fn wait(&self, deadline: Instant) -> Waited {
        let mut ended = self.ended.lock();
        while !*ended {
            if Instant::now() >= deadline {
                return Waited::TimedOut;
            }
            ended = self.changed.wait(ended, Some(deadline));
        }
        Waited::Ended
    }
}

impl Stream {
    pub(crate) fn new(part: Arc<Part>, queue: Queue) -> Self {
        let order = Mutex::new(Order { last: 0, fresh: false });
        let (completed, shown) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { part, queue, order, marks: Mutex::default(), completed, shown }
    }

    /// The right to enqueue something.
    #[inline]
    pub(crate) fn enqueue(&self) -> Guard<'_, Order> {
        let mut order = self.order.lock();
        order.fresh = true;
        order
    }

    /// The queue, for others to enqueue on.
    pub(crate) fn show(&self) -> Raw {
        self.shown.store(true, Ordering::Release);
        self.queue.raw()
    }

    /// Marks this point and submits what is before it.
    pub(crate) fn mark(&self) -> Result<u64, Fault> {
        let mut order = self.order.lock();
        let number = order.last + 1;
        if order.fresh || self.shown.load(Ordering::Acquire) {
            let marker = self.queue.marker()?;
            // A mark is given out only for what was submitted (H11). The marker of a failed one does no harm.
            self.queue.flush()?;
            order.fresh = false;
            order.last = number;
            let mut marks = self.marks.lock();
            marks.pending.push_back(Pending { number, marker, watch: None });
            let ended = if marks.pending.len() > LAID_UP { self.advance(&mut marks) } else { Vec::new() };
            drop(marks);
            drop(order);
            drop(ended);
            return Ok(number);
        }
        order.last = number;
        let mut marks = self.marks.lock();
        match marks.pending.back_mut() {
            Some(newest) => newest.number = number,
            None => self.completed.store(number, Ordering::Release),
        }
        Ok(number)
    }

    /// Notes which markers have ended. They are returned so that they are released without the lock.
    fn advance(&self, marks: &mut Marks) -> Vec<Pending> {
        let mut ended = Vec::new();
        while let Some(oldest) = marks.pending.front() {
            let status = oldest.marker.status();
            if status > 0 {
                break;
            }
            if status < 0 && marks.fault.is_none() {
                marks.fault = Some(conv::fault("event", status));
            }
            self.completed.store(oldest.number, Ordering::Release);
            ended.extend(marks.pending.pop_front());
        }
        ended
    }

    /// The highest mark that has ended.
    pub(crate) fn completed(&self) -> u64 {
        let mut marks = self.marks.lock();
        let ended = self.advance(&mut marks);
        drop(marks);
        drop(ended);
        self.completed.load(Ordering::Acquire)
    }

    /// The marker of a mark, or of the next one that has not ended; `None` if the mark has ended.
    pub(crate) fn marker(&self, mark: u64) -> Option<Event> {
        if self.completed.load(Ordering::Acquire) >= mark {
            return None;
        }
        let marks = self.marks.lock();
        let at = marks.pending.partition_point(|pending| pending.number < mark);
        marks.pending.get(at).map(|pending| pending.marker.clone())
    }

    /// Waits on this thread until a mark has ended. The fault of work that failed is told then, once.
    pub(crate) fn wait_host(&self, mark: u64, deadline: Option<Instant>) -> Result<Waited, Fault> {
        if self.completed() < mark {
            match deadline {
                None => {
                    if let Some(marker) = self.marker(mark) {
                        marker.wait()?;
                    }
                }
                Some(deadline) => {
                    if let Some(watch) = self.watch(mark)?
                        && watch.wait(deadline) == Waited::TimedOut
                        && self.completed() < mark
                    {
                        return Ok(Waited::TimedOut);
                    }
                }
            }
            self.settle(mark);
        }
        match self.marks.lock().fault.take() {
            Some(fault) => Err(fault),
            None => Ok(Waited::Ended),
        }
    }

    /// Notes a mark that is known to have ended, whatever the status of its marker says yet.
    fn settle(&self, mark: u64) {
        let mut marks = self.marks.lock();
        let mut ended = self.advance(&mut marks);
        while marks.pending.front().is_some_and(|oldest| oldest.number <= mark) {
            ended.extend(marks.pending.pop_front());
        }
        self.completed.fetch_max(mark, Ordering::AcqRel);
        drop(marks);
        drop(ended);
    }

    fn watch(&self, mark: u64) -> Result<Option<Arc<Watch>>, Fault> {
        let mut marks = self.marks.lock();
        let at = marks.pending.partition_point(|pending| pending.number < mark);
        let Some(pending) = marks.pending.get_mut(at) else { return Ok(None) };
        if let Some(watch) = &pending.watch {
            return Ok(Some(Arc::clone(watch)));
        }
        let watch = Arc::new(Watch::default());
        let (marker, kept) = (pending.marker.clone(), Arc::clone(&watch));
        pending.watch = Some(Arc::clone(&watch));
        drop(marks);
        let data = Arc::into_raw(kept).cast_mut().cast::<c_void>();
        // SAFETY: C4: one reference is leaked for the callback, which wakes and returns.
        match unsafe { marker.call_back(wake, data) } {
            Ok(()) => Ok(Some(watch)),
            Err(fault) => {
                // SAFETY: C4: the callback was not taken, so the reference is ours still.
                drop(unsafe { Arc::from_raw(data.cast::<Watch>().cast_const()) });
                self.forget_watch(mark, &watch);
                Err(fault)
            }
        }
    }

    /// A watch that nobody will wake is of no use to those who come later; those who sleep on it look again.
    fn forget_watch(&self, mark: u64, watch: &Arc<Watch>) {
        let mut marks = self.marks.lock();
        for pending in &mut marks.pending {
            if pending.number >= mark && pending.watch.as_ref().is_some_and(|own| Arc::ptr_eq(own, watch)) {
                pending.watch = None;
            }
        }
    }
}
