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
#[cfg(unix)]
fn the_doctor_outlives_plugins_that_lose_the_process() {
    let (exits, sound) = (small("doctor_exits", &["EXITS_IN_CREATE"]), small("doctor_sound", &["NOISY"]));
    let done = with_plugins(&[&exits, &sound], &[], &["doctor", "--json"]);
    assert_eq!(done.code, Some(1), "{done:#?}");
    assert!(done.err.contains("libcli_doctor_exits.so: the plugin ended the process when it is asked"), "{done:#?}");
    let document = done.json();
    let problem = document["plugins"][0]["problem"].as_str().unwrap_or_default();
    assert!(problem.starts_with("the plugin ended the process") && problem.contains("exit status: 0"), "{document}");
    assert_eq!(document["plugins"][1]["kind"], "npu");
    assert_eq!(document["problems"].as_array().map(Vec::len), Some(1), "{document}");
    let text = with_plugins(&[&exits], &[], &["doctor"]);
    let text = text.bad(1, &["libcli_doctor_exits.so"]).out;
    assert!(text.contains("refused") && text.contains("problem") && !text.contains("no problem"), "{text}");
    let info = with_plugins(&[&exits], &[], &["info"]);
    info.bad(1, &["libcli_doctor_exits.so: the plugin ended the process", "anyaccel doctor"]);
}

#[test]
fn the_doctor_finds_a_problem_where_a_plugin_has_none_of_its_drivers() {
    let none = small("doctor_no_drivers", &["NO_DRIVERS"]);
    let done = with_plugins(&[&none], &[], &["doctor"]).bad(1, &["ANYACCEL_PLUGINS", "npu", "no firmware"]);
    assert!(done.out.contains("FAIL") && !done.out.contains("no problem"), "{done:#?}");
}

#[test]
fn a_command_that_starts_without_a_refused_plugin_says_so() {
    let wrong = small("noted", &["MAJOR=3"]);
    for command in [&["random", "uniform", "--backend", "host"][..], &["demo", "--backend", "host"]] {
        let done = with_plugins(&[&wrong], &[], command);
        assert_eq!(done.code, Some(0), "{done:#?}");
        let said = "anyaccel: ANYACCEL_PLUGINS: ";
        assert!(done.err.starts_with(said) && done.err.lines().count() == 1, "{done:#?}");
        assert!(done.err.contains("libcli_noted.so is not used: ") && done.err.contains("ABI 3.0"), "{done:#?}");
    }
}

