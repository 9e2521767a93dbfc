//! Plugins over a fork: what a plugin says of itself is what the guard does.
#![cfg(unix)]

#[path = "../../abi/tests/plugins/compile.rs"]
mod compile;

use anyaccel::{Error, Runtime};
use std::time::{Duration, Instant};

fn small(name: &str, definitions: &[&str]) -> std::path::PathBuf {
    compile::small(env!("CARGO_TARGET_TMPDIR"), &format!("fork_{name}"), definitions)
}

/// Runs `child` in a forked child and says whether it returned true; one that hangs is killed.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: POSIX fork; the child only does what a child of a threaded process may do with this library, and leaves.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child without the handlers of its parent.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the child made above, not waited for yet.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            return status == 0;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            // SAFETY: as above.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
            }
            return false;
        }
        std::thread::yield_now();
    }
}

fn works(runtime: &Runtime) -> bool {
    runtime.buffer_from(&[5; 1000]).and_then(|buffer| buffer.to_vec()).is_ok_and(|bytes| bytes == [5; 1000])
}

/// One test: a process forks well while no other thread loads a library.
#[test]
fn a_child_does_what_the_plugin_says_that_it_can() {
    restarts();
    probes();
}

fn restarts() {
    // The process-wide runtime on a plugin that can't start again in a child.
    // SAFETY: nothing else in this process reads the environment now: this is its one test, and this its first statement.
    unsafe { std::env::set_var("ANYACCEL_BACKEND", "frozen") };
    let frozen = small("frozen", &["NAME=\"frozen\"", "FLAGS=ANYACCEL_FORK_SAFE_PROBE"]);
    assert_eq!(anyaccel::load_plugin(&frozen).map(|kind| kind.name().to_owned()), Ok("frozen".into()));
    // Fresh: naming and counting leave no trace, so a child may start it.
    assert_eq!(anyaccel::device_count(), 2);
    assert!(in_child(|| works(&Runtime::global())), "a child of a fresh process is fresh");
    assert!(works(&Runtime::global()));
    let refused = || match anyaccel::current_stream(()) {
        Err(Error::ForkedChild { kind, call, pid }) => {
            kind.name() == "frozen" && !call.is_empty() && pid != std::process::id()
        }
        _ => false,
    };
    assert!(in_child(refused), "the guard refuses a kind that can't restart");
    assert!(in_child(|| anyaccel::device_count() == 2), "its probe is safe in a child");

    // One that can, in a child that makes a runtime of its own with a plugin that its parent used too.
    let able = small("able", &["NAME=\"able\""]);
    let own = Runtime::builder().plugin(&able).build().expect("a runtime");
    assert!(works(&own));
    let anew = || {
        let stale = matches!(own.current_stream(()), Err(Error::StaleHandle { .. }));
        stale && Runtime::builder().plugin(&able).build().is_ok_and(|runtime| works(&runtime))
    };
    assert!(in_child(anew), "a new driver of the plugin works in a child");
    assert!(works(&own) && works(&Runtime::global()));

    // A child may load a plugin that its parent never did.
    let later = small("later", &["NAME=\"later\""]);
    assert!(in_child(|| Runtime::builder().plugin(&later).build().is_ok_and(|runtime| works(&runtime))));
}

fn probes() {
    // Not fork-safe: nobody asks before a device is needed, and the runtime is then one that was started.
    let starting = small("starting", &["NAME=\"starting\"", "FLAGS=0"]);
    let runtime = Runtime::builder().plugin(&starting).build().expect("a runtime");
    assert_eq!(runtime.device_count(), 2);
    assert!(works(&runtime));
    let child = || {
        let anew = Runtime::builder().plugin(&starting).build().expect("a runtime");
        anew.device_count() == 0 && matches!(anew.current_stream(()), Err(Error::ForkedChild { .. }))
    };
    assert!(in_child(child), "its probe is not made in a child");
}
