//! What was called: a counter a method, and the latest calls with their arguments.

use anyaccel_hal::{FaultKind, Mem, StreamId};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Sub;

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal $fails:literal;)*) => {
        /// A method of the hal, as counters, logs and injections name it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// Every method, in the order of the hal.
            pub const ALL: &'static [Method] = &[$(Method::$variant),*];

            /// Its name: the trait's method, with the capability in front.
            pub const fn name(self) -> &'static str {
                match self { $(Method::$variant => $name,)* }
            }

            /// Whether it can return a fault.
            pub const fn can_fail(self) -> bool {
                match self { $(Method::$variant => $fails,)* }
            }
        }
    };
}

methods! {
    /// `Driver::probe`.
    Probe "probe" false;
    /// `Driver::describe`.
    Describe "describe" false;
    /// `Driver::start`.
    Start "start" true;
    /// `Driver::open`.
    Open "open" true;
    /// `Driver::checks`.
    Checks "checks" false;
    /// `Device::memory_info`.
    MemoryInfo "memory_info" true;
    /// `Device::alloc`.
    Alloc "alloc" true;
    /// `Device::free`.
    Free "free" true;
    /// `Device::import`.
    Import "import" true;
    /// `Device::native_mem`.
    NativeMem "native_mem" false;
    /// `Device::create_stream`.
    CreateStream "create_stream" true;
    /// `Device::destroy_stream`.
    DestroyStream "destroy_stream" true;
    /// `Device::native_stream`.
    NativeStream "native_stream" false;
    /// `Device::mark`.
    Mark "mark" true;
    /// `Device::wait`.
    Wait "wait" true;
    /// `Device::wait_host`.
    WaitHost "wait_host" true;
    /// `Device::completed`.
    Completed "completed" true;
    /// `Device::stamp`.
    Stamp "stamp" true;
    /// `Device::elapsed_ns`.
    ElapsedNs "elapsed_ns" true;
    /// `Device::drop_stamp`.
    DropStamp "drop_stamp" false;
    /// `Device::copy`.
    Copy "copy" true;
    /// `Device::fill`.
    Fill "fill" true;
    /// `Device::write`.
    Write "write" true;
    /// `Device::host_call`.
    HostCall "host_call" true;
    /// `Device::builtin`.
    Builtin "builtin" false;
    /// `Device::launch`.
    Launch "launch" true;
    /// `Pinned::alloc`.
    PinnedAlloc "pinned.alloc" true;
    /// `Pinned::register`.
    PinnedRegister "pinned.register" true;
    /// `Pinned::free`.
    PinnedFree "pinned.free" true;
    /// `Peers::copy`.
    PeersCopy "peers.copy" true;
    /// `VirtualMemory::reserve`.
    Reserve "virtual_memory.reserve" true;
    /// `VirtualMemory::map`.
    Map "virtual_memory.map" true;
    /// `VirtualMemory::unmap`.
    Unmap "virtual_memory.unmap" true;
    /// `VirtualMemory::release`.
    Release "virtual_memory.release" true;
    /// `Kernels::load`.
    Load "kernels.load" true;
    /// `Kernels::unload`.
    Unload "kernels.unload" false;
    /// `Gates::create`.
    GateCreate "gates.create" true;
    /// `Gates::wait`.
    GateWait "gates.wait" true;
    /// `Gates::open`.
    GateOpen "gates.open" true;
    /// `Gates::destroy`.
    GateDestroy "gates.destroy" false;
    /// `Telemetry::utilization`.
    Utilization "telemetry.utilization" true;
    /// `Telemetry::memory_usage`.
    MemoryUsage "telemetry.memory_usage" true;
    /// `Telemetry::temperature`.
    Temperature "telemetry.temperature" true;
    /// `Telemetry::power_draw`.
    PowerDraw "telemetry.power_draw" true;
    /// `Telemetry::clock_rate`.
    ClockRate "telemetry.clock_rate" true;
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each method was called, failed calls included. The difference of two is what was called between.
#[derive(Clone, PartialEq, Eq)]
pub struct Counts([u64; Method::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Method::ALL.len()])
    }
}

impl Counts {
    /// How often that method.
    pub const fn of(&self, method: Method) -> u64 {
        self.0[method as usize]
    }

    /// How often any method.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, method: Method) {
        self.0[method as usize] += 1;
    }

    pub(crate) fn add_all(&mut self, other: &Counts) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
    }
}

impl Sub for &Counts {
    type Output = Counts;

