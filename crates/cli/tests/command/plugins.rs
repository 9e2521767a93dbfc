//! Vendors' plugins: what the environment names, and `anyaccel cts` on a library.

use crate::process::{Done, run, run_with};
use std::path::PathBuf;

#[path = "../../../abi/tests/plugins/compile.rs"]
mod compile;

fn small(name: &str, definitions: &[&str]) -> PathBuf {
    compile::small(env!("CARGO_TARGET_TMPDIR"), &format!("cli_{name}"), definitions)
}

fn with_plugins(paths: &[&PathBuf], more: &[(&str, &str)], arguments: &[&str]) -> Done {
    let paths = std::env::join_paths(paths).expect("paths without separators");
    let paths = paths.to_str().expect("Unicode paths");
    let variables: Vec<(&str, &str)> = [("ANYACCEL_PLUGINS", paths)].into_iter().chain(more.iter().copied()).collect();
    run_with(&variables, arguments)
}

/// The plugin among a document's backends.
fn npu_of(document: &serde_json::Value) -> &serde_json::Value {
    let backends = document["backends"].as_array().expect("backends");
    backends.iter().find(|backend| backend["kind"] == "npu").unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn a_plugin_of_the_environment_is_chosen_by_itself() {
    let npu = small("npu", &[]);
    let document = with_plugins(&[&npu], &[], &["info", "--json"]).good().json();
    // NVIDIA's come before it, where there is one.
    let backends = document["backends"].as_array().expect("backends");
    let cuda = backends.iter().any(|backend| backend["kind"] == "cuda" && backend["present"].as_u64() > Some(0));
    assert_eq!(document["selection"]["kind"], if cuda { "cuda" } else { "npu" });
    let backend = npu_of(&document);
    assert_eq!(backend["visible"], 2);
    assert_eq!(backend["devices"][1]["name"], "Small NPU");
    let document = with_plugins(&[&npu], &[], &["doctor", "--json"]).good().json();
    assert_eq!(document["plugins"][0]["kind"], "npu");
    assert_eq!(document["plugins"][0]["problem"], serde_json::Value::Null);
}

#[test]
fn a_plugin_that_is_refused_is_explained_and_the_others_work() {
    let (npu, wrong) = (small("beside", &[]), small("wrong", &["MAJOR=3"]));
    let missing = PathBuf::from("/no/such/library.so");
    let relative = PathBuf::from("relative.so");
    let other = small("other_of_that_name", &[]);
    let named = [&wrong, &npu, &missing, &npu, &relative, &other];
    let done = with_plugins(&named, &[], &["doctor", "--json"]).bad(1, &["5 problems", "ABI 3.0"]);
    let document = done.json();
    let problem = |at: usize| document["plugins"][at]["problem"].as_str().unwrap_or_default().to_owned();
    assert_eq!(document["plugins"][1]["kind"], "npu");
    for (at, words) in [
        (0, "built for ABI 3.0, this is ABI 1.0"),
        (1, ""),
        (2, "can't be read"),
        (3, "loaded already, as 'npu'"),
        (4, "relative"),
        (5, "'npu' is taken by "),
    ] {
        assert!(problem(at).contains(words) && problem(at).lines().count() <= 1, "{at}: {}", problem(at));
    }
    let text = with_plugins(&named, &[], &["doctor"]).out;
    assert!(text.contains("refused") && text.contains("npu"), "{text}");
    let info = with_plugins(&named, &[("ANYACCEL_BACKEND", "npu")], &["info", "--json"]);
    assert_eq!(npu_of(&info.bad(1, &["ABI 3.0"]).json())["visible"], 2);
}

#[test]
fn naming_a_backend_whose_plugin_was_refused_tells_why() {
    let wrong = small("refused", &["MAJOR=3"]);
    let done = with_plugins(&[&wrong], &[("ANYACCEL_BACKEND", "npu")], &["demo"]);
    done.bad(1, &["'npu'", "libcli_refused.so", "ABI 3.0"]);
}

#[test]
fn the_suite_examines_a_library() {
    let npu = small("suite", &[]);
    let library = npu.to_str().expect("a Unicode path");
    let document = run(["cts", library, "--filter", "marks.rise", "--json"]).good().json();
    assert_eq!(document["reports"][0]["kind"], "npu");
    assert_eq!(document["reports"][0]["cases"][0]["verdict"], "pass");

    let garbage = small("garbage", &["GARBAGE"]);
    let arguments = ["cts", garbage.to_str().expect("a Unicode path"), "--filter", "memory.*"];
    let done = run(arguments.iter().copied().chain(["--json"])).bad(1, &["failed, the first: memory."]);
    let report = &done.json()["reports"][0];
    let failed = report["cases"].as_array().expect("cases").iter().find(|case| case["verdict"] == "fail");
    let failed = failed.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(failed["rule"], "H3", "{failed}");
    assert!(failed["expected"].is_string() && failed["seen"].is_string(), "{failed}");
    let text = run(arguments).bad(1, &["memory."]).out;
    assert!(text.contains("FAIL") && text.contains("H3, memory is backed") && text.contains("expected"), "{text}");

    let document = run(["cts", library, "--list", "--filter", "pinned.*", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.cts-plan.v1");
    let cases = document["plans"][0]["cases"].as_array().expect("cases");
    assert!(!cases.is_empty() && cases.iter().all(|case| case["skipped"].is_string()), "{cases:?}");
}

#[test]
fn the_suite_refuses_what_is_no_plugin_or_has_no_device() {
    run(["cts", "./no_such_library.so"]).bad(1, &["no_such_library.so", "can't be read"]);
    let none = small("none", &["DEVICES=0"]);
    run(["cts", none.to_str().expect("a Unicode path"), "--filter", "marks.*"]).bad(1, &["npu", "required"]);
    run(["cts", "--list", "--filter", "marks.*"]).bad(2, &["LIBRARY"]);
}

#[test]
#[cfg(unix)]
fn a_plugin_that_takes_the_process_down_is_told_with_the_case() {
    let crashes = small("crashes", &["CRASHES"]);
    let arguments = ["cts", crashes.to_str().expect("a Unicode path"), "--filter", "memory.*"];
    let done = run(arguments);
    assert_eq!(done.code, Some(1), "{done:#?}");
    assert!(done.err.contains("took the process down in the case memory.") && done.err.contains("signal"), "{done:#?}");
    let done = run(arguments.iter().copied().chain(["--json"]));
    assert_eq!(done.json()["error"]["class"], "wrong");
}

#[test]
#[cfg(unix)]
fn a_plugin_that_ends_the_process_is_told_with_the_case() {
    let exits = small("exits", &["EXITS_IN_ALLOC"]);
    let arguments = ["cts", exits.to_str().expect("a Unicode path"), "--filter", "memory.*"];
    run(arguments).bad(1, &["the plugin ended the process in the case memory."]);
    let done = run(arguments.iter().copied().chain(["--json"]));
    assert_eq!((done.code, &done.json()["error"]["class"]), (Some(1), &"wrong".into()));

    let exits = small("exits_early", &["EXITS_IN_CREATE"]);
    let library = exits.to_str().expect("a Unicode path");
    for more in [&["--filter", "memory.*"][..], &["--list"]] {
        run(["cts", library].iter().chain(more).copied())
            .bad(1, &["the plugin ended the process before the first case"]);
    }
}

#[test]
#[cfg(unix)]
fn a_plugin_that_hangs_before_the_first_case_is_given_up() {
    let hangs = small("hangs", &["HANGS"]);
    let done = run(["cts", hangs.to_str().expect("a Unicode path"), "--timeout", "1"]);
    done.bad(1, &["the plugin hangs before the first case of ", "libcli_hangs.so", "nothing happened for 10s"]);
}
