//! The suite on the template. What does not work yet is known to be missing, and the run fails when a case passes that is not
//! on the list of those that work: so the list below grows with the backend, and can't claim too much or too little.

use anyaccel_cts::{Made, Options, Subject, Verdict, all, run};

/// What works: discovery, and what the runtime does without a device. Ids, or beginnings that end in `*`.
const WORKS: &[&str] = &[
    "discovery.probe",
    "discovery.probe-and-start-agree",
    "discovery.describe",
    "discovery.checks",
    "discovery.open-out-of-range",
    "discovery.properties",
    "discovery.devices-differ",
    "starting.innocent-calls",
    "starting.queries",
    "starting.no-devices",
    "devices.peers",
    "devices.telemetry",
    "guards.device",
    "guards.device-across-threads",
    "history.pinned",
    "history.file",
    "reuse.pinned-rounding",
    "reuse.pinned-resets",
    "deferred.no-accelerator",
    "random.generator",
    "random.state",
    "random.unseeded",
    "random.starts",
    "random.waiting",
    "random.last-word",
    "random.no-accelerator",
    "random.fork-rng",
];

/// What a group of cases waits for.
fn not_yet(id: &str) -> &'static str {
    match id.split('.').next() {
        Some("memory" | "caching" | "limits" | "pools") => "not yet: memory (alloc, free, memory_info)",
        Some("marks" | "wait_host" | "streams") => "not yet: streams (create_stream, mark, completed, wait_host)",
        Some("copy" | "fill" | "write" | "copies" | "programs") => "not yet: work (copy, fill, write)",
        Some("order" | "events") => "not yet: order between streams (wait)",
        Some("host_fn" | "functions" | "progress") => "not yet: functions of the host (host_call)",
        Some("time") => "not yet: time (stamp, elapsed_ns)",
        _ => "not yet: what this is built on (streams and memory first)",
    }
}

fn works(id: &str) -> bool {
    WORKS.iter().any(|&known| known == id || known.strip_suffix('*').is_some_and(|start| id.starts_with(start)))
}

#[test]
fn every_case_works_or_is_known_to_be_missing() {
    let kind = anyaccel_template::driver().kind();
    let mut subject = Subject::new(kind, |_| Ok(Made::new(anyaccel_template::driver())));
    for case in all().filter(|case| !works(case.id)) {
        subject = subject.not_yet(case.id, not_yet(case.id));
    }
    let report = run(&subject, &Options::default());
    println!("{report}");
    assert!(report.is_ok(), "a case passes that is not on the list above, or one that is on it does not");

    // While the device is the template's, discovery works and all else is a gap.
    let tally = report.tally();
    assert!(tally.known_gaps > 200 && tally.passed == WORKS.len(), "{tally:?}");
    for case in &report.cases {
        if let Verdict::KnownGap { reason, .. } = &case.verdict {
            assert!(reason.starts_with("not yet: "), "{}: {reason}", case.id);
        }
    }
}
