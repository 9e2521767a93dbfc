//! H7 and H9: marks, and what `completed` says of them.

use crate::case::{Capability, Case, Outcome, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::Stream;
use anyaccel_hal::Until;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::hal("marks.rise", &[7], rise),
    Case::hal("marks.rise/threads", &[7, 18], rise_across_threads),
    Case::hal("marks.none-before-the-first", &[9], none_before_the_first),
    Case::hal("marks.not-early", &[7, 9], not_early),
    Case::hal("marks.not-early/each", &[9], each_in_its_turn).needs_captured(&[Capability::Gates]),
    Case::hal("marks.end-behind-work", &[7], end_behind_work),
    Case::hal("marks.at-most-given", &[9], at_most_given),
    Case::hal("marks.reached-in-the-end", &[9], reached_in_the_end),
    Case::hal("marks.never-fall", &[9], never_fall),
    Case::hal("marks.per-stream", &[7, 9], per_stream),
];

fn rise(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(3)?;
    let region = lab.memory(3)?;
    let mut last = [0; 3];
    for round in 0..1000_u32 {
        for (at, &stream) in streams.iter().enumerate() {
            if round % 3 == 0 {
                lab.write(stream, region.part(at as u64, 1), &[1])?;
            }
            let mark = lab.mark(stream)?;
            expect("H7", mark > last[at], "each mark above the one before", format!("{mark} after {}", last[at]))?;
            last[at] = mark;
        }
    }
    Ok(())
}

fn rise_across_threads(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..200).map(|_| lab.mark(stream)).collect::<Outcome<Vec<u64>>>())).collect();
        let mut all = Vec::new();
        for thread in threads {
            let marks = thread.join().unwrap_or_else(|_| Ok(Vec::new()))?;
            expect("H7", marks.is_sorted(), "marks that rise on each thread", "they do not")?;
            all.extend(marks);
        }
        Ok::<_, crate::case::Stop>(all)
    })?;
    all.sort_unstable();
    all.dedup();
    same("H7", "different marks given to 4 threads", all.len(), 800)?;
    lab.finish(stream)?;
    let ended = lab.completed(stream)?;
    expect("H9", ended >= all[799], "completed to reach the last mark", format!("{ended} of {}", all[799]))
}

fn none_before_the_first(env: &Env) -> Outcome {
    let lab = env.lab()?;
    for _ in 0..5 {
        let stream = lab.stream()?;
        same("H9", "completed of a new stream", lab.completed(stream)?, 0)?;
        lab.mark(stream)?;
        lab.finish(stream)?;
    }
    Ok(())
}

fn not_early(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let mark = lab.mark(stream)?;
    lab.not_ended("H9", stream, mark, "the stream is held up")?;
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))?;
    same("H9", "completed once the mark has ended", lab.completed(stream)?, mark)
}

fn each_in_its_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let mut holds = Vec::new();
    let mut marks = vec![lab.mark(stream)?];
    for _ in 0..4 {
        holds.push(lab.hold(stream)?);
        marks.push(lab.mark(stream)?);
    }
    for (at, hold) in holds.into_iter().enumerate() {
        lab.reach(stream, Until::Mark(marks[at]))?;
        lab.not_ended("H9", stream, marks[at + 1], "the stream is held up before it")?;
        same("H9", "completed between two holds", lab.completed(stream)?, marks[at])?;
        hold.release()?;
    }
    lab.reach(stream, Until::Mark(marks[4]))
}

/// Ended means that the work before is done, not that it has begun.
fn end_behind_work(env: &Env) -> Outcome {
    const BIG: usize = 8 << 20;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(BIG as u64)?;
    let host = lab.host(&vec![0; BIG])?;
    for round in 1..8_u8 {
        lab.fill(stream, region, round)?;
        lab.download(stream, host, region)?;
        let mark = lab.mark(stream)?;
        while lab.completed(stream)? < mark {
            thread::yield_now();
        }
        let tail = host.part(BIG - 64, 64).look();
        same_bytes("H7", "the end of a big copy when its mark has ended", &tail, &[round; 64])?;
    }
    Ok(())
}

fn at_most_given(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let mut last = 0;
    for _ in 0..200 {
        lab.call(stream, |_| ())?;
        let ended = lab.completed(stream)?;
        expect("H9", ended <= last, "completed at most the last mark given", format!("{ended} after {last}"))?;
        last = lab.mark(stream)?;
    }
    Ok(())
}

fn reached_in_the_end(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(1 << 16)?;
    for _ in 0..50 {
        lab.fill(stream, region, 3)?;
        lab.mark(stream)?;
    }
    let last = lab.mark(stream)?;
    lab.finish(stream)?;
    // A wait may have made a mark of its own.
    let ended = lab.completed(stream)?;
    expect("H9", ended >= last, "completed to reach the last mark", format!("{ended} of {last}"))
}

fn never_fall(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    let (over, looks) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut highest = 0;
            while !over.load(Ordering::Acquire) {
                let ended = lab.completed(stream)?;
                looks.fetch_add(1, Ordering::Relaxed);
                expect("H9", ended >= highest, "completed not to fall", format!("{ended} after {highest}"))?;
                highest = ended;
            }
            Ok(())
        });
        let work = || -> Outcome {
            // Long enough to be watched.
            for round in 0..20_000 {
                if round >= 300 && (looks.load(Ordering::Relaxed) >= 300 || watcher.is_finished()) {
                    break;
                }
                lab.fill(stream, region, 1)?;
                lab.mark(stream)?;
                thread::yield_now();
            }
            lab.finish(stream)
        };
        let worked = work();
        over.store(true, Ordering::Release);
        let watched = watcher.join().unwrap_or(Ok(()));
        worked.and(watched)
    })
}

fn per_stream(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let hold = lab.hold(a)?;
    let held = lab.mark(a)?;
    let several = |stream: Stream| -> Outcome<u64> {
        (0..50).try_for_each(|_| lab.mark(stream).map(drop))?;
        lab.mark(stream)
    };
    let last = several(b)?;
    lab.reach(b, Until::Mark(last))?;
    same("H9", "completed of the free stream", lab.completed(b)?, last)?;
    expect("H9", lab.completed(a)? < held, "the held stream's mark not to have ended", "it has")?;
    hold.release()?;
    lab.reach(a, Until::Mark(held))
}
