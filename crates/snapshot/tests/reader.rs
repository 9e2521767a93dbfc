//! What the reader makes of files: those of PyTorch, old ones, damaged ones and hostile ones.
#![allow(missing_docs)]

mod pickle;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyaccel_snapshot::{Action, BlockState, Limits, ReadError, Snapshot, StackId, read_bytes, read_file, read_within};
use pickle::{Py, block, event, s, segment, snapshot};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots")
}

fn files() -> Vec<PathBuf> {
    let mut out = Vec::new();
    for dir in [data(), data().join("edge")] {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().contains(".pickle") {
                out.push(path);
            }
        }
    }
    out.sort();
    assert!(out.len() >= 30);
    out
}

fn edge(name: &str) -> Snapshot {
    read_file(&data().join("edge").join(format!("edge_{name}.pickle"))).unwrap()
}

fn error(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).map(|snapshot| snapshot.events()).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error:?}");
    error
}

#[test]
fn every_file_is_read_and_comes_back_the_same() {
    for path in files() {
        let first = read_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(first.notes, Vec::<String>::new(), "{}", path.display());
        let pickle = first.to_pickle();
        let again = read_bytes(&pickle).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(again.to_pickle(), pickle, "{}", path.display());
        assert_eq!(again.events(), first.events());
    }
}

#[test]
fn all_protocols_say_the_same() {
    let expected = edge("second_snapshot").to_pickle();
    for protocol in [0, 1, 2, 3, 5] {
        assert_eq!(edge(&format!("second_snapshot.protocol{protocol}")).to_pickle(), expected, "{protocol}");
    }
}

#[test]
fn odd_shapes() {
    assert_eq!(edge("empty").segments.len(), 0);
    assert_eq!(edge("no_history").events(), 0);
    assert!(edge("context_none").traces[0].events.iter().all(|event| event.stack == StackId::ABSENT));
    let state = edge("context_state");
    assert!(state.segments.iter().flat_map(|s| &s.blocks).any(|block| !state.stacks.get(block.stack).is_empty()));
    assert!(edge("double_stream").traces[0].events.iter().any(|event| event.stream != 0));
    assert!(edge("mempool").pools.contains(&(0, 1)));
    let oom = edge("oom_caught_twice");
    assert_eq!(oom.traces[0].events.iter().filter(|event| event.action == Action::Oom).count(), 2);
    let unicode = edge("unicode_names");
    assert!(unicode.names.iter().any(|name| !name.is_ascii()) && unicode.names.iter().any(|name| name.len() > 255));
    let streams = read_file(&data().join("streams.pickle.gz")).unwrap();
    let pending = streams.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state == BlockState::PendingFree);
    assert_eq!(pending.count(), 6);
    let annotated = read_file(&data().join("annotated.pickle.gz")).unwrap();
    assert!(annotated.annotations.iter().any(|annotation| annotated.names.get(annotation.name).contains("Optimizer")));
    assert_eq!(read_file(&data().join("cnn_cpp_stacks.pickle.gz")).unwrap().host_trace.events.len(), 24);
    assert_eq!(read_file(&data().join("two_devices.pickle.gz")).unwrap().traces.len(), 2);
    let exp = read_file(&data().join("oom_varlen.exp.pickle.gz")).unwrap();
    let settings = exp.settings.unwrap();
    assert!(settings.expandable_segments && settings.text == "expandable_segments:True");
}

#[test]
fn gzip_of_several_members_is_one_file() {
    let plain = std::fs::read(data().join("edge/edge_mempool.pickle")).unwrap();
    let mut packed = Vec::new();
    for half in plain.chunks(plain.len() / 2 + 1) {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(half).unwrap();
        packed.extend(encoder.finish().unwrap());
    }
    assert_eq!(read_bytes(&packed).unwrap().to_pickle(), read_bytes(&plain).unwrap().to_pickle());
    for cut in (2..packed.len()).step_by(7) {
        assert!(
            matches!(
                read_bytes(&packed[..cut]),
                Err(ReadError::Truncated { packed: true, .. } | ReadError::Gzip { .. })
            ),
            "{cut}"
        );
    }
    // What follows the last member is no part of it: zeros to a block's end, another file.
    for more in [&[0_u8; 512][..], b"x", b"more\n"] {
        let longer = [packed.as_slice(), more].concat();
        assert_eq!(read_bytes(&longer).unwrap().to_pickle(), read_bytes(&plain).unwrap().to_pickle());
    }
    packed[40] ^= 0x55;
    assert!(error(&packed).contains("gzip") || error(&packed).contains("byte"), "{}", error(&packed));
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    for name in ["second_snapshot", "second_snapshot.protocol0", "unicode_names", "mempool"] {
        let whole = std::fs::read(data().join(format!("edge/edge_{name}.pickle"))).unwrap();
        for len in (1..whole.len()).step_by(11) {
            match read_bytes(&whole[..len]) {
                Err(ReadError::Truncated { offset, packed: false }) => assert_eq!(offset, len as u64, "{name}"),
                other => panic!("{name}, {len}: {:?}", other.map(|snapshot| snapshot.events())),
            }
        }
    }
    assert!(error(b"").contains("empty"));
}

