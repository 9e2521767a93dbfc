//! A driver and its devices, for scenarios: the one place of a test that calls the unsafe methods of the hal.
//!
//! Scenarios keep the rules marked (caller): handles come from the device that they are used on and stay live until the
//! process ends (H1, H4), host memory is leaked (H5), functions do not call the driver (H13). Methods that return a
//! `Result` pass the device's answer on; the others panic at a fault.

use anyaccel_hal::{
    Arg, Device, Driver, End, Fault, Format, Gate, HostFn, HostPtr, HostStatus, Kernel, KernelSource, Launch, Mark,
    Mem, Pattern, Place, Stamp, StreamId, Until, WaitMode, Waited,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long something that must happen may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A backend, as labs need it.
pub trait Backend {
    /// A driver that is not started.
    fn driver() -> Arc<dyn Driver>;
}

/// An open device of a backend.
#[expect(missing_debug_implementations, reason = "devices have none")]
pub struct Lab<B> {
    /// The device.
    pub device: Arc<dyn Device>,
    _driver: Arc<dyn Driver>,
    _backend: PhantomData<B>,
}

impl<B: Backend> Lab<B> {
    /// The first device of a new driver.
    #[expect(clippy::new_without_default, reason = "what it does no default should")]
    pub fn new() -> Self {
        let driver = B::driver();
        driver.start().expect("a start");
        Self::of(driver, 0)
    }

    /// A device of a driver that was started.
    pub fn of(driver: Arc<dyn Driver>, ordinal: u32) -> Self {
        Self { device: driver.open(ordinal).expect("a device"), _driver: driver, _backend: PhantomData }
    }

    /// A stream of ordinary priority.
    pub fn stream(&self) -> StreamId {
        self.device.create_stream(0).expect("a stream")
    }

    /// The start of that many bytes of new memory.
    pub fn memory(&self, len: u64) -> Place {
        Place { mem: self.device.alloc(len).expect("memory").mem, offset: 0 }
    }

    /// Fills memory with a byte.
    pub fn fill(&self, stream: StreamId, place: Place, byte: u8, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4, H14, see the module.
        unsafe { self.device.fill(stream, place, Pattern::byte(byte), len) }
    }

    /// Writes bytes into memory.
    pub fn write(&self, stream: StreamId, place: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: H1, H4, see the module.
        unsafe { self.device.write(stream, place, bytes) }
    }

    /// Marks where the stream is.
    pub fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.mark(stream) }
    }

    /// Makes a stream wait for a mark of another.
    pub fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.wait(stream, of, mark) }
    }

    /// How far a stream has come.
    pub fn completed(&self, stream: StreamId) -> u64 {
        // SAFETY: H1, see the module.
        unsafe { self.device.completed(stream) }.expect("a number")
    }

    /// Takes the time in stream order.
    pub fn stamp(&self, stream: StreamId) -> Stamp {
        // SAFETY: H1, see the module.
        unsafe { self.device.stamp(stream) }.expect("a stamp")
    }

    /// Nanoseconds between two stamps.
    pub fn elapsed(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1, see the module.
        unsafe { self.device.elapsed_ns(from, to) }
    }

    /// Forgets a stamp.
    pub fn drop_stamp(&self, stamp: Stamp) {
        // SAFETY: H1: the scenario uses it no more.
        unsafe { self.device.drop_stamp(stamp) };
    }

    /// Holds a stream up until the gate is opened.
    pub fn close(&self, stream: StreamId) -> Gate {
        let gates = self.device.gates().expect("gates");
        let gate = gates.create().expect("a gate");
        // SAFETY: H1, see the module.
        unsafe { gates.wait(stream, gate) }.expect("a wait");
        gate
    }

    /// Lets go what [`Self::close`] holds up.
    pub fn open(&self, gate: Gate) {
        let gates = self.device.gates().expect("gates");
        // SAFETY: H1, see the module; it is forgotten once it is open.
        unsafe {
            gates.open(gate).expect("an open gate");
            gates.destroy(gate);
        }
    }

    /// Waits for everything enqueued so far, which must end.
    pub fn finish(&self, stream: StreamId) -> Result<(), Fault> {
        let deadline = Some(Instant::now() + PATIENCE);
        // SAFETY: H1, see the module.
        let waited = unsafe { self.device.wait_host(stream, Until::Now, deadline, WaitMode::Auto) }?;
        assert_eq!(waited, Waited::Ended);
        Ok(())
    }

    /// Calls a function in stream order.
    pub fn call(&self, stream: StreamId, function: impl FnMut(HostStatus) + Send + 'static) -> Result<(), Fault> {
        // SAFETY: H1, H13, see the module.
        unsafe { self.device.host_call(stream, HostFn::new(function)) }
    }

    /// What is in memory once everything before has ended.
    pub fn read(&self, stream: StreamId, place: Place, len: usize) -> Vec<u8> {
        let host = Box::leak(vec![0_u8; len].into_boxed_slice());
        let to = End::Host(HostPtr(host.as_mut_ptr()));
        // SAFETY: H1, H4, H5, see the module.
        unsafe { self.device.copy(stream, to, End::Device(place), len as u64) }.expect("a copy");
        self.finish(stream).expect("an end");
        host.to_vec()
    }

    /// Loads a kernel.
    pub fn load(&self, format: Format, code: &[u8], entry: &str) -> Result<Kernel, Fault> {
        let kernels = self.device.kernels().expect("kernels");
        // SAFETY: the fake's kernels touch only what their arguments name.
        unsafe { kernels.load(KernelSource::Code { format, code, entry }) }
    }

    /// Launches one.
    pub fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, H4, see the module; H15: what does not fit is refused, or is what the scenario is about.
        unsafe { self.device.launch(stream, kernel, launch, args) }
    }

    /// Names memory that is none.
    pub fn nowhere(&self, len: u64) -> Place {
        // SAFETY: an address that the fake refuses or faults on, which is what the scenario is about.
        let segment = unsafe { self.device.import(0x1000, len) }.expect("a name");
        Place { mem: segment.mem, offset: 0 }
    }

    /// Frees memory.
    pub fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1, H4: the scenario uses it no more.
        unsafe { self.device.free(mem) }
    }
}

/// Memory as an argument.
pub fn arg<'a>(place: Place, len: u64) -> Arg<'a> {
    Arg::Place { place, len }
}

/// Waits for something that must happen.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
