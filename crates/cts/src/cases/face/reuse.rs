//! Memory that is used again: never before its work has ended, and always afterwards. Reports from the field among them.

use super::Face;
use super::memory::{FIXED, GROWING, MIB};
use crate::case::{Capability, Case, Outcome, errs, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::Hold;
use crate::words::plain;
use anyaccel::{Error, EventOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const GROWS: &[Capability] = &[Capability::VirtualMemory];

pub(super) const CASES: &[Case] = &[
    Case::face("reuse.pending-block-is-waited-for", &["scenario.1"], |env| pending_block(env, FIXED)),
    Case::face("reuse.pending-block-is-waited-for/growable", &["scenario.1"], |env| pending_block(env, GROWING))
        .needs(GROWS),
    Case::face("reuse.each-stream-is-waited-for", &["work.dropped-buffer"], |env| each_stream(env, FIXED)),
    Case::face("reuse.each-stream-is-waited-for/growable", &["work.dropped-buffer"], |env| each_stream(env, GROWING))
        .needs(GROWS),
    Case::face("reuse.recorded-stream", &["work.dropped-buffer"], recorded_stream),
    Case::face("reuse.pooled-on-another-device", &["scenario.12", "work.dropped-buffer"], pooled_on_another_device)
        .devices(2),
    Case::face("reuse.pinned-source", &["scenario.14", "work.pinned"], pinned_source),
    Case::face("reuse.pinned-rounding", &["scenario.15", "memory.host-stats"], pinned_rounding),
    Case::face("reuse.pinned-resets", &["memory.host-stats"], pinned_resets),
    Case::face("reuse.nothing-piles-up", &["scenario.20"], |env| nothing_piles_up(env, FIXED)),
    Case::face("reuse.nothing-piles-up/growable", &["scenario.20"], |env| nothing_piles_up(env, GROWING)).needs(GROWS),
    Case::face("reuse.function-waits-for-an-allocation", &["function.drops", "thread.any"], function_waits),
    Case::face("reuse.threads", &["thread.any", "work.dropped-buffer"], |env| threads(env, FIXED)),
    Case::face("reuse.threads/growable", &["thread.any", "work.dropped-buffer"], |env| threads(env, GROWING))
        .needs(GROWS),
];

/// Lets a hold go after a while, on another thread, and notes that first.
fn release_later(hold: Hold, gone: &Arc<AtomicBool>) -> thread::JoinHandle<Outcome> {
    let gone = gone.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        gone.store(true, Ordering::SeqCst);
        hold.release()
    })
}

/// The block that fits is still in use by a stream, and its segment can't be given back: it is waited for.
fn pending_block(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    // A range that grows is little longer than the memory, and 40 MiB are to be looked for beyond the first 60.
    face.needs_memory(if settings == GROWING { 100 * MIB } else { 64 * MIB })?;
    let runtime = &face.runtime;
    runtime.set_memory_budget(Some(64 * MIB), ())?;
    let side = runtime.stream(())?;
    drop(runtime.alloc(60 * MIB)?);
    let (x, y) = (runtime.alloc(40 * MIB)?, runtime.zeros(20 * MIB)?);
    same("scenario.1", "what is held", runtime.memory_reserved(())?, 60 * MIB)?;
    let address = x.address();
    let hold = face.hold(&side)?;
    side.fill(&x.slice(..64)?, &[1])?;
    drop(x);
    let gone = Arc::default();
    let released = release_later(hold, &gone);
    let again = runtime.alloc(40 * MIB);
    let early = !gone.load(Ordering::SeqCst);
    super::join(released.join())?;
    same("scenario.1", "whether it came before the work had ended", early, false)?;
    same("scenario.1", "the address of what was waited for", again?.address(), address)?;
    same("scenario.1", "what is held in the end", runtime.memory_reserved(())?, 60 * MIB)?;
    let counted = (face.stat("num_ooms")?, face.stat("num_alloc_retries")?);
    same("scenario.1", "failures and retries", counted, (0, 1))?;
    let mut seen = vec![1; 4096];
    runtime.current_stream(())?.download(&mut seen, &y.slice(..4096)?)?;
    same_bytes("scenario.1", "the block beside it", &seen, &vec![0; 4096])
}

/// A dropped buffer is not handed out while a stream that used it has not come so far; then it is.
fn each_stream(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    let rule = "work.dropped-buffer";
    let streams = [runtime.stream(())?, runtime.stream(())?];
    let buffer = runtime.alloc(4096)?;
    let address = buffer.address();
    let mut holds = Vec::new();
    for (stream, part) in streams.iter().zip([buffer.slice(..2048)?, buffer.slice(2048..)?]) {
        holds.push(face.hold(stream)?);
        stream.fill(&part, &[1])?;
    }
    drop(buffer);
    same(rule, "memory in the hands of users", runtime.memory_allocated(())?, 0)?;
    for (stream, hold) in streams.iter().zip(holds) {
        let other = runtime.alloc(4096)?;
        expect(rule, other.address() != address, "other memory than what a stream still uses", "the same")?;
        drop(other);
        same(rule, "blocks that are in use or used", face.stat("active.all.current")?, 1)?;
        hold.release()?;
        face.finish(stream)?;
    }
    let again = runtime.alloc(4096)?;
    same(rule, "the address once all have ended", again.address(), address)
}

