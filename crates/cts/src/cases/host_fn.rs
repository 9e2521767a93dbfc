//! H13: functions of the host in streams.

use crate::case::{Capability, Case, Outcome, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::{Delay, Hold, Lab, Latch};
use anyaccel_hal::{HostStatus, Until};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case::hal("host_fn.called-once", &[13], called_once),
    Case::hal("host_fn.dropped-once-after-the-call", &[13], dropped_once_after_the_call),
    Case::hal("host_fn.in-stream-order", &[6, 13], in_stream_order),
    Case::hal("host_fn.not-before-its-turn", &[13], not_before_its_turn),
    Case::hal("host_fn.holds-up-its-stream", &[13], holds_up_its_stream).needs(&[Capability::Pinned]),
    Case::hal("host_fn.sees-and-shows-memory", &[5, 13], sees_and_shows_memory),
    Case::hal("host_fn.blocked-ones-stop-nothing/3", &[13], |env| blocked_ones_stop_nothing(env, 3)),
    Case::hal("host_fn.blocked-ones-stop-nothing/40", &[13], |env| blocked_ones_stop_nothing(env, 40)),
    Case::hal("host_fn.blocked-ones-wait-for-each-other", &[13], blocked_ones_wait_for_each_other),
    Case::hal("host_fn.no-lock-held", &[13, 18], no_lock_held),
    Case::hal("host_fn.many", &[13], many),
    Case::hal("host_fn.cancelled/host-fn", &[13, 25], |env| cancelled(env, Delay::HostFn)),
    Case::hal("host_fn.cancelled/gate", &[13, 25], |env| cancelled(env, Delay::Gate)).needs(&[Capability::Gates]),
];

/// What happened to one host function.
#[derive(Default)]
pub(super) struct Fate {
    runs: AtomicU32,
    cancels: AtomicU32,
    drops: AtomicU32,
    early_drops: AtomicU32,
}

/// Notes that it is dropped.
pub(super) struct Dropped(Arc<Fate>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if self.0.calls() == 0 {
            self.0.early_drops.fetch_add(1, Ordering::SeqCst);
        }
        self.0.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fate {
    /// A function that notes its fate.
    pub(super) fn function() -> (Arc<Fate>, impl FnMut(HostStatus) + Send + 'static) {
        let fate = Arc::new(Fate::default());
        let dropped = Dropped(fate.clone());
        let function = move |status| {
            let counter = match status {
                HostStatus::Run => &dropped.0.runs,
                HostStatus::Cancelled => &dropped.0.cancels,
            };
            counter.fetch_add(1, Ordering::SeqCst);
        };
        (fate, function)
    }

    pub(super) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    pub(super) fn cancels(&self) -> u32 {
        self.cancels.load(Ordering::SeqCst)
    }

    pub(super) fn calls(&self) -> u32 {
        self.runs() + self.cancels()
    }

    pub(super) fn drops(&self) -> u32 {
        self.drops.load(Ordering::SeqCst)
    }
}

fn called_once(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(3)?;
    let mut fates = Vec::new();
    for round in 0..300 {
        let (fate, function) = Fate::function();
        lab.call(streams[round % 3], function)?;
        fates.push(fate);
    }
    for &stream in &streams {
        lab.finish(stream)?;
    }
    for fate in &fates {
        same("H13", "calls and cancellations once its stream has ended", (fate.runs(), fate.cancels()), (1, 0))?;
    }
    // Nothing calls one again later.
    for &stream in &streams {
        lab.mark(stream)?;
        lab.finish(stream)?;
    }
    thread::sleep(Duration::from_millis(2));
    let calls: u32 = fates.iter().map(|fate| fate.calls()).sum();
    same("H13", "calls of 300 host functions", calls, 300)
}

fn dropped_once_after_the_call(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let mut fates = Vec::new();
    for _ in 0..100 {
        let (fate, function) = Fate::function();
        lab.call(stream, function)?;
        fates.push(fate);
    }
    lab.finish(stream)?;
    lab.eventually("H13", "every function to be dropped", || fates.iter().all(|fate| fate.drops() > 0))?;
    thread::sleep(Duration::from_millis(2));
    for fate in fates {
        same("H13", "drops of one host function", fate.drops(), 1)?;
        same("H13", "drops before the call", fate.early_drops.load(Ordering::SeqCst), 0)?;
    }
    Ok(())
}

fn in_stream_order(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(4)?;
    let log = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    for step in 0..200_usize {
        for (at, &stream) in streams.iter().enumerate() {
            let log = log.clone();
            lab.call(stream, move |_| log.lock().unwrap_or_else(PoisonError::into_inner)[at].push(step))?;
        }
    }
    for &stream in &streams {
        lab.finish(stream)?;
    }
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    for order in &*log {
        same("H13", "the order of one stream's functions", order.clone(), (0..200).collect())?;
    }
    Ok(())
}

fn not_before_its_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let (fate, function) = Fate::function();
    lab.call(stream, function)?;
    let mark = lab.mark(stream)?;
    lab.not_ended("H9", stream, mark, "the stream is held up")?;
    same("H13", "calls while the stream is held up", fate.calls(), 0)?;
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))?;
    same("H13", "calls once the mark behind it has ended", fate.runs(), 1)
}

