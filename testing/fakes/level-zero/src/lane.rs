//! What runs commands: a lane for each queue and each immediate list, with a thread of its own.
//!
//! # Protocol
//!
//! A lane has its commands, and which of them runs, under its own lock. Its thread is the only one that takes commands out.
//! With nothing to do it sleeps on the lane's own condition; where all that it might run waits for events it sleeps until
//! anything changes (`turn`). A command ends under the lane's lock: its uses are over, then its event is signaled, then it is
//! no longer the one that runs. So who sees an event signaled and then asks the lane finds the command gone.
//!
//! # Order
//!
//! The interface promises no order but what barriers, events and lists that are in order by flag give. The lane takes the
//! strict side: of the commands before the first barrier it runs the newest that may run.

use crate::call::{Result, lock};
use crate::clock;
use crate::config::{Card, config};
use crate::device::Device;
use crate::event::Event;
use crate::turn;
use crate::work::Work;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;

/// What may go on around a command.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// Anything.
    Free,
    /// What comes later waits for it.
    Gate,
    /// What comes later waits for it, and it for all that came before.
    Barrier,
}

#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) order: Order,
    pub(crate) signal: Option<Arc<Event>>,
    pub(crate) waits: Vec<Arc<Event>>,
    /// Counts the commands of a list that are not over.
    pub(crate) of: Option<Arc<AtomicU32>>,
}

impl Command {
    fn may_run(&self) -> bool {
        self.waits.iter().all(|event| event.signaled())
    }

    fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.signal.iter().chain(&self.waits).chain(self.work.events())
    }

    /// It was given to a lane.
    fn begin(&self, card: &'static Card) {
        for event in self.events() {
            event.uses.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(event) = &self.signal {
            event.signaled_by(card);
        }
        if let Some(of) = &self.of {
            of.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It is over, or dropped.
    fn end(&self) {
        for event in self.events() {
            event.uses.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(of) = &self.of {
            of.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[derive(Default)]
struct State {
    commands: VecDeque<(u64, Command)>,
    /// The number of the command that runs.
    running: Option<u64>,
    next: u64,
    started: bool,
    closed: bool,
}

impl State {
    /// The place of the command to run now.
    fn choose(&self) -> Option<usize> {
        let mut best = None;
        for (at, (_, command)) in self.commands.iter().enumerate() {
            if command.order == Order::Barrier && at > 0 {
                break;
            }
            if command.may_run() {
                best = Some(at);
            }
            if command.order != Order::Free {
                break;
            }
        }
        best
    }

    /// The number of the oldest command that is not over.
    fn oldest(&self) -> u64 {
        let waiting = self.commands.iter().map(|&(number, _)| number);
        waiting.chain(self.running).min().unwrap_or(u64::MAX)
    }
}

pub(crate) struct Lane {
    pub(crate) device: &'static Device,
    /// Which of the groups of engines it belongs to.
    pub(crate) group: usize,
    state: Mutex<State>,
    pushed: Condvar,
}

/// All lanes, for those who lose cards.
static LANES: Mutex<Vec<Weak<Lane>>> = Mutex::new(Vec::new());

impl Lane {
    pub(crate) fn new(device: &'static Device, group: usize) -> Arc<Self> {
        let lane = Arc::new(Self { device, group, state: Mutex::default(), pushed: Condvar::new() });
        let mut lanes = lock(&LANES);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        lane
    }

    fn lost(&self) -> bool {
        self.device.card.lost.load(Ordering::Acquire)
    }

    pub(crate) fn push(self: &Arc<Self>, commands: impl IntoIterator<Item = Command>) -> Result {
        crate::control::alive(self.device.card)?;
        let mut state = lock(&self.state);
        for command in commands {
            command.begin(self.device.card);
            let number = state.next;
            state.next += 1;
            state.commands.push_back((number, command));
        }
        let blocked = state.running.is_none() && state.commands.len() > 1;
        if !state.started && !state.commands.is_empty() {
            state.started = true;
            let lane = Arc::clone(self);
            thread::Builder::new().name("fake-ze".into()).spawn(move || lane.work()).expect("a thread for the fake");
        }
        drop(state);
        self.pushed.notify_one();
        if blocked {
            // It may sleep until something changes, and what came may run at once.
            turn::announce();
        }
        Ok(())
    }

    /// Waits for all that was pushed so far; whether it is over in time.
    pub(crate) fn wait(&self, nanos: u64) -> Result<bool> {
        let before = lock(&self.state).next;
        let over = turn::wait(nanos, || self.lost() || lock(&self.state).oldest() >= before);
        crate::control::alive(self.device.card)?;
        Ok(over)
    }

    pub(crate) fn idle(&self) -> bool {
        lock(&self.state).oldest() == u64::MAX
    }

    /// No more is pushed; the thread ends when nothing is left.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.pushed.notify_one();
    }

    fn work(&self) {
        loop {
            let seen = turn::count();
            let mut state = lock(&self.state);
            if self.lost() && !state.commands.is_empty() {
                for (_, command) in std::mem::take(&mut state.commands) {
                    command.end();
                }
                drop(state);
                turn::announce();
                continue;
            }
            let Some(at) = state.choose() else {
                if !state.commands.is_empty() {
                    drop(state);
                    turn::sleep(seen, None);
                } else if state.closed {
                    return;
                } else {
                    drop(self.pushed.wait(state).unwrap_or_else(PoisonError::into_inner));
                }
                continue;
            };
            let Some((number, command)) = state.commands.remove(at) else { continue };
            state.running = Some(number);
            drop(state);
            let began = clock::now();
            let done = command.work.perform(self.device);
            let ended = clock::now();
            if command.work.is_work() {
                self.device.card.busy[self.group.min(1)].fetch_add(ended - began, Ordering::Relaxed);
            }
            if done.is_err() {
                lose(self.device.card);
            }
            let mut state = lock(&self.state);
            command.end();
            // What a card was lost in has not ended.
            if !self.lost() {
                command.work.finish();
                if let Some(event) = &command.signal {
                    event.signal(began, ended);
                }
            }
            state.running = None;
            drop(state);
            turn::announce();
        }
    }
}

fn lanes_of(card: &Card) -> Vec<Arc<Lane>> {
    let lanes = lock(&LANES);
    lanes.iter().filter_map(Weak::upgrade).filter(|lane| std::ptr::eq(lane.device.card, card)).collect()
}

/// Loses a card: all that it had to do is dropped.
pub(crate) fn lose(card: &Card) {
    card.lost.store(true, Ordering::SeqCst);
    turn::announce();
}

/// Makes a card work again, once what it had to do is gone.
pub(crate) fn heal(card: &Card) {
    debug_assert!(config().cards.iter().any(|other| std::ptr::eq(other, card)));
    if card.lost.load(Ordering::SeqCst) {
        let lanes = lanes_of(card);
        turn::wait(crate::abi::FOREVER, || lanes.iter().all(|lane| lane.idle()));
        card.lost.store(false, Ordering::SeqCst);
    }
}

/// Waits for all that a card has to do.
pub(crate) fn drain(card: &Card) {
    for lane in lanes_of(card) {
        // A card that is lost has nothing to do.
        let _over = lane.wait(crate::abi::FOREVER);
    }
}
