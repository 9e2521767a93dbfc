//! Graphs: what is captured does at each replay what it would have done at once, on every backend.

use super::Face;
use crate::case::{Case, Outcome, errs, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::bytes;
use crate::random::Random;
use anyaccel::{Buffer, Error, Graph, GraphError, GraphOptions, Runtime, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) const CASES: &[Case] = &[
    Case::face("graphs.within-stream", &["graph.replay"], within_stream),
    Case::face("graphs.fork-and-join", &["graph.replay", "graph.events"], fork_and_join),
    Case::face("graphs.wait-only-up-to-the-event", &["graph.events"], only_up_to_the_event),
    Case::face("graphs.transitive", &["graph.events"], transitive),
    Case::face("graphs.random-programs", &["graph.replay", "graph.events"], random_programs),
    Case::face("graphs.host-functions", &["graph.replay"], host_functions),
    Case::face("graphs.default-stream", &["stream.capture", "graph.begin"], default_stream),
    Case::face("graphs.calls-out-of-place", &["graph.begin", "graph.end", "graph.reset"], out_of_place),
    Case::face("graphs.forbidden-waits", &["graph.forbidden"], forbidden_waits),
    Case::face("graphs.failed-capture", &["scenario.4", "graph.forbidden"], failed_capture),
    Case::face(
        "graphs.out-of-memory",
        &["scenario.5", "graph.out-of-memory", "memory.trims-in-capture"],
        out_of_memory,
    ),
    Case::face("graphs.memory", &["graph.pool"], memory),
    Case::face("graphs.replay-elsewhere", &["graph.replay"], replay_elsewhere),
];

fn graph(runtime: &Runtime) -> Graph {
    runtime.graph(GraphOptions::default())
}

/// A stream that is current, with everything before behind it.
fn current(face: &Face) -> Outcome<Stream> {
    let stream = face.runtime.stream(())?;
    face.runtime.set_stream(&stream)?;
    Ok(stream)
}

fn within_stream(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let stream = current(&face)?;
    let buffer = face.runtime.zeros(4096)?;
    let program = |buffer: &Buffer| -> anyaccel::Result<()> {
        for round in 0..64_u64 {
            let at = (round * 61) % 1000;
            stream.write(&buffer.slice(at..at + 16)?, &[round as u8; 16])?;
            stream.copy(&buffer.slice(2048..3072)?, &buffer.slice(..1024)?)?;
            stream.fill(&buffer.slice(64 * (round % 16)..64 * (round % 16) + 32)?, &[0xC0 | (round as u8 & 15)])?;
        }
        Ok(())
    };
    program(&buffer)?;
    let eager = buffer.to_vec()?;
    let graph = graph(&face.runtime);
    graph.capture(|| program(&buffer))?;
    for _ in 0..3 {
        stream.fill(&buffer.all(), &[0])?;
        graph.replay()?;
        same_bytes("graph.replay", "a replay and the same at once", &buffer.to_vec()?, &eager)?;
    }
    Ok(())
}

fn fork_and_join(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (a, b) = (current(&face)?, face.runtime.stream(())?);
    let (shared, result) = (face.runtime.zeros(1 << 20)?, face.runtime.zeros(1 << 20)?);
    face.finish(&a)?;
    let graph = graph(&face.runtime);
    graph.capture(|| {
        a.fill(&shared.all(), &[3])?;
        b.wait_event(&a.record_event(None)?)?;
        b.copy(&result.all(), &shared.all())?;
        a.wait_event(&b.record_event(None)?)?;
        a.fill(&shared.all(), &[4])
    })?;
    for _ in 0..20 {
        graph.replay()?;
        a.fill(&shared.all(), &[5])?;
    }
    graph.replay()?;
    same_bytes("graph.events", "what came through both streams", &result.to_vec()?, &vec![3; 1 << 20])?;
    same_bytes("graph.events", "what was filled behind them", &shared.to_vec()?, &vec![4; 1 << 20])
}

fn only_up_to_the_event(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (a, b) = (current(&face)?, face.runtime.stream(())?);
    let buffer = face.runtime.zeros(64)?;
    let graph = graph(&face.runtime);
    graph.capture(|| {
        a.fill(&buffer.slice(..16)?, &[1])?;
        let early = a.record_event(None)?;
        a.fill(&buffer.slice(16..32)?, &[2])?;
        b.wait_event(&early)?;
        b.fill(&buffer.slice(32..48)?, &[3])?;
        a.wait_stream(&b)
    })?;
    let nodes = graph.nodes()?;
    let after = |value: usize| nodes.get(value).map(|node| node.after.clone());
    same("graph.events", "what the second fill comes after", after(1), Some(vec![0]))?;
    same("graph.events", "what the other stream's comes after", after(2), Some(vec![0]))?;
    graph.replay()?;
    let expected: Vec<u8> = (0..4).flat_map(|value| [[1, 2, 3, 0][value]; 16]).collect();
    same_bytes("graph.replay", "all three fills", &buffer.to_vec()?, &expected)
}

fn transitive(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let streams = [current(&face)?, face.runtime.stream(())?, face.runtime.stream(())?, face.runtime.stream(())?];
    let buffer = face.runtime.zeros(4 * 1024)?;
    let part = |at: u64| buffer.slice(at * 1024..(at + 1) * 1024);
    let graph = graph(&face.runtime);
    graph.capture(|| {
        streams[0].fill(&part(0)?, &[6])?;
        for at in 1..4 {
            let (before, stream) = (&streams[at - 1], &streams[at]);
            stream.wait_stream(before)?;
            stream.copy(&part(at as u64)?, &part(at as u64 - 1)?)?;
        }
        streams[0].wait_stream(&streams[3])
    })?;
    for round in 0..10 {
        streams[0].fill(&buffer.all(), &[round])?;
        graph.replay()?;
        same_bytes("graph.events", "a value through four streams", &buffer.to_vec()?, &[6; 4096])?;
    }
    Ok(())
}

/// Programs over several streams in which whoever conflicts waits: at once, and captured and replayed.
fn random_programs(env: &Env) -> Outcome {
    const PARTS: u64 = 5;
    const LEN: u64 = 256;
    for round in 0..12 {
        let face = Face::new(env)?;
        let mut streams = vec![current(&face)?];
        for _ in 0..3 {
            streams.push(face.runtime.stream(())?);
        }
        let first = bytes(round, (PARTS * LEN) as usize);
        let buffer = face.runtime.buffer_from(&first)?;
        face.finish(&streams[0])?;
        let seed = env.seed.wrapping_mul(31).wrapping_add(round);
        let run = |shadow: Option<&mut Vec<u8>>| -> anyaccel::Result<()> {
            let mut random = Random::new(seed);
            let mut shadow = shadow;
            // The events of each part: its last write, and the reads since.
            let mut events: Vec<Vec<anyaccel::Event>> = vec![Vec::new(); PARTS as usize];
            for stream in &streams[1..] {
                stream.wait_stream(&streams[0])?;
            }
            for _ in 0..60 {
                let stream = random.one_of(&streams).clone();
                let (to, other) = (random.below(PARTS), random.within(1, PARTS));
                let from = (to + other) % PARTS;
                let part = |at: u64| buffer.slice(at * LEN..(at + 1) * LEN);
                let copies = random.one_in(2);
                let value = random.next() as u8;
                for event in &events[to as usize] {
                    stream.wait_event(event)?;
                }
                if copies {
                    for event in &events[from as usize] {
                        stream.wait_event(event)?;
                    }
                    stream.copy(&part(to)?, &part(from)?)?;
                } else {
                    stream.fill(&part(to)?, &[value])?;
                }
                let done = stream.record_event(None)?;
                events[to as usize] = vec![done.clone()];
                if copies {
                    events[from as usize].push(done);
                }
                if let Some(shadow) = &mut shadow {
                    let (at, source) = ((to * LEN) as usize, (from * LEN) as usize);
                    if copies {
                        shadow.copy_within(source..source + LEN as usize, at);
                    } else {
                        shadow[at..at + LEN as usize].fill(value);
                    }
                }
            }
            for stream in &streams[1..] {
                streams[0].wait_stream(stream)?;
            }
            Ok(())
        };
        let mut shadow = first.clone();
        run(Some(&mut shadow))?;
        same_bytes("stream.wait", &format!("program {round} at once"), &buffer.to_vec()?, &shadow)?;
        let graph = graph(&face.runtime);
        graph.capture(|| run(None))?;
        for _ in 0..3 {
            graph.replay()?;
            let mut again = std::mem::take(&mut shadow);
            // The shadow of a replay: the same program on what the one before left.
            replay_shadow(seed, PARTS, LEN, streams.len(), &mut again);
            shadow = again;
            same_bytes("graph.replay", &format!("program {round}, replayed"), &buffer.to_vec()?, &shadow)?;
        }
    }
    Ok(())
}

/// What one run of a random program does to the bytes.
fn replay_shadow(seed: u64, parts: u64, len: u64, streams: usize, shadow: &mut [u8]) {
    let mut random = Random::new(seed);
    for _ in 0..60 {
        let _stream = random.below(streams as u64);
        let (to, other) = (random.below(parts), random.within(1, parts));
        let from = (to + other) % parts;
        let copies = random.one_in(2);
        let value = random.next() as u8;
        let (at, source) = ((to * len) as usize, (from * len) as usize);
        if copies {
            shadow.copy_within(source..source + len as usize, at);
        } else {
            shadow[at..at + len as usize].fill(value);
        }
    }
}

fn host_functions(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let stream = current(&face)?;
    let calls = Arc::new(AtomicU32::new(0));
    let graph = graph(&face.runtime);
    let counted = Arc::clone(&calls);
    graph.capture(|| {
        stream.host_fn_mut(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    })?;
    same("graph.replay", "calls before any replay", calls.load(Ordering::SeqCst), 0)?;
    graph.replay_n(25)?;
    face.finish(&stream)?;
    same("graph.replay", "calls in 25 replays", calls.load(Ordering::SeqCst), 25)?;
    drop(graph);
    face.runtime.synchronize(())?;
    face.runtime.empty_cache()?;
    same("graph.reset", "references that a graph leaves behind", Arc::strong_count(&calls), 1)
}

fn default_stream(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let stream = face.runtime.default_stream(())?;
    let buffer = face.runtime.zeros(64)?;
    let graph = graph(&face.runtime);
    graph.capture_begin()?;
    same("stream.capture", "whether the default stream is capturing", stream.is_capturing()?, true)?;
    stream.fill(&buffer.all(), &[4])?;
    graph.capture_end()?;
    same("stream.capture", "whether it still is", stream.is_capturing()?, false)?;
    same_bytes("graph.begin", "bytes before the replay", &buffer.to_vec()?, &[0; 64])?;
    graph.replay()?;
    same_bytes("graph.replay", "bytes after it", &buffer.to_vec()?, &[4; 64])
}

fn out_of_place(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (stream, other) = (current(&face)?, face.runtime.stream(())?);
    let graph = graph(&face.runtime);
    let is = |want: fn(&GraphError) -> bool| move |error: &Error| matches!(error, Error::Graph(e) if want(e));
    let not_capturing = is(|e| matches!(e, GraphError::NotCapturing));
    errs("graph.end", "end without begin", "NotCapturing", graph.capture_end(), not_capturing)?;
    let not_captured = is(|e| matches!(e, GraphError::NotCaptured { .. }));
    errs("graph.replay", "replay before a capture", "NotCaptured", graph.replay(), not_captured)?;
    graph.capture_begin()?;
    let twice = is(|e| matches!(e, GraphError::AlreadyCapturing));
    errs("graph.begin", "begin inside begin", "AlreadyCapturing", graph.capture_begin(), twice)?;
    face.runtime.set_stream(&other)?;
    let wrong = is(|e| matches!(e, GraphError::WrongStream { .. }));
    errs("graph.end", "end on another stream", "WrongStream", graph.capture_end(), wrong)?;
    same("graph.end", "whether the capture goes on", stream.is_capturing()?, true)?;
    face.runtime.set_stream(&stream)?;
    graph.capture_end()?;
    let full = is(|e| matches!(e, GraphError::HasGraph));
    errs("graph.begin", "begin with a graph", "HasGraph", graph.capture_begin(), full)?;
    graph.replay()?;
    graph.reset()?;
    graph.reset()?;
    graph.capture_begin()?;
    graph.capture_end()?;
    let missing = face.runtime.graph(GraphOptions { pool: Some((1 << 40, 0)), ..GraphOptions::default() });
    let pool = |error: &Error| matches!(error, Error::Pool(_));
    errs("graph.begin", "a pool that was never made", "Pool", missing.capture_begin(), pool)?;
    same("graph.begin", "whether that left a capture", stream.is_capturing()?, false)
}

fn forbidden_waits(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let stream = current(&face)?;
    let runtime = &face.runtime;
    let buffer = runtime.zeros(64)?;
    let outside = stream.record_event(None)?;
    for mode in ["default", "global", "thread_local", "relaxed"] {
        let graph = graph(runtime);
        graph.set_capture_error_mode(mode.parse()?);
        graph.capture_begin()?;
        let inside = stream.record_event(None)?;
        let told = [
            ("synchronizing the device", runtime.synchronize(())),
            ("synchronizing the stream", stream.synchronize()),
            ("querying the stream", stream.query().map(drop)),
            ("querying an event recorded inside", inside.query().map(drop)),
            ("synchronizing an event recorded inside", inside.synchronize()),
            ("a copy to borrowed memory", buffer.to_vec().map(drop)),
            ("a large copy from borrowed memory", {
                let large = runtime.alloc(1 << 20)?;
                stream.upload(&large.all(), &vec![0; 1 << 20])
            }),
            ("waiting for an event recorded outside", stream.wait_event(&outside)),
            ("a function that can be called once", stream.host_fn(|| ())),
        ];
        for (what, told) in told {
            errs("graph.forbidden", &format!("{what} ({mode})"), "a refusal", told, |e| matches!(e, Error::Graph(_)))?;
        }
        stream.fill(&buffer.all(), &[8])?;
        graph.capture_end()?;
        same("graph.forbidden", "nodes of a capture with many refusals", graph.nodes()?.len(), 1)?;
        graph.replay()?;
        same_bytes("graph.replay", "the rest of it", &buffer.to_vec()?, &[8; 64])?;
    }
    Ok(())
}

fn failed_capture(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = current(&face)?;
    let kept = runtime.alloc(1 << 10)?;
    for way in 0..3 {
        runtime.empty_cache()?;
        let reserved = runtime.memory_reserved(())?;
        let graph = graph(runtime);
        match way {
            0 => {
                let told = graph.capture(|| {
                    let _tensor = runtime.alloc(8 << 20)?;
                    runtime.synchronize(())
                });
                let first = |e: &Error| matches!(e, Error::Graph(GraphError::Waits { call: "synchronize" }));
                errs("scenario.4", "a forbidden wait", "that error, not one that follows", told, first)?;
            }
            1 => {
                let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    graph.capture(|| -> anyaccel::Result<()> {
                        let _tensor = runtime.alloc(8 << 20)?;
                        std::panic::resume_unwind(Box::new("inside the scope"))
                    })
                }));
                expect("scenario.4", panicked.is_err(), "the panic to go on", "it was lost")?;
            }
            _ => {
                graph.capture_begin()?;
                let tensor = runtime.alloc(8 << 20)?;
                drop(graph);
                drop(tensor);
            }
        }
        same("scenario.4", "whether the stream is capturing", stream.is_capturing()?, false)?;
        runtime.empty_cache()?;
        same("scenario.4", "bytes reserved", runtime.memory_reserved(())?, reserved)?;
        drop(runtime.alloc(3 << 20)?);
        let second = self::graph(runtime);
        second.capture(|| stream.fill(&kept.all(), &[1]))?;
        second.replay()?;
        same_bytes("scenario.4", "a second capture", &kept.to_vec()?, &[1; 1 << 10])?;
    }
    Ok(())
}