fn holds_up_its_stream(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(16)?;
    let host = lab.host(&[1; 16])?;
    let hold = lab.hold_by(Delay::HostFn, stream)?;
    lab.fill(stream, region, 2)?;
    lab.download(stream, host, region)?;
    let mark = lab.mark(stream)?;
    lab.not_ended("H13", stream, mark, "a host function before it has not returned")?;
    same_bytes("H13", "what work behind the function has not changed", &host.look(), &[1; 16])?;
    hold.release()?;
    lab.reach(stream, Until::Mark(mark))?;
    same_bytes("H13", "what it has changed in the end", &host.look(), &[2; 16])
}

fn sees_and_shows_memory(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let region = lab.memory(4096)?;
    let (down, up) = (lab.host(&[0; 4096])?, lab.host(&[0; 4096])?);
    for round in 1..20_u8 {
        lab.fill(stream, region, round)?;
        lab.download(stream, down, region)?;
        lab.call(stream, move |_| {
            let seen: Vec<u8> = down.look().iter().map(|byte| byte ^ 0xFF).collect();
            up.put(&seen);
        })?;
        lab.upload(stream, region, up)?;
        let seen = lab.read(stream, region)?;
        same_bytes("H13", "bytes turned round by a host function", &seen, &[round ^ 0xFF; 4096])?;
    }
    Ok(())
}

/// Functions that do not return: work elsewhere goes on, copies and host functions alike.
fn blocked_ones_stop_nothing(env: &Env, count: usize) -> Outcome {
    let lab = env.lab()?;
    let blocked = lab.streams(count)?;
    let holds = blocked.iter().map(|&stream| lab.hold_by(Delay::HostFn, stream)).collect::<Outcome<Vec<_>>>()?;
    let marks = blocked.iter().map(|&stream| lab.mark(stream)).collect::<Outcome<Vec<_>>>()?;
    for _ in 0..4 {
        let free = lab.stream()?;
        let region = lab.memory(1 << 20)?;
        lab.fill(free, region, 7)?;
        let tail = lab.read(free, region.part((1 << 20) - 64, 64))?;
        same_bytes("H13", "a copy while host functions block", &tail, &[7; 64])?;
        let (fate, function) = Fate::function();
        lab.call(free, function)?;
        lab.finish(free)?;
        same("H13", "calls of a function while others block", fate.runs(), 1)?;
    }
    for (&stream, &mark) in blocked.iter().zip(&marks) {
        expect("H13", lab.completed(stream)? < mark, "the blocked streams to be blocked still", "one has ended")?;
    }
    holds.into_iter().try_for_each(|hold| hold.release())?;
    blocked.iter().try_for_each(|&stream| lab.finish(stream))
}

