//! Command lines that make sense and those that don't.

use crate::process::run;

#[test]
fn help_fits_in_80_columns_and_has_an_example() {
    for command in ["info", "doctor", "demo", "cts"] {
        let help = run([command, "--help"]).good().narrow();
        assert!(help.out.contains("Example:") && help.out.contains("Exit code:"), "{}", help.out);
        assert!(help.out.contains("JSON (schema anyaccel."), "{}", help.out);
        run([command, "-h"]).good().narrow();
    }
    let help = run(["--help"]).good().narrow();
    assert!(help.out.contains("ANYACCEL_BACKEND") && help.out.contains("doctor"), "{}", help.out);
}

#[test]
fn the_version_is_told() {
    let version = run(["--version"]).good();
    assert_eq!(version.out, format!("anyaccel {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn senseless_command_lines_are_one_line_and_exit_code_2() {
    let nothing: [&str; 0] = [];
    run(nothing).bad(2, &["a command is needed", "--help"]);
    run(["frobnicate"]).bad(2, &["frobnicate"]);
    run(["demo", "--bakend", "x"]).bad(2, &["'--bakend' found; a similar argument exists: '--backend'; see"]);
    run(["info", "--frobnicate"]).bad(2, &["--frobnicate"]);
    run(["info", "a", "b"]).bad(2, &["'a'"]);
    run(["demo", "a", "b"]).bad(2, &["'b'"]);
    run(["demo", "--backend"]).bad(2, &["--backend"]);
    run(["cts", "--list", "--backend", "host"]).bad(2, &["--list", "--backend"]);
}

#[test]
fn numbers_out_of_range_name_the_option_and_the_range() {
    for streams in ["0", "33", "-1", "x", "", "99999999999999999999999"] {
        let value = format!("--streams={streams}");
        run(["demo", &value]).bad(2, &["--streams"]);
    }
    for streams in ["0", "-1", "x", "99999999999999999999999"] {
        run(["demo", "--streams", streams]).bad(2, &["--streams", streams, "expected a whole number from 1 to 32"]);
    }
    run(["replay", "--memory", "-1", "x"]).bad(2, &["'-1' for '--memory", "24GiB"]);
    run(["random", "bits", "-n", "-3"]).bad(2, &["--count", "from 0 to 16777216"]);
    run(["random", "bits", "--seed", "x"]).bad(2, &["--seed", "an integer from -2^63 to 2^64 - 1"]);
    run(["cts", "--seed", "-1"]).bad(2, &["--seed", "a whole number"]);
    for chunk in ["0", "-1", "1.5M", "2GiB", "x", "", "99999999999999999999999"] {
        let value = format!("--chunk={chunk}");
        run(["demo", &value]).bad(2, &["--chunk", "64KiB"]);
    }
    run(["cts", "--timeout", "0"]).bad(2, &["--timeout"]);
}

#[test]
fn with_json_a_senseless_command_line_is_a_document_too() {
    let done = run(["demo", "--json", "--streams", "0"]).bad(2, &["--streams"]);
    let document = done.json();
    assert_eq!(document["schema"], "anyaccel.error.v1");
    assert_eq!(document["error"]["class"], "usage");
    let message = document["error"]["message"].as_str().expect("a message");
    assert_eq!(done.err, format!("anyaccel: {message}\n"));
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_unicode_are_refused_where_names_are_needed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let bad = OsStr::from_bytes(b"\xff\x1b[2J");
    let done = run([OsStr::new("demo"), OsStr::new("--backend"), bad]).bad(2, &[]);
    assert!(!done.err.contains('\x1b'), "{done:#?}");
}
