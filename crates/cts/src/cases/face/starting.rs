//! What starts the runtime, and what does not.

use super::{Bent, Face, asked, join};
use crate::case::{Case, Outcome, errs, expect, same};
use crate::env::Env;
use anyaccel::{Error, EventOptions, Runtime};
use anyaccel_hal::FaultKind;
use std::sync::{Arc, Barrier};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::face("starting.innocent-calls", &["start.nothing-else", "event.unrecorded", "sync.fresh"], innocent_calls),
    Case::face("starting.queries", &["start.queries", "device.properties", "device.capability"], queries),
    Case::face("starting.marked-calls", &["start.marked", "device.set-index", "device.guard"], marked_calls),
    Case::face("starting.once", &["start.once"], once),
    Case::face("starting.several-threads", &["start.once", "thread.any"], several_threads),
    Case::face("starting.failure", &["start.failure"], failure),
    Case::face("starting.no-devices", &["device.none", "device.current-accelerator"], no_devices),
];

type Call = (&'static str, fn(&Runtime) -> anyaccel::Result<()>);

fn innocent_calls(env: &Env) -> Outcome {
    const CALLS: &[Call] = &[
        ("is_available", |runtime| asked(runtime.is_available())),
        ("device_count", |runtime| asked(runtime.device_count())),
        ("current_accelerator", |runtime| asked(runtime.current_accelerator(true))),
        ("kind", |runtime| asked(runtime.kind())),
        ("current_device_index", |runtime| runtime.current_device_index().map(drop)),
        ("set_device_index(-1)", |runtime| runtime.set_device_index(-1)),
        ("device_index(None)", |runtime| runtime.device_index(None).map(drop)),
        ("Event", |runtime| runtime.event(EventOptions::default()).map(drop)),
        ("Event.query", |runtime| runtime.event(EventOptions::default())?.query().map(drop)),
        ("Event.synchronize", |runtime| runtime.event(EventOptions::default())?.synchronize()),
        ("Event.wait", |runtime| runtime.event(EventOptions::default())?.wait(None)),
        ("synchronize", |runtime| runtime.synchronize(())),
        ("synchronize(0)", |runtime| runtime.synchronize(0)),
        ("empty_cache", |runtime| runtime.empty_cache()),
        ("empty_host_cache", |runtime| runtime.empty_host_cache()),
        ("pending_calls", |runtime| asked(runtime.pending_calls())),
        ("lazy_call", |runtime| runtime.lazy_call(|_| Ok(()))),
    ];
    let driver = Arc::new(Bent::new(env.make()?.driver));
    let face = Face::over(driver.clone(), env)?;
    for (name, call) in CALLS {
        call(&face.runtime)?;
        same("start.nothing-else", &format!("whether {name} started the runtime"), face.runtime.is_started(), false)?;
        same("start.nothing-else", &format!("starts of the driver after {name}"), driver.starts(), 0)?;
    }
    Ok(())
}

fn queries(env: &Env) -> Outcome {
    const CALLS: &[Call] = &[
        ("get_device_properties", |runtime| runtime.get_device_properties(0).map(drop)),
        ("get_device_name", |runtime| runtime.get_device_name(()).map(drop)),
        ("get_device_capability", |runtime| runtime.get_device_capability(()).map(drop)),
    ];
    let face = Face::new(env)?;
    let can_answer = face.driver.fork_safe_probe() && face.driver.describe(0).is_some();
    for (name, call) in CALLS {
        call(&face.runtime)?;
        if can_answer {
            let what = format!("whether {name} started a runtime whose probe can answer");
            same("start.queries", &what, face.runtime.is_started(), false)?;
        }
    }
    Ok(())
}

fn marked_calls(env: &Env) -> Outcome {
    const CALLS: &[Call] = &[
        ("Stream", |runtime| runtime.stream(()).map(drop)),
        ("current_stream", |runtime| runtime.current_stream(()).map(drop)),
        ("default_stream", |runtime| runtime.default_stream(0).map(drop)),
        ("set_device_index", |runtime| runtime.set_device_index(0)),
        ("device_index", |runtime| runtime.device_index(0).map(drop)),
        ("Event.record", |runtime| runtime.event(EventOptions::default())?.record(None)),
        ("alloc", |runtime| runtime.alloc(64).map(drop)),
        ("pinned", |runtime| runtime.pinned(64).map(drop)),
        ("get_memory_info", |runtime| runtime.get_memory_info(()).map(drop)),
    ];
    for (name, call) in CALLS {
        let face = Face::new(env)?;
        same("start.marked", "a fresh runtime", face.runtime.is_started(), false)?;
        call(&face.runtime)?;
        same("start.marked", &format!("whether {name} started the runtime"), face.runtime.is_started(), true)?;
    }
    Ok(())
}

fn once(env: &Env) -> Outcome {
    let driver = Arc::new(Bent::new(env.make()?.driver));
    let face = Face::over(driver.clone(), env)?;
    for _ in 0..5 {
        face.runtime.current_stream(())?;
        face.runtime.set_device_index(0)?;
        face.runtime.alloc(64)?;
    }
    same("start.once", "starts of the driver", driver.starts(), 1)
}

fn several_threads(env: &Env) -> Outcome {
    for _ in 0..10 {
        let driver = Arc::new(Bent::new(env.make()?.driver));
        let face = Face::over(driver.clone(), env)?;
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| -> Outcome {
                        barrier.wait();
                        let stream = face.runtime.current_stream(())?;
                        expect(
                            "start.once",
                            face.runtime.is_started(),
                            "a started runtime after the call",
                            "a fresh one",
                        )?;
                        Ok(stream.synchronize()?)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| join(thread.join()))
        })?;
        same("start.once", "starts of the driver by six threads", driver.starts(), 1)?;
    }
    Ok(())
}

