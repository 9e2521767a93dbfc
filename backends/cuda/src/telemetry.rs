//! Sensors, by the management library, joined by identity (H32).

use crate::conv::Failed;
use crate::device::CudaDevice;
use crate::inventory::Sensors;
use crate::sys::*;
use anyaccel_hal::{Fault, FaultKind, Telemetry, TelemetryLimits};

impl CudaDevice {
    fn sensors(&self, api: &'static str) -> Result<&Sensors, Fault> {
        if !self.limits.sensors {
            return Err(Fault::unsupported(api).note("an instance of a card has no sensors of its own"));
        }
        self.sensors
            .as_ref()
            .ok_or_else(|| Fault::new(FaultKind::NotReady, api).note("the card is not on the management side"))
    }
}

/// A code of the management library, which are others than the driver's.
fn told(failed: Failed) -> Fault {
    let kind = match failed.code {
        NVML_ERROR_NOT_SUPPORTED | ABSENT => FaultKind::Unsupported,
        NVML_ERROR_GPU_IS_LOST => FaultKind::DeviceLost,
        NVML_ERROR_NOT_FOUND => FaultKind::NotReady,
        _ => FaultKind::Driver,
    };
    Fault::new(kind, failed.api).code(failed.code.into())
}

impl Telemetry for CudaDevice {
    fn limits(&self) -> TelemetryLimits {
        let known = self.limits.sensors;
        TelemetryLimits { utilization: known, memory_usage: known, temperature: known, power: known, clock: known }
    }

    fn utilization(&self) -> Result<f32, Fault> {
        let sensors = self.sensors("nvmlDeviceGetUtilizationRates")?;
        // SAFETY: a valid place for the answer, here and below.
        let rates = sensors.ask(|nvml, device, out| unsafe { nvml.nvmlDeviceGetUtilizationRates(device, out) });
        rates.map(|rates: NvmlUtilization| rates.gpu as f32).map_err(told)
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        let sensors = self.sensors("nvmlDeviceGetUtilizationRates")?;
        // SAFETY: as above.
        let rates = sensors.ask(|nvml, device, out| unsafe { nvml.nvmlDeviceGetUtilizationRates(device, out) });
        rates.map(|rates: NvmlUtilization| rates.memory as f32).map_err(told)
    }

    fn temperature(&self) -> Result<f32, Fault> {
        let sensors = self.sensors("nvmlDeviceGetTemperature")?;
        let read = |nvml: &Nvml, device, out| {
            // SAFETY: as above.
            unsafe { nvml.nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, out) }
        };
        sensors.ask(read).map(|celsius: u32| celsius as f32).map_err(told)
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        let sensors = self.sensors("nvmlDeviceGetPowerUsage")?;
        // SAFETY: as above.
        let milliwatts = sensors.ask(|nvml, device, out| unsafe { nvml.nvmlDeviceGetPowerUsage(device, out) });
        milliwatts.map(|milliwatts: u32| milliwatts as f32 / 1000.0).map_err(told)
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        let sensors = self.sensors("nvmlDeviceGetClockInfo")?;
        // SAFETY: as above.
        let mhz = sensors.ask(|nvml, device, out| unsafe { nvml.nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, out) });
        mhz.map(|mhz: u32| mhz as f32).map_err(told)
    }
}
