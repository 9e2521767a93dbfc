//! What is simulated: the devices, and how they behave.

use crate::clock::Costs;
use crate::handle::MAX_DEVICES;
use crate::sim::Sim;
use anyaccel_hal::{
    DTypeSet, DeviceInfo, Fault, FaultKind, Kind, PatternSizes, PciAddress, PriorityRange, StreamId, TelemetryLimits,
    Uuid,
};
use std::fmt;
use std::sync::Arc;

/// Picks one of the streams that can run, which are in the order of their handles, or none for now.
pub type Chooser = Arc<dyn Fn(&[StreamId]) -> Option<StreamId> + Send + Sync>;

/// In which order the operations of different streams run.
#[derive(Clone)]
pub enum Interleaving {
    /// Each operation runs when it is enqueued, if nothing holds it up.
    Eager,
    /// One operation of each stream in turn, all that can run, whenever somebody looks.
    RoundRobin,
    /// Random picks from this seed: a look runs a few operations, a wait no more than it happens to take.
    Seeded(u64),
    /// By virtual time: an operation has run when the host's time has reached its end.
    ByTime,
    /// The streams in this order, by the number in which they were created; then round-robin. Picks that can't run are
    /// skipped.
    Picks(Vec<usize>),
    /// A function picks one of the streams that can run, or none for now. A wait overrules it where it must. It is
    /// called under the lock of the simulation and must not call anything of it.
    Chosen(Chooser),
    /// Nothing runs but by [`Sim::step`], [`Sim::run`] and what a wait needs.
    Manual,
}

impl fmt::Debug for Interleaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager => f.write_str("Eager"),
            Self::RoundRobin => f.write_str("RoundRobin"),
            Self::Seeded(seed) => f.debug_tuple("Seeded").field(seed).finish(),
            Self::ByTime => f.write_str("ByTime"),
            Self::Picks(picks) => f.debug_tuple("Picks").field(picks).finish(),
            Self::Chosen(_) => f.write_str("Chosen"),
            Self::Manual => f.write_str("Manual"),
        }
    }
}

/// On which thread work runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// On the thread that looks: nothing runs between calls, so a single-threaded test repeats exactly.
    ///
    /// H11's progress is then met when somebody looks. Functions of users (host functions, host kernels) run in
    /// `wait_host`, those only that the wait needs, and in [`Sim::run`] and [`Sim::step`]; never in `completed` (H9). Two
    /// of them that wait for each other need [`Execution::Background`].
    OnLook,
    /// On a thread of the driver's own, functions of users each on another one: every rule of the hal as it is written.
    Background,
}

/// What a wait does that nothing can end but another thread's call (a closed hold, a gate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadlock {
    /// It waits: for the other thread, or for its deadline in real time.
    Wait,
    /// It fails with `Invalid`, naming stream and hold; with a deadline it ends at once as timed out, and the host's
    /// virtual time moves to the deadline. For tests with one thread.
    Fault,
}

/// Which address the next segment gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reuse {
    /// One above all earlier ones: the order of addresses is that of the calls.
    Never,
    /// The lowest gap that fits.
    LowestFit,
}

/// What a device can do beside the required.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// [`Pinned`](anyaccel_hal::Pinned).
    pub pinned: bool,
    /// [`Peers`](anyaccel_hal::Peers), to all other devices of the driver that have it too.
    pub peers: bool,
    /// [`VirtualMemory`](anyaccel_hal::VirtualMemory).
    pub virtual_memory: bool,
    /// [`Kernels`](anyaccel_hal::Kernels), of [`Format::HostFn`](anyaccel_hal::Format::HostFn).
    pub kernels: bool,
    /// [`Gates`](anyaccel_hal::Gates).
    pub gates: bool,
    /// [`Telemetry`](anyaccel_hal::Telemetry).
    pub telemetry: bool,
    /// The built-in kernels.
    pub builtins: bool,
    /// Streams can wait for marks of other devices.
    pub foreign_waits: bool,
    /// The free memory is known; on OpenCL it isn't.
    pub free_known: bool,
    /// Foreign memory can be imported.
    pub import: bool,
}

impl Capabilities {
    /// Everything.
    pub const ALL: Capabilities = Capabilities {
        pinned: true,
        peers: true,
        virtual_memory: true,
        kernels: true,
        gates: true,
        telemetry: true,
        builtins: true,
        foreign_waits: true,
        free_known: true,
        import: true,
    };

