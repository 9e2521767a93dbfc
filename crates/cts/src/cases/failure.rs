//! H19, H20: refused calls leave no trace, and a lost device lets go of everything.

use super::host_fn::Fate;
use crate::case::{Capability, Case, Outcome, expect, fail, refused, same, same_bytes, skip};
use crate::env::Env;
use crate::lab::{Lab, Stream};
use crate::words::plain;
use anyaccel_hal::{Fault, FaultKind, Until, WaitMode, Waited};
use std::thread;
use std::time::Instant;

const LOSE: &[Capability] = &[Capability::LoseDevice];

pub(super) const CASES: &[Case] = &[
    Case::hal("failure.refused-calls-leave-no-trace", &[19], refused_calls_leave_no_trace),
    Case::hal("failure.failed-work-is-told-once", &[33], failed_work_is_told_once).needs(&[Capability::FailWork]),
    Case::hal("failure.failed-work-lets-go", &[13, 33], failed_work_lets_go).needs(&[Capability::FailWork]),
    Case::hal("failure.lost-for-good", &[20], lost_for_good).needs(LOSE),
    Case::hal("failure.lost-ends-marks-and-waits", &[20], lost_ends_marks_and_waits).needs(LOSE),
    Case::hal("failure.lost-cancels-functions", &[13, 20], lost_cancels_functions).needs(LOSE),
    Case::hal("failure.lost-gives-back", &[20], lost_gives_back).needs(LOSE),
    Case::hal("failure.lost-alone", &[20], lost_alone).needs(LOSE).devices(2),
];

/// Calls that every device refuses, among work that must not notice.
fn refused_calls_leave_no_trace(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(128)?;
    lab.fill(stream, region, 1)?;
    let (one, two) = (lab.plain(&[1; 8]), lab.plain(&[2; 8]));
    let hold = lab.hold(stream)?;
    let mut last = lab.mark(stream)?;
    for round in 0..20_u8 {
        lab.write(stream, region, &[round; 64])?;
        refused("H19", "a write of 65 bytes", lab.write(stream, region, &[99; 65]), FaultKind::Invalid)?;
        refused("H19", "a copy on the host", lab.copy_on_host(stream, one, two), FaultKind::Invalid)?;
        refused("H19", "alloc(0)", lab.segment(0, 0), FaultKind::Invalid)?;
        let mark = lab.mark(stream)?;
        expect("H19", mark > last, "marks that rise past refused calls", format!("{mark} after {last}"))?;
        last = mark;
    }
    hold.release()?;
    lab.reach(stream, Until::Mark(last))?;
    same_bytes("H19", "the source of refused copies", &two.look(), &[2; 8])?;
    same_bytes("H19", "memory behind refused writes", &lab.read(stream, region.from(65))?, &[1; 63])
}

/// A lab, and how to make the next operation of a stream fail.
fn failing(env: &Env) -> Outcome<(Lab, impl Fn(Stream))> {
    let made = env.make()?;
    let Some(fail) = made.fail_work else { return skip("no way to make work fail on demand") };
    let lab = Lab::open(made.driver, env.devices, env.patience)?;
    Ok((lab, move |stream: Stream| fail(stream.id, Fault::new(FaultKind::Driver, "the suite").code(77))))
}

fn failed_work_is_told_once(env: &Env) -> Outcome {
    let (lab, fail) = failing(env)?;
    let (stream, other) = (lab.stream()?, lab.stream()?);
    let region = lab.memory(64)?;
    lab.fill(stream, region, 1)?;
    lab.finish(stream)?;
    fail(stream);
    lab.fill(stream, region, 2)?;
    let mark = lab.mark(stream)?;
    let wait = |stream| lab.wait_host(stream, Until::Now, Some(Instant::now() + lab.patience), WaitMode::Auto);
    match wait(stream) {
        Err(fault) => same("H33", "the code of the failed work's fault", fault.code, 77)?,
        Ok(waited) => return fail_told("the next wait to return the fault", &plain(&waited)),
    }
    expect("H33", lab.completed(stream)? >= mark, "the mark after failed work to have ended", "it has not")?;
    for waiting in [stream, other] {
        match wait(waiting) {
            Ok(waited) => same("H33", "the end of a later wait", waited, Waited::Ended)?,
            Err(fault) => return fail_told("the fault to be told once, on its own stream", &fault.to_string()),
        }
    }
    lab.fill(stream, region, 3)?;
    same_bytes("H33", "work after failed work", &lab.read(stream, region)?, &[3; 64])
}

fn fail_told(expected: &str, seen: &str) -> Outcome {
    fail("H33", expected, seen)
}

/// Whoever waits behind failed work is let go, and its host functions end.
fn failed_work_lets_go(env: &Env) -> Outcome {
    let (lab, fail) = failing(env)?;
    let (stream, other) = (lab.stream()?, lab.stream()?);
    let region = lab.memory(64)?;
    let hold = lab.hold(stream)?;
    let (fate, function) = Fate::function();
    lab.fill(stream, region, 2)?;
    lab.call(stream, function)?;
    let mark = lab.mark(stream)?;
    lab.wait(other, stream, mark)?;
    let behind = lab.mark(other)?;
    fail(stream);
    hold.release()?;
    lab.reach(other, Until::Mark(behind))?;
    lab.eventually("H13", "a function behind failed work to be called and dropped", || fate.drops() > 0)?;
    same("H13", "its calls", fate.calls(), 1)
}