#[test]
fn older_files_lack_keys() {
    // No addresses of blocks, no requested sizes, a history instead of frames; no time, no pool, no settings.
    let frame = Py::D(vec![("name", s("f")), ("filename", s("a.py")), ("line", Py::I(7))]);
    let history =
        Py::L(vec![Py::D(vec![("addr", Py::I(4096)), ("real_size", Py::I(100)), ("frames", Py::L(vec![frame]))])]);
    let used = Py::D(vec![("size", Py::I(512)), ("state", s("active_allocated")), ("history", history)]);
    let free = Py::D(vec![("size", Py::I(1536)), ("state", s("inactive"))]);
    let old = Py::D(vec![
        ("address", Py::I(4096)),
        ("total_size", Py::I(2048)),
        ("stream", Py::I(0)),
        ("segment_type", s("small")),
        ("blocks", Py::L(vec![used, free])),
    ]);
    let events = vec![
        event("alloc", 4096, 100),
        Py::D(vec![("action", s("oom")), ("size", Py::I(9)), ("device_free", Py::I(3))]),
    ];
    let read = read_bytes(&snapshot(vec![old.clone()], events).pickle()).unwrap();
    let blocks = &read.segments[0].blocks;
    assert_eq!((blocks[0].addr, blocks[1].addr, blocks[0].requested), (4096, 4608, 100));
    assert_eq!(read.frame_text(read.stacks.get(blocks[0].stack)[0]), "f (a.py:7)");
    assert_eq!((read.traces[0].events[1].addr, read.settings), (3, None));
    // The segments alone, as memory_snapshot() gives them.
    let alone = read_bytes(&Py::L(vec![old]).pickle()).unwrap();
    assert_eq!((alone.segments.len(), alone.traces.len(), alone.notes.len()), (1, 0, 1));
}

#[test]
fn keys_that_are_not_known_are_noted_and_passed_over() {
    let mut alloc = event("alloc", 4096, 100);
    if let Py::D(pairs) = &mut alloc {
        pairs.push(("colour", Py::L(vec![Py::F(1.5), Py::None, Py::T(vec![s("x")])])));
    }
    let mut whole = snapshot(vec![], vec![alloc]);
    if let Py::D(pairs) = &mut whole {
        // Even if it looks like something that is known, and is broken.
        pairs.push(("future", Py::D(vec![("action", s("levitate")), ("n", Py::I(1 << 100))])));
    }
    let read = read_bytes(&whole.pickle()).unwrap();
    assert_eq!(read.events(), 1);
    let notes = read.notes.join("\n");
    assert!(notes.contains("'colour'") && notes.contains("'future'") && read.notes.len() == 2, "{notes}");
}

