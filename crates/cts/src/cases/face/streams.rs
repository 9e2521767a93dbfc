//! Streams: pools, reserved ones, numbers, what is current, waiting.

use super::{Face, out_of_range};
use crate::case::{Capability, Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::lab::MOMENT;
use crate::words::plain;
use anyaccel::{Error, Stream, StreamOptions};
use anyaccel_hal::Kind;
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::face("streams.pool-of-32", &["stream.pool", "stream.shares-queue"], pool_of_32).devices(2),
    Case::face("streams.priorities", &["stream.priority"], priorities),
    Case::face("streams.reserved", &["stream.reserved", "stream.shares-queue"], reserved),
    Case::face("streams.by-number", &["stream.by-id"], by_number).devices(2),
    Case::face("streams.equality", &["stream.equality"], equality).devices(2),
    Case::face("streams.fields", &["stream.fields", "stream.default"], fields).devices(2),
    Case::face("streams.current", &["stream.current"], current).devices(2),
    Case::face("streams.foreign", &["stream.foreign", "thread.foreign"], foreign),
    Case::face("streams.query-and-synchronize", &["stream.synchronize"], query_and_synchronize),
    Case::face("streams.wait-stream", &["stream.wait"], wait_stream),
    Case::face("streams.wait-across-devices", &["stream.wait"], wait_across_devices).devices(2),
    Case::face("streams.synchronize-device", &["sync.device"], synchronize_device).devices(2),
    Case::face("streams.synchronize-for", &["sync.interrupt", "sync.device"], synchronize_for),
    Case::face("streams.waits-let-others-call", &["thread.any"], waits_let_others_call),
    Case::face("streams.independent", &["stream.pool"], independent).needs(&[Capability::Gates]),
];

fn pool_of_32(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let mut pool: Vec<Stream> = (0..32).map(|_| runtime.stream(0)).collect::<Result<_, _>>()?;
    let ids: HashSet<u64> = pool.iter().map(Stream::stream_id).collect();
    same("stream.pool", "different numbers of 32 streams", ids.len(), 32)?;
    same("stream.pool", "whether one of them is the default", ids.contains(&0), false)?;
    for (at, stream) in pool.iter().enumerate() {
        let shares = pool.iter().filter(|other| stream.shares_queue_with(other)).count();
        same("stream.shares-queue", &format!("queues that stream {at} of 32 shares"), shares, 1)?;
    }
    let elsewhere = runtime.stream(1)?;
    let next: Vec<Stream> = (0..33).map(|_| runtime.stream(0)).collect::<Result<_, _>>()?;
    for (old, new) in pool.iter().zip(&next) {
        same("stream.pool", "the 33rd stream and the first", new == old && new.shares_queue_with(old), true)?;
    }
    same("stream.pool", "the 65th stream and the first", next[32] == pool[0], true)?;
    same("stream.pool", "another device's stream in this pool", pool.contains(&elsewhere), false)?;
    pool.clear();
    // The pool goes on where it was, whoever keeps its streams.
    same("stream.pool", "the next stream", runtime.stream(0)?.stream_id(), next[1].stream_id())
}

fn priorities(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let range = runtime.get_device_properties(0)?.priorities;
    let with = |priority| runtime.stream_with((), StreamOptions { priority, reserved: false });
    let asked = [(i32::MAX, range.least), (1000, range.least), (0, range.clamp(0)), (-1000, range.greatest)];
    for (priority, given) in asked {
        same("stream.priority", &format!("priority {priority}"), with(priority)?.priority(), given)?;
    }
    for priority in range.greatest..=range.least {
        let streams: Vec<Stream> = (0..32).map(|_| with(priority)).collect::<Result<_, _>>()?;
        let right = streams.iter().all(|stream| stream.priority() == priority);
        expect("stream.priority", right, &format!("32 streams of priority {priority}"), "others among them")?;
        let ids: HashSet<u64> = streams.iter().map(Stream::stream_id).collect();
        same("stream.priority", "different streams of one priority", ids.len(), 32)?;
        let buffer = runtime.zeros(64)?;
        streams[0].wait_stream(&runtime.current_stream(())?)?;
        streams[0].fill(&buffer.all(), &[9])?;
        face.finish(&streams[0])?;
        same("stream.priority", "what a stream of that priority filled", buffer.to_vec()?, vec![9; 64])?;
    }
    Ok(())
}

