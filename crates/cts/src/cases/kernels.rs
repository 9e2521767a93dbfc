//! H12, H15: kernels that are functions of this process.

use crate::case::{Capability, Case, Outcome, expect, fail, refused, same, same_bytes};
use crate::env::Env;
use crate::lab::{Lab, arg};
use anyaccel_hal::{Arg, FaultKind, Format, HostKernel, KernelArg, KernelSource, Launch, WorkGroup};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const HOST: &[Capability] = &[Capability::HostKernels];

pub(super) const CASES: &[Case] = &[
    Case::hal("kernels.every-group-once", &[15, 32], every_group_once).needs(HOST),
    Case::hal("kernels.arguments", &[12, 15], arguments).needs(HOST),
    Case::hal("kernels.arguments-taken-at-the-call", &[12], arguments_taken_at_the_call).needs(HOST),
    Case::hal("kernels.local-memory", &[15], local_memory).needs(HOST),
    Case::hal("kernels.in-stream-order", &[6, 15], in_stream_order).needs(HOST),
    Case::hal("kernels.beyond-limits", &[15, 19], beyond_limits).needs(HOST),
    Case::hal("kernels.other-formats", &[21, 32], other_formats).needs(HOST),
    Case::hal("kernels.come-and-go", &[2, 32], come_and_go).needs(HOST),
];

/// The place of a group's own bytes in its first argument.
fn own(group: &WorkGroup, args: &[KernelArg], size: u64) -> Option<*mut u8> {
    let [x, y, z] = group.index.map(u64::from);
    let [gx, gy, _] = group.groups.map(u64::from);
    let at = ((z * gy + y) * gx + x) * size;
    let arg = args.first()?;
    (at + size <= arg.len).then(|| arg.ptr.wrapping_add(at as usize))
}

