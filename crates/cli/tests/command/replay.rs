//! `anyaccel replay`.

use crate::process::{Done, TestFile, command, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/allocator")
}

/// The parts of a recorded line that the recorded allocator leaves to chance, or that need not agree, made equal.
fn comparable(line: &str, chance: &[usize]) -> String {
    // Queries of events and waits for them; the text that is left keeps its order and its form.
    let mut value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let mut text = line.to_owned();
    if let Some(calls) = value["dev"].as_array() {
        let of = |calls: &[&Value]| calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let kept: Vec<&Value> = calls
            .iter()
            .filter(|call| !call.as_str().is_some_and(|call| call.starts_with(['E', 'Q', 'q', 'Z'])))
            .collect();
        let kept = if kept.is_empty() { String::new() } else { format!(",\"dev\":[{}]", of(&kept)) };
        text = text.replace(&format!(",\"dev\":[{}]", of(&calls.iter().collect::<Vec<_>>())), &kept);
    }
    if !chance.is_empty() {
        for key in ["inactive_split", "inactive_split_bytes"] {
            let Some(before) = value["stats"].get(key).map(ToString::to_string) else { continue };
            for pool in value["stats"][key].as_array_mut().expect("an array") {
                chance.iter().for_each(|&at| pool[at] = 0.into());
            }
            text = text.replace(&format!("\"{key}\":{before}"), &format!("\"{key}\":{}", value["stats"][key]));
        }
    }
    for segment in value["segments"].as_array().into_iter().flatten() {
        for block in segment["blocks"].as_array().into_iter().flatten().filter(|block| block[3] == 0) {
            let stale = format!("[{},{},{},0,", block[0], block[1], block[2]);
            text = text.replace(&stale, &format!("[{},0,{},0,", block[0], block[2]));
        }
    }
    text
}

/// Not only the values: order and form of every line are those of the recordings.
#[test]
fn every_recorded_history_is_told_byte_for_byte() {
    let (mut histories, mut lines) = (0, 0);
    for entry in std::fs::read_dir(data()).expect("the golden histories") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "trace") {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let conf = path.with_extension("conf");
        let done =
            run(["replay".as_ref(), path.as_os_str(), "--conf-file".as_ref(), conf.as_os_str(), "--json".as_ref()]);
        let seen = done.good().out;
        let mut expected = String::new();
        let file = std::fs::File::open(path.with_extension("expected.jsonl.gz")).expect("what was recorded");
        flate2::read::GzDecoder::new(file).read_to_string(&mut expected).expect("a text");
        let chance: &[usize] = match name.as_str() {
            "streams2_record" => &[1],
            "streams5_record" => &[1, 2, 3],
            _ => &[],
        };
        assert_eq!(seen.lines().count(), expected.lines().count(), "{name}");
        for (seen, expected) in seen.lines().zip(expected.lines()) {
            if seen != expected {
                assert_eq!(comparable(seen, chance), comparable(expected, chance), "{name}");
            }
            lines += 1;
        }
        histories += 1;
    }
    assert_eq!((histories, lines > 20_000), (33, true), "{lines} lines");
}

#[test]
fn a_history_is_summed_up_for_people() {
    let sum = |name: &str| -> Done {
        let [trace, conf] = ["trace", "conf"].map(|kind| format!("{name}.{kind}"));
        let mut command = command(["replay", &trace, "--conf-file", &conf]);
        command.current_dir(data()).output().expect("the command runs").into()
    };
    let done = sum("oom_256").good().narrow();
    for said in ["1 device of 256 MiB", "ran out of memory 45 times", "line 39", "The largest free run", "and 29 more"]
    {
        let out = done.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(out.contains(said), "{said} in {}", done.out);
    }
    let out = sum("two_devices_s101").good().narrow().out;
    assert!(out.contains("2 devices of 2 GiB") && !out.contains("ran out"), "{out}");
    // Resets of the statistics in the history do not touch the sum.
    let history = "stats_every 0\nalloc a 3000000 0\nfree a\nempty_cache\nreset_peak\nreset_accumulated\n\
        alloc b 18446744073709551615 0\n";
    let file = TestFile::new("sum.trace", history.as_bytes());
    let out = run(["replay", file.name(), "--conf", "large_segment_size_mb:32"]).good().out;
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.contains("32 MiB") && out.contains("2.86 MiB") && out.contains("1 EiB or more"), "{out}");
}

#[test]
fn bad_histories_are_one_line_with_number_text_and_what_was_expected() {
    let bad = |content: &[u8], words: &[&str]| {
        let file = TestFile::new("bad.trace", content);
        let done = run(["replay", file.name()]).bad(1, words);
        assert_eq!(done.out, "");
        let done = run(["replay", "--json", file.name()]).bad(1, words);
        assert!(done.out.lines().next().is_none_or(|line| line.starts_with('{')), "{done:#?}");
    };
    let line = |text: &str, words: &[&str]| {
        let content = format!("stats_every 0\nalloc a 5 0\n{text}\n");
        bad(content.as_bytes(), &[&["line 3", text], words].concat());
    };
    bad(b"", &["the file is empty"]);
    bad(b"\n\n  \n", &["empty"]);
    bad(b"hello\n", &["begins with 'hello'", "stats_every N"]);
    bad(b"{\"schema\":1}\n", &["begins with '{", "the trace of an allocator"]);
    bad(b"alloc a 5 0\n", &["begins with 'alloc", "stats_every N"]);
    bad(b"stats_every\n", &["line 1", "stats_every N"]);
    bad(b"stats_every -1\n", &["line 1"]);
    bad(b"stats_every 1\n\xff\xfe\n", &["line 2", "UTF-8"]);
    bad(&[b"stats_every 1\nalloc ".to_vec(), vec![b'x'; 70_000]].concat(), &["line 2", "longer than 64 KiB"]);
    bad(&vec![0; 1 << 20], &["line 1", "longer than 64 KiB"]);
    line("frobnicate 1", &["no operation", "alloc"]);
    line("stats_every 2", &["first line"]);
    line("free b", &["'b'"]);
    line("record b 1", &["'b'"]);
    line("alloc a 5 0", &["in use"]);
    line("alloc b 5", &["alloc ID SIZE STREAM"]);
    line("alloc b 5 0 0", &["alloc ID SIZE STREAM"]);
    line("alloc b -1 0", &["'-1'", "bytes"]);
    line("alloc b 18446744073709551616 0", &["below 2^64"]);
    line("alloc b 5 x", &["'x' is no stream"]);
    line("hold 2", &["neither 0 nor 1"]);
    line("device 1", &["no device 1"]);
    line("fraction x", &["'x'"]);
    line("pool_begin 1 x *", &["'x'", "pool_begin A B STREAM|*"]);
    run(["replay", "/nowhere/at/all"]).bad(1, &["/nowhere/at/all", "can't open"]);
    run(["replay", env!("CARGO_TARGET_TMPDIR")]).bad(1, &["is a directory"]);
    run(["replay"]).bad(2, &["<FILE>"]);
}

