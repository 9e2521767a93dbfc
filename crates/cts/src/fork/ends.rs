//! Scripts about a process of its own rather than about forks: what discovery leaves, how threads and the process end.

use super::{FROZEN, Script};
use crate::case::{Outcome, errs, same, skip};
use crate::lab::locked;
use anyaccel::{Error, Runtime};
use anyaccel_hal::{Driver, Until, WaitMode};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How many threads and open files this process has.
fn threads_and_files() -> Outcome<(usize, usize)> {
    match (std::fs::read_dir("/proc/self/task"), std::fs::read_dir("/proc/self/fd")) {
        (Ok(threads), Ok(files)) => Ok((threads.count(), files.count())),
        _ => skip("this system does not list a process's threads and files"),
    }
}

fn make(script: &Script) -> Outcome<Arc<dyn Driver>> {
    let ask = crate::subject::Ask { devices: 2, memory: crate::env::MEMORY, seed: script.seed };
    script.subject.make(&ask).map(|made| made.driver).map_err(crate::case::Stop::Skip)
}

/// Discovery starts no thread and opens no file.
pub(super) fn quiet(script: &Script) -> Outcome {
    let before = threads_and_files()?;
    let driver = make(script)?;
    same("H22", "threads and files after making a driver", threads_and_files()?, before)?;
    driver.kind();
    driver.checks();
    driver.restartable();
    same("H22", "threads and files after its checks", threads_and_files()?, before)?;
    if driver.fork_safe_probe() {
        let count = driver.probe().visible;
        (0..=count).for_each(|ordinal| drop(driver.describe(ordinal)));
        same("H22", "threads and files after its probe", threads_and_files()?, before)?;
    }
    drop(driver);
    same("H22", "threads and files after it is gone", threads_and_files()?, before)
}

/// With the last reference to a driver's devices its threads end.
pub(super) fn threads_end(script: &Script) -> Outcome {
    let before = threads_and_files()?.0;
    for _ in 0..3 {
        let driver = make(script)?;
        driver.start()?;
        let device = driver.open(0)?;
        let stream = device.create_stream(0)?;
        let (done, ran) = std::sync::mpsc::channel();
        // SAFETY: H1, the stream was made above; H13, the function neither unwinds nor calls the driver.
        unsafe {
            device.host_call(stream, anyaccel_hal::HostFn::new(move |_| done.send(()).unwrap_or(())))?;
            let deadline = Some(Instant::now() + script.patience);
            let _ended = device.wait_host(stream, Until::Now, deadline, WaitMode::Auto)?;
        }
        same("H11", "whether the function ran", ran.try_recv().is_ok(), true)?;
        drop((driver, device));
        let deadline = Instant::now() + script.patience / 2;
        while threads_and_files()?.0 > before && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        same("H25", "threads after the last reference is gone", threads_and_files()?.0, before)?;
    }
    Ok(())
}

/// The process ends while handles are in statics and thread-locals, and while work is under way.
///
/// With `last_reference` the last handle of a runtime that was built is in a thread-local of the main thread, whose end
/// comes before anything that is registered to run at exit.
pub(super) fn exit(last_reference: bool) -> Outcome {
    static KEPT: Mutex<Vec<(Runtime, anyaccel::Stream, anyaccel::Buffer)>> = Mutex::new(Vec::new());
    thread_local! {
        static LOCAL: RefCell<Option<(anyaccel::Stream, anyaccel::PinnedBuffer)>> = const { RefCell::new(None) };
    }
    let built = Runtime::builder().build()?;
    // Nobody waits for it: the limit of the script is far shorter.
    let work = Duration::from_secs(3600);
    for runtime in [Runtime::global(), built] {
        let stream = runtime.stream(())?;
        let buffer = runtime.zeros(1 << 20)?;
        stream.wait_stream(&runtime.current_stream(())?)?;
        stream.host_fn(move || thread::sleep(work))?;
        for byte in 0..50 {
            stream.fill(&buffer.all(), &[byte])?;
            stream.host_fn(|| ())?;
        }
        runtime.set_stream(&stream)?;
        let pinned = runtime.pinned(64)?;
        LOCAL.with(|local| local.borrow_mut().replace((stream.clone(), pinned)));
        if !last_reference {
            locked(&KEPT).push((runtime, stream, buffer));
        }
    }
    // The process exits right after this, as a program does whose main returns.
    Ok(())
}

/// A backend that nobody knows.
pub(super) fn unknown_backend(_: &Script) -> Outcome {
    let runtime = Runtime::global();
    same("environment.bad", "is_available", runtime.is_available(), false)?;
    same("environment.bad", "device_count", runtime.device_count(), 0)?;
    same("environment.bad", "current_accelerator", runtime.current_accelerator(false), None)?;
    let right = |error: &Error| {
        matches!(error, Error::UnknownBackend { name, variable: Some("ANYACCEL_BACKEND"), known, .. }
            if name == "no_such_backend" && known.iter().any(|kind| kind.name() == FROZEN))
    };
    errs("environment.bad", "the first starting call", "UnknownBackend", runtime.current_stream(()), right)?;
    runtime.lazy_call(|_| Err(Error::NoAccelerator))?;
    same("environment.bad", "pending calls", runtime.pending_calls(), 0)
}