#[test]
#[cfg(unix)]
fn a_plugin_that_takes_work_down_is_told_in_a_line_by_its_name() {
    let loads = small("work_exits", &["EXITS_IN_CREATE"]);
    let works = small("work_crashes", &["CRASHES"]);
    let ends = small("work_ends", &["EXITS_IN_ALLOC"]);
    for command in [&["demo"][..], &["random", "uniform"]] {
        let with = |more: &[&'static str]| -> Vec<&str> { command.iter().chain(more).copied().collect() };
        for (plugin, class, words) in [
            (
                &loads,
                "environment",
                ["libcli_work_exits.so: the plugin ended the process when it is", "anyaccel doctor"],
            ),
            (&works, "device", ["libcli_work_crashes.so: the plugin took the process down", "signal: 6 (SIGABRT)"]),
            (&ends, "device", ["libcli_work_ends.so: the plugin ended the process in the midst", "exit status: 0"]),
        ] {
            with_plugins(&[plugin], &[], &with(&["--backend", "npu"])).bad(1, &words);
            let done = with_plugins(&[plugin], &[], &with(&["--backend", "npu", "--json"])).bad(1, &words);
            let document = done.json();
            let error = &document["error"];
            assert_eq!((&document["schema"], &error["class"]), (&"anyaccel.error.v1".into(), &class.into()));
            assert!(done.err.contains(error["message"].as_str().expect("a message")), "{done:#?}");
        }
        // What it says of the command line it says as without a plugin.
        with_plugins(&[&works], &[], &with(&["--backend", "nonesuch"])).bad(2, &["'nonesuch'"]);
    }
}

#[test]
#[cfg(unix)]
fn a_plugin_that_dies_at_the_end_spoils_no_result() {
    let crashes = small("work_crashes_at_exit", &["CRASHES_AT_EXIT"]);
    let done = with_plugins(&[&crashes], &[], &["random", "uniform", "--backend", "npu", "--json"]);
    let done = done.bad(1, &["the plugin took the process down at the end of the process", "signal: 6"]);
    let alone = run(["random", "uniform", "--backend", "host", "--json"]).good().json();
    assert_eq!((&done.json()["values"], &done.json()["device"]), (&alone["values"], &"npu:0".into()));
}

#[test]
#[cfg(unix)]
fn work_beside_plugins_is_as_without_them() {
    use std::io::{Read, Write};
    use std::process::Stdio;
    let noisy = small("work_noisy", &["NOISY"]);
    let with = |arguments: &[&str]| {
        let mut command = crate::process::command(arguments);
        command.env("ANYACCEL_PLUGINS", &noisy).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command runs")
    };
    // More than a pipe or a socket holds.
    let input = crate::process::noise(3 << 20);
    let mut child = with(&["demo", "--backend", "host", "--json", "-"]);
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&input).expect("it is read");
    drop(stdin);
    let done: Done = child.wait_with_output().expect("it ends").into();
    let document = done.json();
    assert_eq!((done.code, document["input"]["bytes"].as_u64()), (Some(0), Some(3 << 20)), "{done:#?}");
    assert_eq!((&document["check"]["ok"], &document["check"]["how"]), (&true.into(), &"alongside".into()));

    let many = ["random", "bits", "--backend", "host", "-n", "200000"];
    let done: Done = with(&many).wait_with_output().expect("it ends").into();
    assert!(done.code == Some(0) && done.out == run(many).good().out, "{:?} {}", done.code, done.err);

    // Whoever reads has had enough.
    let mut child = with(&["random", "bits", "--backend", "host", "-n", "16777216"]);
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 10]).expect("numbers");
    drop(stdout);
    let done: Done = child.wait_with_output().expect("it ends").into();
    assert_eq!(done.code, Some(141), "{done:#?}");
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

/// The cases of a run's first report that ended so.
#[cfg(unix)]
fn cases<'a>(document: &'a serde_json::Value, verdict: &str) -> Vec<&'a serde_json::Value> {
    let cases = document["reports"][0]["cases"].as_array().unwrap_or_else(|| panic!("{document}"));
    cases.iter().filter(|case| case["verdict"] == verdict).collect()
}

#[test]
#[cfg(unix)]
fn a_case_in_which_the_process_is_lost_has_failed_and_the_others_go_on() {
    let crashes = small("crashes_in_stamp", &["CRASHES_IN_STAMP"]);
    let filter = ["--filter", "marks.rise*", "--filter", "time.same*", "--filter", "pinned.*"];
    let arguments: Vec<&str> = ["cts", crashes.to_str().expect("a Unicode path")].into_iter().chain(filter).collect();
    let done = run(arguments.iter().copied().chain(["--json"]));
    assert_eq!(done.code, Some(1), "{done:#?}");
    let document = done.json();
    let failed = cases(&document, "fail");
    assert!(!failed.is_empty() && failed.iter().all(|case| case["level"] == "hal"), "{document}");
    for case in &failed {
        assert!(case["id"].as_str().is_some_and(|id| id.starts_with("time.")), "{case}");
        let seen = case["seen"].as_str().unwrap_or_default();
        assert!(seen.starts_with("the plugin took the process down (signal: 6"), "{case}");
    }
    // What was before it and what is behind it was judged as without it.
    let sound = small("beside_crashes", &[]);
    let others = run(["cts", sound.to_str().expect("a Unicode path")].into_iter().chain(filter).chain(["--json"]));
    let others = others.json();
    let ids = |document: &serde_json::Value| -> Vec<String> {
        let all = document["reports"][0]["cases"].as_array().cloned().unwrap_or_default();
        all.iter().map(|case| case["id"].to_string()).collect()
    };
    assert_eq!(ids(&document), ids(&others));
    assert!(!cases(&document, "pass").is_empty(), "{document}");
    let text = run(arguments);
    assert!(text.out.contains("FAIL") && text.out.contains("signal: 6"), "{text:#?}");
    assert!(text.err.contains("failed, the first: time."), "{text:#?}");
}

