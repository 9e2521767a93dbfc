//! A backend under examination: how to make one, and what it is excused from.

use crate::case::Capability;
use anyaccel_hal::{Driver, Fault, Kind, StreamId};
use std::fmt;
use std::sync::Arc;

/// What a case would like its driver to have. A factory gives what it can: the suite counts for itself afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Devices.
    pub devices: u32,
    /// Bytes of memory a device. Real cards have what they have.
    pub memory: u64,
    /// For backends that choose at random (the order of concurrent work): the same seed, the same choices.
    pub seed: u64,
}

/// Cases that a backend is excused from, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exempt {
    /// An id; `*` stands for any text. The id of a case stands for all ways in which it is run.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

type Lose = Arc<dyn Fn(u32) + Send + Sync>;
type FailWork = Arc<dyn Fn(StreamId, Fault) + Send + Sync>;
pub(crate) type Complaints = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What a factory makes: a driver, and handles on it that the hal has no words for.
#[derive(Clone)]
pub struct Made {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) lose: Option<Lose>,
    pub(crate) fail_work: Option<FailWork>,
    pub(crate) complaints: Option<Complaints>,
}

impl Made {
    /// A driver, nothing started.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, lose: None, fail_work: None, complaints: None }
    }

    /// The same handles on another driver, which wraps this one.
    #[must_use]
    pub fn with_driver(mut self, driver: Arc<dyn Driver>) -> Self {
        self.driver = driver;
        self
    }

    /// The driver.
    pub fn driver(&self) -> Arc<dyn Driver> {
        self.driver.clone()
    }

    /// How to lose the device of an ordinal on demand.
    #[must_use]
    pub fn loses(mut self, lose: impl Fn(u32) + Send + Sync + 'static) -> Self {
        self.lose = Some(Arc::new(lose));
        self
    }

    /// How to make the next operation of a stream fail with a fault, on demand.
    #[must_use]
    pub fn fails_work(mut self, fail: impl Fn(StreamId, Fault) + Send + Sync + 'static) -> Self {
        self.fail_work = Some(Arc::new(fail));
        self
    }

    /// What the driver has to say of its caller: rules marked (caller) that were broken. Asked when a case has ended;
    /// anything but silence fails the case.
    #[must_use]
    pub fn complains(mut self, complaints: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        self.complaints = Some(Arc::new(complaints));
        self
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made").field("kind", &self.driver.kind()).finish_non_exhaustive()
    }
}

type Make = Arc<dyn Fn(&Ask) -> Result<Made, String> + Send + Sync>;

/// A backend, as the suite takes it.
#[derive(Clone)]
pub struct Subject {
    name: String,
    kind: Kind,
    make: Make,
    never: Vec<Exempt>,
    not_yet: Vec<Exempt>,
}

impl Subject {
    /// A subject of that kind, and its factory: a fresh driver for each call, or why there can be none on this machine.
    pub fn new(kind: Kind, make: impl Fn(&Ask) -> Result<Made, String> + Send + Sync + 'static) -> Self {
        Self { name: kind.name().into(), kind, make: Arc::new(make), never: Vec::new(), not_yet: Vec::new() }
    }

    /// The same subject, whose drivers go through `change` as they are made: to add handles that only a test has.
    #[must_use]
    pub fn remade(mut self, change: impl Fn(Made) -> Made + Send + Sync + 'static) -> Self {
        let make = self.make;
        self.make = Arc::new(move |ask| make(ask).map(&change));
        self
    }

    /// A name for reports, other than the kind's.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Cases that can't apply to this backend, for an inherent reason. They are skipped.
    #[must_use]
    pub fn never(mut self, pattern: &str, reason: &str) -> Self {
        self.never.push(Exempt { pattern: pattern.into(), reason: reason.into() });
        self
    }

    /// Cases that fail for now. They are run, and one that passes fails the run: the list can't go stale.
    #[must_use]
    pub fn not_yet(mut self, pattern: &str, reason: &str) -> Self {
        self.not_yet.push(Exempt { pattern: pattern.into(), reason: reason.into() });
        self
    }

    /// The name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes a fresh driver, nothing started.
    ///
    /// # Errors
    /// Why this machine has none.
    pub fn make(&self, ask: &Ask) -> Result<Made, String> {
        (self.make)(ask)
    }

    pub(crate) fn never_reason(&self, id: &str) -> Option<&str> {
        reason(&self.never, id)
    }

    pub(crate) fn not_yet_reason(&self, id: &str) -> Option<&str> {
        reason(&self.not_yet, id)
    }

    /// Patterns that excuse no case at all.
    pub(crate) fn idle_patterns<'a>(&'a self, ids: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let all = self.never.iter().chain(&self.not_yet);
        all.map(|exempt| exempt.pattern.as_str()).filter(|pattern| !ids.iter().any(|id| matches(pattern, id)))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("never", &self.never)
            .field("not_yet", &self.not_yet)
            .finish_non_exhaustive()
    }
}

fn reason<'a>(list: &'a [Exempt], id: &str) -> Option<&'a str> {
    // What holds for a case holds for all its ways.
    let case = id.split('@').next().unwrap_or(id);
    let fits = |exempt: &&Exempt| [id, case].iter().any(|id| matches(&exempt.pattern, id));
    list.iter().find(fits).map(|exempt| exempt.reason.as_str())
}

/// Whether an id fits a pattern, in which `*` stands for any text.
pub(crate) fn matches(pattern: &str, id: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == id,
        Some((head, rest)) => id.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|&at| tail.is_char_boundary(at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

/// What a subject's devices can, found by asking one driver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Abilities {
    pub(crate) devices: u32,
    pub(crate) bits: u32,
}

impl Abilities {
    pub(crate) fn with(mut self, capability: Capability, has: bool) -> Self {
        if has {
            self.bits |= 1 << capability as u32;
        }
        self
    }

    pub(crate) fn has(self, capability: Capability) -> bool {
        self.bits & (1 << capability as u32) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("order.a", "order.a"));
        assert!(matches("order.*", "order.a/gate"));
        assert!(matches("*/gate", "order.a/gate"));
        assert!(matches("*a*gate", "order.a/gate"));
        assert!(!matches("order.a", "order.a/gate"));
        assert!(!matches("*/gate", "order.a/gate2"));
        assert!(!matches("time.*", "order.a"));
    }
}