/// `record_stream` does the same for work that the runtime has not seen.
fn recorded_stream(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let rule = "work.dropped-buffer";
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(4096)?;
    let address = buffer.address();
    let hold = face.hold(&stream)?;
    buffer.record_stream(&stream)?;
    drop(buffer);
    let other = runtime.alloc(4096)?;
    expect(rule, other.address() != address, "other memory than what was recorded", "the same")?;
    hold.release()?;
    face.finish(&stream)?;
    drop(other);
    let both = [runtime.alloc(4096)?, runtime.alloc(4096)?];
    expect(rule, both.iter().any(|buffer| buffer.address() == address), "what was recorded, again", "none of it")?;
    let foreign = Face::new(env)?;
    let stranger = foreign.runtime.stream(())?;
    let refused = |error: &Error| matches!(error, Error::ForeignRuntime { .. });
    errs("thread.foreign", "a stream of another runtime", "ForeignRuntime", both[0].record_stream(&stranger), refused)
}

/// Memory of device 0 is given back, reused and copied from while device 1 is current.
fn pooled_on_another_device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let rule = "scenario.12";
    let (on_0, on_1) = (runtime.stream(0)?, runtime.stream(1)?);
    let (from, pooled) = (runtime.alloc_on(0, 4096)?, runtime.alloc_on(0, 4096)?);
    on_0.fill(&from.all(), &[5])?;
    runtime.set_device_index(1)?;
    let address = pooled.address();
    let hold = face.hold(&on_0)?;
    on_0.fill(&pooled.all(), &[6])?;
    drop(pooled);
    expect(rule, runtime.alloc_on(0, 4096)?.address() != address, "other memory than what is in use", "the same")?;
    hold.release()?;
    face.finish(&on_0)?;
    let again = runtime.alloc_on(0, 4096)?;
    same(rule, "the address once its work has ended", again.address(), address)?;
    runtime.current_stream(0)?.wait_stream(&on_0)?;
    let to = from.to_device(1)?;
    on_0.fill(&again.all(), &[7])?;
    face.finish(&on_0)?;
    same(rule, "a copy from an old handle", to.to_vec()?, vec![5; 4096])?;
    same(rule, "the current device throughout", runtime.current_device_index()?, 1)?;
    let event = runtime.event(EventOptions::default())?;
    event.record(Some(&on_0))?;
    let error = |error: &Error| matches!(error, Error::EventDevice { .. });
    errs(rule, "its event recorded on the other device", "EventDevice", event.record(Some(&on_1)), error)?;
    let error = |error: &Error| matches!(error, Error::ForeignDevice { .. });
    errs(rule, "its memory recorded on a stream of the other", "ForeignDevice", from.record_stream(&on_1), error)
}

/// Pinned memory that a copy reads in its middle is not handed out before the copy has ended.
fn pinned_source(env: &Env) -> Outcome {
    const PART: usize = 4096;
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let rule = "scenario.14";
    let stream = runtime.stream(())?;
    let device = runtime.alloc(PART as u64)?;
    let mut source = runtime.pinned(4 * PART)?;
    for (number, part) in source.as_mut_slice()?.chunks_mut(PART).enumerate() {
        part.fill(number as u8 + 1);
    }
    let first = source.as_slice()?.as_ptr();
    let hold = face.hold(&stream)?;
    stream.upload_pinned(&device.all(), &source, 2 * PART)?;
    drop(source);
    let mut other = runtime.pinned(4 * PART)?;
    other.as_mut_slice()?.fill(9);
    expect(rule, other.as_slice()?.as_ptr() != first, "other memory than what a copy reads", "the same")?;
    hold.release()?;
    face.finish(&stream)?;
    let mut seen = vec![0; PART];
    stream.download(&mut seen, &device.all())?;
    same_bytes(rule, "what the copy brought", &seen, &[3; PART])?;
    let again = runtime.pinned(4 * PART)?;
    same(rule, "the address once the copy has ended", again.as_slice()?.as_ptr(), first)
}

/// Above the threshold memory is rounded to a page only, and serves no small request; below it to a power of two.
fn pinned_rounding(env: &Env) -> Outcome {
    let face = Face::set_up(env, "pinned_max_round_threshold_mb:32")?;
    let runtime = &face.runtime;
    let rule = "scenario.15";
    let held = || face.host_stat("allocated_bytes.current");
    let requested = || face.host_stat("requested_bytes.current");
    const BIG: usize = 48 * MIB as usize + (1 << 19);
    let big = runtime.pinned(BIG)?;
    same(rule, "held for 48.5 MiB", held()?, BIG as u64)?;
    same(rule, "capacity and request", (big.capacity(), requested()?), (BIG as u64, BIG as u64))?;
    drop(big);
    same(rule, "requested by nobody", requested()?, 0)?;
    let small = runtime.pinned(10 << 10)?;
    let big = runtime.pinned(BIG)?;
    same(rule, "held for 10 KiB and 48.5 MiB", held()?, BIG as u64 + (16 << 10))?;
    same(rule, "requested by both", requested()?, BIG as u64 + (10 << 10))?;
    drop((small, big));
    runtime.empty_host_cache()?;
    same(rule, "held after a trim", held()?, 0)?;
    let below = runtime.pinned(24 << 20)?;
    same(rule, "held and requested for 24 MiB", (held()?, requested()?), (32 * MIB, 24 * MIB))?;
    same(rule, "its length and capacity", (below.len(), below.capacity()), (24 << 20, 32 * MIB))
}

