//! What the face costs on the host device: `cargo bench -p anyaccel --bench face`.
//!
//! Each figure is the best of several rounds, beside a baseline measured in the same run. Absolute times on a shared
//! machine are noise; the ratio is what to look at.

use anyaccel::{EventOptions, Runtime, StreamOptions};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

const ROUNDS: usize = 15;

/// The best and the median of several rounds of `n` calls, in nanoseconds a call.
fn measure(n: usize, mut round: impl FnMut(usize)) -> (f64, f64) {
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round(n);
            start.elapsed().as_nanos() as f64 / n as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[ROUNDS / 2])
}

fn line(what: &str, (best, median): (f64, f64), goal: &str, beside: &str, baseline: Option<f64>) {
    let ratio = baseline.map_or(String::new(), |base| format!("{:>7.2}x {beside} ({base:.1} ns)", best / base));
    println!("{what:<44} {best:>10.1} {median:>10.1}   {goal:<12} {ratio}");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// A round trip to a parked thread and back.
fn park_round_trip() -> f64 {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let main = thread::current();
    let other = thread::spawn(move || {
        loop {
            match TURN.load(Ordering::Acquire) {
                1 => {
                    TURN.store(0, Ordering::Release);
                    main.unpark();
                }
                2 => return,
                _ => thread::park(),
            }
        }
    });
    let (_, median) = measure(2_000, |n| {
        for _ in 0..n {
            TURN.store(1, Ordering::Release);
            other.thread().unpark();
            while TURN.load(Ordering::Acquire) == 1 {
                thread::park();
            }
        }
    });
    TURN.store(2, Ordering::Release);
    other.thread().unpark();
    other.join().expect("the parked thread ends");
    median
}

/// A message to a thread that answers.
fn channel_send() -> f64 {
    let (sender, receiver) = crossbeam_channel::unbounded::<[u64; 6]>();
    let worker = thread::spawn(move || receiver.into_iter().fold(0, |sum: u64, message| sum.wrapping_add(message[0])));
    let (best, _) = measure(10_000, |n| {
        for i in 0..n {
            sender.send([i as u64; 6]).expect("the worker lives");
        }
    });
    drop(sender);
    black_box(worker.join().expect("the worker ends"));
    best
}

fn std_channel_round_trip() -> f64 {
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    let worker = thread::spawn(move || asked.into_iter().for_each(|answer| answer.send(()).expect("the asker lives")));
    let (answer, answered) = mpsc::channel();
    let (_, median) = measure(2_000, |n| {
        for _ in 0..n {
            ask.send(answer.clone()).expect("the worker lives");
            answered.recv().expect("the worker answers");
        }
    });
    drop(ask);
    worker.join().expect("the worker ends");
    median
}

fn main() -> anyaccel::Result<()> {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("ANYACCEL_BACKEND", "host") };
    let runtime = Runtime::global();
    let stream = runtime.stream(())?;
    let other = runtime.stream(())?;
    let buffer = runtime.zeros(4096)?;
    runtime.synchronize(())?;

    println!("{:<44} {:>10} {:>10}   {:<12} ratio of the best", "ns a call", "best", "median", "goal");

    thread_local!(static CELL: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let (cell, _) = measure(1_000_000, |n| (0..n).for_each(|_| CELL.with(|cell| cell.set(black_box(cell.get() + 1)))));
    let beside = "a thread-local cell";
    line(
        "current_stream",
        measure(1_000_000, |n| {
            (0..n).for_each(|_| {
                black_box(runtime.current_stream(()).is_ok());
            })
        }),
        "<= 10",
        beside,
        Some(cell),
    );
    line(
        "anyaccel::current_stream (free function)",
        measure(1_000_000, |n| {
            (0..n).for_each(|_| {
                black_box(anyaccel::current_stream(()).is_ok());
            })
        }),
        "<= 10",
        beside,
        Some(cell),
    );
    line(
        "set_stream",
        measure(1_000_000, |n| {
            (0..n).for_each(|_| {
                black_box(runtime.set_stream(&stream).is_ok());
            })
        }),
        "<= 10",
        beside,
        Some(cell),
    );
    line(
        "device_index(0), entered and left",
        measure(1_000_000, |n| {
            (0..n).for_each(|_| {
                black_box(runtime.device_index(0).is_ok());
            })
        }),
        "<= 10",
        beside,
        Some(cell),
    );
    line(
        "stream entered and left",
        measure(1_000_000, |n| {
            (0..n).for_each(|_| {
                black_box(stream.enter().is_ok());
            })
        }),
        "",
        beside,
        Some(cell),
    );

    let target = buffer.slice(0..8)?;
    let send = channel_send();
    let mut enqueue = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..10_000 {
            stream.fill(&target, &[1])?;
        }
        enqueue.push(start.elapsed().as_nanos() as f64 / 10_000.0);
        stream.synchronize()?;
    }
    enqueue.sort_by(f64::total_cmp);
    line("fill of 8 bytes, enqueued", (enqueue[0], enqueue[ROUNDS / 2]), "<= 100", "a crossbeam send", Some(send));

    let park = park_round_trip();
    let answer = std_channel_round_trip();
    let waited = measure(5_000, |n| {
        for _ in 0..n {
            stream.fill(&target, &[1]).and_then(|()| stream.synchronize()).expect("the host device fills");
        }
    });
    line("fill of 8 bytes, and wait", (waited.0, waited.1), "<= 1500", "a channel round trip", Some(answer));

    let called = measure(2_000, |n| {
        for _ in 0..n {
            stream.host_fn(|| ()).and_then(|()| stream.synchronize()).expect("the function runs");
        }
    });
    line("host function, and wait (median to median)", (called.1, called.1), "<= 1.3x", "park/unpark", Some(park));

    let event = runtime.event(EventOptions::default())?;
    let hop = measure(10_000, |n| {
        for _ in 0..n / 2 {
            event.record(Some(&stream)).and_then(|()| event.wait(Some(&other))).expect("the host device orders");
            event.record(Some(&other)).and_then(|()| event.wait(Some(&stream))).expect("the host device orders");
        }
        stream.synchronize().and_then(|()| other.synchronize()).expect("the streams end");
    });
    line("event recorded, waited for on another stream", hop, "<= 500", "a crossbeam send", Some(send));

    let before = resident_bytes();
    let reserved = StreamOptions { reserved: true, ..StreamOptions::default() };
    let streams = (0..10_000).map(|_| runtime.stream_with((), reserved)).collect::<anyaccel::Result<Vec<_>>>()?;
    for stream in &streams {
        stream.fill(&target, &[2])?;
    }
    runtime.synchronize(())?;
    let grown = resident_bytes().saturating_sub(before);
    let (size, each) = (grown as f64 / (1 << 20) as f64, grown / 10_000);
    println!("10,000 streams alive and used: {size:.1} MiB resident (goal < 100 MB), {each} bytes each");
    Ok(())
}
