//! Native captures, and what captures of others forbid.

use crate::Scenario;
use crate::lab::{Lab, arg, calls, control, eventually};
use anyaccel::{GraphOptions, Runtime};
use anyaccel_hal::{Arg, CaptureMode, FaultKind, Format, GraphNode, HostFn, HostStatus, Launch, Mark, Op, Written};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("a_capture_becomes_a_graph", a_capture),
    Scenario::new("a_capture_over_two_streams", two_streams),
    Scenario::new("what_breaks_a_capture_ends_it", broken),
    Scenario::new("memory_comes_and_goes_beside_any_capture", beside_a_capture),
    Scenario::new("functions_in_a_capture_run_at_each_replay", functions_in_a_capture),
    Scenario::new("a_replay_is_one_call", a_replay_is_one_call),
    Scenario::new("replays_on_several_streams_are_ordered_by_the_driver", replays_on_several_streams),
    Scenario::new("a_graph_goes_behind_its_last_replay", goes_behind_its_replay),
    Scenario::new("the_driver_draws_its_graphs", drawn),
    Scenario::new("functions_are_replaced_for_later_replays", functions_replaced),
    Scenario::new("functions_of_replays_that_can_not_end_are_cancelled", functions_cancelled),
];

fn a_capture() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(4096);
    lab.fill(stream, place, 0, 4096).expect("a fill");
    let kernel = lab.load(Format::Ptx, include_bytes!("increment.ptx"), "increment").expect("a kernel");
    let graphs = lab.device.graphs().expect("graphs");
    // SAFETY: H1: a stream of this device, here and below; one replay after the other in one stream.
    unsafe {
        assert_eq!(graphs.capture_id(stream), Ok(None));
        let id = graphs.begin(stream, CaptureMode::Global).expect("a capture");
        assert_eq!(graphs.capture_id(stream), Ok(Some(id)));
        assert_eq!(graphs.begin(stream, CaptureMode::Global).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        let args = [arg(place, 4096), Arg::Bytes(&1024_u32.to_le_bytes())];
        lab.launch(stream, kernel, Launch::linear(4, 256), &args).expect("a node");
        lab.launch(stream, kernel, Launch::linear(4, 256), &args).expect("a node");
        assert!(matches!(lab.mark(stream), Ok(Mark::Captured(_))));
        assert_eq!(lab.finish(stream).map_err(|fault| fault.kind), Err(FaultKind::Invalid), "it can't end now");
        let graph = graphs.end(stream).expect("a graph");
        assert_eq!(graphs.capture_id(stream), Ok(None));
        assert_eq!(lab.read(stream, place, 4)[0], 0, "nothing ran yet");
        for _ in 0..5 {
            graphs.replay(graph, stream).expect("a replay");
        }
        assert_eq!(lab.read(stream, place, 4096), [10, 0, 0, 0].repeat(1024));
        graphs.destroy(graph);
    }
}

fn two_streams() {
    let lab = Lab::new();
    let (one, other) = (lab.stream(), lab.stream());
    let (a, b) = (lab.memory(64), lab.memory(64));
    let graphs = lab.device.graphs().expect("graphs");
    // SAFETY: as above.
    unsafe {
        let id = graphs.begin(one, CaptureMode::ThreadLocal).expect("a capture");
        lab.fill(one, a, 1, 64).expect("a node");
        let fork = lab.mark(one).expect("a point");
        lab.wait(other, one, fork).expect("a wait");
        assert_eq!(graphs.capture_id(other), Ok(Some(id)), "the other stream takes part");
        lab.fill(other, b, 2, 64).expect("a node");
        let join = lab.mark(other).expect("a point");
        lab.wait(one, other, join).expect("a wait");
        let graph = graphs.end(one).expect("a graph");
        assert_eq!(graphs.capture_id(other), Ok(None));
        assert!(matches!(lab.mark(other), Ok(Mark::At(_))), "the other stream is as before");
        graphs.replay(graph, one).expect("a replay");
        assert_eq!((lab.read(one, a, 64), lab.read(one, b, 64)), (vec![1; 64], vec![2; 64]));
        graphs.destroy(graph);
    }
}

