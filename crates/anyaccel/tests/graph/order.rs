use crate::{current, everywhere, graph, refused, simulated};
use anyaccel::{EventOptions, GraphError, Runtime};
use anyaccel_sim::SimConfig;

#[test]
fn streams_fork_and_join_by_events_and_by_waits() {
    everywhere(|runtime| {
        let (a, b, c) = (current(runtime), runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
        let buffer = runtime.zeros(4 << 10).unwrap();
        let part = |at: u64| buffer.slice(at << 10..(at + 1) << 10).unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                a.fill(&part(0), &[1])?;
                let forked = a.record_event(None)?;
                b.wait_event(&forked)?;
                c.wait_stream(&a)?;
                assert!(b.is_capturing()? && c.is_capturing()?);
                b.copy(&part(1), &part(0))?;
                c.copy(&part(2), &part(0))?;
                a.wait_stream(&b)?;
                a.wait_event(&c.record_event(None)?)?;
                a.histogram(&buffer.slice(2048 + 1024..)?.slice(..0)?, &part(0)).unwrap_err();
                a.copy(&part(3), &part(2))
            })
            .unwrap();
        assert!(!b.is_capturing().unwrap() && !c.is_capturing().unwrap());
        for _ in 0..20 {
            a.fill(&buffer.all(), &[9]).unwrap();
            graph.replay().unwrap();
            assert_eq!(buffer.to_vec().unwrap(), [1; 4 << 10]);
        }
        let nodes = graph.nodes().unwrap();
        assert_eq!(nodes[3].after, [1, 2]);
        assert_eq!((nodes[1].after.as_slice(), nodes[2].after.as_slice()), (&[0][..], &[0][..]));
        let streams: Vec<u64> = nodes.iter().map(|node| node.stream.1).collect();
        assert_eq!(streams, [a.stream_id(), b.stream_id(), c.stream_id(), a.stream_id()]);
    });
}

#[test]
fn a_replay_is_one_operation_of_its_stream() {
    everywhere(|runtime| {
        let (a, b) = (current(runtime), runtime.stream(()).unwrap());
        let (from, to, sink) = (runtime.zeros(64).unwrap(), runtime.zeros(64).unwrap(), runtime.zeros(64).unwrap());
        let graph = graph(runtime);
        graph
            .capture(|| {
                b.wait_stream(&a)?;
                b.copy(&to.all(), &from.all())?;
                a.wait_stream(&b)
            })
            .unwrap();
        for round in 1..50_u8 {
            a.fill(&from.all(), &[round]).unwrap();
            graph.replay().unwrap();
            // Later work of the stream comes after all of the graph, also what ran on another lane.
            a.copy(&sink.all(), &to.all()).unwrap();
            a.fill(&to.all(), &[0]).unwrap();
            assert_eq!(sink.to_vec().unwrap(), [round; 64]);
        }
    });
}

#[test]
fn a_held_stream_of_the_capture_does_not_hold_up_replays_elsewhere() {
    let (sim, runtime) = simulated(SimConfig::new());
    let (a, b, elsewhere) = (current(&runtime), runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    let buffer = runtime.zeros(64).unwrap();
    a.synchronize().unwrap();
    let graph = graph(&runtime);
    graph
        .capture(|| {
            b.wait_stream(&a)?;
            b.fill(&buffer.all(), &[4])?;
            a.wait_stream(&b)
        })
        .unwrap();
    let holds = [sim.hold(a.driver_id()).unwrap(), sim.hold(b.driver_id()).unwrap()];
    runtime.set_stream(&elsewhere).unwrap();
    graph.replay().unwrap();
    elsewhere.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [4; 64]);
    holds.into_iter().for_each(|hold| hold.release());
    assert_eq!(sim.violations(), []);
}

#[test]
fn graphs_are_captured_at_the_same_time_on_streams_and_threads_of_their_own() {
    everywhere(|runtime| {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    let stream = current(runtime);
                    let buffer = runtime.zeros(256).unwrap();
                    stream.synchronize().unwrap();
                    for round in 0..5 {
                        let (outer, inner) = (graph(runtime), graph(runtime));
                        let other = runtime.stream(()).unwrap();
                        outer.capture_begin().unwrap();
                        stream.fill(&buffer.slice(..128).unwrap(), &[thread]).unwrap();
                        {
                            // One inside the other, on another stream.
                            let _scope = other.enter().unwrap();
                            inner.capture(|| other.fill(&buffer.slice(128..)?, &[round])).unwrap();
                        }
                        assert!(stream.is_capturing().unwrap());
                        outer.capture_end().unwrap();
                        outer.replay().unwrap();
                        inner.replay().unwrap();
                        let bytes = buffer.to_vec().unwrap();
                        assert_eq!((bytes[0], bytes[255]), (thread, round));
                    }
                });
            }
        });
    });
}

