//! H31: graphs that a device makes of lists.

use crate::case::{Capability, Case, Outcome, expect, refused, same, same_bytes};
use crate::env::Env;
use crate::lab::{Lab, Region, Stream, bytes};
use crate::random::Random;
use crate::words::plain;
use anyaccel_hal::{End, FaultKind, GraphExec, GraphNode, Graphs, HostFn, HostStatus, Op, Pattern, Written};
use std::sync::{Arc, Mutex, PoisonError};

const NEEDS: &[Capability] = &[Capability::Graphs];

pub(super) const CASES: &[Case] = &[
    Case::hal("graph.chain", &[31], chain).needs(NEEDS),
    Case::hal("graph.one-operation", &[31], one_operation).needs(NEEDS),
    Case::hal("graph.one-after-the-other", &[31], one_after_the_other).needs(NEEDS),
    Case::hal("graph.random-lists", &[31], random_lists).needs(NEEDS),
    Case::hal("graph.host-functions", &[31, 13], host_functions).needs(NEEDS),
    Case::hal("graph.update", &[31], update).needs(NEEDS),
    Case::hal("graph.update-function", &[31, 13], update_function).needs(NEEDS),
    Case::hal("graph.out-of-order", &[31, 19], out_of_order).needs(NEEDS),
    Case::hal("graph.empty", &[31], empty).needs(NEEDS),
];

fn graphs(lab: &Lab) -> Outcome<&dyn Graphs> {
    match lab.device(0).graphs() {
        Some(graphs) => Ok(graphs),
        None => crate::case::skip("no graphs"),
    }
}

fn fill(region: Region, value: u8) -> Op {
    Op::Fill { dst: region.place, pattern: Pattern::byte(value), len: region.len }
}

fn copy(dst: Region, src: Region) -> Op {
    Op::Copy { dst: End::Device(dst.place), src: End::Device(src.place), len: dst.len }
}

fn build(graphs: &dyn Graphs, nodes: Vec<(Op, Vec<u32>)>) -> Outcome<GraphExec> {
    let nodes = nodes.into_iter().map(|(op, after)| GraphNode { op, after: after.into() }).collect();
    // SAFETY: H1, H4, H5: the regions and functions of a case live as long as its lab.
    Ok(unsafe { graphs.build(nodes) }?)
}

fn replay(graphs: &dyn Graphs, graph: GraphExec, stream: Stream) -> Outcome {
    // SAFETY: H1; cases replay a graph on one stream, or wait between streams, unless graphs are ordered.
    Ok(unsafe { graphs.replay(graph, stream.id) }?)
}

fn destroy(graphs: &dyn Graphs, graph: GraphExec) {
    // SAFETY: H1; cases wait for its replays before.
    unsafe { graphs.destroy(graph) };
}

fn chain(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
    let region = lab.memory(4096)?;
    let Some(written) = Written::new(&[7; 16]) else { return Ok(()) };
    let nodes = vec![
        (fill(region, 1), vec![]),
        (Op::Write { dst: region.part(100, 16).place, bytes: written }, vec![0]),
        (copy(region.part(2048, 1024), region.part(0, 1024)), vec![1]),
        (fill(region.part(0, 64), 9), vec![2]),
    ];
    let graph = build(graphs, nodes)?;
    let mut expected = vec![1; 4096];
    expected[100..116].fill(7);
    expected.copy_within(0..1024, 2048);
    expected[..64].fill(9);
    for round in 0..5 {
        lab.fill(stream, region, 0xEE)?;
        replay(graphs, graph, stream)?;
        same_bytes("H31", &format!("what replay {round} left"), &lab.read(stream, region)?, &expected)?;
    }
    destroy(graphs, graph);
    Ok(())
}

/// Replays of one graph on two streams, with no wait between them, where the device orders them.
fn one_after_the_other(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, a, b) = (graphs(&lab)?, lab.stream()?, lab.stream()?);
    if !graphs.limits().ordered {
        return crate::case::skip("replays are ordered by the caller");
    }
    let (region, seen) = (lab.memory(4096)?, lab.memory(4096)?);
    lab.fill(a, region, 1)?;
    lab.finish(a)?;
    let (low, high) = (region.part(0, 2048), region.part(2048, 2048));
    // What the lower half has gets to the upper one by a detour.
    let graph =
        build(graphs, vec![(copy(seen.part(0, 2048), low), vec![]), (copy(high, seen.part(0, 2048)), vec![0])])?;
    for round in 2..22_u8 {
        let (first, second) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let hold = lab.hold(first)?;
        lab.fill(first, low, round)?;
        replay(graphs, graph, first)?;
        replay(graphs, graph, second)?;
        let after = lab.mark(second)?;
        lab.not_ended("H31", second, after, "the replay before is held up")?;
        hold.release()?;
        same_bytes("H31", "what the second replay left", &lab.read(second, region)?, &[round; 4096])?;
        lab.finish(first)?;
    }
    destroy(graphs, graph);
    Ok(())
}

