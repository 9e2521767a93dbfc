//! What a driver is built with. The one place that reads the environment.

use crate::memory::PAGE;
use crate::probe;
use anyaccel_hal::Absence;

/// How many devices there are.
pub(crate) const DEVICES: &str = "ANYACCEL_HOST_DEVICES";
/// How much memory each has.
pub(crate) const MEMORY: &str = "ANYACCEL_HOST_MEMORY";

const DEVICES_EXPECTED: &str = "a number of devices from 0 to 64";
const MEMORY_EXPECTED: &str = "bytes for each device, at least 4096: a number, maybe with K, M, G, KiB, MiB or GiB";

/// Devices are ordinals of one byte in PyTorch's terms, and each takes its share of the machine's memory.
const MOST_DEVICES: u32 = 64;

/// How to build a driver, for tests and for programs that want it different from what the environment says.
///
/// What is not set comes from the environment:
/// - `ANYACCEL_HOST_DEVICES`: how many devices, 0 to 64, by default 1. 0 hides the kind.
/// - `ANYACCEL_HOST_MEMORY`: bytes for each device, at least 4096, by default half of the machine's memory (or of what
///   the control group allows) divided by the number of devices. A number, maybe with a suffix: `K` and `KiB` are 1024,
///   `M` and `MiB` 1024 x 1024, `G` and `GiB` 1024 x 1024 x 1024. Rounded down to 4096.
///
/// ```
/// # use anyaccel_hal::Driver;
/// let config = anyaccel_host::HostConfig::new().devices(2).memory(64 << 20);
/// let driver = anyaccel_host::driver_with(config);
/// assert_eq!(driver.probe().visible, 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostConfig {
    devices: Option<u32>,
    memory: Option<u64>,
    workers: Option<usize>,
}

impl HostConfig {
    /// Everything as the environment says.
    pub const fn new() -> Self {
        Self { devices: None, memory: None, workers: None }
    }

    /// How many devices, at most 64.
    #[must_use]
    pub const fn devices(mut self, devices: u32) -> Self {
        self.devices = Some(if devices > MOST_DEVICES { MOST_DEVICES } else { devices });
        self
    }

    /// Bytes for each device, rounded down to 4096 but not to 0.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The most worker threads, at least 1. By default one for each core, at least 2.
    #[must_use]
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How many devices there are now, the environment included; else what is wrong with it, or that it hides all. Reads
    /// variables alone: calls that wait for the start ask it each.
    pub(crate) fn count(&self) -> Result<u32, Absence> {
        let devices = self.count_asked()?;
        self.memory_asked()?;
        Ok(devices)
    }

    /// The settings now, the environment included; else as [`HostConfig::count`].
    pub(crate) fn settings(&self) -> Result<Settings, Absence> {
        let devices = self.count_asked()?;
        let share = || probe::machine_memory() / 2 / u64::from(devices.max(1));
        let memory = self.memory_asked()?.unwrap_or_else(share);
        let workers = self.workers.unwrap_or_else(|| probe::cores().max(2)).max(1);
        Ok(Settings { devices, memory: (memory & !(PAGE - 1)).max(PAGE), workers })
    }

    fn count_asked(&self) -> Result<u32, Absence> {
        if let Some(devices) = self.devices {
            return Ok(devices);
        }
        let Some(value) = std::env::var_os(DEVICES) else { return Ok(1) };
        let value = value.to_string_lossy().into_owned();
        match parse_devices(&value) {
            Some(0) => Err(Absence::Masked { name: DEVICES, value }),
            Some(devices) => Ok(devices),
            None => Err(Absence::BadVariable { name: DEVICES, value, expected: DEVICES_EXPECTED }),
        }
    }

    /// Bytes for each device, if anybody said.
    fn memory_asked(&self) -> Result<Option<u64>, Absence> {
        if self.memory.is_some() {
            return Ok(self.memory);
        }
        let Some(value) = std::env::var_os(MEMORY) else { return Ok(None) };
        let value = value.to_string_lossy().into_owned();
        match parse_memory(&value) {
            Some(memory) => Ok(Some(memory)),
            None => Err(Absence::BadVariable { name: MEMORY, value, expected: MEMORY_EXPECTED }),
        }
    }
}

/// A complete configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) devices: u32,
    pub(crate) memory: u64,
    pub(crate) workers: usize,
}

/// A count that digits spell, without a sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn parse_devices(text: &str) -> Option<u32> {
    digits(text.trim()).and_then(|devices| u32::try_from(devices).ok()).filter(|&devices| devices <= MOST_DEVICES)
}

fn parse_memory(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    digits(number.trim_end())?.checked_mul(unit).filter(|&bytes| bytes >= PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_devices_are_plain_numbers() {
        for (text, devices) in [("0", 0), ("1", 1), (" 8 ", 8), ("64", 64), ("007", 7)] {
            assert_eq!(parse_devices(text), Some(devices), "{text:?}");
        }
        for text in ["", " ", "abc", "-1", "+1", "1.5", "1,2", "65", "99999999999999999999", "0x2", "²"] {
            assert_eq!(parse_devices(text), None, "{text:?}");
        }
    }

    #[test]
    fn memory_is_bytes_or_has_a_unit() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1000000", 1_000_000),
            ("64K", 64 << 10),
            ("64KiB", 64 << 10),
            ("64 mib", 64 << 20),
            ("3M", 3 << 20),
            (" 2GiB ", 2 << 30),
            ("1g", 1 << 30),
        ] {
            assert_eq!(parse_memory(text), Some(bytes), "{text:?}");
        }
        for text in ["", "0", "4095", "-1", "1T", "1.5G", "MiB", "G1", "1 G B", "18014398509481984K", "9é"] {
            assert_eq!(parse_memory(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_set_wins() {
        let settings = HostConfig::new().devices(3).memory(10_000).workers(0).settings();
        assert_eq!(settings, Ok(Settings { devices: 3, memory: 8192, workers: 1 }));
        let settings = HostConfig::new().devices(1000).memory(0).workers(5).settings();
        assert_eq!(settings, Ok(Settings { devices: 64, memory: 4096, workers: 5 }));
    }
}
