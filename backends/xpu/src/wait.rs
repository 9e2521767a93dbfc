//! Host threads that wait (H10).

use crate::stream::Stream;
use anyaccel_hal::{Fault, Mark, Until, WaitMode, Waited};
use anyaccel_kit::spin;
use std::time::{Duration, Instant};

/// How long a thread looks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// The longest wait inside the driver, which may burn the core.
const INSIDE: Duration = Duration::from_millis(2);
/// The longest sleep between two looks.
const LONGEST: Duration = Duration::from_millis(1);
/// How often a thread that waits long asks whether the device lives.
const STATUS: Duration = Duration::from_millis(250);

/// Waits: first looking, then inside the driver, whose wait is quick and busy, then asleep between looks.
pub(crate) fn wait_host(
    stream: &Stream,
    until: Until,
    deadline: Option<Instant>,
    mode: WaitMode,
) -> Result<Waited, Fault> {
    let context = &stream.context;
    context.alive()?;
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
    let expired = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if mode == WaitMode::Auto {
        let mut seen = Ok(false);
        spin(SPIN, || {
            seen = reached();
            !matches!(seen, Ok(false)) || expired()
        });
        if seen? {
            return Ok(Waited::Ended);
        }
        let left = deadline.map_or(INSIDE, |deadline| deadline.saturating_duration_since(Instant::now()).min(INSIDE));
        if let Some(event) = stream.event_of(mark) {
            context.check(event.wait(left.as_nanos() as u64))?;
            drop(event);
        }
        if reached()? {
            return Ok(Waited::Ended);
        }
    }
    let mut pause = Duration::from_micros(20);
    let mut asked = Instant::now();
    loop {
        let now = Instant::now();
        let left = deadline.map_or(LONGEST, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            return Ok(if reached()? { Waited::Ended } else { Waited::TimedOut });
        }
        std::thread::sleep(pause.min(left));
        if reached()? {
            return Ok(Waited::Ended);
        }
        if now.duration_since(asked) > STATUS {
            asked = now;
            context.ask_status()?;
        }
        pause = (pause * 3 / 2).min(LONGEST);
    }
}
