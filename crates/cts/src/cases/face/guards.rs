//! Scopes of devices and streams: nested, re-entrant, crossed between threads, left by any way out.

use super::{Face, join};
use crate::case::{Case, Outcome, same};
use crate::env::Env;
use anyaccel::{Runtime, Stream, StreamOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::face("guards.device", &["device.guard"], device).devices(2),
    Case::face("guards.device-creates-nothing", &["device.guard-creates-nothing"], device_creates_nothing).devices(2),
    Case::face("guards.device-across-threads", &["device.guard", "thread.current"], device_across_threads).devices(2),
    Case::face("guards.stream-reentrant", &["stream.guard"], stream_reentrant),
    Case::face("guards.stream-nested", &["stream.guard"], stream_nested),
    Case::face("guards.stream-across-threads", &["stream.guard", "thread.current"], stream_across_threads),
    Case::face("guards.stream-after-setter", &["stream.guard", "stream.current"], stream_after_setter),
    Case::face("guards.stream-of-nobody-else", &["stream.guard", "life.handles"], stream_of_nobody_else),
    Case::face("guards.stream-of-another-device", &["stream.guard"], stream_of_another_device).devices(2),
    Case::face("guards.setters-inside", &["stream.guard", "device.guard"], setters_inside).devices(2),
    Case::face("guards.unwinding", &["stream.guard", "device.guard"], unwinding).devices(2),
    Case::face("guards.by-runtime", &["thread.by-runtime"], by_runtime).devices(2),
];

/// The device that is current, and the streams that are current on devices 0 and 1, where there is one.
type Current = (u32, Vec<u64>);

fn current(runtime: &Runtime) -> Outcome<Current> {
    let streams = (0..runtime.device_count().min(2)).map(|index| Ok(runtime.current_stream(index)?.stream_id()));
    Ok((runtime.current_device_index()?, streams.collect::<Outcome<_>>()?))
}

fn device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let now = || runtime.current_device_index();
    runtime.set_device_index(0)?;
    {
        let _one = runtime.device_index(1)?;
        same("device.guard", "inside", now()?, 1)?;
        {
            let _none = runtime.device_index(None)?;
            let _again = runtime.device_index(1)?;
            let _zero = runtime.device_index(0)?;
            same("device.guard", "inside of three scopes", now()?, 0)?;
        }
        same("device.guard", "after three scopes", now()?, 1)?;
    }
    same("device.guard", "afterwards", now()?, 0)
}

fn device_creates_nothing(env: &Env) -> Outcome {
    let driver = Arc::new(super::Bent::new(env.make()?.driver));
    let face = Face::over(driver.clone(), env)?;
    {
        let _one = face.runtime.device_index(1)?;
        face.runtime.alloc(64)?;
    }
    same("device.guard-creates-nothing", "openings of the device used", driver.opened(1), 1)?;
    same("device.guard-creates-nothing", "openings of the device restored", driver.opened(0), 0)
}

fn device_across_threads(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let threads: Vec<_> = [0_u32, 1]
            .map(|own| {
                let barrier = &barrier;
                scope.spawn(move || -> Outcome {
                    runtime.set_device_index(own)?;
                    for _ in 0..50 {
                        barrier.wait();
                        let guard = runtime.device_index(i64::from(1 - own))?;
                        barrier.wait();
                        same("device.guard", "inside, on each thread", runtime.current_device_index()?, 1 - own)?;
                        drop(guard);
                        same("device.guard", "afterwards, on each thread", runtime.current_device_index()?, own)?;
                    }
                    Ok(())
                })
            })
            .into_iter()
            .collect();
        threads.into_iter().try_for_each(|thread| join(thread.join()))
    })
}

fn is_current(runtime: &Runtime, what: &str, stream: &Stream) -> Outcome {
    same("stream.guard", what, runtime.current_stream(())?.stream_id(), stream.stream_id())
}

fn stream_reentrant(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (p, s) = (runtime.stream(())?, runtime.stream(())?);
    runtime.set_stream(&p)?;
    {
        let outer = s.enter()?;
        same("stream.guard", "what entering gives", outer.stream() == &s, true)?;
        {
            let _inner = s.enter()?;
            is_current(runtime, "inside, twice", &s)?;
        }
        is_current(runtime, "inside, once", &s)?;
    }
    is_current(runtime, "afterwards", &p)
}

fn stream_nested(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (p, s, t) = (runtime.stream(())?, runtime.stream(())?, runtime.stream(())?);
    runtime.set_stream(&p)?;
    {
        let _one = s.enter()?;
        {
            let _two = t.enter()?;
            {
                let _three = s.enter()?;
                {
                    let _four = t.enter()?;
                    is_current(runtime, "after S, T, S, T", &t)?;
                }
                is_current(runtime, "after one leave", &s)?;
            }
            is_current(runtime, "after two leaves", &t)?;
        }
        is_current(runtime, "after three leaves", &s)?;
    }
    is_current(runtime, "in the end", &p)
}