const RESERVED: StreamOptions = StreamOptions { priority: 0, reserved: true };

fn reserved(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let pooled: Vec<Stream> = (0..32).map(|_| runtime.stream(())).collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for round in 0..40 {
        let stream = runtime.stream_with((), RESERVED)?;
        let id = stream.stream_id();
        expect("stream.reserved", seen.insert(id), "a number that was never given out", id)?;
        let shares = pooled.iter().chain(&kept).any(|other: &Stream| stream.shares_queue_with(other));
        same("stream.reserved", "whether a reserved stream shares a queue", shares, false)?;
        same("stream.shares-queue", "whether it shares its own", stream.shares_queue_with(&stream.clone()), true)?;
        let buffer = runtime.alloc(64)?;
        stream.wait_stream(&runtime.current_stream(())?)?;
        stream.fill(&buffer.all(), &[round])?;
        if round % 2 == 0 {
            kept.push(stream);
        }
    }
    Ok(runtime.synchronize(())?)
}

fn by_number(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (runtime, kind) = (&face.runtime, face.kind());
    let all = [runtime.default_stream(1)?, runtime.stream(1)?, runtime.stream(0)?, runtime.stream_with(1, RESERVED)?];
    for stream in &all {
        let named = runtime.stream_from_id(stream.stream_id(), stream.device_index(), stream.device_type())?;
        same("stream.by-id", "a stream and the one of its number", &named == stream, true)?;
        same("stream.by-id", "their queues", named.shares_queue_with(stream), true)?;
    }
    let unknown = |error: &Error| matches!(error, Error::UnknownStream { id: u64::MAX, .. });
    errs("stream.by-id", "an unknown number", "UnknownStream", runtime.stream_from_id(u64::MAX, 0, kind), unknown)?;
    let (beyond, range) = (face.beyond(), out_of_range(face.beyond()));
    errs("stream.by-id", "a device out of range", "a range error", runtime.stream_from_id(0, beyond, kind), range)?;
    let kinds = |error: &Error| matches!(error, Error::StreamKind { given: Kind::CPU, .. });
    errs("stream.by-id", "another kind", "StreamKind", runtime.stream_from_id(0, 0, Kind::CPU), kinds)?;
    let gone = runtime.stream_with((), RESERVED)?.stream_id();
    runtime.synchronize(())?;
    let unknown = |error: &Error| matches!(error, Error::UnknownStream { .. });
    errs(
        "stream.by-id",
        "a reserved stream that is gone",
        "UnknownStream",
        runtime.stream_from_id(gone, 0, kind),
        unknown,
    )
}

fn equality(env: &Env) -> Outcome {
    let (face, other) = (Face::new(env)?, Face::new(env)?);
    let runtime = &face.runtime;
    let (a, b) = (runtime.stream(0)?, runtime.stream(0)?);
    same("stream.equality", "a stream and its clone", a == a.clone(), true)?;
    same("stream.equality", "two streams", a == b, false)?;
    same(
        "stream.equality",
        "default streams of two devices",
        runtime.default_stream(0)? == runtime.default_stream(1)?,
        false,
    )?;
    let theirs = other.runtime.default_stream(0)?;
    same("stream.equality", "default streams of two runtimes", runtime.default_stream(0)? == theirs, false)?;
    #[expect(clippy::mutable_key_type, reason = "equality and hash look at kind, index and number only")]
    let set: HashSet<Stream> = [a.clone(), b.clone(), a.clone(), runtime.default_stream(1)?].into();
    same("stream.equality", "different ones among four", set.len(), 3)?;
    same("stream.equality", "whether a clone is found by its hash", set.contains(&a), true)
}

