//! Running the command.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The command with these arguments, and without the variables of whoever runs the tests.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyaccel"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _value) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ANYACCEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// What the command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Done {
    /// It succeeded, silently on standard error.
    #[track_caller]
    pub(crate) fn good(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:#?}");
        self
    }

    /// It failed with that code and one line that has all of these words in it.
    #[track_caller]
    pub(crate) fn bad(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.err.starts_with("anyaccel: ") && self.err.ends_with('\n'), "{self:#?}");
        assert_eq!(self.err.lines().count(), 1, "{self:#?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {self:#?}");
        }
        self
    }

    /// Standard output as the one document that it is.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }

    /// No line is longer than a terminal is wide.
    #[track_caller]
    pub(crate) fn narrow(self) -> Self {
        for line in self.out.lines() {
            assert!(line.chars().count() <= 80, "too wide: {line:?}");
        }
        self
    }
}

/// Runs the command.
pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Done {
    command(arguments).output().expect("the command runs").into()
}

/// Runs the command with variables.
pub(crate) fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> Done {
    command(arguments).envs(variables.iter().copied()).output().expect("the command runs").into()
}

/// A path of its own for a test, with nothing there.
pub(crate) fn path(name: impl AsRef<OsStr>) -> PathBuf {
    let mut own = std::process::id().to_string();
    own.push('-');
    let mut file = std::ffi::OsString::from(own);
    file.push(name);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let _was_not_there = fs::remove_file(&path);
    path
}

/// A file of its own for a test, gone when dropped.
#[derive(Debug)]
pub(crate) struct TestFile(pub(crate) PathBuf);

impl TestFile {
    pub(crate) fn new(name: impl AsRef<OsStr>, content: &[u8]) -> Self {
        let path = path(name);
        fs::write(&path, content).expect("a file for the test");
        Self(path)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.to_str().expect("a name in Unicode")
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _left_behind = fs::remove_file(&self.0);
    }
}

/// Bytes without order, the same each time.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 9) as u8
    };
    (0..len).map(|_| next()).collect()
}
