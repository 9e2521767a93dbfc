//! Events: unrecorded, recorded, recorded again; waits, times, and every refusal in its order.

use super::{Face, out_of_range};
use crate::case::{Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::lab::MOMENT;
use crate::words;
use anyaccel::{Device, Error, Event, EventOptions, Runtime};
use anyaccel_hal::Kind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::face("events.unrecorded", &["event.unrecorded"], unrecorded),
    Case::face("events.record-query-synchronize", &["event.record"], record_query_synchronize),
    Case::face("events.wait", &["event.wait", "stream.wait"], wait),
    Case::face("events.recorded-again", &["event.record-again"], recorded_again),
    Case::face("events.renewed", &["event.record-again", "event.unrecorded"], renewed),
    Case::face("events.records-the-current-stream", &["event.record"], records_the_current_stream).devices(2),
    Case::face("events.of-a-device", &["event.device"], of_a_device).devices(2),
    Case::face("events.options", &["event.options"], options),
    Case::face("events.elapsed", &["event.elapsed"], elapsed),
    Case::face("events.elapsed-errors", &["event.elapsed-errors"], elapsed_errors).devices(2),
    Case::face("events.made-under-another-device", &["event.device", "scenario.12"], made_under_another_device)
        .devices(2),
    Case::face("events.across-threads", &["thread.any", "event.record"], across_threads),
    Case::face("events.many", &["event.record"], many),
];

fn plain(runtime: &Runtime) -> anyaccel::Result<Event> {
    runtime.event(EventOptions::default())
}

fn timed(runtime: &Runtime) -> anyaccel::Result<Event> {
    runtime.event(EventOptions { enable_timing: true, ..EventOptions::default() })
}

fn unrecorded(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    for _ in 0..2 {
        let event = plain(runtime)?;
        same("event.unrecorded", "query", event.query()?, true)?;
        event.synchronize()?;
        event.wait(None)?;
        same("event.unrecorded", "synchronize_for", event.synchronize_for(Duration::ZERO)?, true)?;
        same("event.unrecorded", "event_id", event.event_id(), 0)?;
        same("event.unrecorded", "device", event.device(), None)?;
        // The second round is after the start.
        let stream = runtime.stream(())?;
        event.wait(Some(&stream))?;
        let hold = face.hold(&stream)?;
        same("event.unrecorded", "query while a stream is held up", event.query()?, true)?;
        hold.release()?;
        face.finish(&stream)?;
    }
    Ok(())
}

fn record_query_synchronize(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let event = plain(runtime)?;
    let hold = face.hold(&stream)?;
    event.record(Some(&stream))?;
    let later = face.hold(&stream)?;
    same("event.record", "query while the stream is held up", event.query()?, false)?;
    same("event.record", "a short wait", event.synchronize_for(MOMENT)?, false)?;
    same("event.record", "its device", event.device(), Some(stream.device()))?;
    expect("event.record", event.event_id() != 0, "an event_id once it is recorded", 0)?;
    hold.release()?;
    same("event.record", "a wait that later work does not concern", event.synchronize_for(face.patience)?, true)?;
    same("event.record", "query once the work before it has ended", event.query()?, true)?;
    same("event.record", "query of the stream", stream.query()?, false)?;
    later.release()?;
    face.finish(&stream)?;
    let other = stream.record_event(None)?;
    let same_one = stream.record_event(Some(&other))?;
    same("event.record", "what record_event gives back", same_one == other, true)?;
    expect("event.record", other.event_id() != event.event_id(), "a number for each event", other.event_id())
}

fn wait(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b, c) = (runtime.stream(())?, runtime.stream(())?, runtime.stream(())?);
    let (from, to) = (runtime.zeros(64)?, runtime.zeros(64)?);
    runtime.synchronize(())?;
    let hold = face.hold(&a)?;
    a.fill(&from.all(), &[8])?;
    let event = a.record_event(None)?;
    b.wait_event(&event)?;
    b.copy(&to.all(), &from.all())?;
    {
        let _scope = c.enter()?;
        event.wait(None)?;
    }
    for stream in [&b, &c] {
        same("event.wait", "a short wait behind the event", stream.synchronize_for(MOMENT)?, false)?;
    }
    hold.release()?;
    face.finish(&c)?;
    let mut seen = [0; 64];
    b.download(&mut seen, &to.all())?;
    same("event.wait", "what came through", seen.to_vec(), vec![8; 64])
}

