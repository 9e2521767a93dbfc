use crate::{current, everywhere, graph, refused, simulated};
use anyaccel::{CaptureErrorMode, Error, GraphError, GraphOptions};
use anyaccel_sim::SimConfig;
use std::time::Duration;

#[test]
fn waits_are_refused_by_name_and_the_capture_goes_on() {
    everywhere(|runtime| {
        for mode in ["default", "global", "thread_local", "relaxed"] {
            let (stream, other) = (current(runtime), runtime.stream(()).unwrap());
            let buffer = runtime.zeros(1 << 20).unwrap();
            let mut big = vec![1; 1 << 20];
            let graph = graph(runtime);
            graph.set_capture_error_mode(mode.parse().unwrap());
            graph.capture_begin().unwrap();
            let waits = [
                refused(runtime.synchronize(())),
                refused(runtime.synchronize_for((), Duration::ZERO)),
                refused(stream.synchronize()),
                refused(other.synchronize()),
                refused(other.download(&mut big, &buffer.all())),
                refused(runtime.set_stream(&other).and_then(|()| buffer.to_vec())),
            ];
            runtime.set_stream(&stream).unwrap();
            for told in &waits {
                assert!(matches!(told, GraphError::Waits { .. }), "{told}");
            }
            assert!(waits[0].to_string().starts_with("synchronize can't be called"), "{}", waits[0]);
            assert!(waits[3].to_string().starts_with("Stream.synchronize can't"), "{}", waits[3]);
            for told in [refused(stream.query()), refused(stream.download(&mut big, &buffer.all()))] {
                assert!(matches!(told, GraphError::CapturedStream { .. }), "{told}");
            }
            assert!(matches!(refused(stream.upload(&buffer.all(), &big)), GraphError::Borrowed { .. }));
            assert!(matches!(refused(stream.host_fn(|| ())), GraphError::CalledOnce));
            runtime.empty_cache().unwrap();
            runtime.empty_host_cache().unwrap();
            assert!(other.query().is_ok());
            // Still usable, and none of that was recorded.
            stream.fill(&buffer.all(), &[8]).unwrap();
            graph.capture_end().unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 1);
            runtime.synchronize(()).unwrap();
            graph.replay().unwrap();
            assert_eq!(buffer.to_vec().unwrap()[1000], 8);
        }
    });
}

#[test]
fn only_global_mode_restricts_other_threads() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let elsewhere = |mode| {
            let graph = runtime.graph(GraphOptions { capture_error_mode: mode, ..GraphOptions::default() });
            graph.capture_begin().unwrap();
            let told = std::thread::scope(|scope| {
                scope.spawn(|| (runtime.synchronize(()), stream.synchronize().unwrap_err())).join().unwrap()
            });
            graph.capture_end().unwrap();
            told
        };
        for mode in [CaptureErrorMode::Default, CaptureErrorMode::ThreadLocal, CaptureErrorMode::Relaxed] {
            let (device, captured) = elsewhere(mode);
            device.unwrap();
            assert!(matches!(captured, Error::Graph(GraphError::CapturedStream { .. })), "{captured}");
        }
        let (device, _) = elsewhere(CaptureErrorMode::Global);
        assert!(matches!(refused(device), GraphError::WaitsAnywhere { .. }));
        runtime.synchronize(()).unwrap();
    });
}