fn fields(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    for index in [0, 1] {
        let default = runtime.default_stream(index)?;
        same("stream.default", "its number", default.stream_id(), 0)?;
        for stream in [default, runtime.stream(index)?] {
            same("stream.fields", "device_index", stream.device_index(), index)?;
            same("stream.fields", "device_type", stream.device_type(), face.kind())?;
            same(
                "stream.fields",
                "device",
                (stream.device().kind(), stream.device().index()),
                (face.kind(), Some(index)),
            )?;
            same("stream.fields", "is_capturing", stream.is_capturing()?, false)?;
            let native = stream.native_handle()?;
            same("stream.fields", "native_handle, twice", stream.native_handle()?, native)?;
        }
    }
    Ok(())
}

fn current(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    same("stream.current", "the stream of a thread that never chose", runtime.current_stream(())?.stream_id(), 0)?;
    let (zero, one) = (runtime.stream(0)?, runtime.stream(1)?);
    for stream in [&zero, &one, &zero, &runtime.default_stream(0)?, &one] {
        runtime.set_stream(stream)?;
        same("stream.current", "what was set", &runtime.current_stream(())? == stream, true)?;
        same(
            "stream.current",
            "its device, which is current too",
            runtime.current_device_index()?,
            stream.device_index(),
        )?;
        let again = runtime.current_stream(())?;
        runtime.set_stream(&again)?;
        same("stream.current", "what was current, set again", &runtime.current_stream(())? == stream, true)?;
    }
    same("stream.current", "device 0's stream while device 1 is current", runtime.current_stream(0)?.stream_id(), 0)?;
    let elsewhere = thread::scope(|scope| scope.spawn(|| runtime.current_stream(1).map(|s| s.stream_id())).join());
    expect("stream.current", matches!(elsewhere, Ok(Ok(0))), "the default stream on another thread", plain(&elsewhere))
}

fn foreign(env: &Env) -> Outcome {
    let (face, other) = (Face::new(env)?, Face::new(env)?);
    let Some(kind) = Kind::private("elsewhere") else { return crate::case::skip("no private kind") };
    let bent = Face::over(Arc::new(super::Bent::new(env.make()?.driver).of_kind(kind)), env)?;
    let runtime = &face.runtime;
    let (own, theirs, third) = (runtime.stream(())?, other.runtime.stream(())?, bent.runtime.stream(())?);
    let refused = |error: &Error| matches!(error, Error::ForeignRuntime { .. });
    errs("stream.foreign", "set_stream of another runtime's", "ForeignRuntime", runtime.set_stream(&theirs), refused)?;
    errs("thread.foreign", "wait_stream for another runtime's", "ForeignRuntime", own.wait_stream(&theirs), refused)?;
    let kinds = |error: &Error| matches!(error, Error::StreamKind { given, .. } if *given == kind);
    errs("stream.foreign", "set_stream of another kind's", "StreamKind", runtime.set_stream(&third), kinds)?;
    let (ours, buffer) = (runtime.alloc(64)?, other.runtime.alloc(64)?);
    errs(
        "thread.foreign",
        "a fill of another runtime's buffer",
        "ForeignRuntime",
        own.fill(&buffer.all(), &[1]),
        refused,
    )?;
    let copied = own.copy(&ours.all(), &buffer.all());
    errs("thread.foreign", "a copy from another runtime's buffer", "ForeignRuntime", copied, refused)?;
    let event = other.runtime.event(anyaccel::EventOptions::default())?;
    errs(
        "thread.foreign",
        "another runtime's event recorded here",
        "ForeignRuntime",
        event.record(Some(&own)),
        refused,
    )?;
    same("stream.foreign", "the current stream, untouched", runtime.current_stream(())?.stream_id(), 0)
}

fn query_and_synchronize(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let stream = face.runtime.stream(())?;
    same("stream.synchronize", "query of an idle stream", stream.query()?, true)?;
    let hold = face.hold(&stream)?;
    for _ in 0..3 {
        same("stream.synchronize", "query of a held stream", stream.query()?, false)?;
        same("stream.synchronize", "a short wait for it", stream.synchronize_for(MOMENT)?, false)?;
    }
    hold.release()?;
    stream.synchronize()?;
    same("stream.synchronize", "query after synchronize", stream.query()?, true)
}

