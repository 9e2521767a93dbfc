//! Waits that are given up: they end at once, nothing is lost, and the work goes on.
#![cfg(feature = "host")]

use anyaccel::{Error, EventOptions, GraphOptions, Runtime, Stream, interruptible};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

fn at_once() -> bool {
    true
}

fn interrupted<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Interrupted { .. }))
}

/// Holds a stream up until the sender is dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (open, gate) = channel::<()>();
    stream
        .host_fn(move || {
            let _closed = gate.recv();
        })
        .unwrap();
    open
}

#[test]
fn every_wait_can_be_given_up() {
    let runtime = Runtime::builder().backend("host").build().unwrap();
    let stream = runtime.stream(()).unwrap();
    let _current = stream.enter().unwrap();
    let buffer = runtime.alloc(1 << 20).unwrap();
    let (mut into, mut from) = (runtime.pinned(64).unwrap(), runtime.pinned(64).unwrap());
    let part = buffer.slice(0..64).unwrap();
    let open = hold(&stream);
    let event = runtime.event(EventOptions::default()).unwrap();
    event.record(Some(&stream)).unwrap();
    stream.fill(&part, &[7]).unwrap();
    stream.upload_pinned(&part, &from, 0).unwrap();
    stream.fill(&part, &[7]).unwrap();
    stream.download_pinned(&mut into, 0, &part).unwrap();
    let mut bytes = vec![1_u8; 1 << 20];
    assert!(interrupted(&interruptible(at_once, || stream.synchronize())));
    assert!(interrupted(&interruptible(at_once, || runtime.synchronize(()))));
    assert!(interrupted(&interruptible(at_once, || event.synchronize())));
    assert!(interrupted(&interruptible(at_once, || stream.download(&mut bytes, &buffer.all()))));
    assert!(interrupted(&interruptible(at_once, || stream.upload(&buffer.all(), &bytes))));
    assert!(interrupted(&interruptible(at_once, || into.as_slice().map(<[u8]>::len))));
    assert!(interrupted(&interruptible(at_once, || into.with(<[u8]>::len))));
    assert!(interrupted(&interruptible(at_once, || from.as_mut_slice().map(|bytes| bytes.len()))));
    assert!(interrupted(&interruptible(at_once, || from.with_mut(|bytes| bytes.len()))));
    assert!(bytes.iter().all(|&byte| byte == 1), "a copy that was given up never began");
    drop(open);
    assert_eq!(into.as_slice().unwrap(), [7; 64]);
    from.as_mut_slice().unwrap().fill(1);
    stream.synchronize().unwrap();
}

#[test]
fn an_empty_cache_that_is_given_up_keeps_what_it_did_not_give_back() {
    let runtime = Runtime::builder().backend("host").build().unwrap();
    let (stream, other) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
    let buffer = {
        let _current = stream.enter().unwrap();
        runtime.alloc(32 << 20).unwrap()
    };
    let open = hold(&other);
    other.fill(&buffer.all(), &[1]).unwrap();
    drop(buffer);
    let reserved = runtime.memory_reserved(()).unwrap();
    assert!(interrupted(&interruptible(at_once, || runtime.empty_cache())));
    assert_eq!(runtime.memory_reserved(()).unwrap(), reserved);
    drop(open);
    runtime.empty_cache().unwrap();
    assert_eq!(runtime.memory_reserved(()).unwrap(), 0);
}

#[test]
fn pinned_memory_of_a_graph() {
    let runtime = Runtime::builder().backend("host").build().unwrap();
    let stream = runtime.stream(()).unwrap();
    let _current = stream.enter().unwrap();
    let buffer = runtime.alloc(64).unwrap();
    let mut pinned = runtime.pinned(64).unwrap();
    stream.fill(&buffer.all(), &[3]).unwrap();
    let graph = runtime.graph(GraphOptions::default());
    graph.capture_begin().unwrap();
    stream.download_pinned(&mut pinned, 0, &buffer.all()).unwrap();
    graph.capture_end().unwrap();
    let open = hold(&stream);
    graph.replay().unwrap();
    assert!(interrupted(&interruptible(at_once, || pinned.with(<[u8]>::len))));
    drop(open);
    assert!(pinned.with(|bytes| bytes.iter().all(|&byte| byte == 3)).unwrap());
    graph.replay().unwrap();
}

#[test]
fn a_wait_that_is_not_stopped_ends_by_itself_and_nested_scopes_ask_the_inner_one() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    fn after_three() -> bool {
        ASKED.fetch_add(1, Ordering::Relaxed) >= 2
    }
    fn never() -> bool {
        false
    }
    let runtime = Runtime::builder().backend("host").build().unwrap();
    let stream = runtime.stream(()).unwrap();
    interruptible(at_once, || stream.synchronize()).unwrap();
    let open = hold(&stream);
    assert!(interrupted(&interruptible(after_three, || stream.synchronize())));
    assert_eq!(ASKED.load(Ordering::Relaxed), 3);
    let timed = interruptible(never, || stream.synchronize_for(std::time::Duration::from_millis(120)));
    assert!(!timed.unwrap());
    let closer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(120));
        drop(open);
    });
    interruptible(at_once, || interruptible(never, || stream.synchronize())).unwrap();
    closer.join().unwrap();
}
