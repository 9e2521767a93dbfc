//! H2, H3, H21: device memory.

use crate::case::{Case, Outcome, expect, fail, refused, same, same_bytes, skip};
use crate::env::Env;
use crate::lab::{Lab, bytes};
use crate::random::Random;
use crate::words::{self, plain};
use anyaccel_hal::{FaultKind, Segment};
use std::collections::HashSet;

pub(super) const CASES: &[Case] = &[
    Case::hal("memory.segments-lie-apart", &[3], segments_lie_apart),
    Case::hal("memory.at-least-what-was-asked", &[3], at_least_what_was_asked),
    Case::hal("memory.keeps-its-content", &[3, 4], keeps_its_content),
    Case::hal("memory.is-backed", &[3], is_backed),
    Case::hal("memory.refuses-nothing-and-too-much", &[3, 19], refuses_nothing_and_too_much),
    Case::hal("memory.runs-out-and-recovers", &[3, 21], runs_out_and_recovers),
    Case::hal("memory.full-memory-is-backed", &[3, 21], full_memory_is_backed),
    Case::hal("memory.info", &[3], info),
    Case::hal("memory.handles-are-unique", &[1, 2], handles_are_unique),
    Case::hal("memory.devices-apart", &[2, 3], devices_apart).devices(2),
    Case::hal("memory.frees-give-back", &[3, 21], frees_give_back),
    Case::hal("memory.import-by-native-name", &[2, 21], import_by_native_name),
];

fn check(lab: &Lab, device: usize, asked: u64, segment: &Segment) -> Outcome {
    let alignment = lab.device(device).info().alignment;
    expect("H3", segment.len >= asked, &format!("at least {asked} bytes"), segment.len)?;
    let off = segment.addr % alignment;
    expect("H3", off == 0, &format!("an address that is a multiple of {alignment}"), format!("{off} bytes off"))
}

fn apart(live: &[Segment]) -> Outcome {
    let mut sorted: Vec<&Segment> = live.iter().collect();
    sorted.sort_by_key(|segment| segment.addr);
    for pair in sorted.windows(2) {
        let end = pair[0].addr.checked_add(pair[0].len);
        expect(
            "H3",
            end.is_some_and(|end| end <= pair[1].addr),
            "live segments that do not overlap",
            format!("{} and {}", words::segment(pair[0]), words::segment(pair[1])),
        )?;
    }
    Ok(())
}

fn segments_lie_apart(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let mut random = Random::new(env.seed);
    let mut live: Vec<Segment> = Vec::new();
    for _ in 0..400 {
        if live.len() > 40 || (!live.is_empty() && random.one_in(3)) {
            let segment = live.swap_remove(random.below(live.len() as u64) as usize);
            lab.free(0, segment.mem)?;
        } else {
            let sizes = [1, 3, 64, 511, 512, 513, 4096, 65_537, 1 << 20];
            let len = *random.one_of(&sizes);
            let segment = lab.segment(0, len)?;
            check(&lab, 0, len, &segment)?;
            live.push(segment);
        }
        apart(&live)?;
    }
    Ok(())
}

fn at_least_what_was_asked(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let lens = (1..40).chain([255, 256, 257, 4095, 4097, (1 << 20) + 1]);
    for len in lens {
        let segment = lab.segment(0, len)?;
        check(&lab, 0, len, &segment)?;
        // Everything that it says it has can be used.
        let region = lab.region(0, &segment);
        lab.fill(stream, region, 0x3C)?;
        let last = lab.read(stream, region.from(segment.len - 1))?;
        same_bytes("H3", "the last byte of a segment", &last, &[0x3C])?;
    }
    Ok(())
}

