//! Calls that wait for the runtime to start: in order, once, bounded, without locks.

use super::{Bent, Face};
use crate::case::{Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::lab::locked;
use crate::words::plain;
use anyaccel::{DEFERRED_LIMIT, DeferKey, Error, Runtime};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::face("deferred.in-order-once", &["defer.order"], in_order_once),
    Case::face("deferred.coalesced", &["defer.coalesce", "scenario.9"], coalesced),
    Case::face("deferred.last-word", &["defer.coalesce", "defer.order", "scenario.9"], last_word).devices(2),
    Case::face("deferred.bounded", &["defer.bounded"], bounded),
    Case::face("deferred.live-runs-now", &["defer.live"], live_runs_now),
    Case::face("deferred.no-accelerator", &["defer.no-accelerator"], no_accelerator),
    Case::face("deferred.failed-start", &["defer.failed-start", "start.failure", "scenario.9"], failed_start),
    Case::face("deferred.error-names-its-place", &["defer.error"], error_names_its_place),
    Case::face("deferred.re-entry", &["defer.re-entry"], re_entry),
    Case::face("deferred.without-locks", &["defer.no-locks"], without_locks),
    Case::face("deferred.from-several-threads", &["defer.order", "thread.any"], from_several_threads),
];

type Log = Arc<Mutex<Vec<u32>>>;

fn push(log: &Log, value: u32) -> impl FnOnce(&Runtime) -> anyaccel::Result<()> + Send + 'static {
    let log = log.clone();
    move |_| {
        locked(&log).push(value);
        Ok(())
    }
}

fn in_order_once(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    for value in 0..500 {
        runtime.lazy_call(push(&log, value))?;
        same("defer.order", "pending calls", runtime.pending_calls(), value as usize + 1)?;
    }
    same("defer.order", "calls made before the start", locked(&log).len(), 0)?;
    same("defer.order", "whether they started the runtime", runtime.is_started(), false)?;
    runtime.current_stream(())?;
    same("defer.order", "calls made by the start", locked(&log).clone(), (0..500).collect())?;
    same("defer.order", "pending calls afterwards", runtime.pending_calls(), 0)?;
    runtime.current_stream(())?;
    same("defer.order", "calls made in the end", locked(&log).len(), 500)
}

const SEED: u32 = 0;
const STATE: u32 = 1;

fn coalesced(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    for slot in [SEED, STATE] {
        for value in 0..100_000 {
            runtime.lazy_call_keyed(DeferKey { slot, device: Some(0) }, push(&log, 2 * value + slot))?;
        }
    }
    let pending = runtime.pending_calls();
    expect("defer.coalesce", pending <= 8, "a few pending calls after 200,000 of two kinds", pending)?;
    // A call of another sort ends what may be left out.
    runtime.lazy_call(push(&log, 7))?;
    runtime.lazy_call_keyed(DeferKey { slot: SEED, device: Some(0) }, push(&log, 8))?;
    runtime.current_stream(())?;
    same("defer.coalesce", "calls made", locked(&log).clone(), vec![199_998, 199_999, 7, 8])
}

/// Seeds and states as a generator would keep them: what was asked last holds.
fn last_word(env: &Env) -> Outcome {
    for all_last in [false, true] {
        let face = Face::new(env)?;
        let runtime = &face.runtime;
        let devices = Arc::new(Mutex::new([0_u32; 2]));
        let seed_all = |value| {
            let devices = devices.clone();
            let set = move |_: &Runtime| {
                *locked(&devices) = [value; 2];
                Ok(())
            };
            runtime.lazy_call_keyed(DeferKey { slot: SEED, device: None }, set)
        };
        let restore = |device: u32, value| {
            let devices = devices.clone();
            let set = move |_: &Runtime| {
                locked(&devices)[device as usize] = value;
                Ok(())
            };
            runtime.lazy_call_keyed(DeferKey { slot: STATE, device: Some(device) }, set)
        };
        if all_last {
            restore(0, 77)?;
            seed_all(1)?;
        } else {
            seed_all(1)?;
            restore(0, 77)?;
        }
        runtime.current_stream(())?;
        let expected = if all_last { [1, 1] } else { [77, 1] };
        same("scenario.9", "the states of two devices", *locked(&devices), expected)?;
    }
    Ok(())
}

fn bounded(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let count = Arc::new(AtomicU32::new(0));
    let call = |count: &Arc<AtomicU32>| {
        let count = count.clone();
        move |_: &Runtime| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    };
    for _ in 0..DEFERRED_LIMIT {
        runtime.lazy_call(call(&count))?;
    }
    let full = |error: &Error| *error == Error::DeferredFull { limit: DEFERRED_LIMIT };
    errs("defer.bounded", "one call more than fit", "DeferredFull", runtime.lazy_call(call(&count)), full)?;
    same("defer.bounded", "the limit", DEFERRED_LIMIT, 65_536)?;
    runtime.current_stream(())?;
    same("defer.bounded", "calls made", count.load(Ordering::SeqCst) as usize, DEFERRED_LIMIT)
}

fn live_runs_now(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.current_stream(())?;
    let log = Log::default();
    runtime.lazy_call(push(&log, 1))?;
    same("defer.live", "calls made at once", locked(&log).clone(), vec![1])?;
    runtime.lazy_call_keyed(DeferKey { slot: SEED, device: None }, push(&log, 2))?;
    same("defer.live", "keyed calls made at once", locked(&log).clone(), vec![1, 2])?;
    let own = |error: &Error| *error == Error::NoAccelerator;
    errs("defer.live", "a call that fails", "its own error", runtime.lazy_call(|_| Err(Error::NoAccelerator)), own)
}

