//! Libraries that are no plugins: each is refused in one clear line, and nothing of it is called.

#[path = "plugins/compile.rs"]
mod compile;

use anyaccel_abi::{LoadError, Plugin};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

fn small(name: &str, definitions: &[&str]) -> PathBuf {
    compile::small(FOLDER, name, definitions)
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(FOLDER).join(name);
    fs::write(&path, content).expect("a file");
    path
}

/// Why it is refused: one line that begins with the path.
#[track_caller]
fn refused(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let LoadError { path: named, reason } = Plugin::load(path).expect_err("refused");
    assert_eq!(named, path);
    let text = LoadError { path: named, reason: reason.clone() }.to_string();
    assert_eq!(text.lines().count(), 1, "{text:?}");
    assert_eq!(text, format!("{}: {reason}", path.display()));
    reason.to_string()
}

#[track_caller]
fn says(path: impl AsRef<Path>, words: &[&str]) {
    let text = refused(path);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn a_good_one_is_accepted_and_the_same_again() {
    let path = small("good", &[]);
    let plugin = Plugin::load(&path).expect("a plugin");
    assert_eq!((plugin.kind().name(), plugin.abi(), plugin.version()), ("npu", (1, 0), Some("small 1.0")));
    assert!(plugin.fork_safe_probe() && plugin.restartable());
    assert_eq!(plugin.path(), path);
    assert_eq!(Plugin::load(&path).expect("again"), plugin);
    let driver = plugin.driver();
    assert_eq!((driver.kind().name(), driver.probe().visible), ("npu", 2));
    assert_eq!(driver.describe(1).map(|info| (info.name, info.vendor)), Some(("Small NPU".into(), "Nobody".into())));
    assert_eq!(driver.describe(2), None);
    assert_eq!(driver.start(), Ok(2));
    let device = driver.open(0).expect("a device");
    assert_eq!(device.info().driver, "1.2.3");
    assert!(device.pinned().is_none() && device.graphs().is_none() && device.builtin(1).is_none());
    assert!(driver.open(2).is_err_and(|fault| fault.note.as_deref() == Some("no such device")));
}

#[test]
fn the_flags_of_a_plugin_are_its_drivers() {
    let plugin = Plugin::load(small("flags", &["FLAGS=0", "NAME=\"flagless\""])).expect("a plugin");
    let driver = plugin.driver();
    assert!(!driver.fork_safe_probe() && !driver.restartable());
}

#[test]
fn what_is_no_library() {
    says("relative.so", &["relative", "absolute"]);
    says("", &["relative"]);
    says("/no/such/file.so", &["can't be read", "No such file"]);
    says(FOLDER, &["no shared library", "a folder"]);
    says(file("text.so", b"a text"), &["no shared library", "a text"]);
    says(file("empty.so", b""), &["empty"]);
    says(file("cut.so", b"\x7fELF\x02\x01\x01"), &["7 bytes"]);
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
fn a_library_of_another_machine() {
    // As a compiler for 64-bit ARM, or for x86-64 if this is one, would begin it.
    let machine: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
    head.extend(machine.to_le_bytes());
    head.resize(4096, 0);
    let other = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
    says(file("other_machine.so", &head), &["a library for", other, std::env::consts::ARCH]);
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_library_that_is_cut_off() {
    let good = fs::read(small("to_be_cut", &[])).expect("a library");
    for size in [20, 63, 64, 200, 1000, 4096, 8192, good.len() / 2, good.len() - 1] {
        let words = format!("the file is cut off: it ends at byte {size}, its ");
        says(file(&format!("cut_off_{size}.so"), &good[..size]), &[&words]);
    }
    // One that has all its bytes, of which most are nonsense: the system's own words.
    let mut nonsense = good[..64].to_vec();
    nonsense.resize(good.len(), 0);
    says(file("nonsense.so", &nonsense), &["does not load"]);
}

#[test]
fn a_library_without_the_entry_or_that_declines() {
    says(small("no_entry", &["NO_ENTRY"]), &["does not export anyaccel_plugin_entry"]);
    says(small("declines", &["DECLINES"]), &["declines", "NULL", "1.0"]);
}

#[test]
fn another_major_is_refused_with_both_versions() {
    says(small("major", &["MAJOR=2", "MINOR=3"]), &["built for ABI 2.3", "this is ABI 1.0"]);
    says(small("major_0", &["MAJOR=0"]), &["built for ABI 0.0"]);
}

#[test]
fn tables_that_are_missing_short_or_not_there() {
    says(small("no_driver", &["NO_DRIVER"]), &["anyaccel_driver_table is NULL"]);
    says(small("no_device", &["NO_DEVICE"]), &["anyaccel_device_table is NULL"]);
    says(small("short", &["DEVICE_SIZE=64"]), &["anyaccel_device_table", "64 bytes", "at least 248"]);
    says(small("no_size", &["DEVICE_SIZE=0"]), &["0 bytes"]);
    if cfg!(target_os = "linux") {
        says(small("huge", &["DEVICE_SIZE=0x7fffffff"]), &["2147483647 bytes", "ends before"]);
    }
}

#[test]
fn functions_that_are_missing_or_no_code() {
    says(small("no_mark", &["NO_FUNCTION=mark"]), &["anyaccel_device_table.mark is NULL", "required"]);
    if cfg!(target_os = "linux") {
        says(small("data", &["DATA_FOR_CODE"]), &["anyaccel_device_table.alloc is no function", "no code at 0x"]);
    }
}

#[test]
fn names_and_numbers_of_kinds() {
    says(small("bad_name", &["NAME=\"N P U\""]), &["\"N P U\"", "lower-case"]);
    says(small("no_name", &["NAME=\"\""]), &["\"\""]);
    says(small("null_name", &["NAME=NULL"]), &["\"\""]);
    says(small("control", &["NAME=\"a\\nb\""]), &["\"a\\nb\""]);
    says(small("cpu", &["NAME=\"cpu\""]), &["\"cpu\"", "taken"]);
    says(small("mtia_as_npu", &["KIND=ANYACCEL_KIND_MTIA"]), &["kind 18", "\"npu\""]);
    says(small("unnumbered", &["NAME=\"mtia\""]), &["kind 20", "\"mtia\""]);
    says(small("number", &["KIND=4711"]), &["kind 4711", "ANYACCEL_KIND_PRIVATE"]);
    let mtia = Plugin::load(small("mtia", &["KIND=ANYACCEL_KIND_MTIA", "NAME=\"mtia\""])).expect("a plugin");
    assert_eq!(mtia.kind(), anyaccel_abi::hal::Kind::MTIA);
}

#[test]
fn a_plugin_of_a_newer_minor_works() {
    // What a later header may have: another number, and more behind every table.
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/anyaccel/plugin.h");
    let header = fs::read_to_string(header).expect("the header");
    let longer = header
        .replace("#define ANYACCEL_ABI_MINOR 0u", "#define ANYACCEL_ABI_MINOR 7u")
        .replace("} anyaccel_device_table;", "    void (*later)(void); uint64_t more[8];\n} anyaccel_device_table;")
        .replace("} anyaccel_driver_table;", "    void (*later)(void);\n} anyaccel_driver_table;")
        .replace("} anyaccel_plugin;", "    const void *later;\n} anyaccel_plugin;");
    assert_ne!(longer.len(), header.len());
    let folder = Path::new(FOLDER).join("newer");
    fs::create_dir_all(folder.join("anyaccel")).expect("a folder");
    fs::write(folder.join("anyaccel/plugin.h"), longer).expect("a header");
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugins/small.c");
    let source = fs::read_to_string(small).expect("the plugin");
    // Quotes: the header beside the source comes first.
    let source = source.replace("#include <anyaccel/plugin.h>", "#include \"anyaccel/plugin.h\"");
    let source = file("newer/newer.c", source.as_bytes());
    let plugin = Plugin::load(compile::library(FOLDER, "newer", &source, &["NAME=\"newer\""])).expect("a newer plugin");
    assert_eq!(plugin.abi(), (1, 7));
    let driver = plugin.driver();
    assert_eq!(driver.start(), Ok(2));
    let device = driver.open(0).expect("a device");
    assert!(device.alloc(64).is_ok_and(|segment| segment.len == 64));
}
