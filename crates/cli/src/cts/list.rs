//! What the suite would run, and what it proves.

use super::tell_asking;
use crate::layout::item;
use crate::output::{Failure, Output};
use anyaccel_cts::{Entry, NotCaptured, Options, Planned, Source, Subject, list, not_captured, plan};
use serde::Serialize;

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

pub(super) fn tell_promises(output: &mut Output) -> Result<(), Failure> {
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

pub(super) fn tell_plans(subjects: &[Subject], options: &Options, output: &mut Output) -> Result<(), Failure> {
    let planned = |subject: &'_ Subject| {
        tell_asking(subject);
        plan(subject, options)
    };
    let plans: Vec<Plan<'_>> =
        subjects.iter().map(|subject| Plan { subject: subject.name(), cases: planned(subject) }).collect();
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