#[test]
fn calls_out_of_place() {
    everywhere(|runtime| {
        let (stream, other) = (current(runtime), runtime.stream(()).unwrap());
        let graph = graph(runtime);
        assert_eq!(refused(graph.capture_end()).to_string(), "capture_end() called before capture_begin().");
        assert!(matches!(refused(graph.replay()), GraphError::NotCaptured { call: "replay" }));
        assert!(matches!(refused(graph.nodes()), GraphError::NotCaptured { .. }));
        graph.capture_begin().unwrap();
        assert!(matches!(refused(graph.capture_begin()), GraphError::AlreadyCapturing));
        assert!(matches!(refused(graph.replay()), GraphError::StillCapturing { .. }));
        let second = crate::graph(runtime);
        assert!(matches!(refused(second.capture_begin()), GraphError::StreamCapturing { .. }));
        runtime.set_stream(&other).unwrap();
        let told = refused(graph.capture_end()).to_string();
        assert!(told.starts_with("Capture must end on the same stream it began on."), "{told}");
        assert!(stream.is_capturing().unwrap(), "everything as before");
        runtime.set_stream(&stream).unwrap();
        graph.capture_end().unwrap();
        let told = refused(graph.capture_begin()).to_string();
        assert!(told.starts_with("This graph already owns a captured graph."), "{told}");
        // On a captured stream a graph can't be replayed.
        second.capture_begin().unwrap();
        assert!(matches!(refused(graph.replay()), GraphError::ReplayCaptured { .. }));
        second.capture_end().unwrap();
        graph.replay().unwrap();

        let missing = runtime.graph(GraphOptions { pool: Some((77, 0)), ..GraphOptions::default() });
        let told = missing.capture_begin().unwrap_err();
        assert!(matches!(told, Error::Pool(_)), "{told}");
        assert!(!stream.is_capturing().unwrap());
        runtime.synchronize(()).unwrap();
    });
}

#[test]
fn unjoined_work_ends_the_capture_with_an_error() {
    everywhere(|runtime| {
        let (a, b) = (current(runtime), runtime.stream(()).unwrap());
        let buffer = runtime.zeros(64).unwrap();
        let graph = graph(runtime);
        let told = refused(graph.capture(|| {
            b.wait_stream(&a)?;
            b.fill(&buffer.all(), &[1])
        }));
        assert!(matches!(told, GraphError::Unjoined { stream, .. } if stream == b.stream_id()), "{told}");
        assert!(!a.is_capturing().unwrap() && !b.is_capturing().unwrap());
        // A stream that joined and did nothing need not be joined again.
        graph.capture(|| b.wait_stream(&a).and_then(|()| a.fill(&buffer.all(), &[2]))).unwrap();
        graph.replay().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [2; 64]);
    });
}

#[test]
fn dumps() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let buffer = runtime.zeros(4096).unwrap();
        let graph = graph(runtime);
        assert!(matches!(refused(graph.debug_dump("/dev/null")), GraphError::NoDebug));
        graph.enable_debug_mode();
        assert!(matches!(refused(graph.debug_dump("/dev/null")), GraphError::NotCaptured { .. }));
        graph.capture(|| stream.fill(&buffer.all(), &[2])).unwrap();
        let told = refused(graph.debug_dump("/no/such/folder/graph.dot"));
        assert!(matches!(&told, GraphError::Dump { path, .. } if path.contains("/no/such/folder")), "{told}");
        let path = std::env::temp_dir().join(format!("anyaccel-graph-{}.dot", std::process::id()));
        graph.debug_dump(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("digraph") && text.contains("0: fill\\n4 KiB\\nstream"), "{text}");
    });
}

#[test]
fn a_lost_device() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = current(&runtime);
    let buffer = runtime.zeros(64).unwrap();
    let (done, under_way) = (graph(&runtime), graph(&runtime));
    done.capture(|| stream.fill(&buffer.all(), &[1])).unwrap();
    under_way.capture_begin().unwrap();
    stream.fill(&buffer.all(), &[2]).unwrap();
    sim.lose_device(0);
    under_way.capture_end().unwrap();
    for graph in [&done, &under_way] {
        assert!(matches!(graph.replay(), Err(Error::DeviceLost { .. })));
    }
    drop((done, under_way));
    drop(buffer);
    runtime.empty_cache().unwrap();
    assert_eq!(sim.live(0).mems, 0);
}

#[test]
fn inside_host_functions() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let inner = graph(runtime);
        inner.capture(|| Ok::<(), Error>(())).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let inside = inner.clone();
        stream
            .host_fn(move || {
                let calls = [inside.replay(), inside.capture_begin(), inside.instantiate(), inside.nodes().map(drop)];
                tell.send(calls).unwrap();
                // Dropping a handle is fine.
                drop(inside);
            })
            .unwrap();
        stream.synchronize().unwrap();
        for call in told.recv().unwrap() {
            assert!(matches!(call, Err(Error::InsideHostFunction { .. })), "{call:?}");
        }
        inner.replay().unwrap();
    });
}
