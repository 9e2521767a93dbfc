//! The progress bar, on a terminal and in a pipe.

use crate::process::{command, noise};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::process::Stdio;
use std::time::Duration;

/// A terminal: what is written to the second is read from the first.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let [name, settings, size] = [std::ptr::null_mut::<libc::c_void>(); 3];
    // SAFETY: both numbers are written, and the name, settings and size may be null.
    let done = unsafe { libc::openpty(&mut ours, &mut theirs, name.cast(), settings.cast(), size.cast()) };
    assert_eq!(done, 0, "no terminal to be had");
    // SAFETY: just opened, and nobody else's.
    unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) }
}

/// What the demo writes to standard error while its input takes longer than a moment.
fn shown(stderr: Stdio, variables: &[(&str, &str)], arguments: &[&str]) -> Option<String> {
    let mut command = command(["demo", "-", "--chunk", "4K"]);
    command.args(arguments).env("TERM", "xterm").envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr).spawn().expect("runs");
    drop(command);
    let mut input = child.stdin.take().expect("a pipe");
    for _ in 0..3 {
        input.write_all(&noise(64 << 10)).expect("it reads");
        std::thread::sleep(Duration::from_millis(150));
    }
    drop(input);
    let piped = child.stderr.take().map(|mut pipe| {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    });
    assert!(child.wait().expect("it ends").success());
    piped
}

/// The same on a terminal.
fn shown_on_terminal(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let (mut ours, theirs) = terminal();
    shown(theirs.into(), variables, arguments);
    let mut text = Vec::new();
    // A terminal whose other end is closed fails with EIO after the last byte, which ends the text as well.
    let _end = ours.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_terminal_has_a_bar_that_is_wiped_away() {
    let text = shown_on_terminal(&[], &[]);
    assert!(text.contains("/s") && text.starts_with('\r'), "{text:?}");
    assert!(text.ends_with("\r\x1b[K"), "{text:?}");
}

#[test]
fn a_dumb_terminal_a_pipe_and_a_document_have_none() {
    assert_eq!(shown_on_terminal(&[("TERM", "dumb")], &[]), "");
    assert_eq!(shown_on_terminal(&[], &["--json"]), "");
    assert_eq!(shown(Stdio::piped(), &[], &[]).as_deref(), Some(""));
}
