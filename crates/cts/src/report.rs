//! What a run found: for people as a table, for machines through serde.

use crate::case::{Case, Failure, Level};
use std::fmt;
use std::time::Duration;

/// How one case ended.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The rule holds.
    Pass,
    /// The rule is broken.
    Fail(Failure),
    /// It does not apply here.
    Skip {
        /// Why.
        reason: String,
    },
    /// It failed, and the backend's list of known gaps says so.
    KnownGap {
        /// Why, by that list.
        reason: String,
        /// How it failed.
        failure: Failure,
    },
    /// It passed although the list of known gaps has it: the list is stale, which fails the run.
    Stale {
        /// Why it was on the list.
        reason: String,
    },
}

impl Verdict {
    /// Whether this fails the run.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Fail(_) | Self::Stale { .. })
    }
}

/// One case's result.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct CaseReport {
    /// Its id.
    pub id: String,
    /// Its level.
    pub level: Level,
    /// The hal rules that it proves.
    pub rules: Vec<String>,
    /// The sentences that it proves.
    pub sentences: Vec<String>,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

impl CaseReport {
    /// How a case ended.
    pub fn new(case: &Case, verdict: Verdict, took: Duration) -> Self {
        Self {
            id: case.id.into(),
            level: case.level,
            rules: case.rules.iter().map(|rule| format!("H{rule}")).collect(),
            sentences: case.sentences.iter().map(|&id| id.into()).collect(),
            verdict,
            millis: took.as_millis() as u64,
        }
    }
}

/// One run of the suite.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The subject's name.
    pub subject: String,
    /// Its kind.
    pub kind: String,
    /// The seed of the run.
    pub seed: u64,
    /// Why the backend is not here, if it is not.
    pub absent: Option<String>,
    /// What is wrong with the run as a whole: an idle exemption, a required backend that is not here.
    pub complaints: Vec<String>,
    /// The cases, in the order of the table.
    pub cases: Vec<CaseReport>,
    /// How long the run took, in milliseconds.
    pub millis: u64,
}

/// How many cases ended how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Rules that hold.
    pub passed: usize,
    /// Broken ones, and stale entries of the list of known gaps.
    pub failed: usize,
    /// Cases that don't apply.
    pub skipped: usize,
    /// Known gaps.
    pub known_gaps: usize,
}

impl Report {
    /// Whether everything that could be examined was right.
    pub fn is_ok(&self) -> bool {
        self.complaints.is_empty() && !self.cases.iter().any(|case| case.verdict.is_failure())
    }

    /// The cases that fail the run.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.verdict.is_failure())
    }

    /// How long the run took, for people.
    pub fn took(&self) -> String {
        text(self.millis)
    }

    /// How many cases ended how.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for case in &self.cases {
            match case.verdict {
                Verdict::Pass => tally.passed += 1,
                Verdict::Fail(_) | Verdict::Stale { .. } => tally.failed += 1,
                Verdict::Skip { .. } => tally.skipped += 1,
                Verdict::KnownGap { .. } => tally.known_gaps += 1,
            }
        }
        tally
    }
}

/// A time that was measured in whole milliseconds.
fn text(millis: u64) -> String {
    match millis {
        0 => "< 1ms".to_owned(),
        _ => format!("{:.2?}", Duration::from_millis(millis)),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.cases.iter().map(|case| case.id.len()).max().unwrap_or(0);
        for CaseReport { id, level, verdict, millis, .. } in &self.cases {
            let word = match verdict {
                Verdict::Pass => "pass",
                Verdict::Fail(_) => "FAIL",
                Verdict::Skip { .. } => "skip",
                Verdict::KnownGap { .. } => "gap",
                Verdict::Stale { .. } => "STALE",
            };
            write!(f, "{word:<5} {level:<4} {id:<width$} {:>8}", text(*millis))?;
            match verdict {
                Verdict::Pass => writeln!(f)?,
                Verdict::Fail(failure) => writeln!(f, "\n{failure}")?,
                Verdict::Skip { reason } => writeln!(f, "  {reason}")?,
                Verdict::KnownGap { reason, failure } => writeln!(f, "  {reason}\n{failure}")?,
                Verdict::Stale { reason } => writeln!(f, "  passes, but is listed as not yet working: {reason}")?,
            }
        }
        for complaint in &self.complaints {
            writeln!(f, "FAIL  {complaint}")?;
        }
        let Tally { passed, failed, skipped, known_gaps } = self.tally();
        write!(
            f,
            "{}: {passed} passed, {failed} failed, {skipped} skipped, {known_gaps} known gaps in {} (seed {})",
            self.subject,
            self.took(),
            self.seed
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "      {}: expected {}\n      seen {}", self.rule, self.expected, self.seen)
    }
}
