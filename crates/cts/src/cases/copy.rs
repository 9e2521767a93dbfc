//! H5, H12, H14: copies, fills and writes move the right bytes, all of them, and no others.

use crate::case::{Capability, Case, Outcome, Stop, refused, same_bytes};
use crate::env::Env;
use crate::lab::{MOMENT, bytes};
use anyaccel_hal::{FaultKind, Until};
use std::thread;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::hal("copy.lengths-and-offsets", &[4, 6], lengths_and_offsets),
    Case::hal("copy.all-ends", &[4, 5], all_ends),
    Case::hal("copy.big", &[4, 5], big),
    Case::hal("copy.two-host-ends", &[19], two_host_ends),
    Case::hal("copy.source-read-in-turn", &[5], source_read_in_turn).needs(&[Capability::Pinned]),
    Case::hal("copy.destination-written-in-turn", &[5], destination_written_in_turn).needs(&[Capability::Pinned]),
    Case::hal("copy.unpinned-ends", &[5], unpinned_ends).needs(&[Capability::HostEnds]),
    Case::hal("copy.unpinned-ends-in-turn", &[5], unpinned_ends_in_turn).needs(&[Capability::HostEnds]),
    Case::hal("copy.host-left-alone-after-the-mark", &[5], host_left_alone_after_the_mark),
    Case::hal("write.lengths", &[12], write_lengths),
    Case::hal("write.taken-at-the-call", &[12], write_taken_at_the_call),
    Case::hal("write.too-much", &[19], write_too_much),
    Case::hal("fill.patterns", &[14], fill_patterns),
    Case::hal("fill.pattern-starts-at-the-place", &[14], fill_pattern_starts_at_the_place),
    Case::hal("fill.big", &[14], fill_big),
    Case::hal("fill.lacking-pattern", &[14, 21], fill_lacking_pattern),
];

/// Lengths around the edges of machine words, lines and pages.
const LENGTHS: [u64; 17] = [1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 255, 4095, 4096, 4097, 65_537, (1 << 20) + 3];

fn lengths_and_offsets(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    for len in LENGTHS {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (16, 64)] {
            let source = bytes(len, (len + from) as usize);
            let src = lab.memory_with(stream, &source)?;
            let size = len + to + 8;
            let dst = lab.memory(size)?;
            lab.fill(stream, dst, 0x77)?;
            lab.copy(stream, dst.part(to, len), src.part(from, len))?;
            let mut expected = vec![0x77; size as usize];
            expected[to as usize..][..len as usize].copy_from_slice(&source[from as usize..]);
            let what = format!("a copy of {len} bytes from offset {from} to {to}");
            same_bytes("H6", &what, &lab.read(stream, dst)?, &expected)?;
            for region in [src, dst] {
                lab.free(0, region.place.mem)?;
            }
        }
    }
    Ok(())
}

fn all_ends(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    for len in LENGTHS {
        let content = bytes(len + 100, len as usize);
        // One more byte at each end, which must stay.
        let up = lab.host(&content)?;
        let (first, second) = (lab.memory(len + 2)?, lab.memory(len + 2)?);
        lab.fill(stream, second, 0x11)?;
        lab.upload(stream, first.part(1, len), up)?;
        lab.copy(stream, second.part(1, len), first.part(1, len))?;
        let down = lab.host(&vec![0x22; len as usize + 2])?;
        lab.download(stream, down.part(1, len as usize), second.part(1, len))?;
        lab.finish(stream)?;
        let mut expected = vec![0x22; len as usize + 2];
        expected[1..=len as usize].copy_from_slice(&content);
        same_bytes("H5", &format!("{len} bytes from host to host"), &down.look(), &expected)?;
        let on_device = lab.read(stream, second)?;
        let around = [on_device[0], on_device[len as usize + 1]];
        same_bytes("H4", &format!("the bytes around a copy of {len}"), &around, &[0x11; 2])?;
        same_bytes("H5", "the source of an upload", &up.look(), &content)?;
        lab.free(0, first.place.mem)?;
        lab.free(0, second.place.mem)?;
    }
    Ok(())
}

fn big(env: &Env) -> Outcome {
    const LEN: usize = (24 << 20) + 5;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let content = bytes(env.seed, LEN);
    let first = lab.memory_with(stream, &content)?;
    let second = lab.memory(LEN as u64)?;
    lab.copy(stream, second, first)?;
    same_bytes("H5", "24 MiB there and back", &lab.read(stream, second)?, &content)
}

