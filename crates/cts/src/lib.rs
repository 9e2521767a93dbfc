//! The conformance suite for anyaccel backends.
//!
//! A case is a row of a table: an id, the rules of the contract that it proves, what it needs, and a function. A backend
//! becomes a [`Subject`]: a factory of fresh drivers and two lists, cases that can *never* apply to it (with the reason)
//! and cases that do *not yet* pass, where an unexpected pass fails the run, so that the list can't go stale.
//!
//! ```
//! use anyaccel_cts::{Options, run, subjects};
//!
//! let options = Options { filter: vec!["marks.*".into()], ..Options::default() };
//! let report = run(&subjects::host(), &options);
//! assert!(report.is_ok(), "{report}");
//! ```
//!
//! Cases of [`Level::Hal`] call `dyn Device` as the engine would and prove the numbered rules of `anyaccel-hal`. Cases of
//! [`Level::Face`] build a runtime over the same driver and prove the sentences of the public contract. [`list`] shows
//! for each rule and sentence which cases prove it, or why none can.
//!
//! A case of streams is written once and run in several [`Way`]s: at once, captured into the device's own graphs, and
//! captured and replayed by the engine.
//!
//! A case that hangs fails after [`Options::timeout`]; one that panics fails. A case never depends on time alone: what
//! must not happen yet is held up by a gate or by a host function that the case itself releases.

mod case;
mod cases;
mod contract;
mod env;
pub mod fork;

mod lab;
mod list;
mod random;
mod report;
mod rules;
mod runner;
mod subject;
pub mod subjects;
mod ways;
mod words;

pub use case::{Capability, Case, Failure, Level, Outcome, Stop};
pub use cases::all;
pub use env::Env;
pub use list::{Entry, Source, list};
pub use report::{CaseReport, Report, Tally, Verdict};
pub use runner::{Options, Planned, Step, plan, run};
pub use subject::{Ask, Exempt, Made, Subject};
pub use ways::{NotCaptured, Way, not_captured};
