//! Defects of waits: of streams, and of host threads.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{Device, Fault, Mark, StreamId, Until, WaitMode, Waited};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

mutants! {
    a_wait_is_dropped: DroppedWait on host
        => "order.across-streams/gate", "order.across-streams/host-fn", "order.transitive", "order.across-devices",
        "programs.five-streams";
    a_wait_is_dropped_on_sim: DroppedWait on sim => "order.across-streams/gate", "programs.two-streams";
    a_wait_is_for_the_mark_before: MarkBefore on host => "order.wait-for-an-older-mark";
    a_wait_blocks_its_caller: BlockingWait on host => "order.wait-does-not-block-the-caller";
    a_wait_is_for_everything: WaitForEverything on host => "order.wait-only-up-to-the-mark";
    a_wait_counts_only_once: OnlyTheFirstWait on host => "order.wait-for-several";
    enqueueing_blocks: BoundedQueue on host => "order.enqueueing-never-waits";
    wait_host_returns_early: EarlyReturn on host
        => "wait_host.deadline/auto", "wait_host.ended-means-done/block", "reuse.pending-block-is-waited-for";
    wait_host_times_out_early: EarlyTimeout on host => "wait_host.deadline/auto";
    wait_host_times_out_late: LateTimeout on host => "wait_host.deadline/auto";
    now_covers_too_little: NowIsTheLastMark on host => "wait_host.now-covers-everything";
    now_covers_too_much: NowIsForEver on host => "wait_host.now-covers-nothing-later";
    a_mark_covers_what_follows: MarkIsNow on host => "wait_host.mark-covers-nothing-later";
    a_waiter_holds_a_lock: LockedWait on host => "wait_host.others-go-on";
}

#[derive(Default)]
struct DroppedWait;

impl Defect for DroppedWait {
    unsafe fn wait(&self, _: &dyn Device, _: StreamId, _: StreamId, _: Mark) -> Result<(), Fault> {
        Ok(())
    }
}

#[derive(Default)]
struct MarkBefore;

impl Defect for MarkBefore {
    unsafe fn wait(&self, good: &dyn Device, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        match mark {
            // SAFETY: forwarded; the stream gave out marks from 1 on.
            Mark::At(mark) if mark > 1 => unsafe { good.wait(stream, of, Mark::At(mark - 1)) },
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct BlockingWait;

impl Defect for BlockingWait {
    unsafe fn wait(&self, good: &dyn Device, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        let _blocked = match mark {
            // SAFETY: forwarded.
            Mark::At(mark) => unsafe { good.wait_host(of, Until::Mark(mark), None, WaitMode::Auto) }?,
            Mark::Captured(_) => Waited::Ended,
        };
        // SAFETY: forwarded.
        unsafe { good.wait(stream, of, mark) }
    }
}

#[derive(Default)]
struct WaitForEverything;

impl Defect for WaitForEverything {
    unsafe fn wait(&self, good: &dyn Device, stream: StreamId, of: StreamId, _: Mark) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe {
            let now = good.mark(of)?;
            good.wait(stream, of, now)
        }
    }
}

/// A stream that waits already takes no further wait.
#[derive(Default)]
struct OnlyTheFirstWait(Mutex<Vec<StreamId>>);

impl Defect for OnlyTheFirstWait {
    unsafe fn wait(&self, good: &dyn Device, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        let mut waiting = locked(&self.0);
        if waiting.contains(&stream) {
            return Ok(());
        }
        waiting.push(stream);
        // SAFETY: forwarded.
        unsafe { good.wait(stream, of, mark) }
    }
}

/// A queue of 64 marks: the next one waits for the first.
#[derive(Default)]
struct BoundedQueue(Mutex<HashMap<StreamId, Vec<u64>>>);

impl Defect for BoundedQueue {
    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        let mark = unsafe { good.mark(stream) }?;
        let Mark::At(number) = mark else { return Ok(mark) };
        let oldest = {
            let mut queues = locked(&self.0);
            let queue = queues.entry(stream).or_default();
            queue.push(number);
            queue.len().checked_sub(64).map(|at| queue[at])
        };
        if let Some(oldest) = oldest {
            // SAFETY: forwarded.
            let _blocked = unsafe { good.wait_host(stream, Until::Mark(oldest), None, WaitMode::Auto) }?;
        }
        Ok(mark)
    }
}

macro_rules! wait_host {
    ($defect:ident, leaks: $leaks:literal, |$self:ident, $good:ident, $stream:ident, $until:ident, $deadline:ident, $mode:ident| $body:expr) => {
        impl Defect for $defect {
            const LEAKS: bool = $leaks;

            unsafe fn wait_host(
                &$self,
                $good: &dyn Device,
                $stream: StreamId,
                $until: Until,
                $deadline: Option<Instant>,
                $mode: WaitMode,
            ) -> Result<Waited, Fault> {
                $body
            }
        }
    };
}

#[derive(Default)]
struct EarlyReturn;

wait_host!(EarlyReturn, leaks: true, |self, _good, _stream, _until, _deadline, _mode| Ok(Waited::Ended));

#[derive(Default)]
struct EarlyTimeout;

wait_host!(EarlyTimeout, leaks: false, |self, good, stream, until, deadline, mode| {
    let sooner = deadline.map(|deadline| deadline - Duration::from_millis(20));
    // SAFETY: forwarded.
    unsafe { good.wait_host(stream, until, sooner, mode) }
});

#[derive(Default)]
struct LateTimeout;

wait_host!(LateTimeout, leaks: false, |self, good, stream, until, deadline, mode| {
    let later = deadline.map(|deadline| deadline + Duration::from_millis(1200));
    // SAFETY: forwarded.
    unsafe { good.wait_host(stream, until, later, mode) }
});

#[derive(Default)]
struct NowIsTheLastMark(Mutex<HashMap<StreamId, u64>>);

impl Defect for NowIsTheLastMark {
    const LEAKS: bool = true;

    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        let mark = unsafe { good.mark(stream) }?;
        if let Mark::At(number) = mark {
            locked(&self.0).insert(stream, number);
        }
        Ok(mark)
    }

    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        let last = locked(&self.0).get(&stream).copied();
        let until = match (until, last) {
            (Until::Now, Some(last)) => Until::Mark(last),
            (until, _) => until,
        };
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }
}

#[derive(Default)]
struct NowIsForEver;

wait_host!(NowIsForEver, leaks: false, |self, good, stream, until, deadline, mode| {
    // SAFETY: forwarded.
    let wait = |until| unsafe { good.wait_host(stream, until, deadline, mode) };
    match wait(until)? {
        Waited::Ended if until == Until::Now => wait(Until::Now),
        waited => Ok(waited),
    }
});

#[derive(Default)]
struct MarkIsNow;

wait_host!(MarkIsNow, leaks: false, |self, good, stream, _until, deadline, mode| {
    // SAFETY: forwarded.
    unsafe { good.wait_host(stream, Until::Now, deadline, mode) }
});

/// The wait holds a lock that allocation needs.
#[derive(Default)]
struct LockedWait(Mutex<()>);

impl Defect for LockedWait {
    fn alloc(&self, good: &dyn Device, len: u64) -> Result<anyaccel_hal::Segment, Fault> {
        let _held = locked(&self.0);
        good.alloc(len)
    }

    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        let _held = locked(&self.0);
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }
}
