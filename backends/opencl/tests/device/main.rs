//! The backend on the OpenCL devices of this machine: what the conformance suite does not reach.
//!
//! Without a driver each test says so and passes; if `ANYACCEL_REQUIRE` lists `opencl`, it fails instead.

mod bad_input;
mod failed_work;
mod fork;
mod icd;
mod kernels;
mod pocl;
#[path = "../../src/sys/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests call only some of it")]
mod sys;

use anyaccel_hal::{
    Arg, Device, Driver, End, Fault, Format, HostPtr, Kernel, KernelSource, Launch, Mem, Place, StreamId, Until,
    WaitMode, Waited,
};
use anyaccel_opencl::{Addressing, OpenClConfig, driver_with};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two devices of 192 MiB, started; `None` where there is none.
fn started(config: OpenClConfig) -> Option<Arc<dyn Driver>> {
    let driver = driver_with(config.cpus(true).at_least(2).memory(192 << 20));
    match driver.start() {
        Ok(0) => {
            let absence = driver.probe().absence;
            let required = std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == "opencl"));
            assert!(!required, "ANYACCEL_REQUIRE asks for opencl, but {absence:?}");
            eprintln!("skipped: no OpenCL device here: {absence:?}");
            None
        }
        Ok(_) => Some(driver),
        Err(fault) => panic!("the start failed: {fault}"),
    }
}

/// One device in each form of memory that it has.
fn devices() -> Vec<Arc<dyn Device>> {
    devices_by(&Addressing::ALL)
}

/// The same in some forms only.
fn devices_by(forms: &[Addressing]) -> Vec<Arc<dyn Device>> {
    let Some(first) = started(OpenClConfig::new()) else { return Vec::new() };
    drop(first);
    let forms = forms.iter().filter_map(|&addressing| {
        let driver = driver_with(OpenClConfig::new().cpus(true).memory(192 << 20).addressing(addressing));
        // A form that the device lacks is an error of the start.
        driver.start().ok()?;
        driver.open(0).ok()
    });
    forms.collect()
}

/// A device with a stream, and the few calls that the tests make.
struct Bench {
    device: Arc<dyn Device>,
    stream: StreamId,
}

impl Bench {
    fn new(device: Arc<dyn Device>) -> Self {
        let stream = device.create_stream(0).expect("a stream");
        Self { device, stream }
    }

    fn alloc(&self, len: u64) -> Mem {
        self.device.alloc(len).expect("memory").mem
    }

    fn upload(&self, mem: Mem, bytes: &[u8]) {
        let host = End::Host(HostPtr(bytes.as_ptr().cast_mut()));
        // SAFETY: H1, H4, H5: the bytes outlive the wait below, and a source is only read.
        unsafe { self.device.copy(self.stream, End::Device(at(mem, 0)), host, bytes.len() as u64) }.expect("a copy");
        self.finish();
    }

    fn read(&self, mem: Mem, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let host = End::Host(HostPtr(bytes.as_mut_ptr()));
        // SAFETY: H1, H4, H5: the bytes outlive the wait below and are not touched until then.
        unsafe { self.device.copy(self.stream, host, End::Device(at(mem, 0)), len as u64) }.expect("a copy");
        self.finish();
        bytes
    }

    fn finish(&self) {
        assert_eq!(self.wait(), Ok(Waited::Ended));
    }

    fn wait(&self) -> Result<Waited, Fault> {
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        // SAFETY: H1: the stream is this device's and live.
        unsafe { self.device.wait_host(self.stream, Until::Now, deadline, WaitMode::Auto) }
    }

    fn load(&self, format: Format, code: &[u8], entry: &str) -> Result<Kernel, Fault> {
        let kernels = self.device.kernels().expect("kernels");
        // SAFETY: the tests' kernels are sound with the arguments that they give.
        unsafe { kernels.load(KernelSource::Code { format, code, entry }) }
    }

    fn launch(&self, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, H4, H15: wrong arguments are what some tests give, and what is then refused.
        unsafe { self.device.launch(self.stream, kernel, launch, args) }
    }

    fn free(&self, mem: Mem) {
        self.finish();
        // SAFETY: H1, H4: its work has ended.
        unsafe { self.device.free(mem) }.expect("a free");
    }
}

const fn at(mem: Mem, offset: u64) -> Place {
    Place { mem, offset }
}

/// An argument that is memory from its start.
const fn memory(mem: Mem, len: u64) -> Arg<'static> {
    Arg::Place { place: at(mem, 0), len }
}
