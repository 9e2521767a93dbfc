//! Events of several processes, as two runtimes stand for them here.

use crate::lab::{PATIENCE, eventually};
use anyaccel::{Error, EventOptions, GraphOptions, Runtime, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const SHARED: EventOptions = EventOptions { device: None, enable_timing: false, blocking: false, interprocess: true };
/// Long enough for what must not happen to happen.
const WHILE: Duration = Duration::from_millis(20);

fn runtime() -> Runtime {
    Runtime::builder().backend("cuda").build().expect("a runtime")
}

/// Holds a stream up until the sender is dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (go, gone) = channel::<()>();
    let wait = move || while gone.recv().is_ok() {};
    stream.host_fn(wait).expect("a host function");
    go
}

/// Whether a stream has come to where it is now.
fn flag(stream: &Stream) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let inside = flag.clone();
    stream.host_fn(move || inside.store(true, Ordering::SeqCst)).expect("a host function");
    flag
}

pub(super) fn recorded_on_either_side() {
    let (ours, theirs) = (runtime(), runtime());
    let event = ours.event(SHARED).expect("an event");
    let handle = event.ipc_handle().expect("a handle");
    assert_eq!(handle.len(), 64);
    assert_eq!(event.ipc_handle().expect("a handle"), handle, "the same event");
    let same = theirs.event_from_ipc_handle(0, &handle).expect("the event");
    assert_eq!((same.device(), same.options().interprocess), (event.device(), true));

    let (one, two) = (ours.stream(0).expect("a stream"), theirs.stream(0).expect("a stream"));
    let far = theirs.stream(1).expect("a stream of another device");
    same.wait(Some(&two)).expect("nothing was recorded");
    eventually("an event that was never recorded is no reason to wait", || same.query().expect("an answer"));
    assert!(same.synchronize_for(PATIENCE).expect("an end"));

    let held = hold(&one);
    event.record(Some(&one)).expect("a record");
    same.wait(Some(&two)).expect("a wait");
    same.wait(Some(&far)).expect("a wait of another device");
    let reached = [flag(&two), flag(&far)];
    assert!(!same.query().expect("an answer") && !event.query().expect("an answer"));
    assert!(!same.synchronize_for(WHILE).expect("an answer"), "our stream is held up");
    assert!(!event.synchronize_for(WHILE).expect("an answer"));
    assert!(reached.iter().all(|flag| !flag.load(Ordering::SeqCst)));
    drop(held);
    assert!(same.synchronize_for(PATIENCE).expect("an end") && event.synchronize_for(PATIENCE).expect("an end"));
    for (stream, flag) in [(&two, &reached[0]), (&far, &reached[1])] {
        assert!(stream.synchronize_for(PATIENCE).expect("an end") && flag.load(Ordering::SeqCst));
    }
    eventually("both sides see its end", || same.query().expect("an answer") && event.query().expect("an answer"));

    // Recorded by the other side, it stands for that.
    let held = hold(&two);
    same.record(Some(&two)).expect("a record");
    event.wait(Some(&one)).expect("a wait");
    let reached = flag(&one);
    assert!(!event.query().expect("an answer"), "our own recording has ended, theirs has not");
    assert!(!event.synchronize_for(WHILE).expect("an answer") && !reached.load(Ordering::SeqCst));
    drop(held);
    assert!(event.synchronize_for(PATIENCE).expect("an end") && one.synchronize_for(PATIENCE).expect("an end"));
    assert!(reached.load(Ordering::SeqCst));

    // Who has it goes on when the other lets it go, in a host function too.
    one.host_fn(move || drop(event)).expect("a host function");
    assert!(one.synchronize_for(PATIENCE).expect("an end"));
    ours.synchronize(0).expect("an end");
    same.record(Some(&two)).expect("a record");
    assert!(same.synchronize_for(PATIENCE).expect("an end"));
}

pub(super) fn refused() {
    let runtime = runtime();
    let stream = runtime.stream(0).expect("a stream");
    let plain = runtime.event(EventOptions::default()).expect("an event");
    let Err(error) = plain.ipc_handle() else { panic!("it was not made for that") };
    assert!(matches!(error, Error::Argument { argument: "event", .. }), "{error}");
    for (handle, words) in [(&[1; 3][..], "3 bytes"), (&[], "0 bytes"), (&[1; 64], "Event.from_ipc_handle")] {
        let Err(error) = runtime.event_from_ipc_handle(0, handle) else { panic!("no handle") };
        assert!(error.to_string().contains(words), "{error}");
    }
    let event = runtime.event(SHARED).expect("an event");
    let graph = runtime.graph(GraphOptions::default());
    graph.capture_begin().expect("a capture");
    let inside = runtime.current_stream(0).expect("the captured stream");
    let recorded = event.record(Some(&inside));
    graph.capture_end().expect("its end");
    assert!(matches!(recorded, Err(Error::Unsupported { .. })), "{recorded:?}");
    assert_eq!((event.event_id(), event.device()), (0, None), "nothing was recorded");
    event.ipc_handle().expect("a handle, for the current device");
    let other = runtime.stream(1).expect("a stream");
    assert!(matches!(event.record(Some(&other)), Err(Error::EventDevice { .. })));
    event.record(Some(&stream)).expect("a record");
    assert!(event.synchronize_for(PATIENCE).expect("an end"));
}

pub(super) fn unshared() {
    let runtime = runtime();
    let refused = |result: Result<(), Error>| match result {
        Err(Error::EventOption { option: "interprocess", .. }) => {}
        other => panic!("{other:?}"),
    };
    // Not known before the device is open.
    let event = runtime.event(SHARED).expect("an event");
    refused(event.record(None));
    refused(event.ipc_handle().map(drop));
    refused(runtime.event(SHARED).map(drop));
    refused(runtime.event_from_ipc_handle(0, &[1; 64]).map(drop));
    runtime.event(EventOptions::default()).expect("an event").record(None).expect("a record");
}