#[test]
fn operations_that_were_refused_are_told() {
    let file = TestFile::new("refused.trace", b"stats_every 0\nalloc fraction 5 0\nfraction 7\nfree fraction\n");
    let out = run(["replay", file.name()]).good().narrow().out;
    assert!(out.contains("3 operations: 1 request, 1 free\n"), "{out}");
    assert!(out.contains("refused   1 operation: line 3, fraction 7: "), "{out}");
    let fine = TestFile::new("nothing-refused.trace", b"stats_every 0\nalloc a 5 0\n");
    assert!(!run(["replay", fine.name()]).good().out.contains("\nrefused "), "a line of refusals");
}

#[test]
fn what_was_replayed_before_a_bad_line_is_told() {
    let file = TestFile::new("half.trace", b"stats_every 0\nalloc a 5 0\nfree a\nfree a\n");
    let done = run(["replay", "--json", file.name()]).bad(1, &["line 4"]);
    let lines: Vec<Value> = done.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!((lines.len(), done.out.lines().count()), (3, 3), "{done:#?}");
    assert_eq!((&lines[2]["schema"], &lines[2]["error"]["class"]), (&"anyaccel.error.v1".into(), &"input".into()));
    let file = TestFile::new("none.trace", b"stats_every 0\nfree a\n");
    let done = run(["replay", "--json", file.name()]).bad(1, &["line 2"]);
    assert_eq!(done.json()["error"]["class"], "input");
}

#[test]
fn bad_circumstances_name_the_file_the_key_and_the_value() {
    let trace = TestFile::new("fine.trace", b"stats_every 0\nalloc a 5 0\n");
    let bad = |content: &[u8], words: &[&str]| {
        let file = TestFile::new("bad.conf", content);
        run(["replay", trace.name(), "--conf-file", file.name()]).bad(1, &[&[file.name()], words].concat());
    };
    bad(b"x\n", &["line 1", "KEY=VALUE"]);
    bad(b"FAKE_CUDA_TOTAL_MB=x\n", &["FAKE_CUDA_TOTAL_MB=x", "MiB"]);
    bad(b"FAKE_CUDA_TOTAL_MB=99999999999\n", &["16777216"]);
    bad(b"FAKE_CUDA_DEVICES=0\n", &["1 to 64"]);
    bad(
        b"# comment\nPYTORCH_ALLOC_CONF=max_split_size_mb:1\n",
        &["PYTORCH_ALLOC_CONF", "max_split_size_mb:1", ">= 20"],
    );
    bad(b"\xff", &["UTF-8"]);
    bad(b"FAKE_CUDA_DEVICES=1\nFAKE_CUDA_DEVICE=2\n", &["line 2: 'FAKE_CUDA_DEVICE'", "FAKE_CUDA_DEVICES"]);
    bad(&vec![b'\n'; 70_000], &["longer"]);
    run(["replay", trace.name(), "--conf-file", "/nowhere/at/all"]).bad(1, &["/nowhere/at/all"]);
    run(["replay", trace.name(), "--conf", "foo:1"]).bad(2, &["--conf: 'foo:1': "]);
    run(["replay", trace.name(), "--conf", "foo"]).bad(2, &["--conf: 'foo': "]);
    let done = run(["replay", trace.name(), "--json", "--conf", "expandable_segments:yes"]).bad(2, &["True"]);
    assert_eq!(done.json()["error"]["class"], "usage");
}

/// An endless history is replayed as it comes, and its reader may leave.
#[test]
fn an_endless_history_is_replayed_as_it_comes() {
    let mut child = command(["replay", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        let mut written = input.write_all(b"stats_every 0\n");
        while written.is_ok() {
            written = input.write_all("alloc a 5 0\nfree a\n".repeat(500).as_bytes());
        }
    });
    let mut first = [0; 100];
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut first).expect("the first lines");
    assert!(first.starts_with(b"{\"i\":0,\"op\":\"alloc a 5 0\",\"r\":\"ok\""));
    drop(output);
    let done: Done = child.wait_with_output().expect("it ends").into();
    assert_eq!((done.code, done.err.as_str()), (Some(141), ""));
    writer.join().expect("the writer ends");
}

#[test]
fn help_fits_and_has_examples() {
    let help = run(["replay", "--help"]).good().narrow();
    assert!(help.out.contains("Example:") && help.out.contains("Exit code:"), "{}", help.out);
    run(["replay", "-h"]).good().narrow();
}
