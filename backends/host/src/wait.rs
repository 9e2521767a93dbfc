//! Who waits for marks, and waiting on a host thread.
//!
//! A host thread first looks, then does small work of the awaited stream itself, then looks again for a short while, then
//! sleeps. It never runs code of the user, nor another stream. Asleep it is one [`Waiter`] of the stream, like a stream
//! that waits for a mark of another; the protocol of that list is the stream's.

use crate::stream::Stream;
use crate::sync::{Condvar, Mutex, spin};
use anyaccel_hal::{Until, WaitMode, Waited};
use std::sync::Arc;
use std::time::Instant;

/// A thread that sleeps until it is told. Not the thread's own token, which the program around us may use.
#[derive(Debug)]
pub(crate) struct Parker {
    told: Mutex<bool>,
    wake: Condvar,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self { told: Mutex::new(false), wake: Condvar::new() }
    }

    /// Sleeps until told, or until the deadline; says whether it was told.
    pub(crate) fn park(&self, deadline: Option<Instant>) -> bool {
        let mut told = self.told.lock();
        while !*told {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            told = self.wake.wait(told, deadline);
        }
        true
    }

    pub(crate) fn unpark(&self) {
        *self.told.lock() = true;
        self.wake.notify_one();
    }
}

/// Who waits for a mark or a gate.
#[derive(Debug)]
pub(crate) enum Waiter {
    Stream(Arc<Stream>),
    Thread(Arc<Parker>),
}

impl Waiter {
    /// What it waits for has come. Called without locks, once.
    pub(crate) fn wake(self) {
        match self {
            Self::Stream(stream) => {
                let entry = stream.unblock();
                stream.list(entry);
            }
            Self::Thread(parker) => parker.unpark(),
        }
    }
}

/// The waiters of a stream, each with its mark.
#[derive(Debug)]
pub(crate) struct Waiting(Vec<(u64, Waiter)>);

impl Waiting {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one and returns its place, good until the next change.
    pub(crate) fn add(&mut self, mark: u64, waiter: Waiter) -> usize {
        self.0.push((mark, waiter));
        self.0.len() - 1
    }

    pub(crate) fn remove(&mut self, place: usize) -> Waiter {
        self.0.swap_remove(place).1
    }

    /// Takes one off by its looks.
    pub(crate) fn take_one(&mut self, is_it: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        let place = self.0.iter().position(|(_, waiter)| is_it(waiter))?;
        Some(self.remove(place))
    }

    /// Takes off who waits for this mark or an earlier one. A single one, as is usual, costs no allocation.
    pub(crate) fn take_ended(&mut self, ended: u64) -> impl Iterator<Item = Waiter> + use<> {
        let (one, many) = match &*self.0 {
            [(mark, _)] if *mark <= ended => (self.0.pop(), Vec::new()),
            [_] => (None, Vec::new()),
            _ => (None, self.0.extract_if(.., |(mark, _)| *mark <= ended).collect()),
        };
        one.into_iter().chain(many).map(|(_, waiter)| waiter)
    }
}

/// Waits on this thread (H10).
pub(crate) fn wait_host(stream: &Arc<Stream>, until: Until, deadline: Option<Instant>, mode: WaitMode) -> Waited {
    let mark = match until {
        Until::Mark(mark) => mark,
        Until::Now => match stream.mark_unless_at_rest() {
            Some(mark) => mark,
            None => return Waited::Ended,
        },
    };
    if stream.ended() >= mark {
        stream.submit();
        return Waited::Ended;
    }
    let late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    match mode {
        WaitMode::Auto if !late() => {
            stream.help(mark, deadline);
            if stream.ended() >= mark || (!late() && spin(|| stream.ended() >= mark)) {
                return Waited::Ended;
            }
        }
        WaitMode::Auto | WaitMode::Block => stream.submit(),
    }
    let parker = Arc::new(Parker::new());
    if !stream.register(mark, Waiter::Thread(Arc::clone(&parker))) || parker.park(deadline) {
        return Waited::Ended;
    }
    stream.unregister(|waiter| matches!(waiter, Waiter::Thread(other) if Arc::ptr_eq(other, &parker)));
    if stream.ended() >= mark { Waited::Ended } else { Waited::TimedOut }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_told_parker_does_not_sleep_and_an_untold_one_ends_at_its_deadline() {
        let parker = Parker::new();
        let begin = Instant::now();
        assert!(!parker.park(Some(begin + Duration::from_millis(5))));
        assert!(begin.elapsed() >= Duration::from_millis(5));
        parker.unpark();
        assert!(parker.park(None));
    }

    #[test]
    fn waiters_leave_by_their_marks() {
        let mut waiting = Waiting::new();
        let parkers: Vec<_> = (0..5).map(|_| Arc::new(Parker::new())).collect();
        for (at, mark) in [3, 1, 2, 5, 1].into_iter().enumerate() {
            waiting.add(mark, Waiter::Thread(Arc::clone(&parkers[at])));
        }
        let of = |waiters: &mut dyn Iterator<Item = Waiter>| -> Vec<usize> {
            let at = |waiter: &Waiter| {
                parkers.iter().position(|p| matches!(waiter, Waiter::Thread(own) if Arc::ptr_eq(own, p)))
            };
            waiters.filter_map(|waiter| at(&waiter)).collect()
        };
        assert_eq!(of(&mut waiting.take_ended(2)), [1, 2, 4]);
        assert!(
            waiting.take_one(|waiter| matches!(waiter, Waiter::Thread(own) if Arc::ptr_eq(own, &parkers[3]))).is_some()
        );
        assert_eq!(of(&mut waiting.take_ended(9)), [0]);
        assert_eq!(waiting.len(), 0);
    }
}
