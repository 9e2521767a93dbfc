//! H27 to H30, H32: what some devices can.

use crate::case::{Capability, Case, Outcome, expect, fail, refused, same, same_bytes, skip};
use crate::env::Env;
use crate::lab::{Delay, Lab, Region, bytes};
use anyaccel_hal::{Fault, FaultKind, Gates, Place, Until, VirtualMemory};

const PINNED: &[Capability] = &[Capability::Pinned];
const PEERS: &[Capability] = &[Capability::Peers];
const VIRTUAL: &[Capability] = &[Capability::VirtualMemory];
const GATES: &[Capability] = &[Capability::Gates];

pub(super) const CASES: &[Case] = &[
    Case::hal("pinned.page-aligned", &[27], pinned_page_aligned).needs(PINNED),
    Case::hal("pinned.ends-of-copies", &[5, 27], pinned_ends_of_copies).needs(PINNED),
    Case::hal("pinned.keeps-apart", &[2, 27], pinned_keeps_apart).needs(PINNED),
    Case::hal("peers.reach", &[28], peers_reach).needs(PEERS).devices(2),
    Case::hal("peers.copy", &[28], peers_copy).needs(PEERS).devices(2),
    Case::hal("peers.ordered", &[6, 28], peers_ordered).needs(PEERS).devices(2),
    Case::hal("virtual_memory.acts-as-one", &[29], virtual_acts_as_one).needs(VIRTUAL),
    Case::hal("virtual_memory.refuses", &[19, 29], virtual_refuses).needs(VIRTUAL),
    Case::hal("virtual_memory.backing-is-counted", &[21, 29], virtual_backing_is_counted).needs(VIRTUAL),
    Case::hal("gates.hold-up", &[30], gates_hold_up).needs(&[Capability::Gates, Capability::Pinned]),
    Case::hal("gates.one-for-several-streams", &[30], gates_for_several_streams).needs(GATES),
    Case::hal("gates.open-stay-open", &[30], gates_stay_open).needs(GATES),
    Case::hal("gates.destroyed-when-closed", &[30], gates_destroyed_when_closed).needs(GATES),
    Case::hal("gates.can-be-had-again", &[21, 30], gates_can_be_had_again).needs(GATES),
    Case::hal("telemetry.says-what-it-knows", &[32], telemetry).needs(&[Capability::Telemetry]),
];

fn pinned_page_aligned(env: &Env) -> Outcome {
    let lab = env.lab()?;
    for len in [1, 100, 4096, 4097, 1 << 20] {
        let host = lab.pinned(0, len)?;
        let off = host.address() % 4096;
        expect("H27", off == 0, "page-aligned pinned memory", format!("{off} bytes off"))?;
        host.set(0x5A);
        same("H27", "the last byte of pinned memory", host.byte(host.len() - 1), 0x5A)?;
    }
    Ok(())
}

fn pinned_ends_of_copies(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(70_000)?;
    let (up, down) = (lab.pinned(0, 70_000)?, lab.pinned(0, 70_000)?);
    let content = bytes(env.seed, 70_000);
    up.put(&content);
    down.set(0);
    let hold = lab.hold(stream)?;
    lab.upload(stream, region, up)?;
    lab.download(stream, down, region)?;
    let mark = lab.mark(stream)?;
    lab.not_ended("H9", stream, mark, "the stream is held up")?;
    same("H5", "the destination of a held copy", down.byte(0), 0)?;
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))?;
    same_bytes("H27", "what went from pinned to pinned memory", &down.look(), &content)?;
    // A part of it, off any boundary.
    lab.upload(stream, region.part(3, 11), up.part(101, 11))?;
    let seen = lab.read(stream, region.part(3, 11))?;
    same_bytes("H27", "a part of pinned memory", &seen, &content[101..112])
}

