//! The port: the only place that calls [`hal::Device`](anyaccel_hal::Device).
//!
//! Everything above names lanes and blocks, which own their native handles; so a borrowed lane is a live stream (H1) and
//! a borrowed block is live memory (H1, H4), and the methods here are safe. Memory is given back through
//! [`retired`], once the work that used it has ended (H4, H5).

mod host;
mod memory;
mod native;
mod order;
mod replay;
mod retired;
mod work;

pub(crate) use host::HostBlock;
pub(crate) use memory::{Block, Part};
pub(crate) use order::Recorded;
pub(crate) use replay::Exec;
pub(crate) use work::LaunchPart;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork::{self, Fenced};
use crate::lane::Lanes;
use crate::local;
use anyaccel_engine::alloc::{Departures, DeviceCache, Ports, Settings};
use anyaccel_engine::pinned::{HostCache, HostPorts};
use anyaccel_hal::{self as hal, DTypeSet, DeviceInfo, Fault, Kernel, StreamId};
use native::Native;
use retired::Retired;
use std::sync::Arc;

/// What a device without a conversion of its own can convert: all, on the host.
pub(crate) fn convertible(native: DTypeSet) -> DTypeSet {
    if native.is_empty() { DTypeSet::ALL } else { native }
}

/// An open device of a runtime.
pub(crate) struct Port {
    native: Arc<Native>,
    /// Dropped by hand: the cache gives segments back only if nothing uses them any more.
    pub(crate) cache: Fenced<DeviceCache>,
    pub(crate) host: Fenced<HostCache>,
    pub(crate) device: Device,
    pub(crate) ordinal: u32,
    pub(crate) lanes: Fenced<Lanes>,
    retired: Fenced<Retired>,
    epoch: u64,
}

impl Port {
    pub(crate) fn new(
        hal: Arc<dyn hal::Device>,
        device: Device,
        ordinal: u32,
        forever: bool,
        settings: Settings,
    ) -> Arc<Self> {
        let lanes = Lanes::new(device, ordinal, hal.info().priorities, forever);
        let growable = hal.virtual_memory().is_some();
        let native = Arc::new(Native::new(hal));
        let ports = Ports {
            segments: native.clone(),
            growable: if growable { Some(native.clone()) } else { None },
            marks: native.clone(),
        };
        let host_ports = HostPorts { segments: native.clone(), marks: native.clone() };
        let host = HostCache::new(host_ports, native.host_policy(&settings));
        let cache = DeviceCache::new(ordinal, ports, settings, Departures::ALL);
        Arc::new(Self {
            native,
            cache: Fenced::new(cache),
            host: Fenced::new(host),
            device,
            ordinal,
            lanes: Fenced::new(lanes),
            retired: Fenced::new(Retired::default()),
            epoch: fork::epoch(),
        })
    }

    /// Whether this generation of the process may call the driver now, and no work is left that concerns this device.
    fn idle(&self) -> bool {
        self.epoch == fork::epoch() && !local::in_host_fn() && self.native.idle()
    }

    fn hal(&self) -> &dyn hal::Device {
        &**self.native.hal
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        self.hal().info()
    }

    /// The element types that can be converted on this device, natively or on the host.
    pub(crate) fn dtypes(&self) -> DTypeSet {
        convertible(self.info().dtypes)
    }

    /// A backend's fault as an error of this device.
    pub(crate) fn error(&self, call: &'static str, fault: Fault) -> Error {
        Error::from_fault(call, self.device, fault)
    }

    /// Free bytes, if the driver tells, and all bytes.
    pub(crate) fn memory_info(&self, call: &'static str) -> Result<hal::MemoryInfo> {
        self.hal().memory_info().map_err(|fault| self.error(call, fault))
    }

    pub(crate) fn create_stream(&self, priority: i32) -> Result<StreamId> {
        let raw = self.hal().create_stream(priority).map_err(|fault| self.error("Stream", fault))?;
        self.native.add_stream(raw);
        Ok(raw)
    }

