//! Reports for people.

use crate::layout::item;
use crate::output::{Class, Failure};
use anyaccel_cts::{CaseReport, Report, Tally, Verdict, list};

/// A report, with every case or only with what is wrong.
pub(super) fn report(report: &Report, verbose: bool) -> String {
    if verbose { format!("{report}\n") } else { brief(report) }
}

/// A report without the cases that passed or don't apply.
fn brief(report: &Report) -> String {
    let mut text = String::new();
    for CaseReport { id, verdict, .. } in &report.cases {
        let (word, said) = match verdict {
            Verdict::Pass | Verdict::Skip { .. } => continue,
            Verdict::Fail(failure) => {
                let rule = named_rule(&failure.rule);
                ("FAIL", format!("{rule}: expected {}; seen {}", failure.expected, failure.seen))
            }
            Verdict::KnownGap { reason, .. } => ("gap", reason.clone()),
            Verdict::Stale { reason } => ("STALE", format!("passes, but is listed as not yet working: {reason}")),
        };
        text.push_str(&format!("{word:<5}  {id}\n"));
        text.push_str(&item(0, "", 5, &said));
    }
    for complaint in &report.complaints {
        text.push_str(&item(0, "FAIL", 5, complaint));
    }
    let Tally { passed, failed, skipped, known_gaps } = report.tally();
    let counts = match &report.absent {
        Some(why) => format!("not here: {why}"),
        None => {
            format!("{passed} passed, {failed} failed, {skipped} skipped, {known_gaps} known gaps in {}", report.took())
        }
    };
    text.push_str(&concluded(&report.subject, &counts));
    text
}

/// The last line of a subject: its name, which for a plugin is a path, and the counts.
fn concluded(subject: &str, counts: &str) -> String {
    if subject.contains(std::path::MAIN_SEPARATOR) {
        return format!("{subject}\n{}", item(0, "", 5, counts));
    }
    item(0, subject, 5, counts)
}

/// A rule with what it is about.
fn named_rule(id: &str) -> String {
    list()
        .into_iter()
        .find(|entry| entry.id == id)
        .map_or_else(|| id.to_owned(), |entry| format!("{id}, {}", entry.text))
}

/// Whether all is right, in one sentence.
pub(super) fn conclude(reports: &[Report]) -> Result<(), Failure> {
    let complaint = reports.iter().flat_map(|report| &report.complaints).next();
    let failed: Vec<&CaseReport> = reports.iter().flat_map(Report::failures).collect();
    match (failed.first(), complaint) {
        (Some(first), _) => {
            let cases = if failed.len() == 1 { "1 case".to_owned() } else { format!("{} cases", failed.len()) };
            Err(Failure::new(Class::Wrong, format!("{cases} failed, the first: {}", first.id)))
        }
        (None, Some(complaint)) => Err(Failure::new(Class::Wrong, complaint)),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyaccel_cts::Level;

    fn case(id: &str, verdict: Verdict) -> CaseReport {
        let (rules, sentences) = (vec!["H8".to_owned()], vec![]);
        CaseReport { id: id.to_owned(), level: Level::Hal, rules, sentences, verdict, millis: 1 }
    }

    fn report(cases: Vec<CaseReport>, complaints: Vec<String>) -> Report {
        let (subject, kind) = ("host".to_owned(), "host".to_owned());
        Report { subject, kind, seed: 1, absent: None, complaints, cases, millis: 10 }
    }

    fn broken() -> Verdict {
        let (expected, seen) = ("the fill first".to_owned(), "the copy first".to_owned());
        Verdict::Fail(anyaccel_cts::Failure { rule: "H8".to_owned(), expected, seen })
    }

    #[test]
    fn a_brief_report_has_what_is_wrong_and_the_counts() {
        let skip = Verdict::Skip { reason: "needs gates".to_owned() };
        let cases = vec![case("order.a", Verdict::Pass), case("order.b", broken()), case("order.c", skip)];
        let text = brief(&report(cases, vec![]));
        assert!(text.contains("order.b") && !text.contains("order.a") && !text.contains("order.c"), "{text}");
        let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains("expected the fill first; seen the copy first"), "{text}");
        assert!(text.contains("1 passed, 1 failed, 1 skipped"), "{text}");
    }

    #[test]
    fn failures_complaints_and_stale_gaps_fail_the_run() {
        let stale = Verdict::Stale { reason: "slow".to_owned() };
        assert!(conclude(&[report(vec![case("a", Verdict::Pass)], vec![])]).is_ok());
        assert!(conclude(&[report(vec![case("a", broken())], vec![])]).is_err());
        assert!(conclude(&[report(vec![case("a", stale)], vec![])]).is_err());
        assert!(conclude(&[report(vec![], vec!["cuda is required".to_owned()])]).is_err());
    }
}
