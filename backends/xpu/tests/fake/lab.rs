//! A driver and its devices, for scenarios: the one place of this test that calls the unsafe methods of the hal.
//!
//! Scenarios keep the rules marked (caller): handles come from the device that they are used on and stay live until the
//! process ends (H1, H4), host memory is leaked (H5), functions do not call the driver (H13).

use anyaccel_fake_level_zero::{Control, Installed};
use anyaccel_hal::{
    Arg, Device, Driver, End, Fault, Format, Gate, HostFn, HostPtr, HostStatus, Kernel, KernelSource, Launch, Mark,
    Mem, Pattern, Place, Stamp, StreamId, Until, WaitMode, Waited,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn driver() -> Arc<dyn Driver> {
    anyaccel_xpu::driver()
}

/// What this process does to its fake.
pub(crate) fn control() -> Control {
    let driver = PathBuf::from(std::env::var_os(crate::LIBRARY).expect("the scenario's library"));
    Installed { loader: Some(driver.clone()), driver }.control().expect("a fake")
}

/// The calls that this process has made so far.
pub(crate) fn calls() -> Vec<String> {
    let path = std::env::var_os(crate::LOG).expect("the scenario's log");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// An open device.
pub(crate) struct Lab {
    pub(crate) device: Arc<dyn Device>,
    _driver: Arc<dyn Driver>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let driver = driver();
        driver.start().expect("a start");
        Self::of(driver, 0)
    }

    pub(crate) fn of(driver: Arc<dyn Driver>, ordinal: u32) -> Self {
        Self { device: driver.open(ordinal).expect("a device"), _driver: driver }
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.device.create_stream(0).expect("a stream")
    }

    pub(crate) fn memory(&self, len: u64) -> Place {
        Place { mem: self.device.alloc(len).expect("memory").mem, offset: 0 }
    }

    pub(crate) fn fill(&self, stream: StreamId, place: Place, byte: u8, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H14, see the module.
        unsafe { self.device.fill(stream, place, Pattern::byte(byte), len) }
    }

    pub(crate) fn write(&self, stream: StreamId, place: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: H1, H4, see the module.
        unsafe { self.device.write(stream, place, bytes) }
    }

    pub(crate) fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.mark(stream) }
    }

    pub(crate) fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.wait(stream, of, mark) }
    }

    pub(crate) fn completed(&self, stream: StreamId) -> u64 {
        // SAFETY: H1, see the module.
        unsafe { self.device.completed(stream) }.expect("a number")
    }

    pub(crate) fn stamp(&self, stream: StreamId) -> Stamp {
        // SAFETY: H1, see the module.
        unsafe { self.device.stamp(stream) }.expect("a stamp")
    }

    pub(crate) fn elapsed(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.elapsed_ns(from, to) }
    }

    pub(crate) fn drop_stamp(&self, stamp: Stamp) {
        // SAFETY: H1: the scenario uses it no more.
        unsafe { self.device.drop_stamp(stamp) };
    }

    /// Holds a stream up until the gate is opened.
    pub(crate) fn close(&self, stream: StreamId) -> Gate {
        let gates = self.device.gates().expect("gates");
        let gate = gates.create().expect("a gate");
        // SAFETY: H1, see the module.
        unsafe { gates.wait(stream, gate) }.expect("a wait");
        gate
    }

    pub(crate) fn open(&self, gate: Gate) {
        let gates = self.device.gates().expect("gates");
        // SAFETY: H1, see the module; it is forgotten once it is open.
        unsafe {
            gates.open(gate).expect("an open gate");
            gates.destroy(gate);
        }
    }

    /// Waits for everything enqueued so far, which must end.
    pub(crate) fn finish(&self, stream: StreamId) -> Result<(), Fault> {
        let deadline = Some(Instant::now() + PATIENCE);
        // SAFETY: H1, see the module.
        let waited = unsafe { self.device.wait_host(stream, Until::Now, deadline, WaitMode::Auto) }?;
        assert_eq!(waited, Waited::Ended);
        Ok(())
    }

    pub(crate) fn call(
        &self,
        stream: StreamId,
        function: impl FnMut(HostStatus) + Send + 'static,
    ) -> Result<(), Fault> {
        // SAFETY: H1, H13, see the module.
        unsafe { self.device.host_call(stream, HostFn::new(function)) }
    }

    /// What is in memory once everything before has ended.
    pub(crate) fn read(&self, stream: StreamId, place: Place, len: usize) -> Vec<u8> {
        let host = Box::leak(vec![0_u8; len].into_boxed_slice());
        let to = End::Host(HostPtr(host.as_mut_ptr()));
        // SAFETY: H1, H4, H5, see the module.
        unsafe { self.device.copy(stream, to, End::Device(place), len as u64) }.expect("a copy");
        self.finish(stream).expect("an end");
        host.to_vec()
    }

    pub(crate) fn load(&self, code: &[u8], entry: &str) -> Result<Kernel, Fault> {
        let kernels = self.device.kernels().expect("kernels");
        // SAFETY: the fake's kernels touch only what their arguments name.
        unsafe { kernels.load(KernelSource::Code { format: Format::SpirV, code, entry }) }
    }

    pub(crate) fn launch(
        &self,
        stream: StreamId,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: H1, H4, see the module; H15: what does not fit is refused, or is what the scenario is about.
        unsafe { self.device.launch(stream, kernel, launch, args) }
    }

    pub(crate) fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1, H4: the scenario uses it no more.
        unsafe { self.device.free(mem) }
    }
}

/// Memory as an argument.
pub(crate) fn arg<'a>(place: Place, len: u64) -> Arg<'a> {
    Arg::Place { place, len }
}

/// Waits for something that must happen.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
