//! Buffers and what moves their bytes: within a device, between devices, from and to the host.

use super::Face;
use crate::case::{Case, Outcome, errs, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::{MOMENT, bytes};
use anyaccel::{DType, Error, ErrorClass};
use anyaccel_kernels::{convert, histogram};

pub(super) const CASES: &[Case] = &[
    Case::face("copies.there-and-back", &["work.copies"], there_and_back),
    Case::face("copies.across-devices", &["work.across-devices"], across_devices).devices(2),
    Case::face("copies.across-devices-in-order", &["work.across-devices"], across_devices_in_order).devices(2),
    Case::face("copies.borrowed-source", &["work.borrowed"], borrowed_source),
    Case::face("copies.pinned", &["work.pinned"], pinned),
    Case::face("copies.pinned-dropped-early", &["work.pinned"], pinned_dropped_early),
    Case::face("copies.buffer-dropped-early", &["work.dropped-buffer"], buffer_dropped_early),
    Case::face("copies.fill-and-write", &["work.copies"], fill_and_write),
    Case::face("copies.built-ins", &["work.built-ins"], built_ins),
    Case::face("copies.refused", &["work.refused"], refused).devices(2),
    Case::face("copies.out-of-memory", &["error.out-of-memory"], out_of_memory),
    Case::face("copies.empty", &["work.copies"], empty),
];

fn there_and_back(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    for len in [1, 63, 64, 65, 4097, 65_535, 65_537, (1 << 20) + 1] {
        let content = bytes(len, len as usize);
        let (first, second) = (runtime.alloc(len + 3)?, runtime.alloc(len + 2)?);
        stream.wait_stream(&runtime.current_stream(())?)?;
        stream.upload(&first.slice(3..)?, &content)?;
        stream.copy(&second.slice(1..=len)?, &first.slice(3..)?)?;
        let mut seen = vec![0; len as usize];
        stream.download(&mut seen, &second.slice(1..=len)?)?;
        same_bytes("work.copies", &format!("{len} bytes there and back"), &seen, &content)?;
    }
    let content = bytes(env.seed(), 1000);
    same_bytes("work.copies", "a buffer made of bytes", &runtime.buffer_from(&content)?.to_vec()?, &content)?;
    same_bytes("work.copies", "a zeroed buffer", &runtime.zeros(1000)?.to_vec()?, &[0; 1000])
}

fn across_devices(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let streams = [runtime.stream(0)?, runtime.stream(1)?];
    for len in [1, 4096, (1 << 20) + 7] {
        let content = bytes(len, len as usize);
        let (here, there) = (runtime.alloc_on(0, len)?, runtime.alloc_on(1, len)?);
        streams[0].upload(&here.all(), &content)?;
        streams[1].wait_stream(&streams[0])?;
        // On a stream of either end.
        for stream in &streams {
            stream.wait_stream(&streams[0])?;
            stream.wait_stream(&streams[1])?;
            stream.copy(&there.all(), &here.all())?;
            let mut seen = vec![0; len as usize];
            streams[1].wait_stream(stream)?;
            streams[1].download(&mut seen, &there.all())?;
            same_bytes("work.across-devices", &format!("{len} bytes from device 0 to 1"), &seen, &content)?;
            streams[1].fill(&there.all(), &[0])?;
        }
    }
    Ok(())
}

fn across_devices_in_order(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (zero, one) = (runtime.stream(0)?, runtime.stream(1)?);
    let (here, there, copied) = (runtime.alloc_on(0, 4096)?, runtime.alloc_on(1, 4096)?, runtime.alloc_on(1, 4096)?);
    let hold = face.hold(&zero)?;
    zero.fill(&here.all(), &[6])?;
    one.wait_stream(&zero)?;
    one.fill(&there.all(), &[1])?;
    one.copy(&there.all(), &here.all())?;
    one.copy(&copied.all(), &there.all())?;
    one.fill(&there.all(), &[2])?;
    same("work.across-devices", "a short wait behind the held device", one.synchronize_for(MOMENT)?, false)?;
    hold.release()?;
    let (mut first, mut last) = ([0; 4096], [0; 4096]);
    one.download(&mut first, &copied.all())?;
    one.download(&mut last, &there.all())?;
    same_bytes("work.across-devices", "a copy behind the copy between devices", &first, &[6; 4096])?;
    same_bytes("work.across-devices", "a fill behind it", &last, &[2; 4096])
}

/// The source may be changed, or forgotten, as soon as the call returns.
fn borrowed_source(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    for len in [1, 64, 65, 60_000] {
        let buffer = runtime.alloc(len as u64)?;
        runtime.synchronize(())?;
        let hold = face.hold(&stream)?;
        let mut source = vec![0x21; len];
        stream.upload(&buffer.all(), &source)?;
        source.fill(0xEE);
        drop(source);
        hold.release()?;
        let mut seen = vec![0; len];
        stream.download(&mut seen, &buffer.all())?;
        same_bytes("work.borrowed", &format!("{len} bytes whose source changed"), &seen, &vec![0x21; len])?;
    }
    Ok(())
}

fn pinned(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(4096)?;
    let (mut up, mut down) = (runtime.pinned(5000)?, runtime.pinned(5000)?);
    runtime.synchronize(())?;
    for round in 1..5_u8 {
        up.as_mut_slice()?.fill(round);
        stream.upload_pinned(&buffer.all(), &up, 100)?;
        stream.download_pinned(&mut down, 7, &buffer.all())?;
        // Each view waits for what concerns it.
        same_bytes("work.pinned", "what came back", &down.as_slice()?[7..7 + 4096], &[round; 4096])?;
        up.as_mut_slice()?.fill(0xEE);
    }
    let range = |error: &Error| matches!(error, Error::Range { .. });
    errs(
        "work.refused",
        "an upload past the end of pinned memory",
        "Range",
        stream.upload_pinned(&buffer.all(), &up, 2000),
        range,
    )
}

fn pinned_dropped_early(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(4096)?;
    let mut source = runtime.pinned(4 * 4096)?;
    runtime.synchronize(())?;
    for (at, part) in source.as_mut_slice()?.chunks_mut(4096).enumerate() {
        part.fill(at as u8 + 1);
    }
    let hold = face.hold(&stream)?;
    stream.upload_pinned(&buffer.all(), &source, 2 * 4096)?;
    drop(source);
    let mut next = runtime.pinned(4 * 4096)?;
    next.as_mut_slice()?.fill(9);
    hold.release()?;
    let mut seen = [0; 4096];
    stream.download(&mut seen, &buffer.all())?;
    same_bytes("work.pinned", "the third part of pinned memory that was dropped early", &seen, &[3; 4096])
}

fn buffer_dropped_early(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let side = runtime.stream(())?;
    let target = runtime.zeros(1 << 16)?;
    let used = runtime.zeros(1 << 16)?;
    let home = runtime.current_stream(())?;
    home.fill(&used.all(), &[4])?;
    side.wait_stream(&home)?;
    let hold = face.hold(&side)?;
    side.copy(&target.all(), &used.all())?;
    drop(used);
    let others = (0..4).map(|_| runtime.alloc(1 << 16)).collect::<Result<Vec<_>, _>>()?;
    for other in &others {
        home.fill(&other.all(), &[9])?;
    }
    face.finish(&home)?;
    hold.release()?;
    let mut seen = vec![0; 1 << 16];
    side.download(&mut seen, &target.all())?;
    same_bytes("work.dropped-buffer", "a copy of a buffer that was dropped early", &seen, &vec![4; 1 << 16])
}

fn fill_and_write(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.current_stream(())?;
    let buffer = runtime.alloc(1000)?;
    for size in [1, 2, 4, 8, 16] {
        for (from, to) in [(0, 1000), (16, 17), (16, 999), (3, 500)] {
            let pattern = bytes(size as u64, size);
            stream.fill(&buffer.all(), &[0x77])?;
            stream.fill(&buffer.slice(from..to)?, &pattern)?;
            let mut expected = vec![0x77; 1000];
            for (at, byte) in expected[from as usize..to as usize].iter_mut().enumerate() {
                *byte = pattern[at % size];
            }
            same_bytes(
                "work.copies",
                &format!("a pattern of {size} from {from} to {to}"),
                &buffer.to_vec()?,
                &expected,
            )?;
        }
    }
    for len in [1, 33, 64] {
        let content = bytes(len as u64, len);
        stream.write(&buffer.slice(5..5 + len as u64)?, &content)?;
        same_bytes("work.copies", &format!("{len} bytes written"), &buffer.to_vec()?[5..5 + len], &content)?;
    }
    let argument = |error: &Error| matches!(error, Error::Argument { .. });
    for size in [0, 3, 5, 17] {
        let filled = stream.fill(&buffer.all(), &vec![1; size]);
        errs("work.refused", &format!("a pattern of {size}"), "Argument", filled, argument)?;
    }
    let length = |error: &Error| matches!(error, Error::Length { .. });
    errs("work.refused", "a write of 65 bytes", "Length", stream.write(&buffer.slice(..65)?, &[1; 65]), length)?;
    errs("work.refused", "a write of another length", "Length", stream.write(&buffer.slice(..4)?, &[1; 5]), length)
}

fn built_ins(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.current_stream(())?;
    let content = bytes(env.seed(), 100_003);
    let (data, counts) = (runtime.buffer_from(&content)?, runtime.zeros(2048)?);
    let mut expected = [0; 256];
    for _ in 0..2 {
        stream.histogram(&counts.all(), &data.all())?;
        histogram::reference::count(&content, &mut expected);
    }
    let expected: Vec<u8> = expected.into_iter().flat_map(u64::to_le_bytes).collect();
    same_bytes("work.built-ins", "two histograms added up", &counts.to_vec()?, &expected)?;
    let dtypes = runtime.get_device_capability(())?.supported_dtypes;
    for (from, to) in
        [(DType::U8, DType::F32), (DType::I32, DType::F16), (DType::F32, DType::I8), (DType::Bool, DType::C64)]
    {
        if !(dtypes.contains(from) && dtypes.contains(to)) {
            continue;
        }
        let mut source: Vec<u8> = content[..100 * from.size()].to_vec();
        if from == DType::Bool {
            source.iter_mut().for_each(|byte| *byte &= 1);
        }
        let mut expected = vec![0; 100 * to.size()];
        if let Err(error) = convert::reference::convert(to, &mut expected, from, &source) {
            return crate::case::fail("work.built-ins", "whole elements", error.to_string());
        }
        let (src, dst) = (runtime.buffer_from(&source)?, runtime.alloc(expected.len() as u64)?);
        stream.convert(&dst.all(), to, &src.all(), from)?;
        same_bytes("work.built-ins", &format!("{from} as {to}"), &dst.to_vec()?, &expected)?;
    }
    Ok(())
}

fn refused(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.current_stream(0)?;
    let (a, b) = (runtime.alloc_on(0, 100)?, runtime.alloc_on(0, 100)?);
    let there = runtime.alloc_on(1, 100)?;
    stream.fill(&a.all(), &[1])?;
    stream.fill(&b.all(), &[2])?;
    let range = |error: &Error| matches!(error, Error::Range { .. });
    errs("work.refused", "a part past the end", "Range", a.slice(50..101).map(drop), range)?;
    errs("work.refused", "a part of a part past its end", "Range", a.slice(50..60)?.slice(..11).map(drop), range)?;
    let length = |error: &Error| matches!(error, Error::Length { .. });
    errs("work.refused", "a copy between lengths", "Length", stream.copy(&a.all(), &b.slice(..99)?), length)?;
    errs("work.refused", "an upload of another length", "Length", stream.upload(&a.all(), &[0; 99]), length)?;
    errs("work.refused", "a download of another length", "Length", stream.download(&mut [0; 101], &a.all()), length)?;
    let overlap = |error: &Error| matches!(error, Error::Overlap { .. });
    errs("work.refused", "a copy onto itself", "Overlap", stream.copy(&a.slice(0..50)?, &a.slice(49..99)?), overlap)?;
    stream.copy(&a.slice(0..50)?, &a.slice(50..100)?)?;
    let device = |error: &Error| matches!(error, Error::ForeignDevice { .. });
    errs(
        "work.refused",
        "a fill on another device's stream",
        "ForeignDevice",
        stream.fill(&there.all(), &[1]),
        device,
    )?;
    let third = stream.upload(&there.all(), &[0; 100]);
    errs("work.refused", "an upload on another device's stream", "ForeignDevice", third, device)?;
    let counts = runtime.alloc_on(0, 2048)?;
    errs(
        "work.refused",
        "a histogram into too few counters",
        "Length",
        stream.histogram(&counts.slice(..2040)?, &a.all()),
        length,
    )?;
    errs(
        "work.refused",
        "a conversion between counts",
        "Length",
        stream.convert(&a.slice(..40)?, DType::F32, &b.slice(..11)?, DType::U8),
        length,
    )?;
    same_bytes("work.refused", "what refused calls left alone", &b.to_vec()?, &[2; 100])
}

fn out_of_memory(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (free, total) = runtime.get_memory_info(())?;
    let oom = |error: &Error| matches!(error, Error::OutOfMemory { .. });
    for bytes in [total + 1, total.saturating_mul(4).min(1 << 59)] {
        errs(
            "error.out-of-memory",
            &format!("{bytes} of {total} bytes"),
            "OutOfMemory",
            runtime.alloc(bytes).map(drop),
            oom,
        )?;
    }
    let Err(error) = runtime.alloc(total + 1) else {
        return crate::case::fail("error.out-of-memory", "an error", "success");
    };
    same("error.out-of-memory", "its class", error.class(), ErrorClass::OutOfMemory)?;
    let text = error.to_string();
    expect(
        "error.out-of-memory",
        text.contains("out of memory") || text.contains("Out of memory"),
        "a text that says so",
        &text,
    )?;
    // Nothing is lost by it.
    let most = runtime.alloc((free / 2).max(1))?;
    drop(most);
    let buffer = runtime.zeros(4096)?;
    same_bytes("error.out-of-memory", "memory taken afterwards", &buffer.to_vec()?, &[0; 4096])
}

fn empty(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.current_stream(())?;
    let (none, some) = (runtime.alloc(0)?, runtime.zeros(16)?);
    same("work.copies", "the length of a buffer of nothing", none.len(), 0)?;
    stream.copy(&none.all(), &some.slice(3..3)?)?;
    stream.fill(&none.all(), &[1])?;
    stream.upload(&some.slice(16..)?, &[])?;
    stream.download(&mut [], &none.all())?;
    stream.write(&none.all(), &[])?;
    same_bytes("work.copies", "a buffer beside empty work", &some.to_vec()?, &[0; 16])
}