fn pinned_keeps_apart(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let all = (0..40).map(|at| lab.pinned(0, 100 + at)).collect::<Outcome<Vec<_>>>()?;
    for (at, host) in all.iter().enumerate() {
        host.set(at as u8);
    }
    for (at, host) in all.iter().enumerate() {
        same_bytes("H27", "pinned memory beside other pinned memory", &host.look(), &vec![at as u8; host.len()])?;
    }
    Ok(())
}

fn peers_reach(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let Some(peers) = lab.device(0).peers() else { return fail("H26", "peers, as before", "none") };
    for ordinal in [0, 5000, u32::MAX] {
        same("H28", &format!("whether device 0 is a peer of {ordinal}"), peers.can_access(ordinal), false)?;
    }
    expect("H28", peers.limits().reachable > 0, "at least one peer to be reachable", 0)
}

fn peer_pair(lab: &Lab) -> Outcome {
    let reached = lab.device(1).peers().is_some_and(|peers| peers.can_access(0));
    if reached { Ok(()) } else { skip("device 1 does not reach device 0") }
}

fn peers_copy(env: &Env) -> Outcome {
    let lab = env.lab()?;
    peer_pair(&lab)?;
    let (a, b) = (lab.stream_on(0)?, lab.stream_on(1)?);
    for len in [1, 63, 4096, 65_537] {
        let content = bytes(len, len as usize + 3);
        let src = lab.memory_with(a, &content)?;
        lab.finish(a)?;
        let dst = lab.memory_on(1, len + 2)?;
        lab.fill(b, dst, 0x44)?;
        lab.peer_copy(b, dst.part(1, len), src.part(3, len))?;
        let mut expected = vec![0x44; len as usize + 2];
        expected[1..=len as usize].copy_from_slice(&content[3..]);
        same_bytes("H28", &format!("{len} bytes from device 0 to 1"), &lab.read(b, dst)?, &expected)?;
        same_bytes("H28", "their source", &lab.read(a, src)?, &content)?;
    }
    Ok(())
}

fn peers_ordered(env: &Env) -> Outcome {
    let lab = env.lab()?;
    peer_pair(&lab)?;
    let (a, b) = (lab.stream_on(0)?, lab.stream_on(1)?);
    let src = lab.memory_with(a, &[1; 64])?;
    lab.finish(a)?;
    let dst = lab.memory_on(1, 64)?;
    let copied = lab.memory_on(1, 64)?;
    lab.fill(b, dst, 2)?;
    // The source is read in the stream's turn: it changes until then.
    let hold = lab.hold(a)?;
    lab.fill(a, src, 4)?;
    let changed = lab.mark(a)?;
    match lab.wait(b, a, changed) {
        Err(fault) if fault.kind == FaultKind::Unsupported => return skip("waits across devices are not supported"),
        other => other?,
    }
    lab.peer_copy(b, dst, src)?;
    lab.copy(b, copied, dst)?;
    lab.fill(b, dst, 3)?;
    let mark = lab.mark(b)?;
    lab.not_ended("H28", b, mark, "the stream that it waits for is held up")?;
    hold.release()?;
    same_bytes("H28", "a copy behind a copy between devices", &lab.read(b, copied)?, &[4; 64])?;
    same_bytes("H28", "a fill behind a copy between devices", &lab.read(b, dst)?, &[3; 64])
}

fn reserve(lab: &Lab, len: u64) -> Outcome<(anyaccel_hal::Range, Region, u64)> {
    let Some(memory) = lab.device(0).virtual_memory() else { return fail("H26", "virtual memory, as before", "none") };
    let (range, segment) = memory.reserve(len)?;
    lab.keep_range(0, range);
    Ok((range, Region { device: 0, place: Place { mem: segment.mem, offset: 0 }, len }, segment.addr))
}

fn virtual_memory(lab: &Lab) -> Outcome<(&dyn VirtualMemory, u64)> {
    match lab.device(0).virtual_memory() {
        Some(memory) => Ok((memory, memory.limits().granularity)),
        None => fail("H26", "virtual memory, as before", "none"),
    }
}

