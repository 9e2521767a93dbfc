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
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Cell, Mutex, Ordering, fence};
use crate::wait::{Waiter, Waiting};
use anyaccel_hal::HostStatus;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// How much a thread runs of one stream while others are ready, in operations; 64 KiB count as one more.
const TURN: usize = 64;
/// A queue that became longer than this is given back when it is empty.
const KEPT: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Ready,
    Running,
    Blocked,
}

struct Mail {
    inbox: VecDeque<Op>,
    state: State,
    listed: bool,
    /// The class of the first operation that the last holder of the token left in the outbox.
    held: Option<Class>,
    /// The last mark given out.
    marks: u64,
    waiting: Waiting,
}

impl Mail {
    /// The class of the next operation. Not while Running: then the outbox is the holder's.
    fn head(&self) -> Option<Class> {
        self.held.or_else(|| self.inbox.front().map(Op::class))
    }

    /// Nothing is enqueued and nothing runs: every mark has ended.
    fn at_rest(&self) -> bool {
        self.state == State::Idle && self.head().is_none()
    }
}

/// Who runs a stream, and so what it may run.
#[derive(Clone, Copy)]
pub(crate) enum Runner {
    /// A worker: anything but functions of the user.
    Worker,
    /// A callback thread: anything but long work.
    Callback,
    /// A host thread that waits for this mark: small operations, until then.
    Waiter { mark: u64, deadline: Option<Instant> },
}

impl Runner {
    fn may(self, class: Class) -> bool {
        match class {
            Class::Small => true,
            Class::Work => matches!(self, Self::Worker),
            Class::Call => matches!(self, Self::Callback),
        }
    }
}

