//! The suite on the template. Whatever needs a device is known to be missing; the list shrinks as the backend grows, and
//! the run fails when an entry of it is stale.

use anyaccel_cts::{Made, Options, Subject, Verdict, run};

/// Cases that fail until the device does something: all of a group, or one.
const NOT_YET: &[(&str, &[&str])] = &[
    (
        "not yet: memory (alloc, free, memory_info)",
        &["memory.*", "devices.*memory-info", "caching.*", "limits.*", "pools.*"],
    ),
    (
        "not yet: streams (create_stream, mark, completed, wait_host)",
        &["marks.*", "wait_host.*", "streams.*", "statistics.*"],
    ),
    ("not yet: work (copy, fill, write)", &["copy.*", "fill.*", "write.*", "copies.*", "functions.*", "programs.*"]),
    ("not yet: order between streams (wait)", &["order.*", "events.*", "graphs.*"]),
    ("not yet: functions of the host (host_call)", &["host_fn.*", "progress.*", "threads.*", "life.*"]),
    ("not yet: time (stamp, elapsed_ns)", &["time.*"]),
    (
        "not yet: anything that the engine builds on the above",
        &[
            "builtins.*",
            "failure.*",
            "arguments.*",
            "discovery.open-twice",
            "discovery.constant",
            "discovery.drivers-apart",
            "starting.marked-calls",
            "starting.once",
            "starting.several-threads",
            "starting.failure",
            "devices.count",
            "devices.properties",
            "devices.capability",
            "devices.other-dtypes",
            "guards.device-creates-nothing",
            "guards.stream-*",
            "guards.setters-inside",
            "guards.unwinding",
            "guards.by-runtime",
            "reuse.pending-block-is-waited-for",
            "reuse.each-stream-is-waited-for",
            "reuse.recorded-stream",
            "reuse.pooled-on-another-device",
            "reuse.pinned-source",
            "reuse.nothing-piles-up",
            "reuse.function-waits-for-an-allocation",
            "reuse.threads",
            "deferred.in-order-once",
            "deferred.coalesced",
            "deferred.last-word",
            "deferred.bounded",
            "deferred.live-runs-now",
            "deferred.failed-start",
            "deferred.error-names-its-place",
            "deferred.re-entry",
            "deferred.without-locks",
            "deferred.from-several-threads",
            "random.same-bits",
            "random.in-chunks",
            "random.from-a-cell",
            "random.fills",
            "random.known-values",
            "random.stream-order",
            "random.streams-share-nothing",
            "random.refused",
            "random.own-generators",
            "random.failed-start",
        ],
    ),
];

#[test]
fn every_case_passes_or_is_known_to_be_missing() {
    let kind = anyaccel_template::driver().kind();
    let mut subject = Subject::new(kind, |_| Ok(Made::new(anyaccel_template::driver())));
    for &(reason, patterns) in NOT_YET {
        for pattern in patterns {
            subject = subject.not_yet(pattern, reason);
        }
    }
    let report = run(&subject, &Options::default());
    println!("{report}");
    assert!(report.is_ok(), "an entry is missing from the list above, or is stale");

    // While the device is the template's, discovery works and all else is a gap.
    let tally = report.tally();
    assert!(tally.known_gaps > 200 && tally.passed < 40, "{tally:?}");
    for case in &report.cases {
        if let Verdict::KnownGap { reason, .. } = &case.verdict {
            assert!(reason.starts_with("not yet: "), "{}: {reason}", case.id);
        }
    }
}