fn virtual_acts_as_one(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let (memory, step) = virtual_memory(&lab)?;
    let (range, region, addr) = reserve(&lab, 8 * step)?;
    let (_, _, other) = reserve(&lab, 2 * step)?;
    let apart = addr + 8 * step <= other || other + 2 * step <= addr;
    expect("H29", apart, "reservations that do not overlap", format!("{addr:#x} and {other:#x}"))?;
    // SAFETY: H1, the range was reserved above.
    unsafe {
        memory.map(range, 0, step)?;
        memory.map(range, step, 2 * step)?;
    }
    let content = bytes(env.seed, 3 * step as usize);
    lab.upload(stream, region.part(0, 3 * step), lab.host(&content)?)?;
    let across = lab.read(stream, region.part(step - 64, 128))?;
    let at = step as usize - 64;
    same_bytes("H29", "bytes on both sides of a mapping's edge", &across, &content[at..at + 128])?;
    // One piece goes and comes back; the others keep what they hold.
    // SAFETY: H1, and H4: all work has ended.
    unsafe {
        memory.unmap(range, 0, step)?;
        memory.map(range, 0, step)?;
    }
    lab.fill(stream, region.part(0, step), 9)?;
    let kept = lab.read(stream, region.part(step, 2 * step))?;
    same_bytes("H29", "what stayed mapped", &kept, &content[step as usize..])?;
    same_bytes("H29", "what was mapped anew", &lab.read(stream, region.part(step - 16, 16))?, &[9; 16])
}

fn virtual_refuses(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let (memory, step) = virtual_memory(&lab)?;
    if step > 1 {
        refused("H29", "a reservation off the granularity", memory.reserve(step + 1), FaultKind::Invalid)?;
    }
    let (range, region, _) = reserve(&lab, 4 * step)?;
    // SAFETY: H1, the range was reserved above; H4, all work on it has ended when a part is unmapped.
    unsafe {
        memory.map(range, step, step)?;
        lab.fill(stream, region.part(step, step), 7)?;
        refused("H29", "a mapping over a mapped part", memory.map(range, 0, 2 * step), FaultKind::Invalid)?;
        refused("H29", "unmapping what is not mapped", memory.unmap(range, 0, step), FaultKind::Invalid)?;
        let seen = lab.read(stream, region.part(step, step))?;
        same_bytes("H19", "memory after refused mappings", &seen, &vec![7; step as usize])?;
        // Nothing of the refused mapping was kept.
        memory.map(range, 0, step)?;
    }
    Ok(())
}

fn virtual_backing_is_counted(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (memory, step) = virtual_memory(&lab)?;
    let total = lab.device(0).info().memory;
    let piece = (total / 8).next_multiple_of(step);
    let (range, _, _) = reserve(&lab, 20 * piece)?;
    let mut mapped = 0;
    // SAFETY: H1 and H4, the range was reserved above and no work names it.
    unsafe {
        let fault: Fault = loop {
            if mapped == 20 {
                return fail("H29", "OutOfMemory when the backing runs out", format!("20 pieces of {piece} bytes"));
            }
            match memory.map(range, mapped * piece, piece) {
                Ok(()) => mapped += 1,
                Err(fault) => break fault,
            }
        };
        same("H21", "the fault of a mapping without backing", fault.kind, FaultKind::OutOfMemory)?;
        expect("H29", mapped > 1, "more than one piece of an eighth of the memory", mapped)?;
        memory.unmap(range, 0, piece)?;
        memory.map(range, mapped * piece, piece)?;
    }
    Ok(())
}

fn gates(lab: &Lab) -> Outcome<&dyn Gates> {
    lab.device(0).gates().map_or_else(|| fail("H26", "gates, as before", "none"), Ok)
}

