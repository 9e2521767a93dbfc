//! `anyaccel cts`: the conformance suite.

use crate::layout::item;
use crate::output::{Class, Failure, Output};
use anyaccel::Kind;
use anyaccel_cts::fork::child_main;
use anyaccel_cts::{
    CaseReport, Entry, NotCaptured, Options, Planned, Report, Source, Subject, Tally, Verdict, list, not_captured,
    plan, run as run_suite, subjects,
};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: &str = "\
Runs the conformance suite: cases that prove the numbered rules of the contract
between runtime and backend, and the sentences of the public one. Prints what
fails, what is known to be missing, and how many cases passed; with --verbose
every case.

Given a LIBRARY, a vendor's plugin, the suite examines that one: with the
devices and the memory that it has, two devices and 192 MiB are enough for every
case. It is given up if nothing happens for ten times --timeout before its first
case. See docs/add-a-backend.md.

Example:
  $ anyaccel cts --backend host
  $ anyaccel cts ./libvendor.so
  $ anyaccel cts ./libvendor.so --filter 'order.*' --list
  $ anyaccel cts --filter 'order.*' --verbose
  $ anyaccel cts --require host --json | jq '.reports[].cases[] | .id'
  $ anyaccel cts --list

JSON (schema anyaccel.cts.v1):
  ok            whether all reports are
  reports[]     subject, kind, seed, absent (why the backend is not here, or
                null), complaints[] (of the run as a whole), cases[], millis
    cases[]     id, level (hal or face), rules[], sentences[], verdict (pass,
                fail, skip, known-gap or stale), millis; fail has also rule,
                expected and seen; skip and stale have reason; known-gap has
                reason and failure
JSON of --list (schema anyaccel.cts-list.v1):
  promises[]    id, source (rule or sentence), text, cases[] (ids), no_case
                (why none proves it, or null)
JSON of --list with LIBRARY (schema anyaccel.cts-plan.v1):
  plans[]       subject, cases[]
    cases[]     id, level, rules[], sentences[], skipped (why, or null)
  not_captured[]
                pattern, reason: cases of streams that are not also run
                captured (ID@captured by the device, ID@recorded by the engine)

Exit code: 0; 1 if a case failed, a known gap has gone, a required backend is
not here, or a library is no plugin, ends the process or hangs; 2 for bad
arguments.";

/// Run the conformance suite on backends
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// A vendor's plugin to examine; several if need be
    #[arg(value_name = "LIBRARY")]
    library: Vec<PathBuf>,

    /// Only this backend; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,

    /// Only cases with this id, * is any text; repeatable
    #[arg(long, value_name = "ID")]
    filter: Vec<String>,

    /// Fail if this backend has no device here; repeatable
    #[arg(long, value_name = "NAME")]
    require: Vec<String>,

    /// Where random programs begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How long one case may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,

    /// Stop a backend's run at its first failure
    #[arg(long)]
    fail_fast: bool,

    /// List promises and cases; with LIBRARY, its cases
    #[arg(long, conflicts_with_all = ["backend", "require", "seed", "timeout", "fail_fast", "verbose"])]
    list: bool,

    /// Print every case
    #[arg(long, short)]
    verbose: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Say which case runs, for the process that watches this one
    #[arg(long, hide = true)]
    watched: bool,
}

impl Args {
    /// Whether this run calls a library that could take the process down, and nobody watches.
    pub(crate) fn needs_watching(&self) -> bool {
        !self.library.is_empty() && !self.watched
    }

    /// Whether another process watches this one.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// How long one case may take.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The document of `cts --json`.
#[derive(Serialize)]
struct Document<'a> {
    /// `anyaccel.cts.v1`.
    schema: &'static str,
    /// Whether all reports are good.
    ok: bool,
    /// One for each backend.
    reports: &'a [Report],
}

/// The document of `cts --list --json`.
#[derive(Serialize)]
struct ListDocument {
    /// `anyaccel.cts-list.v1`.
    schema: &'static str,
    /// Every rule and sentence, the rules first.
    promises: Vec<Entry>,
    /// Cases of streams that are run at once only, and why.
    not_captured: &'static [NotCaptured],
}

/// Runs a script of the suite and exits, if this process was started for that: by cases that need one of their own. To be
/// called first thing in `main`.
pub(crate) fn run_script() {
    // The suite's own arguments are Unicode; a user's need not be.
    if std::env::args_os().all(|argument| argument.to_str().is_some()) {
        child_main(&subjects::all());
    }
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    if args.list && args.library.is_empty() {
        if !args.filter.is_empty() {
            let message = "--filter with --list needs a LIBRARY, whose cases are then listed";
            return Err(Failure::new(Class::Usage, message));
        }
        return tell_list(output);
    }
    let subjects = choose(args)?;
    let mut require = args.require.iter().map(|name| known_kind(name)).collect::<Result<Vec<Kind>, _>>()?;
    if !args.library.is_empty() {
        // Who names a plugin wants it examined: one without devices is no success.
        require.extend(subjects.iter().map(Subject::kind));
    }
    let options = Options {
        filter: args.filter.clone(),
        require,
        seed: args.seed,
        timeout: args.limit(),
        fail_fast: args.fail_fast,
        // Without a path to itself the cases that need a process of their own are skipped, which the report says.
        child: std::env::current_exe().ok(),
        watch: if args.watched { crate::watched::tell } else { |_| () },
        ..Options::default()
    };
    if args.list {
        return tell_plans(&subjects, &options, output);
    }
    let mut reports = Vec::new();
    for subject in &subjects {
        if args.watched {
            crate::watched::tell_subject(subject);
        }
        let report = run_suite(subject, &options);
        if report.cases.is_empty() && !args.filter.is_empty() {
            let patterns = args.filter.join("', '");
            let message = format!("no case fits '{patterns}'; see anyaccel cts --list");
            return Err(Failure::new(Class::Usage, message));
        }
        if !output.is_json() {
            output.text(&if args.verbose { format!("{report}\n") } else { brief(&report) })?;
        }
        reports.push(report);
    }
    if output.is_json() {
        let ok = reports.iter().all(Report::is_ok);
        output.document(&Document { schema: "anyaccel.cts.v1", ok, reports: &reports })?;
    }
    conclude(&reports)
}

