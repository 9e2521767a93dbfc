//! Calls that wait for the runtime to start.
//!
//! They run in program order, exactly once, without any lock held. Keyed calls overwrite one another: between two
//! opaque closures only the last of a key is kept, at its own place in the order, so a loop of a million seeds is one
//! entry.
//!
//! # Protocol
//!
//! The queue is *open* until the thread that starts the runtime finds it empty and closes it, under its lock. What is
//! pushed before that is run by that thread; what is pushed after that is handed back, to be run by who pushed it. So no
//! call is left behind, and none runs before an earlier one.

use crate::error::{Error, Result, panic_message};
use crate::runtime::Runtime;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most calls that wait.
pub const DEFERRED_LIMIT: usize = 65_536;

/// What a keyed call overwrites: calls with equal keys replace one another while they wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeferKey {
    /// Which state, by a number of the caller's choice.
    pub slot: u32,
    /// Of which device; `None` for a call that acts on all.
    pub device: Option<u32>,
}

pub(crate) type Call = Box<dyn FnOnce(&Runtime) -> Result<()> + Send>;

struct Entry {
    key: Option<DeferKey>,
    at: &'static Location<'static>,
    call: Call,
}

/// The calls of one runtime, in order.
#[derive(Default)]
pub(crate) struct Deferred {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Nothing waits any more: the runtime has started.
    closed: bool,
}

impl Deferred {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call at the end, or hands it back once the runtime has started.
    pub(crate) fn push(
        &self,
        key: Option<DeferKey>,
        at: &'static Location<'static>,
        call: Call,
    ) -> Result<Option<Call>> {
        let mut queue = self.lock();
        if queue.closed {
            return Ok(Some(call));
        }
        let entries = &mut queue.entries;
        let mut replaced = None;
        if key.is_some() {
            let mut place = entries.len();
            while place > 0 && entries[place - 1].key.is_some() {
                place -= 1;
                if entries[place].key == key {
                    replaced = entries.remove(place);
                    break;
                }
            }
        }
        if entries.len() >= DEFERRED_LIMIT {
            return Err(Error::DeferredFull { limit: DEFERRED_LIMIT });
        }
        entries.push_back(Entry { key, at, call });
        drop(queue);
        // A user's closure is dropped without the lock.
        drop(replaced);
        Ok(None)
    }

    /// How many calls wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Runs all, those added meanwhile too, and calls `close` when there are none left, before anyone can add one. Returns
    /// the first error; the others run all the same, each once. `close` must not come back here.
    pub(crate) fn run(&self, runtime: &Runtime, close: impl FnOnce()) -> Result<()> {
        let mut first = Ok(());
        loop {
            let mut queue = self.lock();
            let Some(entry) = queue.entries.pop_front() else {
                queue.closed = true;
                close();
                return first;
            };
            drop(queue);
            let result = catch_unwind(AssertUnwindSafe(|| (entry.call)(runtime))).unwrap_or_else(|payload| {
                Err(Error::Panicked { what: "a deferred call", message: panic_message(&*payload) })
            });
            if let (Err(source), true) = (result, first.is_ok()) {
                first = Err(Error::Deferred { source: Box::new(source), at: entry.at });
            }
        }
    }
}