#[test]
fn whatever_could_run_is_refused_by_name() {
    for (bytes, name) in [
        (&b"cos\nsystem\n(S'echo'\ntR."[..], "GLOBAL os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL os.system"),
        (b"\x80\x04}\x94(\x8c\x01aK\x01uR.", "REDUCE"),
        (b"(ios\nsystem\n.", "INST os.system"),
        (b"\x80\x02]q\x00b.", "BUILD"),
        (b"\x80\x02)\x81.", "NEWOBJ"),
        (b"\x80\x04)}\x92.", "NEWOBJ_EX"),
        (b"(o.", "OBJ"),
        (b"P0\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ] {
        let said = error(bytes);
        assert!(said.contains(name) && said.contains("byte"), "{said}");
        assert!(matches!(read_bytes(bytes), Err(ReadError::Refused { .. })));
    }
}

#[test]
fn other_files_are_told_apart() {
    for (bytes, words) in [
        (&b"PK\x03\x04zip"[..], "zip"),
        (b"\x7fELF", "no pickle"),
        (b"\x80\x04K\x05.", "a whole number"),
        (b"\x80\x04]\x94.", "a list"),
        (b"\x80\x04}\x94\x8c\x01aK\x01s.", "without 'segments'"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x04N.", "another kind"),
        (b"\x80\x04\xff.", "no opcode"),
    ] {
        assert!(error(bytes).contains(words), "{}", error(bytes));
    }
}

#[test]
fn pickles_that_make_no_sense() {
    for bytes in [
        &b"\x80\x04."[..],
        b"\x80\x04u.",
        b"\x80\x04(u.",
        b"\x80\x04K\x01(K\x02e.",
        b"\x80\x04h\x07.",
        b"\x80\x04\x94.",
        b"\x80\x04a.",
        b"\x80\x04}K\x01s.",
        b"\x80\x04}(K\x01u.",
        b"\x80\x040.",
        b"\x80\x041.",
        b"\x80\x042.",
        b"\x80\x04\x86.",
        b"\x80\x04(\x90.",
        b"\x80\x04t.",
        b"g12\n.",
        b"gx\n.",
        b"Ix\n.",
        b"S'x\n.",
        b"V\\u12\n.",
        b"\x80\x04\x8b\xff\xff\xff\xff.",
        b"\x80\x04\x8c\x02\xff\xfe.",
        // A list in itself, changed after it was used.
        b"\x80\x04]\x94h\x00aK\x01a.",
        b"\x80\x04]\x94(h\x00K\x01e.",
        b"\x80\x04}\x94\x8c\x01ah\x00s\x8c\x01bK\x01s.",
    ] {
        let said = error(bytes);
        assert!(said.contains("byte"), "{bytes:?}: {said}");
    }
}

/// Small files that ask for much. Each must end soon, with an error, within the limit.
#[test]
fn hostile_files_are_refused_before_they_cost_much() {
    let limits = Limits { memory: 8 << 20 };
    let huge = |op: u8, len: &[u8]| [&[0x80, 4, op][..], len, b"abc"].concat();
    let repeat = |head: &[u8], part: &[u8], n: usize| [head, &part.repeat(n)].concat();
    for (what, bytes) in [
        ("a long string", huge(b'X', &u32::MAX.to_le_bytes())),
        ("a longer string", huge(0x8d, &u64::MAX.to_le_bytes())),
        ("long bytes", huge(0x8e, &u64::MAX.to_le_bytes())),
        ("a long number", huge(0x8b, &i32::MAX.to_le_bytes())),
        ("a deep nest", repeat(b"\x80\x04", b"](", 1 << 19)),
        ("marks", repeat(b"\x80\x04", b"(", 2 << 20)),
        ("a stack", repeat(b"\x80\x04", b"N", 2 << 20)),
        ("a memo", repeat(b"\x80\x04N", b"\x94", 4 << 20)),
        (
            "scattered memos",
            (0..1u32 << 19).fold(b"\x80\x04N".to_vec(), |mut out, at| {
                out.push(b'r');
                out.extend(at.wrapping_mul(0x9e37_79b9).to_le_bytes());
                out
            }),
        ),
        ("lists", repeat(b"\x80\x04", b"]0", 2 << 20)),
        ("dictionaries", repeat(b"\x80\x04", b"}0", 2 << 20)),
        ("open lists", repeat(b"\x80\x04", b"]K\x01a0", 1 << 19)),
        ("a list of one thing", repeat(b"\x80\x04]\x94", b"N2a", 1 << 20)),
        ("itself, doubled", repeat(b"\x80\x04]\x94(", b"h\x00h\x00", 1 << 20)),
    ] {
        match read_within(&bytes[..], limits) {
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{what}"),
            Ok(_) => panic!("{what} is a snapshot?"),
        }
    }
    // The same packed: a few kilobytes that unpack to gigabytes.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"\x80\x04N").unwrap();
    for _ in 0..16 {
        encoder.write_all(&[0x94; 1 << 20]).unwrap();
    }
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 1 << 20);
    assert!(matches!(read_within(&packed[..], limits), Err(ReadError::TooLarge { .. })));
}

#[test]
fn contradictions_are_named() {
    let bad = |whole: Py, words: &str| {
        let said = error(&whole.pickle());
        assert!(said.contains(words), "{said}");
    };
    bad(snapshot(vec![], vec![event("alloc", 4096, -5)]), "'size' is -5");
    bad(snapshot(vec![], vec![event("alloc", -4096, 5)]), "'addr' is -4096");
    bad(snapshot(vec![], vec![event("alloc", 1 << 70, 5)]), "'addr'");
    bad(snapshot(vec![], vec![event("alloc", 4096, 1 << 61)]), "no device has");
    bad(snapshot(vec![], vec![event("levitate", 4096, 5)]), "'levitate'");
    bad(snapshot(vec![], vec![Py::D(vec![("action", s("alloc")), ("size", Py::I(1))])]), "no 'addr'");
    bad(snapshot(vec![], vec![Py::D(vec![("action", s("alloc")), ("addr", Py::I(1))])]), "no 'size'");
    bad(snapshot(vec![], vec![s("x")]), "item 0");
    bad(snapshot(vec![segment(4096, 1024, vec![block(4096, 1024, "asleep")])], vec![]), "'asleep'");
    bad(snapshot(vec![segment(4096, 1024, vec![block(4096, 2048, "inactive")])], vec![]), "end at");
    let overlapping = vec![block(4096, 1024, "active_allocated"), block(4608, 512, "inactive")];
    bad(snapshot(vec![segment(4096, 4096, overlapping)], vec![]), "begins before");
    let twice = vec![segment(4096, 1024, vec![]), segment(4608, 1024, vec![])];
    bad(snapshot(twice, vec![]), "overlap");
    bad(Py::D(vec![("segments", Py::I(5)), ("device_traces", Py::L(vec![]))]), "'segments' is no list");
    bad(Py::D(vec![("segments", Py::L(vec![])), ("device_traces", Py::I(5))]), "'device_traces' is no list");
}
