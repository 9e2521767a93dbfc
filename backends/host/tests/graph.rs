//! Graphs of the host device against their lists: whatever threads run them, every node comes after what it depends on.

use anyaccel_hal::{
    Device, Driver, FaultKind, GraphNode, Graphs, HostFn, HostKernel, HostStatus, Kernel, KernelSource, Launch, Mark,
    Op, OwnedArg, Pattern, Place, StreamId, Until, WaitMode, Waited,
};
use anyaccel_host::{HostConfig, driver_with};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

struct Lab {
    device: Arc<dyn Device>,
}

impl Lab {
    fn new() -> Self {
        let driver: Arc<dyn Driver> = driver_with(HostConfig::new().devices(1).memory(1 << 28).workers(4));
        driver.start().unwrap();
        Self { device: driver.open(0).unwrap() }
    }

    fn graphs(&self) -> &dyn Graphs {
        self.device.graphs().unwrap()
    }

    fn stream(&self) -> StreamId {
        self.device.create_stream(0).unwrap()
    }

    fn kernel(&self, run: impl Fn() + Send + Sync + 'static) -> Kernel {
        let kernel = HostKernel::new(move |_, _| run());
        // SAFETY: it takes no arguments.
        unsafe { self.device.kernels().unwrap().load(KernelSource::Host(kernel)) }.unwrap()
    }

    fn finish(&self, stream: StreamId) {
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        // SAFETY: H1.
        let waited = unsafe { self.device.wait_host(stream, Until::Now, deadline, WaitMode::Auto) }.unwrap();
        assert_eq!(waited, Waited::Ended);
    }
}

fn launch(kernel: Kernel) -> Op {
    Op::Launch { kernel, launch: Launch::linear(1, 1), args: Box::new([]) }
}

/// A small generator, so that graphs are the same at each run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn every_node_comes_after_what_it_depends_on_at_each_replay() {
    let lab = Lab::new();
    let streams = [lab.stream(), lab.stream()];
    for seed in 1..=40 {
        let mut state = seed * 0x9E37_79B9;
        let count = 2 + (random(&mut state) % 40) as usize;
        let turns: Arc<Vec<AtomicU32>> = Arc::new((0..count).map(|_| AtomicU32::new(0)).collect());
        let wrong = Arc::new(AtomicU32::new(0));
        let mut nodes = Vec::new();
        for node in 0..count {
            let wanted = random(&mut state) % 3;
            let mut after: Vec<u32> =
                (0..wanted).filter(|_| node > 0).map(|_| (random(&mut state) % node as u64) as u32).collect();
            after.sort_unstable();
            after.dedup();
            let (turns, wrong, before) = (Arc::clone(&turns), Arc::clone(&wrong), after.clone());
            let body = move || {
                let turn = turns[node].fetch_add(1, Ordering::AcqRel) + 1;
                let late = before.iter().any(|&b| turns[b as usize].load(Ordering::Acquire) != turn);
                wrong.fetch_add(u32::from(late), Ordering::Relaxed);
            };
            let op = match random(&mut state) % 4 {
                0 => Op::HostCall(HostFn::new(move |status| {
                    assert_eq!(status, HostStatus::Run);
                    body();
                })),
                _ => launch(lab.kernel(body)),
            };
            nodes.push(GraphNode { op, after: after.into() });
        }
        // SAFETY: H1; the nodes touch nothing but atomics.
        unsafe {
            let graph = lab.graphs().build(nodes).unwrap();
            for round in 0..30 {
                let stream = streams[round % 2];
                if round > 0 {
                    let Mark::At(mark) = lab.device.mark(streams[(round + 1) % 2]).unwrap() else { unreachable!() };
                    lab.device.wait(stream, streams[(round + 1) % 2], Mark::At(mark)).unwrap();
                }
                lab.graphs().replay(graph, stream).unwrap();
            }
            streams.iter().for_each(|&stream| lab.finish(stream));
            lab.graphs().destroy(graph);
        }
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "seed {seed}");
        assert!(turns.iter().all(|turn| turn.load(Ordering::Relaxed) == 30), "seed {seed}");
    }
}

#[test]
fn independent_branches_run_at_the_same_time() {
    let lab = Lab::new();
    let stream = lab.stream();
    let meet = Arc::new(Barrier::new(2));
    let branch = || {
        let meet = Arc::clone(&meet);
        launch(lab.kernel(move || {
            meet.wait();
        }))
    };
    let end = launch(lab.kernel(|| ()));
    let nodes = vec![
        GraphNode { op: launch(lab.kernel(|| ())), after: [].into() },
        GraphNode { op: branch(), after: [0].into() },
        GraphNode { op: branch(), after: [0].into() },
        GraphNode { op: end, after: [1, 2].into() },
    ];
    // SAFETY: H1; the nodes touch no memory.
    unsafe {
        let graph = lab.graphs().build(nodes).unwrap();
        for _ in 0..50 {
            lab.graphs().replay(graph, stream).unwrap();
            lab.finish(stream);
        }
        lab.graphs().destroy(graph);
    }
}

