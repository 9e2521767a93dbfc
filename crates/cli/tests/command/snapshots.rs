//! `anyaccel replay`, `tune` and `memory` of snapshots.

use crate::process::{Done, TestFile, command, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots")
}

fn file(name: &str) -> String {
    data().join(name).to_string_lossy().into_owned()
}

fn lines(done: &Done) -> Vec<Value> {
    done.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The rows of the sweep of one program with so much memory.
fn rows(workload: &str, total_mb: u64) -> Vec<Value> {
    let text = std::fs::read_to_string(data().join("sweep.jsonl")).expect("the sweep");
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
    all.filter(|row| row["workload"] == workload && row["total_mb"] == total_mb).collect()
}

#[test]
fn each_setting_is_a_line_with_the_keys_of_the_sweep() {
    let rows = rows("decode", 900);
    assert_eq!(rows.len(), 16);
    let mut command = command(["replay", "--json", &file("decode.default.pickle.gz"), "--memory", "900MiB"]);
    for row in &rows {
        command.args(["--conf", row["config"].as_str().expect("a setting")]);
    }
    let done: Done = command.output().expect("it runs").into();
    let told = lines(&done.good());
    assert_eq!(told.len(), rows.len());
    for (told, row) in told.iter().zip(&rows) {
        let mut expected: serde_json::Map<String, Value> = row.as_object().expect("an object").clone();
        expected.remove("workload");
        let step = expected.remove("oom_step").expect("the step");
        let mut told = told.as_object().expect("an object").clone();
        let event = told.remove("oom_event").expect("the event");
        assert_eq!(told, expected);
        assert_eq!(event.is_null(), step.is_null(), "{row}");
    }
}

#[test]
fn the_event_that_failed_is_an_index_into_the_trace() {
    let done = run(["replay", "--json", &file("oom_varlen.default.pickle.gz"), "--conf", ""]).good();
    // The file tells of the memory of the device, since a request failed.
    let told = &lines(&done)[0];
    assert_eq!((told["total_mb"].as_u64(), told["oom_event"].as_u64()), (Some(4400), Some(12889)));
}

#[test]
fn settings_stand_side_by_side() {
    let long = "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.95";
    let arguments = ["--conf", "", "--conf", "expandable_segments:True", "--conf", long, "--memory", "4400MiB"];
    let trace = file("oom_varlen.exp.pickle.gz");
    let done = run(["replay", &trace].iter().chain(&arguments)).good();
    let out = &done.out;
    for words in ["default", "expandable_segments:True", "#3", "NO", "runs out at event", "348.25 MiB", "4.3 GiB"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let wide: Vec<&str> = out.lines().filter(|line| line.chars().count() > 80 && !line.contains('/')).collect();
    assert!(wide.is_empty(), "{wide:?}");
    // A file of settings, and one of circumstances.
    let list = TestFile::new("settings.txt", b"# two\ndefault\nexpandable_segments:True\n");
    let done = run(["replay", "--json", &trace, "--conf-file", list.name(), "--memory", "4400MiB"]).good();
    assert_eq!(lines(&done).len(), 2);
    let conf = TestFile::new("run.conf", b"FAKE_CUDA_TOTAL_MB=4400\nPYTORCH_ALLOC_CONF=max_split_size_mb:64\n");
    let done = run(["replay", "--json", &trace, "--conf-file", conf.name()]).good();
    let told = &lines(&done)[0];
    assert_eq!((told["total_mb"].as_u64(), told["config"].as_str()), (Some(4400), Some("max_split_size_mb:64")));
    // Without a setting it is that of the recording.
    assert_eq!(lines(&run(["replay", "--json", &trace]).good())[0]["config"], "expandable_segments:True");
}

#[test]
fn each_device_is_told_of() {
    let done = run(["replay", "--json", &file("two_devices.pickle.gz")]).good();
    let told = &lines(&done)[0];
    let peaks: Vec<u64> =
        told["devices"].as_array().expect("devices").iter().filter_map(|d| d["peak_reserved"].as_u64()).collect();
    assert_eq!(peaks, [205_520_896, 318_767_104]);
    assert_eq!(told["peak_reserved"], 205_520_896);
    let text = run(["replay", &file("two_devices.pickle.gz")]).good().out;
    assert!(text.contains("device    0") && text.contains("device    1") && text.contains("no --memory"), "{text}");
}

#[test]
fn what_a_recording_cannot_tell_is_said() {
    let text = |name: &str, memory: &str| {
        let out = run(["replay", &file(name), "--memory", memory]).good().out;
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(text("gpt_fixed_ring3000.pickle.gz", "80GiB").contains("began in the middle"));
    assert!(text("oom_varlen.default.pickle.gz", "80GiB").contains("would have succeeded"));
    assert!(text("edge/edge_context_none.pickle", "80GiB").contains("no event has a stack"));
    // Two streams under pressure: by how much the numbers may err.
    let streams = text("streams.pickle.gz", "560MiB");
    assert!(streams.contains("may be off by up to"), "{streams}");
    assert!(!text("streams.pickle.gz", "80GiB").contains("may be off"));
}

#[test]
fn tuning_prints_what_to_paste() {
    let trace = file("oom_varlen.exp.pickle.gz");
    let arguments = ["tune", &trace, "--memory", "4400MiB", "--settings", "8"];
    let out = run(arguments).good().out;
    for words in ["run out of memory", "expandable_segments:True", "to spare", "Runners-up"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(out.contains("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"), "{out}");
    assert!(out.contains("export ANYACCEL_ALLOC_CONF=expandable_segments:True\n"), "{out}");
    let document = run(arguments.iter().chain(&["--json", "--conf", "max_split_size_mb:33"])).good().json();
    assert_eq!(document["schema"], "anyaccel.tune.v1");
    assert_eq!(document["best"]["settings"], "expandable_segments:True");
    let candidates = document["candidates"].as_array().expect("candidates");
    assert!(candidates.iter().any(|candidate| candidate["settings"] == "max_split_size_mb:33"));
    assert_eq!(candidates.len(), 9);
    // Where nothing helps it says so.
    let done = run(["tune", &trace, "--memory", "1GiB", "--settings", "4"]).bad(1, &["under none of 4 settings"]);
    assert!(done.out.contains("farthest"), "{}", done.out);
    run(["tune", &trace]).bad(2, &["--memory"]);
    run(["tune", &trace, "--memory", "5x"]).bad(2, &["--memory", "24GiB"]);
    run(["tune", &trace, "--memory", "1GiB", "--conf", "foo:1"]).bad(2, &["foo:1"]);
}

#[test]
fn memory_is_explained_in_words() {
    let trace = file("oom_varlen.default.pickle.gz");
    let out = run(["memory", &trace]).good().narrow().out;
    for words in
        ["Out of memory", "348.25 MiB", "at the peak", "Never given back", "Churn", "pins free memory", "model.py:33"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
    let document = run(["memory", "--json", &trace]).good().json();
    assert_eq!(document["schema"], "anyaccel.memory.v1");
    let device = &document["devices"][0];
    assert_eq!((device["peak_allocated"].as_u64(), device["ooms"].as_u64()), (Some(3_853_034_672), Some(1)));
    assert!(device["out_of_memory"][0]["words"].as_array().is_some_and(|words| words.len() > 3));
    for name in ["edge/edge_empty.pickle", "edge/edge_unicode_names.pickle", "two_devices.pickle.gz", "graph.pickle.gz"]
    {
        run(["memory", &file(name)]).good().narrow();
        run(["memory", "--json", &file(name)]).good().json();
    }
}

#[test]
fn a_snapshot_may_come_from_standard_input() {
    let mut child = command(["memory", "--json", "-"])
        .stdin(std::fs::File::open(file("edge/edge_mempool.pickle")).expect("the file"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn bad_snapshots_are_one_line_for_each_command() {
    let whole = std::fs::read(data().join("edge/edge_mempool.pickle")).expect("the file");
    let gzip = std::fs::read(data().join("graph.pickle.gz")).expect("the file");
    let mut damaged = gzip.clone();
    damaged[5000] ^= 0x10;
    let mut flipped = whole.clone();
    flipped[700] = 0xff;
    let event = |addr: u64, size: i64| format!("(dVaction\nValloc\nsVaddr\nI{addr}\nsVsize\nI{size}\nsa");
    let trace = |events: &str| format!("(dVsegments\n(lsVdevice_traces\n(l(l{events}as.");
    let free = |addr: u64| format!("(dVaction\nVfree_requested\nsVaddr\nI{addr}\nsVsize\nI4096\nsa");
    let overlapping = [event(4096, 4096), event(6144, 4096), free(4096), free(6144)].concat();
    let bad: &[(&str, Vec<u8>, &[&str])] = &[
        ("truncated", whole[..2000].to_vec(), &["ends at byte 2000", "cut off"]),
        ("packed", gzip[..8000].to_vec(), &["gzip", "cut off"]),
        ("damaged", damaged, &["byte"]),
        ("flipped", flipped, &["byte"]),
        ("hostile", b"cos\nsystem\n(S'true'\ntR.".to_vec(), &["GLOBAL os.system", "plain data"]),
        ("unrelated", b"\x80\x04]\x94(K\x01K\x02e.".to_vec(), &["a list"]),
        ("other", b"\x80\x04}\x94\x8c\x03keyK\x01s.".to_vec(), &["without 'segments'"]),
        ("zip", b"PK\x03\x04 and so on".to_vec(), &["zip archive"]),
        ("negative", trace(&event(4096, -1)).into_bytes(), &["'size' is -1"]),
        ("overlapping", trace(&overlapping).into_bytes(), &["event 1", "overlaps"]),
    ];
    for (name, content, words) in bad {
        let file = TestFile::new(format!("bad-{name}.pickle"), content);
        let words = [&[file.name()], *words].concat();
        for arguments in [&["replay"][..], &["memory"], &["tune", "--memory", "1GiB"]] {
            if name == &"hostile" && arguments[0] == "replay" {
                // A text, as far as the command can tell.
                run(arguments.iter().copied().chain([file.name()])).bad(1, &[file.name()]);
                continue;
            }
            let done = run(arguments.iter().copied().chain([file.name()])).bad(1, &words);
            assert_eq!(done.out, "");
            let done = run(arguments.iter().copied().chain([file.name(), "--json"])).bad(1, &words);
            assert_eq!(done.json()["error"]["class"], "input");
        }
    }
    for arguments in [&["memory"][..], &["tune", "--memory", "1GiB"]] {
        run(arguments.iter().copied().chain(["/nowhere/at/all"])).bad(1, &["can't open", "/nowhere/at/all"]);
        run(arguments.iter().copied().chain([env!("CARGO_TARGET_TMPDIR")])).bad(1, &["is a directory"]);
    }
    let fine = file("edge/edge_mempool.pickle");
    run(["replay", &fine, "--conf", "max_split_size_mb:1"]).bad(2, &["--conf", "max_split_size_mb:1"]);
    run(["replay", &fine, "--memory", "much"]).bad(2, &["--memory"]);
    let several = TestFile::new("several.trace", b"stats_every 0\nalloc a 5 0\n");
    run(["replay", several.name(), "--conf", "", "--conf", ""]).bad(2, &["several --conf", several.name()]);
}

#[test]
fn keys_of_the_future_are_noted() {
    let content = "(dVsegments\n(lsVdevice_traces\n(l(lasVweather\nVfine\ns.";
    let file = TestFile::new("future.pickle", content.as_bytes());
    for arguments in [["memory", file.name()], ["replay", file.name()]] {
        let out = run(arguments).good().out;
        assert!(out.contains("'weather'"), "{out}");
    }
}

#[test]
fn help_fits_and_has_examples() {
    for name in ["replay", "tune", "memory"] {
        let help = run([name, "--help"]).good().narrow();
        assert!(help.out.contains("Example:") && help.out.contains("Exit code:"), "{}", help.out);
        run([name, "-h"]).good().narrow();
    }
}