fn recorded_again(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b, waits) = (runtime.stream(())?, runtime.stream(())?, runtime.stream(())?);
    let event = plain(runtime)?;
    let first = face.hold(&a)?;
    event.record(Some(&a))?;
    waits.wait_event(&event)?;
    let number = event.event_id();
    // Recorded again, it stands for the new place; the wait for the old one stays in force.
    event.record(Some(&b))?;
    same("event.record-again", "a wait for the new place", event.synchronize_for(face.patience)?, true)?;
    same("event.record-again", "a short wait of the stream behind the old one", waits.synchronize_for(MOMENT)?, false)?;
    same("event.record-again", "its number", event.event_id(), number)?;
    let second = face.hold(&b)?;
    event.record(Some(&b))?;
    same("event.record-again", "query behind a new hold", event.query()?, false)?;
    first.release()?;
    face.finish(&waits)?;
    same("event.record-again", "query still", event.query()?, false)?;
    second.release()?;
    same("event.record-again", "a wait for the last place", event.synchronize_for(face.patience)?, true)
}

fn renewed(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, waits) = (runtime.stream(())?, runtime.stream(())?);
    let mut event = runtime.unique_event(EventOptions::default())?;
    let hold = face.hold(&a)?;
    event.record(Some(&a))?;
    event.wait(Some(&waits))?;
    let (number, device) = (event.event_id(), event.device());
    let elsewhere = EventOptions { device: Some(Device::new(Kind::HOST, Some(99))), ..EventOptions::default() };
    expect("event.record-again", event.renew(elsewhere).is_err(), "a refusal of a device that is not there", "none")?;
    same("event.record-again", "the event that it was", (event.event_id(), event.device()), (number, device))?;
    same("event.record-again", "query", event.query()?, false)?;
    // Another event now: nothing was recorded, but who waits still does.
    event.renew(EventOptions { enable_timing: true, ..EventOptions::default() })?;
    same("event.unrecorded", "query once renewed", event.query()?, true)?;
    same("event.unrecorded", "number and device", (event.event_id(), event.device()), (0, None))?;
    same("event.record-again", "a short wait behind the old place", waits.synchronize_for(MOMENT)?, false)?;
    hold.release()?;
    face.finish(&waits)?;
    event.record(Some(&a))?;
    expect("event.record-again", ![0, number].contains(&event.event_id()), "a number of its own", event.event_id())?;
    event.synchronize()?;
    same("event.elapsed", "time to itself, now that it keeps time", event.elapsed_time(&event)?, 0.0)?;
    event.forget();
    same("event.unrecorded", "query once forgotten", event.query()?, true)
}

fn records_the_current_stream(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(0)?;
    let hold = face.hold(&stream)?;
    runtime.set_stream(&stream)?;
    let event = plain(runtime)?;
    event.record(None)?;
    same("event.record", "query of an event on the held current stream", event.query()?, false)?;
    runtime.set_device_index(1)?;
    let other = plain(runtime)?;
    other.record(None)?;
    same(
        "event.record",
        "the device of an event recorded on device 1",
        other.device().and_then(Device::index),
        Some(1),
    )?;
    same("event.record", "a wait for it", other.synchronize_for(face.patience)?, true)?;
    // An event of a device goes to that device's current stream.
    let bound = EventOptions { device: Some(stream.device()), ..EventOptions::default() };
    let bound = runtime.event(bound)?;
    bound.record(None)?;
    same("event.device", "query of an event of device 0, whose stream is held", bound.query()?, false)?;
    hold.release()?;
    same("event.record", "a wait in the end", bound.synchronize_for(face.patience)?, true)
}

fn of_a_device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (zero, one) = (runtime.stream(0)?, runtime.stream(1)?);
    let elsewhere = |error: &Error| matches!(error, Error::EventDevice { event, stream } if event.index() == Some(0) && stream.index() == Some(1));
    let event = plain(runtime)?;
    event.record(Some(&zero))?;
    errs("event.device", "recorded again on another device", "EventDevice", event.record(Some(&one)), elsewhere)?;
    let bound = runtime.event(EventOptions { device: Some(zero.device()), ..EventOptions::default() })?;
    errs("event.device", "of device 0, recorded on device 1", "EventDevice", bound.record(Some(&one)), elsewhere)?;
    same("event.unrecorded", "its query after that", bound.query()?, true)?;
    bound.record(Some(&zero))?;
    // Streams of other devices may wait for it.
    one.wait_event(&bound)?;
    face.finish(&one)?;
    let beyond = Some(Device::new(face.kind(), Some(face.beyond())));
    let (beyond, range) = (EventOptions { device: beyond, ..EventOptions::default() }, out_of_range(face.beyond()));
    errs("event.device", "an event of a device beyond the last", "a range error", runtime.event(beyond), range)?;
    let kinds = |error: &Error| matches!(error, Error::WrongKind { .. });
    let other = EventOptions { device: Some(Device::new(Kind::CPU, None)), ..EventOptions::default() };
    errs("event.device", "an event of another kind", "WrongKind", runtime.event(other), kinds)
}