#[test]
fn other_threads_may_enqueue_on_a_captured_stream() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let buffer = runtime.zeros(64).unwrap();
        let graph = graph(runtime);
        graph.capture_begin().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| stream.fill(&buffer.all(), &[6]).unwrap());
        });
        graph.capture_end().unwrap();
        assert_eq!(graph.nodes().unwrap().len(), 1);
        graph.replay().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [6; 64]);
    });
}

#[test]
fn replays_of_one_graph_never_overlap() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let (value, copy) = (runtime.zeros(8).unwrap(), runtime.zeros(8).unwrap());
        let add = runtime
            .host_kernel((), |_, args| {
                // SAFETY: 8 bytes each. Not atomic: two replays at a time would lose an addition.
                unsafe {
                    let before = args[0].ptr.cast::<u64>().read();
                    std::thread::yield_now();
                    args[1].ptr.cast::<u64>().write(before + 1);
                }
            })
            .unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                let args = [anyaccel::LaunchArg::Buffer(value.all()), anyaccel::LaunchArg::Buffer(copy.all())];
                // SAFETY: the arguments that the kernel expects.
                unsafe { stream.launch(&add, anyaccel::Launch::linear(1, 1), &args)? };
                stream.copy(&value.all(), &copy.all())
            })
            .unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let own = current(runtime);
                    (0..40).for_each(|_| graph.replay().unwrap());
                    own.synchronize().unwrap();
                });
            }
        });
        assert_eq!(value.to_vec().unwrap(), 120_u64.to_le_bytes());
    });
}

#[test]
fn a_graph_over_two_devices() {
    let memories = [1 << 26, 1 << 26];
    for peers in [false, true] {
        let config = SimConfig::new().memories(memories);
        let (sim, runtime) = simulated(config);
        if runtime.can_device_access_peer(0, 1).unwrap() != peers {
            continue;
        }
        let (a, b) = (current(&runtime), runtime.stream(1).unwrap());
        let (here, there) = (runtime.zeros(64).unwrap(), runtime.alloc_on(1, 64).unwrap());
        a.synchronize().unwrap();
        let graph = graph(&runtime);
        let captured = graph.capture(|| {
            a.fill(&here.all(), &[3])?;
            b.wait_stream(&a)?;
            b.copy(&there.all(), &here.all())?;
            a.wait_stream(&b)
        });
        if !peers {
            assert!(matches!(refused(captured), GraphError::NotCapturable { .. }));
            continue;
        }
        captured.unwrap();
        graph.replay().unwrap();
        a.synchronize().unwrap();
        let mut bytes = [0; 64];
        b.download(&mut bytes, &there.all()).unwrap();
        assert_eq!(bytes, [3; 64]);
        drop(graph);
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn events_recorded_inside_serve_waits_of_their_capture_alone() {
    everywhere(|runtime| {
        let (a, b) = (current(runtime), runtime.stream(()).unwrap());
        let timed = EventOptions { enable_timing: true, ..EventOptions::default() };
        let (inside, outside) = (runtime.event(timed).unwrap(), runtime.event(timed).unwrap());
        outside.record(Some(&a)).unwrap();
        let graph = graph(runtime);
        graph.capture_begin().unwrap();
        inside.record(Some(&a)).unwrap();
        for told in [refused(inside.query()), refused(inside.synchronize())] {
            assert!(matches!(told, GraphError::CapturedEvent { .. }), "{told}");
        }
        assert!(matches!(refused(a.wait_event(&outside)), GraphError::OutsideEvent { .. }));
        assert!(matches!(refused(a.wait_stream(&b)), GraphError::OutsideEvent { .. }));
        assert!(outside.query().is_ok());
        a.wait_event(&runtime.event(EventOptions::default()).unwrap()).unwrap();
        let second = crate::graph(runtime);
        {
            let _scope = b.enter().unwrap();
            second.capture_begin().unwrap();
            assert!(matches!(refused(b.wait_event(&inside)), GraphError::TwoCaptures { .. }));
            second.capture_end().unwrap();
        }
        graph.capture_end().unwrap();
        assert!(matches!(refused(b.wait_event(&inside)), GraphError::CapturedEvent { .. }));
        assert!(matches!(refused(outside.elapsed_time(&inside)), GraphError::CapturedEvent { .. }));
        inside.record(Some(&b)).unwrap();
        inside.synchronize().unwrap();
        let runtime: &Runtime = runtime;
        runtime.synchronize(()).unwrap();
    });
}
