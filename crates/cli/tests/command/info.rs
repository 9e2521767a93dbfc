//! `anyaccel info`.

use crate::process::{run, run_with};

#[test]
fn it_shows_the_host_device_and_that_it_is_not_chosen_by_itself() {
    let done = run(["info"]).good().narrow();
    assert!(done.out.contains("host:0") && done.out.contains("used only when named"), "{}", done.out);

    let document = run(["info", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.info.v1");
    assert_eq!(document["selection"]["variable"], serde_json::Value::Null);
    let backends = document["backends"].as_array().expect("backends");
    let host = backends.iter().find(|backend| backend["kind"] == "host").expect("the host backend");
    assert_eq!((&host["chosen_by_itself"], &host["visible"]), (&false.into(), &1.into()));
    let device = &host["devices"][0];
    assert_eq!((&device["index"], &device["known"]), (&0.into(), &true.into()));
    assert!(device["memory_bytes"].as_u64().is_some_and(|bytes| bytes >= 4096), "{device}");
    assert!(device["dtypes"].as_array().is_some_and(|all| all.contains(&"float32".into())), "{device}");
}

#[test]
fn variables_choose_and_count() {
    let done = run_with(&[("ANYACCEL_BACKEND", "host"), ("ANYACCEL_HOST_DEVICES", "3")], &["info", "--json"]).good();
    let document = done.json();
    assert_eq!(document["selection"]["kind"], "host");
    assert_eq!(document["selection"]["reason"], "host, named by ANYACCEL_BACKEND");
    let host = document["backends"].as_array().expect("backends").iter().find(|b| b["kind"] == "host");
    assert_eq!(host.expect("the host backend")["devices"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_hidden_device_has_a_reason_and_is_a_failure_only_if_it_was_named() {
    let hidden = ("ANYACCEL_HOST_DEVICES", "0");
    let done = run_with(&[hidden], &["info"]).good();
    assert!(done.out.contains("hidden by ANYACCEL_HOST_DEVICES='0'"), "{}", done.out);
    run_with(&[hidden, ("ANYACCEL_BACKEND", "host")], &["info"]).bad(1, &["ANYACCEL_HOST_DEVICES='0'", "'host'"]);
}

#[test]
fn bad_variables_fail_by_name_and_value_after_everything_was_shown() {
    let done = run_with(&[("ANYACCEL_BACKEND", "bogus")], &["info"]).bad(1, &["ANYACCEL_BACKEND", "'bogus'", "host"]);
    assert!(done.out.contains("host:0"), "{}", done.out);
    for value in ["abc", "-1", "65", ""] {
        let done = run_with(&[("ANYACCEL_HOST_DEVICES", value)], &["info", "--json"]);
        let done = done.bad(1, &[&format!("ANYACCEL_HOST_DEVICES='{value}'"), "0 to 64"]);
        // The document is that of info, and has the problem in it.
        let document = done.json();
        assert_eq!(document["schema"], "anyaccel.info.v1");
        assert_eq!(document["problems"].as_array().map(Vec::len), Some(1));
    }
    run_with(&[("ANYACCEL_HOST_MEMORY", "plenty")], &["info"]).bad(1, &["ANYACCEL_HOST_MEMORY='plenty'"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_named_all_the_same() {
    use std::os::unix::ffi::OsStrExt;
    let value = std::ffi::OsStr::from_bytes(b"\xff\n\x1b[2J");
    for variable in ["ANYACCEL_BACKEND", "ANYACCEL_HOST_DEVICES"] {
        let mut command = crate::process::command(["info"]);
        let done: crate::process::Done = command.env(variable, value).output().expect("the command runs").into();
        let done = done.bad(1, &[variable]);
        assert!(!done.err.contains('\x1b') && !done.out.contains('\x1b'), "{done:#?}");
    }
}
