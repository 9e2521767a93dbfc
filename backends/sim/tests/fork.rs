//! A child that is forked while another thread holds the lock of the simulation. In a process of its own, with one test.

#![cfg(unix)]

use anyaccel_hal::{Device, Driver, Fault, FaultKind, Place, Probe};
use anyaccel_sim::{Interleaving, SimConfig, SimDriver};
use std::sync::{Arc, Mutex, mpsc};

/// What the child finds out; the number of the first thing that is wrong.
fn child(driver: SimDriver, sim: anyaccel_sim::Sim) -> i32 {
    if driver.probe() != Probe::found(1) || driver.describe(0).is_none() || driver.checks().is_empty() {
        return 1;
    }
    if driver.start().map_err(|fault| fault.kind) != Err(FaultKind::Invalid) {
        return 2;
    }
    // The parent's is left alone, a new one works, and dropping either does not hang.
    drop(driver);
    let anew = sim.anew();
    let fill = |device: &Arc<dyn Device>| -> Result<Option<Vec<u8>>, Fault> {
        let (stream, mem) = (device.create_stream(0)?, device.alloc(8)?.mem);
        // SAFETY: H1, H4: the handles are live.
        unsafe { device.write(stream, Place { mem, offset: 0 }, &[7])? };
        anew.run();
        Ok(anew.peek(mem, 0, 1))
    };
    let driver = anew.driver();
    let ran = driver.start().and_then(|_| driver.open(0)).and_then(|device| fill(&device));
    if ran == Ok(Some(vec![7])) { 0 } else { 3 }
}

#[test]
fn a_child_touches_no_lock_of_its_parent() {
    let (inside, is_inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (inside, may_go_on) = (Mutex::new(inside), Mutex::new(may_go_on));
    let block_once = Mutex::new(true);
    let choose = move |ready: &[anyaccel_hal::StreamId]| {
        if std::mem::take(&mut *block_once.lock().unwrap()) {
            inside.lock().unwrap().send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
        ready.first().copied()
    };
    let sim = SimConfig::new().interleaving(Interleaving::Chosen(Arc::new(choose))).build();
    let driver = sim.driver();
    driver.start().unwrap();
    let device = driver.open(0).unwrap();
    let stream = device.create_stream(0).unwrap();
    // SAFETY: H1: the stream is live.
    unsafe { device.mark(stream) }.unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sim.run());
        is_inside.recv().unwrap();
        // SAFETY: the child calls what this test is about and ends without unwinding or running the parent's destructors.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: a child that hangs is ended by the alarm.
            unsafe {
                libc::alarm(20);
                libc::_exit(child(driver.clone(), sim.clone()));
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        go_on.send(()).unwrap();
        assert!(libc::WIFEXITED(status), "the child hung: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0);
    });
}
