//! Every promise has a case or a reason, and the tables fit what they name.

use anyaccel_cts::{Level, Options, Source, Way, all, list, not_captured, run, subjects};
use std::collections::HashSet;

#[test]
fn every_promise_has_a_case_or_a_reason() {
    for entry in list() {
        match entry.no_case {
            None => assert!(!entry.cases.is_empty(), "{}: {} has no case", entry.id, entry.text),
            Some(reason) => {
                assert!(entry.cases.is_empty(), "{} has cases, so {reason:?} is stale", entry.id);
                assert!(!reason.is_empty(), "{} has neither a case nor a reason", entry.id);
            }
        }
    }
}

#[test]
fn the_rules_are_those_of_the_hal() {
    let written = include_str!("../../hal/src/lib.rs");
    let rules: Vec<String> = list().into_iter().filter(|e| e.source == Source::Rule).map(|e| e.id).collect();
    for id in &rules {
        assert!(written.contains(&format!("- **{id}** ")), "the hal has no rule {id}");
    }
    assert_eq!(written.matches("//! - **H").count(), rules.len(), "the hal has more rules than the list");
}

#[test]
fn cases_name_promises_that_exist() {
    let ids: HashSet<String> = list().into_iter().map(|entry| entry.id).collect();
    let mut seen = HashSet::new();
    for case in all() {
        assert!(seen.insert(case.id), "{} exists twice", case.id);
        assert!(!case.rules.is_empty() || !case.sentences.is_empty(), "{} proves nothing", case.id);
        for rule in case.rules {
            assert!(ids.contains(&format!("H{rule}")), "{} names H{rule}", case.id);
        }
        for sentence in case.sentences {
            assert!(ids.contains(*sentence), "{} names {sentence}", case.id);
        }
    }
}

#[test]
fn cases_of_streams_are_captured_or_say_why_not() {
    let ids: HashSet<&str> = all().map(|case| case.id).collect();
    let eager = || all().filter(|case| case.way == Way::Eager);
    for tail in ["@captured", "@recorded"] {
        for about in ["order.", "copy.", "fill.", "write.", "kernels.", "builtins.", "host_fn.", "marks.", "programs."]
        {
            let captured = ids.iter().filter(|id| id.starts_with(about) && id.ends_with(tail)).count();
            assert!(captured > 0, "nothing of {about}* is run {tail}");
        }
    }
    for never in not_captured() {
        let head = never.pattern.trim_end_matches('*');
        let fits = |id: &str| if never.pattern.ends_with('*') { id.starts_with(head) } else { id == head };
        assert!(eager().any(|case| fits(case.id)), "{} fits no case", never.pattern);
        let captured = ids.iter().find(|id| id.split_once('@').is_some_and(|(case, _)| fits(case)));
        assert_eq!(captured, None, "{} says that it is not captured", never.pattern);
    }
    // Whoever is captured in one way is captured in both, and exists without.
    for case in all().filter(|case| case.way != Way::Eager && case.level == Level::Hal) {
        let (name, _) = case.id.split_once('@').expect("an id with a way");
        assert!(
            [name.to_owned(), format!("{name}@captured"), format!("{name}@recorded")]
                .iter()
                .all(|id| ids.contains(id.as_str()))
        );
    }
}

#[test]
fn a_report_is_json() {
    let report = run(&subjects::sim(), &Options { filter: vec!["marks.rise".into()], ..Options::default() });
    assert!(report.is_ok(), "{report}");
    let json = serde_json::to_value(&report).expect("a report serialises");
    assert_eq!(json["subject"], "sim");
    assert_eq!(json["cases"][0]["id"], "marks.rise");
    assert_eq!(json["cases"][0]["verdict"], "pass");
    assert_eq!(json["cases"][0]["rules"][0], "H7");
}