/// A vendor's plugin. On the command line its path may be relative.
fn plugin(path: &Path) -> Result<Subject, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(Class::Input, error.to_string());
    let absolute = std::path::absolute(path).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
    subjects::plugin(absolute).map_err(|error| wrong(&error))
}

/// The backends to examine: plugins and those named, or all, and those required.
fn choose(args: &Args) -> Result<Vec<Subject>, Failure> {
    let all = subjects::all();
    let plugins = args.library.iter().map(|path| plugin(path)).collect::<Result<Vec<_>, _>>()?;
    let known = || all.iter().map(Subject::name).collect::<Vec<_>>().join(", ");
    let missing = |name: &String| !all.iter().any(|subject| subject.kind().name() == name);
    if let Some(name) = args.backend.iter().find(|name| missing(name)) {
        let message = format!("there is no backend '{name}' to examine; there are: {}", known());
        return Err(Failure::new(Class::Usage, message));
    }
    for name in &args.require {
        known_kind(name)?;
    }
    if let Some(name) = args.require.iter().find(|name| missing(name)) {
        let message = format!("{name} is required and not in this build; there are: {}", known());
        return Err(Failure::new(Class::Device, message));
    }
    let wanted = |subject: &Subject| {
        let named = |names: &[String]| names.iter().any(|name| subject.kind().name() == name);
        let unsaid = args.backend.is_empty() && args.library.is_empty();
        unsaid || named(&args.backend) || named(&args.require)
    };
    Ok(plugins.into_iter().chain(all.iter().filter(|subject| wanted(subject)).cloned()).collect())
}

fn known_kind(name: &str) -> Result<Kind, Failure> {
    Kind::KNOWN.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Kind::KNOWN.into_iter().map(Kind::name).collect();
        Failure::new(Class::Usage, format!("there is no kind '{name}'; there are: {}", known.join(", ")))
    })
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

fn conclude(reports: &[Report]) -> Result<(), Failure> {
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

fn tell_list(output: &mut Output) -> Result<(), Failure> {
    let promises = list();
    if output.is_json() {
        return output.document(&ListDocument {
            schema: "anyaccel.cts-list.v1",
            promises,
            not_captured: not_captured(),
        });
    }
    let mut text = String::new();
    for entry in &promises {
        let kind = match entry.source {
            Source::Rule => "rule",
            Source::Sentence => "sentence",
        };
        text.push_str(&format!("{} ({kind})\n", entry.id));
        text.push_str(&item(2, "promise", 7, entry.text));
        match entry.no_case {
            Some(why) if entry.cases.is_empty() => text.push_str(&item(2, "no case", 7, why)),
            _ => text.push_str(&item(2, "cases", 7, &entry.cases.join(" "))),
        }
    }
    for never in not_captured() {
        text.push_str(&format!("{} (not captured)\n", never.pattern));
        text.push_str(&item(2, "reason", 7, never.reason));
    }
    let proved = promises.iter().filter(|entry| !entry.cases.is_empty()).count();
    text.push_str(&format!("{proved} of {} promises have cases\n", promises.len()));
    output.text(&text)
}

/// The document of `cts LIBRARY --list --json`.
#[derive(Serialize)]
struct PlanDocument<'a> {
    /// `anyaccel.cts-plan.v1`.
    schema: &'static str,
    /// One for each library.
    plans: Vec<Plan<'a>>,
}

/// What a run on a library would do.
#[derive(Serialize)]
struct Plan<'a> {
    /// The library.
    subject: &'a str,
    /// Its cases.
    cases: Vec<Planned>,
}

fn tell_plans(subjects: &[Subject], options: &Options, output: &mut Output) -> Result<(), Failure> {
    let plans: Vec<Plan<'_>> =
        subjects.iter().map(|subject| Plan { subject: subject.name(), cases: plan(subject, options) }).collect();
    if output.is_json() {
        return output.document(&PlanDocument { schema: "anyaccel.cts-plan.v1", plans });
    }
    let mut text = String::new();
    for Plan { subject, cases } in &plans {
        for Planned { id, level, rules, sentences, skipped } in cases {
            let proves: Vec<&str> = rules.iter().map(String::as_str).chain(sentences.iter().copied()).collect();
            text.push_str(&format!("{id} ({level})\n"));
            text.push_str(&item(2, "proves", 7, &proves.join(" ")));
            if let Some(why) = skipped {
                text.push_str(&item(2, "skipped", 7, why));
            }
        }
        let apply = cases.iter().filter(|case| case.skipped.is_none()).count();
        text.push_str(&item(0, subject, 5, &format!("{apply} of {} cases apply", cases.len())));
    }
    output.text(&text)
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