fn two_host_ends(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let pinned = (lab.host(&[1; 16])?, lab.host(&[2; 16])?);
    let plain = (lab.plain(&[1; 16]), lab.plain(&[2; 16]));
    for (what, dst, src) in [
        ("a copy between two places of host memory", plain.0, plain.1),
        ("a copy between two places of pinned memory", pinned.0, pinned.1),
        ("a copy between two kinds of host memory", pinned.0, plain.1),
    ] {
        refused("H19", what, lab.copy_on_host(stream, dst, src), FaultKind::Invalid)?;
        lab.finish(stream)?;
        same_bytes("H19", "the source of a refused copy", &src.look(), &[2; 16])?;
    }
    Ok(())
}

/// Host memory that nobody has announced.
fn unpinned_ends(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    for len in LENGTHS {
        let content = bytes(len, len as usize);
        let (region, up) = (lab.memory(len)?, lab.plain(&content));
        let down = lab.plain(&vec![0x33; len as usize + 2]);
        lab.upload(stream, region, up)?;
        lab.download(stream, down.part(1, len as usize), region)?;
        lab.finish(stream)?;
        let mut expected = vec![0x33; len as usize + 2];
        expected[1..=len as usize].copy_from_slice(&content);
        same_bytes("H5", &format!("{len} bytes of plain host memory"), &down.look(), &expected)?;
    }
    Ok(())
}

/// Such a copy may hold up its caller, but takes its turn all the same.
fn unpinned_ends_in_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    lab.fill(stream, region, 1)?;
    lab.finish(stream)?;
    let destination = lab.plain(&[9; 64]);
    let hold = lab.hold(stream)?;
    lab.fill(stream, region, 2)?;
    thread::scope(|scope| {
        let lab = &lab;
        let copier = scope.spawn(move || lab.download(stream, destination, region));
        thread::sleep(MOMENT);
        same_bytes("H5", "the destination of a held copy", &destination.look(), &[9; 64])?;
        hold.release()?;
        copier.join().unwrap_or(Ok(())).map_err(Stop::from)
    })?;
    lab.finish(stream)?;
    same_bytes("H5", "the destination of the copy in the end", &destination.look(), &[2; 64])
}

fn source_read_in_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let source = lab.host(&[1; 64])?;
    let region = lab.memory(64)?;
    let hold = lab.hold(stream)?;
    lab.call(stream, move |_| source.set(2))?;
    lab.upload(stream, region, source)?;
    hold.release()?;
    same_bytes("H5", "an upload behind a function that changes its source", &lab.read(stream, region)?, &[2; 64])
}

fn destination_written_in_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory_with(stream, &[5; 64])?;
    lab.finish(stream)?;
    let destination = lab.host(&[6; 64])?;
    let hold = lab.hold(stream)?;
    lab.download(stream, destination, region)?;
    let mark = lab.mark(stream)?;
    lab.not_ended("H9", stream, mark, "the stream is held up")?;
    same_bytes("H5", "the destination of a held download", &destination.look(), &[6; 64])?;
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))?;
    same_bytes("H5", "the destination of the download", &destination.look(), &[5; 64])
}

fn host_left_alone_after_the_mark(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory_with(stream, &[5; 4096])?;
    let used = (0..8).map(|_| lab.host(&[0; 4096])).collect::<Outcome<Vec<_>>>()?;
    for &host in &used {
        lab.download(stream, host, region)?;
    }
    let source = lab.host(&[7; 4096])?;
    let second = lab.memory(4096)?;
    lab.upload(stream, second, source)?;
    let mark = lab.mark(stream)?;
    lab.reach(stream, Until::Mark(mark))?;
    used.iter().for_each(|host| host.set(0xDD));
    source.set(0xDD);
    // More work on the stream, so that anything left over would come now.
    lab.fill(stream, region, 6)?;
    let seen = lab.read(stream, second)?;
    thread::sleep(Duration::from_millis(5));
    same_bytes("H5", "what was uploaded before its source changed", &seen, &[7; 4096])?;
    used.iter().try_for_each(|host| {
        same_bytes("H5", "host memory changed after the mark of its copy", &host.look(), &[0xDD; 4096])
    })
}

