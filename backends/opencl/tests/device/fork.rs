//! A child of a process that started OpenCL gets a fault from every start, and never a hang.

use crate::started;
use anyaccel_hal::FaultKind;
use anyaccel_opencl::{OpenClConfig, driver_by_name};
use std::time::{Duration, Instant};

#[test]
fn a_child_gets_a_fault_from_every_start() {
    let Some(driver) = started(OpenClConfig::new()) else { return };
    let parent = std::process::id();
    // SAFETY: the child only makes a driver, which takes no lock of this process (H24), and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let fresh = driver_by_name();
        let probe = fresh.probe();
        let quiet = probe.visible == 0 && !probe.started && probe.absence.is_some();
        let told = match fresh.start() {
            Err(fault) => {
                let note = fault.note.as_deref().unwrap_or_default();
                fault.kind == FaultKind::Driver && note.contains(&parent.to_string())
            }
            Ok(_) => false,
        };
        // SAFETY: it runs nothing of this process's.
        unsafe { libc::_exit(if quiet && told { 0 } else { 1 }) };
    }
    let begin = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the child of this process, waited for once.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if begin.elapsed() < Duration::from_secs(60) => std::thread::sleep(Duration::from_millis(5)),
            0 => {
                // SAFETY: the child of this process.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            ended => {
                assert_eq!(ended, child);
                break;
            }
        }
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child's status is {status}");
    assert!(driver.open(0).is_ok());
}
