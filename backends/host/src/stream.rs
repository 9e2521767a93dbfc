//! A stream: a mailbox of operations, run by one thread at a time.
//!
//! # Protocol
//!
//! Who enqueues appends to the *inbox*, under the lock of the mail. Who runs the stream holds its *token* and takes
//! operations from the *outbox*, which is filled by exchanging it with the inbox. The state says where the token is:
//!
//! | state | the token | next |
//! |---|---|---|
//! | Idle | nobody's; there may be work that was not submitted (H11) | submit -> Ready; a waiter -> Running |
//! | Ready | nobody's; an entry is listed with the crew, or about to be | a worker, a callback thread or a waiter -> Running |
//! | Running | that thread's | out of work -> Idle; not its kind of work, or its turn is over -> Ready; a wait -> Blocked |
//! | Blocked | nobody's, until what it waits for unblocks it, once | -> Ready |
//!
//! - State, inbox, marks and waiters change under the lock. The outbox belongs to the token's holder; as the token is
//!   taken and given up under the lock, each holder sees what the one before did.
//! - `listed` says that an entry of this stream is in a queue of the crew. There is at most one, and it may be stale: who
//!   finds it takes the token only if the stream is Ready. So a stream that is run by its waiters over and over costs
//!   one entry and one wake-up.
//! - A mark ends when its operation is reached: `ended` rises, then `waiting` is read. Who waits for a mark does the
//!   opposite under the lock: it writes `waiting`, then reads `ended`. A fence on both sides makes sure that one of them
//!   sees the other, so no wake-up is lost and marks nobody waits for take no lock.
//! - A stream becomes Blocked *before* it is registered as a waiter, and is unblocked by whoever takes it off the list:
//!   the one that ends the mark, or itself if the mark had ended before it was registered.
//! - No lock is held while another is taken, while an operation runs or while user code is called or dropped.

use crate::crew::Crew;
use crate::op::{Class, Op};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Cell, Guard, Mutex, Ordering, fence};
use crate::wait::{Waiter, Waiting};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Where the token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    Ready,
    Running,
    Blocked,
}

/// What is under a stream's lock.
pub(crate) struct Mail {
    pub(crate) inbox: VecDeque<Op>,
    pub(crate) state: State,
    pub(crate) listed: bool,
    /// The class of the first operation that the last holder of the token left in the outbox.
    pub(crate) held: Option<Class>,
    /// The last mark given out.
    marks: u64,
    /// Work was enqueued since.
    since: bool,
    pub(crate) waiting: Waiting,
}

impl Mail {
    /// The class of the next operation. Not while Running: then the outbox is the holder's.
    pub(crate) fn head(&self) -> Option<Class> {
        self.held.or_else(|| self.inbox.front().map(Op::class))
    }

    /// Appends work, which the next mark will be behind.
    fn append(&mut self, op: Op) {
        self.since = true;
        self.inbox.push_back(op);
    }

    /// Appends a new mark.
    fn append_mark(&mut self) -> u64 {
        self.marks += 1;
        self.since = false;
        self.inbox.push_back(Op::Mark(self.marks));
        self.marks
    }

    /// Nothing is enqueued and nothing runs: every mark has ended.
    fn at_rest(&self) -> bool {
        self.state == State::Idle && self.head().is_none()
    }
}

/// A stream of a device.
pub(crate) struct Stream {
    ended: AtomicU64,
    /// How many wait for marks: a hint read without the lock.
    waiting: AtomicUsize,
    /// Whether there is work that was not submitted: a hint for who enqueued it.
    unsent: AtomicBool,
    mail: Mutex<Mail>,
    outbox: Cell<VecDeque<Op>>,
    level: usize,
    crew: Arc<Crew>,
}

