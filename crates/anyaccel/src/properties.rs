//! What devices are and how they do: properties, peers, memory, sensors.

use crate::device::DeviceArg;
use crate::error::{Error, Result};
use crate::local;
use crate::port::convertible;
use crate::runtime::Runtime;
use anyaccel_hal::{DTypeSet, DeviceInfo};

/// What a device can compute with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceCapability {
    /// Element types that can be allocated and converted among themselves.
    pub supported_dtypes: DTypeSet,
}

impl Runtime {
    /// A device's properties, the same record on every backend. Starts nothing where the backend's probe can answer, else
    /// may start the runtime.
    ///
    /// # Errors
    /// Those of the device argument; [`Error::NoAccelerator`]; what starting reports.
    pub fn get_device_properties<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<DeviceInfo> {
        self.properties("get_device_properties", device.into())
    }

    fn properties(&self, call: &'static str, device: DeviceArg<'_>) -> Result<DeviceInfo> {
        let described =
            if self.core.started().is_none() && self.core.current() { self.described(call, device)? } else { None };
        let mut info = match described {
            Some(info) => info,
            None => self.port(call, device)?.info().clone(),
        };
        info.dtypes = convertible(info.dtypes);
        Ok(info)
    }

    /// What the probe knows of a device while nothing has started.
    fn described(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Option<DeviceInfo>> {
        let checked = match self.check(call, device) {
            // Starting tells why there are no devices.
            Err(Error::IndexOutOfRange { index, count: Some(0) }) if index >= 0 => return Ok(None),
            checked => checked?,
        };
        let ordinal = match checked {
            Some(ordinal) => ordinal,
            None => self.current_device_index()?,
        };
        match self.core.choose(call)? {
            Some(chosen) if chosen.driver.fork_safe_probe() => {
                let visible = chosen.probe.unwrap_or_else(|| chosen.driver.probe()).visible;
                Ok(if ordinal < visible { chosen.driver.describe(ordinal) } else { None })
            }
            _ => Ok(None),
        }
    }

    /// A device's name. Starts what [`Runtime::get_device_properties`] does.
    ///
    /// # Errors
    /// As there.
    pub fn get_device_name<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<String> {
        Ok(self.properties("get_device_name", device.into())?.name)
    }

    /// The element types that a device has, resolved for the device that is current now. Starts what
    /// [`Runtime::get_device_properties`] does.
    /// [`torch.accelerator.get_device_capability`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// As there.
    pub fn get_device_capability<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<DeviceCapability> {
        let info = self.properties("get_device_capability", device.into())?;
        Ok(DeviceCapability { supported_dtypes: info.dtypes })
    }

    /// Whether a device reaches the memory of another directly; false for itself. May start the runtime.
    ///
    /// # Errors
    /// Those of the device arguments.
    pub fn can_device_access_peer<'a>(
        &self,
        device: impl Into<DeviceArg<'a>>,
        peer: impl Into<DeviceArg<'a>>,
    ) -> Result<bool> {
        let call = "can_device_access_peer";
        let (port, peer) = (self.port(call, device.into())?, self.resolve(call, peer.into())?);
        Ok(port.ordinal != peer && port.can_access_peer(peer))
    }

    /// Free and total bytes of a device, all processes together. Where the driver can't tell what is free (OpenCL, Metal),
    /// it is the total less what this process has reserved. May start the runtime.
    /// [`torch.accelerator.get_memory_info`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument; the driver's.
    pub fn get_memory_info<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<(u64, u64)> {
        let call = "get_memory_info";
        let port = self.port(call, device.into())?;
        port.reap();
        let info = port.memory_info(call)?;
        let free = info.free.unwrap_or_else(|| info.total.saturating_sub(port.cache.reserved()));
        Ok((free, info.total))
    }

    /// Gives back device memory that is kept for reuse, after waiting for the work that uses it. While the runtime has not
    /// started, and during a capture: nothing.
    /// [`torch.accelerator.empty_cache`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// The driver's; what it refused to take stays cached.
    pub fn empty_cache(&self) -> Result<()> {
        let call = "empty_cache";
        let Some(live) = self.core.running() else { return Ok(()) };
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        live.open_ports().try_for_each(|port| {
            port.reap();
            port.empty_cache(call)
        })
    }

    /// The same for one private pool of device memory, by its id, which may still be in use; (0, 0) is [`Runtime::empty_cache`].
    /// A pool that graphs were captured in keeps its memory as long as they live.
    ///
    /// # Errors
    /// As there.
    pub fn empty_pool_cache(&self, pool: (u64, u64)) -> Result<()> {
        if pool == (0, 0) {
            return self.empty_cache();
        }
        let call = "empty_pool_cache";
        let Some(live) = self.core.running() else { return Ok(()) };
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        live.open_ports().try_for_each(|port| {
            port.reap();
            port.empty_pool(call, pool)
        })
    }

    /// Gives back pinned memory that is kept for reuse. While the runtime has not started: nothing.
    /// [`torch.accelerator.empty_host_cache`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// The driver's; what it refused to take stays cached.
    pub fn empty_host_cache(&self) -> Result<()> {
        let call = "empty_host_cache";
        let Some(live) = self.core.running() else { return Ok(()) };
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        live.open_ports().try_for_each(|port| port.empty_host_cache(call))
    }

    /// Percent of the last interval in which the device worked. May start the runtime.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a sensor; the driver's if the card is not on the management side.
    pub fn utilization<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<f32> {
        let call = "utilization";
        self.port(call, device.into())?.telemetry(call, |sensors| sensors.utilization())
    }

    /// Percent of the last interval in which the device's memory was read or written. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::utilization`].
    pub fn memory_usage<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<f32> {
        let call = "memory_usage";
        self.port(call, device.into())?.telemetry(call, |sensors| sensors.memory_usage())
    }

    /// Degrees Celsius. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::utilization`].
    pub fn temperature<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<f32> {
        let call = "temperature";
        self.port(call, device.into())?.telemetry(call, |sensors| sensors.temperature())
    }

    /// Watts. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::utilization`].
    pub fn power_draw<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<f32> {
        let call = "power_draw";
        self.port(call, device.into())?.telemetry(call, |sensors| sensors.power_draw())
    }

    /// MHz. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::utilization`].
    pub fn clock_rate<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<f32> {
        let call = "clock_rate";
        self.port(call, device.into())?.telemetry(call, |sensors| sensors.clock_rate())
    }
}