/// Functions on as many streams that only return once all of them run.
fn blocked_ones_wait_for_each_other(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(12)?;
    let latches: Arc<Vec<Latch>> = Arc::new(streams.iter().map(|_| Latch::default()).collect());
    let (report, met) = mpsc::channel();
    let patience = lab.patience / 2;
    for (at, &stream) in streams.iter().enumerate() {
        let (latches, report) = (latches.clone(), report.clone());
        lab.call(stream, move |_| {
            latches[at].open();
            let all = latches.iter().all(|latch| latch.wait_for(patience));
            // The case has given up if nobody listens.
            let _late = report.send(all);
        })?;
    }
    for &stream in &streams {
        lab.finish(stream)?;
    }
    let met: Vec<bool> = met.try_iter().collect();
    same("H13", "whether functions met while they ran", met, vec![true; streams.len()])
}

/// While a function blocks, every kind of call returns.
fn no_lock_held(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let inside = Arc::new(Latch::default());
    let entered = inside.clone();
    // One function that tells and then blocks: with two, the calls below could come before the second has begun.
    let (hold, held) = Hold::latch();
    lab.call(stream, move |status| {
        entered.open();
        if status == HostStatus::Run {
            held.wait();
        }
    })?;
    lab.mark(stream)?;
    expect("H11", inside.wait_for(lab.patience), "the function's turn to come", "it has not")?;
    let region = lab.memory(64)?;
    let what = "every call to return while a host function blocks";
    lab.while_held("H13", what, hold, || every_call(&lab, stream, region))?;
    lab.finish(stream)
}

/// Every call that may not wait for the device: taking and giving back memory may.
fn every_call(lab: &Lab, stream: crate::lab::Stream, region: crate::lab::Region) -> Outcome {
    let device = lab.device(0);
    device.memory_info()?;
    lab.fill(stream, region, 1)?;
    lab.write(stream, region, &[1])?;
    lab.copy(stream, region.part(0, 8), region.part(8, 8))?;
    lab.call(stream, |_| ())?;
    let stamp = lab.stamp(stream)?;
    let mark = lab.mark(stream)?;
    lab.completed(stream)?;
    let other = lab.stream()?;
    lab.wait(other, stream, mark)?;
    lab.drop_stamp(0, stamp);
    let free = lab.stream()?;
    lab.finish(free)?;
    lab.destroy(free)?;
    Ok(())
}

fn many(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let streams = lab.streams(16)?;
    let count = Arc::new(AtomicU32::new(0));
    for _ in 0..100 {
        for &stream in &streams {
            let count = count.clone();
            lab.call(stream, move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })?;
        }
    }
    for &stream in &streams {
        lab.finish(stream)?;
    }
    same("H13", "calls of 1600 host functions on 16 streams", count.load(Ordering::SeqCst), 1600)
}

/// The driver goes while functions wait for their turn: each is called all the same, once, and dropped.
fn cancelled(env: &Env, delay: Delay) -> Outcome {
    let lab = env.lab()?;
    let patience = lab.patience;
    let stream = lab.stream()?;
    let hold = match delay {
        Delay::HostFn => Some(lab.hold_by(delay, stream)?),
        Delay::Gate => lab.hold_for_good(stream).map(|()| None)?,
    };
    let fates: Vec<Arc<Fate>> = (0..5)
        .map(|_| {
            let (fate, function) = Fate::function();
            lab.call(stream, function).map(|()| fate)
        })
        .collect::<Result<_, _>>()?;
    lab.mark(stream)?;
    let gone = Arc::new(Latch::default());
    let end = gone.clone();
    let parts = lab.into_parts();
    let dropper = thread::spawn(move || {
        drop(parts);
        end.open();
    });
    // The function that runs is not waited for.
    let promptly = gone.wait_for(patience / 2);
    drop(hold);
    let what = "the last reference to go away while work is under way";
    expect("H25", promptly, what, "dropping it waits for the work")?;
    let _ended = dropper.join();
    let deadline = Instant::now() + patience;
    while fates.iter().any(|fate| fate.drops() == 0) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    for fate in fates {
        same("H13", "calls and drops once the driver is gone", (fate.calls(), fate.drops()), (1, 1))?;
    }
    Ok(())
}
