//! The scripts. Each begins in a process with one thread, in which nobody has used the runtime.

use super::ends::{exit, quiet, threads_end, unknown_backend};
use super::graphs::graphs;
use super::hammer::{hammer, hammer_start};
use super::{FAILING, FROZEN, Script, in_fork, random};
use crate::case::{Outcome, errs, expect, fail, same, skip};
use crate::cases::asked;
use crate::words::plain;
use anyaccel::{Error, EventOptions, Runtime, StreamOptions};
use std::time::Duration;

/// Runs the script of that name.
pub(super) fn run(name: &str, script: &Script) -> Outcome {
    match name {
        "fresh" => fresh(script),
        "restart" => restart(script),
        "frozen" => frozen(script),
        "graphs" => graphs(script),
        "innocent" => innocent(script),
        "culprits" => culprits(script),
        "no-trace" => no_trace(script),
        "failed-start" => failed_start(script),
        "hammer" => hammer(script),
        "hammer-start" => hammer_start(script),
        "random-live" => random::live(script),
        "random-fresh" => random::fresh(script),
        "random-frozen" => random::frozen(script),
        "quiet" => quiet(script),
        "threads-end" => threads_end(script),
        "exit" => exit(false),
        "exit-thread-local" => exit(true),
        "unknown-backend" => unknown_backend(script),
        _ => skip(format!("no script is called {name}")),
    }
}