fn keeps_its_content(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let mut random = Random::new(env.seed);
    let mut live = Vec::new();
    for salt in 0..120 {
        let content = bytes(salt, random.within(1, 9000) as usize);
        live.push((lab.memory_with(stream, &content)?, content));
        if live.len() > 20 {
            let (region, content) = live.swap_remove(random.below(20) as usize);
            same_bytes("H3", "a segment before it is freed", &lab.read(stream, region)?, &content)?;
            lab.free(0, region.place.mem)?;
        }
    }
    for (region, content) in live {
        same_bytes("H3", "a segment in the end", &lab.read(stream, region)?, &content)?;
    }
    Ok(())
}

fn is_backed(env: &Env) -> Outcome {
    const LEN: u64 = 48 << 20;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(LEN)?;
    lab.fill(stream, region, 0xAB)?;
    for at in [0, LEN / 2 - 1, LEN - 4096] {
        same_bytes("H3", "a part of 48 MiB", &lab.read(stream, region.part(at, 4096))?, &[0xAB; 4096])?;
    }
    Ok(())
}

fn refuses_nothing_and_too_much(env: &Env) -> Outcome {
    let lab = env.lab()?;
    refused("H3", "alloc(0)", lab.segment(0, 0), FaultKind::Invalid)?;
    let most = lab.device(0).info().max_alloc;
    expect("H3", most > 0, "a max_alloc above 0", most)?;
    if let Some(more) = most.checked_add(1) {
        refused("H3", "alloc(max_alloc + 1)", lab.segment(0, more), FaultKind::Invalid)?;
        refused("H3", "alloc(u64::MAX)", lab.segment(0, u64::MAX), FaultKind::Invalid)?;
    }
    let stream = lab.stream()?;
    let region = lab.memory_with(stream, &[5; 100])?;
    same_bytes("H19", "memory taken after refused requests", &lab.read(stream, region)?, &[5; 100])
}

/// Takes memory in pieces until there is no more.
fn exhaust(lab: &Lab) -> Outcome<(u64, Vec<Segment>)> {
    let info = lab.device(0).info();
    let piece = (info.memory / 8).clamp(1, info.max_alloc);
    let mut live = Vec::new();
    // Twice what there can be.
    for _ in 0..=2 * info.memory / piece {
        match lab.segment(0, piece) {
            Ok(segment) => live.push(segment),
            Err(fault) if fault.kind == FaultKind::OutOfMemory => return Ok((piece, live)),
            Err(fault) => return fail("H21", "OutOfMemory when memory has run out", fault.to_string()),
        }
    }
    fail("H21", "OutOfMemory when memory has run out", format!("{} pieces of {piece} bytes", live.len()))
}

fn runs_out_and_recovers(env: &Env) -> Outcome {
    let lab = env.lab()?;
    for _ in 0..2 {
        let (piece, mut live) = exhaust(&lab)?;
        expect("H21", live.len() > 1, "more than one piece of an eighth of the memory", live.len())?;
        apart(&live)?;
        refused("H21", "the same request again", lab.segment(0, piece), FaultKind::OutOfMemory)?;
        for _ in 0..3 {
            // The next piece exists again as soon as one is given back.
            let Some(segment) = live.pop() else { break };
            lab.free(0, segment.mem)?;
            match lab.segment(0, piece) {
                Ok(segment) => live.insert(0, segment),
                Err(fault) => return fail("H21", "the same request to succeed after a free", fault.to_string()),
            }
        }
        for segment in live {
            lab.free(0, segment.mem)?;
        }
    }
    Ok(())
}

fn full_memory_is_backed(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let (_, live) = exhaust(&lab)?;
    for (at, segment) in live.iter().enumerate() {
        lab.fill(stream, lab.region(0, segment).part(0, 4096), at as u8 + 1)?;
        lab.fill(stream, lab.region(0, segment).from(segment.len - 1), 1)?;
    }
    for (at, segment) in live.iter().enumerate() {
        let seen = lab.read(stream, lab.region(0, segment).part(0, 4096))?;
        same_bytes("H3", "a segment of a full device", &seen, &[at as u8 + 1; 4096])?;
    }
    Ok(())
}

