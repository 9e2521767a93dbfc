//! Host functions: who calls them when, and threads in the background.

use crate::support::{at, rig, small};
use anyaccel_hal::{Driver, HostStatus, Until, Waited};
use anyaccel_sim::{Execution, Interleaving};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn a_look_calls_no_function_and_a_wait_those_that_it_needs() {
    let rig = rig(small());
    let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
    let calls = Arc::new(Mutex::new(Vec::new()));
    for (name, stream) in [("a", a), ("b", b), ("a again", a)] {
        let calls = Arc::clone(&calls);
        rig.d().call(stream, move |_| calls.lock().unwrap().push(name)).unwrap();
    }
    rig.d().write(a, at(mem, 0), &[1]).unwrap();
    let mark = rig.d().mark(a);
    for _ in 0..10 {
        assert_eq!(rig.d().completed(a), 0);
    }
    assert!(calls.lock().unwrap().is_empty());
    assert_eq!(rig.d().wait_host(a, Until::Mark(mark)), Ok(Waited::Ended));
    assert_eq!(*calls.lock().unwrap(), ["a", "a again"]);
    rig.sim.run();
    assert_eq!(*calls.lock().unwrap(), ["a", "a again", "b"]);
    rig.clean();
}

#[test]
fn functions_may_steer_the_simulation_and_are_dropped_once() {
    struct Dropped(mpsc::Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }
    let rig = rig(small());
    let (a, b) = (rig.d().stream(), rig.d().stream());
    let (sender, receiver) = mpsc::channel();
    let hold = Mutex::new(Some(rig.sim.hold(b).unwrap()));
    let dropped = Dropped(sender.clone());
    rig.d()
        .call(a, move |_| {
            hold.lock().unwrap().take().unwrap().release();
            dropped.0.send("called").unwrap();
        })
        .unwrap();
    let mark = rig.d().mark(a);
    rig.d().wait(b, a, mark).unwrap();
    rig.d().sync(a);
    rig.d().sync(b);
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["called", "dropped"]);
}

#[test]
fn what_was_not_begun_is_cancelled_with_the_last_device() {
    for execution in [Execution::OnLook, Execution::Background] {
        let rig = rig(small().execution(execution));
        let stream = rig.d().stream();
        let hold = rig.sim.hold(stream).unwrap();
        let (sender, receiver) = mpsc::channel();
        rig.d().call(stream, move |status| sender.send(status).unwrap()).unwrap();
        let sim = rig.sim.clone();
        drop(rig);
        assert_eq!(receiver.recv(), Ok(HostStatus::Cancelled));
        assert!(receiver.recv().is_err(), "called once, then dropped");
        assert_eq!(sim.live(0).streams, 1);
        // Another life on the same devices.
        let driver = sim.driver();
        assert_eq!(driver.start(), Ok(1));
        let device = driver.open(0).unwrap();
        assert!(device.create_stream(0).is_ok());
        hold.release();
    }
}

#[test]
fn in_the_background_work_ends_without_further_calls() {
    for seed in 0..20 {
        let rig = rig(small().execution(Execution::Background).interleaving(Interleaving::Seeded(seed)));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
        let (sender, receiver) = mpsc::channel();
        rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
        let mark = rig.d().mark(a);
        rig.d().wait(b, a, mark).unwrap();
        rig.d().call(b, move |status| sender.send(status).unwrap()).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(HostStatus::Run));
        assert_eq!(rig.d().completed(a), mark);
        rig.d().sync(b);
        rig.clean();
    }
}

#[test]
fn in_the_background_blocked_functions_stop_no_other_stream() {
    let rig = rig(small().execution(Execution::Background));
    let mem = rig.d().alloc(64).mem;
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let blocked: Vec<_> = (0..5).map(|_| rig.d().stream()).collect();
    for &stream in &blocked {
        let receiver = Arc::clone(&receiver);
        rig.d().call(stream, move |_| assert!(receiver.lock().unwrap().recv().is_err())).unwrap();
    }
    let free = rig.d().stream();
    let (told, telling) = mpsc::channel();
    rig.d().fill(free, at(mem, 0), 1, 64).unwrap();
    rig.d().call(free, move |_| told.send(()).unwrap()).unwrap();
    rig.d().sync(free);
    telling.recv().unwrap();
    assert_eq!(rig.d().wait_for(blocked[0], Until::Now, Duration::from_millis(5)), Ok(Waited::TimedOut));
    drop(sender);
    for stream in blocked {
        rig.d().sync(stream);
    }
    rig.clean();
}

#[test]
fn threads_share_streams() {
    for execution in [Execution::OnLook, Execution::Background] {
        let rig = rig(small().execution(execution).interleaving(Interleaving::Seeded(9)));
        let (shared, mem) = (rig.d().stream(), rig.d().alloc(1 << 16).mem);
        let sum = Arc::new(Mutex::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (rig, sum) = (&rig, &sum);
                scope.spawn(move || {
                    let own = rig.d().stream();
                    for n in 0..100u64 {
                        let place = at(mem, thread * 100 + n);
                        rig.d().write(own, place, &[thread as u8 + 1]).unwrap();
                        let mark = rig.d().mark(own);
                        rig.d().wait(shared, own, mark).unwrap();
                        let sum = Arc::clone(sum);
                        rig.d().call(shared, move |_| *sum.lock().unwrap() += 1).unwrap();
                        if n % 10 == 0 {
                            rig.d().sync(shared);
                        }
                    }
                });
            }
        });
        rig.d().sync(shared);
        assert_eq!(*sum.lock().unwrap(), 400);
        let bytes = rig.sim.peek(mem, 0, 400).unwrap();
        assert!((0..400).all(|at| bytes[at] as usize == at / 100 + 1));
        rig.clean();
    }
}

#[test]
fn a_function_may_own_the_last_device() {
    let rig = rig(small().execution(Execution::Background));
    let stream = rig.d().stream();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (dropped, is_dropped) = mpsc::channel::<()>();
    let mut owned = Some((Arc::clone(&rig.devices[0]), dropped));
    rig.d()
        .call(stream, move |_| {
            let (device, dropped) = owned.take().unwrap();
            may_go_on.recv().unwrap();
            drop(device);
            dropped.send(()).unwrap();
        })
        .unwrap();
    let sim = rig.sim.clone();
    drop(rig);
    go_on.send(()).unwrap();
    is_dropped.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(sim.violations(), []);
}
