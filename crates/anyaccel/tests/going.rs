//! A runtime that goes while something still works: it waits for nothing, frees nothing that is in use, and leaves nothing
//! to a driver that lives on.

use anyaccel::hal::Driver;
use anyaccel::{Runtime, StreamOptions};
use anyaccel_sim::{Deadlock, Method, Sim, SimConfig};
use std::sync::Arc;

const RESERVED: StreamOptions = StreamOptions { priority: 0, reserved: true };

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

#[test]
fn while_a_stream_of_another_device_uses_memory() {
    for (near, far) in [(0, 1), (1, 0)] {
        let (sim, runtime) = simulated(SimConfig::new().memories([1 << 28, 1 << 28]));
        let stream = runtime.current_stream(near).unwrap();
        let (dst, src) = (runtime.alloc_on(near, 4096).unwrap(), runtime.alloc_on(far, 4096).unwrap());
        let _hold = sim.hold(stream.driver_id()).unwrap();
        stream.copy(&dst.all(), &src.all()).unwrap();
        let waits = sim.calls(Method::WaitHost);
        drop((src, dst, stream, runtime));
        assert_eq!((sim.violations(), sim.calls(Method::WaitHost)), (vec![], waits), "a stream of device {near}");
    }
}

#[test]
fn while_a_stream_works_that_went_before() {
    let (sim, runtime) = simulated(SimConfig::new());
    let reserved = runtime.stream_with((), RESERVED).unwrap();
    let _hold = sim.hold(reserved.driver_id()).unwrap();
    let buffer = runtime.alloc(4096).unwrap();
    reserved.fill(&buffer.all(), &[1]).unwrap();
    let waits = sim.calls(Method::WaitHost);
    drop((reserved, buffer));
    drop(runtime);
    assert_eq!((sim.violations(), sim.calls(Method::WaitHost)), (vec![], waits));
}

#[test]
fn one_after_the_other_on_one_driver() {
    let sim = SimConfig::new().memories([1 << 28, 1 << 28]).build();
    let driver: Arc<dyn Driver> = Arc::new(sim.driver());
    for _ in 0..10 {
        let runtime = Runtime::builder().driver(Arc::clone(&driver)).build().unwrap();
        let (stream, reserved) = (runtime.stream(0).unwrap(), runtime.stream_with(0, RESERVED).unwrap());
        let (near, far) = (runtime.alloc_on(0, 4096).unwrap(), runtime.alloc_on(1, 4096).unwrap());
        reserved.fill(&near.all(), &[1]).unwrap();
        stream.wait_stream(&reserved).unwrap();
        stream.copy(&near.all(), &far.all()).unwrap();
        let mut pinned = runtime.pinned(4096).unwrap();
        stream.download_pinned(&mut pinned, 0, &near.all()).unwrap();
        let kernel = runtime.host_kernel(0, |_, _| ()).unwrap();
        let event = stream.record_event(None).unwrap();
        runtime.synchronize(0).unwrap();
        drop((near, far, pinned, kernel, event));
    }
    assert_eq!((sim.live(0).total(), sim.live(1).total()), (0, 0));
    assert_eq!(sim.violations(), []);
}