fn write_lengths(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(80)?;
    for len in 1..=64_usize {
        let at = len % 7;
        let content = bytes(len as u64, len);
        lab.fill(stream, region, 0x55)?;
        lab.write(stream, region.from(at as u64), &content)?;
        let mut expected = vec![0x55; 80];
        expected[at..][..len].copy_from_slice(&content);
        same_bytes("H12", &format!("a write of {len} bytes"), &lab.read(stream, region)?, &expected)?;
    }
    Ok(())
}

fn write_taken_at_the_call(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    let hold = lab.hold(stream)?;
    let mut content = Vec::from([0x41; 64]);
    lab.write(stream, region, &content)?;
    content.fill(0xEE);
    hold.release()?;
    let seen = lab.read(stream, region)?;
    same_bytes("H12", "a write whose bytes changed after the call", &seen, &[0x41; 64])?;
    drop(content);
    Ok(())
}

fn write_too_much(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(128)?;
    lab.fill(stream, region, 1)?;
    refused("H19", "a write of 65 bytes", lab.write(stream, region, &[2; 65]), FaultKind::Invalid)?;
    same_bytes("H19", "memory behind a refused write", &lab.read(stream, region.from(65))?, &[1; 63])?;
    lab.write(stream, region, &[3; 64])?;
    same_bytes("H19", "a write after a refused one", &lab.read(stream, region.part(0, 64))?, &[3; 64])
}

fn fill_patterns(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let sizes = lab.device(0).info().fill_patterns;
    for size in [1, 2, 4, 8, 16].into_iter().filter(|&size| sizes.has(size)) {
        let pattern = bytes(size as u64, size);
        for count in [1, 2, 3, 5, 7, 8, 9, 31, 32, 33, 255, 4095, 4096, 4097] {
            let len = (count * size) as u64;
            for place in [0, size, 3 * size] {
                let total = place + len as usize + 5;
                let region = lab.memory(total as u64)?;
                lab.fill(stream, region, 0x99)?;
                lab.fill_with(stream, region.part(place as u64, len), &pattern)?;
                let mut expected = vec![0x99; total];
                for (at, byte) in expected[place..][..len as usize].iter_mut().enumerate() {
                    *byte = pattern[at % size];
                }
                let what = format!("{len} bytes of a pattern of {size} at {place}");
                same_bytes("H14", &what, &lab.read(stream, region)?, &expected)?;
                lab.free(0, region.place.mem)?;
            }
        }
    }
    Ok(())
}

/// The place may lie anywhere in memory that is aligned for more than the pattern's size.
fn fill_pattern_starts_at_the_place(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let sizes = lab.device(0).info().fill_patterns;
    let region = lab.memory(256)?;
    for size in [2, 4, 8, 16].into_iter().filter(|&size| sizes.has(size)) {
        let pattern: Vec<u8> = (1..=size as u8).collect();
        for step in 0..(128 / size) {
            lab.fill_with(stream, region.part((step * size) as u64, 3 * size as u64), &pattern)?;
            let seen = lab.read(stream, region.part((step * size) as u64, 3 * size as u64))?;
            let expected = pattern.repeat(3);
            same_bytes("H14", &format!("a pattern of {size} at {}", step * size), &seen, &expected)?;
        }
    }
    Ok(())
}

fn fill_big(env: &Env) -> Outcome {
    const LEN: usize = (8 << 20) + 48;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let sizes = lab.device(0).info().fill_patterns;
    let region = lab.memory(LEN as u64)?;
    for size in [1, 4, 16].into_iter().filter(|&size| sizes.has(size)) {
        let pattern = bytes(size as u64, size);
        lab.fill_with(stream, region, &pattern)?;
        let expected = pattern.repeat(LEN / size);
        same_bytes("H14", &format!("8 MiB of a pattern of {size}"), &lab.read(stream, region)?, &expected)?;
    }
    Ok(())
}

fn fill_lacking_pattern(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let sizes = lab.device(0).info().fill_patterns;
    let region = lab.memory(32)?;
    lab.write(stream, region, &[1; 32])?;
    let lacking: Vec<usize> = [1, 2, 4, 8, 16].into_iter().filter(|&size| !sizes.has(size)).collect();
    if lacking.is_empty() {
        return crate::case::skip("it has every size of pattern");
    }
    for size in lacking {
        let filled = lab.fill_with(stream, region.part(0, 16), &vec![2; size]);
        refused("H14", &format!("a pattern of {size}"), filled, FaultKind::Unsupported)?;
    }
    same_bytes("H19", "memory behind refused fills", &lab.read(stream, region.from(16))?, &[1; 16])
}
