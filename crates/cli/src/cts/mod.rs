//! `anyaccel cts`: the conformance suite.

mod collect;
mod list;
mod show;

use crate::output::{Class, Failure, Output};
use crate::size::whole;
use crate::watched::{Told, tell};
use anyaccel::Kind;
use anyaccel_cts::fork::child_main;
use anyaccel_cts::{Options, Report, Step, Subject, run as run_suite, subjects};
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

A library runs in a process of its own. A case in which it takes that process
down, or ends it, has failed; the suite goes on behind it, up to 20 times. It is
ended if nothing happens for ten times --timeout. What it prints goes to
standard error.

Exit code: 0; 1 if a case failed, a known gap has gone, a required backend is
not here, or a library is no plugin, ends its process or hangs; 2 for bad
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
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,

    /// How long one case may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, allow_hyphen_values = true,
          value_parser = whole::<u64>(1..=86_400))]
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

    /// Begin with that library and behind that many of its cases, and tell the process that watches this one
    #[arg(long, hide = true, num_args = 2, value_names = ["LIBRARIES", "CASES"])]
    watched: Vec<usize>,
}

impl Args {
    /// Whether this run calls a library that could take the process down, and nobody watches.
    fn needs_watching(&self) -> bool {
        !self.library.is_empty() && !self.is_watched()
    }

    /// Whether another process watches this one.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// How long one case may take.
    fn limit(&self) -> Duration {
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
        return list::tell_promises(output);
    }
    if args.needs_watching()
        && let Some(result) = collect::run(args, output)
    {
        return result;
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
        watch: if args.is_watched() { tell_step } else { |_| () },
        ..Options::default()
    };
    if args.list {
        return list::tell_plans(&subjects, &options, output);
    }
    let (first, mut after) = match args.watched[..] {
        [first, after] => (first, after),
        _ => (0, 0),
    };
    let mut reports = Vec::new();
    for subject in subjects.iter().skip(first) {
        tell_asking(subject);
        let report = run_suite(subject, &Options { after, ..options.clone() });
        if report.cases.is_empty() && after == 0 && !args.filter.is_empty() {
            let patterns = args.filter.join("', '");
            let message = format!("no case fits '{patterns}'; see anyaccel cts --list");
            return Err(Failure::new(Class::Usage, message));
        }
        after = 0;
        tell(&Told::Done);
        if !args.is_watched() && !output.is_json() {
            output.text(&show::report(&report, args.verbose))?;
        }
        reports.push(report);
    }
    if args.is_watched() {
        return Ok(());
    }
    if output.is_json() {
        let ok = reports.iter().all(Report::is_ok);
        output.document(&Document { schema: "anyaccel.cts.v1", ok, reports: &reports })?;
    }
    show::conclude(&reports)
}

fn tell_step(step: Step<'_>) {
    tell(&match step {
        Step::Subject { report, cases } => Told::Subject(report.clone(), cases),
        Step::Begins(case) => Told::Begins(case.id.to_owned()),
        Step::Ended(case) => Told::Judged(case.clone()),
    });
}

/// Says that a backend is asked what it can, to whoever watches.
fn tell_asking(subject: &Subject) {
    tell(&Told::Asks(subject.name().to_owned(), subject.kind().name().to_owned()));
}

/// A vendor's plugin. On the command line its path may be relative.
fn plugin(path: &Path) -> Result<Subject, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(Class::Input, error.to_string());
    let absolute = std::path::absolute(path).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
    tell(&Told::Loads(absolute.display().to_string()));
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
