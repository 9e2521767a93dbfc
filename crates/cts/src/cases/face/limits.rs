//! Budgets and fractions to the byte, running out, who is told, pools.

use super::Face;
use super::memory::{FIXED, GROWING, MIB};
use crate::case::{Capability, Case, Outcome, errs, expect, fail, same};
use crate::env::Env;
use crate::lab::locked;
use crate::words::plain;
use anyaccel::{Error, ErrorClass, OutOfMemory};
use std::sync::{Arc, Mutex};

const GROWS: &[Capability] = &[Capability::VirtualMemory];

pub(super) const CASES: &[Case] = &[
    Case::face("limits.budget", &["memory.budget"], |env| budget(env, FIXED)),
    Case::face("limits.budget/growable", &["memory.budget"], |env| budget(env, GROWING)).needs(GROWS),
    Case::face("limits.fraction", &["memory.fraction"], |env| fraction(env, FIXED)),
    Case::face("limits.fraction/growable", &["memory.fraction"], |env| fraction(env, GROWING)).needs(GROWS),
    Case::face("limits.bad-fraction", &["memory.fraction"], bad_fraction),
    Case::face("limits.report", &["memory.report", "error.out-of-memory"], report),
    Case::face("limits.advice", &["memory.report"], advice),
    Case::face("limits.recovers", &["error.out-of-memory"], |env| recovers(env, FIXED)),
    Case::face("limits.recovers/growable", &["error.out-of-memory"], |env| recovers(env, GROWING)).needs(GROWS),
    Case::face("limits.observers", &["memory.observers", "scenario.S2"], observers),
    Case::face("pools.innermost", &["memory.pools"], |env| innermost(env, FIXED)),
    Case::face("pools.innermost/growable", &["memory.pools"], |env| innermost(env, GROWING)).needs(GROWS),
    Case::face("pools.outlived", &["memory.pools"], outlived),
];

/// A segment is asked for if and only if what is held and its size are at most the budget.
fn budget(env: &Env, settings: &str) -> Outcome {
    for (slack, fits) in [(-1, false), (0, true), (1, true)] {
        let face = Face::set_up(env, settings)?;
        let runtime = &face.runtime;
        let _small = runtime.alloc(512)?;
        let cap = (22 * MIB).saturating_add_signed(slack);
        runtime.set_memory_budget(Some(cap), ())?;
        let asked = face.stat("num_device_alloc")?;
        // 2 MiB are held, and this needs 20.
        let got = runtime.alloc(2 * MIB);
        let what = format!("2 MiB from a segment of 20 with 2 held, within {cap} bytes");
        same("memory.budget", &what, got.is_ok(), fits)?;
        let calls = face.stat("num_device_alloc")? - asked;
        same("memory.budget", "segments that the driver gave", calls, u64::from(fits))?;
        if let Err(error) = &got {
            same("memory.budget", "the class of the error", error.class(), ErrorClass::OutOfMemory)?;
            let said = error.to_string();
            expect("memory.budget", said.contains("budget"), "an error that names the budget", said)?;
            same("memory.budget", "what is held afterwards", runtime.memory_reserved(())?, 2 * MIB)?;
        }
        runtime.set_memory_budget(None, ())?;
        same("memory.budget", "the same without a budget", runtime.alloc(2 * MIB).is_ok(), true)?;
    }
    // One that was set before the start holds as well, and starts nothing.
    let face = Face::set_up(env, settings)?;
    face.runtime.set_memory_budget(Some(20 * MIB - 1), 0)?;
    same("memory.budget", "whether a budget starts the runtime", face.runtime.is_started(), false)?;
    let error = |error: &Error| error.class() == ErrorClass::OutOfMemory;
    errs("memory.budget", "2 MiB beyond it", "OutOfMemory", face.runtime.alloc(2 * MIB), error)
}

/// The limit is floor(fraction x total).
fn fraction(env: &Env, settings: &str) -> Outcome {
    let (_, total) = Face::new(env)?.runtime.get_memory_info(())?;
    let exact = (20 * MIB) as f64 / total as f64;
    for fraction in [exact, exact.next_down(), exact.next_up(), (20 * MIB - 1) as f64 / total as f64, 1.5 * exact, 0.0]
    {
        let face = Face::set_up(env, settings)?;
        let runtime = &face.runtime;
        runtime.set_per_process_memory_fraction(fraction, ())?;
        same("memory.fraction", "whether a fraction starts the runtime", runtime.is_started(), false)?;
        let cap = (fraction * total as f64).floor() as u64;
        let got = runtime.alloc(2 * MIB);
        let what = format!("a segment of 20 MiB within {fraction} of {total} bytes");
        same("memory.fraction", &what, got.is_ok(), 20 * MIB <= cap)?;
        if let Err(error) = &got {
            let said = error.to_string();
            expect("memory.fraction", said.contains("fraction"), "an error that names the fraction", said)?;
        }
        runtime.set_per_process_memory_fraction(1.0, ())?;
        same("memory.fraction", "the same with all of it", runtime.alloc(2 * MIB).is_ok(), true)?;
    }
    Ok(())
}

