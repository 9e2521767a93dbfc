use crate::{current, everywhere, graph, refused};
use anyaccel::{CaptureErrorMode, DType, ErrorClass, Graph, GraphError, GraphOptions, Launch, LaunchArg, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn making_one_starts_nothing() {
    let runtime = Runtime::builder().backend("host").build().unwrap();
    let graph = runtime.graph(GraphOptions { pool: Some((0, 0)), ..GraphOptions::default() });
    assert_eq!((graph.pool(), graph.graph_pool()), ((0, 0), Some((0, 0))));
    graph.set_graph_pool(None);
    graph.set_capture_error_mode(CaptureErrorMode::Relaxed);
    graph.enable_debug_mode();
    assert_eq!(graph.capture_error_mode(), CaptureErrorMode::Relaxed);
    graph.reset().unwrap();
    graph.reset().unwrap();
    drop(graph);
    assert!(!runtime.is_started());
    drop(Graph::new(GraphOptions::default()));
}

#[test]
fn every_operation_is_recorded_and_runs_at_each_replay() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let sum = Arc::new(AtomicU32::new(0));
        let called = Arc::clone(&sum);
        let mut host = runtime.pinned(64).unwrap();
        host.as_mut_slice().unwrap().fill(b'a');
        let mut back = runtime.pinned(64).unwrap();
        let kernel = runtime
            .host_kernel((), |group, args| {
                assert_eq!(group.index, [0, 0, 0]);
                // SAFETY: one group; 8 bytes each, by the launch below.
                unsafe {
                    let add = args[1].ptr.cast::<u64>().read_unaligned();
                    *args[0].ptr.cast::<u64>() += add;
                }
            })
            .unwrap();
        let (bytes, counts) = (runtime.alloc(64).unwrap(), runtime.zeros(2048).unwrap());
        let (floats, integers) = (runtime.alloc(256).unwrap(), runtime.alloc(256).unwrap());
        let total = runtime.zeros(8).unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                stream.upload_pinned(&bytes.all(), &host, 0)?;
                stream.fill(&bytes.slice(32..48)?, b"b")?;
                stream.write(&bytes.slice(60..64)?, b"cccc")?;
                stream.histogram(&counts.all(), &bytes.all())?;
                stream.upload(&floats.slice(..8)?, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40])?;
                stream.upload(&integers.all(), &[7; 256])?;
                stream.convert(&integers.slice(..8)?, DType::I32, &floats.slice(..8)?, DType::F32)?;
                // SAFETY: the arguments that the kernel expects.
                unsafe {
                    let value = LaunchArg::Bytes(&[3, 0, 0, 0, 0, 0, 0, 0]);
                    stream.launch(&kernel, Launch::linear(1, 1), &[LaunchArg::Buffer(total.all()), value])?;
                }
                stream.download_pinned(&mut back, 0, &bytes.all())?;
                stream.host_fn_mut(move || {
                    called.fetch_add(1, Ordering::Relaxed);
                })
            })
            .unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 0);
        assert_eq!(counts.to_vec().unwrap(), [0; 2048], "nothing ran");
        for round in 1..=3 {
            graph.replay().unwrap();
            let counts = counts.to_vec().unwrap();
            let of = |byte: u8| u64::from_le_bytes(counts[8 * usize::from(byte)..][..8].try_into().unwrap());
            assert_eq!((of(b'a'), of(b'b'), of(b'c')), (44 * round, 16 * round, 4 * round));
            assert_eq!(integers.to_vec().unwrap()[..12], [1, 0, 0, 0, 2, 0, 0, 0, 7, 7, 7, 7]);
            assert_eq!(total.to_vec().unwrap(), (3 * round).to_le_bytes());
            back.with(|back| assert_eq!((back[0], back[40], back[63]), (b'a', b'b', b'c'))).unwrap();
            assert_eq!(u64::from(sum.load(Ordering::Relaxed)), round);
        }
        let operations: Vec<String> = graph.nodes().unwrap().into_iter().map(|node| node.operation).collect();
        let expected = [
            "upload",
            "fill",
            "write",
            "histogram",
            "write",
            "upload",
            "convert",
            "kernel",
            "download",
            "host function",
        ];
        assert_eq!(operations, expected);
        // Dropped with the graph, with what it kept.
        drop(graph);
        runtime.synchronize(()).unwrap();
        assert_eq!(Arc::strong_count(&sum), 1);
        assert_eq!(host.as_mut_slice().unwrap()[0], b'a');
    });
}

#[test]
fn keep_graph_instantiates_on_demand_or_at_the_first_replay() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let buffer = runtime.zeros(16).unwrap();
        for ask in [false, true] {
            let graph = runtime.graph(GraphOptions { keep_graph: true, ..GraphOptions::default() });
            assert!(matches!(refused(graph.instantiate()), GraphError::NotCaptured { .. }));
            graph.capture_begin().unwrap();
            assert!(graph.is_capturing() && stream.is_capturing().unwrap());
            assert!(matches!(refused(graph.instantiate()), GraphError::StillCapturing { .. }));
            stream.fill(&buffer.all(), &[5 + u8::from(ask)]).unwrap();
            graph.capture_end().unwrap();
            assert!(!stream.is_capturing().unwrap());
            if ask {
                graph.instantiate().unwrap();
                graph.instantiate().unwrap();
            }
            graph.replay().unwrap();
            assert_eq!(buffer.to_vec().unwrap(), [5 + u8::from(ask); 16]);
        }
    });
}