type Call = (&'static str, fn(&Runtime) -> anyaccel::Result<()>);

/// A copy there and back, a function, an event: the runtime works.
pub(super) fn works(rule: &str, runtime: &Runtime, limit: Duration) -> Outcome {
    let stream = runtime.stream(())?;
    let buffer = runtime.zeros(4096)?;
    stream.wait_stream(&runtime.current_stream(())?)?;
    stream.fill(&buffer.slice(..2048)?, &[7])?;
    let (done, ran) = std::sync::mpsc::channel();
    stream.host_fn(move || {
        // The receiver lives until the stream has ended, or has given up.
        let _late = done.send(());
    })?;
    let event = stream.record_event(None)?;
    same(rule, "whether the work ends", event.synchronize_for(limit)?, true)?;
    same(rule, "whether its function ran", ran.try_recv().is_ok(), true)?;
    let mut seen = vec![0; 4096];
    stream.download(&mut seen, &buffer.all())?;
    let right = seen[..2048].iter().all(|&byte| byte == 7) && seen[2048..].iter().all(|&byte| byte == 0);
    expect(rule, right, "what was filled", format!("{:?}...", &seen[2040..2056]))
}

/// Whether counting devices starts nothing, and whether a device can be described without a start.
fn quiet_answers(script: &Script) -> (bool, bool) {
    let ask = crate::subject::Ask { devices: 2, memory: crate::env::MEMORY, seed: script.seed };
    let made = script.subject.make(&ask);
    let counts = made.as_ref().is_ok_and(|made| made.driver.fork_safe_probe());
    (counts, counts && made.is_ok_and(|made| made.driver.describe(0).is_some()))
}

/// A child forked while Fresh is Fresh, and so is its parent.
fn fresh(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    if quiet_answers(script).0 {
        same("fork.fresh", "device_count", runtime.device_count() > 0, true)?;
    }
    runtime.lazy_call(|_| Ok(()))?;
    in_fork(script.patience, || {
        let child = Runtime::global();
        same("fork.fresh", "whether the child has started", child.is_started(), false)?;
        works("fork.fresh", &child, script.patience / 2)
    })?;
    same("fork.fresh", "whether the parent has started", runtime.is_started(), false)?;
    works("fork.fresh", &runtime, script.patience / 2)
}

fn restart(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    let built = Runtime::builder().build()?;
    if runtime.device_count() > 1 {
        runtime.set_device_index(1)?;
    }
    let chosen = runtime.current_device_index()?;
    let make = |runtime: &Runtime| -> Outcome<_> {
        let stream = runtime.stream(())?;
        let reserved = runtime.stream_with((), StreamOptions { reserved: true, ..StreamOptions::default() })?;
        let buffer = runtime.zeros(4096)?;
        let mut pinned = runtime.pinned(4096)?;
        reserved.wait_stream(&runtime.current_stream(())?)?;
        reserved.download_pinned(&mut pinned, 0, &buffer.all())?;
        stream.wait_stream(&reserved)?;
        stream.fill(&buffer.all(), &[5])?;
        let event = runtime.event(EventOptions { enable_timing: true, ..EventOptions::default() })?;
        event.record(Some(&stream))?;
        Ok((stream, reserved, buffer, pinned, event))
    };
    let (stream, _reserved, buffer, _pinned, event) = make(&runtime)?;
    let (own, inherited) = (make(&built)?, make(&runtime)?);
    runtime.set_stream(&stream)?;
    let scope = stream.enter()?;
    let (old, theirs) = (runtime.clone(), built.clone());
    let parts = (&stream, &buffer, &event);
    in_fork(script.patience, move || {
        let (stream, buffer, event) = parts;
        let child = Runtime::global();
        same("fork.restart", "whether the child has started", child.is_started(), false)?;
        same("fork.current-index", "the device of the thread that forked", child.current_device_index()?, chosen)?;
        let stale = |error: &Error| matches!(error, Error::StaleHandle { .. });
        let calls: [(&str, anyaccel::Result<()>); 12] = [
            ("Stream.query", stream.query().map(drop)),
            ("Stream.synchronize", stream.synchronize()),
            ("Stream.fill", stream.fill(&buffer.all(), &[1])),
            ("Stream.host_fn", stream.host_fn(|| ())),
            ("Stream.enter", stream.enter().map(drop)),
            ("Stream.record_event", stream.record_event(None).map(drop)),
            ("Event.query", event.query().map(drop)),
            ("Event.synchronize", event.synchronize()),
            ("Event.record", event.record(None)),
            ("Buffer.to_vec", buffer.to_vec().map(drop)),
            ("set_stream", child.set_stream(stream)),
            ("current_stream of a runtime that was built", theirs.current_stream(()).map(drop)),
        ];
        for (call, result) in calls {
            errs("fork.stale", &format!("{call} with a handle of the parent"), "StaleHandle", result, stale)?;
        }
        works("fork.restart", &child, script.patience / 2)?;
        // What was inherited ends in the child: nothing of the parent's is touched by that.
        drop(own);
        drop(inherited);
        drop((old, theirs));
        works("fork.restart", &child, script.patience / 2)
    })?;
    drop(scope);
    same("fork.restart", "whether the parent goes on", stream.synchronize_for(script.patience)?, true)?;
    let seen = buffer.to_vec()?;
    expect("fork.restart", seen.iter().all(|&byte| byte == 5), "the parent's memory, untouched", plain(&&seen[..8]))?;
    works("fork.restart", &runtime, script.patience / 2)?;
    works("fork.restart", &built, script.patience / 2)
}

/// The one error, and the calls that stay silent.
fn frozen(script: &Script) -> Outcome {
    const REFUSED: &[Call] = &[
        ("current_stream", |runtime| runtime.current_stream(()).map(drop)),
        ("default_stream", |runtime| runtime.default_stream(0).map(drop)),
        ("Stream", |runtime| runtime.stream(()).map(drop)),
        ("set_device_index", |runtime| runtime.set_device_index(0)),
        ("device_index", |runtime| runtime.device_index(0).map(drop)),
        ("alloc", |runtime| runtime.alloc(64).map(drop)),
        ("pinned", |runtime| runtime.pinned(64).map(drop)),
        ("get_memory_info", |runtime| runtime.get_memory_info(()).map(drop)),
        ("Event.record", |runtime| runtime.event(EventOptions::default())?.record(None)),
    ];
    const SILENT: &[Call] = &[
        ("synchronize", |runtime| runtime.synchronize(())),
        ("synchronize(0)", |runtime| runtime.synchronize(0)),
        ("empty_cache", |runtime| runtime.empty_cache()),
        ("empty_host_cache", |runtime| runtime.empty_host_cache()),
        ("reset_peak_memory_stats", |runtime| runtime.reset_peak_memory_stats(())),
        ("reset_accumulated_memory_stats", |runtime| runtime.reset_accumulated_memory_stats(())),
        ("reset_peak_host_memory_stats", |runtime| runtime.reset_peak_host_memory_stats(())),
        ("lazy_call", |runtime| runtime.lazy_call(|_| Err(Error::NoAccelerator))),
        ("set_device_index(-1)", |runtime| runtime.set_device_index(-1)),
        ("device_index(None)", |runtime| runtime.device_index(None).map(drop)),
        ("Event", |runtime| runtime.event(EventOptions::default())?.synchronize()),
    ];
    let runtime = Runtime::global();
    works("fork.one-error", &runtime, script.patience / 2)?;
    if runtime.device_count() > 1 {
        runtime.set_device_index(1)?;
    }
    let (count, chosen, parent) = (runtime.device_count(), runtime.current_device_index()?, std::process::id());
    in_fork(script.patience, || {
        let child = Runtime::global();
        for round in 0..2 {
            for (name, call) in SILENT {
                if let Err(error) = call(&child) {
                    return fail(
                        "fork.no-ops",
                        format!("{name} to do nothing in a child, round {round}"),
                        error.to_string(),
                    );
                }
            }
            same("fork.no-ops", "pending calls", child.pending_calls(), 0)?;
            let empty = child.memory_stats(())?.is_empty() && child.host_memory_stats(())?.is_empty();
            same("fork.no-ops", "whether statistics are empty", empty, true)?;
            let zero = (child.memory_reserved(())?, child.max_memory_allocated(())?);
            same("fork.no-ops", "memory of the child", zero, (0, 0))?;
            for (name, call) in REFUSED {
                let right = |error: &Error| {
                    matches!(error, Error::ForkedChild { kind, call, pid }
                        if kind.name() == FROZEN && *call == "Stream" && *pid == parent)
                };
                errs(
                    "fork.one-error",
                    &format!("{name} in a child"),
                    "ForkedChild with call and process",
                    call(&child),
                    right,
                )?;
            }
            let named = child.current_accelerator(true).is_some();
            same("fork.count", "current_accelerator(true) and is_available", named, child.is_available())?;
            let counted = child.device_count();
            expect("fork.count", counted == count || counted == 0, "the count, or 0", counted)?;
            same("fork.current-index", "the device of the thread that forked", child.current_device_index()?, chosen)?;
            same("fork.one-error", "whether the child has started", child.is_started(), false)?;
        }
        let Err(error) = child.current_stream(()) else { return fail("fork.one-error", "an error", "success") };
        let text = error.to_string();
        let name = FROZEN.to_uppercase();
        let begins = format!(
            "Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must use the \
             'spawn' start method"
        );
        expect("fork.text", text.starts_with(&begins), &begins, &text)?;
        let names = text.contains("Stream") && text.contains(&parent.to_string());
        expect("fork.text", names, "the call and the process that started it", &text)
    })?;
    works("fork.one-error", &runtime, script.patience / 2)
}

/// A question does not spoil a later child.
fn innocent(script: &Script) -> Outcome {
    const QUERIES: &[Call] = &[
        ("is_available", |runtime| asked(runtime.is_available())),
        ("device_count", |runtime| asked(runtime.device_count())),
        ("current_accelerator(false)", |runtime| asked(runtime.current_accelerator(false))),
        ("current_accelerator(true)", |runtime| asked(runtime.current_accelerator(true))),
        ("current_device_index", |runtime| runtime.current_device_index().map(drop)),
        ("set_device_index(-1)", |runtime| runtime.set_device_index(-1)),
        ("device_index(None)", |runtime| runtime.device_index(None).map(drop)),
        ("synchronize", |runtime| runtime.synchronize(())),
        ("empty_cache", |runtime| runtime.empty_cache()),
        ("memory_stats", |runtime| runtime.memory_stats(()).map(drop)),
        ("memory_reserved", |runtime| runtime.memory_reserved(0).map(drop)),
        ("host_memory_stats", |runtime| runtime.host_memory_stats(()).map(drop)),
        ("memory_summary", |runtime| runtime.memory_summary((), true).map(drop)),
        ("reset_peak_memory_stats", |runtime| runtime.reset_peak_memory_stats(())),
        ("reset_accumulated_memory_stats", |runtime| runtime.reset_accumulated_memory_stats(0)),
        ("set_memory_budget", |runtime| runtime.set_memory_budget(Some(1 << 27), 0)),
        ("set_per_process_memory_fraction", |runtime| runtime.set_per_process_memory_fraction(0.9, ())),
        ("attach_out_of_memory_observer", |runtime| {
            runtime.attach_out_of_memory_observer(|_, _| ());
            Ok(())
        }),
        ("Event", |runtime| runtime.event(EventOptions::default())?.query().map(drop)),
        ("lazy_call", |runtime| runtime.lazy_call(|_| Ok(()))),
        ("backends", |_| asked(anyaccel::backends())),
        ("selection", |_| asked(anyaccel::selection())),
        ("Runtime::builder", |_| Runtime::builder().build().map(drop)),
        ("get_device_properties", |runtime| runtime.get_device_properties(0).map(drop)),
        ("get_device_name", |runtime| runtime.get_device_name(0).map(drop)),
        ("get_device_capability", |runtime| runtime.get_device_capability(()).map(drop)),
    ];
    let (counts, describes) = quiet_answers(script);
    for (name, query) in QUERIES {
        let counting =
            matches!(*name, "is_available" | "device_count" | "current_accelerator(true)" | "current_device_index");
        if counting && !counts || name.starts_with("get_") && !describes {
            continue;
        }
        let innocent = in_fork(script.patience, || {
            query(&Runtime::global())?;
            in_fork(script.patience, || works("fork.innocent", &Runtime::global(), script.patience / 2))
        });
        if let Err(crate::case::Stop::Fail(failure)) = innocent {
            return fail("fork.innocent", format!("a child that works after {name}"), failure.seen);
        }
    }
    Ok(())
}

/// Each call that starts is named by the error in a child.
fn culprits(script: &Script) -> Outcome {
    const STARTS: &[Call] = &[
        ("current_stream", |runtime| runtime.current_stream(()).map(drop)),
        ("default_stream", |runtime| runtime.default_stream(0).map(drop)),
        ("Stream", |runtime| runtime.stream(()).map(drop)),
        ("set_device_index", |runtime| runtime.set_device_index(0)),
        ("device_index", |runtime| runtime.device_index(0).map(drop)),
        ("alloc", |runtime| runtime.alloc(64).map(drop)),
        ("pinned", |runtime| runtime.pinned(64).map(drop)),
        ("get_memory_info", |runtime| runtime.get_memory_info(()).map(drop)),
        ("Event.record", |runtime| runtime.event(EventOptions::default())?.record(None)),
        ("utilization", |runtime| {
            // It starts, whether there is a sensor or not.
            let _reading = runtime.utilization(());
            Ok(())
        }),
    ];
    for &(name, start) in STARTS {
        in_fork(script.patience, || {
            start(&Runtime::global())?;
            let parent = std::process::id();
            in_fork(script.patience, || {
                let right = |error: &Error| matches!(error, Error::ForkedChild { call, pid, .. } if *call == name && *pid == parent);
                let expected = format!("ForkedChild by {name} in {parent}");
                errs("fork.culprit", "a call in a child", &expected, Runtime::global().current_stream(()), right)
            })
        })?;
    }
    Ok(())
}

/// A kind without devices spoils nothing.
fn no_trace(script: &Script) -> Outcome {
    let none = |error: &Error| *error == Error::NoAccelerator;
    let runtime = Runtime::global();
    same("fork.no-trace", "device_count", runtime.device_count(), 0)?;
    errs("fork.no-trace", "current_stream", "NoAccelerator", runtime.current_stream(()), none)?;
    in_fork(script.patience, || {
        errs("fork.no-trace", "current_stream in a child", "NoAccelerator", Runtime::global().current_stream(()), none)
    })
}

/// A start that failed spoils nothing either.
fn failed_start(script: &Script) -> Outcome {
    let failed = |error: &Error| matches!(error, Error::StartFailed { kind, .. } if kind.name() == FAILING);
    errs("fork.no-trace", "the first start", "StartFailed", Runtime::global().current_stream(()), failed)?;
    in_fork(script.patience, || {
        let child = Runtime::global();
        errs("fork.no-trace", "the first start in a child", "StartFailed", child.current_stream(()), failed)?;
        works("fork.no-trace", &child, script.patience / 2)
    })
}
