//! Memory history through the face: what a snapshot shows, where it goes, and what it must not disturb.

use anyaccel::{
    ContextLevel, Error, GraphOptions, HistoryAction, HistoryOptions, HistoryStacks, Recorded, Runtime, Snapshot,
    StackFrame, StackId, StackSource, StreamOptions,
};
use anyaccel_sim::{Deadlock, Sim, SimConfig};
use anyaccel_snapshot::{Action, BlockState, Segment, Stage, read_file};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: u64 = 1 << 20;

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

fn recording() -> (Sim, Runtime) {
    let (sim, runtime) = simulated(SimConfig::new());
    runtime.record_memory_history(HistoryOptions::without_stacks()).unwrap();
    (sim, runtime)
}

fn actions(snapshot: &Snapshot) -> Vec<&'static str> {
    snapshot.traces[0].events.iter().map(|event| event.action.name()).collect()
}

/// A directory of this test's own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("anyaccel-history-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn names(&self) -> Vec<String> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn nothing_is_started_and_nothing_is_there_before_the_start() {
    let (_sim, runtime) = simulated(SimConfig::new());
    runtime.record_memory_history(HistoryOptions::default()).unwrap();
    let snapshot = runtime.memory_snapshot().unwrap();
    assert!(snapshot.segments.is_empty() && snapshot.traces.is_empty() && snapshot.host_segments.is_empty());
    assert!(runtime.memory_history().unwrap().recording);
    drop(runtime.memory_annotation("before"));
    assert!(!runtime.is_started());
    let _buffer = runtime.alloc(1000).unwrap();
    assert_eq!(actions(&runtime.memory_snapshot().unwrap()), ["segment_alloc", "alloc"]);
}

/// Its number may be another one's id.
#[test]
fn a_stream_that_is_gone_keeps_its_id() {
    let (_sim, simulated) = simulated(SimConfig::new());
    for runtime in [Runtime::builder().backend("host").build().unwrap(), simulated] {
        runtime.record_memory_history(HistoryOptions::without_stacks()).unwrap();
        let options = StreamOptions { priority: 0, reserved: true };
        let streams: Vec<_> = (0..3).map(|_| runtime.stream_with((), options).unwrap()).collect();
        let ids: Vec<u64> = streams.iter().map(|stream| stream.stream_id()).collect();
        let mut buffers = Vec::new();
        for stream in &streams {
            let _scope = stream.enter().unwrap();
            buffers.push(runtime.alloc(30 * MIB).unwrap());
        }
        drop(streams);
        runtime.synchronize(()).unwrap();
        let snapshot = runtime.memory_snapshot().unwrap();
        let mut held: Vec<u64> = snapshot.segments.iter().map(|segment| segment.stream).collect();
        held.sort_unstable();
        assert_eq!(held, ids, "{:?}", runtime.kind());
        let told: Vec<u64> = snapshot.traces[0].events.iter().map(|event| event.stream).collect();
        assert_eq!(told, [ids[0], ids[0], ids[1], ids[1], ids[2], ids[2]], "{:?}", runtime.kind());
    }
}

#[test]
fn the_events_rebuild_the_blocks_and_the_sums_are_the_statistics() {
    let (_sim, runtime) = simulated(SimConfig::new().memories([1 << 30, 1 << 30]));
    runtime.record_memory_history(HistoryOptions::without_stacks()).unwrap();
    let mut kept = Vec::new();
    for device in [0, 1] {
        let _current = runtime.device_index(device).unwrap();
        for round in 0..200u64 {
            let buffer = runtime.alloc(1 + round * 7919 % (3 * MIB)).unwrap();
            if round % 3 == 0 {
                kept.push(buffer);
            }
            if round == 150 {
                runtime.empty_cache().unwrap();
            }
        }
    }
    let snapshot = runtime.memory_snapshot().unwrap();
    assert_eq!(snapshot.traces.len(), 2);
    for device in [0usize, 1] {
        let mut held = BTreeMap::new();
        let mut segments = BTreeMap::new();
        for event in &snapshot.traces[device].events {
            match event.action {
                Action::SegmentAlloc => assert_eq!(segments.insert(event.addr, event.size), None),
                Action::SegmentFree => assert_eq!(segments.remove(&event.addr), Some(event.size)),
                Action::Alloc => assert_eq!(held.insert(event.addr, event.size), None),
                Action::FreeCompleted => assert_eq!(held.remove(&event.addr), Some(event.size)),
                _ => {}
            }
        }
        let of_device: Vec<&Segment> = snapshot.segments.iter().filter(|s| s.device == device as i32).collect();
        let shown: BTreeMap<u64, u64> = of_device.iter().map(|s| (s.addr, s.total)).collect();
        assert_eq!(segments, shown);
        let blocks = of_device.iter().flat_map(|s| &s.blocks).filter(|b| b.state == BlockState::Allocated);
        assert_eq!(held, blocks.map(|b| (b.addr, b.requested)).collect());
        let stats = runtime.memory_stats(device as i64).unwrap();
        let sum = |of: fn(&Segment) -> u64| of_device.iter().map(|s| of(s)).sum::<u64>() as i64;
        assert_eq!(stats.get("allocated_bytes.all.current"), Some(sum(|s| s.allocated)));
        assert_eq!(stats.get("active_bytes.all.current"), Some(sum(|s| s.active)));
        assert_eq!(stats.get("requested_bytes.all.current"), Some(sum(|s| s.requested)));
        assert_eq!(stats.get("reserved_bytes.all.current"), Some(sum(|s| s.total)));
        assert!(of_device.iter().all(|s| s.blocks.iter().map(|b| b.size).sum::<u64>() == s.total));
    }
}