fn gates_hold_up(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    let host = lab.host(&[0; 64])?;
    lab.fill(stream, region, 1)?;
    lab.download(stream, host, region)?;
    let before = lab.mark(stream)?;
    let hold = lab.hold_by(Delay::Gate, stream)?;
    lab.fill(stream, region, 2)?;
    lab.download(stream, host, region)?;
    let behind = lab.mark(stream)?;
    lab.reach(stream, Until::Mark(before))?;
    lab.not_ended("H30", stream, behind, "the gate is closed")?;
    same_bytes("H30", "what came through before the gate", &host.look(), &[1; 64])?;
    hold.release()?;
    lab.reach(stream, Until::Mark(behind))?;
    same_bytes("H30", "what came through behind it", &host.look(), &[2; 64])
}

fn gates_for_several_streams(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let gates = gates(&lab)?;
    let gate = gates.create()?;
    let streams = lab.streams(5)?;
    let mut marks = Vec::new();
    for &stream in &streams {
        // SAFETY: H1, gate and stream are this device's and live.
        unsafe { gates.wait(stream.id, gate) }?;
        marks.push(lab.mark(stream)?);
    }
    let watched = streams.iter().zip(&marks);
    let held =
        watched.clone().try_for_each(|(&stream, &mark)| lab.not_ended("H30", stream, mark, "the gate is closed"));
    // SAFETY: H1, as above; the gate is used no more once it is destroyed.
    unsafe {
        gates.open(gate)?;
        held?;
        for (&stream, &mark) in watched {
            lab.reach(stream, Until::Mark(mark))?;
        }
        gates.destroy(gate);
    }
    Ok(())
}

fn gates_stay_open(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let gates = gates(&lab)?;
    let stream = lab.stream()?;
    let gate = gates.create()?;
    // SAFETY: H1, gate and stream are this device's and live; the gate is used no more once it is destroyed.
    unsafe {
        gates.open(gate)?;
        gates.open(gate)?;
        gates.wait(stream.id, gate)?;
        lab.finish(stream)?;
        gates.wait(stream.id, gate)?;
        lab.finish(stream)?;
        gates.destroy(gate);
    }
    Ok(())
}

fn gates_destroyed_when_closed(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let gates = gates(&lab)?;
    let stream = lab.stream()?;
    let gate = gates.create()?;
    // SAFETY: H1, gate and stream are this device's and live; the gate is used no more once it is destroyed.
    unsafe {
        gates.wait(stream.id, gate)?;
        lab.mark(stream)?;
        gates.destroy(gate);
    }
    lab.finish(stream)
}

fn gates_can_be_had_again(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let gates = gates(&lab)?;
    let limit = gates.limits().closed;
    expect("H30", limit > 0, "a limit above 0", limit)?;
    let rounds = u64::from(limit).saturating_mul(2).min(10_000);
    for _ in 0..rounds {
        let gate = match gates.create() {
            Ok(gate) => gate,
            Err(fault) => return fail("H30", "a gate while all others are gone", fault.to_string()),
        };
        // SAFETY: H1, made above and used no more.
        unsafe { gates.destroy(gate) };
    }
    Ok(())
}

fn telemetry(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let Some(telemetry) = lab.device(0).telemetry() else { return fail("H26", "telemetry, as before", "none") };
    let limits = telemetry.limits();
    let sensors: [(&str, bool, Result<f32, Fault>, f32); 5] = [
        ("utilization", limits.utilization, telemetry.utilization(), 100.0),
        ("memory_usage", limits.memory_usage, telemetry.memory_usage(), 100.0),
        ("temperature", limits.temperature, telemetry.temperature(), 200.0),
        ("power_draw", limits.power, telemetry.power_draw(), 10_000.0),
        ("clock_rate", limits.clock, telemetry.clock_rate(), 100_000.0),
    ];
    for (name, known, reading, most) in sensors {
        match reading {
            Err(fault) if fault.kind == FaultKind::NotReady => {}
            reading if !known => refused("H32", name, reading, FaultKind::Unsupported)?,
            Ok(value) => {
                let expected = format!("{name} between 0 and {most}");
                expect("H32", (0.0..=most).contains(&value), &expected, value)?;
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(())
}