    /// # Safety
    /// `native` is a stream of this device, and lives until its lane was retired.
    pub(crate) unsafe fn import_stream(&self, native: u64) -> Result<StreamId> {
        // SAFETY: as `import_stream` of `Device` demands: this function's contract.
        let raw = unsafe { self.hal().import_stream(native) }.map_err(|fault| self.error("Stream", fault))?;
        self.native.add_stream(raw);
        Ok(raw)
    }

    /// The bit that stands for a stream of this device in the uses of its blocks.
    pub(crate) fn uses_of(&self, raw: StreamId) -> u64 {
        self.cache.use_of(raw.0).0
    }

    /// Puts other settings of the caches in force.
    pub(crate) fn set_settings(&self, settings: &Settings) {
        self.cache.set_settings(settings.clone());
        self.host.set_policy(self.native.host_policy(settings));
    }

    /// Gives a stream back once its work has ended. For [`Lane`](crate::lane::Lane)'s drop alone.
    pub(crate) fn destroy_stream(&self, raw: StreamId) {
        self.retire_stream(raw);
    }

    pub(crate) fn telemetry<T>(
        &self,
        call: &'static str,
        read: impl FnOnce(&dyn hal::Telemetry) -> Result<T, Fault>,
    ) -> Result<T> {
        let sensors = self.hal().telemetry().ok_or(Error::Unsupported { what: call, device: self.device })?;
        read(sensors).map_err(|fault| self.error(call, fault))
    }

    pub(crate) fn can_access_peer(&self, ordinal: u32) -> bool {
        self.hal().peers().is_some_and(|peers| peers.can_access(ordinal))
    }

    /// Events that other processes can name, where there are such.
    pub(crate) fn shared_events(&self) -> Option<&dyn hal::NativeEvents> {
        self.hal().native_events().filter(|events| events.limits().ipc_bytes > 0)
    }

    /// Forgets a native event, which nobody else has.
    pub(crate) fn destroy_event(&self, raw: hal::NativeEvent) {
        if let Some(events) = self.hal().native_events() {
            // SAFETY: H1: given up by its only owner.
            unsafe { events.destroy(raw) };
        }
    }

    /// The forms of programs that the device loads.
    pub(crate) fn kernel_formats(&self) -> Vec<hal::Format> {
        self.hal().kernels().map_or_else(Vec::new, |kernels| kernels.formats().to_vec())
    }

    /// Whether host memory really is pinned.
    pub(crate) fn pins(&self) -> bool {
        self.hal().pinned().is_some()
    }

    pub(crate) fn builtin(&self, number: u32) -> Option<Kernel> {
        self.hal().builtin(number)
    }
}

/// A kernel loaded from a function of this process.
pub(crate) struct Loaded {
    pub(crate) port: Arc<Port>,
    pub(crate) raw: Kernel,
    epoch: u64,
}

impl Loaded {
    pub(crate) fn host(port: Arc<Port>, kernel: hal::HostKernel) -> Result<Self> {
        // SAFETY: H15 is the duty of launch's caller.
        unsafe { Self::load(port, hal::KernelSource::Host(kernel)) }
    }

    /// # Safety
    /// Code is sound to launch with matching arguments.
    pub(crate) unsafe fn load(port: Arc<Port>, source: hal::KernelSource<'_>) -> Result<Self> {
        let kernels =
            port.hal().kernels().ok_or(Error::Unsupported { what: "loading a kernel", device: port.device })?;
        let call = "loading a kernel";
        let compiled = matches!(source, hal::KernelSource::Code { format: hal::Format::CudaC, .. });
        // SAFETY: the promise of this function's caller; loading itself runs nothing.
        let raw = unsafe { kernels.load(source) }.map_err(|fault| match fault.kind {
            // It says which compiler is missing, where the device could run the program.
            hal::FaultKind::Unsupported if compiled && fault.note.is_some() => {
                Error::Driver { call, device: port.device, fault }
            }
            _ => port.error(call, fault),
        })?;
        Ok(Self { port, raw, epoch: fork::epoch() })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.epoch == fork::epoch() {
            self.port.retire_kernel(self.raw);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.idle() {
            self.reap();
        } else {
            // Work is under way: memory goes with the native device (H25), not before it.
            self.native.close();
        }
    }
}
