//! Who of a group of threads is awake, and whom to wake when work appears.
//!
//! # Protocol
//!
//! Plain data, guarded by the lock that also guards the group's queue. A thread is in one of these states:
//!
//! - *working*, outside the lock.
//! - *searching*: it looks for work for a short while, or was woken or spawned and is on its way. Work that appears while
//!   one searches wakes nobody, since a searching thread looks at the queue under the lock before it sleeps.
//! - *idle*: asleep. Who wakes it counts it as searching at once and leaves a *ticket*; a thread that wakes without
//!   getting a ticket sleeps on. So a thread is woken once however much work appears before it runs.
//!
//! A thread that finds work while more is queued calls for the next one. No work is lost: either somebody searches, or
//! somebody was called, or all threads work and look at the queue before they sleep.

/// Whom work that appears needs. What it says is already counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Call {
    /// Nobody: one searches.
    Nobody,
    /// Wake one idle thread.
    Wake,
    /// Start one more thread, which begins as searching.
    Spawn,
    /// All threads that there may be are working.
    AllBusy,
}

/// The threads of a group by state.
#[derive(Debug)]
pub struct Roster {
    base: usize,
    threads: usize,
    idle: usize,
    searching: usize,
    tickets: usize,
}

impl Roster {
    /// No thread yet, and at most `base` by [`Roster::call`].
    pub const fn new(base: usize) -> Self {
        Self { base, threads: 0, idle: 0, searching: 0, tickets: 0 }
    }

    /// How many threads there are.
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Whether there are more than [`Roster::call`] would start.
    pub const fn surplus(&self) -> bool {
        self.threads > self.base
    }

    /// Work appeared.
    pub fn call(&mut self) -> Call {
        if self.searching > 0 { Call::Nobody } else { self.call_another() }
    }

    /// Work appeared that can use one more thread whether one searches or not.
    pub fn call_another(&mut self) -> Call {
        if self.idle > 0 {
            self.idle -= 1;
            self.searching += 1;
            self.tickets += 1;
            Call::Wake
        } else if self.threads < self.base {
            self.join();
            Call::Spawn
        } else {
            Call::AllBusy
        }
    }

    /// One more thread, searching.
    pub fn join(&mut self) {
        self.threads += 1;
        self.searching += 1;
    }

    /// A searching thread ends, or could not be started.
    pub fn leave(&mut self) {
        self.threads -= 1;
        self.searching -= 1;
    }

    /// A searching thread found work.
    pub fn found(&mut self) {
        self.searching -= 1;
    }

    /// A working thread is done and searches.
    pub fn done(&mut self) {
        self.searching += 1;
    }

    /// Whether exactly one thread searches: then it may take its time.
    pub const fn one_searches(&self) -> bool {
        self.searching == 1
    }

    /// A searching thread falls asleep.
    pub fn sleep(&mut self) {
        self.searching -= 1;
        self.idle += 1;
    }

    /// An idle thread woke; true if it was called, and searches now.
    #[must_use]
    pub fn called(&mut self) -> bool {
        let called = self.tickets > 0;
        self.tickets -= usize::from(called);
        called
    }

    /// An idle thread that was not called ends; false if every idle one was called meanwhile, then it has to stay.
    #[must_use]
    pub fn retire(&mut self) -> bool {
        let free = self.idle > 0;
        self.idle -= usize::from(free);
        self.threads -= usize::from(free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_is_answered_once() {
        let mut roster = Roster::new(2);
        assert_eq!([roster.call(), roster.call()], [Call::Spawn, Call::Nobody]);
        roster.found();
        assert_eq!(roster.call(), Call::Spawn);
        roster.found();
        assert_eq!([roster.call(), roster.call()], [Call::AllBusy, Call::AllBusy]);
        roster.done();
        assert!(roster.one_searches());
        assert_eq!(roster.call(), Call::Nobody);
        roster.sleep();
        assert!(!roster.called(), "nobody called");
        assert_eq!([roster.call(), roster.call()], [Call::Wake, Call::Nobody]);
        assert_eq!([roster.called(), roster.called()], [true, false]);
    }

    #[test]
    fn a_called_thread_can_not_retire() {
        let mut roster = Roster::new(1);
        assert_eq!(roster.call(), Call::Spawn);
        roster.join();
        assert!(roster.surplus());
        roster.sleep();
        roster.sleep();
        assert_eq!(roster.call(), Call::Wake);
        assert!(roster.retire(), "the other one may");
        assert!(!roster.retire());
        assert_eq!(roster.threads(), 1);
    }
}
