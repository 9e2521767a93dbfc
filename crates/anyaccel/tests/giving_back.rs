//! Dropping things while work uses them, on a simulated device that counts what is alive and sees misuse.

use anyaccel::{Runtime, StreamOptions};
use anyaccel_sim::{Deadlock, Sim, SimConfig};
use std::sync::Arc;

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

#[test]
fn a_dropped_buffer_lives_until_each_stream_that_used_it_is_done() {
    let (sim, runtime) = simulated(SimConfig::new());
    let (a, b) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    let buffer = runtime.alloc(4096).unwrap();
    let (on_a, on_b) = (sim.hold(a.driver_id()).unwrap(), sim.hold(b.driver_id()).unwrap());
    a.fill(&buffer.all(), &[1]).unwrap();
    b.fill(&buffer.all(), &[2]).unwrap();
    drop(buffer);
    runtime.empty_cache();
    assert_eq!(sim.live(0).mems, 1);
    on_a.release();
    a.synchronize().unwrap();
    runtime.empty_cache();
    assert_eq!(sim.live(0).mems, 1, "the other stream still uses it");
    on_b.release();
    b.synchronize().unwrap();
    runtime.empty_cache();
    assert_eq!(sim.live(0).mems, 0);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_buffer_outlives_the_reserved_stream_that_uses_it() {
    let (sim, runtime) = simulated(SimConfig::new());
    let reserved = StreamOptions { reserved: true, ..StreamOptions::default() };
    let stream = runtime.stream_with((), reserved).unwrap();
    let raw = stream.driver_id();
    let buffer = runtime.alloc(4096).unwrap();
    let hold = sim.hold(raw).unwrap();
    stream.fill(&buffer.all(), &[1]).unwrap();
    let streams = sim.live(0).streams;
    drop(stream);
    drop(buffer);
    runtime.empty_cache();
    assert_eq!((sim.live(0).mems, sim.live(0).streams), (1, streams), "work is pending on both");
    hold.release();
    sim.run();
    runtime.empty_cache();
    assert_eq!((sim.live(0).mems, sim.live(0).streams), (0, streams - 1));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_buffer_dropped_in_a_host_function_is_freed_later() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = runtime.stream(()).unwrap();
    let buffer = runtime.alloc(4096).unwrap();
    stream.fill(&buffer.all(), &[1]).unwrap();
    let calls = sim.counts().total();
    stream.host_fn(move || drop(buffer)).unwrap();
    stream.synchronize().unwrap();
    assert!(sim.counts().total() > calls);
    assert_eq!(sim.live(0).mems, 1, "a host function calls no driver");
    runtime.empty_cache();
    assert_eq!(sim.live(0).mems, 0);
    assert_eq!(sim.violations(), []);
}

#[test]
fn pinned_memory_lives_until_its_copies_have_ended_and_views_wait() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = runtime.stream(()).unwrap();
    let device = runtime.alloc(64).unwrap();
    let mut host = runtime.pinned(64).unwrap();
    host.as_mut_slice().unwrap().fill(3);
    let hold = sim.hold(stream.driver_id()).unwrap();
    stream.upload_pinned(&device.all(), &host, 0).unwrap();
    assert!(host.as_slice().is_ok(), "a copy from it only reads");
    assert!(host.as_mut_slice().is_err(), "the copy can't end: the wait is a deadlock, and no view is given out");
    drop(host);
    runtime.empty_host_cache();
    assert_eq!(sim.live(0).pinned, 1);
    hold.release();
    stream.synchronize().unwrap();
    runtime.empty_host_cache();
    assert_eq!(sim.live(0).pinned, 0);
    assert_eq!(device.to_vec().unwrap(), [3; 64]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn handles_may_go_in_any_order_and_nothing_is_left() {
    let (sim, runtime) = simulated(SimConfig::new().memories([1 << 28, 1 << 28]));
    let stream = runtime.stream(1).unwrap();
    let buffer = runtime.alloc_on(1, 1 << 20).unwrap();
    let event = stream.record_event(None).unwrap();
    stream.fill(&buffer.all(), &[1]).unwrap();
    runtime.set_stream(&stream).unwrap();
    drop(runtime);
    drop(stream);
    drop(buffer);
    drop(event);
    assert_eq!(sim.violations(), []);
    assert_eq!((sim.live(0).total(), sim.live(1).mems), (0, 0));
}

#[test]
fn twenty_thousand_buffers_with_one_wait_at_the_end() {
    let (sim, runtime) = simulated(SimConfig::new().address_only());
    let stream = runtime.stream(()).unwrap();
    for _ in 0..20_000 {
        drop(runtime.alloc(200 << 10).unwrap());
    }
    assert!(sim.used(0) < 1 << 20, "without work nothing has to be waited for");
    for _ in 0..2_000 {
        let buffer = runtime.alloc(200 << 10).unwrap();
        stream.fill(&buffer.all(), &[0]).unwrap();
    }
    runtime.synchronize(()).unwrap();
    assert_eq!(sim.live(0).mems, 0);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_lost_device_lets_everything_go() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = runtime.stream(()).unwrap();
    let buffer = runtime.alloc(4096).unwrap();
    let _hold = sim.hold(stream.driver_id()).unwrap();
    stream.fill(&buffer.all(), &[1]).unwrap();
    sim.lose_device(0);
    assert!(matches!(stream.synchronize(), Err(anyaccel::Error::DeviceLost { .. })));
    drop(buffer);
    runtime.empty_cache();
    assert_eq!(sim.live(0).mems, 0);
}
