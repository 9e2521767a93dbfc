//! What reaches the user: results on standard output, errors as one line on standard error, and the exit code.
//!
//! - Exit code 0: done. 1: it failed. 2: the command line makes no sense.
//! - An error is one line, `anyaccel: ...`, on standard error. With `--json` it is also the one document on standard
//!   output, [`ErrorDocument`], unless the command has printed its own, which then tells of the failure itself.
//! - A reader that has had enough (`anyaccel info | head -1`) hears no complaint; the exit code is then 141, as if `SIGPIPE` had
//!   ended the command, so that a script can tell an output that is not whole. Any other failure to write is an error.
//! - What is lines of JSON instead of one document ends with an [`ErrorDocument`] in one line if the command fails.
//! - A standard output that is closed (`>&-`) is opened as `/dev/null` by the start of every Rust program.
//!
//! `println!` and `eprintln!` panic where writing fails, so nothing here uses them.

use crate::watched::{self, Told};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code if nobody reads on: what a shell makes of `SIGPIPE`.
const READER_LEFT: u8 = 141;

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    class: Class,
    message: String,
}

/// What failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The command line makes no sense.
    Usage,
    /// An environment variable can't be used, or names what is not there.
    Environment,
    /// A file can't be read, or changed while it was.
    Input,
    /// A device or its driver refused.
    Device,
    /// A result was wrong.
    Wrong,
    /// The output can't be written.
    Output,
}

impl Failure {
    pub(crate) fn new(class: Class, message: impl AsRef<str>) -> Self {
        Self { class, message: one_line(message.as_ref()) }
    }

    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn exit_code(&self) -> u8 {
        if self.class == Class::Usage { 2 } else { 1 }
    }
}

impl From<anyaccel::Error> for Failure {
    fn from(error: anyaccel::Error) -> Self {
        let class = match &error {
            anyaccel::Error::UnknownBackend { variable: None, .. } => Class::Usage,
            anyaccel::Error::UnknownBackend { .. } | anyaccel::Error::BadVariable { .. } => Class::Environment,
            _ => Class::Device,
        };
        Self::new(class, error.to_string())
    }
}

/// What `--json` prints when a command fails before it could print its own document.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    /// `anyaccel.error.v1`.
    schema: &'static str,
    /// The error.
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    /// What failed: `usage`, `environment`, `input`, `device`, `wrong` or `output`.
    class: Class,
    /// The same text as on standard error.
    message: &'a str,
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    /// Whether it goes to the process that watches this one.
    watched: bool,
    reader_left: bool,
    document_written: bool,
    /// Whether lines were written where other commands write a document.
    lines_written: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, watched: false, reader_left: false, document_written: false, lines_written: false }
    }

    /// The output of a process that is watched: the other one prints it.
    ///
    /// # Errors
    /// Nobody watches.
    pub(crate) fn watched(json: bool) -> Result<Self, Failure> {
        let nobody =
            |error| Failure::new(Class::Output, format!("standard input is not what tells another process: {error}"));
        watched::open().map_err(nobody)?;
        Ok(Self { watched: true, ..Self::new(json) })
    }

    /// Whether the command prints a document instead of text.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes text, all at once.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.reader_left {
            return Ok(());
        }
        if self.watched {
            watched::tell(&Told::Text(text.to_owned()));
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.reader_left = true;
                Ok(())
            }
            Err(error) => Err(Failure::new(Class::Output, format!("can't write to standard output: {error}"))),
        }
    }

    /// Writes a part of what the command prints with `--json`, where that is not one document but lines.
    pub(crate) fn lines(&mut self, lines: &str) -> Result<(), Failure> {
        self.lines_written = true;
        self.text(lines)
    }

    /// Writes what a watched process has made of its result.
    pub(crate) fn whole(&mut self, text: &str) -> Result<(), Failure> {
        self.document_written = true;
        self.text(text)
    }

    /// Whether whoever read the output has had enough.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reader_left
    }

    /// Writes the command's document.
    pub(crate) fn document<T: Serialize>(&mut self, document: &T) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::new(Class::Output, format!("can't write the result as JSON: {error}")))?;
        text.push('\n');
        self.document_written = true;
        self.text(&text)
    }

    /// Says what failed, if something did, and chooses the exit code.
    pub(crate) fn finish(mut self, result: Result<(), Failure>) -> ExitCode {
        if self.watched {
            if let Err(Failure { class, message }) = result {
                watched::tell(&Told::Failed(class, message));
            }
            watched::tell(&Told::End);
            return ExitCode::SUCCESS;
        }
        let Err(failure) = result else {
            return if self.reader_left { ExitCode::from(READER_LEFT) } else { ExitCode::SUCCESS };
        };
        error_line(&failure.message);
        if self.json && !self.document_written {
            let error = ErrorBody { class: failure.class, message: &failure.message };
            let document = ErrorDocument { schema: "anyaccel.error.v1", error };
            // The line above has told it already, and there is no third place to write to.
            let _untold = match serde_json::to_string(&document) {
                Ok(line) if self.lines_written => self.text(&format!("{line}\n")),
                _ => self.document(&document),
            };
        }
        ExitCode::from(failure.exit_code())
    }
}

/// A line on standard error that is no failure.
pub(crate) fn note(message: &str) {
    error_line(&one_line(message));
}

fn error_line(message: &str) {
    // Nobody is left to tell that standard error is gone.
    let _untold = writeln!(io::stderr(), "anyaccel: {message}");
}

/// A text without anything that moves a terminal's cursor: line breaks become blanks, other control characters are
/// escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for (at, part) in text.trim_end().split('\n').enumerate() {
        if at > 0 {
            line.push(' ');
        }
        for character in part.trim_end_matches('\r').chars() {
            if character.is_control() {
                // Writing to a String does not fail.
                let _never = write!(line, "{}", character.escape_default());
            } else {
                line.push(character);
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_is_in_it() {
        assert_eq!(one_line("a\nb\r\nc\n"), "a b c");
        assert_eq!(one_line("\x1b[2J\tx"), "\\u{1b}[2J\\tx");
    }

    #[test]
    fn only_a_senseless_command_line_is_exit_code_2() {
        for (class, code) in [(Class::Usage, 2), (Class::Input, 1), (Class::Wrong, 1), (Class::Environment, 1)] {
            assert_eq!(Failure::new(class, "x").exit_code(), code);
        }
    }
}
