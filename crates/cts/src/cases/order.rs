//! H6 and H8: what streams promise about order.

use crate::case::{Capability, Case, Outcome, expect, fail, same, same_bytes};
use crate::env::Env;
use crate::lab::{Delay, Hold, Lab, Stream, bytes};
use crate::words::plain;
use anyaccel_hal::{FaultKind, Until};
use std::sync::mpsc;

const PINNED: &[Capability] = &[Capability::Pinned];

pub(super) const CASES: &[Case] = &[
    Case::hal("order.within-stream", &[6], within_stream),
    Case::hal("order.within-stream/held", &[6], within_stream_held),
    Case::hal("order.host-functions-between-work", &[6, 13], host_functions_between_work),
    Case::hal("order.across-streams/gate", &[8], |env| across_streams(env, Delay::Gate))
        .needs(&[Capability::Gates, Capability::Pinned]),
    Case::hal("order.across-streams/host-fn", &[8], |env| across_streams(env, Delay::HostFn)).needs(PINNED),
    Case::hal("order.across-streams/work", &[8], across_streams_behind_work),
    Case::hal("order.across-devices", &[8], across_devices).needs(PINNED).devices(2),
    Case::hal("order.wait-only-up-to-the-mark", &[8], wait_only_up_to_the_mark).needs_captured(&[Capability::Gates]),
    Case::hal("order.wait-leaves-earlier-work-alone", &[8], wait_leaves_earlier_work_alone)
        .needs_captured(&[Capability::Gates]),
    Case::hal("order.wait-for-an-ended-mark", &[8], wait_for_an_ended_mark),
    Case::hal("order.wait-for-own-mark", &[8], wait_for_own_mark),
    Case::hal("order.wait-for-an-older-mark", &[8], wait_for_an_older_mark),
    Case::hal("order.wait-does-not-block-the-caller", &[8], wait_does_not_block_the_caller),
    Case::hal("order.waits-both-ways", &[8], waits_both_ways),
    Case::hal("order.transitive", &[8], transitive),
    Case::hal("order.wait-for-several", &[8], wait_for_several).needs(PINNED),
    Case::hal("order.enqueueing-never-waits", &[5, 8], enqueueing_never_waits).needs(PINNED),
    Case::hal("order.independent-streams", &[6], independent_streams),
    Case::hal("order.thousand-streams", &[6, 8], thousand_streams),
    Case::hal("order.priorities", &[6, 8], priorities),
];

/// Small operations on the same bytes, each visible to the next.
fn overlapping_work(lab: &Lab, stream: Stream) -> Outcome {
    let region = lab.memory(4096)?;
    let other = lab.memory(4096)?;
    let mut shadow = vec![0_u8; 4096];
    lab.fill(stream, region, 0)?;
    for round in 0..64_u64 {
        let at = (round * 61) % 4000;
        lab.write(stream, region.part(at, 16), &[round as u8; 16])?;
        shadow[at as usize..][..16].fill(round as u8);
        lab.copy(stream, other, region)?;
        lab.fill(stream, region.part(64 * (round % 64), 64), 0xC0 | (round as u8 & 15))?;
        let end = shadow.clone();
        shadow[64 * (round % 64) as usize..][..64].fill(0xC0 | (round as u8 & 15));
        // The copy carries what was there before the fill: bring a quarter of it back.
        lab.copy(stream, region.part(1024, 1024), other.part(1024, 1024))?;
        shadow[1024..2048].copy_from_slice(&end[1024..2048]);
    }
    same_bytes("H6", "bytes after 320 overlapping operations", &lab.read(stream, region)?, &shadow)
}

fn within_stream(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    overlapping_work(&lab, stream)
}