fn one_operation(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, a, b) = (graphs(&lab)?, lab.stream()?, lab.stream()?);
    let (region, seen) = (lab.memory(8192)?, lab.memory(8192)?);
    let (low, high) = (region.part(0, 4096), region.part(4096, 4096));
    // Two branches that nothing orders.
    let graph = build(graphs, vec![(fill(low, 1), vec![]), (fill(high, 2), vec![])])?;
    for round in 0..20 {
        let stream = if round % 2 == 0 { a } else { b };
        let other = if round % 2 == 0 { b } else { a };
        let before = lab.mark(other)?;
        lab.wait(stream, other, before)?;
        lab.fill(stream, region, 0)?;
        let hold = lab.hold(stream)?;
        replay(graphs, graph, stream)?;
        lab.copy(stream, seen, region)?;
        lab.fill(stream, region, 3)?;
        let after = lab.mark(stream)?;
        lab.not_ended("H31", stream, after, "the stream is held up before the replay")?;
        hold.release()?;
        lab.wait(other, stream, after)?;
        let mut expected = vec![1; 8192];
        expected[4096..].fill(2);
        same_bytes("H31", "what came after a replay", &lab.read(other, seen)?, &expected)?;
    }
    lab.finish(a)?;
    lab.finish(b)?;
    destroy(graphs, graph);
    Ok(())
}

/// What a node does to the shadow.
type Effect = Box<dyn Fn(&mut [u8])>;

/// Lists whose nodes name what they depend on and no more, against a shadow that runs them in their order.
fn random_lists(env: &Env) -> Outcome {
    const PARTS: u64 = 6;
    const LEN: u64 = 512;
    for round in 0..20 {
        let lab = env.lab()?;
        let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
        let mut random = Random::new(env.seed.wrapping_mul(77).wrapping_add(round));
        let mut shadow = bytes(round, (PARTS * LEN) as usize);
        let region = lab.memory_with(stream, &shadow)?;
        let mut nodes: Vec<(Op, Vec<u32>)> = Vec::new();
        // Who wrote each part last, and who read it since.
        let mut last: Vec<(Option<u32>, Vec<u32>)> = vec![(None, Vec::new()); PARTS as usize];
        let mut effects: Vec<Effect> = Vec::new();
        for node in 0..random.within(1, 40) as u32 {
            let to = random.below(PARTS);
            let from = random.one_in(2).then(|| (to + 1 + random.below(PARTS - 1)) % PARTS);
            let (writer, readers) = &mut last[to as usize];
            let mut after: Vec<u32> = readers.drain(..).chain(writer.replace(node)).collect();
            let part = |at: u64| region.part(at * LEN, LEN);
            let (at, len) = ((to * LEN) as usize, LEN as usize);
            match from {
                Some(from) => {
                    after.extend(last[from as usize].0);
                    last[from as usize].1.push(node);
                    let source = (from * LEN) as usize;
                    nodes.push((copy(part(to), part(from)), after));
                    effects.push(Box::new(move |bytes| bytes.copy_within(source..source + len, at)));
                }
                None => {
                    let value = random.next() as u8;
                    nodes.push((fill(part(to), value), after));
                    effects.push(Box::new(move |bytes| bytes[at..at + len].fill(value)));
                }
            }
        }
        let graph = build(graphs, nodes)?;
        for _ in 0..3 {
            replay(graphs, graph, stream)?;
            effects.iter().for_each(|effect| effect(&mut shadow));
        }
        same_bytes("H31", &format!("list {round} after three replays"), &lab.read(stream, region)?, &shadow)?;
        destroy(graphs, graph);
    }
    Ok(())
}