fn no_accelerator(env: &Env) -> Outcome {
    let face = Face::over(Arc::new(Bent::new(env.make()?.driver).hidden()), env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    runtime.lazy_call(push(&log, 1))?;
    runtime.lazy_call_keyed(DeferKey { slot: SEED, device: None }, push(&log, 2))?;
    same("defer.no-accelerator", "pending calls", runtime.pending_calls(), 0)?;
    same("defer.no-accelerator", "calls made", locked(&log).len(), 0)
}

fn failed_start(env: &Env) -> Outcome {
    let face = Face::over(Arc::new(Bent::new(env.make()?.driver).failing(1)), env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    for value in 0..5 {
        runtime.lazy_call(push(&log, value))?;
    }
    let failed = |error: &Error| matches!(error, Error::StartFailed { .. });
    errs("defer.failed-start", "the first start", "StartFailed", runtime.current_stream(()), failed)?;
    same("defer.failed-start", "pending calls after it", runtime.pending_calls(), 5)?;
    same("defer.failed-start", "calls made by it", locked(&log).len(), 0)?;
    runtime.lazy_call(push(&log, 5))?;
    runtime.current_stream(())?;
    same("defer.failed-start", "calls made by the second start", locked(&log).clone(), (0..6).collect())
}

fn error_names_its_place(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    runtime.lazy_call(push(&log, 1))?;
    let line = line!() + 1;
    runtime.lazy_call(|_| Err(Error::DeferredFull { limit: 1 }))?;
    runtime.lazy_call(|_| Err(Error::NoAccelerator))?;
    runtime.lazy_call(|_| std::panic::resume_unwind(Box::new("a panic in a deferred call")))?;
    runtime.lazy_call(push(&log, 2))?;
    let right = |error: &Error| {
        matches!(error, Error::Deferred { source, at }
            if **source == Error::DeferredFull { limit: 1 } && at.line() == line && at.file() == file!())
    };
    errs(
        "defer.error",
        "the start",
        "the first error with the place that queued it",
        runtime.current_stream(()),
        right,
    )?;
    // Told once; everything else has run, and the runtime is up.
    runtime.current_stream(())?;
    same("defer.error", "the other calls made", locked(&log).clone(), vec![1, 2])
}

fn re_entry(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    let inner = log.clone();
    runtime.lazy_call(move |runtime| {
        let buffer = runtime.zeros(64)?;
        let stream = runtime.stream(())?;
        stream.wait_stream(&runtime.current_stream(())?)?;
        stream.fill(&buffer.all(), &[5])?;
        stream.synchronize()?;
        locked(&inner).push(u32::from(buffer.to_vec()?[63]));
        // Called or queued from inside, it runs in any case.
        runtime.lazy_call(push(&inner, 6))?;
        runtime.lazy_call_keyed(DeferKey { slot: 9, device: None }, push(&inner, 7))
    })?;
    runtime.lazy_call(push(&log, 8))?;
    runtime.current_stream(())?;
    let mut seen = locked(&log).clone();
    seen.sort_unstable();
    same("defer.re-entry", "calls made, of a call that makes calls", seen, vec![5, 6, 7, 8])
}

/// While a deferred call runs, other threads can ask and queue.
fn without_locks(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    let (inside, entered) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let patience = face.patience;
    runtime.lazy_call(move |_| {
        // The case listens as long as it lives.
        let _entered = inside.send(());
        let _gone = wait.recv_timeout(patience);
        Ok(())
    })?;
    thread::scope(|scope| {
        let starter = scope.spawn(|| runtime.current_stream(()).map(drop));
        let _in = entered.recv_timeout(patience);
        let asker = scope.spawn(|| -> Outcome {
            runtime.pending_calls();
            runtime.device_count();
            runtime.current_device_index()?;
            runtime.synchronize(())?;
            Ok(runtime.lazy_call(push(&log, 1))?)
        });
        let deadline = std::time::Instant::now() + patience / 2;
        while !asker.is_finished() && std::time::Instant::now() < deadline {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        let free = asker.is_finished();
        let _let_go = go.send(());
        super::join(asker.join())?;
        let started = starter.join();
        expect("defer.no-locks", matches!(started, Ok(Ok(()))), "the start to succeed", plain(&started))?;
        same("defer.no-locks", "whether others could call meanwhile", free, true)
    })?;
    same("defer.no-locks", "a call queued meanwhile", locked(&log).clone(), vec![1])
}

fn from_several_threads(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let log = Log::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u32)
            .map(|at| {
                let log = &log;
                scope.spawn(move || -> Outcome {
                    for step in 0..500 {
                        runtime.lazy_call(push(log, 1000 * at + step))?;
                        if at == 3 && step == 250 {
                            runtime.current_stream(())?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| super::join(thread.join()))
    })?;
    runtime.current_stream(())?;
    let seen = locked(&log).clone();
    same("defer.order", "calls made of four threads", seen.len(), 2000)?;
    for at in 0..4 {
        let own: Vec<u32> = seen.iter().copied().filter(|value| value / 1000 == at).collect();
        let expected: Vec<u32> = (0..500).map(|step| 1000 * at + step).collect();
        // Around the start a call may overtake those that its own thread queued before; none is lost or made twice.
        let mut sorted = own.clone();
        sorted.sort_unstable();
        same("defer.order", "the calls of one thread", sorted, expected)?;
    }
    Ok(())
}
