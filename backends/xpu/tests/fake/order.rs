//! Order and time: marks whose events are used again, clocks that wrap.

use crate::Scenario;
use crate::lab::{Lab, calls, eventually};
use anyaccel_hal::{FaultKind, Mark};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("events_are_used_again", events_are_used_again),
    Scenario::new("a_list_that_only_waits_lets_go_of_events", only_waits),
    Scenario::new("an_event_is_kept_for_a_wait_that_has_not_begun", kept_for_a_wait),
    Scenario::new("a_clock_that_wraps", a_clock_that_wraps)
        // 32 bits of it count, and they wrap a tenth of a second after the start.
        .with(&[("ANYACCEL_FAKE_ZE_TIMER", "19200000:32:32:4293047296")]),
    Scenario::new("stamps_dropped_before_their_turn", dropped_before_their_turn),
    Scenario::new("without_order_there_are_barriers", without_order).with(&[("ANYACCEL_FAKE_ZE_API", "1.3")]),
    Scenario::new("in_order_there_are_none", in_order),
    Scenario::new("priorities_reach_the_driver", priorities),
];

fn count(name: &str) -> usize {
    // A line is a call, its name first.
    calls().iter().filter(|line| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)).count()
}

fn at(mark: Mark) -> u64 {
    match mark {
        Mark::At(mark) => mark,
        Mark::Captured(_) => panic!("nothing is captured"),
    }
}

fn events_are_used_again() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    for byte in 0..=255 {
        lab.fill(stream, place, byte, 64).expect("a fill");
        let mark = at(lab.mark(stream).expect("a mark"));
        lab.finish(stream).expect("an end");
        assert!(lab.completed(stream) >= mark);
    }
    let created = count("zeEventCreate");
    assert!((1..=16).contains(&created), "{created} events for one mark at a time");
}

fn only_waits() {
    let lab = Lab::new();
    let (marked, waits) = (lab.stream(), lab.stream());
    let place = lab.memory(64);
    // How far behind the list that waits may be is up to the machine; but not every round needs new events.
    eventually("events are used again", || {
        let before = count("zeEventCreate");
        for _ in 0..500 {
            lab.fill(marked, place, 1, 64).expect("a fill");
            let mark = lab.mark(marked).expect("a mark");
            lab.wait(waits, marked, mark).expect("a wait");
            lab.finish(marked).expect("an end");
        }
        count("zeEventCreate") - before < 125
    });
    // Nobody marked it, and what its own marks are numbered is nobody's business.
    assert_eq!(lab.completed(waits), 0);
}

fn kept_for_a_wait() {
    let lab = Lab::new();
    let (marked, waits) = (lab.stream(), lab.stream());
    let (place, seen) = (lab.memory(64), lab.memory(64));
    let gate = lab.close(waits);
    lab.fill(marked, place, 7, 64).expect("a fill");
    let mark = lab.mark(marked).expect("a mark");
    lab.wait(waits, marked, mark).expect("a wait");
    // Many marks later, whose events may be used again, the wait still means that first one.
    for _ in 0..600 {
        lab.fill(marked, seen, 1, 64).expect("a fill");
        lab.mark(marked).expect("a mark");
        lab.finish(marked).expect("an end");
    }
    let held = lab.close(marked);
    lab.fill(marked, seen, 2, 64).expect("a fill");
    lab.mark(marked).expect("a mark");
    lab.open(gate);
    lab.fill(waits, seen, 3, 64).expect("a fill");
    lab.finish(waits).expect("the wait is for a mark that has ended long ago");
    lab.open(held);
    lab.finish(marked).expect("an end");
    assert_eq!(lab.read(marked, seen, 64), [2; 64]);
}

fn a_clock_that_wraps() {
    let lab = Lab::new();
    let stream = lab.stream();
    let began = std::time::Instant::now();
    let from = lab.stamp(stream);
    lab.finish(stream).expect("an end");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let to = lab.stamp(stream);
    lab.finish(stream).expect("an end");
    let (there, back) = (lab.elapsed(from, to).expect("a time"), lab.elapsed(to, from).expect("a time"));
    assert_eq!(there, -back);
    let most = began.elapsed().as_nanos() as i64;
    assert!(there >= 290_000_000 && there <= most, "{there} ns of {most}");
}

fn dropped_before_their_turn() {
    let lab = Lab::new();
    let stream = lab.stream();
    for _ in 0..5 {
        let gate = lab.close(stream);
        let stamps: Vec<_> = (0..100).map(|_| lab.stamp(stream)).collect();
        let (from, to) = (stamps[0], stamps[1]);
        assert_eq!(lab.elapsed(from, to).map_err(|fault| fault.kind), Err(FaultKind::NotReady));
        stamps.into_iter().for_each(|stamp| lab.drop_stamp(stamp));
        lab.open(gate);
        lab.finish(stream).expect("an end");
    }
    let created = count("zeEventCreate");
    assert!(created < 200, "{created} events: what fades is used again once its turn has come");
}

fn without_order() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(4096);
    for byte in 0..50 {
        lab.fill(stream, place, byte, 4096).expect("a fill");
    }
    assert_eq!(lab.read(stream, place, 4096), [49; 4096]);
    assert!(count("zeCommandListAppendBarrier") >= 51);
}

fn in_order() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(4096);
    for byte in 0..50 {
        lab.fill(stream, place, byte, 4096).expect("a fill");
    }
    assert_eq!(lab.read(stream, place, 4096), [49; 4096]);
    assert_eq!(count("zeCommandListAppendBarrier"), 0);
}

fn priorities() {
    let lab = Lab::new();
    let range = lab.device.info().priorities;
    assert_eq!((range.least, range.greatest), (1, -1));
    let streams: Vec<_> =
        (range.greatest..=range.least).map(|priority| lab.device.create_stream(priority).expect("a stream")).collect();
    streams.iter().for_each(|&stream| lab.finish(stream).expect("an end"));
    assert_eq!(count("zeCommandListCreateImmediate"), 3);
}
