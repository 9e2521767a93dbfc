//! Order of streams, marks and waits, under each interleaving and in virtual time.

use crate::support::{Rig, at, rig, small};
use anyaccel_hal::{FaultKind, Until, Waited};
use anyaccel_sim::{Costs, Interleaving, Method, SimConfig};
use std::sync::Arc;
use std::time::Duration;

fn all_interleavings() -> Vec<Interleaving> {
    let mut all = vec![
        Interleaving::Eager,
        Interleaving::RoundRobin,
        Interleaving::ByTime,
        Interleaving::Manual,
        Interleaving::Picks(vec![1, 1, 1, 0]),
        Interleaving::Chosen(Arc::new(|ready| ready.last().copied())),
    ];
    all.extend((0..20).map(Interleaving::Seeded));
    all
}

#[test]
fn a_stream_keeps_its_order_and_a_wait_that_of_two() {
    for interleaving in all_interleavings() {
        let rig = rig(small().interleaving(interleaving.clone()));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
        for byte in 1..=9 {
            rig.d().fill(a, at(mem, 0), byte, 64).unwrap();
        }
        let mark = rig.d().mark(a);
        rig.d().wait(b, a, mark).unwrap();
        rig.d().write(b, at(mem, 1), &[77]).unwrap();
        assert_eq!(rig.d().read(b, at(mem, 0), 3), [9, 77, 9], "{interleaving:?}");
        assert_eq!(rig.d().completed(a), mark, "{interleaving:?}");
        rig.clean();
    }
}

#[test]
fn polling_ends_under_each_interleaving_that_looks() {
    for interleaving in all_interleavings() {
        let rig = rig(small().interleaving(interleaving.clone()));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(1 << 20).mem);
        rig.d().fill(a, at(mem, 0), 1, 1 << 20).unwrap();
        let mark = rig.d().mark(a);
        rig.d().wait(b, a, mark).unwrap();
        let last = rig.d().mark(b);
        let ended = (0..10_000).any(|_| rig.d().completed(b) == last);
        assert_eq!(ended, !matches!(interleaving, Interleaving::Manual), "{interleaving:?}");
    }
}