fn every_group_once(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    for groups in [[1, 1, 1], [7, 1, 1], [3, 4, 5], [1, 1, 9], [1000, 1, 1]] {
        let count: u32 = groups.iter().product();
        let runs: Arc<Vec<AtomicU32>> = Arc::new((0..count).map(|_| AtomicU32::new(0)).collect());
        let shapes = Arc::new(AtomicU32::new(0));
        let (inside, wrong) = (runs.clone(), shapes.clone());
        let kernel = lab.load(
            0,
            HostKernel::new(move |group, _| {
                let [x, y, z] = group.index;
                let at = (z * group.groups[1] + y) * group.groups[0] + x;
                match inside.get(at as usize) {
                    Some(runs) if group.groups == groups && group.threads == [4, 2, 1] => {
                        runs.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => {
                        wrong.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }),
        )?;
        lab.launch(stream, kernel, Launch { groups, threads: [4, 2, 1], shared: 0 }, &[])?;
        lab.finish(stream)?;
        let seen: Vec<u32> = runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect();
        same("H15", &format!("runs of each group of {groups:?}"), seen, vec![1; count as usize])?;
        same("H15", "groups of a wrong shape", shapes.load(Ordering::SeqCst), 0)?;
    }
    Ok(())
}

fn arguments(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(8192)?;
    lab.fill(stream, region, 0)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = seen.clone();
    let kernel = lab.load(
        0,
        HostKernel::new(move |group, args| {
            let value: Vec<u8> = args.get(1).map_or_else(Vec::new, |arg| {
                // SAFETY: H15, the launch below passes a value of that length as its second argument.
                (0..arg.len as usize).map(|at| unsafe { arg.ptr.wrapping_add(at).read() }).collect()
            });
            if let (Some(place), &[first, second, _]) = (own(group, args, 4), &value[..]) {
                // SAFETY: H15, own() stays inside the first argument, and each group writes only its own bytes.
                unsafe { place.cast::<[u8; 4]>().write_unaligned([first, second, group.index[0] as u8, 0xEE]) };
            }
            let lens: Vec<u64> = args.iter().map(|arg| arg.len).collect();
            inside.lock().unwrap_or_else(PoisonError::into_inner).push((lens, value));
        }),
    )?;
    let value = [0x10, 0x20, 0x30];
    // Behind the first place that the device can name.
    let at = 100_u64.next_multiple_of(lab.device(0).info().place_alignment);
    let args = [arg(region.part(at, 1000)), Arg::Bytes(&value)];
    lab.launch(stream, kernel, Launch::linear(5, 1), &args)?;
    let written = lab.read(stream, region.part(at - 4, 32))?;
    let mut expected = vec![0; 32];
    (0..5).for_each(|at| expected[4 + 4 * at..][..4].copy_from_slice(&[0x10, 0x20, at as u8, 0xEE]));
    same_bytes("H15", &format!("what five groups wrote from byte {at} on"), &written, &expected)?;
    for (lens, bytes) in seen.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        same("H15", "the number of arguments", lens.len(), 2)?;
        same("H15", "the length of the place", lens[0], 1000)?;
        same("H15", "the value", bytes.clone(), value.to_vec())?;
    }
    Ok(())
}

/// A kernel that writes its value into its place, a byte for each group.
fn setter(lab: &Lab) -> Outcome<anyaccel_hal::Kernel> {
    lab.load(
        0,
        HostKernel::new(|group, args| {
            if let (Some(place), Some(value)) = (own(group, args, 1), args.get(1)) {
                // SAFETY: H15, own() stays inside the first argument, and the second is a value of one byte at least.
                unsafe { place.write(value.ptr.read()) };
            }
        }),
    )
}

fn arguments_taken_at_the_call(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    let kernel = setter(&lab)?;
    let hold = lab.hold(stream)?;
    let mut value = vec![0x31; 1];
    {
        let args = vec![arg(region), Arg::Bytes(&value)];
        lab.launch(stream, kernel, Launch::linear(16, 1), &args)?;
    }
    value.fill(0xEE);
    hold.release()?;
    same_bytes("H12", "a value that changed after the call", &lab.read(stream, region)?, &[0x31; 16])?;
    drop(value);
    Ok(())
}

fn local_memory(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let sums = lab.memory(8 * 32)?;
    let kernel = lab.load(
        0,
        HostKernel::new(|group, args| {
            let Some(local) = args.get(1).filter(|local| local.len == 300) else { return };
            let mut sum = 0_u64;
            for at in 0..300_usize {
                // SAFETY: H15, the local memory is this group's alone and that long.
                sum += unsafe {
                    local.ptr.wrapping_add(at).write(group.index[0] as u8);
                    u64::from(local.ptr.wrapping_add(at).read())
                };
                if at % 100 == 0 {
                    std::thread::yield_now();
                }
            }
            // SAFETY: as above.
            let still = (0..300).all(|at| unsafe { local.ptr.wrapping_add(at).read() } == group.index[0] as u8);
            if let Some(place) = own(group, args, 8) {
                // SAFETY: H15, own() stays inside the first argument, and each group writes only its own bytes.
                unsafe { place.cast::<[u8; 8]>().write_unaligned(if still { sum } else { 0 }.to_le_bytes()) };
            }
        }),
    )?;
    lab.launch(stream, kernel, Launch::linear(32, 1), &[arg(sums), Arg::Local(300)])?;
    let expected: Vec<u8> = (0..32_u64).flat_map(|group| (group * 300).to_le_bytes()).collect();
    same_bytes("H15", "sums that 32 groups kept in local memory", &lab.read(stream, sums)?, &expected)
}

fn in_stream_order(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let kernel = setter(&lab)?;
    let region = lab.memory(64)?;
    let copied = lab.memory(64)?;
    for round in 0..40_u8 {
        lab.fill(stream, region, 0xFF)?;
        lab.launch(stream, kernel, Launch::linear(64, 1), &[arg(region), Arg::Bytes(&[round])])?;
        lab.copy(stream, copied, region)?;
        lab.fill(stream, region, 0xFE)?;
        same_bytes("H6", "a copy behind a kernel", &lab.read(stream, copied)?, &[round; 64])?;
    }
    Ok(())
}

fn beyond_limits(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let Some(limits) = lab.device(0).kernels().map(|kernels| kernels.limits()) else {
        return fail("H26", "kernels, as before", "none");
    };
    let runs = Arc::new(AtomicU64::new(0));
    let inside = runs.clone();
    let kernel = lab.load(
        0,
        HostKernel::new(move |_, _| {
            inside.fetch_add(1, Ordering::SeqCst);
        }),
    )?;
    let launch = Launch::linear(1, 1);
    let mut wrong = vec![
        ("no groups", Launch { groups: [1, 0, 1], ..launch }),
        ("no threads", Launch { threads: [0, 1, 1], ..launch }),
    ];
    if let Some(threads) = limits.max_threads.checked_add(1) {
        wrong.push(("more threads than max_threads", Launch { threads: [threads, 1, 1], ..launch }));
    }
    for axis in 0..3 {
        if let Some(groups) = limits.max_groups[axis].checked_add(1) {
            let mut wrong_groups = launch;
            wrong_groups.groups[axis] = groups;
            wrong.push(("more groups than max_groups", wrong_groups));
        }
    }
    if let Some(shared) = limits.max_shared.checked_add(1) {
        wrong.push(("more shared memory than max_shared", Launch { shared, ..launch }));
    }
    for (what, launch) in wrong {
        refused("H15", what, lab.launch(stream, kernel, launch, &[]), FaultKind::Invalid)?;
    }
    lab.launch(stream, kernel, Launch { threads: [limits.max_threads, 1, 1], ..launch }, &[])?;
    lab.finish(stream)?;
    same("H19", "groups that ran after refused launches and a good one", runs.load(Ordering::SeqCst), 1)
}

fn other_formats(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let Some(kernels) = lab.device(0).kernels() else { return fail("H26", "kernels, as before", "none") };
    for format in [Format::Ptx, Format::Cubin, Format::SpirV, Format::OpenClC, Format::Msl, Format::CudaC] {
        if !kernels.formats().contains(&format) {
            // SAFETY: the form is not one that this device loads, so nothing can be launched.
            let loaded = unsafe { kernels.load(KernelSource::Code { format, code: b"", entry: "main" }) };
            refused("H21", &format!("a kernel of {format:?}"), loaded, FaultKind::Unsupported)?;
        }
    }
    Ok(())
}

fn come_and_go(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    let mut all = HashSet::new();
    for round in 0..100_u8 {
        let kernel = setter(&lab)?;
        expect("H2", all.insert(kernel), "a handle of a kernel that was never given out", kernel.0)?;
        lab.launch(stream, kernel, Launch::linear(16, 1), &[arg(region), Arg::Bytes(&[round])])?;
        same_bytes("H32", "what a kernel wrote", &lab.read(stream, region)?, &[round; 16])?;
        lab.unload(0, kernel);
    }
    Ok(())
}