fn stream_across_threads(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let shared = runtime.stream(())?;
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let threads: Vec<_> = [0, 1]
            .map(|order| {
                let (barrier, shared) = (&barrier, &shared);
                scope.spawn(move || -> Outcome {
                    let own = runtime.stream(())?;
                    runtime.set_stream(&own)?;
                    for round in 0..50 {
                        barrier.wait();
                        let guard = shared.enter()?;
                        barrier.wait();
                        is_current(runtime, "inside, on each thread", shared)?;
                        // They leave in turn, in either order.
                        if order == round % 2 {
                            drop(guard);
                            barrier.wait();
                        } else {
                            barrier.wait();
                            is_current(runtime, "inside, when the other thread has left", shared)?;
                            drop(guard);
                        }
                        is_current(runtime, "afterwards, on each thread", &own)?;
                    }
                    Ok(())
                })
            })
            .into_iter()
            .collect();
        threads.into_iter().try_for_each(|thread| join(thread.join()))
    })
}

fn stream_after_setter(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (s, u) = (runtime.stream(())?, runtime.stream(())?);
    runtime.set_stream(&u)?;
    drop(s.enter()?);
    is_current(runtime, "after a scope that followed a setter", &u)
}

/// The stream to go back to has no other owner than the thread on which it was current.
fn stream_of_nobody_else(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let s = runtime.stream(())?;
    let u = runtime.stream_with((), StreamOptions { reserved: true, ..StreamOptions::default() })?;
    let id = u.stream_id();
    runtime.set_stream(&u)?;
    drop(u);
    drop(s.enter()?);
    let back = runtime.current_stream(())?;
    same("stream.guard", "the stream to go back to", back.stream_id(), id)?;
    let buffer = runtime.zeros(64)?;
    back.fill(&buffer.all(), &[7])?;
    face.finish(&back)?;
    same("life.handles", "what it filled", buffer.to_vec()?, vec![7; 64])
}

fn stream_of_another_device(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.set_stream(&runtime.stream(1)?)?;
    runtime.set_stream(&runtime.stream(0)?)?;
    let before = current(runtime)?;
    let s = runtime.stream(1)?;
    {
        let _scope = s.enter()?;
        same("stream.guard", "the device inside", runtime.current_device_index()?, 1)?;
        same("stream.guard", "the stream inside", runtime.current_stream(1)?.stream_id(), s.stream_id())?;
        same("stream.guard", "device 0's stream inside", runtime.current_stream(0)?.stream_id(), before.1[0])?;
    }
    same("stream.guard", "device and both streams afterwards", current(runtime)?, before)
}

/// What is set inside a scope is undone with it.
fn setters_inside(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.set_stream(&runtime.stream(1)?)?;
    runtime.set_stream(&runtime.stream(0)?)?;
    let before = current(runtime)?;
    let (s, other) = (runtime.stream(1)?, runtime.stream(0)?);
    {
        let _scope = s.enter()?;
        runtime.set_stream(&other)?;
        runtime.set_stream(&runtime.stream(1)?)?;
        runtime.set_device_index(0)?;
    }
    same("stream.guard", "device and both streams afterwards", current(runtime)?, before.clone())?;
    {
        let _scope = runtime.device_index(1)?;
        runtime.set_device_index(0)?;
        runtime.set_device_index(1)?;
    }
    same("device.guard", "device and both streams afterwards", current(runtime)?, before)
}

fn unwinding(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.set_stream(&runtime.stream(0)?)?;
    let before = current(runtime)?;
    let s = runtime.stream(1)?;
    let left = catch_unwind(AssertUnwindSafe(|| -> Outcome {
        let _scope = s.enter()?;
        let _device = runtime.device_index(0)?;
        let _again = s.enter()?;
        // Not a panic of the message kind: nothing is printed.
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    same("stream.guard", "whether the scopes were left by unwinding", left.is_err(), true)?;
    same("stream.guard", "device and both streams afterwards", current(runtime)?, before)
}

fn by_runtime(env: &Env) -> Outcome {
    let (one, other) = (Face::new(env)?, Face::new(env)?);
    one.runtime.set_device_index(1)?;
    same("thread.by-runtime", "the other runtime's device", other.runtime.current_device_index()?, 0)?;
    let stream = one.runtime.stream(0)?;
    let _scope = stream.enter()?;
    let theirs = other.runtime.current_stream(0)?;
    same("thread.by-runtime", "the other runtime's stream", theirs.stream_id(), 0)?;
    same("thread.by-runtime", "this runtime's device", one.runtime.current_device_index()?, 0)
}