fn broken() {
    let lab = Lab::new();
    let (one, other) = (lab.stream(), lab.stream());
    let place = lab.memory(64);
    let graphs = lab.device.graphs().expect("graphs");
    // SAFETY: as above.
    unsafe {
        graphs.begin(one, CaptureMode::ThreadLocal).expect("a capture");
        let fork = lab.mark(one).expect("a point");
        lab.wait(other, one, fork).expect("a wait");
        lab.fill(other, place, 2, 64).expect("a node");
        let fault = graphs.end(one).expect_err("the other stream did not come back");
        assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Invalid, "cuStreamEndCapture", 904));
        assert_eq!(graphs.capture_id(one), Ok(None), "it has ended all the same");
        graphs.begin(one, CaptureMode::Relaxed).expect("another capture");
        lab.fill(one, place, 3, 64).expect("a node");
        graphs.abort(one);
        graphs.abort(one);
        assert_eq!(graphs.capture_id(one), Ok(None));
    }
    lab.fill(one, place, 4, 64).expect("a fill");
    assert_eq!(lab.read(one, place, 64), [4; 64]);
}

fn beside_a_capture() {
    let lab = Lab::new();
    let (stream, free) = (lab.stream(), lab.stream());
    let place = lab.memory(64);
    lab.fill(free, place, 1, 64).expect("a fill");
    let before = lab.mark(free).expect("a mark");
    let graphs = lab.device.graphs().expect("graphs");
    // SAFETY: as above.
    unsafe { graphs.begin(stream, CaptureMode::Global) }.expect("a capture");
    lab.fill(stream, place, 2, 64).expect("a node");
    let beside = || {
        let mem = lab.device.alloc(1 << 20).expect("memory beside a capture").mem;
        lab.free(mem).expect("giving it back");
        eventually("the mark ends", || {
            // SAFETY: H1.
            unsafe { lab.device.completed(free) }.is_ok_and(|ended| Mark::At(ended) == before)
        });
        let pinned = lab.device.pinned().expect("pinned memory");
        let (mem, _) = pinned.alloc(4096).expect("pinned memory");
        // SAFETY: H1, H5.
        unsafe { pinned.free(mem) }.expect("giving it back");
    };
    beside();
    std::thread::scope(|scope| scope.spawn(beside).join()).expect("the same on another thread");
    // SAFETY: as above.
    let graph = unsafe { graphs.end(stream) }.expect("nothing broke it");
    // SAFETY: as above.
    unsafe { graphs.replay(graph, stream) }.expect("a replay");
    assert_eq!(lab.read(stream, place, 64), [2; 64]);
}

fn functions_in_a_capture() {
    let lab = Lab::new();
    let stream = lab.stream();
    let graphs = lab.device.graphs().expect("graphs");
    assert!(graphs.limits().host_calls);
    let runs = Arc::new(AtomicU32::new(0));
    let inside = runs.clone();
    let call = Op::HostCall(HostFn::new(move |_| {
        inside.fetch_add(1, Ordering::SeqCst);
    }));
    // SAFETY: H1, H13; one replay after the other in one stream.
    unsafe {
        let graph = graphs.build(vec![GraphNode { op: call, after: [].into() }]).expect("a graph");
        for _ in 0..20 {
            graphs.replay(graph, stream).expect("a replay");
        }
        lab.finish(stream).expect("an end");
        assert_eq!(runs.load(Ordering::SeqCst), 20);
        graphs.destroy(graph);
    }
    eventually("the function goes with its graph", || Arc::strong_count(&runs) == 1);
}

fn drawn() {
    let lab = Lab::new();
    let graphs = lab.device.graphs().expect("graphs");
    let place = lab.memory(64);
    let write = Op::Write { dst: place, bytes: Written::new(&[1]).expect("a byte") };
    let call = Op::HostCall(HostFn::new(|_| ()));
    let nodes = vec![GraphNode { op: write, after: [].into() }, GraphNode { op: call, after: [0].into() }];
    // SAFETY: H1, H13.
    unsafe {
        let graph = graphs.build(nodes).expect("a graph");
        let text = graphs.dot(graph).expect("a drawing");
        assert!(text.starts_with("digraph") && text.contains("anyaccel_write") && text.contains("HOST"), "{text}");
        control().fail("cuGraphDebugDotPrint", 1, 1);
        assert_eq!(graphs.dot(graph), None);
        graphs.destroy(graph);
    }
    // And through the face, behind what was recorded.
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let stream = runtime.stream(()).expect("a stream");
    let buffer = runtime.zeros(64).expect("memory");
    let current = stream.enter().expect("a current stream");
    let graph = runtime.graph(GraphOptions::default());
    graph.enable_debug_mode();
    graph.capture(|| stream.fill(&buffer.all(), &[2])).expect("a capture");
    let dumped = || {
        let path = std::env::temp_dir().join(format!("anyaccel-dump-{}.dot", std::process::id()));
        graph.debug_dump(&path).expect("a file");
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::remove_file(path).expect("the file");
        text.matches("digraph").count()
    };
    assert_eq!(dumped(), 2);
    drop(current);
    // The files are gone.
    let ours = format!("anyaccel-cuda-{}-", std::process::id());
    let mut left = std::fs::read_dir(std::env::temp_dir()).expect("the folder").flatten();
    assert!(!left.any(|entry| entry.file_name().to_string_lossy().starts_with(&ours)));
}

