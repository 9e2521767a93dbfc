//! `anyaccel cts`.

use crate::process::run;

#[test]
fn a_case_runs_on_each_backend() {
    let arguments = ["cts", "--filter", "order.*", "--json"];
    let document = run(arguments).good().json();
    assert_eq!(document["schema"], "anyaccel.cts.v1");
    assert_eq!(document["ok"], true);
    let reports = document["reports"].as_array().expect("reports");
    let kinds: Vec<&str> = reports.iter().filter_map(|report| report["kind"].as_str()).collect();
    assert_eq!(kinds, ["cuda", "host", "opencl", "sim", "xpu"]);
    // What needs a driver may be absent on this machine.
    for report in reports.iter().filter(|report| report["absent"].is_null()) {
        let passed = |case: &serde_json::Value| case["verdict"] == "pass";
        assert!(report["cases"].as_array().expect("cases").iter().any(passed), "{report}");
    }
}

#[test]
fn people_see_the_counts_and_on_demand_every_case() {
    let done = run(["cts", "--backend", "sim", "--filter", "marks.*"]).good().narrow();
    assert!(done.out.contains(" 0 failed"), "{}", done.out);
    assert_eq!(done.out.matches("marks.").count(), 0, "{}", done.out);
    let done = run(["cts", "--backend", "sim", "--filter", "marks.*", "--verbose"]).good();
    assert!(done.out.matches("marks.").count() > 1, "{}", done.out);
}

#[test]
fn the_list_maps_promises_to_cases() {
    let done = run(["cts", "--list"]).good();
    assert!(done.out.contains("H8 (rule)"), "{}", done.out);
    let document = run(["cts", "--list", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.cts-list.v1");
    let promises = document["promises"].as_array().expect("promises");
    let order = promises.iter().find(|promise| promise["id"] == "H8").expect("rule H8");
    assert!(order["cases"].as_array().is_some_and(|cases| !cases.is_empty()), "{order}");
}

#[test]
fn names_that_nobody_knows_are_refused() {
    run(["cts", "--backend", "bogus"]).bad(2, &["'bogus'", "host", "sim"]);
    run(["cts", "--require", "bogus"]).bad(2, &["'bogus'", "cuda"]);
    run(["cts", "--filter", "no.such.case"]).bad(2, &["'no.such.case'", "--list"]);
}

#[test]
fn a_required_backend_that_is_not_in_this_build_fails() {
    let done = run(["cts", "--require", "mtia", "--json"]).bad(1, &["mtia", "required"]);
    assert_eq!(done.json()["error"]["class"], "device");
}