#[test]
fn a_block_that_a_stream_still_uses_is_pending() {
    let (sim, runtime) = recording();
    let side = runtime.stream(()).unwrap();
    let buffer = runtime.alloc(1000).unwrap();
    let hold = sim.hold(side.driver_id()).unwrap();
    side.fill(&buffer.all(), b"x").unwrap();
    drop(buffer);
    let snapshot = runtime.memory_snapshot().unwrap();
    let states: Vec<BlockState> = snapshot.segments[0].blocks.iter().map(|b| b.state).collect();
    assert_eq!(states, [BlockState::PendingFree, BlockState::Inactive]);
    assert_eq!(actions(&snapshot).last(), Some(&"free_requested"));
    assert_eq!((snapshot.segments[0].allocated, snapshot.segments[0].active), (0, 1024));
    hold.release();
    side.synchronize().unwrap();
    runtime.empty_cache().unwrap();
    let after = actions(&runtime.memory_snapshot().unwrap());
    assert_eq!(after[after.len() - 3..], ["snapshot", "free_completed", "segment_free"]);
}

#[test]
fn streams_have_their_ids_and_pools_their_names() {
    let (_sim, runtime) = recording();
    let stream = runtime.stream(()).unwrap();
    let _plain = runtime.alloc(1000).unwrap();
    let _beside = {
        let _current = stream.enter().unwrap();
        runtime.alloc(1000).unwrap()
    };
    let pool = runtime.mem_pool(()).unwrap();
    let _pooled = {
        let _scope = pool.enter().unwrap();
        runtime.alloc(1000).unwrap()
    };
    let graph = runtime.graph(GraphOptions::default());
    {
        let _current = stream.enter().unwrap();
        graph.capture(|| runtime.alloc(3 * MIB).map(drop)).unwrap();
    }
    let snapshot = runtime.memory_snapshot().unwrap();
    let segments: Vec<_> =
        snapshot.segments.iter().map(|s| (s.stream, snapshot.pools[usize::from(s.pool)], s.large)).collect();
    assert!(segments.contains(&(0, (0, 0), false)), "{segments:?}");
    assert!(segments.contains(&(stream.stream_id(), (0, 0), false)), "{segments:?}");
    assert!(segments.contains(&(0, pool.id(), false)), "{segments:?}");
    assert!(segments.iter().any(|s| s.2 && s.1 != (0, 0)), "the graph has a pool of its own: {segments:?}");
    let known: Vec<u64> = vec![0, stream.stream_id()];
    assert!(snapshot.traces[0].events.iter().all(|event| known.contains(&event.stream)));
}