fn within_stream_held(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    lab.fill(stream, region, 0)?;
    let hold = lab.hold(stream)?;
    for round in 0..200_u8 {
        lab.write(stream, region.part(u64::from(round % 60), 4), &[round; 4])?;
    }
    lab.fill(stream, region.part(0, 8), 0xEE)?;
    let mut shadow = vec![0_u8; 64];
    (0..200_u8).for_each(|round| shadow[usize::from(round % 60)..][..4].fill(round));
    shadow[..8].fill(0xEE);
    hold.release()?;
    same_bytes("H6", "bytes after 200 writes behind a hold", &lab.read(stream, region)?, &shadow)
}

fn host_functions_between_work(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    let (report, seen) = mpsc::channel();
    for step in 0..100_u8 {
        lab.write(stream, region, &[step; 16])?;
        let host = lab.host(&[0xFF; 16])?;
        lab.download(stream, host, region)?;
        let report = report.clone();
        lab.call(stream, move |_| {
            // The lab outlives the stream's work.
            let _gone = report.send((step, host.byte(15)));
        })?;
        lab.write(stream, region, &[0xAA; 16])?;
    }
    lab.finish(stream)?;
    let seen: Vec<_> = seen.try_iter().collect();
    same("H6", "what each host function saw", seen, (0..100).map(|step| (step, step)).collect())
}

/// B copies what A writes; A is held up before the write.
fn across_streams(env: &Env, delay: Delay) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let shared = lab.memory(256)?;
    let result = lab.memory(256)?;
    lab.fill(a, shared, 1)?;
    lab.fill(b, result, 2)?;
    lab.finish(a)?;
    lab.finish(b)?;

    let hold = lab.hold_by(delay, a)?;
    lab.fill(a, shared, 3)?;
    let written = lab.mark(a)?;
    lab.wait(b, a, written)?;
    lab.copy(b, result, shared)?;
    let host = lab.host(&[9; 256])?;
    lab.download(b, host, result)?;
    let copied = lab.mark(b)?;
    lab.not_ended("H8", b, copied, "the stream that it waits for is held up")?;
    same_bytes("H8", "the host's copy while both are held up", &host.look(), &[9; 256])?;
    hold.release()?;
    lab.reach(b, Until::Mark(copied))?;
    same_bytes("H8", "what came through both streams", &host.look(), &[3; 256])
}

/// The same without a hold: A is simply slower.
fn across_streams_behind_work(env: &Env) -> Outcome {
    const BIG: u64 = 16 << 20;
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let (from, to) = (lab.memory(BIG)?, lab.memory(BIG)?);
    lab.fill(a, from, 1)?;
    lab.fill(a, to, 1)?;
    lab.finish(a)?;
    for round in 2..8_u8 {
        lab.fill(a, from, round)?;
        lab.copy(a, to, from)?;
        let written = lab.mark(a)?;
        lab.wait(b, a, written)?;
        let tail = lab.read(b, to.part(BIG - 64, 64))?;
        same_bytes("H8", "the end of a big copy on the other stream", &tail, &[round; 64])?;
        let seen = lab.mark(b)?;
        lab.wait(a, b, seen)?;
    }
    Ok(())
}

fn across_devices(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream_on(0)?, lab.stream_on(1)?);
    let host = lab.host(&[7; 64])?;
    let to = lab.host_on(1, &[8; 64])?;
    let from = lab.memory_on(0, 64)?;
    let hold = lab.hold(a)?;
    lab.fill(a, from, 5)?;
    lab.download(a, host, from)?;
    let there = lab.mark(a)?;
    match lab.wait(b, a, there) {
        Err(fault) if fault.kind == FaultKind::Unsupported => {
            return crate::case::skip("waits across devices are not supported");
        }
        other => other?,
    }
    lab.call(b, move |_| to.put(&host.look()))?;
    let arrived = lab.mark(b)?;
    lab.not_ended("H8", b, arrived, "the stream of the other device is held up")?;
    hold.release()?;
    lab.reach(b, Until::Mark(arrived))?;
    same_bytes("H8", "what a function saw of the other device", &to.look(), &[5; 64])
}

