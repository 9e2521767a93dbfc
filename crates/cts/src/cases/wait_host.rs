//! H10: host threads that wait.

use crate::case::{Capability, Case, Outcome, expect, fail, same, same_bytes};
use crate::env::Env;
use crate::lab::MOMENT;
use anyaccel_hal::{Until, WaitMode, Waited};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case::hal("wait_host.ended-means-done/auto", &[10], |env| ended_means_done(env, WaitMode::Auto)),
    Case::hal("wait_host.ended-means-done/block", &[10], |env| ended_means_done(env, WaitMode::Block)),
    Case::hal("wait_host.deadline/auto", &[10], |env| deadline(env, WaitMode::Auto)),
    Case::hal("wait_host.deadline/block", &[10], |env| deadline(env, WaitMode::Block)),
    Case::hal("wait_host.without-deadline", &[10], without_deadline).needs(&[Capability::Pinned]),
    Case::hal("wait_host.now-covers-everything", &[10], now_covers_everything).needs(&[Capability::Pinned]),
    Case::hal("wait_host.now-covers-nothing-later", &[10], now_covers_nothing_later),
    Case::hal("wait_host.mark-covers-nothing-later", &[10], mark_covers_nothing_later)
        .needs_captured(&[Capability::Gates]),
    Case::hal("wait_host.idle", &[10], idle),
    Case::hal("wait_host.others-go-on", &[10, 18], others_go_on),
    Case::hal("wait_host.many-waiters", &[10, 18], many_waiters),
];

fn ended_means_done(env: &Env, mode: WaitMode) -> Outcome {
    const LEN: usize = 4 << 20;
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(LEN as u64)?;
    let host = lab.host(&vec![0; LEN])?;
    for round in 1..6_u8 {
        lab.fill(stream, region, round)?;
        lab.download(stream, host, region)?;
        let mark = lab.mark(stream)?;
        let until = if round % 2 == 0 { Until::Now } else { Until::Mark(mark) };
        let waited = lab.wait_host(stream, until, Some(Instant::now() + lab.patience), mode)?;
        same("H10", "the end of a wait for work that ends", waited, Waited::Ended)?;
        let tail = host.part(LEN - 64, 64).look();
        same_bytes("H10", "the end of a big copy after the wait", &tail, &[round; 64])?;
        expect("H10", lab.completed(stream)? >= mark, "completed to have reached the mark", "it has not")?;
    }
    Ok(())
}

fn deadline(env: &Env, mode: WaitMode) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let mark = lab.mark(stream)?;
    for until in [Until::Mark(mark), Until::Now] {
        for wait in [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(40)] {
            let deadline = Instant::now() + wait;
            let waited = lab.wait_host(stream, until, Some(deadline), mode)?;
            let late = Instant::now().checked_duration_since(deadline);
            same("H10", "the end of a wait for held work", waited, Waited::TimedOut)?;
            let Some(late) = late else {
                return fail("H10", format!("no return before the deadline {wait:?} ahead"), "an early return");
            };
            expect("H10", late < lab.patience, "a return soon after the deadline", format!("{late:?} late"))?;
        }
    }
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))
}

fn without_deadline(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let host = lab.host(&[0; 16])?;
    let region = lab.memory(16)?;
    let hold = lab.hold(stream)?;
    lab.fill(stream, region, 1)?;
    lab.download(stream, host, region)?;
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(MOMENT);
            hold.release()
        });
        let waited = lab.wait_host(stream, Until::Now, None, WaitMode::Auto)?;
        same("H10", "the end of a wait without a deadline", waited, Waited::Ended)?;
        same_bytes("H10", "what was copied before the wait's end", &host.look(), &[1; 16])
    })
}

/// Work that no mark follows is part of now.
fn now_covers_everything(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    lab.fill(stream, region, 1)?;
    lab.mark(stream)?;
    lab.finish(stream)?;
    let hold = lab.hold(stream)?;
    let host = lab.host(&[9; 16])?;
    lab.download(stream, host, region)?;
    let waited = lab.wait_host(stream, Until::Now, Some(Instant::now() + MOMENT), WaitMode::Auto)?;
    same("H10", "the end of a wait for held work without a mark", waited, Waited::TimedOut)?;
    same_bytes("H10", "what the held work has not written", &host.look(), &[9; 16])?;
    hold.release()?;
    lab.finish(stream)?;
    same_bytes("H10", "what the work has written", &host.look(), &[1; 16])
}

fn now_covers_nothing_later(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let (waits, waiting) = mpsc::channel();
    let patience = lab.patience;
    thread::scope(|scope| {
        let lab = &lab;
        let waiter = scope.spawn(move || {
            let _started = waits.send(());
            lab.wait_host(stream, Until::Now, Some(Instant::now() + patience / 2), WaitMode::Auto)
        });
        // The other thread sends before it waits; then it gets a moment to be inside.
        let _started = waiting.recv();
        thread::sleep(MOMENT);
        let later = lab.hold(stream)?;
        hold.release()?;
        let waited = waiter.join().unwrap_or(Ok(Waited::TimedOut))?;
        same("H10", "the end of a wait that later work does not concern", waited, Waited::Ended)?;
        later.release()
    })
}

fn mark_covers_nothing_later(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    lab.fill(stream, region, 1)?;
    let mark = lab.mark(stream)?;
    let hold = lab.hold(stream)?;
    lab.mark(stream)?;
    for mode in [WaitMode::Auto, WaitMode::Block] {
        let waited = lab.wait_host(stream, Until::Mark(mark), Some(Instant::now() + lab.patience), mode)?;
        same("H10", "the end of a wait for a mark before held work", waited, Waited::Ended)?;
    }
    hold.release()
}

fn idle(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    for mode in [WaitMode::Auto, WaitMode::Block] {
        let waited = lab.wait_host(stream, Until::Now, None, mode)?;
        same("H10", "the end of a wait for a stream without work", waited, Waited::Ended)?;
    }
    let mark = lab.mark(stream)?;
    lab.finish(stream)?;
    let waited = lab.wait_host(stream, Until::Mark(mark), None, WaitMode::Auto)?;
    same("H10", "the end of a wait for an ended mark", waited, Waited::Ended)
}

fn others_go_on(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (held, free) = (lab.stream()?, lab.stream()?);
    let hold = lab.hold(held)?;
    let mark = lab.mark(held)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lab.reach(held, Until::Mark(mark)));
        thread::sleep(Duration::from_millis(5));
        let region = lab.memory(64)?;
        lab.fill(free, region, 2)?;
        let seen = lab.read(free, region)?;
        same_bytes("H10", "another stream's work while a thread waits", &seen, &[2; 64])?;
        lab.write(held, region, &[3])?;
        let more = lab.stream()?;
        lab.finish(more)?;
        expect("H10", !waiter.is_finished(), "the waiter to wait still", "it has returned")?;
        hold.release()?;
        waiter.join().unwrap_or(Ok(()))
    })
}

fn many_waiters(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let mut marks = Vec::new();
    for _ in 0..8 {
        lab.call(stream, |_| ())?;
        marks.push(lab.mark(stream)?);
    }
    thread::scope(|scope| {
        let waiters: Vec<_> = marks
            .iter()
            .rev()
            .map(|&mark| {
                let lab = &lab;
                scope.spawn(move || {
                    lab.reach(stream, Until::Mark(mark))?;
                    let ended = lab.completed(stream)?;
                    expect("H10", ended >= mark, "the awaited mark to have ended", format!("completed says {ended}"))
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(5));
        hold.release()?;
        waiters.into_iter().try_for_each(|waiter| waiter.join().unwrap_or(Ok(())))
    })
}