fn out_of_memory(env: &Env) -> Outcome {
    const MIB: u64 = 1 << 20;
    let face = Face::new(env)?;
    face.needs_memory(100 * MIB)?;
    let runtime = &face.runtime;
    let stream = current(&face)?;
    runtime.set_memory_budget(Some(100 * MIB), ())?;
    drop(runtime.alloc(60 * MIB)?);
    face.finish(&stream)?;
    let reserved = runtime.memory_reserved(())?;
    let graph = graph(runtime);
    graph.capture_begin()?;
    let told = runtime.alloc(80 * MIB).map(drop);
    errs("scenario.5", "80 MiB inside", "OutOfMemory", told, |e| matches!(e, Error::OutOfMemory { .. }))?;
    same("scenario.5", "bytes reserved after it", runtime.memory_reserved(())?, reserved)?;
    drop(runtime.alloc(1 << 20)?);
    let reserved = runtime.memory_reserved(())?;
    runtime.empty_cache()?;
    runtime.empty_host_cache()?;
    same("memory.trims-in-capture", "bytes reserved after a trim", runtime.memory_reserved(())?, reserved)?;
    same("scenario.5", "whether the stream is capturing", stream.is_capturing()?, true)?;
    let small = runtime.alloc(1 << 10)?;
    stream.fill(&small.all(), &[5])?;
    graph.capture_end()?;
    graph.replay()?;
    same_bytes("scenario.5", "a small allocation of the capture", &small.to_vec()?, &[5; 1 << 10])?;
    drop(runtime.alloc(80 * MIB)?);
    Ok(())
}