    /// Nothing but what every device must do.
    pub const NONE: Capabilities = Capabilities {
        pinned: false,
        peers: false,
        virtual_memory: false,
        kernels: false,
        gates: false,
        telemetry: false,
        builtins: false,
        foreign_waits: false,
        free_known: false,
        import: false,
    };
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Bytes of memory.
    pub memory: u64,
    /// Whether memory has contents. Without, operations take time and order but move nothing.
    pub backed: bool,
    /// What addresses are multiples of; a power of two.
    pub alignment: u64,
    /// Which addresses are given out.
    pub reuse: Reuse,
    /// The largest single allocation in bytes.
    pub max_alloc: u64,
    /// Bytes of pinned memory that the host has for it.
    pub pinned_memory: u64,
    /// Granularity of virtual memory.
    pub granularity: u64,
    /// How many gates may be closed at a time.
    pub closed_gates: u32,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What operations cost.
    pub costs: Costs,
    /// What offsets of places in kernel arguments are multiples of; a power of two.
    pub place_alignment: u64,
    /// Whether copies may name any host memory.
    pub host_ends: bool,
    /// Whether pinned memory may be an argument of kernels.
    pub direct: bool,
    /// Native fill patterns.
    pub fill_patterns: PatternSizes,
    /// Stream priorities.
    pub priorities: PriorityRange,
    /// Its identity; `None`: one made from its ordinal.
    pub uuid: Option<Uuid>,
    /// Whether it says that it shares the host's memory.
    pub integrated: bool,
    /// Which sensors its card has.
    pub sensors: TelemetryLimits,
}

impl DeviceConfig {
    /// A device with that much backed memory and every capability.
    pub const fn new(memory: u64) -> Self {
        Self {
            memory,
            backed: true,
            alignment: 2 << 20,
            reuse: Reuse::Never,
            max_alloc: memory,
            pinned_memory: 1 << 34,
            granularity: 2 << 20,
            closed_gates: 4096,
            capabilities: Capabilities::ALL,
            costs: Costs { op_ns: 1_000, transfer_ps: 50, local_ps: 1, fill_ps: 1, group_ns: 10, poll_ns: 100 },
            place_alignment: 1,
            host_ends: true,
            direct: true,
            fill_patterns: PatternSizes::ALL,
            priorities: PriorityRange { least: 0, greatest: -2 },
            uuid: None,
            integrated: false,
            sensors: TelemetryLimits {
                utilization: true,
                memory_usage: true,
                temperature: true,
                power: true,
                clock: true,
            },
        }
    }

    /// The properties that the device of that ordinal reports.
    pub(crate) fn info(&self, ordinal: u32) -> DeviceInfo {
        DeviceInfo {
            name: format!("Simulated device {ordinal}"),
            vendor: "anyaccel".into(),
            driver: env!("CARGO_PKG_VERSION").into(),
            uuid: Some(self.identity(ordinal)),
            pci: Some(PciAddress { domain: 0, bus: ordinal as u8, device: 0, function: 0 }),
            memory: self.memory,
            max_alloc: self.max_alloc,
            alignment: self.alignment,
            place_alignment: self.place_alignment,
            host_ends: self.host_ends,
            stamp_ns: 1,
            fill_patterns: self.fill_patterns,
            cores: Some(1),
            clock_mhz: Some(1000),
            integrated: Some(self.integrated),
            priorities: self.priorities,
            dtypes: if self.capabilities.builtins { DTypeSet::ALL } else { DTypeSet::EMPTY },
        }
    }

    pub(crate) fn identity(&self, ordinal: u32) -> Uuid {
        self.uuid.unwrap_or_else(|| uuid_of(ordinal))
    }
}

/// The identity of the device with that ordinal, where [`DeviceConfig::uuid`] says no other.
pub fn uuid_of(ordinal: u32) -> Uuid {
    let mut bytes = *b"anyaccel-sim\0\0\0\0";
    bytes[12..].copy_from_slice(&ordinal.to_be_bytes());
    Uuid(bytes)
}

