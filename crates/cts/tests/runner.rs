//! What the runner makes of subjects that are absent, excused, or that hang.

use anyaccel_cts::{Ask, Made, Options, Subject, Verdict, run, subjects};
use anyaccel_hal::Kind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn only(filter: &str) -> Options {
    Options { filter: vec![filter.into()], ..Options::default() }
}

fn absent() -> Subject {
    Subject::new(Kind::CUDA, |_| Err("no such library".into()))
}

#[test]
fn an_absent_backend_is_skipped_unless_it_is_required() {
    let report = run(&absent(), &only("marks.*"));
    assert!(report.is_ok() && report.tally().skipped > 5, "{report}");
    assert!(report.to_string().contains("no such library"));
    let report = run(&absent(), &Options { require: vec![Kind::CUDA], ..only("marks.*") });
    assert!(!report.is_ok(), "{report}");
    let report = run(&absent(), &Options { require: vec![Kind::HIP], ..only("marks.*") });
    assert!(report.is_ok(), "{report}");
}

#[test]
fn what_can_never_apply_is_not_run() {
    let report = run(&subjects::sim().never("marks.rise*", "a reason"), &only("marks.rise"));
    assert!(matches!(&report.cases[0].verdict, Verdict::Skip { reason } if reason.contains("a reason")), "{report}");
}

#[test]
fn a_known_gap_that_passes_fails_the_run() {
    let report = run(&subjects::sim().not_yet("marks.rise", "a reason"), &only("marks.rise"));
    assert!(!report.is_ok(), "{report}");
    assert!(matches!(report.cases[0].verdict, Verdict::Stale { .. }), "{report}");
}

#[test]
fn an_exemption_that_fits_no_case_fails_the_run() {
    let report = run(&subjects::sim().never("marks.rize", "a typo"), &only("marks.rise"));
    assert!(!report.is_ok() && report.to_string().contains("marks.rize"), "{report}");
}

#[test]
fn a_known_gap_that_fails_does_not_fail_the_run() {
    let broken = Subject::new(Kind::HOST, |ask| {
        let good = subjects::sim().make(ask)?;
        Ok(Made::new(good.driver()))
    });
    // The driver says `sim`, the subject `host`: a broken promise about the kind.
    let report = run(&broken, &only("discovery.probe"));
    assert!(matches!(&report.cases[0].verdict, Verdict::Fail(failure) if failure.rule == "H22"), "{report}");
    let report = run(&broken.not_yet("discovery.probe", "a reason"), &only("discovery.probe"));
    assert!(report.is_ok(), "{report}");
    assert!(matches!(&report.cases[0].verdict, Verdict::KnownGap { .. }), "{report}");
}

#[test]
fn a_case_that_hangs_fails_in_time() {
    let hanging = Subject::new(Kind::SIM, |ask| {
        // The first driver is the one that the runner asks for its abilities.
        static MADE: AtomicU32 = AtomicU32::new(0);
        if MADE.fetch_add(1, Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        subjects::sim().make(ask)
    });
    let options = Options { timeout: Duration::from_millis(300), ..only("marks.rise") };
    let report = run(&hanging, &options);
    let hangs = |verdict: &Verdict| matches!(verdict, Verdict::Fail(failure) if failure.seen.contains("hangs"));
    assert!(hangs(&report.cases[0].verdict), "{report}");
}

#[test]
fn a_case_that_panics_fails() {
    let panicking = Subject::new(Kind::SIM, |ask| {
        static MADE: AtomicU32 = AtomicU32::new(0);
        assert!(MADE.fetch_add(1, Ordering::SeqCst) == 0, "made twice");
        subjects::sim().make(ask)
    });
    let report = run(&panicking, &only("marks.rise"));
    let told = |verdict: &Verdict| matches!(verdict, Verdict::Fail(failure) if failure.seen.contains("made twice"));
    assert!(told(&report.cases[0].verdict), "{report}");
}

#[test]
fn a_device_may_have_more_siblings_than_a_case_asks_for() {
    let three = Subject::new(Kind::HOST, |ask| subjects::host().make(&Ask { devices: 3, ..*ask }));
    let filter = ["arguments.*", "devices.*", "streams.by-number", "events.of-a-device"].map(String::from).to_vec();
    let report = run(&three, &Options { filter, ..Options::default() });
    assert!(report.is_ok() && report.tally().passed > 10, "{report}");
}

#[test]
fn a_case_that_needs_more_memory_than_there_is_says_so() {
    let small = Subject::new(Kind::HOST, |ask| subjects::host().make(&Ask { memory: 64 << 20, ..*ask }));
    let pending = "reuse.pending-block-is-waited-for/growable";
    for (filter, needed) in [("graphs.out-of-memory*", 100), ("reuse.threads*", 88), (pending, 100)] {
        let report = run(&small, &only(filter));
        let reason = format!("needs {needed} MiB of memory, the device has 64");
        let told = |verdict: &Verdict| matches!(verdict, Verdict::Skip { reason: seen } if *seen == reason);
        assert!(!report.cases.is_empty(), "{filter}");
        assert!(report.cases.iter().all(|case| told(&case.verdict)), "{report}");
        assert!(report.is_ok(), "{report}");
    }
}
