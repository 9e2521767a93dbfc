//! H11: work goes on by itself once one of three calls has submitted it. Nothing of the driver is called meanwhile.

use crate::case::{Capability, Case, Outcome, same};
use crate::env::Env;
use crate::lab::{Host, Lab, MOMENT, Stream};
use anyaccel_hal::{Until, WaitMode, Waited};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const PINNED: &[Capability] = &[Capability::Pinned];

pub(super) const CASES: &[Case] = &[
    Case::hal("progress.after-mark", &[11], |env| alone(env, |lab, stream| lab.mark(stream).map(drop))),
    Case::hal("progress.after-host-call", &[11], |env| alone(env, |lab, stream| Ok(lab.call(stream, |_| ())?))),
    Case::hal("progress.after-wait-host", &[11], |env| {
        alone(env, |lab, stream| {
            // It has ended already, or it goes on after the timeout: either is right.
            let (Waited::Ended | Waited::TimedOut) =
                lab.wait_host(stream, Until::Now, Some(Instant::now()), WaitMode::Auto)?;
            Ok(())
        })
    }),
    Case::hal("progress.across-streams", &[8, 11], across_streams).needs(PINNED),
    Case::hal("progress.after-release", &[11], after_release).needs(PINNED),
    Case::hal("progress.host-function-itself", &[11, 13], host_function_itself),
];

/// Work whose end shows in host memory.
fn work(lab: &Lab, stream: Stream, byte: u8) -> Outcome<Host> {
    let region = lab.memory(4096)?;
    let host = lab.host(&[0; 4096])?;
    lab.fill(stream, region, byte)?;
    lab.download(stream, host, region)?;
    Ok(host)
}

fn alone(env: &Env, submit: fn(&Lab, Stream) -> Outcome) -> Outcome {
    let lab = env.lab()?;
    for byte in 1..4 {
        let stream = lab.stream()?;
        let host = work(&lab, stream, byte)?;
        submit(&lab, stream)?;
        lab.eventually("H11", "work to end without further calls", || host.byte(4095) == byte)?;
    }
    Ok(())
}

/// The mark of one stream sets off another one, which was submitted before.
fn across_streams(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (a, b) = (lab.stream()?, lab.stream()?);
    let first = lab.hold(a)?;
    let there = lab.mark(a)?;
    lab.wait(b, a, there)?;
    let host = work(&lab, b, 9)?;
    lab.mark(b)?;
    first.release()?;
    lab.eventually("H11", "work behind a wait to end without further calls", || host.byte(4095) == 9)
}

fn after_release(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let hold = lab.hold(stream)?;
    let host = work(&lab, stream, 8)?;
    lab.mark(stream)?;
    std::thread::sleep(MOMENT);
    same("H11", "what held work has not written", host.byte(4095), 0)?;
    hold.release()?;
    lab.eventually("H11", "released work to end without further calls", || host.byte(4095) == 8)
}

fn host_function_itself(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let ran = Arc::new(AtomicBool::new(false));
    let inside = ran.clone();
    lab.call(stream, move |_| inside.store(true, Ordering::SeqCst))?;
    lab.eventually("H11", "a host function to run without further calls", || ran.load(Ordering::SeqCst))
}
