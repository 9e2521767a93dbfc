//! The runtime called from code that it runs itself: host functions, kernels, deferred calls.

use anyaccel::{Error, Launch, LaunchArg, Runtime};
use anyaccel_sim::{Deadlock, Sim, SimConfig};
use std::sync::{Arc, Mutex};

fn simulated() -> (Sim, Runtime) {
    let sim = SimConfig::new().deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

#[test]
fn statistics_in_a_host_function_call_no_driver() {
    let (sim, runtime) = simulated();
    let (stream, side) = (runtime.current_stream(()).unwrap(), runtime.stream(()).unwrap());
    let (buffer, pinned) = (runtime.zeros(4096).unwrap(), runtime.pinned(4096).unwrap());
    let hold = sim.hold(side.driver_id()).unwrap();
    side.upload_pinned(&buffer.all(), &pinned, 0).unwrap();
    drop(pinned);
    let told = Arc::new(Mutex::new(None));
    let (tell, inside) = (Arc::clone(&told), runtime.clone());
    let ask = move || {
        let stats = (inside.memory_stats(())?, inside.host_memory_stats(())?);
        assert!(matches!(inside.memory_summary((), false), Err(Error::InsideHostFunction { .. })));
        inside.reset_peak_host_memory_stats(())?;
        Ok::<_, Error>(!stats.0.is_empty() && !stats.1.is_empty())
    };
    stream.host_fn(move || *tell.lock().unwrap() = Some(ask())).unwrap();
    stream.synchronize().unwrap();
    assert!(matches!(*told.lock().unwrap(), Some(Ok(true))));
    assert_eq!(sim.violations(), []);
    hold.release();
}

#[test]
fn an_exchange_that_is_refused_has_changed_nothing() {
    let (_sim, runtime) = simulated();
    let (stream, side) = (runtime.current_stream(()).unwrap(), runtime.stream(()).unwrap());
    let told = Arc::new(Mutex::new(None));
    let (tell, inside) = (Arc::clone(&told), runtime.clone());
    let exchange = move || {
        let refused = matches!(inside.exchange_stream(&side), Err(Error::InsideHostFunction { .. }));
        // It works there, so it tells that the other one did nothing.
        (refused, inside.exchange_stream_id(&side).ok())
    };
    stream.host_fn(move || *tell.lock().unwrap() = Some(exchange())).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(*told.lock().unwrap(), Some((true, Some(0))));
}

#[test]
fn a_kernel_that_calls_the_runtime_is_refused() {
    let (sim, runtime) = simulated();
    let stream = runtime.current_stream(()).unwrap();
    let buffer = runtime.zeros(64).unwrap();
    let told = Arc::new(Mutex::new(None));
    let (tell, inside) = (Arc::clone(&told), runtime.clone());
    let wait = move |_: &anyaccel::WorkGroup, _: &[anyaccel::KernelArg]| {
        *tell.lock().unwrap() = Some(inside.synchronize(()));
    };
    let kernel = runtime.host_kernel((), wait).unwrap();
    // SAFETY: the kernel uses no argument.
    unsafe { stream.launch(&kernel, Launch::linear(1, 1), &[LaunchArg::Buffer(buffer.all())]).unwrap() };
    stream.synchronize().unwrap();
    assert!(matches!(*told.lock().unwrap(), Some(Err(Error::InsideHostFunction { .. }))));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_deferred_call_has_the_runtime_that_is_starting() {
    let (_sim, runtime) = simulated();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let deferred = move |runtime: &Runtime| {
        let stream = runtime.stream(())?;
        let buffer = runtime.alloc(4096)?;
        let in_turn = Arc::clone(&note);
        stream.host_fn(move || in_turn.lock().unwrap().push("function"))?;
        runtime.synchronize(())?;
        note.lock().unwrap().push("synchronized");
        assert_eq!((buffer.len(), runtime.memory_allocated(())?), (4096, 4096));
        drop(buffer);
        runtime.empty_cache()?;
        assert_eq!(runtime.memory_reserved(())?, 0);
        Ok(())
    };
    runtime.lazy_call(deferred).unwrap();
    runtime.current_stream(()).unwrap();
    assert_eq!(*seen.lock().unwrap(), ["function", "synchronized"]);
}
