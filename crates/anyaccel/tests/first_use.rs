//! Memory that goes from one owner to the next is ordered before its first use on another stream, whatever the streams
//! are and whenever they are made.

use anyaccel::{Runtime, Stream};
use anyaccel_sim::{Deadlock, Sim, SimConfig};
use std::sync::Arc;

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

/// A buffer that takes the memory of one whose fill is pending on its home, the current stream of device 0.
fn heir(runtime: &Runtime, home: &Stream) -> anyaccel::Buffer {
    let first = runtime.alloc_on(0, 4096).unwrap();
    home.fill(&first.all(), &[1]).unwrap();
    let address = first.address();
    drop(first);
    let second = runtime.alloc_on(0, 4096).unwrap();
    assert_eq!(second.address(), address, "reused at once");
    second
}

#[test]
fn on_a_stream_that_is_made_later() {
    let (sim, runtime) = simulated(SimConfig::new());
    let home = runtime.current_stream(()).unwrap();
    let hold = sim.hold(home.driver_id()).unwrap();
    let buffer = heir(&runtime, &home);
    let other = runtime.stream(()).unwrap();
    other.fill(&buffer.all(), &[2]).unwrap();
    sim.run();
    hold.release();
    other.synchronize().unwrap();
    home.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2; 4096]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn on_a_stream_of_another_device() {
    let (sim, runtime) = simulated(SimConfig::new().memories([1 << 28, 1 << 28]));
    let (home, there) = (runtime.current_stream(0).unwrap(), runtime.current_stream(1).unwrap());
    let source = runtime.alloc_on(1, 4096).unwrap();
    there.fill(&source.all(), &[2]).unwrap();
    let hold = sim.hold(home.driver_id()).unwrap();
    let buffer = heir(&runtime, &home);
    there.copy(&buffer.all(), &source.all()).unwrap();
    sim.run();
    hold.release();
    there.synchronize().unwrap();
    home.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2; 4096]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn of_memory_that_a_host_function_gave_back() {
    let (sim, runtime) = simulated(SimConfig::new());
    let home = runtime.current_stream(()).unwrap();
    let (other, third) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    let hold = sim.hold(home.driver_id()).unwrap();
    let first = runtime.alloc(4096).unwrap();
    home.fill(&first.all(), &[1]).unwrap();
    let address = first.address();
    third.host_fn(move || drop(first)).unwrap();
    third.synchronize().unwrap();
    let buffer = runtime.alloc(4096).unwrap();
    assert_eq!(buffer.address(), address);
    other.fill(&buffer.all(), &[2]).unwrap();
    sim.run();
    hold.release();
    runtime.synchronize(()).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2; 4096]);
    assert_eq!(sim.violations(), []);
}