fn host_functions(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
    if !graphs.limits().host_calls {
        return crate::case::skip("graphs hold no host functions");
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let alive = Arc::new(());
    let call = |number: u32| {
        let (log, alive) = (Arc::clone(&log), Arc::clone(&alive));
        Op::HostCall(HostFn::new(move |status| {
            let _kept = &alive;
            log.lock().unwrap_or_else(PoisonError::into_inner).push((number, status));
        }))
    };
    let graph = build(graphs, vec![(call(0), vec![]), (call(1), vec![0]), (call(2), vec![0]), (call(3), vec![1, 2])])?;
    for _ in 0..10 {
        replay(graphs, graph, stream)?;
    }
    lab.finish(stream)?;
    let seen = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
    same("H31", "calls in ten replays", seen.len(), 40)?;
    for (round, calls) in seen.chunks(4).enumerate() {
        let ran = calls.iter().all(|&(_, status)| status == HostStatus::Run);
        let ends = (calls[0].0, calls[3].0) == (0, 3);
        expect("H31", ran && ends, &format!("replay {round} to call 0 first and 3 last"), plain(&calls))?;
    }
    expect("H31", Arc::strong_count(&alive) > 1, "functions to live as long as their graph", "they are gone")?;
    destroy(graphs, graph);
    lab.eventually("H31", "functions to go with their graph", || Arc::strong_count(&alive) == 1)
}

fn update(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
    if !graphs.limits().update {
        return crate::case::skip("graphs can't be updated");
    }
    let region = lab.memory(64)?;
    let graph = build(graphs, vec![(fill(region, 1), vec![]), (fill(region.part(32, 32), 2), vec![0])])?;
    replay(graphs, graph, stream)?;
    // SAFETY: H1, H4: as for build.
    unsafe { graphs.update(graph, 0, fill(region, 5)) }?;
    // SAFETY: as above; they are refused.
    let (form, node) = unsafe {
        let form = graphs.update(graph, 1, copy(region.part(0, 8), region.part(8, 8)));
        (form, graphs.update(graph, 9, fill(region, 5)))
    };
    refused("H31", "an update by another form", form, FaultKind::Invalid)?;
    refused("H31", "an update of a node that is not there", node, FaultKind::Invalid)?;
    let expected = |first| [vec![first; 32], vec![2; 32]].concat();
    same_bytes("H31", "a replay enqueued before the update", &lab.read(stream, region)?, &expected(1))?;
    replay(graphs, graph, stream)?;
    same_bytes("H31", "a replay after the update", &lab.read(stream, region)?, &expected(5))?;
    destroy(graphs, graph);
    Ok(())
}

fn update_function(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
    let limits = graphs.limits();
    if !limits.update || !limits.host_calls {
        return crate::case::skip("graphs hold no host functions, or can't be updated");
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let alive = Arc::new(());
    let call = |number: u32| {
        let (log, alive) = (Arc::clone(&log), Arc::clone(&alive));
        Op::HostCall(HostFn::new(move |status| {
            let _kept = &alive;
            log.lock().unwrap_or_else(PoisonError::into_inner).push((number, status));
        }))
    };
    let graph = build(graphs, vec![(call(0), vec![]), (call(10), vec![0])])?;
    // So that replays are only enqueued when the function is replaced.
    let hold = lab.hold(stream)?;
    for number in 1..=3 {
        replay(graphs, graph, stream)?;
        replay(graphs, graph, stream)?;
        // SAFETY: H1, H13: as for build.
        unsafe { graphs.update(graph, 0, call(number)) }?;
    }
    replay(graphs, graph, stream)?;
    hold.release()?;
    lab.finish(stream)?;
    let seen = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
    let expected: Vec<(u32, HostStatus)> =
        [0, 0, 1, 1, 2, 2, 3].into_iter().flat_map(|first| [first, 10]).map(|call| (call, HostStatus::Run)).collect();
    same("H31", "calls of replays before and after updates", seen, expected)?;
    // SAFETY: H1, H4; it is refused.
    let form = unsafe { graphs.update(graph, 1, fill(lab.memory(64)?, 1)) };
    refused("H31", "an update of a function by another form", form, FaultKind::Invalid)?;
    expect("H31", Arc::strong_count(&alive) > 2, "functions to live as long as their graph", "they are gone")?;
    destroy(graphs, graph);
    lab.eventually("H31", "functions to go with their graph", || Arc::strong_count(&alive) == 1)
}

fn out_of_order(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let graphs = graphs(&lab)?;
    let region = lab.memory(64)?;
    for after in [0, 1, 7] {
        let nodes = vec![GraphNode { op: fill(region, 1), after: [after].into() }];
        // SAFETY: H1, H4; it is refused.
        let built = unsafe { graphs.build(nodes) };
        refused("H31", &format!("node 0 after node {after}"), built, FaultKind::Invalid)?;
    }
    Ok(())
}

fn empty(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (graphs, stream) = (graphs(&lab)?, lab.stream()?);
    let graph = build(graphs, Vec::new())?;
    replay(graphs, graph, stream)?;
    lab.finish(stream)?;
    destroy(graphs, graph);
    Ok(())
}