fn memory(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = current(&face)?;
    let out = runtime.zeros(64)?;
    face.finish(&stream)?;
    runtime.empty_cache()?;
    let reserved = runtime.memory_reserved(())?;
    let (first, second) = (graph(runtime), graph(runtime));
    let record = |graph: &Graph, value: u8| {
        graph.capture(|| {
            let scratch = runtime.alloc(4 << 20)?;
            stream.fill(&scratch.all(), &[value])?;
            stream.copy(&out.all(), &scratch.slice(..64)?)?;
            Ok::<u64, Error>(scratch.address())
        })
    };
    let address = record(&first, 1)?;
    second.set_graph_pool(Some(first.pool()));
    same("graph.pool", "the scratch of a graph that shares the pool", record(&second, 2)?, address)?;
    let canary = runtime.alloc(4 << 20)?;
    expect("graph.pool", canary.address() != address, "other memory outside", "the graph's")?;
    stream.fill(&canary.all(), &[0x55])?;
    first.replay()?;
    drop(first);
    face.finish(&stream)?;
    runtime.empty_cache()?;
    second.replay()?;
    same_bytes("graph.pool", "what the second graph left", &out.to_vec()?, &[2; 64])?;
    let untouched = canary.to_vec()?.iter().all(|&byte| byte == 0x55);
    expect("graph.pool", untouched, "a canary taken outside to survive replays", "it was written")?;
    drop((second, canary));
    face.finish(&stream)?;
    runtime.empty_cache()?;
    same("graph.pool", "bytes reserved when all is gone", runtime.memory_reserved(())?, reserved)
}

fn replay_elsewhere(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (stream, other) = (current(&face)?, runtime.stream(())?);
    let buffer = runtime.zeros(64)?;
    face.finish(&stream)?;
    let graph = graph(runtime);
    graph.capture(|| stream.fill(&buffer.all(), &[6]))?;
    let hold = face.hold(&stream)?;
    {
        let _scope = other.enter()?;
        graph.replay()?;
        face.finish(&other)?;
        same_bytes("graph.replay", "a replay while the captured stream is held up", &buffer.to_vec()?, &[6; 64])?;
    }
    hold.release()
}
