//! Scripts that fork while other threads are inside the library.

use super::scripts::works;
use super::{FROZEN, Script, in_fork};
use crate::case::{Outcome, errs, expect};
use crate::words::plain;
use anyaccel::{Error, Runtime, StreamOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Keeps threads busy inside the library until it is dropped.
struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Busy {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..6_u8).map(|at| {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Errors are of no interest here: what matters is who holds which lock when the fork comes.
                    let _tried = Self::round(at);
                }
            })
        });
        Self { threads: threads.collect(), over }
    }

    fn round(at: u8) -> anyaccel::Result<()> {
        let runtime = Runtime::global();
        let stream = runtime.stream(())?;
        let buffer = runtime.alloc(1 << (10 + at))?;
        stream.wait_stream(&runtime.current_stream(())?)?;
        stream.fill(&buffer.all(), &[at])?;
        stream.host_fn(|| ())?;
        let event = stream.record_event(None)?;
        runtime.set_stream(&stream)?;
        match at {
            0 => runtime.empty_cache()?,
            1 => drop(runtime.pinned(1 << 14)?),
            2 => drop(runtime.stream_with((), StreamOptions { reserved: true, ..StreamOptions::default() })?),
            3 => drop(Runtime::builder().build()?.zeros(64)?),
            _ => event.synchronize()?,
        }
        stream.synchronize()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in one has been reported by it.
            let _ended = thread.join();
        }
    }
}

/// A fork while other threads are inside the library never hangs the child.
pub(super) fn hammer(script: &Script) -> Outcome {
    let frozen = Runtime::global().kind().is_some_and(|kind| kind.name() == FROZEN);
    Runtime::global().current_stream(())?;
    let _busy = Busy::new();
    let began = Instant::now();
    let mut forks = 0;
    while forks < 150 && began.elapsed() < script.patience {
        in_fork(script.patience, || {
            let child = Runtime::global();
            if !frozen {
                return works("fork.no-deadlock", &child, script.patience / 2);
            }
            child.synchronize(())?;
            child.empty_cache()?;
            child.device_count();
            let right = |error: &Error| matches!(error, Error::ForkedChild { .. });
            errs("fork.no-deadlock", "a call in a child", "ForkedChild", child.current_stream(()), right)
        })?;
        forks += 1;
        thread::sleep(Duration::from_micros(137 * (forks % 11)));
    }
    expect("fork.no-deadlock", forks >= 5, "at least 5 forks in that time", forks)
}

/// The same in the middle of the first start.
pub(super) fn hammer_start(script: &Script) -> Outcome {
    for round in 0..40 {
        in_fork(script.patience, || {
            let starter = thread::spawn(|| Runtime::global().current_stream(()).map(drop));
            let wait = Instant::now() + Duration::from_micros(20 * round);
            while Instant::now() < wait {
                std::hint::spin_loop();
            }
            in_fork(script.patience, || works("fork.no-deadlock", &Runtime::global(), script.patience / 2))?;
            let started = starter.join();
            expect("fork.no-deadlock", matches!(started, Ok(Ok(()))), "the parent to start", plain(&started))
        })?;
    }
    Ok(())
}
