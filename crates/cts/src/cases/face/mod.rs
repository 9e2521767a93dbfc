//! Cases of the public functions: a runtime of its own over a fresh driver, for each.

mod arguments;
mod bent;
mod copies;
mod deferred;
mod devices;
mod events;
mod fork;
mod functions;
mod graphs;
mod guards;
mod history;
mod life;
mod limits;
mod memory;
mod programs;
mod random;
mod reuse;
mod starting;
mod streams;

pub(crate) use bent::Bent;
pub(crate) use random::{READS, SETTERS};

use crate::case::{Case, Outcome, Stop, skip};
use crate::env::Env;
use crate::lab::Hold;
use crate::ways::Way;
use anyaccel::{Error, Runtime, Stream};
use anyaccel_hal::{Driver, Kind};
use std::sync::Arc;
use std::time::Duration;

/// Tables of cases, each with the further ways in which its cases are run.
pub(super) const TABLE: &[(&[Case], &[Way])] = &[
    (starting::CASES, &[]),
    (arguments::CASES, &[]),
    (devices::CASES, &[]),
    (guards::CASES, &[]),
    (streams::CASES, &[]),
    (events::CASES, &[]),
    (copies::CASES, &[]),
    (memory::CASES, &[]),
    (limits::CASES, &[]),
    (history::CASES, &[]),
    (reuse::CASES, &[]),
    (functions::CASES, &[]),
    (programs::CASES, CAPTURED),
    (graphs::CASES, RECORDED),
    (deferred::CASES, &[]),
    (random::CASES, &[]),
    (life::CASES, &[]),
    (fork::CASES, &[]),
];

/// The further ways of cases about the work of streams.
const CAPTURED: &[Way] = &[Way::Captured, Way::Recorded];

/// The further way of cases that capture by themselves.
const RECORDED: &[Way] = &[Way::Recorded];

/// A runtime under test.
pub(crate) struct Face {
    pub(crate) runtime: Runtime,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) patience: Duration,
}

impl Face {
    /// A fresh runtime over a fresh driver.
    pub(crate) fn new(env: &Env) -> Outcome<Face> {
        Self::over(env.make()?.driver, env)
    }

    pub(crate) fn over(driver: Arc<dyn Driver>, env: &Env) -> Outcome<Face> {
        let runtime = Runtime::builder().driver(driver.clone()).build()?;
        Ok(Face { runtime, driver, patience: env.patience })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.driver.kind()
    }

    /// The lowest index that no device has.
    pub(crate) fn beyond(&self) -> u32 {
        self.runtime.device_count()
    }

    /// Goes on if the device has that much memory.
    pub(crate) fn needs_memory(&self, bytes: u64) -> Outcome {
        let (_, total) = self.runtime.get_memory_info(())?;
        if total >= bytes {
            return Ok(());
        }
        skip(format!("needs {} MiB of memory, the device has {}", bytes >> 20, total >> 20))
    }

    /// Holds a stream up until the hold is released or dropped: by a gate of the driver's, else by a function.
    pub(crate) fn hold(&self, stream: &Stream) -> Outcome<Hold> {
        let device = self.driver.open(stream.device_index())?;
        if device.gates().is_some() {
            // SAFETY: H1, the runtime keeps its streams as long as it lives, and it drives this very driver.
            return unsafe { Hold::gate(&device, stream.driver_id()) };
        }
        let (hold, inside) = Hold::latch();
        stream.host_fn(move || inside.wait())?;
        Ok(hold)
    }

    /// Goes on if the stream's work ends.
    pub(crate) fn finish(&self, stream: &Stream) -> Outcome {
        match stream.synchronize_for(self.patience)? {
            true => Ok(()),
            false => crate::case::fail("", "the work of the stream to end", format!("nothing for {:?}", self.patience)),
        }
    }
}

/// Whether an error is that of an index beyond so many devices, which it names.
pub(crate) fn out_of_range(beyond: u32) -> impl Fn(&Error) -> bool {
    move |error| {
        matches!(error, Error::IndexOutOfRange { index, count }
            if *index == i64::from(beyond) && count.is_none_or(|count| count == beyond))
    }
}

/// A question asked for what it does on the way, not for its answer.
pub(crate) fn asked<T>(_answer: T) -> anyaccel::Result<()> {
    Ok(())
}

/// The outcome of the first of several threads that did not pass.
pub(crate) fn join(outcome: std::thread::Result<Outcome>) -> Outcome {
    outcome.unwrap_or_else(|_| Err(Stop::from(panicked())))
}

fn panicked() -> anyaccel::Error {
    anyaccel::Error::Panicked { what: "a thread of the case", message: "see above".into() }
}
