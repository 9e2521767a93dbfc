//! Where output can't go.

use crate::process::{Done, TestFile, command};
use std::fs::File;
use std::process::Stdio;

/// The end of a pipe that nobody reads.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

const COMMANDS: [&[&str]; 8] = [
    &["info"],
    &["info", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["--help"],
    &["demo", "--help"],
    &["cts", "--list"],
    &["cts", "--list", "--json"],
];

#[test]
fn a_reader_that_has_had_enough_hears_no_complaint() {
    for arguments in COMMANDS {
        let done: Done = command(arguments).stdout(broken_pipe()).output().expect("the command runs").into();
        assert_eq!((done.code, done.err.as_str()), (Some(141), ""), "{arguments:?}");
    }
    let file = TestFile::new("nobody-reads", b"abc");
    for json in [&["demo", file.name()][..], &["demo", file.name(), "--json"]] {
        let done: Done = command(json).stdout(broken_pipe()).output().expect("the command runs").into();
        assert_eq!((done.code, done.err.as_str()), (Some(141), ""));
    }
}

#[test]
fn a_failure_is_one_even_if_nobody_hears_of_it() {
    let mut command = command(["demo", "--json", "/nowhere/at/all"]);
    let status = command.stdout(broken_pipe()).stderr(broken_pipe()).status().expect("the command runs");
    assert_eq!(status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    for arguments in COMMANDS {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let done: Done = command(arguments).stdout(full).output().expect("the command runs").into();
        done.bad(1, &["standard output", "No space"]);
    }
}

#[cfg(unix)]
#[test]
fn closed_outputs_are_like_dev_null() {
    let program = env!("CARGO_BIN_EXE_anyaccel");
    for (closed, arguments, code) in [
        (">&-", "info", 0),
        (">&- 2>&-", "info", 0),
        (">&- 2>&- <&-", "doctor --json", 0),
        ("2>&-", "demo /nowhere/at/all", 1),
        (">&- 2>&-", "demo --streams 0", 2),
        (">&-", "demo", 0),
    ] {
        let script = format!("exec '{program}' {arguments} {closed}");
        let status = std::process::Command::new("sh").args(["-c", &script]).status().expect("a shell");
        assert_eq!(status.code(), Some(code), "{script}");
    }
}