/// What the holder of the token does next.
enum Next {
    Run(Op),
    /// Not this runner's kind of work.
    Refused,
    /// The outbox is empty.
    Empty,
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
                waiting: Waiting::new(),
            }),
            outbox: Cell::new(VecDeque::new()),
            level,
            crew,
        }
    }

    pub(crate) fn crew(&self) -> &Crew {
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
        mail.inbox.push_back(op);
        if mail.state == State::Idle {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    /// Appends an operation and submits what there is.
    pub(crate) fn push_and_submit(self: &Arc<Self>, op: Op) {
        let mut mail = self.mail.lock();
        mail.inbox.push_back(op);
        let entry = self.submit_locked(&mut mail);
        drop(mail);
        self.list(entry);
    }

    /// A new mark, submitted. On a stream at rest it has ended at once.
    pub(crate) fn mark(self: &Arc<Self>) -> u64 {
        let mut mail = self.mail.lock();
        mail.marks += 1;
        let mark = mail.marks;
        if mail.at_rest() {
            // Nobody can wait for a later mark, and every earlier one has ended.
            self.ended.store(mark, Ordering::Release);
            return mark;
        }
        mail.inbox.push_back(Op::Mark(mark));
        let entry = self.submit_locked(&mut mail);
        drop(mail);
        self.list(entry);
        mark
    }

    /// A mark behind everything enqueued, not submitted; `None` if everything has ended.
    pub(crate) fn mark_unless_at_rest(&self) -> Option<u64> {
        let mut mail = self.mail.lock();
        if mail.at_rest() {
            return None;
        }
        mail.marks += 1;
        let mark = mail.marks;
        mail.inbox.push_back(Op::Mark(mark));
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
        mail.inbox.push_back(later);
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
    fn submit_locked(&self, mail: &mut Mail) -> Option<Class> {
        if mail.state == State::Idle { self.make_ready(mail) } else { None }
    }

    /// -> Ready, or Idle if there is no work.
    fn make_ready(&self, mail: &mut Mail) -> Option<Class> {
        self.unsent.store(false, Ordering::Relaxed);
        let Some(class) = mail.head() else {
            mail.state = State::Idle;
            return None;
        };
        mail.state = State::Ready;
        let unlisted = !std::mem::replace(&mut mail.listed, true);
        unlisted.then_some(class)
    }

    fn list(self: &Arc<Self>, entry: Option<Class>) {
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
        let place = mail.waiting.add(mark, waiter);
        self.waiting.store(mail.waiting.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.ended.load(Ordering::Acquire) < mark {
            return true;
        }
        // Still under the lock, so nobody else took it off.
        let ours = mail.waiting.remove(place);
        self.waiting.store(mail.waiting.len(), Ordering::Relaxed);
        drop(mail);
        drop(ours);
        false
    }

    /// Takes off a waiter that gave up.
    pub(crate) fn unregister(&self, is_it: impl Fn(&Waiter) -> bool) {
        let mut mail = self.mail.lock();
        let gone = mail.waiting.take_one(is_it);
        self.waiting.store(mail.waiting.len(), Ordering::Relaxed);
        drop(mail);
        drop(gone);
    }

    /// The token's holder reached a mark.
    fn end(&self, mark: u64) {
        self.ended.store(mark, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let mut mail = self.mail.lock();
            let woken = mail.waiting.take_ended(mark);
            self.waiting.store(mail.waiting.len(), Ordering::Relaxed);
            drop(mail);
            woken.into_iter().for_each(Waiter::wake);
        }
    }

    /// Blocked -> Ready. Called once, by who took this stream off the list it waited on.
    pub(crate) fn unblock(self: &Arc<Self>) {
        let mut mail = self.mail.lock();
        if mail.state != State::Blocked {
            return; // It was cancelled.
        }
        let entry = self.make_ready(&mut mail);
        drop(mail);
        self.list(entry);
    }

    /// Gives the token up until `register` says that what it waits for has come. True if it has to wait.
    fn block(self: &Arc<Self>, register: impl FnOnce(Waiter) -> bool) -> bool {
        let mut mail = self.mail.lock();
        mail.held = self.first_held();
        mail.state = State::Blocked;
        drop(mail);
        if register(Waiter::Stream(Arc::clone(self))) {
            if self.crew.closed() {
                // Who closed it may have passed by while this thread ran the stream.
                self.cancel();
            }
            return true;
        }
        let mut mail = self.mail.lock();
        if mail.state != State::Blocked {
            return true; // It was cancelled.
        }
        mail.state = State::Running;
        false
    }

    // Running

    /// Takes the token of a Ready stream whose entry was found in a queue, and runs.
    pub(crate) fn run_listed(self: &Arc<Self>, runner: Runner) {
        let mut mail = self.mail.lock();
        mail.listed = false;
        if mail.state != State::Ready {
            return;
        }
        mail.state = State::Running;
        drop(mail);
        self.run(runner);
    }

    /// Takes the token if the stream has work that a waiter may do, and runs up to the mark.
    pub(crate) fn help(self: &Arc<Self>, mark: u64, deadline: Option<Instant>) {
        let mut mail = self.mail.lock();
        match mail.state {
            State::Idle | State::Ready if mail.head() == Some(Class::Small) => {
                mail.state = State::Running;
                self.unsent.store(false, Ordering::Relaxed);
                drop(mail);
                self.run(Runner::Waiter { mark, deadline });
            }
            _ => {
                let entry = self.submit_locked(&mut mail);
                drop(mail);
                self.list(entry);
            }
        }
    }

    /// Runs operations as the token's holder until the token is given up.
    fn run(self: &Arc<Self>, runner: Runner) {
        let mut left = TURN;
        loop {
            if self.crew.closed() {
                return self.cancel_held();
            }
            let op = match self.next(runner) {
                Next::Run(op) => op,
                Next::Refused => return self.give_up(),
                Next::Empty if self.refill() => continue,
                Next::Empty => return,
            };
            let cost = 1 + op.bytes() / (64 << 10);
            match op {
                Op::Mark(mark) => self.end(mark),
                Op::Stamp(stamp) => stamp.set(),
                Op::Call(mut function) => {
                    function.call(HostStatus::Run);
                    drop(function);
                }
                Op::Wait { of, mark } => {
                    if of.ended() < mark && self.block(|waiter| of.register(mark, waiter)) {
                        return;
                    }
                }
                Op::Gate(gate) => {
                    if !gate.is_open() && self.block(|waiter| gate.register(waiter)) {
                        return;
                    }
                }
                // SAFETY: it is its turn: everything before it in this stream has ended, and so have the waits.
                ref work => unsafe { work.work(&self.crew) },
            }
            match runner {
                Runner::Waiter { mark, deadline } => {
                    if self.ended() >= mark || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return self.give_up();
                    }
                }
                Runner::Worker | Runner::Callback => {
                    left = left.saturating_sub(cost);
                    if left == 0 {
                        if self.crew.others_wait(runner) {
                            return self.give_up();
                        }
                        left = TURN;
                    }
                }
            }
        }
    }

    /// The next operation of the outbox, if this runner may run it.
    fn next(&self, runner: Runner) -> Next {
        // SAFETY: this thread holds the token.
        unsafe {
            self.outbox.with(|outbox| match outbox.front() {
                None => Next::Empty,
                Some(op) if !runner.may(op.class()) => Next::Refused,
                Some(_) => outbox.pop_front().map_or(Next::Empty, Next::Run),
            })
        }
    }

    /// Fills the empty outbox; without work the token is given up, and it says false.
    fn refill(&self) -> bool {
        let mut mail = self.mail.lock();
        // SAFETY: this thread holds the token.
        unsafe {
            self.outbox.with(|outbox| {
                if mail.inbox.is_empty() {
                    mail.state = State::Idle;
                    mail.held = None;
                    shrink(outbox);
                    shrink(&mut mail.inbox);
                    return false;
                }
                std::mem::swap(outbox, &mut mail.inbox);
                true
            })
        }
    }

    fn first_held(&self) -> Option<Class> {
        // SAFETY: this thread holds the token.
        unsafe { self.outbox.with(|outbox| outbox.front().map(Op::class)) }
    }

    /// Running -> Ready or Idle. What is left counts as submitted.
    fn give_up(self: &Arc<Self>) {
        let mut mail = self.mail.lock();
        mail.held = self.first_held();
        let entry = self.make_ready(&mut mail);
        drop(mail);
        self.list(entry);
    }

    // Ending

    /// Drops all work that has not begun, its host functions by H13. A Running stream is left to its runner, which does
    /// the same. Only once the crew is closed.
    pub(crate) fn cancel(&self) {
        let mut mail = self.mail.lock();
        if mail.state == State::Running {
            return;
        }
        mail.state = State::Running;
        drop(mail);
        self.cancel_held();
    }

    /// The same as the token's holder.
    fn cancel_held(&self) {
        let mut mail = self.mail.lock();
        let waiting = std::mem::replace(&mut mail.waiting, Waiting::new());
        drop(mail);
        drop(waiting);
        loop {
            // SAFETY: this thread holds the token.
            let work = unsafe { self.outbox.with(std::mem::take) };
            for op in work {
                if let Op::Call(mut function) = op {
                    function.call(HostStatus::Cancelled);
                }
            }
            if !self.refill() {
                return;
            }
        }
    }
}

fn shrink(queue: &mut VecDeque<Op>) {
    if queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}
