//! `anyaccel doctor`: why there is what there is, layer by layer.

mod apart;

pub(crate) use apart::{PATIENCE, first_lost, named};

use crate::environment::{BACKEND, PLUGINS, chosen, failing, problems, said};
use crate::info::Choice;
use crate::layout::item;
use crate::output::{Class, Failure, Output, one_line};
use anyaccel::{Backend, Check, PluginReport, Selection, Verdict, backends, plugins, selection};
use apart::Lost;
use serde::Serialize;
use std::path::PathBuf;

const LONG: &str = "\
Examines each backend of this build from the bottom up: is its library found,
is its version known, are there device nodes, may this user open them, which
masks hide devices, what does a probe count. Starts no runtime.

Each library that ANYACCEL_PLUGINS names is first tried in a process of its own:
one that takes it down, ends it or hangs is told and left out. What a library
prints goes to standard error.

Verdicts: pass; warn (works, with something to know); fail (ends here); n/a
(this backend has no such layer, or an earlier one failed).

Example:
  $ anyaccel doctor
  $ ANYACCEL_HOST_DEVICES=abc anyaccel doctor || echo 'something to repair'

JSON (schema anyaccel.doctor.v1):
  version       of anyaccel
  selection     variable (the value of ANYACCEL_BACKEND, or null), kind (or
                null), reason
  backends[]    kind, checks[]
    checks[]    layer (library, version, device_nodes, permissions, mask,
                probe), verdict (pass, warn, fail, not_applicable), subject,
                found
  plugins[]     what became of each library that ANYACCEL_PLUGINS names: path,
                kind (or null), problem (why it is no plugin, or null)
  problems[]    mistakes in the environment

Exit code: 0; 1 if a variable can't be used, or names a backend without device,
a library that is no plugin, or one with a layer that fails. A machine without
accelerators is healthy.";

/// Examine each backend layer by layer, without starting it
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Tell the process that watches this one; as JSON, the plugins that it has left out
    #[arg(long, hide = true, value_name = "LOST")]
    watched: Option<String>,

    /// Only load and ask that plugin, and tell the process that watches this one
    #[arg(long, hide = true, value_name = "LIBRARY")]
    probe: Option<PathBuf>,
}

impl Args {
    /// Whether another process watches this one.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.is_some() || self.probe.is_some()
    }
}

/// The document of `doctor --json`.
#[derive(Serialize)]
struct Document {
    /// `anyaccel.doctor.v1`.
    schema: &'static str,
    /// The version of anyaccel.
    version: &'static str,
    /// Which backend is used.
    selection: Choice,
    /// The backends of this build, the most preferred first.
    backends: Vec<BackendDocument>,
    /// What became of each plugin.
    plugins: Vec<PluginDocument>,
    /// Mistakes in the environment.
    problems: Vec<String>,
}

/// A plugin that the environment names.
#[derive(Serialize)]
struct PluginDocument {
    /// The library.
    path: String,
    /// Its kind.
    kind: Option<&'static str>,
    /// Why it is none.
    problem: Option<String>,
}

impl PluginDocument {
    fn new(report: &PluginReport) -> Self {
        let path = one_line(&report.path.display().to_string());
        let problem = report.outcome.as_ref().err().map(|error| one_line(&error.reason.to_string()));
        Self { path, kind: report.outcome.as_ref().ok().map(|kind| kind.name()), problem }
    }
}

/// A backend, examined.
#[derive(Serialize)]
struct BackendDocument {
    /// Its kind.
    kind: &'static str,
    /// Its layers, from the bottom up.
    checks: Vec<CheckDocument>,
}

/// A layer, examined.
#[derive(Serialize)]
struct CheckDocument {
    /// `library`, `version`, `device_nodes`, `permissions`, `mask` or `probe`.
    layer: String,
    /// `pass`, `warn`, `fail` or `not_applicable`.
    verdict: &'static str,
    /// What was examined.
    subject: String,
    /// What was found.
    found: String,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    if let Some(library) = &args.probe {
        return apart::probe(library);
    }
    if let Some(lost) = &args.watched {
        return examine(&apart::left_out(lost)?, output);
    }
    match apart::run(args, output) {
        Some(result) => result,
        None => examine(&[], output),
    }
}

/// Examines everything but the plugins that were left out.
fn examine(lost: &[Lost], output: &mut Output) -> Result<(), Failure> {
    // A probe on the way to the selection may find what the checks then tell of.
    let selection = selection();
    let backends = backends();
    let mut plugins: Vec<PluginDocument> = plugins().iter().map(PluginDocument::new).collect();
    let mut problems = problems(&backends, &selection);
    for Lost { at, path, problem } in lost {
        let document = PluginDocument { path: path.clone(), kind: None, problem: Some(problem.clone()) };
        plugins.insert((*at).min(plugins.len()), document);
        problems.push(format!("{PLUGINS}: {path}: {problem}"));
    }
    problems.extend(failing(&backends));
    if output.is_json() {
        output.document(&Document {
            schema: "anyaccel.doctor.v1",
            version: env!("CARGO_PKG_VERSION"),
            selection: Choice::new(&selection, &backends),
            backends: backends.iter().map(document).collect(),
            plugins,
            problems: problems.clone(),
        })?;
    } else {
        output.text(&for_people(&backends, &selection, &plugins, &problems))?;
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(Failure::new(Class::Environment, &problems[0])),
        more => Err(Failure::new(Class::Environment, format!("{more} problems, the first: {}", problems[0]))),
    }
}

fn document(backend: &Backend) -> BackendDocument {
    let check = |check: &Check| CheckDocument {
        layer: check.layer.name().replace(' ', "_"),
        verdict: match check.verdict {
            Verdict::Pass => "pass",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::NotApplicable => "not_applicable",
        },
        subject: check.subject.clone(),
        found: check.found.clone(),
    };
    BackendDocument { kind: backend.kind.name(), checks: backend.checks.iter().map(check).collect() }
}

fn for_people(backends: &[Backend], selection: &Selection, plugins: &[PluginDocument], problems: &[String]) -> String {
    let mut text = item(0, "anyaccel", 8, env!("CARGO_PKG_VERSION"));
    let variable = match &selection.variable {
        Some(value) => one_line(&format!("'{value}'")),
        None => "not set".to_owned(),
    };
    text.push_str(&item(0, "chosen", 8, &format!("{}; {BACKEND} is {variable}", chosen(selection, backends))));
    for PluginDocument { path, kind, problem } in plugins {
        let became = match (kind, problem) {
            (_, Some(problem)) => format!("{path}: refused: {problem}"),
            (kind, None) => format!("{path}: {}", kind.unwrap_or_default()),
        };
        text.push_str(&item(0, "plugin", 8, &became));
    }
    for backend in backends {
        text.push_str(&format!("\n{}\n", backend.kind));
        for check in &backend.checks {
            let verdict = match check.verdict {
                Verdict::Pass => "pass",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
                Verdict::NotApplicable => "n/a",
            };
            let label = format!("{:<13} {verdict}", check.layer.name());
            text.push_str(&item(2, &label, 18, &one_line(&said(&check.subject, &check.found))));
        }
    }
    text.push('\n');
    match problems {
        [] => text.push_str("no problem found\n"),
        problems => problems.iter().for_each(|problem| text.push_str(&item(0, "problem", 8, problem))),
    }
    text
}
