use crate::{MIB, current, everywhere, graph, refused, simulated};
use anyaccel::{Error, GraphError, GraphOptions, Runtime};
use anyaccel_sim::{Sim, SimConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Case 4: a failed capture leaves nothing behind, whichever way it fails.
#[test]
fn case_4_a_failed_capture_does_not_poison_the_allocator() {
    let wait = |runtime: &Runtime| {
        let graph = graph(runtime);
        let told = refused(graph.capture(|| {
            let _tensor = runtime.alloc(8 * MIB)?;
            runtime.synchronize(())
        }));
        assert!(matches!(told, GraphError::Waits { call: "synchronize" }), "{told}");
    };
    let panics = |runtime: &Runtime| {
        let graph = graph(runtime);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            graph.capture(|| -> Result<(), Error> {
                let _tensor = runtime.alloc(8 * MIB)?;
                panic!("inside the scope");
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside the scope"));
    };
    let drops = |runtime: &Runtime| {
        let graph = graph(runtime);
        graph.capture_begin().unwrap();
        let tensor = runtime.alloc(8 * MIB).unwrap();
        drop(graph);
        drop(tensor);
    };
    let resets = |runtime: &Runtime| {
        let graph = graph(runtime);
        graph.capture_begin().unwrap();
        drop(runtime.alloc(8 * MIB).unwrap());
        graph.reset().unwrap();
        graph.reset().unwrap();
    };
    let leaves = |runtime: &Runtime| {
        let graph = graph(runtime);
        let scope = graph.scope().unwrap();
        drop(runtime.alloc(8 * MIB).unwrap());
        runtime.set_stream(&runtime.stream(()).unwrap()).unwrap();
        drop(scope);
    };
    let ways: [&dyn Fn(&Runtime); 5] = [&wait, &panics, &drops, &resets, &leaves];
    everywhere(|runtime| {
        for fail in ways {
            let before = runtime.current_stream(()).unwrap();
            let side = runtime.stream(()).unwrap();
            let kept = runtime.alloc(MIB).unwrap();
            runtime.empty_cache().unwrap();
            let reserved = runtime.memory_reserved(()).unwrap();
            {
                let _scope = side.enter().unwrap();
                fail(runtime);
                assert_eq!(runtime.current_stream(()).unwrap(), side, "the stream is restored");
            }
            assert_eq!(runtime.current_stream(()).unwrap(), before);
            runtime.empty_cache().unwrap();
            assert_eq!(runtime.memory_reserved(()).unwrap(), reserved);
            assert!(!side.is_capturing().unwrap());
            runtime.synchronize(()).unwrap();
            drop(runtime.alloc(3 * MIB).unwrap());

            let _scope = side.enter().unwrap();
            let second = graph(runtime);
            second.capture(|| side.fill(&kept.all(), &[1])).unwrap();
            second.replay().unwrap();
            assert_eq!(kept.to_vec().unwrap()[..3], [1, 1, 1]);
        }
    });
}

/// Case 5: out of memory inside a capture frees nothing and leaves it running.
#[test]
fn case_5_out_of_memory_inside_a_capture_frees_nothing() {
    let (sim, runtime) = simulated(SimConfig::new().memories([100 * MIB]));
    let stream = current(&runtime);
    drop(runtime.alloc(60 * MIB).unwrap());
    stream.synchronize().unwrap();
    let frees = |sim: &Sim| sim.calls_on(0, anyaccel_sim::Method::Free);
    let before = frees(&sim);
    let graph = graph(&runtime);
    graph.capture_begin().unwrap();
    let told = runtime.alloc(80 * MIB).unwrap_err();
    assert!(matches!(told, Error::OutOfMemory { .. }), "{told}");
    assert!(told.to_string().contains("capture"), "it says why: {told}");
    assert_eq!(frees(&sim), before);
    assert!(stream.is_capturing().unwrap());
    let small = runtime.alloc(1 << 10).unwrap();
    stream.fill(&small.all(), &[5]).unwrap();
    graph.capture_end().unwrap();
    graph.replay().unwrap();
    assert_eq!(small.to_vec().unwrap(), [5; 1 << 10]);
    let large = runtime.alloc(80 * MIB).unwrap();
    assert_eq!(frees(&sim), before + 1);
    drop(large);
    assert_eq!(sim.violations(), []);
}

#[test]
fn memory_dropped_inside_is_reused_inside_only_and_nothing_outside_shares_it() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let out = runtime.zeros(MIB).unwrap();
        let graph = graph(runtime);
        let addresses = graph
            .capture(|| {
                let mut addresses = Vec::new();
                for value in 0..4 {
                    let scratch = runtime.alloc(4 * MIB)?;
                    addresses.push(scratch.address());
                    stream.fill(&scratch.all(), &[0xE0 + value])?;
                    stream
                        .copy(&out.slice(u64::from(value) * 16..u64::from(value) * 16 + 16)?, &scratch.slice(..16)?)?;
                }
                Ok::<_, Error>(addresses)
            })
            .unwrap();
        assert!(addresses.iter().all(|&address| address == addresses[0]), "{addresses:?}");
        let canaries: Vec<_> = (0..6).map(|_| runtime.alloc(4 * MIB).unwrap()).collect();
        for canary in &canaries {
            assert_ne!(canary.address(), addresses[0]);
            stream.fill(&canary.all(), &[0x55]).unwrap();
        }
        runtime.empty_cache().unwrap();
        for _ in 0..3 {
            graph.replay().unwrap();
        }
        let seen = out.to_vec().unwrap();
        assert_eq!((seen[0], seen[16], seen[63]), (0xE0, 0xE1, 0xE3));
        for canary in &canaries {
            assert!(canary.to_vec().unwrap().iter().all(|&byte| byte == 0x55));
        }
    });
}

