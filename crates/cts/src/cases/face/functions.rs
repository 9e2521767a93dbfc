//! Host functions in streams: order, panics, and what they may not do.

use super::Face;
use crate::case::{Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::lab::locked;
use anyaccel::{Error, EventOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(super) const CASES: &[Case] = &[
    Case::face("functions.in-order", &["function.order"], in_order),
    Case::face("functions.panic", &["function.panic"], panic),
    Case::face("functions.panic-at-each-wait", &["function.panic"], panic_at_each_wait),
    Case::face("functions.panic-at-query", &["function.panic"], panic_at_query),
    Case::face("functions.no-calls-inside", &["function.no-calls"], no_calls_inside),
    Case::face("functions.drops-inside", &["function.drops", "life.handles"], drops_inside),
    Case::face("functions.before-and-behind-work", &["function.order"], before_and_behind_work),
];

fn in_order(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (a, b) = (face.runtime.stream(())?, face.runtime.stream(())?);
    let log = Arc::new(Mutex::new(Vec::new()));
    for step in 0..100 {
        for (name, stream) in [('a', &a), ('b', &b)] {
            let log = log.clone();
            stream.host_fn(move || locked(&log).push((name, step)))?;
        }
        if step % 10 == 0 {
            b.wait_stream(&a)?;
            a.wait_stream(&b)?;
        }
    }
    face.finish(&a)?;
    face.finish(&b)?;
    for name in ['a', 'b'] {
        let own: Vec<i32> = locked(&log).iter().filter(|entry| entry.0 == name).map(|entry| entry.1).collect();
        same("function.order", &format!("functions of stream {name}"), own, (0..100).collect())?;
    }
    Ok(())
}

/// Panics without a word on the terminal.
fn quiet_panic(text: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(text))
}

fn panic(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (stream, other) = (runtime.stream(())?, runtime.stream(())?);
    let buffer = runtime.zeros(64)?;
    runtime.synchronize(())?;
    let id = stream.stream_id();
    let told = |error: &Error| {
        matches!(error, Error::HostPanic { stream, message, device }
            if *stream == id && message == "the first" && device.index() == Some(0))
    };
    stream.host_fn(|| quiet_panic("the first"))?;
    stream.fill(&buffer.all(), &[1])?;
    stream.host_fn(|| quiet_panic("the second"))?;
    face.finish(&other)?;
    errs("function.panic", "synchronize", "HostPanic with stream and message, once", stream.synchronize(), told)?;
    stream.synchronize()?;
    runtime.synchronize(())?;
    // The stream is as good as before, and so was the work between.
    let mut seen = [0; 64];
    stream.download(&mut seen, &buffer.all())?;
    same("function.panic", "work between two panics", seen.to_vec(), vec![1; 64])?;
    let ran = Arc::new(AtomicU32::new(0));
    let inside = ran.clone();
    stream.host_fn(move || {
        inside.fetch_add(1, Ordering::SeqCst);
    })?;
    face.finish(&stream)?;
    same("function.panic", "calls of a function after panics", ran.load(Ordering::SeqCst), 1)
}

fn panic_at_each_wait(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let told = |error: &Error| matches!(error, Error::HostPanic { .. });
    let stream = runtime.stream(())?;
    stream.host_fn(|| quiet_panic("told to the device"))?;
    errs("function.panic", "synchronize of the device", "HostPanic", runtime.synchronize(()), told)?;
    runtime.synchronize(())?;
    stream.host_fn(|| quiet_panic("told to the event"))?;
    let event = stream.record_event(None)?;
    errs("function.panic", "synchronize of an event behind", "HostPanic", event.synchronize(), told)?;
    Ok(event.synchronize()?)
}

fn panic_at_query(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let told = |error: &Error| matches!(error, Error::HostPanic { .. });
    let stream = face.runtime.stream(())?;
    stream.host_fn(|| quiet_panic("told to the query"))?;
    let asked = loop {
        match stream.query() {
            Ok(false) => std::thread::yield_now(),
            other => break other,
        }
    };
    errs("function.panic", "query once the stream is idle", "HostPanic", asked, told)?;
    same("function.panic", "query after that", stream.query()?, true)
}

fn no_calls_inside(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = face.runtime.clone();
    let stream = runtime.stream(())?;
    let other = runtime.stream(())?;
    let event = stream.record_event(None)?;
    let buffer = runtime.zeros(64)?;
    runtime.synchronize(())?;
    let results = Arc::new(Mutex::new(Vec::new()));
    let seen = results.clone();
    stream.host_fn(move || {
        let calls = [
            ("current_stream", runtime.current_stream(()).map(drop)),
            ("current_stream_id", runtime.current_stream_id(()).map(drop)),
            ("Stream", runtime.stream(()).map(drop)),
            ("alloc", runtime.alloc(64).map(drop)),
            ("synchronize", runtime.synchronize(())),
            ("Stream.synchronize", other.synchronize()),
            ("Stream.query", other.query().map(drop)),
            ("Stream.fill", other.fill(&buffer.all(), &[1])),
            ("Stream.wait_event", other.wait_event(&event)),
            ("Stream.host_fn", other.host_fn(|| ())),
            ("Stream.record_event", other.record_event(None).map(drop)),
            ("Event.synchronize", event.synchronize()),
            ("Event.query", event.query().map(drop)),
            ("get_memory_info", runtime.get_memory_info(()).map(drop)),
        ];
        *locked(&seen) = calls.into_iter().collect();
    })?;
    face.finish(&stream)?;
    let results = std::mem::take(&mut *locked(&results));
    expect("function.no-calls", results.len() > 10, "the function to have run", results.len())?;
    for (call, result) in results {
        let right = |error: &Error| matches!(error, Error::InsideHostFunction { .. });
        errs("function.no-calls", &format!("{call} inside a host function"), "InsideHostFunction", result, right)?;
    }
    // The thread that enqueued is not inside.
    face.runtime.alloc(64)?;
    Ok(())
}

/// Handles may end inside a function; what they stand for is given back later.
fn drops_inside(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    for round in 0..20_u8 {
        let buffer = runtime.zeros(1 << 16)?;
        let pinned = runtime.pinned(1 << 12)?;
        let event = runtime.event(EventOptions { enable_timing: true, ..EventOptions::default() })?;
        let reserved = runtime.stream_with((), anyaccel::StreamOptions { reserved: true, ..Default::default() })?;
        reserved.wait_stream(&runtime.current_stream(())?)?;
        reserved.fill(&buffer.all(), &[round])?;
        event.record(Some(&reserved))?;
        stream.wait_event(&event)?;
        let owned = (buffer, pinned, event, reserved, runtime.clone());
        stream.host_fn(move || drop(owned))?;
    }
    face.finish(&stream)?;
    runtime.synchronize(())?;
    runtime.empty_cache()?;
    runtime.empty_host_cache()?;
    let buffer = runtime.zeros(64)?;
    same("function.drops", "memory afterwards", buffer.to_vec()?, vec![0; 64])
}

fn before_and_behind_work(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.zeros(64)?;
    runtime.synchronize(())?;
    let ran = Arc::new(AtomicU32::new(0));
    let hold = face.hold(&stream)?;
    let (before, behind) = (ran.clone(), ran.clone());
    stream.host_fn(move || {
        before.store(1, Ordering::SeqCst);
    })?;
    stream.fill(&buffer.all(), &[1])?;
    stream.host_fn(move || {
        // Only if the one before has run.
        let _order = behind.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst);
    })?;
    same("function.order", "what held functions have done", ran.load(Ordering::SeqCst), 0)?;
    hold.release()?;
    face.finish(&stream)?;
    same("function.order", "what they did in the end", ran.load(Ordering::SeqCst), 2)
}
