//! What these tests share: a simulation with open devices, and short names for calls.
//!
//! The unsafe calls are wrapped as safe ones here: the simulation refuses what breaks a caller's rule before it touches
//! anything, which is what many of these tests are about. Host memory is the exception: its lifetime is each test's (H5).

use anyaccel_hal::{
    Arg, Device, Driver, End, Fault, HostFn, HostPtr, HostStatus, Kernel, Launch, Mark, Mem, Pattern, Place, Segment,
    StreamId, Until, WaitMode, Waited,
};
use anyaccel_sim::{Sim, SimConfig, SimDriver};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;

/// A started simulation.
pub(crate) struct Rig {
    pub(crate) sim: Sim,
    pub(crate) driver: SimDriver,
    pub(crate) devices: Vec<Arc<dyn Device>>,
}

pub(crate) fn rig(config: SimConfig) -> Rig {
    let sim = config.build();
    let driver = sim.driver();
    let count = driver.start().unwrap();
    let devices = (0..count).map(|ordinal| driver.open(ordinal).unwrap()).collect();
    Rig { sim, driver, devices }
}

/// One device of 64 MiB.
pub(crate) fn small() -> SimConfig {
    SimConfig::new().memories([64 * MIB])
}

pub(crate) fn at(mem: Mem, offset: u64) -> Place {
    Place { mem, offset }
}

impl Rig {
    /// The first device.
    pub(crate) fn d(&self) -> On<'_> {
        self.on(0)
    }

    pub(crate) fn on(&self, ordinal: usize) -> On<'_> {
        On(&*self.devices[ordinal])
    }

    /// The notes of the violations, which are then forgotten.
    pub(crate) fn violations(&self) -> Vec<String> {
        let notes = self.sim.violations().iter().map(ToString::to_string).collect();
        self.sim.clear_violations();
        notes
    }

    /// Asserts that no rule was broken, and nothing is left of `ordinal` but what `live` says.
    pub(crate) fn clean(&self) {
        assert_eq!(self.sim.violations(), []);
    }
}

/// The calls of a device.
#[derive(Clone, Copy)]
pub(crate) struct On<'a>(pub &'a dyn Device);

impl On<'_> {
    pub(crate) fn alloc(self, len: u64) -> Segment {
        self.0.alloc(len).unwrap()
    }

    pub(crate) fn free(self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.free(mem) }
    }

    pub(crate) fn stream(self) -> StreamId {
        self.0.create_stream(0).unwrap()
    }

    pub(crate) fn destroy(self, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.destroy_stream(stream) }
    }

    pub(crate) fn mark(self, stream: StreamId) -> u64 {
        match self.try_mark(stream).unwrap() {
            Mark::At(mark) => mark,
            Mark::Captured(_) => panic!("no capture here"),
        }
    }

    pub(crate) fn try_mark(self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.mark(stream) }
    }

    pub(crate) fn wait(self, stream: StreamId, of: StreamId, mark: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.wait(stream, of, Mark::At(mark)) }
    }

    pub(crate) fn wait_host(self, stream: StreamId, until: Until) -> Result<Waited, Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.wait_host(stream, until, None, WaitMode::Auto) }
    }

    /// Waits for all of a stream.
    pub(crate) fn sync(self, stream: StreamId) {
        assert_eq!(self.wait_host(stream, Until::Now).unwrap(), Waited::Ended);
    }

    pub(crate) fn wait_for(self, stream: StreamId, until: Until, time: Duration) -> Result<Waited, Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.wait_host(stream, until, Some(Instant::now() + time), WaitMode::Block) }
    }

    pub(crate) fn completed(self, stream: StreamId) -> u64 {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.completed(stream).unwrap() }
    }

    pub(crate) fn fill(self, stream: StreamId, dst: Place, byte: u8, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.fill(stream, dst, Pattern::byte(byte), len) }
    }

    pub(crate) fn pattern(self, stream: StreamId, dst: Place, pattern: &[u8], len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.fill(stream, dst, Pattern::new(pattern).unwrap(), len) }
    }

    pub(crate) fn write(self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.write(stream, dst, bytes) }
    }

    pub(crate) fn copy(self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.copy(stream, dst, src, len) }
    }

    /// From host memory that outlives the work.
    pub(crate) fn upload(self, stream: StreamId, dst: Place, src: &[u8]) -> Result<(), Fault> {
        self.copy(stream, End::Device(dst), End::Host(HostPtr(src.as_ptr().cast_mut())), src.len() as u64)
    }

    /// Waits for the stream and reads.
    pub(crate) fn read(self, stream: StreamId, src: Place, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.copy(stream, End::Host(HostPtr(bytes.as_mut_ptr())), End::Device(src), len as u64).unwrap();
        self.sync(stream);
        bytes
    }

    pub(crate) fn call(self, stream: StreamId, function: impl FnMut(HostStatus) + Send + 'static) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.host_call(stream, HostFn::new(function)) }
    }

    pub(crate) fn launch(
        self,
        stream: StreamId,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: H1, H4, H5: handles and memory of the test; the simulation refuses what breaks a rule.
        unsafe { self.0.launch(stream, kernel, launch, args) }
    }
}
