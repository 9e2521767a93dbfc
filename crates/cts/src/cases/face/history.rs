//! Memory history: the events say what the blocks say, of device memory, pools and pinned memory, whatever the backend.

use super::Face;
use super::memory::{FIXED, GROWING, MIB};
use crate::case::{Capability, Case, Outcome, errs, expect, fail, same};
use crate::env::Env;
use anyaccel::{Error, HistoryOptions, Snapshot};
use std::collections::BTreeMap;

const RULE: &str = "memory.history";
const GROWS: &[Capability] = &[Capability::VirtualMemory];

pub(super) const CASES: &[Case] = &[
    Case::face("history.rebuilds", &[RULE], |env| rebuilds(env, FIXED)),
    Case::face("history.rebuilds/growable", &[RULE], |env| rebuilds(env, GROWING)).needs(GROWS),
    Case::face("history.pending", &[RULE], pending),
    Case::face("history.pools", &[RULE], pools),
    Case::face("history.pinned", &[RULE], pinned),
    Case::face("history.failure", &[RULE], failure),
    Case::face("history.names-and-bounds", &[RULE], names_and_bounds),
    Case::face("history.inside-a-function", &[RULE], inside),
    Case::face("history.file", &[RULE], file),
];

impl Face {
    /// A fresh runtime with these settings, which records.
    fn recording(env: &Env, settings: &str) -> Outcome<Face> {
        let face = Face::set_up(env, settings)?;
        face.runtime.record_memory_history(HistoryOptions::without_stacks())?;
        Ok(face)
    }
}

/// The events of a device by name.
fn names(snapshot: &Snapshot) -> Vec<&'static str> {
    snapshot.traces[0].events.iter().map(|event| event.action.name()).collect()
}

/// What the events of the first device say must be what its segments say, and those what the statistics say.
fn agree(face: &Face, snapshot: &Snapshot) -> Outcome {
    let mut blocks: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    let mut bytes = 0u64;
    for event in &snapshot.traces[0].events {
        let followed = match event.action.name() {
            "segment_alloc" | "segment_map" => {
                bytes += event.size;
                true
            }
            "segment_free" | "segment_unmap" => {
                bytes -= event.size;
                true
            }
            "alloc" => blocks.insert(event.addr, (event.size, "active_allocated")).is_none(),
            "free_requested" => {
                let before = blocks.insert(event.addr, (event.size, "active_pending_free"));
                before == Some((event.size, "active_allocated"))
            }
            "free_completed" => blocks.remove(&event.addr) == Some((event.size, "active_pending_free")),
            _ => true,
        };
        expect(RULE, followed, "an event that follows from those before it", format!("{event:x?}"))?;
    }
    let mut shown = BTreeMap::new();
    for block in snapshot.segments.iter().filter(|segment| segment.device == 0).flat_map(|segment| &segment.blocks) {
        if block.state.name() != "inactive" {
            shown.insert(block.addr, (block.requested, block.state.name()));
        }
    }
    same(RULE, "the blocks that the events tell of", blocks, shown)?;
    let sum = |of: fn(&anyaccel_snapshot::Segment) -> u64| -> u64 {
        snapshot.segments.iter().filter(|segment| segment.device == 0).map(of).sum()
    };
    same(RULE, "the bytes of the segments that the events tell of", bytes, sum(|segment| segment.total))?;
    for (key, seen) in [
        ("reserved_bytes", sum(|segment| segment.total)),
        ("allocated_bytes", sum(|segment| segment.allocated)),
        ("active_bytes", sum(|segment| segment.active)),
        ("requested_bytes", sum(|segment| segment.requested)),
    ] {
        same(RULE, &format!("{key} of the segments"), seen, face.stat(&format!("{key}.all.current"))?)?;
    }
    Ok(())
}

fn rebuilds(env: &Env, settings: &str) -> Outcome {
    let face = Face::recording(env, settings)?;
    let (runtime, mut kept) = (&face.runtime, Vec::new());
    same("start.nothing-else", "whether recording started the runtime", runtime.is_started(), false)?;
    let streams = [runtime.stream(())?, runtime.stream(())?];
    for round in 0..60u64 {
        let _current = streams[round as usize % 2].enter()?;
        let buffer = runtime.alloc(1 + round * 104_729 % (4 * MIB))?;
        if round % 3 == 0 {
            kept.push(buffer);
        }
        if round == 40 {
            runtime.empty_cache()?;
        }
        if round % 20 == 0 {
            agree(&face, &runtime.memory_snapshot()?)?;
        }
    }
    agree(&face, &runtime.memory_snapshot()?)?;
    kept.truncate(5);
    runtime.empty_cache()?;
    agree(&face, &runtime.memory_snapshot()?)?;
    runtime.record_memory_history(HistoryOptions::off())?;
    same(RULE, "events after the recording ended", runtime.memory_snapshot()?.events(), 0)
}

