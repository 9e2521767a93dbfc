//! The test's side of a simulation: steering, faults, accounts.

use crate::clock::Costs;
use crate::config::{Interleaving, SimConfig};
use crate::counters::{Call, Counts, Method};
use crate::driver::{Life, SimDriver};
use crate::fault::{Injected, Injection};
use crate::hold::Hold;
use crate::misuse::Violation;
use crate::schedule::{Executed, Head, Picker};
use crate::state::Shared;
use crate::telemetry::{Card, Sensors};
use anyaccel_hal::{Fault, Mem, Probe, Segment, StreamId, Uuid};
use std::fmt;
use std::sync::Arc;

/// A simulation, as a test holds it. Clones steer the same one.
///
/// Ordinals out of range name no device: setters do nothing then, questions answer with nothing.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// How many objects of a device are alive: what was given out and not given back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Live {
    /// Device memory, imports and reserved ranges.
    pub mems: usize,
    /// Pinned blocks.
    pub pinned: usize,
    /// Streams.
    pub streams: usize,
    /// Stamps.
    pub stamps: usize,
    /// Gates; holds don't count.
    pub gates: usize,
    /// Loaded kernels; built-in ones don't count.
    pub kernels: usize,
}

impl Live {
    /// Of all types together.
    pub const fn total(&self) -> usize {
        self.mems + self.pinned + self.streams + self.stamps + self.gates + self.kernels
    }
}

