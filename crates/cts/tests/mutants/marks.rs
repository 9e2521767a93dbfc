//! Defects of marks, of progress and of time.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{
    Device, End, Fault, FaultKind, Gate, HostFn, Mark, Pattern, Place, Stamp, StreamId, Until, WaitMode, Waited,
};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

mutants! {
    a_mark_comes_before_its_work: EarlyMark on host
        => "order.across-streams/work", "marks.end-behind-work", "wait_host.ended-means-done/auto";
    a_mark_is_given_twice: RepeatedMark on host => "marks.rise";
    completed_is_too_high: CompletedTooHigh on host => "marks.not-early", "marks.end-behind-work";
    completed_runs_ahead: CompletedRunsAhead on host => "marks.at-most-given";
    completed_falls: CompletedFalls on host => "marks.never-fall";
    completed_stays_behind: CompletedStuck on host
        => "marks.reached-in-the-end", "marks.not-early/each", "reuse.each-stream-is-waited-for";
    completed_blocks: CompletedBlocks on host => "marks.not-early";
    completed_counts_all_streams: CompletedOfAll on host => "marks.per-stream", "reuse.each-stream-is-waited-for";
    nothing_goes_on_by_itself: NoProgress on host => "progress.after-mark", "progress.after-host-call";
    time_stands_still: Constant on host => "time.work-takes-time", "time.across-streams";
    time_runs_back: Reversed on host => "time.work-takes-time", "time.at-its-turn";
    time_is_never_negative: Absolute on host => "time.reversed-is-negative";
    time_is_in_other_units: Microseconds on host => "time.within-the-hosts-time", "time.at-its-turn";
    time_is_told_too_early: AlwaysReady on host => "time.not-ready";
    stamps_are_reused: ReusedStamps on host => "memory.handles-are-unique";
    stamps_are_forgotten: ForgottenStamps on host => "time.many-stamps";
}

/// One operation put off.
enum Late {
    Copy(End, End, u64),
    Fill(Place, Pattern, u64),
}

impl Late {
    unsafe fn enqueue(self, good: &dyn Device, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: the call that was put off, before its mark is used.
        unsafe {
            match self {
                Self::Copy(dst, src, len) => good.copy(stream, dst, src, len),
                Self::Fill(dst, pattern, len) => good.fill(stream, dst, pattern, len),
            }
        }
    }
}

/// Copies and fills are enqueued behind the mark that follows them.
#[derive(Default)]
struct EarlyMark(Mutex<HashMap<StreamId, Vec<Late>>>);

impl EarlyMark {
    fn flush(&self, good: &dyn Device, stream: StreamId) -> Result<(), Fault> {
        let late = locked(&self.0).remove(&stream).unwrap_or_default();
        // SAFETY: forwarded.
        late.into_iter().try_for_each(|late| unsafe { late.enqueue(good, stream) })
    }
}

impl Defect for EarlyMark {
    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        let mark = unsafe { good.mark(stream) }?;
        self.flush(good, stream)?;
        // SAFETY: forwarded; so that the late work is submitted.
        let _submitted = unsafe { good.mark(stream) }?;
        Ok(mark)
    }

    unsafe fn copy(&self, _: &dyn Device, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        locked(&self.0).entry(stream).or_default().push(Late::Copy(dst, src, len));
        Ok(())
    }

    unsafe fn fill(&self, _: &dyn Device, stream: StreamId, dst: Place, it: Pattern, len: u64) -> Result<(), Fault> {
        locked(&self.0).entry(stream).or_default().push(Late::Fill(dst, it, len));
        Ok(())
    }

    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        if until == Until::Now {
            self.flush(good, stream)?;
        }
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }
}

#[derive(Default)]
struct RepeatedMark(Mutex<HashMap<StreamId, (Mark, u32)>>);

impl Defect for RepeatedMark {
    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        let mark = unsafe { good.mark(stream) }?;
        let mut last = locked(&self.0);
        let (kept, count) = last.entry(stream).or_insert((mark, 0));
        *count += 1;
        if !count.is_multiple_of(10) {
            *kept = mark;
        }
        Ok(*kept)
    }
}

macro_rules! completed {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn completed(&$self, $good: &dyn Device, $stream: StreamId) -> Result<u64, Fault> {
                $body
            }
        }
    };
}

/// The last mark given out, ended or not.
#[derive(Default)]
struct CompletedTooHigh(Mutex<HashMap<StreamId, u64>>);

impl Defect for CompletedTooHigh {
    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        let mark = unsafe { good.mark(stream) }?;
        if let Mark::At(number) = mark {
            locked(&self.0).insert(stream, number);
        }
        Ok(mark)
    }

    unsafe fn completed(&self, _: &dyn Device, stream: StreamId) -> Result<u64, Fault> {
        Ok(locked(&self.0).get(&stream).copied().unwrap_or(0))
    }
}

#[derive(Default)]
struct CompletedRunsAhead;

completed!(CompletedRunsAhead, |self, good, stream| {
    // SAFETY: forwarded.
    unsafe { good.completed(stream) }.map(|ended| ended + 1)
});

#[derive(Default)]
struct CompletedFalls(AtomicU64);

completed!(CompletedFalls, |self, good, stream| {
    let falls = self.0.fetch_add(1, Ordering::Relaxed) % 50 == 49;
    // SAFETY: forwarded.
    unsafe { good.completed(stream) }.map(|ended| if falls { ended / 2 } else { ended })
});