fn pending(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let (runtime, side) = (&face.runtime, face.runtime.stream(())?);
    let buffer = runtime.alloc(1000)?;
    let hold = face.hold(&side)?;
    side.fill(&buffer.all(), b"x")?;
    drop(buffer);
    let held = runtime.memory_snapshot()?;
    let state = held.segments[0].blocks[0].state.name();
    same(RULE, "the state of a block that a stream still uses", state, "active_pending_free")?;
    same(RULE, "the last event", names(&held).last(), Some(&"free_requested"))?;
    agree(&face, &held)?;
    drop(hold);
    face.finish(&side)?;
    runtime.empty_cache()?;
    let after = runtime.memory_snapshot()?;
    agree(&face, &after)?;
    same(RULE, "the last event", names(&after).last(), Some(&"segment_free"))
}

fn pools(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let runtime = &face.runtime;
    let pool = runtime.mem_pool(())?;
    let _inside = {
        let _scope = pool.enter()?;
        runtime.alloc(1000)?
    };
    let _outside = runtime.alloc(1000)?;
    let snapshot = runtime.memory_snapshot()?;
    let pool_of = |at: u16| snapshot.pools[usize::from(at)];
    let events: Vec<_> = snapshot.traces[0].events.iter().map(|event| pool_of(event.pool)).collect();
    same(RULE, "the pools of the events", events, vec![pool.id(), pool.id(), (0, 0), (0, 0)])?;
    let mut segments: Vec<_> = snapshot.segments.iter().map(|segment| pool_of(segment.pool)).collect();
    segments.sort_unstable();
    same(RULE, "the pools of the segments", segments, vec![(0, 0), pool.id()])?;
    agree(&face, &snapshot)
}

fn pinned(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let runtime = &face.runtime;
    let buffer = runtime.pinned(5000)?;
    let held = runtime.memory_snapshot()?;
    let seen: Vec<_> = held.host_segments.iter().map(|s| (s.device, s.requested, s.blocks.len())).collect();
    same(RULE, "device, request and blocks of pinned memory", seen, vec![(-1, 5000, 1)])?;
    drop(buffer);
    runtime.empty_host_cache()?;
    let snapshot = runtime.memory_snapshot()?;
    let seen: Vec<_> = snapshot.host_trace.events.iter().map(|event| event.action.name()).collect();
    let expected = vec!["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"];
    same(RULE, "the events of pinned memory", seen, expected)?;
    same(RULE, "pinned memory that is left", snapshot.host_segments.len(), 0)
}

fn failure(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let runtime = &face.runtime;
    runtime.set_memory_budget(Some(4 * MIB), ())?;
    let _held = runtime.alloc(1000)?;
    errs(RULE, "a request beyond the budget", "OutOfMemory", runtime.alloc(30 * MIB), |error| {
        matches!(error, Error::OutOfMemory { .. })
    })?;
    let snapshot = runtime.memory_snapshot()?;
    let last = snapshot.traces[0].events.last().map(|event| (event.action.name(), event.size));
    same(RULE, "the last event and its size", last, Some(("oom", 30 * MIB)))?;
    agree(&face, &snapshot)
}

fn names_and_bounds(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let options = HistoryOptions { max_entries: 6, ..HistoryOptions::without_stacks() };
    runtime.record_memory_history(options)?;
    for _ in 0..4 {
        let _step = runtime.memory_annotation("step");
        let _inner = runtime.memory_annotation("forward");
        drop(runtime.alloc(1000)?);
    }
    // Once a segment, and three for each round.
    same(RULE, "events that it says it lost", runtime.memory_history()?.dropped, 1 + 4 * 3 - 6)?;
    let snapshot = runtime.memory_snapshot()?;
    for event in &snapshot.traces[0].events {
        same(RULE, "the name of an event", snapshot.names.get(event.user_metadata), "step/forward")?;
    }
    same(RULE, "events that the ring keeps", snapshot.traces[0].events.len(), 6)?;
    same(RULE, "marks of ranges that are kept", snapshot.annotations.len(), 6)
}

fn inside(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let runtime = face.runtime.clone();
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(1000)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let within = runtime.clone();
    stream.host_fn(move || {
        drop(buffer);
        let _gone_if_the_case_gave_up = sender.send(within.memory_snapshot().map(|snapshot| snapshot.events()));
    })?;
    face.finish(&stream)?;
    match receiver.recv_timeout(face.patience) {
        Ok(Ok(events)) => expect(RULE, events >= 2, "a snapshot with the events so far", events),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => fail(RULE, "a snapshot from inside a host function", error.to_string()),
    }
}

fn file(env: &Env) -> Outcome {
    let face = Face::recording(env, FIXED)?;
    let nowhere = std::env::temp_dir().join("anyaccel-no-such-directory").join("memory.pickle");
    let path = nowhere.display().to_string();
    errs(
        RULE,
        "a path in no directory",
        "SnapshotFile",
        face.runtime.dump_snapshot(&nowhere),
        |error| matches!(error, Error::SnapshotFile { path: named, .. } if *named == path),
    )
}
