//! Dropping things while work uses them, on a simulated device that counts what is alive and sees misuse.

use anyaccel::{Runtime, StreamOptions};
use anyaccel_sim::{Deadlock, Sim, SimConfig};
use std::sync::Arc;

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

/// Blocks that are in use, or given back and still used by a stream.
fn active(runtime: &Runtime) -> i64 {
    // An allocation makes the cache look at what has ended.
    drop(runtime.alloc(512).unwrap());
    runtime.memory_stats(()).unwrap().get("active.all.current").unwrap()
}

#[test]
fn a_dropped_buffer_lives_until_each_stream_that_used_it_is_done() {
    let (sim, runtime) = simulated(SimConfig::new());
    let (a, b) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    let buffer = runtime.alloc(4096).unwrap();
    let address = buffer.address();
    let (on_a, on_b) = (sim.hold(a.driver_id()).unwrap(), sim.hold(b.driver_id()).unwrap());
    a.fill(&buffer.all(), &[1]).unwrap();
    b.fill(&buffer.all(), &[2]).unwrap();
    drop(buffer);
    assert_eq!(active(&runtime), 1);
    assert_eq!(runtime.memory_allocated(()).unwrap(), 0);
    assert_ne!(runtime.alloc(4096).unwrap().address(), address, "it is not handed out anew");
    on_a.release();
    a.synchronize().unwrap();
    assert_eq!(active(&runtime), 1, "the other stream still uses it");
    on_b.release();
    b.synchronize().unwrap();
    assert_eq!(active(&runtime), 0);
    assert_eq!(runtime.alloc(4096).unwrap().address(), address);
    runtime.empty_cache().unwrap();
    assert_eq!(sim.live(0).mems, 0);
    assert_eq!(sim.violations(), []);
}

#[test]
fn memory_reused_on_its_stream_is_ordered_before_its_first_use_on_another() {
    let (sim, runtime) = simulated(SimConfig::new());
    let (home, other) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    runtime.set_stream(&home).unwrap();
    let hold = sim.hold(home.driver_id()).unwrap();
    let first = runtime.alloc(4096).unwrap();
    home.fill(&first.all(), &[1]).unwrap();
    let address = first.address();
    drop(first);
    let second = runtime.alloc(4096).unwrap();
    assert_eq!(second.address(), address, "on its own stream memory is reused at once, in stream order");
    home.host_fn(|| ()).unwrap(); // later work of the home is not waited for
    other.fill(&second.all(), &[2]).unwrap();
    assert_eq!(sim.pending(other.driver_id()), 2, "a wait and the fill");
    hold.release();
    other.synchronize().unwrap();
    home.synchronize().unwrap();
    runtime.set_stream(&other).unwrap();
    assert_eq!(second.to_vec().unwrap(), [2; 4096], "the fill of the first owner came before");
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
    runtime.empty_host_cache().unwrap();
    assert_eq!((active(&runtime), sim.live(0).streams), (1, streams), "work is pending on both");
    hold.release();
    sim.run();
    runtime.empty_host_cache().unwrap();
    runtime.empty_cache().unwrap();
    assert_eq!((active(&runtime), sim.live(0).streams), (0, streams - 1));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_buffer_dropped_in_a_host_function_is_given_back_later() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = runtime.stream(()).unwrap();
    let buffer = runtime.alloc(4096).unwrap();
    stream.fill(&buffer.all(), &[1]).unwrap();
    stream.host_fn(move || drop(buffer)).unwrap();
    stream.synchronize().unwrap();
    let allocated = || runtime.memory_allocated(()).unwrap();
    assert_eq!(allocated(), 4096, "a host function calls no driver");
    drop(runtime.alloc(512).unwrap());
    assert_eq!(allocated(), 0);
    runtime.empty_cache().unwrap();
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
    runtime.empty_host_cache().unwrap();
    assert_eq!(sim.live(0).pinned, 1);
    hold.release();
    stream.synchronize().unwrap();
    runtime.empty_host_cache().unwrap();
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
    assert!(sim.used(0) <= 2 << 20, "without work nothing has to be waited for");
    for _ in 0..2_000 {
        let buffer = runtime.alloc(200 << 10).unwrap();
        stream.fill(&buffer.all(), &[0]).unwrap();
    }
    runtime.synchronize(()).unwrap();
    assert_eq!(active(&runtime), 0);
    runtime.empty_cache().unwrap();
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
    runtime.empty_cache().unwrap();
    assert_eq!(sim.live(0).mems, 0);
}
