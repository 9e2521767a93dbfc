//! Waits that can be given up, for hosts that must look at signals meanwhile.

use crate::local;
use std::time::{Duration, Instant};

/// How long a wait lasts before it asks whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// Runs `f`. Every wait of this thread inside it, for a device or for memory that work still uses, asks `stop` about each
/// 50 ms whether to give up, and then ends with [`Error::Interrupted`](crate::Error::Interrupted); once it has said so,
/// later waits inside `f` end as soon as they would have to wait. Whatever was enqueued goes on: only the waiting ends.
///
/// Waits that keep memory borrowed, those for a copy of it that has begun, are seen through. Nested calls ask the inner
/// `stop`.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// static STOP: AtomicBool = AtomicBool::new(true);
/// let stream = runtime.stream(())?;
/// let (open, gate) = std::sync::mpsc::channel::<()>();
/// stream.host_fn(move || {
///     let _closed = gate.recv();
/// })?;
/// let waited = anyaccel::interruptible(|| STOP.load(Ordering::Relaxed), || stream.synchronize());
/// assert!(matches!(waited, Err(anyaccel::Error::Interrupted { .. })));
/// drop(open);
/// stream.synchronize()?;
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub fn interruptible<T>(stop: fn() -> bool, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(local::exchange_stop(Some(Stop { ask: stop, said: false })));
    f()
}

/// Whom this thread's waits ask, and whether it has said to stop.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    ask: fn() -> bool,
    said: bool,
}

struct Restore(Option<Stop>);

impl Drop for Restore {
    fn drop(&mut self) {
        local::exchange_stop(self.0);
    }
}

/// Waits until a deadline, in slices if this thread's waits can be given up; `wait` says whether it is over.
#[inline]
pub(crate) fn in_slices<E>(
    deadline: Option<Instant>,
    interrupted: impl FnOnce() -> E,
    mut wait: impl FnMut(Option<Instant>) -> Result<bool, E>,
) -> Result<bool, E> {
    let Some(mut stop) = local::stop() else { return wait(deadline) };
    loop {
        let now = Instant::now();
        let slice = if stop.said { now } else { now + SLICE };
        let last = deadline.filter(|&deadline| deadline <= slice);
        if wait(Some(last.unwrap_or(slice)))? {
            return Ok(true);
        }
        if last.is_some() {
            return Ok(false);
        }
        if stop.said || (stop.ask)() {
            stop.said = true;
            local::exchange_stop(Some(stop));
            return Err(interrupted());
        }
    }
}