fn wait_stream(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b, c) = (runtime.stream(())?, runtime.stream(())?, runtime.stream(())?);
    let (from, to) = (runtime.zeros(256)?, runtime.zeros(256)?);
    runtime.synchronize(())?;
    let hold = face.hold(&a)?;
    a.fill(&from.all(), &[3])?;
    b.wait_stream(&a)?;
    b.copy(&to.all(), &from.all())?;
    c.wait_stream(&b)?;
    // Later work is not waited for.
    let later = face.hold(&b)?;
    same("stream.wait", "a short wait for a stream behind a held one", c.synchronize_for(MOMENT)?, false)?;
    hold.release()?;
    face.finish(&c)?;
    later.release()?;
    let mut seen = [0; 256];
    b.download(&mut seen, &to.all())?;
    same("stream.wait", "what came through", seen.to_vec(), vec![3; 256])?;
    a.wait_stream(&a)?;
    face.finish(&a)
}

fn wait_across_devices(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b) = (runtime.stream(0)?, runtime.stream(1)?);
    let hold = face.hold(&a)?;
    b.wait_stream(&a)?;
    same("stream.wait", "a short wait behind the other device", b.synchronize_for(MOMENT)?, false)?;
    hold.release()?;
    face.finish(&b)
}

fn synchronize_device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let streams = [runtime.stream(0)?, runtime.stream_with(0, RESERVED)?, runtime.default_stream(0)?];
    let elsewhere = runtime.stream(1)?;
    let held = face.hold(&elsewhere)?;
    runtime.set_device_index(1)?;
    for stream in &streams {
        let hold = face.hold(stream)?;
        same(
            "sync.device",
            "a short wait for a device with a held stream",
            runtime.synchronize_for(0, MOMENT)?,
            false,
        )?;
        hold.release()?;
        runtime.synchronize(0)?;
        same("sync.device", "query after the device's synchronize", stream.query()?, true)?;
    }
    same("sync.device", "a short wait for the current device", runtime.synchronize_for((), MOMENT)?, false)?;
    same("sync.device", "the current device", runtime.current_device_index()?, 1)?;
    held.release()?;
    Ok(runtime.synchronize(())?)
}

/// A wait that ends early leaves the work alone.
fn synchronize_for(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.zeros(64)?;
    runtime.synchronize(())?;
    let hold = face.hold(&stream)?;
    stream.fill(&buffer.all(), &[5])?;
    let began = std::time::Instant::now();
    same("sync.interrupt", "a short wait", runtime.synchronize_for((), MOMENT)?, false)?;
    let took = began.elapsed();
    expect("sync.interrupt", took >= MOMENT, "a return not before the limit", plain(&took))?;
    hold.release()?;
    face.finish(&stream)?;
    let mut seen = [0; 64];
    stream.download(&mut seen, &buffer.all())?;
    same("sync.interrupt", "what the work did all the same", seen.to_vec(), vec![5; 64])
}

fn waits_let_others_call(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let hold = face.hold(&stream)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| stream.synchronize_for(face.patience));
        thread::sleep(MOMENT / 5);
        let other = runtime.stream(())?;
        let buffer = runtime.zeros(64)?;
        other.wait_stream(&runtime.current_stream(())?)?;
        other.fill(&buffer.all(), &[1])?;
        face.finish(&other)?;
        same("thread.any", "whether the waiter waits still", waiter.is_finished(), false)?;
        hold.release()?;
        let ended = waiter.join();
        expect("thread.any", matches!(ended, Ok(Ok(true))), "the waiter to see the end", plain(&ended))
    })
}

/// A held stream of the pool holds up no other.
fn independent(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let streams: Vec<Stream> = (0..32).map(|_| runtime.stream(())).collect::<Result<_, _>>()?;
    let hold = face.hold(&streams[0])?;
    for stream in &streams[1..] {
        stream.host_fn(|| ())?;
        face.finish(stream)?;
    }
    same("stream.pool", "query of the held stream", streams[0].query()?, false)?;
    hold.release()?;
    face.finish(&streams[0])
}
