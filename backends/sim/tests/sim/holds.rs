//! Holds, gates, and waits that nothing ends.

use crate::support::{at, rig, small};
use anyaccel_hal::{FaultKind, Until, Waited};
use anyaccel_sim::{Deadlock, Interleaving};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_hold_stops_its_stream_and_no_other() {
    for interleaving in [Interleaving::Eager, Interleaving::RoundRobin, Interleaving::ByTime, Interleaving::Seeded(5)] {
        let rig = rig(small().interleaving(interleaving));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
        rig.d().write(a, at(mem, 0), &[1]).unwrap();
        let before = rig.d().mark(a);
        let hold = rig.sim.hold(a).unwrap();
        rig.d().write(a, at(mem, 1), &[1]).unwrap();
        let behind = rig.d().mark(a);
        rig.d().write(b, at(mem, 2), &[1]).unwrap();
        rig.d().sync(b);
        assert_eq!(rig.d().wait_host(a, Until::Mark(before)), Ok(Waited::Ended));
        for _ in 0..100 {
            assert_eq!(rig.d().completed(a), before);
        }
        assert!(!hold.is_released());
        hold.release();
        assert_eq!(rig.d().wait_host(a, Until::Mark(behind)), Ok(Waited::Ended));
        rig.clean();
    }
}

#[test]
fn a_hold_until_waited_opens_for_a_wait_and_not_for_a_look() {
    let rig = rig(small());
    let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
    let hold = rig.sim.hold_until_waited(a).unwrap();
    rig.d().write(a, at(mem, 0), &[1]).unwrap();
    let mark = rig.d().mark(a);
    rig.d().wait(b, a, mark).unwrap();
    rig.sim.run();
    assert_eq!(rig.d().completed(a), 0);
    // Through another stream as well.
    rig.d().sync(b);
    assert!(hold.is_released());
    assert_eq!(rig.d().completed(a), mark);
    let dropped = rig.sim.hold_until_waited(a).unwrap();
    drop(dropped);
    let mark = rig.d().mark(a);
    assert!(rig.d().completed(a) < mark);
}

#[test]
fn a_wait_that_nothing_ends_is_a_fault_that_names_the_hold() {
    let rig = rig(small().deadlock(Deadlock::Fault));
    let (a, b) = (rig.d().stream(), rig.d().stream());
    let hold = rig.sim.hold(a).unwrap();
    let mark = rig.d().mark(a);
    rig.d().wait(b, a, mark).unwrap();
    let fault = rig.d().wait_host(b, Until::Now).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    let note = fault.note.unwrap();
    assert!(note.contains("stream #1 of device 0 is held up by hold #3"), "{note}");
    let (before, began) = (rig.sim.now(), Instant::now());
    assert_eq!(rig.d().wait_for(b, Until::Now, Duration::from_secs(100)), Ok(Waited::TimedOut));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(rig.sim.now() > before + 90_000_000_000);
    hold.release();
    rig.d().sync(b);
    rig.clean();
}

#[test]
fn a_wait_sleeps_until_another_thread_releases_or_its_deadline_comes() {
    let rig = rig(small());
    let a = rig.d().stream();
    let hold = rig.sim.hold(a).unwrap();
    let began = Instant::now();
    let waiting = AtomicBool::new(true);
    std::thread::scope(|scope| {
        // Changes of others wake the waiter, and don't end its wait.
        scope.spawn(|| {
            while waiting.load(Ordering::Relaxed) {
                rig.sim.advance(1);
                std::thread::yield_now();
            }
        });
        assert_eq!(rig.d().wait_for(a, Until::Now, Duration::from_millis(20)), Ok(Waited::TimedOut));
        waiting.store(false, Ordering::Relaxed);
    });
    assert!(began.elapsed() >= Duration::from_millis(20));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            hold.release();
        });
        rig.d().sync(a);
    });
    assert!(began.elapsed() >= Duration::from_millis(40));
    rig.clean();
}

#[test]
fn gates_open_once_and_for_good() {
    let rig = rig(small().deadlock(Deadlock::Fault).each_device(|device| device.closed_gates = 2));
    let (a, b) = (rig.d().stream(), rig.d().stream());
    let gates = rig.devices[0].gates().unwrap();
    let (gate, other) = (gates.create().unwrap(), gates.create().unwrap());
    assert_eq!(gates.create().map_err(|fault| fault.kind), Err(FaultKind::OutOfMemory));
    // SAFETY: H1: stream and gate are live.
    unsafe {
        gates.wait(a, gate).unwrap();
        let mark = rig.d().mark(a);
        assert_eq!(rig.d().completed(a), 0);
        assert!(rig.d().wait_host(a, Until::Mark(mark)).is_err());
        gates.open(gate).unwrap();
        rig.d().sync(a);
        gates.wait(b, gate).unwrap();
        rig.d().sync(b);
        gates.wait(b, other).unwrap();
        gates.destroy(other);
        rig.d().sync(b);
        gates.destroy(gate);
        rig.clean();
        assert_eq!(rig.sim.live(0).gates, 0);
        assert!(gates.open(gate).is_err());
        assert_eq!(rig.violations().len(), 1);
    }
}

#[test]
fn a_hold_needs_a_live_stream() {
    let rig = rig(small());
    let a = rig.d().stream();
    rig.d().destroy(a).unwrap();
    assert!(rig.sim.hold(a).is_err());
}