/// A lab, and how to lose its devices.
fn losable(env: &Env) -> Outcome<(Lab, impl Fn(u32))> {
    let made = env.make()?;
    let Some(lose) = made.lose else { return skip("no way to lose a device on demand") };
    Ok((Lab::open(made.driver, env.devices, env.patience)?, move |ordinal| lose(ordinal)))
}

fn is_lost<T>(what: &str, result: Result<T, Fault>) -> Outcome {
    refused("H20", what, result, FaultKind::DeviceLost)
}

fn lost_for_good(env: &Env) -> Outcome {
    let (lab, lose) = losable(env)?;
    let stream = lab.stream()?;
    let region = lab.memory(64)?;
    let mark = lab.mark(stream)?;
    lab.finish(stream)?;
    lose(0);
    for _ in 0..2 {
        is_lost("alloc", lab.segment(0, 64))?;
        is_lost("memory_info", lab.device(0).memory_info())?;
        is_lost("create_stream", lab.stream())?;
        is_lost("fill", lab.fill_with(stream, region, &[1]))?;
        is_lost("write", lab.write(stream, region, &[1]))?;
        is_lost("copy", lab.copy(stream, region.part(0, 8), region.part(8, 8)))?;
        is_lost("stamp", lab.stamp(stream))?;
        is_lost("wait", lab.wait(stream, stream, mark))?;
        let (fate, function) = Fate::function();
        is_lost("host_call", lab.call(stream, function))?;
        same("H19", "calls and drops of a refused host function", (fate.calls(), fate.drops()), (0, 1))?;
        match lab.mark(stream) {
            Ok(mark) => return fail("H20", "mark: device lost", format!("At({mark})")),
            Err(crate::case::Stop::Fail(failure)) => {
                let lost = failure.seen.contains(FaultKind::DeviceLost.describe());
                expect("H20", lost, "mark: device lost", failure.seen)?;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// A stream with a mark that can't end by itself.
fn held(lab: &Lab) -> Outcome<(Stream, crate::lab::Hold, u64)> {
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    lab.mark(stream)?;
    let mark = lab.mark(stream)?;
    Ok((stream, hold, mark))
}

fn lost_ends_marks_and_waits(env: &Env) -> Outcome {
    let (lab, lose) = losable(env)?;
    let (stream, hold, mark) = held(&lab)?;
    thread::scope(|scope| {
        let waiter = scope
            .spawn(|| lab.wait_host(stream, Until::Mark(mark), Some(Instant::now() + lab.patience), WaitMode::Auto));
        thread::sleep(crate::lab::MOMENT);
        lose(0);
        let waited = waiter.join().unwrap_or(Ok(Waited::TimedOut));
        let let_go = !matches!(waited, Ok(Waited::TimedOut));
        expect("H20", let_go, "a waiting thread to be let go", "it waits still")
    })?;
    same("H20", "completed of a lost device", lab.completed(stream)?, mark)?;
    drop(hold);
    Ok(())
}

fn lost_cancels_functions(env: &Env) -> Outcome {
    let (lab, lose) = losable(env)?;
    let (stream, hold, _) = held(&lab)?;
    let (fate, function) = Fate::function();
    lab.call(stream, function)?;
    lab.mark(stream)?;
    lose(0);
    drop(hold);
    let _let_go = lab.wait_host(stream, Until::Now, Some(Instant::now() + lab.patience), WaitMode::Auto);
    lab.eventually("H13", "a function whose turn can't come to be called and dropped", || fate.drops() > 0)?;
    same("H13", "runs, cancellations and drops", (fate.runs(), fate.cancels(), fate.drops()), (0, 1, 1))
}

fn lost_gives_back(env: &Env) -> Outcome {
    let (lab, lose) = losable(env)?;
    let stream = lab.stream()?;
    let stamp = lab.stamp(stream)?;
    let region = lab.memory(64)?;
    lab.finish(stream)?;
    lose(0);
    lab.drop_stamp(0, stamp);
    if let Err(fault) = lab.free(0, region.place.mem) {
        return fail("H20", "free to succeed on a lost device", fault.to_string());
    }
    if let Err(fault) = lab.destroy(stream) {
        return fail("H20", "destroy_stream to succeed on a lost device", fault.to_string());
    }
    Ok(())
}

fn lost_alone(env: &Env) -> Outcome {
    let (lab, lose) = losable(env)?;
    let stream = lab.stream_on(1)?;
    let region = lab.memory_on(1, 64)?;
    lose(0);
    lab.fill(stream, region, 5)?;
    same_bytes("H20", "work on the device beside a lost one", &lab.read(stream, region)?, &[5; 64])?;
    is_lost("alloc on the lost one", lab.segment(0, 64))
}
