//! H16: built-in kernels, against their definition.

use crate::case::{Case, Outcome, expect, refused, same, same_bytes, skip};
use crate::env::Env;
use crate::lab::{Lab, Region, Stream, arg, bytes};
use crate::words::plain;
use anyaccel_hal::{Arg, DType, DTypeSet, FaultKind, Kernel, Launch};
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram};

pub(super) const CASES: &[Case] = &[
    Case::hal("builtins.same-answer", &[16, 26], same_answer),
    Case::hal("builtins.noop", &[16], noop),
    Case::hal("builtins.fill-pattern", &[16], fill_patterns),
    Case::hal("builtins.histogram", &[16], histograms),
    Case::hal("builtins.histogram-adds", &[6, 16], histogram_adds),
    Case::hal("builtins.convert", &[16], convert_all),
    Case::hal("builtins.convert-in-chunks", &[16], convert_in_chunks),
    Case::hal("builtins.wrong-arguments", &[15, 19], wrong_arguments),
];

fn builtin(lab: &Lab, which: Builtin) -> Outcome<Kernel> {
    lab.device(0).builtin(which.number()).map_or_else(|| skip(format!("no built-in {which}")), Ok)
}

fn same_answer(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let ask = || -> Vec<Option<Kernel>> { (0..40).map(|number| lab.device(0).builtin(number)).collect() };
    let first = ask();
    same("H16", "built-in 0, which is no kernel", first[0], None)?;
    for number in 1..40_u32 {
        let known = Builtin::from_number(number).is_some();
        let found = first[number as usize].is_some();
        expect("H16", known || !found, "no built-in of an unknown number", format!("one of number {number}"))?;
    }
    let stream = lab.stream()?;
    lab.fill(stream, lab.memory(64)?, 1)?;
    lab.finish(stream)?;
    same("H16", "the built-ins, asked again", ask(), first.clone())?;
    let converts = first[Builtin::Convert.number() as usize].is_some();
    let dtypes = lab.device(0).info().dtypes;
    expect("H16", converts || dtypes.is_empty(), "no dtypes without a built-in conversion", plain(&dtypes))
}

fn noop(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Noop)?;
    let content = bytes(env.seed, 64);
    let region = lab.memory_with(stream, &content)?;
    for _ in 0..10 {
        lab.launch(stream, kernel, Launch::linear(1, 1), &[])?;
    }
    same_bytes("H16", "memory beside ten launches of noop", &lab.read(stream, region)?, &content)
}

fn fill_patterns(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::FillPattern)?;
    let big = fill_pattern::CHUNK as usize + 21;
    // Off any boundary where the device can name such a place.
    let at = 3_u64.next_multiple_of(lab.device(0).info().place_alignment) as usize;
    let region = lab.memory((at + big + 16) as u64)?;
    for size in [1, 2, 4, 8, 16] {
        for len in [1, 15, 16, 17, 1000, big] {
            let pattern = bytes(size as u64, size);
            let Ok(expanded) = fill_pattern::Pattern::new(&pattern) else { continue };
            let params = fill_pattern::Params::new(expanded, len as u64).to_bytes();
            lab.fill(stream, region, 0x77)?;
            let args = [arg(region.part(at as u64, len as u64)), Arg::Bytes(&params)];
            lab.launch(stream, kernel, Launch::linear(fill_pattern::split(len as u64).chunks(), 1), &args)?;
            let mut expected = vec![0x77; at + big + 16];
            fill_pattern::reference::fill(&mut expected[at..at + len], &pattern);
            let what = format!("{len} bytes of a pattern of {size} at byte {at}");
            same_bytes("H16", &what, &lab.read(stream, region)?, &expected)?;
        }
    }
    Ok(())
}

fn count(lab: &Lab, stream: Stream, kernel: Kernel, counts: Region, data: Region) -> Outcome {
    let params = histogram::Params::new(data.len).to_bytes();
    let args = [arg(counts), arg(data), Arg::Bytes(&params)];
    Ok(lab.launch(stream, kernel, Launch::linear(histogram::split(data.len).chunks(), 1), &args)?)
}

fn histograms(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Histogram)?;
    let counts = lab.memory(2048)?;
    let lens = [1, 7, 8, 255, 4097, histogram::CHUNK as usize, 2 * histogram::CHUNK as usize + 33];
    for (salt, len) in lens.into_iter().enumerate() {
        let mut content = bytes(salt as u64, len);
        if salt % 2 == 0 {
            // Equal bytes in a row are where counters meet.
            content[len / 4..len / 2 + 1].fill(200);
        }
        let data = lab.memory_with(stream, &content)?;
        lab.fill(stream, counts, 0)?;
        count(&lab, stream, kernel, counts, data)?;
        let mut expected = [0; 256];
        histogram::reference::count(&content, &mut expected);
        let expected: Vec<u8> = expected.into_iter().flat_map(u64::to_le_bytes).collect();
        same_bytes("H16", &format!("the histogram of {len} bytes"), &lab.read(stream, counts)?, &expected)?;
        lab.free(0, data.place.mem)?;
    }
    Ok(())
}

