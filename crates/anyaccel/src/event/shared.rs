//! What several processes have of one event: a native event of the device, which each of them records and waits for.
//!
//! The driver tells of such an event only by letting a stream wait for it. So whoever asks whether it has ended, or waits for it
//! on the host or on another device, sends a stream of the event's own there first: the *probe*.

use crate::error::{Error, Result};
use crate::fork;
use crate::graph::GraphError;
use crate::lane::LaneRef;
use crate::local;
use crate::port::Port;
use anyaccel_hal::{NativeEvent, NativeEvents, Until, WaitMode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a question waits for the probe, where the event may have ended long ago.
const MOMENT: Duration = Duration::from_millis(2);

pub(super) struct SharedEvent {
    port: Arc<Port>,
    raw: NativeEvent,
    epoch: u64,
    /// The stream that goes there, and the mark behind its last wait.
    probe: Mutex<Option<(LaneRef, u64)>>,
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if self.epoch != fork::epoch() {
            return;
        }
        if local::in_host_fn() {
            self.port.retire_event(self.raw);
        } else {
            self.port.destroy_event(self.raw);
        }
    }
}

impl SharedEvent {
    /// A new one.
    pub(super) fn make(call: &'static str, port: &Arc<Port>) -> Result<Self> {
        let raw = native(port)?.create(true).map_err(|fault| port.error(call, fault))?;
        Ok(Self::of(port, raw))
    }

    /// Another process's.
    pub(super) fn open(call: &'static str, port: &Arc<Port>, handle: &[u8]) -> Result<Self> {
        let events = native(port)?;
        let expected = events.limits().ipc_bytes as usize;
        if handle.len() != expected {
            return Err(Error::Argument {
                argument: "handle",
                reason: format!("{} bytes, but an event's handle has {expected} on {}", handle.len(), port.device),
            });
        }
        let raw = events.import(handle).map_err(|fault| port.error(call, fault))?;
        Ok(Self::of(port, raw))
    }

    fn of(port: &Arc<Port>, raw: NativeEvent) -> Self {
        Self { port: Arc::clone(port), raw, epoch: fork::epoch(), probe: Mutex::default() }
    }

    /// What other processes open it with.
    pub(super) fn handle(&self, call: &'static str) -> Result<Vec<u8>> {
        let events = native(&self.port)?;
        let mut handle = vec![0; events.limits().ipc_bytes as usize];
        // SAFETY: H1: the event is this value's own.
        unsafe { events.export(self.raw, &mut handle) }.map_err(|fault| self.port.error(call, fault))?;
        Ok(handle)
    }

    /// Records it on a lane of its device.
    pub(super) fn record(&self, call: &'static str, lane: &LaneRef) -> Result<()> {
        // SAFETY: H1: the event is this value's own, a borrowed lane is a live stream.
        unsafe { native(&self.port)?.record(self.raw, lane.raw) }.map_err(|fault| self.port.error(call, fault))
    }

    /// Makes a lane of any device wait for the last record of any process.
    pub(super) fn wait(&self, call: &'static str, port: &Arc<Port>, lane: &LaneRef) -> Result<()> {
        if lane.is_capturing() {
            return Err(GraphError::OutsideEvent { call }.into());
        }
        if port.ordinal == self.port.ordinal {
            return self.wait_here(call, lane);
        }
        let (probe, mark) = self.send_probe(call)?;
        port.wait(lane, &self.port, &probe, mark)
    }

    fn wait_here(&self, call: &'static str, lane: &LaneRef) -> Result<()> {
        // SAFETY: H1: the event is this value's own, a borrowed lane is a live stream.
        unsafe { native(&self.port)?.wait(self.raw, lane.raw) }.map_err(|fault| self.port.error(call, fault))
    }

    fn send_probe(&self, call: &'static str) -> Result<(LaneRef, u64)> {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = match &*probe {
            Some((lane, _)) => lane.clone(),
            None => self.port.lanes.reserve(&self.port, 0)?,
        };
        self.wait_here(call, &lane)?;
        let mark = self.port.mark(call, &lane)?;
        *probe = Some((lane.clone(), mark));
        Ok((lane, mark))
    }

    /// Whether the work before the last record has ended. The answer may be a moment late, and is no while an earlier question's
    /// record goes on.
    pub(super) fn ended(&self, call: &'static str) -> Result<bool> {
        let asked = self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((lane, mark)) = asked
            && !self.port.ended(call, &lane, mark)?
        {
            return Ok(false);
        }
        let soon = Instant::now() + MOMENT;
        self.wait_host(call, Some(soon), WaitMode::Auto)
    }

    /// Waits on this thread. False if the deadline came first.
    pub(super) fn wait_host(&self, call: &'static str, deadline: Option<Instant>, mode: WaitMode) -> Result<bool> {
        let (lane, mark) = self.send_probe(call)?;
        self.port.wait_host(call, &lane, Until::Mark(mark), deadline, mode)
    }
}

/// The device's events for several processes.
fn native(port: &Port) -> Result<&dyn NativeEvents> {
    port.shared_events().ok_or(Error::EventOption { option: "interprocess", kind: port.device.kind() })
}
