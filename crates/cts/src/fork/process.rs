//! Forking, with a time limit and a report.

use super::{decode, encode};
use crate::case::{Outcome, fail};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Forks; the child does that and ends, and what it found is returned. A child that hangs is killed.
///
/// Nothing in the child runs the parent's destructors but what `run` itself owns.
pub(crate) fn in_fork(limit: Duration, run: impl FnOnce() -> Outcome) -> Outcome {
    let (mut reader, mut writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return fail("", "a pipe", error.to_string()),
    };
    // SAFETY: the child runs `run`, which is about just that (code of this process in a child of it), and leaves by
    // _exit. The allocator is ready for it: the C library takes its locks around a fork.
    match unsafe { libc::fork() } {
        -1 => fail("", "a child", std::io::Error::last_os_error().to_string()),
        0 => {
            drop(reader);
            let outcome =
                catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| fail("", "no panic", "a panic in the child"));
            // The parent is gone only if it was killed: then nobody wants to know.
            let _told = writer.write_all(encode(&outcome).as_bytes());
            drop(writer);
            // SAFETY: ends the process at once, without what the parent registered to run at its own exit.
            unsafe { libc::_exit(0) }
        }
        pid => {
            drop(writer);
            let text = read_until(&mut reader, Instant::now() + limit);
            let mut status = 0;
            // SAFETY: pid is our own child, which nobody else waits for; killing one that has ended is harmless.
            unsafe {
                if text.is_none() {
                    libc::kill(pid, libc::SIGKILL);
                }
                libc::waitpid(pid, &raw mut status, 0);
            }
            match text {
                None => fail("", format!("the child to end within {limit:?}"), "it hangs"),
                Some(text) if text.is_empty() => {
                    fail("", "a report of the child", format!("none, and status {status:#x}"))
                }
                Some(text) => decode(&text),
            }
        }
    }
}

/// Ends a process that leads a group, and all that it forked.
pub(super) fn kill_group(leader: &std::process::Child) {
    if let Ok(group) = i32::try_from(leader.id()) {
        // SAFETY: the leader was not waited for yet, so its group is still its own. Nothing is lost if it has ended.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// All that comes until the other side closes; `None` if it does not in time.
fn read_until(reader: &mut std::io::PipeReader, deadline: Instant) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis().min(1000) as i32 + 1) };
        if ready <= 0 {
            continue;
        }
        let mut buffer = [0; 4096];
        match reader.read(&mut buffer) {
            Ok(0) | Err(_) => return Some(String::from_utf8_lossy(&text).into_owned()),
            Ok(read) => text.extend_from_slice(&buffer[..read]),
        }
    }
}