#[test]
fn neighbours_are_merged_where_nobody_can_tell() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let (a, b) = (runtime.zeros(256).unwrap(), runtime.zeros(256).unwrap());
        let graph = graph(runtime);
        graph
            .capture(|| {
                for at in 0..8 {
                    stream.fill(&a.slice(at * 8..at * 8 + 8)?, &[1])?;
                }
                for at in 0..8 {
                    stream.copy(&b.slice(at * 32..at * 32 + 32)?, &a.slice(at * 32..at * 32 + 32)?)?;
                }
                for at in 0..8 {
                    stream.write(&a.slice(64 + at * 4..68 + at * 4)?, &[at as u8; 4])?;
                }
                // These overlap as a whole, so they stay as they are: the second reads what the first wrote.
                stream.copy(&a.slice(132..136)?, &a.slice(128..132)?)?;
                stream.copy(&a.slice(136..140)?, &a.slice(132..136)?)
            })
            .unwrap();
        let nodes = graph.nodes().unwrap();
        let seen: Vec<_> = nodes.iter().map(|node| (node.operation.as_str(), node.bytes.unwrap())).collect();
        assert_eq!(seen, [("fill", 64), ("copy", 256), ("write", 32), ("copy", 4), ("copy", 4)]);
        graph.replay().unwrap();
        let bytes = a.to_vec().unwrap();
        assert_eq!((bytes[63], bytes[64], bytes[95], b.to_vec().unwrap()[63]), (1, 0, 7, 1));
    });
}

#[test]
fn replays_go_to_the_current_stream_and_panics_with_them() {
    everywhere(|runtime| {
        let (a, b) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
        let mut calls = 0;
        let graph = graph(runtime);
        {
            let _scope = a.enter().unwrap();
            graph
                .capture(|| {
                    a.host_fn_mut(move || {
                        calls += 1;
                        assert!(calls != 2, "the second");
                    })
                })
                .unwrap();
            graph.replay().unwrap();
        }
        {
            let _scope = b.enter().unwrap();
            graph.replay().unwrap();
        }
        a.synchronize().unwrap();
        let told = b.synchronize().unwrap_err();
        assert!(told.to_string().contains("the second"), "{told}");
        b.synchronize().unwrap();
    });
}

#[test]
fn cells_are_written_before_each_replay() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let out = runtime.zeros(8).unwrap();
        let graph = graph(runtime);
        assert!(matches!(refused(graph.before_replay(&out.all(), |_| ())), GraphError::NotCapturing));
        let cell = runtime.alloc(8).unwrap();
        graph
            .capture(|| {
                let inside = runtime.alloc(8)?;
                assert!(matches!(refused(graph.before_replay(&inside.all(), |_| ())), GraphError::CellInside));
                let mut next = 0_u64;
                graph.before_replay(&cell.all(), move |bytes| {
                    next += 100;
                    bytes.copy_from_slice(&next.to_le_bytes());
                })?;
                stream.copy(&out.all(), &cell.all())
            })
            .unwrap();
        for round in 1..=3_u64 {
            graph.replay().unwrap();
            assert_eq!(out.to_vec().unwrap(), (100 * round).to_le_bytes());
        }
        graph.reset().unwrap();
        let runtime_inside = runtime.clone();
        graph
            .capture(|| {
                graph.before_replay(&cell.all(), move |_| {
                    runtime_inside.synchronize(()).expect("refused");
                })
            })
            .unwrap();
        let told = graph.replay().unwrap_err();
        assert!(told.to_string().contains("panicked"), "{told}");
    });
}

#[test]
fn replays_draw_what_the_eager_run_would_have_drawn() {
    use anyaccel::random::{Distribution, Options};
    everywhere(|runtime| {
        let stream = current(runtime);
        let (a, b) = (runtime.alloc(4096).unwrap(), runtime.alloc(400).unwrap());
        let fill = || -> anyaccel::Result<()> {
            stream.random(&a.all(), DType::F32, Distribution::Uniform { from: 0.0, to: 1.0 }, &Options::default())?;
            // Scratch whose memory is reused: cells must not be among it.
            let scratch = runtime.alloc(512)?;
            stream.fill(&scratch.all(), &[0xFF])?;
            drop(scratch);
            stream.random(&b.all(), DType::Bool, Distribution::Bernoulli { p: 0.5 }, &Options::default())
        };
        runtime.manual_seed(7).unwrap();
        let eager: Vec<_> = (0..4)
            .map(|_| {
                fill().unwrap();
                (a.to_vec().unwrap(), b.to_vec().unwrap())
            })
            .collect();
        runtime.manual_seed(7).unwrap();
        let graph = graph(runtime);
        graph.capture(fill).unwrap();
        for (round, expected) in eager.iter().enumerate() {
            if round == 2 {
                // The same sequence goes on without the graph.
                fill().unwrap();
            } else {
                graph.replay().unwrap();
            }
            assert!(&(a.to_vec().unwrap(), b.to_vec().unwrap()) == expected, "replay {round}");
        }
    });
}

#[test]
fn modes_have_names() {
    for mode in ["default", "global", "thread_local", "relaxed"] {
        assert_eq!(mode.parse::<CaptureErrorMode>().unwrap().to_string(), mode);
    }
    let told = "Global".parse::<CaptureErrorMode>().unwrap_err();
    assert_eq!(
        told.to_string(),
        "Unknown capture error mode. Expected `default`, `global`, `thread_local`, or `relaxed`, got Global"
    );
    assert_eq!(told.class(), ErrorClass::Value);
}