// SAFETY: the outbox is used by the token's holder only, and the token passes from thread to thread under the lock.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Stream {
    /// An idle stream. `level` counts from 0, the least urgent.
    pub(crate) fn new(crew: Arc<Crew>, level: usize) -> Self {
        Self {
            ended: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            unsent: AtomicBool::new(false),
            mail: Mutex::new(Mail {
                inbox: VecDeque::new(),
                state: State::Idle,
                listed: false,
                held: None,
                marks: 0,
                since: false,
                waiting: Waiting::new(),
            }),
            outbox: Cell::new(VecDeque::new()),
            level,
            crew,
        }
    }

    pub(crate) fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }

    pub(crate) fn level(&self) -> usize {
        self.level
    }

    /// The highest mark that has ended.
    #[inline]
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Nothing is enqueued and nothing runs.
    pub(crate) fn at_rest(&self) -> bool {
        self.mail.lock().at_rest()
    }

    // Enqueueing

    /// Appends an operation, without submitting it.
    #[inline]
    pub(crate) fn push(&self, op: Op) {
        let mut mail = self.mail.lock();
        mail.append(op);
        if mail.state == State::Idle {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    /// Appends an operation and submits what there is.
    pub(crate) fn push_and_submit(self: &Arc<Self>, op: Op) {
        let mut mail = self.mail.lock();
        mail.append(op);
        let entry = self.submit_locked(&mut mail);
        drop(mail);
        self.list(entry);
    }

    /// Whether all that was enqueued has ended: at rest, or behind a mark that has ended and nothing since, where who ran that
    /// may not have put the token back yet.
    fn all_ended(&self, mail: &Mail) -> bool {
        mail.at_rest() || (!mail.since && self.ended.load(Ordering::Acquire) == mail.marks)
    }

    /// A new mark, submitted. If all before it has ended, it has at once.
    pub(crate) fn mark(self: &Arc<Self>) -> u64 {
        let mut mail = self.mail.lock();
        if self.all_ended(&mail) {
            mail.marks += 1;
            mail.since = false;
            // Nobody can wait for a later mark, and every earlier one has ended: no other thread writes this.
            self.ended.store(mail.marks, Ordering::Release);
            return mail.marks;
        }
        let mark = mail.append_mark();
        let entry = self.submit_locked(&mut mail);
        drop(mail);
        self.list(entry);
        mark
    }

    /// A mark behind everything enqueued, not submitted; `None` if everything has ended.
    pub(crate) fn mark_unless_at_rest(&self) -> Option<u64> {
        let mut mail = self.mail.lock();
        if self.all_ended(&mail) {
            return None;
        }
        let mark = mail.append_mark();
        if mail.state == State::Idle {
            self.unsent.store(true, Ordering::Relaxed);
        }
        Some(mark)
    }

    /// Runs `now` and returns true if the stream is at rest, else appends `later`.
    pub(crate) fn now_or_push(&self, now: impl FnOnce(), later: Op) {
        let mut mail = self.mail.lock();
        if mail.at_rest() {
            drop(mail);
            now();
            return;
        }
        mail.append(later);
        if mail.state == State::Idle {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    /// Submits what was enqueued (H11). Costs one load if there is nothing.
    #[inline]
    pub(crate) fn submit(self: &Arc<Self>) {
        if self.unsent.load(Ordering::Relaxed) {
            let mut mail = self.mail.lock();
            let entry = self.submit_locked(&mut mail);
            drop(mail);
            self.list(entry);
        }
    }

    /// Idle -> Ready. Says in which queue an entry has to be listed, once unlocked.
    pub(crate) fn submit_locked(&self, mail: &mut Mail) -> Option<Class> {
        if mail.state == State::Idle { self.make_ready(mail) } else { None }
    }

    /// -> Ready, or Idle if there is no work.
    pub(crate) fn make_ready(&self, mail: &mut Mail) -> Option<Class> {
        self.sent();
        let Some(class) = mail.head() else {
            mail.state = State::Idle;
            return None;
        };
        mail.state = State::Ready;
        let unlisted = !std::mem::replace(&mut mail.listed, true);
        unlisted.then_some(class)
    }

    pub(crate) fn list(self: &Arc<Self>, entry: Option<Class>) {
        if let Some(class) = entry
            && !self.crew.list(self, class)
        {
            // The crew is closed: nobody will take the entry.
            self.cancel();
        }
    }

    // Waiting

    /// Registers who waits for a mark; false if it has ended, then nothing was registered.
    pub(crate) fn register(&self, mark: u64, waiter: Waiter) -> bool {
        let mut mail = self.mail.lock();
        if self.crew.closed() {
            // It will not be woken, and the list was emptied or will be.
            return true;
        }
        let place = mail.waiting.add(mark, waiter);
        self.note_waiting(&mail);
        fence(Ordering::SeqCst);
        if self.ended.load(Ordering::Acquire) < mark {
            return true;
        }
        // Still under the lock, so nobody else took it off.
        let ours = mail.waiting.remove(place);
        self.note_waiting(&mail);
        drop(mail);
        drop(ours);
        false
    }

    /// Takes off a waiter that gave up.
    pub(crate) fn unregister(&self, is_it: impl Fn(&Waiter) -> bool) {
        let mut mail = self.mail.lock();
        let gone = mail.waiting.take_one(is_it);
        self.note_waiting(&mail);
        drop(mail);
        drop(gone);
    }

    /// Whether somebody may wait for a mark: a hint, exact for who fences on both sides.
    pub(crate) fn awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// To be called when the list of waiters has changed.
    pub(crate) fn note_waiting(&self, mail: &Mail) {
        self.waiting.store(mail.waiting.len(), Ordering::Relaxed);
    }

    /// Blocked -> Ready, or Idle. Called once, by who took this stream off the list it waited on. The entry is to be
    /// listed, or kept in hand.
    #[must_use]
    pub(crate) fn unblock(&self) -> Option<Class> {
        let mut mail = self.mail.lock();
        // Else it was cancelled.
        if mail.state == State::Blocked { self.make_ready(&mut mail) } else { None }
    }

    // For who runs it

    #[inline]
    pub(crate) fn mail(&self) -> Guard<'_, Mail> {
        self.mail.lock()
    }

    #[inline]
    pub(crate) fn outbox(&self) -> &Cell<VecDeque<Op>> {
        &self.outbox
    }

    /// What was enqueued is submitted now.
    pub(crate) fn sent(&self) {
        self.unsent.store(false, Ordering::Relaxed);
    }

    /// The token's holder reached a mark.
    pub(crate) fn set_ended(&self, mark: u64) {
        self.ended.store(mark, Ordering::Release);
    }
}
