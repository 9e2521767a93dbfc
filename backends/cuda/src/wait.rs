//! Host threads that wait (H10).

use crate::stream::Stream;
use anyaccel_hal::{Fault, Mark, Until, WaitMode, Waited};
use anyaccel_kit::spin;
use std::time::{Duration, Instant};

/// How long a thread looks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep of a wait with a deadline: the driver's own wait has none.
const LONGEST: Duration = Duration::from_millis(1);

/// Waits. The context is current.
pub(crate) fn wait_host(
    stream: &Stream,
    until: Until,
    deadline: Option<Instant>,
    mode: WaitMode,
) -> Result<Waited, Fault> {
    let context = &stream.context;
    let mark = match until {
        Until::Mark(mark) => mark,
        Until::Now => match stream.mark()? {
            Mark::At(mark) => mark,
            Mark::Captured(_) => return Err(Fault::invalid("wait_host", "a stream that is being captured")),
        },
    };
    let reached = || context.check(stream.completed()).map(|ended| ended >= mark);
    if reached()? {
        return Ok(Waited::Ended);
    }
    let expired = |deadline: Option<Instant>| deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if mode == WaitMode::Auto {
        let mut seen = Ok(false);
        spin(SPIN, || {
            seen = reached();
            !matches!(seen, Ok(false)) || expired(deadline)
        });
        if seen? {
            return Ok(Waited::Ended);
        }
    }
    let Some(deadline) = deadline else {
        if let Some(event) = stream.event_of(mark) {
            // SAFETY: the event lives as long as this count of it, and it stands for a mark at least as late.
            context.check(unsafe { context.cuda.cuEventSynchronize(event.raw) })?;
            drop(event);
        }
        // Raises what `completed` says.
        reached()?;
        return Ok(Waited::Ended);
    };
    let mut pause = Duration::from_micros(20);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(if reached()? { Waited::Ended } else { Waited::TimedOut });
        }
        std::thread::sleep(pause.min(left));
        if reached()? {
            return Ok(Waited::Ended);
        }
        pause = (pause * 3 / 2).min(LONGEST);
    }
}
