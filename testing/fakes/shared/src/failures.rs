//! Calls that are to fail: those that a variable names, and those that a test orders while it runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The failures of a process.
#[derive(Debug, Default)]
pub struct Failures {
    named: Vec<Named>,
    /// Name, how many calls are still good, code.
    ordered: Mutex<Vec<(String, u32, u32)>>,
    /// Whether there may be any.
    any: AtomicBool,
}

#[derive(Debug)]
struct Named {
    name: String,
    /// How many calls of that name are still good; `None`: none is.
    after: Option<AtomicU32>,
    code: u32,
}

impl Failures {
    /// Reads `call:n:code,...`: the n-th call of that name fails with that code, or all for `all`. The name `*` is any call.
    /// Codes are decimal, or hexadecimal behind `0x`. What can't be read is left out.
    pub fn new(text: &str) -> Self {
        Self { named: text.split(',').filter_map(named).collect(), ..Self::default() }
    }

    /// The code that this call is to fail with, if it is its turn.
    pub fn turn(&self, name: &str) -> Option<u32> {
        let mut code = None;
        for failure in self.named.iter().filter(|failure| failure.name == name || failure.name == "*") {
            let turn = failure.after.as_ref().is_none_or(|after| after.fetch_sub(1, Ordering::SeqCst) == 0);
            if turn {
                code = Some(failure.code);
            }
        }
        if self.any.load(Ordering::Relaxed) {
            let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = ordered.iter().position(|(ordered, ..)| ordered == name) {
                if ordered[at].1 == 0 {
                    code = Some(ordered.remove(at).2);
                } else {
                    ordered[at].1 -= 1;
                }
            }
        }
        code
    }

    /// Makes the n-th call of that name from now on (1 is the next) fail with a code.
    pub fn order(&self, name: String, nth: u32, code: u32) {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).push((name, nth.saturating_sub(1), code));
        self.any.store(true, Ordering::SeqCst);
    }

    /// Forgets what was ordered.
    pub fn forget(&self) {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.any.store(false, Ordering::SeqCst);
    }
}

fn named(text: &str) -> Option<Named> {
    let mut parts = text.split(':');
    let (name, nth, code) = (parts.next()?.to_owned(), parts.next()?, parts.next()?);
    let code = match code.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => code.parse().ok()?,
    };
    let after = match nth {
        "all" => None,
        nth => Some(AtomicU32::new(nth.parse::<u32>().ok()?.saturating_sub(1))),
    };
    Some(Named { name, after, code })
}

#[cfg(test)]
mod tests {
    use super::Failures;

    #[test]
    fn each_fails_at_its_turn() {
        let failures = Failures::new("a:2:7,b:all:0x10,junk,c:1");
        let turns: Vec<_> = ["a", "a", "a", "b", "b", "c"].map(|name| failures.turn(name)).into();
        assert_eq!(turns, [None, Some(7), None, Some(16), Some(16), None]);
        failures.order("c".into(), 2, 9);
        assert_eq!([failures.turn("c"), failures.turn("c"), failures.turn("c")], [None, Some(9), None]);
        failures.order("c".into(), 1, 9);
        failures.forget();
        assert_eq!(failures.turn("c"), None);
    }
}