#[derive(Default)]
struct CompletedStuck;

completed!(CompletedStuck, |self, _good, _stream| Ok(0));

#[derive(Default)]
struct CompletedBlocks;

completed!(CompletedBlocks, |self, good, stream| {
    // SAFETY: forwarded.
    unsafe {
        let _blocked = good.wait_host(stream, Until::Now, None, WaitMode::Auto)?;
        good.completed(stream)
    }
});

/// The highest of all streams asked about so far.
#[derive(Default)]
struct CompletedOfAll(AtomicU64);

completed!(CompletedOfAll, |self, good, stream| {
    // SAFETY: forwarded.
    let ended = unsafe { good.completed(stream) }?;
    Ok(self.0.fetch_max(ended, Ordering::Relaxed).max(ended))
});

/// Work begins only when somebody asks for it: each stream hangs on a gate that a later look opens.
#[derive(Default)]
struct NoProgress(Mutex<Vec<(StreamId, Gate)>>);

impl NoProgress {
    fn hang(&self, good: &dyn Device, stream: StreamId) -> Result<(), Fault> {
        let mut hung = locked(&self.0);
        if let (Some(gates), false) = (good.gates(), hung.iter().any(|entry| entry.0 == stream)) {
            let gate = gates.create()?;
            // SAFETY: forwarded; the gate was just made.
            unsafe { gates.wait(stream, gate) }?;
            hung.push((stream, gate));
        }
        Ok(())
    }

    fn let_go(&self, good: &dyn Device) {
        for (_, gate) in locked(&self.0).drain(..) {
            // SAFETY: made by hang, destroyed once.
            good.gates().into_iter().for_each(|gates| unsafe { gates.destroy(gate) });
        }
    }
}

impl Defect for NoProgress {
    unsafe fn fill(&self, good: &dyn Device, stream: StreamId, dst: Place, it: Pattern, len: u64) -> Result<(), Fault> {
        self.hang(good, stream)?;
        // SAFETY: forwarded.
        unsafe { good.fill(stream, dst, it, len) }
    }

    unsafe fn host_call(&self, good: &dyn Device, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        self.hang(good, stream)?;
        // SAFETY: forwarded.
        unsafe { good.host_call(stream, function) }
    }

    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        self.let_go(good);
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }

    fn gone(&self, good: &dyn Device) {
        self.let_go(good);
    }
}

/// Another answer than the good device's.
macro_rules! elapsed {
    ($defect:ident, $answer:expr) => {
        #[derive(Default)]
        struct $defect;

        impl Defect for $defect {
            unsafe fn elapsed_ns(&self, good: &dyn Device, from: Stamp, to: Stamp) -> Result<i64, Fault> {
                // SAFETY: forwarded.
                let right = unsafe { good.elapsed_ns(from, to) };
                ($answer)(right)
            }
        }
    };
}

type Elapsed = Result<i64, Fault>;

elapsed!(Constant, |right: Elapsed| right.map(|_| 0));
elapsed!(Reversed, |right: Elapsed| right.map(|ns| -ns));
elapsed!(Absolute, |right: Elapsed| right.map(i64::abs));
elapsed!(Microseconds, |right: Elapsed| right.map(|ns| ns / 1000));
elapsed!(AlwaysReady, |right: Elapsed| match right {
    Err(fault) if fault.kind == FaultKind::NotReady => Ok(0),
    other => other,
});

/// Numbers of dropped stamps are given out again.
#[derive(Default)]
struct ReusedStamps(Mutex<Vec<Option<Stamp>>>);

impl ReusedStamps {
    fn real(&self, stamp: Stamp) -> Option<Stamp> {
        locked(&self.0).get(stamp.0 as usize).copied().flatten()
    }
}

impl Defect for ReusedStamps {
    unsafe fn stamp(&self, good: &dyn Device, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: forwarded.
        let real = unsafe { good.stamp(stream) }?;
        let mut slots = locked(&self.0);
        let free = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[free] = Some(real);
        Ok(Stamp(free as u64))
    }

    unsafe fn elapsed_ns(&self, good: &dyn Device, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        match (self.real(from), self.real(to)) {
            // SAFETY: forwarded.
            (Some(from), Some(to)) => unsafe { good.elapsed_ns(from, to) },
            _ => Err(Fault::invalid("elapsed_ns", "no such stamp")),
        }
    }

    unsafe fn drop_stamp(&self, good: &dyn Device, stamp: Stamp) {
        let real = locked(&self.0).get_mut(stamp.0 as usize).and_then(Option::take);
        // SAFETY: forwarded.
        real.into_iter().for_each(|real| unsafe { good.drop_stamp(real) });
    }
}

/// Only the latest 1000 are kept.
#[derive(Default)]
struct ForgottenStamps(Mutex<Vec<Stamp>>);

impl Defect for ForgottenStamps {
    unsafe fn stamp(&self, good: &dyn Device, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: forwarded.
        let stamp = unsafe { good.stamp(stream) }?;
        locked(&self.0).push(stamp);
        Ok(stamp)
    }

    unsafe fn elapsed_ns(&self, good: &dyn Device, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        let kept = locked(&self.0);
        let kept = &kept[kept.len().saturating_sub(1000)..];
        if kept.contains(&from) && kept.contains(&to) {
            // SAFETY: forwarded.
            return unsafe { good.elapsed_ns(from, to) };
        }
        Err(Fault::invalid("elapsed_ns", "no such stamp"))
    }
}
