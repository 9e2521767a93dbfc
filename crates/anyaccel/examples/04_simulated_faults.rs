//! The same code on a simulated device: work held back, and a failure on demand.

use anyaccel::{Error, Runtime};
use anyaccel_sim::{Injection, Method, SimConfig};
use std::sync::Arc;

fn main() -> anyaccel::Result<()> {
    let sim = SimConfig::new().memories([64 << 20]).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build()?;
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(1 << 20)?;

    // The device's memory runs out: a typed error, and nothing is lost.
    let total = runtime.get_memory_info(())?.1;
    match runtime.alloc(2 * total) {
        Err(Error::OutOfMemory { requested, free, total, .. }) => {
            println!("asked for {requested}, {free:?} of {total} free");
        }
        other => println!("unexpected: {other:?}"),
    }

    // The second fill from now fails; the stream goes on.
    sim.inject(Injection::kind(Method::Fill, anyaccel::hal::FaultKind::Driver).nth(2));
    stream.fill(&buffer.all(), &[1])?;
    println!("second fill: {}", stream.fill(&buffer.all(), &[2]).expect_err("it was to fail"));

    // Work held back: the buffer is dropped, and lives until the work has ended.
    let hold = sim.hold(stream.driver_id()).expect("the stream exists");
    stream.fill(&buffer.all(), &[3])?;
    drop(buffer);
    assert_eq!(sim.live(0).mems, 1);
    hold.release();
    stream.synchronize()?;
    runtime.empty_cache()?;
    assert_eq!(sim.live(0).mems, 0);
    assert!(sim.violations().is_empty());
    Ok(())
}
