//! What a case is, and how it ends.

use crate::env::Env;
use crate::ways::{self, Way};
use crate::words::differing;
use anyaccel_hal::Fault;
use std::fmt;

/// Which floor of the house a case examines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The contract between engine and backend: `dyn Device` is called directly.
    Hal,
    /// The public functions, on a runtime that is built over the backend's driver.
    Face,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hal => "hal",
            Self::Face => "face",
        })
    }
}

/// Something that a backend may lack without breaking the contract.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Capability {
    /// [`anyaccel_hal::Pinned`].
    Pinned,
    /// [`anyaccel_hal::Peers`] that can reach at least one other device.
    Peers,
    /// [`anyaccel_hal::VirtualMemory`].
    VirtualMemory,
    /// [`anyaccel_hal::Gates`].
    Gates,
    /// [`anyaccel_hal::Kernels`] that load functions of this process.
    HostKernels,
    /// [`anyaccel_hal::Telemetry`].
    Telemetry,
    /// The factory says how to lose a device: [`Made::loses`](crate::Made::loses).
    LoseDevice,
    /// The factory says how to make work fail: [`Made::fails_work`](crate::Made::fails_work).
    FailWork,
    /// Copies may name any host memory: [`anyaccel_hal::DeviceInfo::host_ends`].
    HostEnds,
    /// [`anyaccel_hal::Graphs`] that are made of lists.
    Graphs,
    /// Kernels of its own for the built-ins, random numbers among them.
    Builtins,
    /// Another process that runs one of the suite's scripts: [`Options::child`](crate::Options::child).
    Child,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned memory",
            Self::Peers => "direct access to another device",
            Self::VirtualMemory => "virtual memory",
            Self::Gates => "gates",
            Self::HostKernels => "kernels that are functions of this process",
            Self::Telemetry => "telemetry",
            Self::LoseDevice => "a way to lose a device on demand",
            Self::FailWork => "a way to make work fail on demand",
            Self::HostEnds => "copies that name any host memory",
            Self::Graphs => "graphs made of lists",
            Self::Builtins => "built-in kernels of its own",
            Self::Child => "a helper process",
        })
    }
}

/// Why a case stopped before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It does not apply here.
    Skip(String),
    /// The backend broke a rule.
    Fail(Failure),
}

/// A broken rule: what the suite expected and what it saw.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    /// `H8`, or the id of a sentence of the public contract. Empty: the first rule of the case.
    pub rule: String,
    /// What the rule promises here.
    pub expected: String,
    /// What happened.
    pub seen: String,
}

/// How a case ended.
pub type Outcome<T = ()> = Result<T, Stop>;

impl From<Fault> for Stop {
    /// A fault that the case did not provoke.
    fn from(fault: Fault) -> Self {
        Self::Fail(Failure { rule: String::new(), expected: "no fault".into(), seen: fault.to_string() })
    }
}

impl From<anyaccel::Error> for Stop {
    /// An error that the case did not provoke.
    fn from(error: anyaccel::Error) -> Self {
        Self::Fail(Failure { rule: String::new(), expected: "no error".into(), seen: error.to_string() })
    }
}

/// Stops a case: the backend broke `rule`.
pub(crate) fn fail<T>(rule: &str, expected: impl Into<String>, seen: impl Into<String>) -> Outcome<T> {
    Err(Stop::Fail(Failure { rule: rule.into(), expected: expected.into(), seen: seen.into() }))
}

/// Stops a case: it does not apply.
pub(crate) fn skip<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Stop::Skip(reason.into()))
}

/// Goes on if `held`.
pub(crate) fn expect(rule: &str, held: bool, expected: &str, seen: impl fmt::Display) -> Outcome {
    if held { Ok(()) } else { fail(rule, expected, seen.to_string()) }
}

/// Goes on if both are equal.
pub(crate) fn same<T: PartialEq + fmt::Debug>(rule: &str, what: &str, seen: T, expected: T) -> Outcome {
    if seen == expected {
        return Ok(());
    }
    let (seen, expected) = differing(&seen, &expected);
    fail(rule, format!("{what}: {expected}"), seen)
}