fn bad_fraction(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let bad = |error: &Error| matches!(error, Error::Fraction(_));
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY, -f64::MIN_POSITIVE] {
        let seen = face.runtime.set_per_process_memory_fraction(fraction, ());
        errs("memory.fraction", &format!("a fraction of {fraction}"), "Fraction", seen, bad)?;
    }
    same("memory.fraction", "what is in force", face.runtime.alloc(2 * MIB).is_ok(), true)
}

/// The report of an allocation that fails.
fn exhaust(face: &Face, bytes: u64) -> Outcome<(OutOfMemory, String)> {
    match face.runtime.alloc(bytes) {
        Ok(_) => fail("error.out-of-memory", format!("no room for {bytes} bytes"), "success"),
        Err(error) => match &error {
            Error::OutOfMemory { report: Some(report), .. } => Ok((OutOfMemory::clone(report), error.to_string())),
            _ => fail("error.out-of-memory", "OutOfMemory with a report", plain(&error)),
        },
    }
}

/// What the error says: the request, capacity, free, in use, held and unused, the largest free run and who pins it.
fn report(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.set_memory_budget(Some(64 * MIB), ())?;
    let live = runtime.alloc(30 * MIB)?;
    // 20 MiB of which the middle is in use: 5, 4, and 11 behind.
    let (front, middle) = (runtime.alloc(5 * MIB)?, runtime.alloc(4 * MIB)?);
    drop(front);
    let (free, total) = runtime.get_memory_info(())?;
    let (report, text) = exhaust(&face, 40 * MIB)?;
    let rule = "memory.report";
    same(rule, "requested", report.requested, 40 * MIB)?;
    same(rule, "total", report.total, total)?;
    let close = report.free.is_none_or(|told| told.abs_diff(free) <= total / 8);
    expect(rule, close, &format!("free, about {free}"), plain(&report.free))?;
    same(rule, "in use", report.allocated, 34 * MIB)?;
    same(rule, "held", report.reserved, 50 * MIB)?;
    same(rule, "held and unused", report.unused, 16 * MIB)?;
    same(rule, "the limit", report.cap, Some(64 * MIB))?;
    same(rule, "the largest free run", report.largest_free, 11 * MIB)?;
    let pin = report.pinned_by.map(|pin| (pin.addr, pin.size, pin.pending));
    same(rule, "who pins it", pin, Some((middle.address(), 4 * MIB, false)))?;
    same(rule, "the stream that asked", report.stream, Some(0))?;
    same(rule, "the stream of who pins it", report.pinned_by.and_then(|pin| pin.stream), Some(0))?;
    expect(rule, text.contains("were requested on stream 0, "), "the stream's id in the text", &text)?;
    for said in ["40.00 MiB", "34.00 MiB", "50.00 MiB", "16.00 MiB", "11.00 MiB", "4.00 MiB", "64.00 MiB", "budget"] {
        expect(rule, text.contains(said), &format!("a text with {said:?}"), &text)?;
    }
    drop((live, middle));
    same("error.out-of-memory", "the same once there is room", runtime.alloc(40 * MIB).is_ok(), true)
}

/// Advice comes from the settings in force: nobody is told to set what is set, or what has no effect.
fn advice(env: &Env) -> Outcome {
    const GROW: &str = "expandable_segments:True lets";
    let can = Face::new(env)?.driver;
    can.start()?;
    let can = can.open(0)?.virtual_memory().is_some();
    for (settings, grow, split) in [("", can, true), (GROWING, false, !can), ("max_split_size_mb:20", can, false)] {
        let face = Face::set_up(env, settings)?;
        let runtime = &face.runtime;
        runtime.set_memory_budget(Some(60 * MIB), ())?;
        let mut blocks = Vec::new();
        for _ in 0..6 {
            blocks.push(runtime.alloc(9 * MIB)?);
        }
        // Holes of 9 MiB.
        let kept: Vec<_> = blocks.into_iter().enumerate().filter(|(at, _)| at % 2 == 1).collect();
        let (report, _) = exhaust(&face, 16 * MIB)?;
        let told = |what: &str| report.advice.iter().any(|advice| advice.contains(what));
        let all = report.advice.join(" ");
        let told = (told("budget"), told(GROW), told("max_split_size_mb:"));
        expect("memory.report", told == (true, grow, split), &format!("advice that fits {settings:?}"), all)?;
        drop(kept);
    }
    Ok(())
}