fn histogram_adds(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Histogram)?;
    let start: Vec<u8> = (0..256_u64).flat_map(|value| (value << 40).to_le_bytes()).collect();
    let counts = lab.memory_with(stream, &start)?;
    let content = bytes(env.seed, 10_000);
    let data = lab.memory_with(stream, &content)?;
    for _ in 0..20 {
        count(&lab, stream, kernel, counts, data)?;
    }
    let mut expected: [u64; 256] = std::array::from_fn(|value| (value as u64) << 40);
    (0..20).for_each(|_| histogram::reference::count(&content, &mut expected));
    let expected: Vec<u8> = expected.into_iter().flat_map(u64::to_le_bytes).collect();
    same_bytes("H16", "20 histograms added up", &lab.read(stream, counts)?, &expected)
}

/// Bytes that hold the numbers which conversions go wrong on, then random ones.
fn interesting(dtype: DType, count: usize) -> Vec<u8> {
    const NUMBERS: [f64; 36] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        3.5,
        -2.5,
        0.1,
        127.0,
        128.0,
        129.0,
        255.0,
        256.0,
        257.0,
        -128.0,
        -129.0,
        447.0,
        448.0,
        464.0,
        465.0,
        2049.0,
        2051.0,
        65_504.0,
        65_519.0,
        65_520.0,
        16_777_217.0,
        2e9,
        3e9,
        1e19,
        1e39,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let source: Vec<u8> = NUMBERS.iter().flat_map(|number| number.to_le_bytes()).collect();
    let size = dtype.size();
    let mut made = vec![0; NUMBERS.len() * size];
    // The definition itself makes the first elements; lengths fit by construction.
    if convert::reference::convert(dtype, &mut made, DType::F64, &source).is_err() {
        made.clear();
    }
    let mut random = bytes(u64::from(dtype.number()) + 7, count * size);
    if dtype == DType::Bool {
        random.iter_mut().for_each(|byte| *byte &= 1);
    }
    made.extend(random);
    made.truncate(count * size);
    made
}

/// NaNs may differ in sign and payload where the definition leaves them open.
fn canonical(dtype: DType, bytes: &mut [u8]) {
    let part = dtype.component().unwrap_or(dtype);
    let size = part.size();
    let (exponent, nan): (u64, u64) = match part {
        DType::F16 => (0x7C00, 0x7E00),
        DType::Bf16 => (0x7F80, 0x7FC0),
        DType::F32 => (0x7F80_0000, 0x7FC0_0000),
        DType::F64 => (0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000),
        DType::F8E5m2 => (0x7E, 0x7F),
        DType::F8E4m3fn => (0x7E, 0x7F),
        _ => return,
    };
    let magnitude = (1_u64 << (8 * size - 1)) - 1;
    for element in bytes.chunks_exact_mut(size) {
        let bits = element.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        if bits & magnitude > exponent {
            element.copy_from_slice(&nan.to_le_bytes()[..size]);
        }
    }
}

fn convert_once(lab: &Lab, stream: Stream, kernel: Kernel, to: DType, from: DType, elements: usize) -> Outcome {
    let content = interesting(from, elements);
    let src = lab.memory_with(stream, &content)?;
    let dst = lab.memory((elements * to.size()) as u64 + 8)?;
    lab.fill(stream, dst, 0x77)?;
    let params = convert::Params::new(to, from, elements as u64).to_bytes();
    let args = [arg(dst.part(0, (elements * to.size()) as u64)), arg(src), Arg::Bytes(&params)];
    lab.launch(stream, kernel, Launch::linear(convert::split(elements as u64).chunks(), 1), &args)?;
    let mut seen = lab.read(stream, dst)?;
    let mut expected = vec![0x77; elements * to.size() + 8];
    let room = &mut expected[..elements * to.size()];
    if let Err(error) = convert::reference::convert(to, room, from, &content) {
        return crate::case::fail("H16", "the definition to take whole elements", error.to_string());
    }
    let converted = elements * to.size();
    canonical(to, &mut seen[..converted]);
    canonical(to, &mut expected[..converted]);
    same_bytes("H16", &format!("{elements} elements of {from} as {to}"), &seen, &expected)?;
    lab.free(0, src.place.mem)?;
    lab.free(0, dst.place.mem)?;
    Ok(())
}

fn convert_all(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Convert)?;
    let dtypes = lab.device(0).info().dtypes;
    expect("H16", !dtypes.is_empty(), "dtypes beside a built-in conversion", "none")?;
    for from in dtypes.iter() {
        for to in dtypes.iter() {
            convert_once(&lab, stream, kernel, to, from, 301)?;
        }
    }
    Ok(())
}

fn convert_in_chunks(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Convert)?;
    let dtypes: DTypeSet = lab.device(0).info().dtypes;
    let pairs =
        [(DType::U16, DType::F32), (DType::F32, DType::F16), (DType::I64, DType::Bool), (DType::U8, DType::C64)];
    for (to, from) in pairs.into_iter().filter(|&(to, from)| dtypes.contains(to) && dtypes.contains(from)) {
        convert_once(&lab, stream, kernel, to, from, 2 * convert::CHUNK as usize + 13)?;
    }
    Ok(())
}

fn wrong_arguments(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = builtin(&lab, Builtin::Histogram)?;
    let region = lab.memory(4096)?;
    lab.fill(stream, region, 3)?;
    let place = arg(region);
    for args in [&[place][..], &[place, place], &[place, place, Arg::Bytes(&[1; 8]), place]] {
        let what = format!("a histogram with {} arguments", args.len());
        refused("H15", &what, lab.launch(stream, kernel, Launch::linear(1, 1), args), FaultKind::Invalid)?;
    }
    same_bytes("H19", "memory after refused launches", &lab.read(stream, region)?, &[3; 4096])
}