impl Sim {
    pub(crate) fn new(config: SimConfig) -> Self {
        Self { shared: Arc::new(Shared::new(config)) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A driver of these devices. All that are alive share them.
    pub fn driver(&self) -> SimDriver {
        SimDriver { life: Life::of(&self.shared) }
    }

    /// A new simulation of the same configuration. Touches no lock of this one, so a forked child may call it.
    #[must_use]
    pub fn anew(&self) -> Sim {
        Sim::new(self.shared.config.clone())
    }

    /// The configuration.
    pub fn config(&self) -> &SimConfig {
        &self.shared.config
    }

    // Time

    /// The host's time, in virtual nanoseconds from the start.
    pub fn now(&self) -> u64 {
        self.shared.lock().now
    }

    /// Lets the host's time pass.
    pub fn advance(&self, ns: u64) {
        self.shared.change(|state| state.now = state.now.saturating_add(ns));
    }

    /// What operations of a device cost from now on, those enqueued already included.
    pub fn set_costs(&self, ordinal: u32, costs: Costs) {
        self.on(ordinal, |device| device.costs = costs);
    }

    // Order

    /// Holds a stream up at this point, until the hold is released or dropped.
    ///
    /// # Errors
    /// `Invalid` if there is no such stream.
    pub fn hold(&self, stream: StreamId) -> Result<Hold, Fault> {
        Hold::new(self.clone(), stream, false)
    }

    /// Holds a stream up at this point, until somebody waits on the host for work behind it, or it is released. Dropping
    /// it does nothing.
    ///
    /// # Errors
    /// `Invalid` if there is no such stream.
    pub fn hold_until_waited(&self, stream: StreamId) -> Result<Hold, Fault> {
        Hold::new(self.clone(), stream, true)
    }

    /// Holds everything up: from now on nothing runs but what a wait needs.
    pub fn pause(&self) {
        self.shared.change(|state| state.paused = true);
    }

    /// Ends [`Sim::pause`].
    pub fn resume(&self) {
        self.shared.change(|state| state.paused = false);
    }

    /// Interleaves otherwise from now on.
    pub fn set_interleaving(&self, interleaving: Interleaving) {
        self.shared.change(|state| state.picker = Picker::new(interleaving));
    }

    /// Runs the first operation of a stream on this thread, code of users too. False if nothing is there, or something
    /// holds it up.
    pub fn step(&self, stream: StreamId) -> bool {
        let state = self.shared.lock();
        let ready = matches!(state.head(stream), Head::Ready | Head::ReadyUserCode);
        if ready {
            self.shared.run(state, stream).host_sees_all(stream);
        }
        ready
    }

    /// Runs all that nothing holds up, code of users too, and waits for what of it runs on other threads.
    pub fn run(&self) {
        self.shared.run_all();
    }

    /// The streams whose first operation nothing holds up.
    pub fn ready(&self) -> Vec<StreamId> {
        self.shared.lock().ready(true)
    }

    /// Operations of a stream that have not ended.
    pub fn pending(&self, stream: StreamId) -> u64 {
        self.shared.lock().streams.get(&stream).map_or(0, |stream| stream.enqueued - stream.done)
    }

    /// All streams ever created, in that order.
    pub fn streams(&self) -> Vec<StreamId> {
        self.shared.lock().created.clone()
    }

    /// The latest operations run, in the order in which they took effect. As many as [`SimConfig::log`] says.
    pub fn executed(&self) -> Vec<Executed> {
        self.shared.lock().trace.iter().copied().collect()
    }

    // Accounts

    /// How often a method was called, on all devices together.
    pub fn calls(&self, method: Method) -> u64 {
        self.counts().of(method)
    }

    /// How often a method was called on a device.
    pub fn calls_on(&self, ordinal: u32, method: Method) -> u64 {
        self.counts_on(ordinal).of(method)
    }

    /// How often each method was called, on all devices together.
    pub fn counts(&self) -> Counts {
        self.shared.lock().ledger.of_all()
    }

    /// How often each method was called on a device.
    pub fn counts_on(&self, ordinal: u32) -> Counts {
        self.shared.lock().ledger.of_device(ordinal)
    }

    /// The latest calls. As many as [`SimConfig::log`] says.
    pub fn log(&self) -> Vec<Call> {
        self.shared.lock().ledger.log()
    }

    /// What of a device is alive.
    pub fn live(&self, ordinal: u32) -> Live {
        let state = self.shared.lock();
        let Some(device) = state.devices.get(ordinal as usize) else { return Live::default() };
        let ours = |owner: u32| owner == ordinal;
        Live {
            mems: device.space.live(),
            pinned: device.pinned.live(),
            streams: state.streams.values().filter(|stream| ours(stream.ordinal)).count(),
            stamps: state.stamps.values().filter(|stamp| ours(stamp.ordinal)).count(),
            gates: state.gates.values().filter(|gate| ours(gate.ordinal) && !gate.hold).count(),
            kernels: state.kernels.values().filter(|kernel| ours(kernel.ordinal)).count() - device.builtins.len(),
        }
    }

    /// Live memory of a device, by address.
    pub fn segments(&self, ordinal: u32) -> Vec<Segment> {
        self.shared.lock().devices.get(ordinal as usize).map_or(Vec::new(), |device| device.space.segments())
    }

    /// Bytes of a device that are taken here.
    pub fn used(&self, ordinal: u32) -> u64 {
        self.shared.lock().devices.get(ordinal as usize).map_or(0, |device| device.space.used())
    }

    /// Bytes of pinned memory taken for a device, registered memory of others not counted.
    pub fn pinned_used(&self, ordinal: u32) -> u64 {
        self.shared.lock().devices.get(ordinal as usize).map_or(0, |device| device.pinned.used())
    }

    /// The bytes of a piece of memory as they are now, whatever is still to come. `None` if it is not there, not backed,
    /// or shorter.
    pub fn peek(&self, mem: Mem, offset: u64, len: u64) -> Option<Vec<u8>> {
        let state = self.shared.lock();
        let device = state.devices.get(crate::handle::device_of(mem.0) as usize)?;
        let span = device.space.span(mem, offset, len).ok()?;
        let ptr = span.ptr()?;
        // SAFETY: the span was checked and keeps its memory alive. Under the lock nobody writes it but host kernels, and
        // a test that peeks at what one writes has no order between the two anyway.
        Some(unsafe { std::slice::from_raw_parts(ptr, len as usize) }.to_vec())
    }

    /// Rules of the hal that the caller broke. A test asserts that there are none.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.lock().violations.all()
    }

    /// Forgets the violations, after a test that broke rules on purpose.
    pub fn clear_violations(&self) {
        self.shared.lock().violations.clear();
    }

    // Faults

    /// Makes calls fail. An injection into a method that can't fail is a violation, and does nothing.
    pub fn inject(&self, injection: Injection) -> Injected {
        let mut state = self.shared.lock();
        let method = injection.method();
        if !method.can_fail() {
            state.violations.note("inject", method.name(), "this method has no way to fail");
        }
        state.injections.arm(injection)
    }

    /// Takes an injection back.
    pub fn withdraw(&self, injected: Injected) {
        self.shared.lock().injections.withdraw(injected);
    }

    /// How many calls an injection has made fail. 0 once it is withdrawn.
    pub fn fired(&self, injected: Injected) -> u64 {
        self.shared.lock().injections.fired(injected)
    }

    /// The next operation of a stream (no mark, wait or stamp) has no effect, and the next host wait reports that fault.
    pub fn fail_work(&self, stream: StreamId, fault: Fault) {
        self.shared.change(|state| {
            if let Some(stream) = state.streams.get_mut(&stream) {
                stream.fail_next = Some(fault);
            }
        });
    }

    /// A device is lost now, for good (H20). Host functions that it still had are cancelled on this thread.
    pub fn lose_device(&self, ordinal: u32) {
        self.shared.change(|state| {
            if (ordinal as usize) < state.devices.len() {
                state.lose(ordinal);
            }
        });
        drop(self.shared.cancel_all(self.shared.lock()));
    }

    /// A device is lost when the turn of its n-th operation from now comes (marks, waits and stamps don't count). 0 is
    /// taken as 1.
    pub fn lose_device_at(&self, ordinal: u32, n: u64) {
        self.on(ordinal, |device| device.lose_after = Some(n.max(1)));
    }

    /// Other processes hold that much of a device's memory, instead of what they held so far.
    pub fn set_foreign_memory(&self, ordinal: u32, bytes: u64) {
        self.on(ordinal, |device| device.space.set_foreign(bytes));
    }

    // Discovery and management

    /// What the driver's probe answers from now on, until it is started.
    pub fn set_probe(&self, probe: Probe) {
        self.shared.lock().probe = probe;
    }

    /// The cards that the management side lists, in its order.
    pub fn cards(&self) -> Vec<Card> {
        self.shared.lock().management.0.clone()
    }

    /// Lists these cards instead.
    pub fn set_cards(&self, cards: impl IntoIterator<Item = Card>) {
        self.shared.lock().management.0 = cards.into_iter().collect();
    }

    /// What a card's sensors read from now on. Nothing happens if it is not listed.
    pub fn set_sensors(&self, uuid: Uuid, sensors: Sensors) {
        if let Some(card) = self.shared.lock().management.0.iter_mut().find(|card| card.uuid == uuid) {
            card.sensors = sensors;
        }
    }

    fn on(&self, ordinal: u32, change: impl FnOnce(&mut crate::state::DeviceState)) {
        self.shared.change(|state| {
            if let Some(device) = state.devices.get_mut(ordinal as usize) {
                change(device);
            }
        });
    }
}
