//! `anyaccel doctor`.

use crate::process::{run, run_with};

const LAYERS: [&str; 6] = ["library", "version", "device_nodes", "permissions", "mask", "probe"];

#[test]
fn it_examines_every_layer_of_every_backend() {
    let done = run(["doctor"]).good().narrow();
    for layer in LAYERS {
        assert!(done.out.contains(&layer.replace('_', " ")), "{layer} is not in {}", done.out);
    }
    assert!(done.out.contains("no problem found"), "{}", done.out);

    let document = run(["doctor", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.doctor.v1");
    for backend in document["backends"].as_array().expect("backends") {
        let checks = backend["checks"].as_array().expect("checks");
        // A layer may take several checks: one for each driver that is installed, say.
        let mut layers: Vec<&str> = checks.iter().filter_map(|check| check["layer"].as_str()).collect();
        layers.dedup();
        assert_eq!(layers, LAYERS, "{backend}");
        let verdicts = ["pass", "warn", "fail", "not_applicable"];
        let known = |check: &serde_json::Value| verdicts.iter().any(|verdict| check["verdict"] == *verdict);
        assert!(checks.iter().all(known), "{backend}");
    }
}

#[test]
fn bad_variables_are_told_and_fail() {
    let bad = ("ANYACCEL_HOST_DEVICES", "abc");
    let done = run_with(&[bad], &["doctor"]).bad(1, &["ANYACCEL_HOST_DEVICES='abc'"]).narrow();
    assert!(done.out.contains("FAIL") && done.out.contains("problem"), "{}", done.out);

    let done = run_with(&[bad, ("ANYACCEL_BACKEND", "bogus")], &["doctor", "--json"]);
    let document = done.bad(1, &["2 problems", "ANYACCEL_BACKEND"]).json();
    assert_eq!(document["problems"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["selection"]["variable"], "bogus");
    assert_eq!(document["selection"]["kind"], serde_json::Value::Null);

    // Settings that the first start would refuse.
    let settings = ("ANYACCEL_ALLOC_CONF", "max_split_size_mb:1");
    let done = run_with(&[settings, ("ANYACCEL_BACKEND", "host")], &["doctor"]);
    let done = done.bad(1, &["ANYACCEL_ALLOC_CONF", "'max_split_size_mb:1'"]).narrow();
    assert!(done.out.contains("problem"), "{}", done.out);
}

#[test]
fn a_mask_of_a_backend_that_nobody_named_is_shown_and_no_failure() {
    let done = run_with(&[("ANYACCEL_HOST_DEVICES", "0")], &["doctor"]).good();
    assert!(done.out.contains("ANYACCEL_HOST_DEVICES=0"), "{}", done.out);
}