fn options(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    for (enable_timing, blocking) in [(false, false), (true, false), (false, true), (true, true)] {
        let event = runtime.event(EventOptions { enable_timing, blocking, ..EventOptions::default() })?;
        let hold = face.hold(&stream)?;
        event.record(Some(&stream))?;
        same("event.options", "a short wait", event.synchronize_for(MOMENT / 5)?, false)?;
        hold.release()?;
        same("event.options", "a wait", event.synchronize_for(face.patience)?, true)?;
    }
    let interprocess = EventOptions { interprocess: true, ..EventOptions::default() };
    let shares = face.driver.open(0)?.native_events().is_some_and(|events| events.limits().ipc_bytes > 0);
    if !shares {
        let refused = |error: &Error| matches!(error, Error::EventOption { option: "interprocess", .. });
        let recorded = runtime.event(interprocess).and_then(|event| event.record(Some(&stream)));
        errs("event.options", "an interprocess event where there are none", "EventOption", recorded, refused)?;
        let handle = plain(runtime)?.ipc_handle();
        errs("event.options", "the handle of an event of this process", "an error", handle, |_| true)?;
    } else {
        let event = runtime.event(interprocess)?;
        let handle = event.ipc_handle()?;
        expect("event.options", handle.iter().any(|&byte| byte != 0), "a handle that names it", "zeros")?;
        event.record(Some(&stream))?;
        same("event.options", "a wait for what was recorded", event.synchronize_for(face.patience)?, true)?;
        let refused = |error: &Error| matches!(error, Error::Argument { .. });
        errs(
            "event.options",
            "the handle of an event of this process",
            "Argument",
            plain(runtime)?.ipc_handle(),
            refused,
        )?;
        errs("event.options", "no handle", "Argument", runtime.event_from_ipc_handle(0, &handle[1..]), refused)?;
    }
    Ok(())
}

fn elapsed(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (stream, other) = (runtime.stream(())?, runtime.stream(())?);
    let buffer = runtime.alloc(8 << 20)?;
    let events: [Event; 3] = [timed(runtime)?, timed(runtime)?, timed(runtime)?];
    events[0].record(Some(&stream))?;
    for byte in 0..4 {
        stream.fill(&buffer.all(), &[byte])?;
    }
    events[1].record(Some(&stream))?;
    other.wait_event(&events[1])?;
    events[2].record(Some(&other))?;
    face.finish(&other)?;
    let between = events[0].elapsed_time(&events[1])?;
    expect("event.elapsed", between > 0.0, "32 MiB of fills to take more than 0 ms", between)?;
    let back = events[1].elapsed_time(&events[0])?;
    same("event.elapsed", "the way back", back, -between)?;
    same("event.elapsed", "from an event to itself", events[0].elapsed_time(&events[0])?, 0.0)?;
    let whole = events[0].elapsed_time(&events[2])?;
    expect("event.elapsed", whole >= between, "a later event of another stream to be later", whole)?;
    // Recorded again, it has its new time.
    events[0].record(Some(&other))?;
    face.finish(&other)?;
    let after = events[1].elapsed_time(&events[0])?;
    expect("event.elapsed", after >= 0.0, "an event recorded again to be later", after)
}

