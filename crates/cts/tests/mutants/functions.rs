//! Defects of host functions.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{Device, Fault, HostFn, HostStatus, Segment, StreamId, Until, WaitMode, Waited};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

mutants! {
    a_function_is_lost: LostFunction on host => "host_fn.called-once", "host_fn.many", "host_fn.in-stream-order";
    a_function_is_called_twice: CalledTwice on host => "host_fn.called-once", "programs.two-streams";
    a_function_is_called_at_once: CalledEarly on host => "host_fn.not-before-its-turn", "host_fn.sees-and-shows-memory";
    functions_change_places: SwappedFunctions on host => "host_fn.in-stream-order";
    a_function_does_not_hold_up_its_stream: Detached on host => "host_fn.holds-up-its-stream";
    functions_run_one_at_a_time: OneAtATime on host
        => "host_fn.blocked-ones-wait-for-each-other", "host_fn.blocked-ones-stop-nothing/3";
    a_function_runs_under_a_lock: UnderALock on host => "host_fn.no-lock-held";
    functions_share_a_few_threads: FewThreads on host => "host_fn.blocked-ones-stop-nothing/40";
    a_function_is_never_dropped: NeverDropped on host => "host_fn.dropped-once-after-the-call";
    cancellation_is_not_told: SilentEnd on host => "host_fn.cancelled/gate";
    the_end_waits_for_work: WaitingEnd on host => "host_fn.cancelled/host-fn";
    a_lost_device_runs_functions: RunAfterLoss on sim => "failure.lost-cancels-functions";
    a_fault_is_kept_to_itself: SwallowedFault on sim => "failure.failed-work-is-told-once";
    a_fault_is_told_again_and_again: RepeatedFault on sim => "failure.failed-work-is-told-once";
}

macro_rules! host_call {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident, $function:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn host_call(&$self, $good: &dyn Device, $stream: StreamId, $function: HostFn) -> Result<(), Fault> {
                $body
            }
        }
    };
}

/// Enqueues a function in place of another one.
unsafe fn enqueue(
    good: &dyn Device,
    stream: StreamId,
    function: impl FnMut(HostStatus) + Send + 'static,
) -> Result<(), Fault> {
    // SAFETY: forwarded; neither unwinds nor calls the driver more than the function in it.
    unsafe { good.host_call(stream, HostFn::new(function)) }
}

/// One in seven.
#[derive(Default)]
struct LostFunction(AtomicU32);

host_call!(LostFunction, |self, good, stream, function| {
    if self.0.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
        return Ok(());
    }
    // SAFETY: forwarded.
    unsafe { good.host_call(stream, function) }
});

#[derive(Default)]
struct CalledTwice;

host_call!(CalledTwice, |self, good, stream, function| {
    let mut function = function;
    // SAFETY: forwarded.
    unsafe {
        enqueue(good, stream, move |status| {
            function.call(status);
            function.call(status);
        })
    }
});

#[derive(Default)]
struct CalledEarly;

host_call!(CalledEarly, |self, _good, _stream, function| {
    let mut function = function;
    function.call(HostStatus::Run);
    Ok(())
});

/// Every second one waits for the next.
#[derive(Default)]
struct SwappedFunctions(Mutex<HashMap<StreamId, HostFn>>);

host_call!(SwappedFunctions, |self, good, stream, function| {
    let mut kept = locked(&self.0);
    match kept.remove(&stream) {
        // SAFETY: forwarded, in the wrong order.
        Some(earlier) => unsafe {
            good.host_call(stream, function)?;
            good.host_call(stream, earlier)
        },
        None => {
            kept.insert(stream, function);
            Ok(())
        }
    }
});

/// The function runs in its turn, on a thread that nobody waits for.
#[derive(Default)]
struct Detached;

host_call!(Detached, |self, good, stream, function| {
    let mut function = Some(function);
    // SAFETY: forwarded.
    unsafe {
        enqueue(good, stream, move |status| {
            if let Some(mut function) = function.take() {
                std::thread::spawn(move || function.call(status));
            }
        })
    }
});

#[derive(Default)]
struct OneAtATime(Arc<Mutex<()>>);

host_call!(OneAtATime, |self, good, stream, function| {
    let (mut function, one) = (function, self.0.clone());
    // SAFETY: forwarded.
    unsafe {
        enqueue(good, stream, move |status| {
            let _one = locked(&one);
            function.call(status);
        })
    }
});

/// A lock that allocation takes too.
#[derive(Default)]
struct UnderALock(Arc<Mutex<()>>);

impl Defect for UnderALock {
    fn alloc(&self, good: &dyn Device, len: u64) -> Result<Segment, Fault> {
        let _held = locked(&self.0);
        good.alloc(len)
    }

    unsafe fn host_call(&self, good: &dyn Device, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        let (mut function, lock) = (function, self.0.clone());
        // SAFETY: forwarded.
        unsafe {
            enqueue(good, stream, move |status| {
                let _held = locked(&lock);
                function.call(status);
            })
        }
    }
}

/// Sixteen functions run at a time.
#[derive(Default)]
struct FewThreads(Arc<AtomicU32>);

host_call!(FewThreads, |self, good, stream, function| {
    let (mut function, running) = (function, self.0.clone());
    // SAFETY: forwarded.
    unsafe {
        enqueue(good, stream, move |status| {
            while running.fetch_add(1, Ordering::SeqCst) >= 16 {
                running.fetch_sub(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            function.call(status);
            running.fetch_sub(1, Ordering::SeqCst);
        })
    }
});

#[derive(Default)]
struct NeverDropped;

host_call!(NeverDropped, |self, good, stream, function| {
    let mut function = std::mem::ManuallyDrop::new(function);
    // SAFETY: forwarded.
    unsafe { enqueue(good, stream, move |status| function.call(status)) }
});

#[derive(Default)]
struct SilentEnd;

host_call!(SilentEnd, |self, good, stream, function| {
    let mut function = function;
    // SAFETY: forwarded.
    unsafe {
        enqueue(good, stream, move |status| {
            if status == HostStatus::Run {
                function.call(status);
            }
        })
    }
});

/// The last reference waits for the streams.
#[derive(Default)]
struct WaitingEnd(Mutex<Vec<StreamId>>);

impl Defect for WaitingEnd {
    unsafe fn host_call(&self, good: &dyn Device, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        locked(&self.0).push(stream);
        // SAFETY: forwarded.
        unsafe { good.host_call(stream, function) }
    }

    fn gone(&self, good: &dyn Device) {
        for stream in std::mem::take(&mut *locked(&self.0)) {
            // SAFETY: the case that this runs on destroys no stream.
            let _waited = unsafe { good.wait_host(stream, Until::Now, None, WaitMode::Auto) };
        }
    }
}

#[derive(Default)]
struct RunAfterLoss;

host_call!(RunAfterLoss, |self, good, stream, function| {
    let mut function = function;
    // SAFETY: forwarded.
    unsafe { enqueue(good, stream, move |_| function.call(HostStatus::Run)) }
});

#[derive(Default)]
struct SwallowedFault;

impl Defect for SwallowedFault {
    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }.or(Ok(Waited::Ended))
    }
}

#[derive(Default)]
struct RepeatedFault(Mutex<HashMap<StreamId, Fault>>);

impl Defect for RepeatedFault {
    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: forwarded.
        let waited = unsafe { good.wait_host(stream, until, deadline, mode) };
        let mut faults = locked(&self.0);
        if let Err(fault) = &waited {
            faults.insert(stream, fault.clone());
        }
        faults.get(&stream).map_or(waited, |fault| Err(fault.clone()))
    }
}
