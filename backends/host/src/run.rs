//! Running a stream: what the holder of its token does. The protocol is in [`stream`](crate::stream).
//!
//! A stream that a worker's mark unblocks is often what is to run next: the worker keeps the first such stream in hand,
//! instead of listing it, while its own stream only waits or ends. Before any other operation it is listed after all, so
//! nothing that takes time stands before it.

use crate::graph::{Progress, Replay};
use crate::op::{Class, Op};
use crate::stream::{State, Stream};
use crate::sync::{Ordering, fence};
use crate::wait::{Waiter, Waiting};
use anyaccel_hal::HostStatus;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// How much a thread runs of one stream while others are ready, in operations; 64 KiB count as one more.
const TURN: usize = 64;
/// How many streams a worker runs from hand to hand while others are ready.
const HANDS: usize = 16;
/// A queue that became longer than this is given back when it is empty.
const KEPT: usize = 256;

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

/// A Ready stream whose entry is in this thread's hand instead of a queue.
type InHand = Option<Arc<Stream>>;

/// Runs a stream whose entry was found in a queue, and those that this puts into the thread's hand.
pub(crate) fn run_listed(stream: Arc<Stream>, runner: Runner) {
    let mut left = HANDS;
    let mut next = Some(stream);
    while let Some(stream) = next {
        next = stream.run_from_hand(runner);
        left -= 1;
        if left == 0 {
            if let Some(stream) = &next
                && stream.crew().others_wait(runner)
            {
                stream.list_in_hand();
                return;
            }
            left = HANDS;
        }
    }
}

impl Stream {
    /// Takes the token of a Ready stream by its entry, and runs.
    fn run_from_hand(self: &Arc<Self>, runner: Runner) -> InHand {
        let mut mail = self.mail();
        mail.listed = false;
        if mail.state != State::Ready {
            return None;
        }
        mail.state = State::Running;
        drop(mail);
        self.run(runner)
    }

