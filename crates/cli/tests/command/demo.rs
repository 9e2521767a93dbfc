//! `anyaccel demo`.

use crate::process::{Done, TestFile, command, noise, path, run, run_with};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::process::Stdio;

/// Runs the demo on a file and returns its document.
#[track_caller]
fn demo(file: &TestFile, more: &[&str]) -> Value {
    let mut arguments = vec!["demo", file.name(), "--json"];
    arguments.extend(more);
    run(arguments).good().json()
}

/// A number of a document.
#[track_caller]
fn number(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} is not in {document:#}"))
}

#[test]
fn without_a_file_it_counts_its_own_program() {
    let document = run(["demo", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.demo.v1");
    let len = std::fs::metadata(env!("CARGO_BIN_EXE_anyaccel")).expect("the program").len();
    assert_eq!(document["input"]["bytes"], len);
    assert_eq!(document["check"]["ok"], true);
    assert_eq!(document["check"]["how"], "second_pass");
    assert!(number(&document, "/check/speedup") > 0.0);
}

#[test]
fn it_says_that_it_fell_back_to_the_host_and_only_then() {
    let file = TestFile::new("fallback", b"abc");
    let done = run(["demo", file.name()]).good().narrow();
    let selection = run(["info", "--json"]).good().json()["selection"].take();
    let none = selection["reason"].as_str().is_some_and(|reason| reason.contains("no device"));
    let found = !selection["kind"].is_null() && !none;
    assert_eq!(done.out.contains("using the built-in host device"), !found, "{}", done.out);
    assert_eq!(demo(&file, &[])["device"]["fallback"].is_string(), !found);
    assert!(demo(&file, &["--backend", "host"])["device"]["fallback"].is_null());
    let named = run_with(&[("ANYACCEL_BACKEND", "host")], &["demo", file.name(), "--json"]).good().json();
    assert!(named["device"]["fallback"].is_null());
    assert_eq!(named["device"]["name"], "host:0");
}

#[test]
fn streams_share_the_chunks_and_their_times_add_up() {
    let file = TestFile::new("streams", &noise(1_000_003));
    let document = demo(&file, &["--streams", "3", "--chunk", "64KiB"]);
    assert_eq!(document["input"]["chunks"], 16);
    let streams = document["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 3);
    let sum = |what: &str| streams.iter().filter_map(|stream| stream[what].as_u64()).sum::<u64>();
    assert_eq!((sum("chunks"), sum("bytes")), (16, 1_000_003));
    for stream in streams {
        let [copy, kernel, idle] = ["copy_ms", "kernel_ms", "idle_ms"].map(|what| stream[what].as_f64().expect("ms"));
        assert!(copy >= 0.0 && kernel > 0.0 && idle >= 0.0, "{stream}");
        assert!(copy + kernel + idle >= number(&document, "/pass/device_ms") - 1e-6, "{document:#}");
    }
    assert!(number(&document, "/entropy_bits_per_byte") > 7.99);
}

#[test]
fn a_graph_is_captured_once_and_replayed_for_every_chunk() {
    let file = TestFile::new("graph", &noise(1_000_003));
    let expected = demo(&file, &[]);
    assert!(expected["graph"].is_null());
    for backend in ["host", "sim"] {
        let document = demo(&file, &["--graph", "--backend", backend, "--streams", "3", "--chunk", "64KiB"]);
        assert_eq!(document["check"]["ok"], true);
        assert_eq!(document["top"], expected["top"]);
        // The last chunk is shorter, and counted without a graph.
        assert_eq!(document["graph"], serde_json::json!({"captures": 3, "nodes": 4, "replays": 15}), "{backend}");
    }
    let done = run(["demo", "--graph", "--backend", "host", "--streams", "1", file.name()]).good().narrow();
    assert!(done.out.contains("4 nodes, captured once, replayed 3 times"), "{}", done.out);
    // Halves of a byte: one node each is left.
    let small = TestFile::new("graph-small", b"x");
    assert_eq!(demo(&small, &["--graph"])["graph"]["nodes"], 2);

    let dot = TestFile::new("graph.dot", b"");
    run(["demo", "--graph", "--dot", dot.name(), "--backend", "host", file.name()]).good();
    let text = std::fs::read_to_string(dot.name()).expect("a document");
    assert!(text.starts_with("digraph") && text.contains("histogram") && text.contains("upload"), "{text}");
    run(["demo", "--dot", dot.name(), file.name()]).bad(2, &["--graph"]);
    run(["demo", "--graph", "--dot", "/no/such/folder/g.dot", file.name()]).bad(1, &["/no/such/folder/g.dot"]);
}

#[test]
fn it_tells_what_it_took_of_memory() {
    let file = TestFile::new("memory", &noise(200_000));
    let document = demo(&file, &["--streams", "2", "--chunk", "64KiB", "--backend", "host"]);
    let memory = &document["memory"];
    // Two chunks and the counts, here and there; the small pool takes 2 MiB at a time.
    for side in ["device", "pinned"] {
        assert_eq!(memory[side]["requested_bytes_peak"], 2 * (64 << 10) + 2 * 2048, "{memory:#}");
        assert!(memory[side]["requests"].as_u64() >= Some(3), "{memory:#}");
        assert!(memory[side]["driver_calls"].as_u64() >= Some(1), "{memory:#}");
    }
    assert_eq!(memory["device"]["reserved_bytes_peak"], 2 << 20);
    assert_eq!(memory["device"]["segments"], 1);
    let out = run(["demo", file.name(), "--backend", "host"]).good().narrow().out;
    assert!(out.contains("driver calls") && out.contains("\npinned"), "{out}");
}

#[test]
fn every_way_to_cut_a_file_counts_the_same() {
    let file = TestFile::new("cuts", b"so it goes, and so it goes, and so will you soon, I suppose\n");
    let expected = demo(&file, &[]);
    let same = |document: &Value| ["entropy_bits_per_byte", "top"].iter().all(|key| document[key] == expected[key]);
    for cut in [["1", "1"], ["32", "1"], ["7", "9"], ["2", "1GiB"], ["32", "1M"]] {
        let document = demo(&file, &["--streams", cut[0], "--chunk", cut[1]]);
        assert!(same(&document), "{cut:?}: {document:#}");
    }
    assert!(same(&demo(&file, &["--backend", "sim"])));
    assert_eq!(expected["top"][0], serde_json::json!({"byte": 32, "count": 13}));
}

#[test]
fn an_empty_file_has_no_entropy() {
    let file = TestFile::new("empty", b"");
    let document = demo(&file, &[]);
    assert_eq!(document["input"]["bytes"], 0);
    assert_eq!(number(&document, "/entropy_bits_per_byte"), 0.0);
    assert_eq!(document["top"], serde_json::json!([]));
    assert_eq!(document["check"]["ok"], true);
    run(["demo", file.name()]).good().narrow();
}

#[test]
fn files_that_are_none_are_named() {
    run(["demo", "/nowhere/at/all"]).bad(1, &["/nowhere/at/all", "can't open"]);
    run(["demo", env!("CARGO_TARGET_TMPDIR")]).bad(1, &[env!("CARGO_TARGET_TMPDIR"), "directory"]);
    run(["demo", ""]).bad(2, &["FILE"]);
    let document = run(["demo", "--json", "/nowhere/at/all"]).bad(1, &["/nowhere"]).json();
    assert_eq!(document["error"]["class"], "input");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_opens_and_can_not_be_read_is_named() {
    run(["demo", "/proc/self/mem"]).bad(1, &["/proc/self/mem", "can't read"]);
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_a_length_are_read_once() {
    let document = run(["demo", "--json", "/proc/self/status"]).good().json();
    assert_eq!(document["check"]["how"], "alongside");
    assert!(number(&document, "/input/bytes") > 0.0);
}

#[cfg(unix)]
#[test]
fn a_name_need_not_be_unicode_and_never_reaches_the_terminal_raw() {
    use std::os::unix::ffi::OsStrExt;
    let odd = OsStr::from_bytes(b"odd-\xff\n\x1b[2J");
    let missing = path(odd);
    let done = run([OsStr::new("demo"), missing.as_os_str()]).bad(1, &["odd-"]);
    assert!(!done.err.contains('\x1b'), "{done:#?}");

    let file = TestFile::new(odd, b"aabb");
    let done = run([OsStr::new("demo"), file.0.as_os_str()]).good().narrow();
    assert!(done.out.contains("1.0000 bits") && !done.out.contains('\x1b'), "{}", done.out);
    run([OsStr::new("demo"), OsStr::new("--json"), file.0.as_os_str()]).good().json();
}

#[test]
fn standard_input_is_counted_along() {
    let data = noise(300_000);
    let mut command = command(["demo", "-", "--json", "--chunk", "64K"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    child.stdin.take().expect("a pipe").write_all(&data).expect("it reads");
    let done: Done = child.wait_with_output().expect("it ends").into();
    let document = done.good().json();
    assert_eq!(document["input"]["name"], "standard input");
    assert_eq!(document["input"]["bytes"], 300_000);
    assert_eq!((&document["check"]["ok"], &document["check"]["how"]), (&true.into(), &"alongside".into()));
    assert!(document["check"]["speedup"].is_null());
    assert_eq!(run(["demo", "-", "--json"]).good().json()["input"]["bytes"], 0);
}

#[cfg(unix)]
#[test]
fn a_file_as_standard_input_is_read_from_where_it_stands() {
    use std::io::{Seek, SeekFrom};
    let file = TestFile::new("stdin", b"xxxxyyyy");
    for (start, how) in [(0, "second_pass"), (4, "alongside")] {
        let mut open = std::fs::File::open(&file.0).expect("the file");
        open.seek(SeekFrom::Start(start)).expect("a file seeks");
        let done: Done = command(["demo", "-", "--json"]).stdin(open).output().expect("the command runs").into();
        let document = done.good().json();
        assert_eq!((&document["input"]["bytes"], &document["check"]["how"]), (&(8 - start).into(), &how.into()));
    }
}

#[cfg(unix)]
#[test]
fn a_fifo_is_streamed() {
    use std::os::unix::ffi::OsStrExt;
    let fifo = path("fifo");
    let name = std::ffi::CString::new(fifo.as_os_str().as_bytes()).expect("a plain name");
    // SAFETY: the name is a string that ends with 0.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut command = command([OsStr::new("demo"), fifo.as_os_str(), OsStr::new("--json"), OsStr::new("--chunk=512K")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let data = noise(700_001);
    let mut writer = std::fs::OpenOptions::new().write(true).open(&fifo).expect("a reader comes");
    // In odd pieces, so that reads are short.
    for piece in data.chunks(12_345) {
        writer.write_all(piece).expect("it reads");
    }
    drop(writer);
    let done: Done = child.wait_with_output().expect("it ends").into();
    std::fs::remove_file(&fifo).expect("the fifo");
    let document = done.good().json();
    assert_eq!((&document["input"]["bytes"], &document["input"]["chunks"]), (&700_001.into(), &2.into()));
    assert_eq!(document["check"]["ok"], true);
}

#[test]
fn unknown_backends_list_the_known() {
    run(["demo", "--backend", "bogus"]).bad(2, &["'bogus'", "host", "sim"]);
    run(["demo", "--backend", ""]).bad(2, &["host"]);
    run_with(&[("ANYACCEL_BACKEND", "bogus")], &["demo"]).bad(1, &["ANYACCEL_BACKEND", "'bogus'", "host"]);
    // An option wins over the variable.
    run_with(&[("ANYACCEL_BACKEND", "bogus")], &["demo", "--backend", "host", "--json"]).good();
}

#[test]
fn bad_or_hiding_variables_are_named_with_their_value() {
    for arguments in [&["demo"][..], &["demo", "--backend", "host"]] {
        for value in ["0", "abc", "", "-1"] {
            let named = format!("ANYACCEL_HOST_DEVICES='{value}'");
            run_with(&[("ANYACCEL_HOST_DEVICES", value)], arguments).bad(1, &[&named]);
        }
        run_with(&[("ANYACCEL_HOST_MEMORY", "much")], arguments).bad(1, &["ANYACCEL_HOST_MEMORY='much'"]);
    }
    let hidden = [("ANYACCEL_BACKEND", "host"), ("ANYACCEL_HOST_DEVICES", "0")];
    let document = run_with(&hidden, &["demo", "--json"]).bad(1, &["ANYACCEL_BACKEND=host", "='0'"]).json();
    assert_eq!(document["error"]["class"], "environment");
}

#[test]
fn a_device_that_is_too_small_says_what_to_lower() {
    let file = TestFile::new("small-device", &noise(8 << 20));
    let small = [("ANYACCEL_HOST_MEMORY", "8M")];
    run_with(&small, &["demo", file.name(), "--chunk", "2M"]).bad(1, &["--streams or --chunk", "8 MiB free"]);
    run_with(&small, &["demo", file.name(), "--chunk", "16K", "--json"]).good();
    // As small as a device can be.
    run_with(&[("ANYACCEL_HOST_MEMORY", "4096")], &["demo", file.name(), "--chunk", "1"]).bad(1, &["out of memory"]);
}
