//! Graphs through the public functions, on the host device (its own graphs) and on simulated ones (the engine's replayer).

mod basics;
mod life;
mod memory;
mod order;
mod pinned;
mod refusals;
mod update;

use anyaccel::{Error, Graph, GraphError, GraphOptions, Runtime, Stream};
use anyaccel_sim::{Interleaving, Sim, SimConfig};
use std::sync::Arc;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

/// Runs a test on the host device, and on simulated ones with several interleavings, where it also must not misuse them.
pub(crate) fn everywhere(test: impl Fn(&Runtime)) {
    test(&Runtime::builder().backend("host").build().expect("the host backend is built in"));
    for seed in 0..4 {
        let memories = [256 * MIB, 256 * MIB];
        let (sim, runtime) = simulated(SimConfig::new().memories(memories).interleaving(Interleaving::Seeded(seed)));
        test(&runtime);
        drop(runtime);
        assert_eq!(sim.violations(), []);
    }
}

pub(crate) fn graph(runtime: &Runtime) -> Graph {
    runtime.graph(GraphOptions::default())
}

/// A stream that is current from now on.
pub(crate) fn current(runtime: &Runtime) -> Stream {
    let stream = runtime.stream(()).expect("a stream");
    runtime.set_stream(&stream).expect("its own stream");
    stream
}

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> GraphError {
    match result {
        Err(Error::Graph(error)) => error,
        other => panic!("expected a refusal, got {other:?}"),
    }
}