    /// What was called from `earlier` to `self`.
    fn sub(self, earlier: &Counts) -> Counts {
        let mut between = self.clone();
        for (at, before) in between.0.iter_mut().zip(earlier.0) {
            *at = at.saturating_sub(before);
        }
        between
    }
}

impl fmt::Debug for Counts {
    /// Only the methods that were called.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = Method::ALL.iter().map(|&m| (m.name(), self.of(m))).filter(|&(_, count)| count > 0);
        f.debug_map().entries(called).finish()
    }
}

/// One call of a hal method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its number among all calls of the driver, from 1.
    pub number: u64,
    /// The method.
    pub method: Method,
    /// The device that it was called on; `None` for calls of the driver.
    pub device: Option<u32>,
    /// The stream it names.
    pub stream: Option<StreamId>,
    /// The memory it names (of a copy between device places: the destination).
    pub mem: Option<Mem>,
    /// The length in bytes, the mark, or the other number that it names; else 0.
    pub amount: u64,
    /// How it failed, if it did.
    pub fault: Option<FaultKind>,
}

impl Call {
    pub(crate) const fn new(method: Method) -> Self {
        Self { number: 0, method, device: None, stream: None, mem: None, amount: 0, fault: None }
    }

    pub(crate) const fn stream(mut self, stream: StreamId) -> Self {
        self.stream = Some(stream);
        self
    }

    pub(crate) const fn mem(mut self, mem: Mem) -> Self {
        self.mem = Some(mem);
        self
    }

    pub(crate) const fn amount(mut self, amount: u64) -> Self {
        self.amount = amount;
        self
    }
}

/// The counters and the log.
pub(crate) struct Ledger {
    driver: Counts,
    devices: Vec<Counts>,
    log: VecDeque<Call>,
    kept: usize,
    number: u64,
}

impl Ledger {
    pub(crate) fn new(devices: usize, kept: usize) -> Self {
        Self {
            driver: Counts::default(),
            devices: vec![Counts::default(); devices],
            log: VecDeque::new(),
            kept,
            number: 0,
        }
    }

    /// Enters a call, without its outcome.
    pub(crate) fn enter(&mut self, mut call: Call) {
        self.number += 1;
        call.number = self.number;
        match call.device.and_then(|ordinal| self.devices.get_mut(ordinal as usize)) {
            Some(counts) => counts.add(call.method),
            None => self.driver.add(call.method),
        }
        if self.kept > 0 {
            if self.log.len() == self.kept {
                self.log.pop_front();
            }
            self.log.push_back(call);
        }
    }

    /// The call with that number failed.
    pub(crate) fn failed(&mut self, number: u64, kind: FaultKind) {
        if let Some(call) = self.log.iter_mut().rev().find(|call| call.number == number) {
            call.fault = Some(kind);
        }
    }

    /// The number of the call entered last.
    pub(crate) fn last(&self) -> u64 {
        self.number
    }

    pub(crate) fn of_device(&self, ordinal: u32) -> Counts {
        self.devices.get(ordinal as usize).cloned().unwrap_or_default()
    }

    pub(crate) fn of_all(&self) -> Counts {
        let mut all = self.driver.clone();
        for device in &self.devices {
            all.add_all(device);
        }
        all
    }

    pub(crate) fn log(&self) -> Vec<Call> {
        self.log.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_device_and_the_log_is_bounded() {
        let mut ledger = Ledger::new(2, 3);
        for ordinal in [0, 1, 1, 1] {
            ledger.enter(Call { device: Some(ordinal), ..Call::new(Method::Alloc) });
        }
        ledger.enter(Call::new(Method::Probe));
        ledger.failed(4, FaultKind::OutOfMemory);
        ledger.failed(1, FaultKind::Driver);
        assert_eq!(ledger.of_device(1).of(Method::Alloc), 3);
        assert_eq!(ledger.of_all().of(Method::Alloc), 4);
        assert_eq!(ledger.of_all().total(), 5);
        let log: Vec<_> = ledger.log().iter().map(|call| (call.number, call.fault)).collect();
        assert_eq!(log, [(3, None), (4, Some(FaultKind::OutOfMemory)), (5, None)]);
        let before = ledger.of_all();
        ledger.enter(Call::new(Method::Probe));
        let between = &ledger.of_all() - &before;
        assert_eq!(format!("{between:?}"), r#"{"probe": 1}"#);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Method::ALL.len());
    }
}