fn pinned_resets(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let rule = "memory.host-stats";
    let kept = runtime.pinned(5000)?;
    drop(runtime.pinned(100_000)?);
    let flat = runtime.host_memory_stats(())?.flat();
    let sorted = flat.windows(2).all(|pair| pair[0].0 < pair[1].0);
    expect(rule, sorted && flat.len() > 20, "keys in order, each once", plain(&flat))?;
    for (key, value) in [
        ("active_requests.current", 1),
        ("active_requests.peak", 2),
        ("active_bytes.current", 8192),
        ("requested_bytes.current", 5000),
        ("allocated_bytes.current", 8192 + (128 << 10)),
        ("allocations.current", 2),
        ("num_host_alloc", 2),
        ("host_alloc_time.count", 2),
    ] {
        same(rule, key, face.host_stat(key)?, value)?;
    }
    runtime.reset_peak_host_memory_stats(())?;
    same(rule, "a peak after its reset", face.host_stat("active_requests.peak")?, 1)?;
    runtime.reset_accumulated_host_memory_stats(())?;
    for key in ["active_requests.allocated", "num_host_alloc", "host_alloc_time.count"] {
        same(rule, &format!("{key} after its reset"), face.host_stat(key)?, 0)?;
    }
    same(rule, "what is held after both", face.host_stat("allocations.current")?, 2)?;
    drop(kept);
    same(rule, "what is in use in the end", face.host_stat("active_bytes.current")?, 0)
}

/// Buffers that come and go need no poll; with work on another stream, one wait at the end.
fn nothing_piles_up(env: &Env, settings: &str) -> Outcome {
    const BYTES: u64 = 200 << 10;
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    for _ in 0..20_000 {
        drop(runtime.alloc(BYTES)?);
    }
    same("scenario.20", "most that was held without work", runtime.max_memory_reserved(())?, 2 * MIB)?;
    let stream = runtime.stream(())?;
    for _ in 0..2_000 {
        let buffer = runtime.alloc(BYTES)?;
        stream.fill(&buffer.slice(..64)?, &[1])?;
    }
    face.finish(&stream)?;
    same("scenario.20", "in the hands of users after one wait", runtime.memory_allocated(())?, 0)?;
    runtime.empty_cache()?;
    let left = (face.stat("active.all.current")?, runtime.memory_reserved(())?);
    same("scenario.20", "in use and held after a trim", left, (0, 0))
}

/// A function in a stream may drop a buffer and wait for a thread that allocates.
fn function_waits(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.alloc(MIB)?;
    stream.fill(&buffer.slice(..64)?, &[1])?;
    let (done, waits) = channel();
    stream.host_fn(move || {
        drop(buffer);
        // Sent below, once there was an allocation of each size.
        let _sent = waits.recv_timeout(Duration::from_secs(60));
    })?;
    for bytes in [512, MIB, 3 * MIB, 30 * MIB] {
        drop(runtime.alloc(bytes)?);
        drop(runtime.pinned(bytes as usize)?);
    }
    // The receiver may have given up, which the wait below tells.
    let _late = done.send(());
    face.finish(&stream)
}

/// Threads take, fill, read and drop at once; nobody's memory is anybody else's.
fn threads(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    // A small and a large segment, of 2 and 20 MiB, for each.
    face.needs_memory(4 * 22 * MIB)?;
    let runtime = &face.runtime;
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=4_u8)
            .map(|number| {
                scope.spawn(move || -> Outcome {
                    let (own, other) = (runtime.stream(())?, runtime.stream(())?);
                    let _scope = own.enter()?;
                    for round in 0..26 {
                        let bytes = 512 << ((u64::from(number) + round) % 13);
                        let buffer = runtime.alloc(bytes)?;
                        other.fill(&buffer.all(), &[number])?;
                        own.wait_stream(&other)?;
                        let seen = buffer.to_vec()?;
                        same_bytes("thread.any", "memory of a thread", &seen, &vec![number; bytes as usize])?;
                        own.fill(&buffer.all(), &[0xDD])?;
                        if round % 8 == 0 {
                            runtime.empty_cache()?;
                            runtime.memory_stats(())?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| super::join(thread.join()))
    })?;
    runtime.synchronize(())?;
    runtime.empty_cache()?;
    same("thread.any", "memory in use in the end", runtime.memory_allocated(())?, 0)
}
