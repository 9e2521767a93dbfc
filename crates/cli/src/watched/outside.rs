//! Whoever watches.

use super::Told;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether the process has ended. Only for one whose pipe something keeps open: else the pipe's end tells.
const LOOK: Duration = Duration::from_millis(50);

/// How long what a process has said may take to be read once it has ended, on a machine that has much to do. That long its end is
/// not seen if what it has forked keeps its pipe open.
const SETTLING: Duration = Duration::from_secs(5);

/// A process that is watched. Ended when dropped.
pub(crate) struct Process {
    child: Child,
    told: Receiver<Told>,
}

/// What comes next from a process.
pub(crate) enum Next {
    /// It says something.
    Told(Told),
    /// It has said nothing for long enough, and was ended.
    Silent,
    /// It has ended.
    Ended(ExitStatus),
}

impl Process {
    /// Starts this program with arguments, and with the variable set, or unset.
    ///
    /// # Errors
    /// There can be no second process.
    pub(crate) fn start<S: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = S>,
        variable: Option<(&str, Option<OsString>)>,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        match variable {
            Some((name, Some(value))) => command.env(name, value),
            Some((name, None)) => command.env_remove(name),
            None => &mut command,
        };
        Self::spawn(command, writer, reader)
    }

    /// The same for a process that reads this one's standard input.
    ///
    /// # Errors
    /// There can be no second process, or none that reads and writes at once.
    #[cfg(unix)]
    pub(crate) fn start_fed<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> io::Result<Self> {
        use std::net::Shutdown;
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        let mut feed = ours.try_clone()?;
        let process = Self::spawn(command, OwnedFd::from(theirs), ours)?;
        // Not joined: it may wait for input that nobody wants any more.
        thread::spawn(move || {
            // Whoever reads it may have had enough; and there it is an end like any other if it can't be read to its own.
            let _fed = io::copy(&mut io::stdin().lock(), &mut feed);
            let _left = feed.shutdown(Shutdown::Write);
        });
        Ok(process)
    }

    #[cfg(not(unix))]
    pub(crate) fn start_fed<S: AsRef<OsStr>>(_arguments: impl IntoIterator<Item = S>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn(mut command: Command, told: impl Into<Stdio>, reader: impl Read + Send + 'static) -> io::Result<Self> {
        let child = command.stdin(told).stdout(io::stderr()).spawn()?;
        // With it goes this process's end of what the other one writes to, so that its end is seen.
        drop(command);
        Ok(Self { child, told: read(reader) })
    }

    /// What comes next, if anything does in that time.
    ///
    /// # Errors
    /// The process can't be asked how it ended.
    pub(crate) fn next(&mut self, patience: Duration) -> io::Result<Next> {
        let began = Instant::now();
        let mut ended: Option<(ExitStatus, Instant)> = None;
        while began.elapsed() < patience {
            match self.told.recv_timeout(LOOK.min(patience)) {
                Ok(told) => return Ok(Next::Told(told)),
                Err(RecvTimeoutError::Timeout) => match ended {
                    // What it has forked keeps the pipe open.
                    Some((_, at)) if at.elapsed() >= SETTLING => break,
                    Some(_) => {}
                    None => ended = self.child.try_wait()?.map(|status| (status, Instant::now())),
                },
                // It is about to end, or something has closed its pipe.
                Err(RecvTimeoutError::Disconnected) => match self.child.try_wait()? {
                    Some(status) => return Ok(Next::Ended(status)),
                    None => thread::sleep(Duration::from_millis(1)),
                },
            }
        }
        match ended {
            Some((status, _)) => Ok(Next::Ended(status)),
            None => {
                self.child.kill()?;
                self.child.wait()?;
                Ok(Next::Silent)
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended long ago, but where its watcher gave up.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// What is said, line by line. Anything else in the pipe is left out.
fn read(reader: impl Read + Send + 'static) -> Receiver<Told> {
    let (sender, told) = sync_channel(64);
    // Not joined: what a process has forked may keep the pipe open.
    thread::spawn(move || {
        let lines = BufReader::new(reader).split(b'\n').map_while(Result::ok);
        for told in lines.filter_map(|line| serde_json::from_slice(&line).ok()) {
            if sender.send(told).is_err() {
                break;
            }
        }
    });
    told
}

/// What became of a process that has not come to its end, in words that go on with a place: "the plugin ended the process".
pub(crate) fn how_it_ended(status: ExitStatus) -> (&'static str, String) {
    let how = if status.code().is_some() { "the plugin ended the process" } else { "the plugin took the process down" };
    (how, status.to_string())
}