/// What is simulated. Build it, then take the [`Sim`] to steer it and its driver to run on it.
#[derive(Clone, Debug)]
pub struct SimConfig {
    pub(crate) devices: Vec<DeviceConfig>,
    pub(crate) interleaving: Interleaving,
    pub(crate) execution: Execution,
    pub(crate) deadlock: Deadlock,
    pub(crate) log: usize,
    pub(crate) strict: bool,
    pub(crate) describe: bool,
    pub(crate) fork_safe_probe: bool,
    pub(crate) kind: Kind,
    pub(crate) restartable: bool,
    pub(crate) native_streams: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl SimConfig {
    /// One device with 1 GiB of backed memory, run round-robin by those who look.
    pub fn new() -> Self {
        Self {
            devices: vec![DeviceConfig::new(1 << 30)],
            interleaving: Interleaving::RoundRobin,
            execution: Execution::OnLook,
            deadlock: Deadlock::Wait,
            log: 1024,
            strict: true,
            describe: true,
            fork_safe_probe: true,
            kind: Kind::SIM,
            restartable: true,
            native_streams: false,
        }
    }

    /// Devices with these memory sizes in bytes, in place of those so far.
    #[must_use]
    pub fn memories(self, sizes: impl IntoIterator<Item = u64>) -> Self {
        self.devices(sizes.into_iter().map(DeviceConfig::new))
    }

    /// These devices, in place of those so far. At most 256: any more are left out.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceConfig>) -> Self {
        self.devices = devices.into_iter().take(MAX_DEVICES).collect();
        self
    }

    /// Changes each device.
    #[must_use]
    pub fn each_device(mut self, mut change: impl FnMut(&mut DeviceConfig)) -> Self {
        self.devices.iter_mut().for_each(&mut change);
        self
    }

    /// Memory without contents, on each device.
    #[must_use]
    pub fn address_only(self) -> Self {
        self.each_device(|device| device.backed = false)
    }

    /// In which order streams run.
    #[must_use]
    pub fn interleaving(mut self, interleaving: Interleaving) -> Self {
        self.interleaving = interleaving;
        self
    }

    /// On which thread work runs.
    #[must_use]
    pub const fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// What a wait does that can't end.
    #[must_use]
    pub const fn deadlock(mut self, deadlock: Deadlock) -> Self {
        self.deadlock = deadlock;
        self
    }

    /// How many of the latest calls, and of the latest operations run, are kept.
    #[must_use]
    pub const fn log(mut self, kept: usize) -> Self {
        self.log = kept;
        self
    }

    /// Whether races, and memory given back before the host could know that it is unused, are violations, even if no harm
    /// was done. On at first; off for tests that race on purpose.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether devices can be described without opening them.
    #[must_use]
    pub const fn describes(mut self, describe: bool) -> Self {
        self.describe = describe;
        self
    }

    /// Whether the driver says that its probe starts nothing. OpenCL's can't say so.
    #[must_use]
    pub const fn fork_safe_probe(mut self, safe: bool) -> Self {
        self.fork_safe_probe = safe;
        self
    }

    /// The kind that the driver says it is: a program for that kind then runs on it.
    #[must_use]
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether the driver says that it can start again in a forked child. Most vendors' can't.
    #[must_use]
    pub const fn restartable(mut self, restartable: bool) -> Self {
        self.restartable = restartable;
        self
    }

    /// Whether streams have a native handle: a number that is theirs alone.
    #[must_use]
    pub const fn native_streams(mut self, native: bool) -> Self {
        self.native_streams = native;
        self
    }

    /// Makes the simulation.
    pub fn build(self) -> Sim {
        Sim::new(self)
    }

    /// Whether the devices are such as can be.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        for (ordinal, device) in self.devices.iter().enumerate() {
            let powers = [
                ("alignment", device.alignment),
                ("granularity", device.granularity),
                ("place_alignment", device.place_alignment),
            ];
            for (name, value) in powers {
                if !value.is_power_of_two() {
                    let note = format!("device {ordinal}: {name} {value} is no power of two");
                    return Err(Fault::new(FaultKind::Invalid, "start").note(note));
                }
            }
            if device.memory > 1 << 44 {
                let note = format!("device {ordinal}: {} bytes of memory are more than 16 TiB", device.memory);
                return Err(Fault::new(FaultKind::Invalid, "start").note(note));
            }
        }
        Ok(())
    }
}
