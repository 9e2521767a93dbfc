//! Calls of the driver that fail now and then: nothing is used too early for it, and no failure of work is lost.

use anyaccel::hal::{Fault, FaultKind};
use anyaccel::{Launch, LaunchArg, Runtime, StreamOptions};
use anyaccel_sim::{Deadlock, Injection, Method, Sim, SimConfig};
use std::sync::Arc;

fn simulated() -> (Sim, Runtime) {
    let sim = SimConfig::new().deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

#[test]
fn a_download_that_fails_on_the_device_is_an_error() {
    let (sim, runtime) = simulated();
    let stream = runtime.current_stream(()).unwrap();
    let buffer = runtime.buffer_from(&[7; 4096]).unwrap();
    stream.synchronize().unwrap();
    let mut bytes = vec![0; 4096];
    sim.fail_work(stream.driver_id(), Fault::new(FaultKind::Driver, "copy"));
    assert!(stream.download(&mut bytes, &buffer.all()).is_err());
    stream.download(&mut bytes, &buffer.all()).unwrap();
    assert_eq!(bytes, [7; 4096]);
    sim.fail_work(stream.driver_id(), Fault::new(FaultKind::Driver, "copy"));
    assert!(stream.upload(&runtime.alloc(1 << 20).unwrap().all(), &vec![1; 1 << 20]).is_err());
}

#[test]
fn pinned_memory_without_a_mark_is_waited_for() {
    for writes in [false, true] {
        let (sim, runtime) = simulated();
        let stream = runtime.current_stream(()).unwrap();
        let device = runtime.buffer_from(&[7; 4096]).unwrap();
        let mut pinned = runtime.pinned(4096).unwrap();
        stream.synchronize().unwrap();
        pinned.as_mut_slice().unwrap().fill(0);
        let hold = sim.hold(stream.driver_id()).unwrap();
        sim.inject(Injection::kind(Method::Mark, FaultKind::Driver));
        let failed = match writes {
            true => stream.download_pinned(&mut pinned, 0, &device.all()),
            false => stream.upload_pinned(&device.all(), &pinned, 0),
        };
        assert!(failed.is_err());
        assert!(pinned.as_mut_slice().is_err(), "the copy is pending: no view");
        assert_eq!(pinned.as_slice().is_ok(), !writes);
        hold.release();
        assert_eq!(pinned.as_mut_slice().unwrap()[0], if writes { 7 } else { 0 });
    }
}

#[test]
fn what_is_retired_without_a_mark_is_kept() {
    let (sim, runtime) = simulated();
    let stream = runtime.current_stream(()).unwrap();
    let reserved = runtime.stream_with((), StreamOptions { reserved: true, ..StreamOptions::default() }).unwrap();
    let kernel = runtime.host_kernel((), |_, _| ()).unwrap();
    let buffer = runtime.zeros(64).unwrap();
    let holds = [sim.hold(stream.driver_id()).unwrap(), sim.hold(reserved.driver_id()).unwrap()];
    for on in [&stream, &reserved] {
        // SAFETY: the kernel uses no argument.
        unsafe { on.launch(&kernel, Launch::linear(1, 1), &[LaunchArg::Buffer(buffer.all())]).unwrap() };
    }
    let fails = sim.inject(Injection::kind(Method::Mark, FaultKind::Driver).for_ever());
    drop((kernel, reserved));
    assert_eq!(sim.violations(), []);
    sim.withdraw(fails);
    holds.into_iter().for_each(anyaccel_sim::Hold::release);
    runtime.synchronize(()).unwrap();
    sim.run();
    runtime.empty_cache().unwrap();
    assert_eq!((sim.live(0).kernels, sim.live(0).streams), (0, 1));
    assert_eq!(sim.violations(), []);
}