#[test]
fn pinned_memory_has_a_history_of_its_own() {
    let (_sim, runtime) = recording();
    let pinned = runtime.pinned(5000).unwrap();
    let held = runtime.memory_snapshot().unwrap();
    assert_eq!((held.host_segments.len(), held.host_segments[0].device), (1, -1));
    assert_eq!((held.host_segments[0].allocated, held.host_segments[0].requested), (8192, 5000));
    drop(pinned);
    runtime.empty_host_cache().unwrap();
    let snapshot = runtime.memory_snapshot().unwrap();
    let told: Vec<_> = snapshot.host_trace.events.iter().map(|e| (e.action.name(), e.size)).collect();
    let expected = [
        ("segment_alloc", 8192),
        ("alloc", 5000),
        ("free_requested", 5000),
        ("free_completed", 5000),
        ("segment_free", 8192),
    ];
    assert_eq!(told, expected);
    assert!(snapshot.host_segments.is_empty() && snapshot.traces[0].events.iter().all(|e| e.size != 5000));
    runtime.record_memory_history(HistoryOptions { pinned: false, ..HistoryOptions::without_stacks() }).unwrap();
    drop(runtime.pinned(5000).unwrap());
    assert!(runtime.memory_snapshot().unwrap().host_trace.events.is_empty());
}

#[test]
fn annotations_are_ranges_and_names() {
    let (_sim, runtime) = recording();
    let buffer = {
        let _step = runtime.memory_annotation("step 1");
        let _inner = runtime.memory_annotation("forward");
        runtime.alloc(1000).unwrap()
    };
    buffer.annotate("weights");
    let snapshot = runtime.memory_snapshot().unwrap();
    let ranges: Vec<_> = snapshot.annotations.iter().map(|a| (a.stage, snapshot.names.get(a.name))).collect();
    let expected =
        [(Stage::Start, "step 1"), (Stage::Start, "forward"), (Stage::End, "forward"), (Stage::End, "step 1")];
    assert_eq!(ranges, expected);
    let events = &snapshot.traces[0].events;
    assert_eq!(snapshot.names.get(events[1].user_metadata), "step 1/forward");
    assert_eq!((events[2].action, snapshot.names.get(events[2].user_metadata)), (Action::Annotate, "weights"));
    let inside = snapshot.annotations[1].time_us..=snapshot.annotations[2].time_us;
    assert!(inside.contains(&events[1].time_us), "events and ranges have one clock");
}

#[test]
fn a_full_ring_says_what_it_lacks() {
    let (_sim, runtime) = simulated(SimConfig::new());
    let options = HistoryOptions { max_entries: 10, ..HistoryOptions::without_stacks() };
    runtime.record_memory_history(options).unwrap();
    for _ in 0..10 {
        drop(runtime.alloc(1000).unwrap());
    }
    let status = runtime.memory_history().unwrap();
    assert_eq!((status.recording, status.entries, status.dropped), (true, 10, 21));
    let snapshot = runtime.memory_snapshot().unwrap();
    let origin = snapshot.origin.as_ref().unwrap();
    assert_eq!((snapshot.traces[0].events.len(), origin.devices[0].dropped), (10, 21));
    assert_eq!(origin.devices[0].total_memory, Some(runtime.get_memory_info(()).unwrap().1));
    let scratch = Scratch::new();
    snapshot.save(scratch.0.join("x.pickle")).unwrap();
    assert_eq!(read_file(&scratch.0.join("x.pickle")).unwrap().origin, snapshot.origin);
}

#[test]
fn without_events_the_blocks_still_tell_who_took_them() {
    let (_sim, runtime) = simulated(SimConfig::new());
    let options = HistoryOptions { enabled: Recorded::State, ..HistoryOptions::default() };
    runtime.record_memory_history(options).unwrap();
    let _buffer = runtime.alloc(1000).unwrap();
    let snapshot = runtime.memory_snapshot().unwrap();
    assert!(snapshot.traces[0].events.is_empty());
    let stack = snapshot.stacks.get(snapshot.segments[0].blocks[0].stack);
    let names: Vec<&str> = stack.iter().map(|&frame| snapshot.frame_name(frame)).collect();
    assert!(names.iter().any(|name| name.contains("without_events_the_blocks_still_tell")), "{names:?}");
    assert!(!names[0].contains("anyaccel_engine"), "{names:?}");
}

#[test]
fn a_trim_is_told_by_its_name() {
    let (_sim, runtime) = recording();
    drop(runtime.alloc(1000).unwrap());
    runtime.record_memory_history(HistoryOptions::default()).unwrap();
    runtime.empty_cache().unwrap();
    let snapshot = runtime.memory_snapshot().unwrap();
    let freed = snapshot.traces[0].events.iter().find(|e| e.action == Action::SegmentFree).unwrap();
    assert_eq!(snapshot.frame_name(snapshot.stacks.get(freed.stack)[0]), "empty_cache");
}

#[derive(Default)]
struct Python(AtomicUsize);