fn failure(env: &Env) -> Outcome {
    let driver = Arc::new(Bent::new(env.make()?.driver).failing(2));
    let face = Face::over(driver.clone(), env)?;
    for _ in 0..2 {
        errs(
            "start.failure",
            "a call whose start fails",
            "StartFailed",
            face.runtime.current_stream(()),
            |error| matches!(error, Error::StartFailed { fault, .. } if fault.code == 99 && fault.kind == FaultKind::Driver),
        )?;
        same("start.failure", "whether it counts as started", face.runtime.is_started(), false)?;
        face.runtime.synchronize(())?;
    }
    let stream = face.runtime.current_stream(())?;
    stream.synchronize()?;
    same("start.failure", "starts of the driver", driver.starts(), 3)
}

fn no_devices(env: &Env) -> Outcome {
    let face = Face::over(Arc::new(Bent::new(env.make()?.driver).hidden()), env)?;
    let runtime = &face.runtime;
    same("device.none", "is_available", runtime.is_available(), false)?;
    same("device.none", "device_count", runtime.device_count(), 0)?;
    same("device.current-accelerator", "current_accelerator(true)", runtime.current_accelerator(true), None)?;
    let named = runtime.current_accelerator(false).map(|device| device.kind());
    same("device.current-accelerator", "the kind of current_accelerator(false)", named, Some(face.kind()))?;
    let none = |error: &Error| *error == Error::NoAccelerator;
    errs("device.none", "current_device_index", "NoAccelerator", runtime.current_device_index(), none)?;
    errs("device.none", "current_stream", "NoAccelerator", runtime.current_stream(()), none)?;
    errs("device.none", "alloc", "NoAccelerator", runtime.alloc(64), none)?;
    let text = Error::NoAccelerator.to_string();
    same("device.none", "its text", text.as_str(), "Cannot access accelerator device when none is available.")?;
    runtime.set_device_index(-1)?;
    runtime.empty_cache()?;
    same("device.none", "whether anything started", runtime.is_started(), false)
}
