//! Work that ends when the case says so.

use super::{Lab, Stream, locked};
use crate::case::{Outcome, expect, skip};
use anyaccel_hal::{Device, Gate, HostStatus, StreamId};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// How a stream is held up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delay {
    /// By a closed gate.
    Gate,
    /// By a host function that does not return.
    HostFn,
}

/// A stream that is held up until this is released or dropped.
pub(crate) struct Hold(Kind);

enum Kind {
    Gate { device: Arc<dyn Device>, gate: Gate, open: bool },
    HostFn(Arc<Latch>),
}

impl Lab {
    /// Holds a stream up, by a gate if the device has gates.
    pub(crate) fn hold(&self, stream: Stream) -> Outcome<Hold> {
        let gates = self.device(stream.device).gates().is_some();
        self.hold_by(if gates { Delay::Gate } else { Delay::HostFn }, stream)
    }

    pub(crate) fn hold_by(&self, delay: Delay, stream: Stream) -> Outcome<Hold> {
        match delay {
            Delay::Gate => {
                // SAFETY: H1, the stream is that device's.
                unsafe { Hold::gate(&self.devices[stream.device], stream.id) }
            }
            Delay::HostFn => {
                let (hold, inside) = Hold::latch();
                self.call(stream, move |status| {
                    if status == HostStatus::Run {
                        inside.wait();
                    }
                })?;
                Ok(hold)
            }
        }
    }
}

impl Lab {
    /// Closes a gate that nobody will open. The case takes the lab apart afterwards.
    pub(crate) fn hold_for_good(&self, stream: Stream) -> Outcome {
        let Some(gates) = self.device(stream.device).gates() else { return skip("no gates") };
        let gate = gates.create()?;
        // SAFETY: H1, the gate was made by that device, and the stream is the lab's.
        unsafe { gates.wait(stream.id, gate) }?;
        Ok(())
    }
}

impl Lab {
    /// Runs calls that must return while a stream is held up, then lets it go. If they do not return, it lets it go all
    /// the same, so that the case ends.
    pub(crate) fn while_held(&self, rule: &str, what: &str, hold: Hold, calls: impl FnOnce() -> Outcome) -> Outcome {
        let limit = self.patience / 2;
        let (done, waits) = mpsc::channel();
        let in_time = thread::scope(|scope| {
            let rescue = scope.spawn(move || {
                let in_time = waits.recv_timeout(limit).is_ok();
                hold.release().map(|()| in_time)
            });
            let outcome = calls();
            // The rescue has gone only if the limit has passed.
            let _late = done.send(());
            outcome.and(rescue.join().unwrap_or(Ok(false)))
        })?;
        expect(rule, in_time, what, format!("no return in {limit:?}, until the stream was let go"))
    }
}

impl Hold {
    /// Holds a stream up by a gate.
    ///
    /// # Safety
    /// H1: the stream is that device's and live.
    pub(crate) unsafe fn gate(device: &Arc<dyn Device>, stream: StreamId) -> Outcome<Hold> {
        let Some(gates) = device.gates() else { return skip("no gates") };
        let gate = gates.create()?;
        let hold = Hold(Kind::Gate { device: device.clone(), gate, open: false });
        // SAFETY: H1, the gate was just made by that device, and the stream is the caller's promise.
        unsafe { gates.wait(stream, gate) }?;
        Ok(hold)
    }

    /// A hold, and what a function that is to hold its stream up waits for.
    pub(crate) fn latch() -> (Hold, Arc<Latch>) {
        let latch = Arc::new(Latch::default());
        (Hold(Kind::HostFn(latch.clone())), latch)
    }

    /// Lets the stream go on.
    pub(crate) fn release(mut self) -> Outcome {
        self.open()
    }

    fn open(&mut self) -> Outcome {
        match &mut self.0 {
            Kind::HostFn(latch) => latch.open(),
            Kind::Gate { device, gate, open } => {
                if !std::mem::replace(open, true)
                    && let Some(gates) = device.gates()
                {
                    // SAFETY: H1, made in hold_by and destroyed in Drop.
                    unsafe { gates.open(*gate) }?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _cleanup = self.open();
        if let Kind::Gate { device, gate, .. } = &self.0
            && let Some(gates) = device.gates()
        {
            // SAFETY: H1, made in hold_by, destroyed once.
            unsafe { gates.destroy(*gate) };
        }
    }
}

/// Closed, then open for good.
#[derive(Default)]
pub(crate) struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    /// Far beyond the watchdog of any case: a thread that outlives its case must end some day.
    const LIMIT: Duration = Duration::from_secs(600);

    pub(crate) fn open(&self) {
        *locked(&self.open) = true;
        self.opened.notify_all();
    }

    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        self.wait_for(Self::LIMIT);
    }

    /// Whether it was open within that time.
    pub(crate) fn wait_for(&self, limit: Duration) -> bool {
        let waited = self.opened.wait_timeout_while(locked(&self.open), limit, |open| !*open);
        *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}
