//! H17: the device's clock.

use crate::case::{Case, Outcome, expect, refused, same};
use crate::env::Env;
use crate::lab::{Lab, Region, Stream};
use anyaccel_hal::{FaultKind, Stamp};
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case::hal("time.work-takes-time", &[17], work_takes_time),
    Case::hal("time.reversed-is-negative", &[17], reversed_is_negative),
    Case::hal("time.same-stamp", &[17], same_stamp),
    Case::hal("time.adds-up", &[17], adds_up),
    Case::hal("time.never-runs-back", &[17], never_runs_back),
    Case::hal("time.not-ready", &[17, 19], not_ready),
    Case::hal("time.at-its-turn", &[17], at_its_turn),
    Case::hal("time.across-streams", &[17], across_streams),
    Case::hal("time.within-the-hosts-time", &[17], within_the_hosts_time),
    Case::hal("time.dropped-before-its-turn", &[17], dropped_before_its_turn),
    Case::hal("time.many-stamps", &[17], many_stamps),
];

const BIG: u64 = 8 << 20;

fn big_work(lab: &Lab, stream: Stream, region: Region) -> Outcome {
    let half = region.len / 2;
    (0..4_u8).try_for_each(|round| {
        lab.fill(stream, region, round)?;
        Ok(lab.copy(stream, region.part(0, half), region.part(half, half))?)
    })
}

fn work_takes_time(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(BIG)?;
    let before = lab.stamp(stream)?;
    big_work(&lab, stream, region)?;
    let after = lab.stamp(stream)?;
    lab.finish(stream)?;
    let took = lab.elapsed(0, before, after)?;
    expect("H17", took > 0, "48 MiB of work to take more than 0 ns", took)
}

fn reversed_is_negative(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(BIG)?;
    let before = lab.stamp(stream)?;
    big_work(&lab, stream, region)?;
    let after = lab.stamp(stream)?;
    lab.finish(stream)?;
    let (there, back) = (lab.elapsed(0, before, after)?, lab.elapsed(0, after, before)?);
    same("H17", "the way back", back, -there)
}

fn same_stamp(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let stamp = lab.stamp(stream)?;
    lab.finish(stream)?;
    same("H17", "ns from a stamp to itself", lab.elapsed(0, stamp, stamp)?, 0)
}

fn adds_up(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(BIG)?;
    let mut stamps = vec![lab.stamp(stream)?];
    for _ in 0..4 {
        big_work(&lab, stream, region)?;
        stamps.push(lab.stamp(stream)?);
    }
    lab.finish(stream)?;
    let parts = stamps.windows(2).map(|pair| lab.elapsed(0, pair[0], pair[1])).sum::<Result<i64, _>>()?;
    let whole = lab.elapsed(0, stamps[0], stamps[4])?;
    // Some native clocks report in coarse floating-point milliseconds.
    let slack = whole / 1000 + 4000;
    let close = (parts - whole).abs() <= slack;
    expect("H17", close, &format!("the parts to add up to {whole} ns within {slack}"), parts)
}

fn never_runs_back(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(4096)?;
    let mut stamps = Vec::new();
    for _ in 0..200 {
        stamps.push(lab.stamp(stream)?);
        lab.fill(stream, region, 1)?;
    }
    lab.finish(stream)?;
    for pair in stamps.windows(2) {
        let between = lab.elapsed(0, pair[0], pair[1])?;
        expect("H17", between >= 0, "stamps in the order of their stream", format!("{between} ns"))?;
    }
    Ok(())
}

fn not_ready(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let early = lab.stamp(stream)?;
    let hold = lab.hold(stream)?;
    let late = lab.stamp(stream)?;
    lab.mark(stream)?;
    for (from, to) in [(early, late), (late, early), (late, late)] {
        refused("H17", "elapsed_ns before a stamp's turn", lab.elapsed(0, from, to), FaultKind::NotReady)?;
    }
    hold.release()?;
    lab.finish(stream)?;
    let between = lab.elapsed(0, early, late)?;
    expect("H17", between >= 0, "an answer once its turn has come", between)
}

fn at_its_turn(env: &Env) -> Outcome {
    const HELD: Duration = Duration::from_millis(30);
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let before = lab.stamp(stream)?;
    lab.finish(stream)?;
    let hold = lab.hold(stream)?;
    let after = lab.stamp(stream)?;
    lab.mark(stream)?;
    std::thread::sleep(HELD);
    hold.release()?;
    lab.finish(stream)?;
    let between = lab.elapsed(0, before, after)?;
    let least = HELD.as_nanos() as i64 * 9 / 10;
    expect(
        "H17",
        between >= least,
        "a stamp behind a hold of 30 ms to be 27 ms later at least",
        format!("{between} ns"),
    )
}

fn across_streams(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let region = lab.memory(BIG)?;
    let first = lab.stamp(a)?;
    big_work(&lab, a, region)?;
    let mark = lab.mark(a)?;
    lab.wait(b, a, mark)?;
    let second = lab.stamp(b)?;
    lab.finish(b)?;
    let between = lab.elapsed(0, first, second)?;
    expect("H17", between > 0, "a stamp behind another stream's work to be later", format!("{between} ns"))
}

/// What the device measures happened between the calls.
fn within_the_hosts_time(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(BIG)?;
    let began = Instant::now();
    let before = lab.stamp(stream)?;
    big_work(&lab, stream, region)?;
    lab.call(stream, |_| std::thread::sleep(Duration::from_millis(10)))?;
    let after = lab.stamp(stream)?;
    lab.finish(stream)?;
    let wall = began.elapsed().as_nanos() as i64;
    let device = lab.elapsed(0, before, after)?;
    // Clocks of different crystals differ a little.
    let (least, most) = (9_500_000, wall + wall / 100 + 10_000);
    let fits = (least..=most).contains(&device);
    expect("H17", fits, &format!("between {least} and {most} ns, as the host saw"), format!("{device} ns"))
}

fn dropped_before_its_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    let hold = lab.hold(stream)?;
    for _ in 0..50 {
        let stamp = lab.stamp(stream)?;
        lab.drop_stamp(0, stamp);
    }
    lab.fill(stream, region, 1)?;
    hold.release()?;
    let seen = lab.read(stream, region)?;
    same("H17", "work behind dropped stamps", seen, vec![1; 16])
}

/// Stamps live as long as they are kept, however many there are.
fn many_stamps(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let stamps = (0..3000).map(|_| lab.stamp(stream)).collect::<Result<Vec<Stamp>, _>>()?;
    lab.finish(stream)?;
    let between = lab.elapsed(0, stamps[0], stamps[2999])?;
    expect("H17", between >= 0, "the first of 3000 stamps to be kept", format!("{between} ns"))?;
    stamps.into_iter().for_each(|stamp| lab.drop_stamp(0, stamp));
    Ok(())
}
