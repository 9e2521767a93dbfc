//! Calls that wait for the runtime to start.
//!
//! They run in program order, exactly once, without any lock held. Keyed calls overwrite one another: between two
//! opaque closures only the last of a key is kept, at its own place in the order, so a loop of a million seeds is one
//! entry.

use crate::error::{Error, Result, panic_message};
use crate::runtime::Runtime;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Mutex, PoisonError};

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

type Call = Box<dyn FnOnce(&Runtime) -> Result<()> + Send>;

struct Entry {
    key: Option<DeferKey>,
    at: &'static Location<'static>,
    call: Call,
}

/// The calls of one runtime, in order.
#[derive(Default)]
pub(crate) struct Deferred {
    entries: Mutex<VecDeque<Entry>>,
}

impl Deferred {
    /// Adds a call at the end.
    pub(crate) fn push(&self, key: Option<DeferKey>, at: &'static Location<'static>, call: Call) -> Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
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
        drop(entries);
        // A user's closure is dropped without the lock.
        drop(replaced);
        Ok(())
    }

    /// How many calls wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Runs all, those added meanwhile too. Returns the first error; the others run all the same, each once.
    pub(crate) fn run(&self, runtime: &Runtime) -> Result<()> {
        let mut first = Ok(());
        loop {
            let next = self.entries.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(entry) = next else { return first };
            let result = catch_unwind(AssertUnwindSafe(|| (entry.call)(runtime))).unwrap_or_else(|payload| {
                Err(Error::Panicked { what: "a deferred call", message: panic_message(&*payload) })
            });
            if let (Err(source), true) = (result, first.is_ok()) {
                first = Err(Error::Deferred { source: Box::new(source), at: entry.at });
            }
        }
    }
}
