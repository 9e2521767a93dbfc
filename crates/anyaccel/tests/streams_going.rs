//! Streams that go while other threads wait for their work, on host devices; an address sanitizer sees what a wait that
//! comes too late touches, and without one it waits for ever.

use anyaccel::{Runtime, StreamOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RESERVED: StreamOptions = StreamOptions { priority: 0, reserved: true };

fn host() -> Runtime {
    Runtime::builder().backend("host").build().expect("it is built in")
}

#[test]
fn a_trim_waits_for_streams_that_are_being_destroyed() {
    let runtime = host();
    let (end, stop) = (Instant::now() + Duration::from_secs(2), AtomicBool::new(false));
    let until_stop = |step: &(dyn Fn() + Sync)| {
        while !stop.load(Ordering::Relaxed) {
            step();
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| until_stop(&|| drop(runtime.stream_with((), RESERVED).unwrap())));
        }
        threads.spawn(|| until_stop(&|| runtime.empty_cache().unwrap()));
        threads.spawn(|| {
            while Instant::now() < end {
                let stream = runtime.stream_with((), RESERVED).unwrap();
                let buffer = runtime.alloc(4096).unwrap();
                stream.fill(&buffer.all(), &[1]).unwrap();
                stream.host_fn(|| std::thread::sleep(Duration::from_micros(20))).unwrap();
                stream.fill(&buffer.all(), &[2]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    runtime.synchronize(()).unwrap();
    runtime.empty_cache().unwrap();
    assert_eq!(runtime.memory_reserved(()).unwrap(), 0);
}

#[test]
fn observers_of_out_of_memory_may_allocate_drop_and_trim() {
    let runtime = host();
    runtime.set_memory_budget(Some(4 << 20), ()).unwrap();
    let kept = std::sync::Mutex::new(vec![runtime.alloc(1 << 20).unwrap(), runtime.alloc(1 << 20).unwrap()]);
    // An observer that holds its runtime keeps it for ever, so what it holds is taken away in the end.
    let held = std::sync::Arc::new(std::sync::Mutex::new(Some(runtime.clone())));
    let (lent, depth) = (held.clone(), std::sync::atomic::AtomicU32::new(0));
    runtime.attach_out_of_memory_observer(move |_, _| {
        let Some(inside) = lent.lock().unwrap().clone() else { return };
        if depth.fetch_add(1, Ordering::Relaxed) < 3 {
            assert!(inside.alloc(1 << 30).is_err());
        }
        drop(kept.lock().unwrap().pop());
        inside.empty_cache().unwrap();
        inside.attach_out_of_memory_observer(|_, _| ());
        drop(inside.stream_with((), RESERVED).unwrap());
    });
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for _ in 0..30 {
                    assert!(runtime.alloc(1 << 30).is_err());
                }
            });
        }
    });
    let all: Vec<_> = (0..4).map(|_| runtime.alloc(1 << 20)).collect();
    assert!(all.iter().all(Result::is_ok), "the observer made room for all of the budget");
    held.lock().unwrap().take();
}