#[test]
fn functions_of_branches_may_wait_for_each_other_and_stop_no_copies() {
    let lab = Lab::new();
    let (stream, other) = (lab.stream(), lab.stream());
    let (open, opened) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let (also, answer) = mpsc::channel();
    let mut waits = Some(opened);
    let nodes = vec![
        GraphNode {
            op: Op::HostCall(HostFn::new(move |_| {
                if let Some(opened) = waits.take() {
                    opened.recv().unwrap();
                }
                also.send(()).unwrap();
            })),
            after: [].into(),
        },
        GraphNode {
            op: Op::HostCall(HostFn::new(move |_| {
                answer.recv().unwrap();
                tell.send(()).unwrap();
            })),
            after: [].into(),
        },
    ];
    let segment = lab.device.alloc(4096).unwrap();
    let place = Place { mem: segment.mem, offset: 0 };
    // SAFETY: H1, H4.
    unsafe {
        let graph = lab.graphs().build(nodes).unwrap();
        lab.graphs().replay(graph, stream).unwrap();
        let Mark::At(mark) = lab.device.mark(stream).unwrap() else { unreachable!() };
        lab.device.fill(other, place, Pattern::byte(1), 4096).unwrap();
        lab.finish(other);
        assert!(lab.device.completed(stream).unwrap() < mark);
        open.send(()).unwrap();
        lab.finish(stream);
        told.recv().unwrap();
        lab.graphs().destroy(graph);
    }
}

#[test]
fn updates_leave_enqueued_replays_alone() {
    let lab = Lab::new();
    let stream = lab.stream();
    let segment = lab.device.alloc(4096).unwrap();
    let place = |offset| Place { mem: segment.mem, offset };
    let fill = |value| Op::Fill { dst: place(0), pattern: Pattern::byte(value), len: 16 };
    let copy =
        |to| Op::Copy { dst: anyaccel_hal::End::Device(place(to)), src: anyaccel_hal::End::Device(place(0)), len: 16 };
    let mut seen = vec![0; 64];
    // SAFETY: H1, H4, H5.
    unsafe {
        lab.device.fill(stream, place(0), Pattern::byte(0), 4096).unwrap();
        let nodes = vec![GraphNode { op: fill(1), after: [].into() }, GraphNode { op: copy(16), after: [0].into() }];
        let graph = lab.graphs().build(nodes).unwrap();
        let gates = lab.device.gates().unwrap();
        let gate = gates.create().unwrap();
        gates.wait(stream, gate).unwrap();
        lab.graphs().replay(graph, stream).unwrap();
        lab.graphs().update(graph, 0, fill(2)).unwrap();
        lab.graphs().update(graph, 1, copy(32)).unwrap();
        lab.graphs().replay(graph, stream).unwrap();
        gates.open(gate).unwrap();
        let host = anyaccel_hal::End::Host(anyaccel_hal::HostPtr(seen.as_mut_ptr()));
        lab.device.copy(stream, host, anyaccel_hal::End::Device(place(0)), 64).unwrap();
        lab.finish(stream);
        let refused = |result: Result<(), anyaccel_hal::Fault>| result.unwrap_err().kind;
        assert_eq!(refused(lab.graphs().update(graph, 0, copy(16))), FaultKind::Invalid);
        assert_eq!(refused(lab.graphs().update(graph, 2, fill(1))), FaultKind::Invalid);
        gates.destroy(gate);
        lab.graphs().destroy(graph);
    }
    assert_eq!((seen[0], seen[16], seen[32], seen[48]), (2, 1, 2, 0));
}

#[test]
fn lists_out_of_order_are_refused() {
    let lab = Lab::new();
    let node = |after: &[u32]| GraphNode {
        op: Op::Launch {
            kernel: lab.device.builtin(anyaccel_kernels::Builtin::Noop.number()).unwrap(),
            launch: Launch::linear(1, 1),
            args: Vec::<OwnedArg>::new().into(),
        },
        after: after.into(),
    };
    for nodes in [vec![node(&[0])], vec![node(&[]), node(&[5])]] {
        // SAFETY: H1.
        let told = unsafe { lab.graphs().build(nodes) }.unwrap_err();
        assert_eq!(told.kind, FaultKind::Invalid, "{told}");
    }
}

#[test]
fn functions_whose_turn_can_not_come_are_cancelled_once() {
    for _ in 0..20 {
        let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
        struct Dropped(Arc<(AtomicU64, AtomicU64, AtomicU64)>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.2.fetch_add(1, Ordering::SeqCst);
            }
        }
        {
            let lab = Lab::new();
            let stream = lab.stream();
            let nodes = (0..8_u32).map(|at| {
                let kept = Dropped(Arc::clone(&counts));
                let call = HostFn::new(move |status| {
                    let of = if status == HostStatus::Run { &kept.0.0 } else { &kept.0.1 };
                    of.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(200));
                });
                GraphNode { op: Op::HostCall(call), after: if at == 0 { [].into() } else { [at - 1].into() } }
            });
            // SAFETY: H1; the nodes touch no memory. The device goes with work under way, which H25 allows.
            unsafe {
                let graph = lab.graphs().build(nodes.collect()).unwrap();
                lab.graphs().replay(graph, stream).unwrap();
                lab.device.mark(stream).unwrap();
            }
        }
        let begin = Instant::now();
        while counts.2.load(Ordering::SeqCst) < 8 {
            assert!(begin.elapsed() < Duration::from_secs(20), "functions are kept: {counts:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (ran, cancelled) = (counts.0.load(Ordering::SeqCst), counts.1.load(Ordering::SeqCst));
        assert_eq!(ran + cancelled, 8, "{ran} ran, {cancelled} were cancelled");
    }
}
