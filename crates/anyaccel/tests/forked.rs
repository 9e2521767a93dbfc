//! The process-wide runtime in forked children.
#![cfg(unix)]

use anyaccel::{DeviceIndexGuard, HistoryOptions, Runtime, StreamOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs `child` in a forked child and returns its exit status; one that hangs is killed.
fn forked(child: impl FnOnce() -> bool) -> i32 {
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
            return status;
        }
        if begin.elapsed() > Duration::from_secs(20) {
            // SAFETY: as above.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
            }
            return -1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn global() -> (MutexGuard<'static, ()>, Runtime) {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: under the lock, and nothing else in this process reads the environment then.
    unsafe { std::env::set_var("ANYACCEL_BACKEND", "host") };
    (one, Runtime::global())
}

fn works(runtime: &Runtime) -> bool {
    let bytes = runtime.buffer_from(&[5; 1000]).and_then(|buffer| buffer.to_vec());
    matches!(bytes, Ok(bytes) if bytes == [5; 1000])
}

#[test]
fn a_guard_of_the_parent_leaves_what_its_child_made_current() {
    let (_one, runtime) = global();
    runtime.current_stream(()).unwrap();
    let guard: DeviceIndexGuard = runtime.device_index(0).unwrap();
    let status = forked(|| {
        let child = Runtime::global();
        let stream = child.stream(()).unwrap();
        child.set_stream(&stream).unwrap();
        drop(guard);
        child.current_stream(()).unwrap() == stream
    });
    assert_eq!(status, 0);
}

#[test]
fn children_of_a_busy_process_work() {
    let (_one, runtime) = global();
    let stop = Arc::new(AtomicBool::new(false));
    let own = Runtime::builder().backend("host").build().unwrap();
    let threads: Vec<_> = (0..3)
        .map(|at| {
            let (stop, own) = (Arc::clone(&stop), own.clone());
            std::thread::spawn(move || {
                let reserved = StreamOptions { reserved: true, ..StreamOptions::default() };
                while !stop.load(Ordering::Relaxed) {
                    let runtime = if at == 0 { own.clone() } else { Runtime::global() };
                    let stream = runtime.stream_with((), reserved).unwrap();
                    let buffer = runtime.alloc(4096).unwrap();
                    stream.fill(&buffer.all(), &[1]).unwrap();
                    stream.host_fn(|| ()).unwrap();
                    drop((buffer, stream));
                    drop(Runtime::builder().backend("host").build().unwrap().zeros(100).unwrap());
                    runtime.empty_cache().unwrap();
                }
            })
        })
        .collect();
    for round in 0..200 {
        let (own, old) = (own.clone(), runtime.clone());
        let status = forked(move || {
            let child = Runtime::global();
            let stale = old.stream(()).is_err() && own.alloc(10).is_err();
            drop((old, own));
            stale && works(&child) && forked(|| works(&Runtime::global())) == 0
        });
        assert_eq!(status, 0, "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_child_records_its_own_history() {
    let (_one, runtime) = global();
    runtime.record_memory_history(HistoryOptions::default()).unwrap();
    let scope = runtime.memory_annotation("parent");
    let buffer = runtime.alloc(1000).unwrap();
    let status = forked(|| {
        let child = Runtime::global();
        let fresh = child.memory_history().is_ok_and(|status| !status.recording);
        drop((buffer, scope));
        let recorded = child.record_memory_history(HistoryOptions::default()).and_then(|()| {
            let _buffer = child.alloc(1000)?;
            child.memory_snapshot()
        });
        // The unwinder's locks may be held by a thread that is not here: there are no backtraces.
        let names = recorded.map(|snapshot| {
            let frames = snapshot.traces[0].events.iter().map(|event| snapshot.stacks.get(event.stack).len());
            (snapshot.events(), frames.sum::<usize>())
        });
        fresh && matches!(names, Ok((2, 0))) && runtime.memory_snapshot().is_err() && works(&child)
    });
    assert_eq!(status, 0);
    runtime.record_memory_history(HistoryOptions::off()).unwrap();
}