fn info(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let before = lab.device(0).memory_info()?;
    expect("H3", before.total > 0, "a device with memory", plain(&before))?;
    let _taken = lab.segment(0, 32 << 20)?;
    let after = lab.device(0).memory_info()?;
    same("H3", "total memory, twice", after.total, before.total)?;
    for seen in [before, after] {
        expect("H3", seen.free.is_none_or(|free| free <= seen.total), "free at most total", plain(&seen))?;
    }
    Ok(())
}

fn handles_are_unique(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (mut mems, mut streams, mut stamps) = (HashSet::new(), HashSet::new(), HashSet::new());
    for _ in 0..2000 {
        let segment = lab.segment(0, 64)?;
        expect("H2", mems.insert(segment.mem), "a handle of memory that was never given out", segment.mem.0)?;
        lab.free(0, segment.mem)?;
    }
    for _ in 0..200 {
        let stream = lab.stream()?;
        expect("H2", streams.insert(stream.id), "a handle of a stream that was never given out", stream.id.0)?;
        let stamp = lab.stamp(stream)?;
        expect("H2", stamps.insert(stamp), "a handle of a stamp that was never given out", stamp.0)?;
        lab.finish(stream)?;
        lab.drop_stamp(0, stamp);
        lab.destroy(stream)?;
    }
    Ok(())
}

fn devices_apart(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = [lab.stream_on(0)?, lab.stream_on(1)?];
    expect(
        "H2",
        streams[0].id != streams[1].id,
        "handles of streams that are unique per driver",
        "two devices gave out the same",
    )?;
    let regions = [lab.memory_with(streams[0], &[1; 4096])?, lab.memory_with(streams[1], &[2; 4096])?];
    let mems = regions.map(|region| region.place.mem);
    expect("H2", mems[0] != mems[1], "handles of memory that are unique per driver", "two devices gave out the same")?;
    for (at, stream) in streams.into_iter().enumerate() {
        let seen = lab.read(stream, regions[at])?;
        same_bytes("H3", "the memory of each device", &seen, &[at as u8 + 1; 4096])?;
    }
    if let (Ok(one), Ok(other)) = (lab.device(0).memory_info(), lab.device(1).memory_info())
        && let (Some(_), Some(before)) = (one.free, other.free)
    {
        let _taken = lab.segment(0, 32 << 20)?;
        let after = lab.device(1).memory_info()?.free;
        let close = after.is_some_and(|after| after.abs_diff(before) < 16 << 20);
        expect(
            "H3",
            close,
            "memory taken on device 0 not to count on device 1",
            format!("{before} bytes free, then {}", plain(&after)),
        )?;
    }
    Ok(())
}

/// Memory named twice: by its own handle, and by the one of an import of its native name.
fn import_by_native_name(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory_with(stream, &bytes(env.seed, 8192))?;
    lab.finish(stream)?;
    let again = match lab.import(region) {
        Err(fault) if fault.kind == FaultKind::Unsupported => return skip("memory of others can't be named"),
        other => other?,
    };
    expect("H2", again.place.mem != region.place.mem, "a handle of its own", "the same handle")?;
    let seen = lab.read(stream, again.part(8000, 192))?;
    same_bytes("H3", "memory under its second name", &seen, &bytes(env.seed, 8192)[8000..])?;
    lab.fill(stream, again.part(0, 64), 7)?;
    same_bytes("H3", "memory changed under its second name", &lab.read(stream, region.part(0, 64))?, &[7; 64])?;
    lab.free(0, again.place.mem)?;
    same_bytes("H3", "memory after its second name was freed", &lab.read(stream, region.part(0, 64))?, &[7; 64])
}

/// What is freed can be taken again, for ever.
fn frees_give_back(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let info = lab.device(0).info();
    let piece = (info.memory / 4).clamp(1, info.max_alloc).min(256 << 20);
    for round in 0..24 {
        match lab.segment(0, piece) {
            Ok(segment) => lab.free(0, segment.mem)?,
            Err(fault) => return fail("H21", format!("a piece of {piece} bytes in round {round}"), fault.to_string()),
        }
    }
    Ok(())
}