    /// Takes the token if the stream has work that a waiter may do, and runs up to the mark.
    pub(crate) fn help(self: &Arc<Self>, mark: u64, deadline: Option<Instant>) {
        let mut mail = self.mail();
        match mail.state {
            State::Idle | State::Ready if mail.head() == Some(Class::Small) => {
                mail.state = State::Running;
                self.sent();
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
    fn run(self: &Arc<Self>, runner: Runner) -> InHand {
        let mut left = TURN;
        let mut in_hand = None;
        loop {
            if self.crew().closed() {
                self.cancel_held();
                return in_hand;
            }
            let op = match self.next(runner) {
                Next::Run(op) => op,
                Next::Empty if self.refill() => continue,
                Next::Empty => return in_hand,
                Next::Refused => {
                    self.give_up();
                    return in_hand;
                }
            };
            if !matches!(op, Op::Wait { .. } | Op::Gate(_)) {
                list_in_hand(&mut in_hand);
            }
            let cost = 1 + op.effort() / (64 << 10);
            match op {
                Op::Mark(mark) => self.end(mark, runner, &mut in_hand),
                Op::Stamp(stamp) => stamp.set(),
                Op::Call(mut function) => {
                    function.call(HostStatus::Run);
                    drop(function);
                }
                Op::Wait { of, mark } => {
                    if of.ended() < mark && self.block(|waiter| of.register(mark, waiter)) {
                        return in_hand;
                    }
                }
                Op::Gate(gate) => {
                    if !gate.is_open() && self.block(|waiter| gate.register(waiter)) {
                        return in_hand;
                    }
                }
                Op::Replay(mut replay) => {
                    // SAFETY: it is its turn, as below.
                    if unsafe { replay.go_on(self.crew()) } == Progress::Waits && self.block_in(replay) {
                        return in_hand;
                    }
                }
                #[cfg(loom)]
                Op::Probe(probe) => probe(),
                // SAFETY: it is its turn: everything before it in this stream has ended, and so have the waits.
                ref work => unsafe { work.work(self.crew()) },
            }
            let over = match runner {
                Runner::Waiter { mark, deadline } => {
                    self.ended() >= mark || deadline.is_some_and(|deadline| Instant::now() >= deadline)
                }
                Runner::Worker | Runner::Callback => {
                    left = left.saturating_sub(cost);
                    if left == 0 && !self.crew().others_wait(runner) {
                        left = TURN;
                    }
                    left == 0
                }
            };
            if over {
                self.give_up();
                return in_hand;
            }
        }
    }

    /// The next operation of the outbox, if this runner may run it.
    fn next(&self, runner: Runner) -> Next {
        // SAFETY: this thread holds the token.
        unsafe {
            self.outbox().with(|outbox| match outbox.front() {
                None => Next::Empty,
                Some(op) if !runner.may(op.class()) => Next::Refused,
                Some(_) => outbox.pop_front().map_or(Next::Empty, Next::Run),
            })
        }
    }

    /// Fills the empty outbox; without work the token is given up, and it says false.
    fn refill(&self) -> bool {
        let mut mail = self.mail();
        // SAFETY: this thread holds the token.
        unsafe {
            self.outbox().with(|outbox| {
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
        unsafe { self.outbox().with(|outbox| outbox.front().map(Op::class)) }
    }

    /// Running -> Ready or Idle. What is left counts as submitted.
    fn give_up(self: &Arc<Self>) {
        let mut mail = self.mail();
        mail.held = self.first_held();
        let entry = self.make_ready(&mut mail);
        drop(mail);
        self.list(entry);
    }

    /// A mark is reached: wakes who waits for it. A worker keeps the first stream that becomes ready in hand.
    fn end(&self, mark: u64, runner: Runner, in_hand: &mut InHand) {
        self.set_ended(mark);
        fence(Ordering::SeqCst);
        if !self.awaited() {
            return;
        }
        let mut mail = self.mail();
        let woken = mail.waiting.take_ended(mark);
        self.note_waiting(&mail);
        drop(mail);
        for waiter in woken {
            match waiter {
                Waiter::Stream(stream) if in_hand.is_none() && matches!(runner, Runner::Worker) => {
                    match stream.unblock() {
                        Some(Class::Small | Class::Work) => *in_hand = Some(stream),
                        entry => stream.list(entry),
                    }
                }
                other => other.wake(),
            }
        }
    }

    /// Gives the token up until `register` says that what it waits for has come. True if it has to wait.
    fn block(self: &Arc<Self>, register: impl FnOnce(Waiter) -> bool) -> bool {
        let mut mail = self.mail();
        mail.held = self.first_held();
        mail.state = State::Blocked;
        drop(mail);
        if register(Waiter::Stream(Arc::clone(self))) {
            if self.crew().closed() {
                // Who closed it may have passed by while this thread ran the stream.
                self.cancel();
            }
            return true;
        }
        let mut mail = self.mail();
        if mail.state != State::Blocked {
            return true; // It was cancelled.
        }
        mail.state = State::Running;
        false
    }

    /// The same in a replay that others work on: it stays first in the stream.
    fn block_in(self: &Arc<Self>, replay: Box<Replay>) -> bool {
        let run = replay.run();
        // SAFETY: this thread holds the token.
        unsafe { self.outbox().with(|outbox| outbox.push_front(Op::Replay(replay))) };
        self.block(|waiter| run.register(waiter))
    }

    fn list_in_hand(self: &Arc<Self>) {
        let mail = self.mail();
        // Somebody who waits for it may have taken the token meanwhile; then the entry is stale, as it may be anyway.
        let class = mail.head().unwrap_or(Class::Small);
        drop(mail);
        self.list(Some(class));
    }

    /// Drops all work that has not begun, its host functions by H13. A Running stream is left to its runner, which does
    /// the same. Only once the crew is closed.
    pub(crate) fn cancel(&self) {
        let mut mail = self.mail();
        if mail.state == State::Running {
            return;
        }
        mail.state = State::Running;
        drop(mail);
        self.cancel_held();
    }

    /// The same as the token's holder.
    fn cancel_held(&self) {
        let mut mail = self.mail();
        let waiting = std::mem::replace(&mut mail.waiting, Waiting::new());
        drop(mail);
        drop(waiting);
        loop {
            // SAFETY: this thread holds the token.
            let work = unsafe { self.outbox().with(std::mem::take) };
            for op in work {
                match op {
                    Op::Call(mut function) => function.call(HostStatus::Cancelled),
                    Op::Replay(replay) => replay.cancel(),
                    _ => {}
                }
            }
            if !self.refill() {
                return;
            }
        }
    }
}

fn list_in_hand(in_hand: &mut InHand) {
    if let Some(stream) = in_hand.take() {
        stream.list_in_hand();
    }
}

fn shrink(queue: &mut VecDeque<Op>) {
    if queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}