#[test]
fn seeds_repeat_and_differ() {
    let run = |seed| {
        let rig = rig(small().interleaving(Interleaving::Seeded(seed)));
        let streams: Vec<_> = (0..4).map(|_| rig.d().stream()).collect();
        let mem = rig.d().alloc(64).mem;
        for n in 0..40 {
            rig.d().write(streams[n % 4], at(mem, n as u64), &[n as u8]).unwrap();
        }
        rig.sim.run();
        let index = |stream| streams.iter().position(|&other| other == stream).unwrap();
        rig.sim.executed().iter().map(|executed| index(executed.stream)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_seeded_wait_leaves_other_work_for_later() {
    let left = (0..50).filter(|&seed| {
        let rig = rig(small().interleaving(Interleaving::Seeded(seed)));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
        for n in 0..8 {
            rig.d().write(b, at(mem, n), &[1]).unwrap();
        }
        rig.d().write(a, at(mem, 63), &[1]).unwrap();
        rig.d().sync(a);
        rig.sim.pending(b) > 0
    });
    assert!(left.count() > 25);
}

fn executed(rig: &Rig) -> Vec<u64> {
    let streams = rig.sim.streams();
    let index = |stream| streams.iter().position(|&other| other == stream).unwrap() as u64;
    rig.sim.executed().iter().map(|executed| index(executed.stream) * 10 + executed.number).collect()
}

#[test]
fn picks_choose_the_stream_and_skip_what_cannot_run() {
    let rig = rig(small().interleaving(Interleaving::Picks(vec![1, 0, 0, 7, 0, 1, 1])));
    let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
    for n in 0..3 {
        rig.d().write(a, at(mem, n), &[1]).unwrap();
        rig.d().write(b, at(mem, 10 + n), &[1]).unwrap();
    }
    rig.sim.run();
    assert_eq!(executed(&rig), [11, 1, 2, 3, 12, 13]);
}

#[test]
fn step_runs_one_operation_of_one_stream() {
    let rig = rig(small().interleaving(Interleaving::Manual));
    let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
    rig.d().write(a, at(mem, 0), &[1]).unwrap();
    let mark = rig.d().mark(a);
    rig.d().wait(b, a, mark).unwrap();
    assert!(!rig.sim.step(b));
    assert_eq!(rig.sim.ready(), [a]);
    assert_eq!(rig.d().completed(a), 0);
    assert!(rig.sim.step(a));
    assert_eq!(rig.sim.peek(mem, 0, 1), Some(vec![1]));
    assert!(rig.sim.step(a) && rig.sim.step(b) && !rig.sim.step(a));
    assert_eq!(rig.d().completed(a), mark);
}

#[test]
fn a_pause_runs_only_what_a_wait_needs() {
    let rig = rig(small().interleaving(Interleaving::Eager));
    let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(64).mem);
    rig.sim.pause();
    rig.d().write(a, at(mem, 0), &[1]).unwrap();
    let first = rig.d().mark(a);
    rig.d().write(a, at(mem, 1), &[1]).unwrap();
    let second = rig.d().mark(a);
    rig.d().write(b, at(mem, 2), &[1]).unwrap();
    assert_eq!(rig.d().completed(a), 0);
    assert_eq!(rig.d().wait_host(a, Until::Mark(first)), Ok(Waited::Ended));
    assert_eq!((rig.d().completed(a), rig.sim.pending(b)), (first, 1));
    rig.sim.resume();
    assert_eq!((rig.d().completed(a), rig.sim.pending(b)), (second, 0));
}

/// 1 ms to copy a MiB, nothing else takes time.
fn timed(interleaving: Interleaving) -> SimConfig {
    let costs = Costs { transfer_ps: 1_000_000_000 / 1024 / 1024, ..Costs::FREE };
    small().interleaving(interleaving).each_device(|device| device.costs = costs)
}

#[test]
fn streams_overlap_in_virtual_time() {
    for interleaving in [Interleaving::RoundRobin, Interleaving::ByTime, Interleaving::Seeded(3)] {
        let rig = rig(timed(interleaving));
        let (a, b, mem) = (rig.d().stream(), rig.d().stream(), rig.d().alloc(2 << 20).mem);
        let bytes = vec![1; 1 << 20];
        rig.d().upload(a, at(mem, 0), &bytes).unwrap();
        rig.d().upload(b, at(mem, 1 << 20), &bytes).unwrap();
        rig.d().sync(a);
        rig.d().sync(b);
        let one = rig.sim.now();
        assert!((990_000..1_000_001).contains(&one), "{one}");
        let mark = rig.d().mark(b);
        rig.d().wait(a, b, mark).unwrap();
        rig.d().upload(a, at(mem, 0), &bytes).unwrap();
        let mark = rig.d().mark(a);
        rig.d().wait(b, a, mark).unwrap();
        rig.d().upload(b, at(mem, 0), &bytes).unwrap();
        rig.d().sync(b);
        assert_eq!(rig.sim.now(), 3 * one);
        rig.clean();
    }
}

#[test]
fn work_ends_when_its_time_has_come() {
    let rig = rig(timed(Interleaving::ByTime));
    let (a, mem) = (rig.d().stream(), rig.d().alloc(1 << 20).mem);
    let bytes = vec![1; 1 << 20];
    rig.d().upload(a, at(mem, 0), &bytes).unwrap();
    let mark = rig.d().mark(a);
    rig.sim.advance(900_000);
    assert_eq!(rig.d().completed(a), 0);
    rig.sim.advance(200_000);
    assert_eq!(rig.d().completed(a), mark);
    rig.sim.set_costs(0, Costs::FREE.slow_copies(10));
    assert_eq!(rig.sim.calls(Method::Completed), 2);
}

#[test]
fn a_deadline_in_virtual_time_ends_a_wait_at_once() {
    let rig = rig(timed(Interleaving::ByTime).deadlock(anyaccel_sim::Deadlock::Fault).address_only());
    let (a, mem) = (rig.d().stream(), rig.d().alloc(1 << 20).mem);
    let bytes = vec![1; 1 << 20];
    for _ in 0..100_000 {
        rig.d().upload(a, at(mem, 0), &bytes).unwrap();
    }
    // 100 s of work.
    let before = std::time::Instant::now();
    assert_eq!(rig.d().wait_for(a, Until::Now, Duration::from_secs(40)), Ok(Waited::TimedOut));
    assert!(before.elapsed() < Duration::from_secs(39));
    let now = rig.sim.now();
    assert!((39_000_000_000..=40_000_000_000).contains(&now), "{now}");
    assert!(rig.sim.pending(a) > 50_000);
}

#[test]
fn stamps_tell_the_time_of_their_turn() {
    let rig = rig(timed(Interleaving::RoundRobin));
    let (a, mem) = (rig.d().stream(), rig.d().alloc(1 << 20).mem);
    let bytes = vec![1; 1 << 20];
    // SAFETY: H1: the stream is live, and so are the stamps until they are dropped.
    unsafe {
        let device = &rig.devices[0];
        let first = device.stamp(a).unwrap();
        rig.d().upload(a, at(mem, 0), &bytes).unwrap();
        let second = device.stamp(a).unwrap();
        assert_eq!(device.elapsed_ns(first, second).map_err(|fault| fault.kind), Err(FaultKind::NotReady));
        rig.d().sync(a);
        let elapsed = device.elapsed_ns(first, second).unwrap();
        assert!((990_000..1_000_001).contains(&elapsed), "{elapsed}");
        assert_eq!(device.elapsed_ns(second, first), Ok(-elapsed));
        assert_eq!(rig.sim.live(0).stamps, 2);
        device.drop_stamp(first);
        device.drop_stamp(second);
    }
    assert_eq!(rig.sim.live(0).stamps, 0);
    rig.clean();
}

#[test]
fn a_wait_across_devices_orders_and_can_be_refused() {
    let rig = rig(SimConfig::new().memories([1 << 20; 2]).interleaving(Interleaving::Manual));
    let (a, b) = (rig.on(0).stream(), rig.on(1).stream());
    rig.on(0).write(a, at(rig.on(0).alloc(8).mem, 0), &[1]).unwrap();
    let mark = rig.on(0).mark(a);
    rig.on(1).wait(b, a, mark).unwrap();
    rig.on(1).sync(b);
    assert_eq!(rig.sim.pending(a), 0);
    rig.clean();

    let refusing = SimConfig::new().memories([1 << 20; 2]);
    let rig = crate::support::rig(refusing.each_device(|device| device.capabilities.foreign_waits = false));
    let (a, b) = (rig.on(0).stream(), rig.on(1).stream());
    let mark = rig.on(0).mark(a);
    assert_eq!(rig.on(1).wait(b, a, mark).map_err(|fault| fault.kind), Err(FaultKind::Unsupported));
    assert_eq!(rig.sim.pending(b), 0);
    rig.clean();
}
