use crate::{current, everywhere, graph};
use anyaccel::{Error, GraphOptions, Runtime};

#[test]
fn it_captures_again_after_reset() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let buffer = runtime.zeros(64).unwrap();
        let graph = graph(runtime);
        let mut pools = Vec::new();
        for round in 1..5 {
            graph.capture(|| stream.fill(&buffer.all(), &[round])).unwrap();
            graph.replay_n(0).unwrap();
            graph.replay().unwrap();
            pools.push(graph.pool());
            graph.reset().unwrap();
            graph.reset().unwrap();
            assert_eq!(buffer.to_vec().unwrap(), [round; 64]);
        }
        pools.dedup();
        assert_eq!(pools.len(), 4, "each capture has a pool of its own");
    });
}

#[test]
fn handles_go_in_any_order() {
    for order in 0..4 {
        let runtime = Runtime::builder().backend("host").build().unwrap();
        let stream = current(&runtime);
        let buffer = runtime.zeros(1 << 20).unwrap();
        let graph = graph(&runtime);
        graph.capture(|| stream.fill(&buffer.all(), &[1])).unwrap();
        graph.replay_n(20).unwrap();
        match order {
            0 => drop((graph, buffer, stream, runtime)),
            1 => drop((runtime, stream, buffer, graph)),
            2 => drop((buffer, graph, runtime, stream)),
            _ => drop((stream, runtime, graph, buffer)),
        }
    }
}

#[test]
fn a_graph_ends_on_another_thread_than_it_began() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let buffer = runtime.zeros(64).unwrap();
        let graph = graph(runtime);
        graph.capture_begin().unwrap();
        stream.fill(&buffer.all(), &[3]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runtime.set_stream(&stream).unwrap();
                graph.capture_end().unwrap();
            });
        });
        runtime.synchronize(()).unwrap();
        graph.replay().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [3; 64]);
    });
}

/// A function of a graph may own a handle of it. They keep each other, until a reset.
#[test]
fn a_function_that_owns_its_own_graph_goes_with_a_reset() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let graph = graph(runtime);
        let alive = std::sync::Arc::new(());
        let owned = (graph.clone(), std::sync::Arc::clone(&alive));
        graph
            .capture(|| {
                stream.host_fn_mut(move || {
                    let _both = &owned;
                })
            })
            .unwrap();
        graph.replay().unwrap();
        stream.synchronize().unwrap();
        let again = graph.clone();
        drop(graph);
        assert_eq!(std::sync::Arc::strong_count(&alive), 2);
        again.reset().unwrap();
        runtime.synchronize(()).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&alive), 1, "the function is gone, and its handle with it");
    });
}

#[test]
fn the_default_stream_can_be_captured() {
    everywhere(|runtime| {
        let stream = runtime.default_stream(()).unwrap();
        runtime.set_stream(&stream).unwrap();
        let buffer = runtime.zeros(64).unwrap();
        let graph = graph(runtime);
        graph.capture(|| stream.fill(&buffer.all(), &[2])).unwrap();
        graph.replay().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [2; 64]);
    });
}

#[test]
fn a_graph_of_another_runtime_knows_only_its_own_streams() {
    let (one, two) =
        (Runtime::builder().backend("host").build().unwrap(), Runtime::builder().backend("host").build().unwrap());
    let (a, b) = (current(&one), current(&two));
    let graph = graph(&one);
    graph.capture_begin().unwrap();
    assert!(a.is_capturing().unwrap() && !b.is_capturing().unwrap());
    two.synchronize(()).unwrap();
    assert!(matches!(b.wait_stream(&a), Err(Error::ForeignRuntime { .. })));
    graph.capture_end().unwrap();
    assert_eq!(one.graph(GraphOptions::default()).pool(), (0, 0));
}