/// Goes on if both are equal; otherwise names the first byte that differs.
pub(crate) fn same_bytes(rule: &str, what: &str, seen: &[u8], expected: &[u8]) -> Outcome {
    same(rule, &format!("{what}: length"), seen.len(), expected.len())?;
    let Some(at) = seen.iter().zip(expected).position(|(a, b)| a != b) else { return Ok(()) };
    let wrong = seen.iter().zip(expected).filter(|(a, b)| a != b).count();
    fail(
        rule,
        format!("{what}: byte {at} of {} is {:#04x}", expected.len(), expected[at]),
        format!("{:#04x} ({wrong} bytes differ)", seen[at]),
    )
}

/// Goes on if the call was refused with that kind of fault.
pub(crate) fn refused<T>(rule: &str, what: &str, seen: Result<T, Fault>, expected: anyaccel_hal::FaultKind) -> Outcome {
    let expected_text = format!("{what}: {}", expected.describe());
    match seen {
        Ok(_) => fail(rule, expected_text, "success"),
        Err(fault) => expect(rule, fault.kind == expected, &expected_text, fault),
    }
}

/// Goes on if the call was refused with the right error.
pub(crate) fn errs<T>(
    rule: &str,
    what: &str,
    expected: &str,
    seen: anyaccel::Result<T>,
    right: impl FnOnce(&anyaccel::Error) -> bool,
) -> Outcome {
    match seen {
        Ok(_) => fail(rule, format!("{what}: {expected}"), "success"),
        Err(error) if right(&error) => Ok(()),
        Err(error) => fail(rule, format!("{what}: {expected}"), error.to_string()),
    }
}

/// One case: a row of the suite's table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `subject.what-is-right`, or with a variant `order.across-streams/gate`; captured, `order.transitive@captured`.
    pub id: &'static str,
    /// The floor that it examines.
    pub level: Level,
    /// Numbers of the hal rules that it proves.
    pub rules: &'static [u8],
    /// Ids of sentences of the public contract that it proves.
    pub sentences: &'static [&'static str],
    /// How many devices it needs.
    pub devices: u32,
    /// What else it needs.
    pub needs: &'static [Capability],
    /// What it needs besides where it is captured: holds that no graph takes in, work that can be a node.
    pub needs_captured: &'static [Capability],
    /// How its work gets to the device.
    pub way: Way,
    /// The case itself.
    pub run: fn(&Env) -> Outcome,
}

impl Case {
    pub(crate) const fn hal(id: &'static str, rules: &'static [u8], run: fn(&Env) -> Outcome) -> Self {
        Self {
            id,
            level: Level::Hal,
            rules,
            sentences: &[],
            devices: 1,
            needs: &[],
            needs_captured: &[],
            way: Way::Eager,
            run,
        }
    }

    pub(crate) const fn face(id: &'static str, sentences: &'static [&'static str], run: fn(&Env) -> Outcome) -> Self {
        Self {
            id,
            level: Level::Face,
            rules: &[],
            sentences,
            devices: 1,
            needs: &[],
            needs_captured: &[],
            way: Way::Eager,
            run,
        }
    }

    /// The rule or sentence that it is about in the first place.
    pub(crate) fn first_promise(&self) -> String {
        match self.rules.first() {
            Some(rule) => format!("H{rule}"),
            None => self.sentences.first().map_or_else(String::new, |&id| id.into()),
        }
    }

    /// A failure that nothing in the case itself has told of: a hang, the end of its process.
    pub fn failure(&self, expected: impl Into<String>, seen: impl Into<String>) -> Failure {
        Failure { rule: self.first_promise(), expected: expected.into(), seen: seen.into() }
    }

    /// This case, run at once and in further ways. Their names live as long as the table, which is made once.
    pub(crate) fn in_ways(self, ways: &[Way]) -> Vec<Case> {
        let ways = if ways::not_captured_because(self.id).is_some() { &[] } else { ways };
        let further = ways.iter().map(|&way| Self { id: format!("{}{}", self.id, way.suffix()).leak(), way, ..self });
        std::iter::once(self).chain(further).collect()
    }

    pub(crate) const fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    pub(crate) const fn needs(mut self, needs: &'static [Capability]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn needs_captured(mut self, needs: &'static [Capability]) -> Self {
        self.needs_captured = needs;
        self
    }

    pub(crate) const fn rules(mut self, rules: &'static [u8]) -> Self {
        self.rules = rules;
        self
    }
}