#[test]
fn a_graph_keeps_what_it_uses_and_gives_it_back() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let reserved = || {
            runtime.synchronize(()).unwrap();
            runtime.empty_cache().unwrap();
            runtime.memory_reserved(()).unwrap()
        };
        let before = reserved();
        let graph = graph(runtime);
        let (input, output) = (runtime.zeros(2 * MIB).unwrap(), runtime.zeros(2 * MIB).unwrap());
        let kernel = runtime
            .host_kernel((), |_, args| {
                // SAFETY: one byte of the argument.
                unsafe { *args[0].ptr += 1 };
            })
            .unwrap();
        graph
            .capture(|| {
                let scratch = runtime.alloc(2 * MIB)?;
                stream.copy(&scratch.all(), &input.all())?;
                // SAFETY: the argument that the kernel expects.
                unsafe {
                    stream.launch(
                        &kernel,
                        anyaccel::Launch::linear(1, 1),
                        &[anyaccel::LaunchArg::Buffer(scratch.all())],
                    )?
                };
                stream.copy(&output.all(), &scratch.all())
            })
            .unwrap();
        drop((input, kernel));
        let others: Vec<_> = (0..4).map(|_| runtime.zeros(2 * MIB).unwrap()).collect();
        graph.replay().unwrap();
        assert_eq!(output.to_vec().unwrap()[..2], [1, 0]);
        drop(others);
        assert!(reserved() >= before + 6 * MIB, "input, output, scratch");
        graph.replay().unwrap();
        // Gone at once as a handle, and really once the replay has ended.
        drop((graph, output));
        assert_eq!(reserved(), before);
    });
}

#[test]
fn graphs_share_a_pool_and_survive_each_other() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let out = runtime.zeros(64).unwrap();
        let first = graph(runtime);
        let record = |graph: &anyaccel::Graph, value: u8| {
            graph
                .capture(|| {
                    let scratch = runtime.alloc(4 * MIB)?;
                    stream.fill(&scratch.all(), &[value])?;
                    stream.copy(&out.all(), &scratch.slice(..64)?)?;
                    Ok::<u64, Error>(scratch.address())
                })
                .unwrap()
        };
        let address = record(&first, 1);
        assert_ne!(first.pool(), (0, 0));
        let second = runtime.graph(GraphOptions { pool: Some(first.pool()), ..GraphOptions::default() });
        assert_eq!(record(&second, 2), address, "scratch is shared");
        assert_eq!(second.pool(), first.pool());
        first.replay().unwrap();
        drop(first);
        runtime.synchronize(()).unwrap();
        runtime.empty_cache().unwrap();
        let canary = runtime.alloc(4 * MIB).unwrap();
        assert_ne!(canary.address(), address);
        second.replay().unwrap();
        assert_eq!(out.to_vec().unwrap(), [2; 64]);
        // A pool of the user's own, too.
        let pool = runtime.mem_pool(()).unwrap();
        let third = runtime.graph(GraphOptions { pool: Some(pool.id()), ..GraphOptions::default() });
        record(&third, 3);
        drop(pool);
        runtime.empty_cache().unwrap();
        third.replay().unwrap();
        assert_eq!(out.to_vec().unwrap(), [3; 64]);
    });
}

#[test]
fn memory_of_a_forked_stream_is_not_reused_before_it_is_joined() {
    everywhere(|runtime| {
        let (a, b) = (current(runtime), runtime.stream(()).unwrap());
        let out = runtime.zeros(MIB).unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                let scratch = runtime.alloc(MIB)?;
                a.fill(&scratch.all(), &[1])?;
                b.wait_stream(&a)?;
                b.copy(&out.all(), &scratch.all())?;
                let address = scratch.address();
                drop(scratch);
                let other = runtime.alloc(MIB)?;
                assert_ne!(other.address(), address, "the other stream still reads it");
                a.fill(&other.all(), &[2])?;
                a.wait_stream(&b)
            })
            .unwrap();
        for _ in 0..10 {
            graph.replay().unwrap();
            assert!(out.to_vec().unwrap().iter().all(|&byte| byte == 1));
        }
    });
}

#[test]
fn a_buffer_of_the_capture_outlives_its_graph() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let graph = graph(runtime);
        let result = graph
            .capture(|| {
                let result = runtime.alloc(64)?;
                stream.fill(&result.all(), &[7])?;
                Ok::<_, Error>(result)
            })
            .unwrap();
        graph.replay().unwrap();
        drop(graph);
        runtime.synchronize(()).unwrap();
        runtime.empty_cache().unwrap();
        assert_eq!(result.to_vec().unwrap(), [7; 64]);
        drop(result);
        runtime.synchronize(()).unwrap();
        runtime.empty_cache().unwrap();
    });
}
