//! Faults on demand: the n-th call of a method fails as the test says.

use crate::counters::Method;
use anyaccel_hal::{Fault, FaultKind};

/// Which calls are to fail, and how. The next call of the method, once, unless told otherwise.
///
/// A call that fails so had no effect (H19).
#[derive(Clone, Debug)]
pub struct Injection {
    method: Method,
    device: Option<u32>,
    skip: u64,
    times: u64,
    fault: Fault,
}

impl Injection {
    /// The next call of that method fails with that fault, once.
    pub const fn new(method: Method, fault: Fault) -> Self {
        Self { method, device: None, skip: 0, times: 1, fault }
    }

    /// The next call of that method fails with a fault of that kind, once.
    pub const fn kind(method: Method, kind: FaultKind) -> Self {
        Self::new(method, Fault::new(kind, method.name()))
    }

    /// Only calls on that device count.
    #[must_use]
    pub const fn on(mut self, ordinal: u32) -> Self {
        self.device = Some(ordinal);
        self
    }

    /// The n-th call from now on, from 1. 0 is taken as 1.
    #[must_use]
    pub const fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// That many calls in a row.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// All later calls too.
    #[must_use]
    pub const fn for_ever(self) -> Self {
        self.times(u64::MAX)
    }

    pub(crate) const fn method(&self) -> Method {
        self.method
    }
}

/// An injection in place, to ask about it or to take it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Injected(u64);

struct Armed {
    id: u64,
    injection: Injection,
    fired: u64,
}

/// All injections of a driver.
#[derive(Default)]
pub(crate) struct Injections {
    armed: Vec<Armed>,
    last: u64,
}

impl Injections {
    pub(crate) fn arm(&mut self, injection: Injection) -> Injected {
        self.last += 1;
        self.armed.push(Armed { id: self.last, injection, fired: 0 });
        Injected(self.last)
    }

    pub(crate) fn withdraw(&mut self, injected: Injected) {
        self.armed.retain(|armed| armed.id != injected.0);
    }

    pub(crate) fn fired(&self, injected: Injected) -> u64 {
        self.armed.iter().find(|armed| armed.id == injected.0).map_or(0, |armed| armed.fired)
    }

    /// Counts a call. The first injection that it meets makes it fail; the others count it too.
    pub(crate) fn meet(&mut self, method: Method, device: Option<u32>) -> Option<Fault> {
        let mut fault = None;
        for armed in &mut self.armed {
            let injection = &mut armed.injection;
            if injection.method != method || (injection.device.is_some() && injection.device != device) {
                continue;
            }
            if injection.skip > 0 {
                injection.skip -= 1;
            } else if injection.times > 0 {
                injection.times -= u64::from(injection.times != u64::MAX);
                if fault.is_none() {
                    armed.fired += 1;
                    fault = Some(injection.fault.clone());
                }
            }
        }
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(injections: &mut Injections, device: Option<u32>, calls: usize) -> Vec<bool> {
        (0..calls).map(|_| injections.meet(Method::Alloc, device).is_some()).collect()
    }

    #[test]
    fn the_nth_call_fails_so_often() {
        let mut injections = Injections::default();
        let one = injections.arm(Injection::kind(Method::Alloc, FaultKind::OutOfMemory).nth(2).times(2));
        assert!(injections.meet(Method::Free, None).is_none());
        assert_eq!(outcomes(&mut injections, None, 5), [false, true, true, false, false]);
        assert_eq!(injections.fired(one), 2);
    }

    #[test]
    fn devices_are_told_apart_and_an_injection_can_be_withdrawn() {
        let mut injections = Injections::default();
        let one = injections.arm(Injection::kind(Method::Alloc, FaultKind::Driver).on(1).for_ever());
        assert_eq!(outcomes(&mut injections, Some(0), 2), [false, false]);
        assert_eq!(outcomes(&mut injections, Some(1), 2), [true, true]);
        injections.withdraw(one);
        assert_eq!(outcomes(&mut injections, Some(1), 1), [false]);
    }
}