fn wait_only_up_to_the_mark(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let region = lab.memory(16)?;
    lab.fill(a, region, 1)?;
    let early = lab.mark(a)?;
    let hold = lab.hold(a)?;
    lab.mark(a)?;
    lab.wait(b, a, early)?;
    lab.fill(b, region, 2)?;
    let after = lab.mark(b)?;
    lab.reach(b, Until::Mark(after))?;
    same_bytes("H8", "work that waits for an early mark", &lab.read(b, region)?, &[2; 16])?;
    hold.release()
}

fn wait_leaves_earlier_work_alone(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let region = lab.memory(16)?;
    let hold = lab.hold(a)?;
    let held = lab.mark(a)?;
    lab.fill(b, region, 4)?;
    let host = lab.host(&[0; 16])?;
    lab.download(b, host, region)?;
    let earlier = lab.mark(b)?;
    lab.wait(b, a, held)?;
    let later = lab.mark(b)?;
    lab.reach(b, Until::Mark(earlier))?;
    same_bytes("H8", "work enqueued before the wait", &host.look(), &[4; 16])?;
    lab.not_ended("H8", b, later, "the other stream is held up")?;
    hold.release()?;
    lab.reach(b, Until::Mark(later))
}

fn wait_for_an_ended_mark(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let marks: Vec<u64> = (0..20).map(|_| lab.mark(a)).collect::<Outcome<_>>()?;
    lab.finish(a)?;
    for mark in marks {
        lab.wait(b, a, mark)?;
    }
    lab.finish(b)
}

fn wait_for_own_mark(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let a = lab.stream()?;
    let hold = lab.hold(a)?;
    let mark = lab.mark(a)?;
    lab.wait(a, a, mark)?;
    hold.release()?;
    lab.finish(a)
}

/// A wait names one mark; a later one for an older mark takes nothing back.
fn wait_for_an_older_mark(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let older = lab.mark(a)?;
    let hold = lab.hold(a)?;
    let newer = lab.mark(a)?;
    lab.wait(b, a, newer)?;
    lab.wait(b, a, older)?;
    let behind = lab.mark(b)?;
    lab.not_ended("H8", b, behind, "the newer mark has not ended")?;
    hold.release()?;
    lab.reach(b, Until::Mark(behind))
}

fn wait_does_not_block_the_caller(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let hold = lab.hold(a)?;
    let held = lab.mark(a)?;
    lab.while_held("H8", "wait to return at once", hold, || Ok(lab.wait(b, a, held)?))?;
    lab.finish(b)
}

/// Nothing that enqueues waits for the device, but copies with unpinned host memory.
fn enqueueing_never_waits(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (stream, other) = (lab.stream()?, lab.stream()?);
    let (one, two) = (lab.memory(4096)?, lab.memory(4096)?);
    let host = lab.host(&[6; 4096])?;
    let hold = lab.hold(stream)?;
    lab.while_held("H5", "calls that enqueue to return at once", hold, || {
        // More than any queue of a fixed length would take.
        for round in 0..300_u32 {
            lab.fill(stream, one, round as u8)?;
            lab.copy(stream, two, one)?;
            lab.write(stream, one, &round.to_le_bytes())?;
            lab.upload(stream, one, host)?;
            lab.download(stream, host, one)?;
            lab.call(stream, |_| ())?;
            let mark = lab.mark(stream)?;
            lab.wait(other, stream, mark)?;
            let stamp = lab.stamp(stream)?;
            lab.drop_stamp(0, stamp);
        }
        Ok(())
    })?;
    lab.finish(other)?;
    same_bytes("H6", "host memory after 300 rounds", &host.look(), &[6; 4096])
}

fn waits_both_ways(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    for _ in 0..100 {
        let (at_a, at_b) = (lab.mark(a)?, lab.mark(b)?);
        lab.wait(a, b, at_b)?;
        lab.wait(b, a, at_a)?;
    }
    lab.finish(a)?;
    lab.finish(b)
}