/// Running out frees what is unused, wherever it lies, and leaves everything as it was.
fn recovers(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    runtime.set_memory_budget(Some(64 * MIB), ())?;
    let other = runtime.stream(())?;
    let kept = runtime.zeros(20 * MIB)?;
    {
        let _scope = other.enter()?;
        drop(runtime.alloc(40 * MIB)?);
    }
    // Kept for another stream, which this request can't use but can free.
    let got = runtime.alloc(40 * MIB)?;
    same("error.out-of-memory", "retries", face.stat("num_alloc_retries")?, 1)?;
    for round in 1..=3 {
        exhaust(&face, 8 * MIB)?;
        same("error.out-of-memory", "num_ooms", face.stat("num_ooms")?, round)?;
        same("error.out-of-memory", "what is in use", runtime.memory_allocated(())?, 60 * MIB)?;
    }
    drop(got);
    let again = runtime.alloc(40 * MIB)?;
    let mut seen = vec![1; 4096];
    runtime.current_stream(())?.download(&mut seen, &kept.slice(20 * MIB - 4096..)?)?;
    drop(again);
    crate::case::same_bytes("error.out-of-memory", "what was in use all along", &seen, &vec![0; 4096])
}

/// An observer that is there before the start is told once, before the caller, and one that panics harms nobody.
fn observers(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let told = Arc::new(Mutex::new(Vec::new()));
    let (inside, other) = (told.clone(), runtime.clone());
    runtime.attach_out_of_memory_observer(|_, _| std::panic::resume_unwind(Box::new("an observer of no use")));
    runtime.attach_out_of_memory_observer(move |device, report| {
        // No lock is held: an observer may ask.
        let reserved = other.memory_reserved(device).unwrap_or(u64::MAX);
        locked(&inside).push((device.index(), report.requested, report.total, report.free.is_some(), reserved));
    });
    same("memory.observers", "whether an observer starts the runtime", runtime.is_started(), false)?;
    runtime.set_memory_budget(Some(64 * MIB), ())?;
    let (_, total) = runtime.get_memory_info(())?;
    let small = runtime.alloc(512)?;
    same("scenario.S2", "calls before memory runs out", locked(&told).len(), 0)?;
    let (report, _) = exhaust(&face, 1 << 30)?;
    let expected = vec![(Some(0), 1 << 30, total, report.free.is_some(), 2 * MIB)];
    same("scenario.S2", "what the observer was told", locked(&told).clone(), expected)?;
    drop(small);
    same("scenario.S2", "an allocation afterwards", runtime.alloc(30 * MIB).is_ok(), true)?;
    same("scenario.S2", "calls for one that succeeds", locked(&told).len(), 1)
}

/// Of nested pools the innermost takes a thread's allocations; other threads are in none.
fn innermost(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    let rule = "memory.pools";
    let (outer, inner) = (runtime.mem_pool(())?, runtime.mem_pool(0)?);
    expect(rule, outer.id() != inner.id(), "pools with ids of their own", plain(&outer.id()))?;
    let held = || Ok::<_, Error>(runtime.memory_reserved(())? / MIB);
    let scope = outer.enter()?;
    let a = runtime.zeros(512)?;
    same(rule, "MiB held for one buffer in a pool", held()?, 2)?;
    let b = {
        let _scope = inner.enter()?;
        let b = runtime.zeros(512)?;
        same(rule, "MiB held for one more in the inner pool", held()?, 4)?;
        let again = |error: &Error| matches!(error, Error::Pool(_));
        errs(rule, "entering a pool twice", "Pool", inner.enter().map(drop), again)?;
        let elsewhere = std::thread::scope(|threads| {
            let thread = threads.spawn(|| -> anyaccel::Result<u64> {
                let _buffer = runtime.alloc(512)?;
                held()
            });
            thread.join().map_err(|_| crate::case::Stop::from(super::panicked()))
        })??;
        same(rule, "MiB held for one more on another thread", elsewhere, 6)?;
        b
    };
    let c = runtime.zeros(512)?;
    same(rule, "MiB held for another one in the outer pool", held()?, 6)?;
    drop(scope);
    for buffer in [&a, &b, &c] {
        same(rule, "the content of a buffer of a pool", buffer.to_vec()?, vec![0; 512])?;
    }
    Ok(())
}

/// Buffers outlive their pool; what they leave goes back to the device.
fn outlived(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let rule = "memory.pools";
    let pool = runtime.mem_pool(())?;
    let buffer = {
        let _scope = pool.enter()?;
        drop(runtime.alloc(30 * MIB)?);
        runtime.zeros(512)?
    };
    runtime.empty_cache()?;
    same(rule, "MiB held by a pool that lives", runtime.memory_reserved(())? / MIB, 32)?;
    drop(pool);
    runtime.empty_cache()?;
    same(rule, "MiB held once it is gone, with a buffer in use", runtime.memory_reserved(())? / MIB, 2)?;
    same(rule, "the content of that buffer", buffer.to_vec()?, vec![0; 512])?;
    drop(buffer);
    runtime.empty_cache()?;
    same(rule, "what is held in the end", runtime.memory_reserved(())?, 0)
}