impl StackSource for Python {
    fn stack(&self, _call: Option<&'static str>) -> StackId {
        self.0.fetch_add(1, Ordering::Relaxed);
        StackId(7)
    }

    fn frames(&self, stack: StackId) -> Vec<StackFrame> {
        assert_eq!(stack, StackId(7));
        vec![StackFrame { name: "step".into(), file: "train.py".into(), line: 12 }]
    }
}

#[test]
fn stacks_may_come_from_elsewhere() {
    let (_sim, runtime) = simulated(SimConfig::new());
    let source = Arc::new(Python::default());
    let stacks = HistoryStacks::From(source.clone());
    let options = HistoryOptions { stacks, skip: vec![HistoryAction::FreeRequested], ..HistoryOptions::default() };
    runtime.record_memory_history(options.clone()).unwrap();
    drop(runtime.alloc(1000).unwrap());
    assert_eq!(source.0.load(Ordering::Relaxed), 2, "one stack for taking, one for giving back");
    let snapshot = runtime.memory_snapshot().unwrap();
    assert_eq!(actions(&snapshot), ["segment_alloc", "alloc", "free_completed"]);
    let stack = snapshot.traces[0].events[1].stack;
    assert_eq!(snapshot.frame_text(snapshot.stacks.get(stack)[0]), "step (train.py:12)");
    runtime.record_memory_history(HistoryOptions { context: ContextLevel::Never, ..options }).unwrap();
    drop(runtime.alloc(1000).unwrap());
    assert_eq!(source.0.load(Ordering::Relaxed), 2);
    let last = *runtime.memory_snapshot().unwrap().traces[0].events.last().unwrap();
    assert_eq!(last.stack, anyaccel_snapshot::StackId::ABSENT);
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let (_sim, runtime) = recording();
    let _buffer = runtime.alloc(1000).unwrap();
    let scratch = Scratch::new();
    let path = scratch.0.join("memory.pickle");
    std::fs::write(&path, "old").unwrap();
    runtime.dump_snapshot(&path).unwrap();
    let back = read_file(&path).unwrap();
    assert_eq!((back.segments, back.traces[0].events.len()), (runtime.memory_snapshot().unwrap().segments, 2));
    for bad in [scratch.0.join("nowhere/x.pickle"), scratch.0.clone(), PathBuf::from("/"), PathBuf::new()] {
        match runtime.dump_snapshot(&bad) {
            Err(Error::SnapshotFile { path, reason }) => {
                assert!(path == bad.display().to_string() && !reason.is_empty(), "{path}: {reason}");
            }
            other => panic!("{}: {other:?}", bad.display()),
        }
    }
    assert_eq!(scratch.names(), ["memory.pickle"], "nothing else is left");
}

/// Snapshots, recordings and annotations from host functions, while streams are held: nobody waits for anybody.
#[test]
fn host_functions_may_take_snapshots() {
    let (_sim, runtime) = recording();
    let stream = runtime.stream(()).unwrap();
    let inside = runtime.clone();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let buffer = runtime.alloc(1000).unwrap();
    stream
        .host_fn(move || {
            let _named = inside.memory_annotation("in a host function");
            drop(buffer);
            count.store(inside.memory_snapshot().unwrap().events(), Ordering::SeqCst);
            inside.record_memory_history(HistoryOptions::without_stacks()).unwrap();
        })
        .unwrap();
    stream.synchronize().unwrap();
    assert!(seen.load(Ordering::SeqCst) >= 2);
}

#[test]
fn stopping_forgets_and_devices_opened_later_join_in() {
    let (_sim, runtime) = simulated(SimConfig::new().memories([1 << 30, 1 << 30]));
    runtime.record_memory_history(HistoryOptions::without_stacks()).unwrap();
    let _first = runtime.alloc(1000).unwrap();
    runtime.set_device_index(1).unwrap();
    let _second = runtime.alloc(1000).unwrap();
    let snapshot = runtime.memory_snapshot().unwrap();
    assert!(snapshot.traces.iter().all(|trace| trace.events.len() == 2));
    runtime.record_memory_history(HistoryOptions::off()).unwrap();
    let stopped = runtime.memory_snapshot().unwrap();
    assert!(stopped.events() == 0 && stopped.segments.len() == 2 && stopped.traces.len() == 2);
    assert_eq!(runtime.memory_history().unwrap(), anyaccel::HistoryStatus::default());
}