#[test]
#[cfg(unix)]
fn a_plugin_that_loses_every_process_is_given_up() {
    let crashes = small("crashes", &["CRASHES"]);
    let filter = ["--filter", "memory.*", "--filter", "copy.*"];
    let arguments = ["cts", crashes.to_str().expect("a Unicode path"), "--json"].into_iter().chain(filter);
    let arguments: Vec<&str> = arguments.collect();
    let document = run(&arguments).json();
    let lost = |case: &&&serde_json::Value| case["seen"].to_string().contains("took the process down");
    assert_eq!(cases(&document, "fail").iter().filter(lost).count(), 20, "{document}");
    let complaint = document["reports"][0]["complaints"][0].to_string();
    assert!(
        complaint.contains("20 processes were lost; given up, ") && complaint.contains(" were not run"),
        "{complaint}"
    );
    let first = run(arguments.into_iter().chain(["--fail-fast"])).json();
    assert_eq!(cases(&first, "fail").len(), 1, "{first}");
    assert_eq!(first["reports"][0]["complaints"], serde_json::json!([]));
}

#[test]
#[cfg(unix)]
fn a_plugin_that_ends_the_process_is_told_with_the_case() {
    let exits = small("exits", &["EXITS_IN_ALLOC"]);
    let sound = small("behind_exits", &[]);
    let libraries = [&exits, &sound].map(|library| library.to_str().expect("a Unicode path"));
    let arguments = ["cts", libraries[0], libraries[1], "--filter", "memory.segments-lie-apart", "--json"];
    let done = run(arguments);
    let document = done.json();
    let failed = cases(&document, "fail");
    assert!(!failed.is_empty(), "{document}");
    assert_eq!(failed[0]["seen"], "the plugin ended the process (exit status: 0)");
    // The next library has its turn.
    assert_eq!(
        (&document["ok"], document["reports"][1]["cases"][0]["verdict"].as_str()),
        (&false.into(), Some("pass"))
    );

    let exits = small("exits_early", &["EXITS_IN_CREATE"]);
    let library = exits.to_str().expect("a Unicode path");
    for more in [&["--filter", "memory.*"][..], &["--list"]] {
        run(["cts", library].iter().chain(more).copied())
            .bad(1, &["the plugin ended the process before the first case of ", "exit status: 0"]);
    }
}

#[test]
#[cfg(unix)]
fn a_plugin_that_takes_the_process_down_at_its_end_is_told() {
    let crashes = small("crashes_at_exit", &["CRASHES_AT_EXIT"]);
    let done = run(["cts", crashes.to_str().expect("a Unicode path"), "--filter", "marks.rise", "--json"]);
    let done = done.bad(1, &["the plugin took the process down after the last case", "signal: 6"]);
    let document = done.json();
    assert_eq!((cases(&document, "pass").len(), &document["ok"]), (1, &false.into()), "{document}");
}

#[test]
#[cfg(unix)]
fn what_a_plugin_prints_is_in_no_document() {
    let noisy = small("noisy", &["NOISY"]);
    let library = noisy.to_str().expect("a Unicode path");
    for more in [&["--filter", "marks.rise"][..], &["--list"]] {
        let done = run(["cts", library, "--json"].iter().chain(more).copied());
        assert!(done.code == Some(0) && done.err.contains("is made"), "{done:#?}");
        assert!(done.json()["schema"].is_string(), "{done:#?}");
    }
}

#[test]
#[cfg(unix)]
fn a_plugin_that_hangs_before_the_first_case_is_given_up() {
    let hangs = small("hangs", &["HANGS"]);
    let done = run(["cts", hangs.to_str().expect("a Unicode path"), "--timeout", "1"]);
    done.bad(1, &["the plugin hangs before the first case of ", "libcli_hangs.so", "nothing happened for 10s"]);
}
