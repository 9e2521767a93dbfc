//! Broken promises of the caller: seen, refused and kept.

use crate::counters::Method;
use anyaccel_hal::Fault;
use std::fmt;

/// A rule of the hal that the caller broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule, as the hal numbers it: `H4`.
    pub rule: &'static str,
    /// The call that broke it.
    pub method: &'static str,
    /// What was wrong, with the objects that it was wrong with.
    pub note: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken in {}: {}", self.rule, self.method, self.note)
    }
}

/// The violations so far. Bounded: a test that breaks one rule in a loop must not eat the machine.
#[derive(Default)]
pub(crate) struct Violations {
    kept: Vec<Violation>,
    dropped: u64,
}

impl Violations {
    const KEPT: usize = 1000;

    /// Keeps one, and gives the fault that the call returns.
    pub(crate) fn refuse(&mut self, rule: &'static str, method: Method, note: impl Into<String>) -> Fault {
        let note = note.into();
        let fault = Fault::invalid(method.name(), format!("{rule}: {note}"));
        self.note(rule, method.name(), note);
        fault
    }

    /// Keeps one that no call can return.
    pub(crate) fn note(&mut self, rule: &'static str, method: &'static str, note: impl Into<String>) {
        if self.kept.len() < Self::KEPT {
            self.kept.push(Violation { rule, method, note: note.into() });
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn all(&self) -> Vec<Violation> {
        let mut all = self.kept.clone();
        if self.dropped > 0 {
            let note = format!("{} more violations", self.dropped);
            all.push(Violation { rule: "", method: "", note });
        }
        all
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
