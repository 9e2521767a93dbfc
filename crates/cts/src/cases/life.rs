//! H2, H25: ends of streams, devices and drivers, with work under way.

use super::host_fn::Fate;
use crate::case::{Case, Outcome, expect, same, same_bytes};
use crate::env::Env;
use crate::lab::{Delay, Latch, MOMENT, locked};
use anyaccel_hal::Until;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::hal("life.waits-outlive-the-stream", &[7, 8], waits_outlive_the_stream),
    Case::hal("life.many-streams-in-turn", &[2], many_streams_in_turn),
    Case::hal("life.driver-goes-first", &[25], driver_goes_first),
    Case::hal("life.dropped-with-work", &[25], dropped_with_work),
    Case::hal("life.device-by-device", &[25], device_by_device).devices(2),
    Case::hal("life.dropped-inside-a-host-function", &[13, 25], dropped_inside_a_host_function),
    Case::hal("life.dropped-from-several-threads", &[18, 25], dropped_from_several_threads),
];

/// A stream that waited keeps its place in the order when what it waited for is gone.
fn waits_outlive_the_stream(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let other = lab.stream()?;
    let region = lab.memory(64)?;
    let mut last = 0;
    for round in 0..60_u8 {
        let stream = lab.stream()?;
        lab.fill(stream, region, round)?;
        let mark = lab.mark(stream)?;
        lab.wait(other, stream, mark)?;
        let seen = lab.read(other, region)?;
        lab.destroy(stream)?;
        same_bytes("H8", "what a stream wrote before it was destroyed", &seen, &[round; 64])?;
        let ended = lab.mark(other)?;
        expect("H7", ended > last, "rising marks", format!("{ended} after {last}"))?;
        last = ended;
    }
    lab.reach(other, Until::Mark(last))
}

fn many_streams_in_turn(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let region = lab.memory(16)?;
    for _ in 0..1500 {
        let stream = lab.stream()?;
        lab.write(stream, region, &[1])?;
        lab.finish(stream)?;
        lab.destroy(stream)?;
    }
    let stream = lab.stream()?;
    lab.finish(stream)
}

/// A device works on when everybody has forgotten its driver.
fn driver_goes_first(env: &Env) -> Outcome {
    let driver = env.driver()?;
    driver.start()?;
    let device = driver.open(0)?;
    drop(driver);
    let stream = device.create_stream(0)?;
    let count = Arc::new(AtomicU32::new(0));
    let inside = count.clone();
    let function = anyaccel_hal::HostFn::new(move |_| {
        inside.fetch_add(1, Ordering::SeqCst);
    });
    // SAFETY: H1, the stream was made above; H13, the function neither unwinds nor calls the driver.
    unsafe { device.host_call(stream, function) }?;
    // SAFETY: H1.
    let waited = unsafe {
        let deadline = Some(std::time::Instant::now() + env.patience);
        device.wait_host(stream, Until::Now, deadline, anyaccel_hal::WaitMode::Auto)
    }?;
    same("H25", "the end of work on a device without its driver", waited, anyaccel_hal::Waited::Ended)?;
    same("H25", "calls of its host function", count.load(Ordering::SeqCst), 1)?;
    // SAFETY: H1, it is used no more.
    Ok(unsafe { device.destroy_stream(stream) }?)
}

/// Everything goes while every kind of work is under way or waits.
fn dropped_with_work(env: &Env) -> Outcome {
    for round in 0..5 {
        let lab = env.lab()?;
        let streams = lab.streams(6)?;
        let region = lab.memory(1 << 20)?;
        let mut fates = Vec::new();
        let mut before = None;
        for &stream in &streams {
            if let Some((of, mark)) = before {
                lab.wait(stream, of, mark)?;
            }
            lab.fill(stream, region, round)?;
            let (fate, function) = Fate::function();
            lab.call(stream, function)?;
            fates.push(fate);
            lab.stamp(stream)?;
            before = Some((stream, lab.mark(stream)?));
        }
        let patience = lab.patience;
        let parts = lab.into_parts();
        let gone = Arc::new(Latch::default());
        let end = gone.clone();
        let dropper = thread::spawn(move || {
            drop(parts);
            end.open();
        });
        expect("H25", gone.wait_for(patience), "the last reference to go away", "dropping it hangs")?;
        let _ended = dropper.join();
        let deadline = std::time::Instant::now() + patience;
        while fates.iter().any(|fate| fate.drops() == 0) && std::time::Instant::now() < deadline {
            thread::sleep(MOMENT / 25);
        }
        for fate in fates {
            same("H25", "calls and drops of a host function", (fate.calls(), fate.drops()), (1, 1))?;
        }
    }
    Ok(())
}

fn device_by_device(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream_on(1)?;
    let (driver, mut devices) = lab.into_parts();
    drop(driver);
    drop(devices.remove(0));
    let device = devices.remove(0);
    let deadline = Some(std::time::Instant::now() + env.patience);
    // SAFETY: H1, the stream is of this device, and the lab no longer uses it.
    let waited = unsafe { device.wait_host(stream.id, Until::Now, deadline, anyaccel_hal::WaitMode::Auto) }?;
    same("H25", "a wait on the last device", waited, anyaccel_hal::Waited::Ended)?;
    // SAFETY: H1, it is used no more.
    Ok(unsafe { device.destroy_stream(stream.id) }?)
}

/// The last reference goes with the data of a function, on the thread that ran it.
fn dropped_inside_a_host_function(env: &Env) -> Outcome {
    for _ in 0..5 {
        let lab = env.lab()?;
        let stream = lab.stream()?;
        let patience = lab.patience;
        let hold = lab.hold_by(Delay::HostFn, stream)?;
        let (gone, go) = (Arc::new(Latch::default()), Arc::new(Latch::default()));
        let slot = Arc::new(Mutex::new(None));
        let (held, end, wait) = (slot.clone(), gone.clone(), go.clone());
        lab.call(stream, move |_| {
            wait.wait_for(patience);
            drop(locked(&held).take());
            end.open();
        })?;
        lab.mark(stream)?;
        let parts = lab.into_parts();
        *locked(&slot) = Some(parts);
        hold.release()?;
        go.open();
        expect(
            "H25",
            gone.wait_for(patience),
            "a driver to go on the thread of its own function",
            "dropping it hangs",
        )?;
    }
    Ok(())
}

/// Whoever drops the last reference, nothing hangs: several threads race for it while a host function runs.
fn dropped_from_several_threads(env: &Env) -> Outcome {
    for _ in 0..10 {
        let lab = env.lab()?;
        let stream = lab.stream()?;
        let hold = lab.hold_by(Delay::HostFn, stream)?;
        let patience = lab.patience;
        let parts = lab.into_parts();
        let gone: Vec<Arc<Latch>> = (0..3).map(|_| Arc::default()).collect();
        let threads: Vec<_> = gone
            .iter()
            .map(|gone| {
                let (parts, gone) = ((parts.0.clone(), parts.1.clone()), gone.clone());
                thread::spawn(move || {
                    drop(parts);
                    gone.open();
                })
            })
            .collect();
        drop(parts);
        drop(hold);
        for gone in gone {
            expect("H25", gone.wait_for(patience), "each reference to go away", "dropping one hangs")?;
        }
        for thread in threads {
            let _ended = thread.join();
        }
    }
    Ok(())
}
