//! H18: any call from any thread.

use crate::case::{Case, Outcome, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::{Lab, bytes};
use crate::random::Random;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::hal("threads.one-stream", &[6, 18], one_stream),
    Case::hal("threads.a-stream-each", &[18], a_stream_each),
    Case::hal("threads.create-and-destroy", &[2, 18], create_and_destroy),
    Case::hal("threads.alloc-and-free", &[3, 18], alloc_and_free),
    Case::hal("threads.waits-across", &[8, 18], waits_across),
    Case::hal("threads.handed-over", &[18], handed_over),
];

const THREADS: usize = 6;

/// Runs it on several threads at once; the first failure counts.
fn together(run: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|at| {
                let (start, run) = (&start, &run);
                scope.spawn(move || {
                    start.wait();
                    run(at)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => crate::case::fail("H18", "no panic on any thread", "a panic"),
        })
    })
}

/// All threads enqueue on one stream: nothing is lost, and each thread's own order is kept.
fn one_stream(env: &Env) -> Outcome {
    const EACH: usize = 150;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64 * THREADS as u64)?;
    let log = Arc::new(Mutex::new(Vec::new()));
    together(|at| {
        let own = region.part(64 * at as u64, 64);
        for step in 0..EACH {
            lab.write(stream, own, &[step as u8; 64])?;
            let log = log.clone();
            lab.call(stream, move |_| log.lock().unwrap_or_else(PoisonError::into_inner).push((at, step)))?;
        }
        Ok(())
    })?;
    let seen = lab.read(stream, region)?;
    same_bytes("H18", "the last write of each thread", &seen, &[EACH as u8 - 1; 64 * THREADS])?;
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    same("H18", "host functions of all threads", log.len(), EACH * THREADS)?;
    for at in 0..THREADS {
        let own: Vec<usize> = log.iter().filter(|entry| entry.0 == at).map(|entry| entry.1).collect();
        same("H18", "the order of one thread's host functions", own, (0..EACH).collect())?;
    }
    Ok(())
}

fn a_stream_each(env: &Env) -> Outcome {
    let lab = env.lab()?;
    together(|at| {
        let stream = lab.stream()?;
        for round in 0..20_u64 {
            let content = bytes(round * 100 + at as u64, 5000);
            let first = lab.memory_with(stream, &content)?;
            let second = lab.memory(5000)?;
            lab.copy(stream, second, first)?;
            lab.mark(stream)?;
            same_bytes("H18", "one thread's own copies", &lab.read(stream, second)?, &content)?;
            for region in [first, second] {
                lab.free(0, region.place.mem)?;
            }
        }
        Ok(())
    })
}

fn create_and_destroy(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let all = Mutex::new(Vec::new());
    together(|_| {
        for _ in 0..60 {
            let stream = lab.stream()?;
            lab.call(stream, |_| ())?;
            all.lock().unwrap_or_else(PoisonError::into_inner).push(stream.id);
            lab.finish(stream)?;
            lab.destroy(stream)?;
        }
        Ok(())
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_unstable();
    all.dedup();
    same("H2", "different streams made by all threads", all.len(), 60 * THREADS)
}

fn alloc_and_free(env: &Env) -> Outcome {
    let lab = env.lab()?;
    together(|at| {
        let stream = lab.stream()?;
        let mut random = Random::new(env.seed.wrapping_add(at as u64));
        for _ in 0..60 {
            let len = random.within(1, 20_000);
            let region = lab.memory(len)?;
            lab.fill(stream, region, at as u8)?;
            same_bytes("H3", "one thread's own memory", &lab.read(stream, region)?, &vec![at as u8; len as usize])?;
            lab.free(0, region.place.mem)?;
        }
        Ok(())
    })
}

/// Each thread waits for the others' streams while they go on.
fn waits_across(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(THREADS)?;
    together(|at| {
        let mut random = Random::new(env.seed ^ at as u64);
        for _ in 0..100 {
            let other = *random.one_of(&streams);
            let mark = lab.mark(other)?;
            lab.wait(streams[at], other, mark)?;
            lab.call(streams[at], |_| ())?;
        }
        lab.finish(streams[at])
    })
}

/// A stream made, used and waited for by three threads in turn.
fn handed_over(env: &Env) -> Outcome {
    fn on_a_thread<T: Send>(run: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
        thread::scope(|scope| {
            scope.spawn(run).join().unwrap_or_else(|_| crate::case::fail("H18", "no panic", "a panic"))
        })
    }
    let lab: Lab = env.lab()?;
    let stream = on_a_thread(|| Ok(lab.stream()?))?;
    let host = lab.host(&[0; 64])?;
    let mark = on_a_thread(|| {
        let region = lab.memory(64)?;
        lab.fill(stream, region, 4)?;
        lab.download(stream, host, region)?;
        lab.mark(stream)
    })?;
    on_a_thread(|| lab.reach(stream, anyaccel_hal::Until::Mark(mark)))?;
    same_bytes("H18", "what another thread enqueued", &host.look(), &[4; 64])?;
    expect("H18", lab.completed(stream)? >= mark, "the mark to have ended", "it has not")
}