/// One kind of wrong after the other is put right; each time the next error in the order is told.
fn elapsed_errors(env: &Env) -> Outcome {
    const RULE: &str = "event.elapsed-errors";
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let Some(kind) = Kind::private("elsewhere") else { return crate::case::skip("no private kind") };
    let bent = Face::over(Arc::new(super::Bent::new(env.make()?.driver).of_kind(kind)), env)?;
    let (zero, one) = (runtime.stream(0)?, runtime.stream(1)?);

    let (untimed, foreign) = (plain(runtime)?, plain(&bent.runtime)?);
    let kinds = |error: &Error| matches!(error, Error::EventKinds { .. });
    errs(RULE, "two kinds, untimed, unrecorded", "EventKinds", untimed.elapsed_time(&foreign), kinds)?;

    let on = |device| runtime.event(EventOptions { device: Some(device), ..EventOptions::default() });
    let (here, there) = (on(zero.device())?, on(one.device())?);
    let devices = |error: &Error| matches!(error, Error::EventDevices { .. });
    errs(RULE, "two devices, untimed, unrecorded", "EventDevices", here.elapsed_time(&there), devices)?;
    let (first, second) = (timed(runtime)?, timed(runtime)?);
    first.record(Some(&zero))?;
    second.record(Some(&one))?;
    errs(RULE, "two devices, timed, recorded", "EventDevices", first.elapsed_time(&second), devices)?;

    let disabled = |error: &Error| *error == Error::EventTimingDisabled;
    errs(RULE, "untimed, unrecorded", "EventTimingDisabled", untimed.elapsed_time(&timed(runtime)?), disabled)?;
    errs(RULE, "one of them untimed", "EventTimingDisabled", timed(runtime)?.elapsed_time(&untimed), disabled)?;

    let unrecorded = |error: &Error| *error == Error::EventNotRecorded;
    let hold = face.hold(&zero)?;
    let pending = timed(runtime)?;
    pending.record(Some(&zero))?;
    errs(RULE, "unrecorded", "EventNotRecorded", timed(runtime)?.elapsed_time(&timed(runtime)?), unrecorded)?;
    errs(RULE, "one unrecorded, one pending", "EventNotRecorded", pending.elapsed_time(&timed(runtime)?), unrecorded)?;

    let incomplete = |error: &Error| *error == Error::EventNotCompleted;
    errs(RULE, "pending", "EventNotCompleted", first.elapsed_time(&pending), incomplete)?;
    errs(RULE, "pending, the other way", "EventNotCompleted", pending.elapsed_time(&first), incomplete)?;
    hold.release()?;
    face.finish(&zero)?;
    let between = first.elapsed_time(&pending)?;
    expect(RULE, between >= 0.0, "an answer once both have completed", between)
}

/// Handles of device 0 used while device 1 is current land on device 0, and the other way round.
fn made_under_another_device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (zero, one) = (runtime.stream(0)?, runtime.stream(1)?);
    runtime.set_device_index(1)?;
    let from = runtime.alloc_on(0, 4096)?;
    let to = runtime.alloc_on(1, 4096)?;
    zero.fill(&from.all(), &[0x42])?;
    let event = zero.record_event(None)?;
    same("event.device", "the device of an event recorded under another one", event.device(), Some(zero.device()))?;
    one.wait_event(&event)?;
    one.copy(&to.all(), &from.all())?;
    let copied = one.record_event(None)?;
    zero.wait_event(&copied)?;
    zero.fill(&from.slice(..16)?, &[0])?;
    for (event, stream) in [(&event, &one), (&copied, &zero)] {
        let error = |error: &Error| matches!(error, Error::EventDevice { .. });
        errs("scenario.12", "an event recorded on the other device", "EventDevice", event.record(Some(stream)), error)?;
    }
    let (mut here, mut there) = ([0; 4096], [0; 4096]);
    one.download(&mut there, &to.all())?;
    zero.download(&mut here, &from.all())?;
    same("scenario.12", "what arrived", there.to_vec(), vec![0x42; 4096])?;
    same("scenario.12", "what was changed at its origin", (here[15], here[16]), (0, 0x42))?;
    same("scenario.12", "the current device throughout", runtime.current_device_index()?, 1)
}

fn across_threads(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let hold = face.hold(&stream)?;
    let event = stream.record_event(None)?;
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| event.synchronize_for(face.patience))).collect();
        thread::sleep(MOMENT / 5);
        let early = waiters.iter().any(|waiter| waiter.is_finished());
        hold.release()?;
        same("event.record", "whether a waiter came back early", early, false)?;
        for waiter in waiters {
            let ended = waiter.join();
            expect("thread.any", matches!(ended, Ok(Ok(true))), "each waiter to see the end", words::plain(&ended))?;
        }
        same("event.record", "query in the end", event.query()?, true)
    })
}

/// Recording again and again neither runs out of anything nor mixes anything up.
fn many(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b) = (runtime.stream(())?, runtime.stream(())?);
    let buffer = runtime.zeros(64)?;
    runtime.synchronize(())?;
    let (ping, pong) = (timed(runtime)?, timed(runtime)?);
    for round in 0..3000_u32 {
        a.write(&buffer.slice(..4)?, &round.to_le_bytes())?;
        ping.record(Some(&a))?;
        b.wait_event(&ping)?;
        b.copy(&buffer.slice(8..12)?, &buffer.slice(..4)?)?;
        pong.record(Some(&b))?;
        a.wait_event(&pong)?;
    }
    let mut seen = [0; 4];
    b.download(&mut seen, &buffer.slice(8..12)?)?;
    same("event.record", "the last of 3000 numbers that went to and fro", u32::from_le_bytes(seen), 2999)
}