/// A chain of 48 streams: each copies what the one before it wrote.
fn transitive(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(48)?;
    let regions = streams.iter().map(|_| lab.memory(64)).collect::<Result<Vec<_>, _>>()?;
    let content = bytes(env.seed, 64);
    let source = lab.memory_with(streams[0], &content)?;
    let hold = lab.hold(streams[0])?;
    lab.copy(streams[0], regions[0], source)?;
    let mut mark = lab.mark(streams[0])?;
    for at in 1..streams.len() {
        lab.wait(streams[at], streams[at - 1], mark)?;
        lab.copy(streams[at], regions[at], regions[at - 1])?;
        mark = lab.mark(streams[at])?;
    }
    let last = streams[streams.len() - 1];
    lab.not_ended("H8", last, mark, "the head of the chain is held up")?;
    hold.release()?;
    let seen = lab.read(last, regions[regions.len() - 1])?;
    same_bytes("H8", "what came through 48 streams", &seen, &content)
}

fn wait_for_several(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (join, parts) = (lab.stream()?, lab.streams(4)?);
    let region = lab.memory(64)?;
    let mut holds = Vec::new();
    for (at, &part) in parts.iter().enumerate() {
        holds.push(Some(lab.hold(part)?));
        lab.fill(part, region.part(16 * at as u64, 16), at as u8 + 1)?;
        let mark = lab.mark(part)?;
        lab.wait(join, part, mark)?;
    }
    let host = lab.host(&[0; 64])?;
    lab.download(join, host, region)?;
    let joined = lab.mark(join)?;
    // Let go in an order of their own; the last one decides.
    for at in [2, 0, 3, 1] {
        lab.not_ended("H8", join, joined, "one of four streams is held up")?;
        holds[at].take().map_or(Ok(()), Hold::release)?;
        lab.finish(parts[at])?;
    }
    lab.reach(join, Until::Mark(joined))?;
    let expected: Vec<u8> = (0..64).map(|at| at / 16 + 1).collect();
    same_bytes("H8", "what four streams wrote", &host.look(), &expected)
}

fn independent_streams(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let hold = lab.hold(a)?;
    let held = lab.mark(a)?;
    overlapping_work(&lab, b)?;
    expect("H6", lab.completed(a)? < held, "the other stream to be held up still", "its mark has ended")?;
    hold.release()?;
    lab.finish(a)
}

fn thousand_streams(env: &Env) -> Outcome {
    const COUNT: usize = 1000;
    let lab = env.lab()?;
    let streams = lab.streams(COUNT)?;
    let region = lab.memory(4 * COUNT as u64)?;
    let join = lab.stream()?;
    for (at, &stream) in streams.iter().enumerate() {
        lab.write(stream, region.part(4 * at as u64, 4), &(at as u32).to_le_bytes())?;
        let mark = lab.mark(stream)?;
        lab.wait(join, stream, mark)?;
    }
    let expected: Vec<u8> = (0..COUNT as u32).flat_map(u32::to_le_bytes).collect();
    same_bytes("H8", "what 1000 streams wrote", &lab.read(join, region)?, &expected)
}

fn priorities(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let range = lab.device(0).info().priorities;
    if range.greatest > range.least {
        return fail("H26", "the greatest priority at most the least one, as a number", plain(&range));
    }
    let streams =
        (range.greatest..=range.least).map(|priority| lab.stream_with(0, priority)).collect::<Result<Vec<_>, _>>()?;
    let region = lab.memory(16 * streams.len() as u64)?;
    let mut before = None;
    for (at, &stream) in streams.iter().enumerate() {
        if let Some((of, mark)) = before {
            lab.wait(stream, of, mark)?;
        }
        lab.fill(stream, region.part(0, 16 * (at as u64 + 1)), at as u8 + 1)?;
        before = Some((stream, lab.mark(stream)?));
    }
    let last = streams[streams.len() - 1];
    let seen = lab.read(last, region)?;
    same_bytes("H8", "what streams of every priority wrote in turn", &seen, &vec![streams.len() as u8; seen.len()])
}
