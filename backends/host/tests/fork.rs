//! Children of a fork (H24): they build a driver of their own and leave their parent's alone.
#![cfg(not(loom))]

use anyaccel_hal::{Device, Driver, HostFn, Pattern, Place, Until, WaitMode, Waited};
use anyaccel_host::{HostConfig, driver_with};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn open() -> (Arc<dyn Driver>, Arc<dyn Device>) {
    let driver = driver_with(HostConfig::new().devices(1).memory(16 << 20));
    assert_eq!(driver.start(), Ok(1));
    let device = driver.open(0).expect("opens");
    (driver, device)
}

/// A little of everything; says whether it went as it should.
fn works(device: &dyn Device) -> bool {
    let called = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&called);
    let stream = device.create_stream(0).expect("a stream");
    let target = Place { mem: device.alloc(4 << 20).expect("memory").mem, offset: 0 };
    // SAFETY: H1, H4, H13.
    unsafe {
        device.fill(stream, target, Pattern::byte(1), 4 << 20).expect("a fill");
        let count = move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        device.host_call(stream, HostFn::new(count)).expect("a call");
        let deadline = Some(Instant::now() + PATIENCE);
        let waited = device.wait_host(stream, Until::Now, deadline, WaitMode::Auto);
        device.free(target.mem).expect("freed");
        device.destroy_stream(stream).expect("destroyed");
        waited == Ok(Waited::Ended) && called.load(Ordering::Relaxed) == 1
    }
}

/// Forks, and says whether the child was content.
fn child(content: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing that another thread of the parent may have left locked: that is what is tested.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no process to be had");
    if pid == 0 {
        let code = if content() { 0 } else { 1 };
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(code) };
    }
    let begin = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: our own child.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if begin.elapsed() > 2 * PATIENCE => {
                // SAFETY: our own child, which hangs.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return false;
            }
            0 => std::thread::sleep(Duration::from_millis(1)),
            _ => return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        }
    }
}

#[test]
fn a_driver_that_has_not_started_works_in_the_child() {
    let driver = driver_with(HostConfig::new().devices(1).memory(16 << 20));
    assert_eq!(driver.probe().visible, 1);
    assert!(child(|| driver.start() == Ok(1) && works(&*driver.open(0).expect("opens"))));
}

#[test]
fn a_child_starts_anew_whatever_its_parent_was_doing() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (driver, device) = open();
        for _ in 0..3 {
            let (device, stop) = (Arc::clone(&device), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert!(works(&*device));
                }
            });
        }
        let old = ManuallyDrop::new((Arc::clone(&driver), Arc::clone(&device)));
        let content = (0..30).all(|_| {
            child(|| {
                let (driver, device) = open();
                let content = driver.probe().visible == 1 && works(&*device);
                drop((device, driver));
                content && old.0.restartable()
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(content, "a child hung or failed");
        drop(ManuallyDrop::into_inner(old));
    });
}