/// A function that notes its calls, and says while it is called that it is.
fn noting(log: &Log, number: u32, blocks: Option<&Arc<Latch>>) -> Op {
    let (log, blocks) = (log.clone(), blocks.cloned());
    Op::HostCall(HostFn::new(move |status| {
        log.lock().expect("no panic").push((number, status));
        if let Some(latch) = &blocks {
            latch.pass();
        }
    }))
}

type Log = Arc<Mutex<Vec<(u32, HostStatus)>>>;

/// Holds up who passes until it is opened.
#[derive(Default)]
struct Latch {
    entered: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    fn pass(&self) {
        self.entered.store(true, Ordering::SeqCst);
        let guard = self.open.lock().expect("no panic");
        let waited = self.opened.wait_timeout_while(guard, crate::lab::PATIENCE, |open| !*open).expect("no panic");
        assert!(!waited.1.timed_out());
    }

    fn open(&self) {
        *self.open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

fn functions_replaced() {
    let lab = Lab::new();
    let stream = lab.stream();
    let graphs = lab.device.graphs().expect("graphs");
    let (log, latch) = (Log::default(), Arc::<Latch>::default());
    // SAFETY: H1, H13; one replay after the other in one stream.
    unsafe {
        let nodes = vec![GraphNode { op: noting(&log, 0, Some(&latch)), after: [].into() }];
        let graph = graphs.build(nodes).expect("a graph");
        graphs.replay(graph, stream).expect("a replay");
        graphs.replay(graph, stream).expect("a replay");
        eventually("the first call", || latch.entered.load(Ordering::SeqCst));
        // While it is called, and once more before it will be.
        graphs.update(graph, 0, noting(&log, 1, None)).expect("an update");
        graphs.update(graph, 0, noting(&log, 2, None)).expect("an update");
        graphs.replay(graph, stream).expect("a replay");
        // A replay that is refused calls nothing.
        control().fail("cuGraphLaunch", 1, 999);
        assert_eq!(graphs.replay(graph, stream).map_err(|fault| fault.kind), Err(FaultKind::Driver));
        graphs.update(graph, 0, noting(&log, 3, None)).expect("an update");
        graphs.replay(graph, stream).expect("a replay");
        latch.open();
        lab.finish(stream).expect("an end");
        let run = |number| (number, HostStatus::Run);
        assert_eq!(noted(&log, 4), [run(0), run(0), run(2), run(3)]);
        // What was replaced is gone: only the newest is left.
        eventually("old functions go", || Arc::strong_count(&log) == 2 && Arc::strong_count(&latch) == 1);
        let fault =
            graphs.update(graph, 0, Op::Write { dst: lab.memory(64), bytes: Written::new(&[1]).expect("a byte") });
        assert_eq!(fault.map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        graphs.destroy(graph);
    }
    eventually("the function goes with its graph", || Arc::strong_count(&log) == 1);
}

/// What was noted, once there is that much.
fn noted(log: &Log, count: usize) -> Vec<(u32, HostStatus)> {
    eventually("all calls", || log.lock().expect("no panic").len() >= count);
    log.lock().expect("no panic").clone()
}

fn functions_cancelled() {
    let lab = Lab::new();
    let stream = lab.stream();
    let graphs = lab.device.graphs().expect("graphs");
    let (log, latch) = (Log::default(), Arc::<Latch>::default());
    // SAFETY: H1, H13; one replay after the other in one stream.
    unsafe {
        let nodes = vec![GraphNode { op: noting(&log, 0, Some(&latch)), after: [].into() }];
        let graph = graphs.build(nodes).expect("a graph");
        for _ in 0..3 {
            graphs.replay(graph, stream).expect("a replay");
        }
        graphs.update(graph, 0, noting(&log, 1, None)).expect("an update");
        graphs.replay(graph, stream).expect("a replay");
        eventually("the first call", || latch.entered.load(Ordering::SeqCst));
        control().lose(0);
        assert_eq!(lab.finish(stream).map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
        let refused = graphs.update(graph, 0, noting(&log, 2, None));
        assert_eq!(refused.map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
        // The function that is being called is not called by another thread at the same time, and not forgotten.
        latch.open();
        let cancelled = |number| (number, HostStatus::Cancelled);
        let mut calls = noted(&log, 4);
        calls.sort_by_key(|&(number, status)| (number, status as u32));
        assert_eq!(calls, [(0, HostStatus::Run), cancelled(0), cancelled(0), cancelled(1)]);
        graphs.destroy(graph);
    }
    eventually("the functions go with their graph", || Arc::strong_count(&log) == 1);
}

fn count(name: &str) -> usize {
    calls().iter().filter(|call| *call == name).count()
}

/// A runtime, a stream, and a graph that adds up: each replay copies what it left one byte further.
fn moving() -> (Runtime, anyaccel::Stream, anyaccel::Buffer, anyaccel::Graph) {
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let stream = runtime.stream(()).expect("a stream");
    let (buffer, aside) = (runtime.zeros(256).expect("memory"), runtime.zeros(255).expect("memory"));
    runtime.synchronize(()).expect("an end");
    stream.fill(&buffer.slice(..1).expect("a part"), &[1]).expect("a fill");
    let graph = runtime.graph(GraphOptions::default());
    let current = stream.enter().expect("a current stream");
    let step = || {
        stream.copy(&aside.all(), &buffer.slice(..255).expect("a part"))?;
        stream.copy(&buffer.slice(1..).expect("a part"), &aside.all())
    };
    graph.capture(step).expect("a graph");
    drop(current);
    (runtime, stream, buffer, graph)
}

fn a_replay_is_one_call() {
    let (_runtime, stream, buffer, graph) = moving();
    let current = stream.enter().expect("a current stream");
    graph.replay().expect("a replay");
    let before = calls();
    for _ in 0..9 {
        graph.replay().expect("a replay");
    }
    let around = |call: &str| call.starts_with("cuCtx") || call == "cuGraphLaunch";
    let other: Vec<String> = calls().into_iter().skip(before.len()).filter(|call| !around(call)).collect();
    assert_eq!(other, Vec::<String>::new());
    assert_eq!(count("cuGraphLaunch"), 10);
    drop(current);
    stream.synchronize().expect("an end");
    let seen = buffer.to_vec().expect("bytes");
    assert!(seen[..11].iter().all(|&byte| byte == 1) && seen[11..].iter().all(|&byte| byte == 0), "{seen:?}");
}

fn replays_on_several_streams() {
    let (runtime, stream, buffer, graph) = moving();
    let others: Vec<anyaccel::Stream> = (0..3).map(|_| runtime.stream(()).expect("a stream")).collect();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    // The first replay is held up, and what comes behind it in its stream for longer.
    let held = Arc::new(Mutex::new(wait));
    let (one, two) = (held.clone(), held);
    let block = move |held: &Mutex<std::sync::mpsc::Receiver<()>>| {
        let _told = held.lock().map(|wait| wait.recv());
    };
    stream.host_fn(move || block(&one)).expect("a function");
    let replay = |on: &anyaccel::Stream| {
        let _current = on.enter().expect("a current stream");
        graph.replay().expect("a replay");
    };
    replay(&stream);
    stream.host_fn(move || block(&two)).expect("a function");
    others.iter().for_each(replay);
    assert!(!others[2].query().expect("an answer"), "the first replay is held up");
    release.send(()).expect("a release");
    // Later work of the first stream is not waited for.
    others[2].synchronize().expect("an end");
    assert!(!stream.query().expect("an answer"));
    release.send(()).expect("a release");
    runtime.synchronize(()).expect("an end");
    let seen = buffer.to_vec().expect("bytes");
    assert!(seen[..5].iter().all(|&byte| byte == 1) && seen[5..].iter().all(|&byte| byte == 0), "{seen:?}");
}

/// Nothing tells yet where a replay ends when its graph is dropped, here or in a function of the host.
fn goes_behind_its_replay() {
    let (runtime, stream, buffer, graph) = moving();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    stream
        .host_fn(move || {
            let _told = wait.recv();
        })
        .expect("a function");
    let current = stream.enter().expect("a current stream");
    graph.replay().expect("a replay");
    drop((current, graph));
    assert_eq!(count("cuGraphExecDestroy"), 0, "its replay has not begun");
    release.send(()).expect("a release");
    stream.synchronize().expect("an end");
    eventually("it goes", || {
        runtime.empty_cache().expect("memory goes back");
        count("cuGraphExecDestroy") == 1
    });
    assert_eq!(buffer.to_vec().expect("bytes")[..3], [1, 1, 0]);

    let (again, other, _bytes, graph) = moving();
    let current = other.enter().expect("a current stream");
    graph.replay().expect("a replay");
    drop(current);
    other.host_fn(move || drop(graph)).expect("a function");
    other.synchronize().expect("an end");
    eventually("it goes", || {
        again.empty_cache().expect("memory goes back");
        count("cuGraphExecDestroy") == 2
    });
}
