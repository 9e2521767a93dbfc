//! Which devices count and how their memory is named: by the builder, else by the environment, read anew until a start
//! freezes it.

use crate::sys::{DEVICE_TYPE_ACCELERATOR, DEVICE_TYPE_ALL, DEVICE_TYPE_CPU, DEVICE_TYPE_CUSTOM, DEVICE_TYPE_GPU};
use anyaccel_hal::{Absence, Kind};
use std::env;

/// The variable that says which types of device count: `gpu`, `accelerator`, `custom`, `cpu`, `all`, separated by commas.
pub(crate) const TYPES: &str = "ANYACCEL_OPENCL_DEVICE_TYPES";
/// The variable that picks devices by their numbers, separated by commas, in the order in which they then count.
pub(crate) const DEVICES: &str = "ANYACCEL_OPENCL_DEVICES";
/// The variable that says how memory is named.
pub(crate) const MEMORY: &str = "ANYACCEL_OPENCL_MEMORY";
/// The variable by which the runtime above is told to use a backend. That it names this one makes CPUs count.
const BACKEND: &str = "ANYACCEL_BACKEND";

/// How operations name device memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addressing {
    /// By address: unified shared memory (`cl_intel_unified_shared_memory`).
    Usm,
    /// By address in kernels, by object in copies (`cl_ext_buffer_device_address`).
    DeviceAddress,
    /// By address: shared virtual memory of OpenCL 2.0, coarse- or fine-grained.
    Svm,
    /// By object and offset: `cl_mem`.
    Buffer,
}

impl Addressing {
    /// All, the most preferred first.
    pub const ALL: [Addressing; 4] = [Self::Usm, Self::DeviceAddress, Self::Svm, Self::Buffer];

    /// Its name in `ANYACCEL_OPENCL_MEMORY`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usm => "usm",
            Self::DeviceAddress => "address",
            Self::Svm => "svm",
            Self::Buffer => "buffer",
        }
    }
}

/// How a driver is built. What is not said here, the environment says.
#[derive(Clone, Debug, Default)]
pub struct OpenClConfig {
    cpus: bool,
    memory: Option<u64>,
    addressing: Option<Addressing>,
    at_least: u32,
}

impl OpenClConfig {
    /// All as the environment says: GPUs and accelerators; CPUs too where `ANYACCEL_BACKEND` is `opencl` or
    /// `ANYACCEL_OPENCL_DEVICE_TYPES` names them.
    pub const fn new() -> Self {
        Self { cpus: false, memory: None, addressing: None, at_least: 0 }
    }

    /// CPUs count as well unless the environment names types. For who asks for this backend by name.
    #[must_use]
    pub const fn cpus(mut self, count: bool) -> Self {
        self.cpus = count;
        self
    }

    /// Every device is taken to have at most that many bytes.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Memory is named in that way only. A device that can't is an error at the start.
    #[must_use]
    pub const fn addressing(mut self, addressing: Addressing) -> Self {
        self.addressing = Some(addressing);
        self
    }

    /// Devices count again, in turn, until there are that many, each time as a device of its own: for tests of several devices on
    /// machines with one. None stay none.
    #[must_use]
    pub const fn at_least(mut self, devices: u32) -> Self {
        self.at_least = devices;
        self
    }

    /// What counts now.
    pub(crate) fn settings(&self) -> Result<Settings, Absence> {
        Ok(Settings {
            types: self.types()?,
            mask: mask()?,
            at_least: self.at_least,
            memory: self.memory.unwrap_or(u64::MAX),
            addressing: match self.addressing {
                Some(addressing) => Some(addressing),
                None => addressing()?,
            },
        })
    }

    fn types(&self) -> Result<u64, Absence> {
        match read(TYPES) {
            Some(value) => parse_types(&value).ok_or(Absence::BadVariable {
                name: TYPES,
                value,
                expected: "some of gpu, accelerator, custom, cpu, all, separated by commas",
            }),
            None => {
                let named = self.cpus || env::var(BACKEND).is_ok_and(|name| name == Kind::OPENCL.name());
                Ok(DEVICE_TYPE_GPU | DEVICE_TYPE_ACCELERATOR | if named { DEVICE_TYPE_CPU } else { 0 })
            }
        }
    }
}

/// What a driver runs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Bits of device types.
    pub(crate) types: u64,
    /// Which of the devices, in which order; all if `None`.
    pub(crate) mask: Option<Vec<u32>>,
    /// How many devices there are at least, if there is any.
    pub(crate) at_least: u32,
    /// The most memory of a device.
    pub(crate) memory: u64,
    pub(crate) addressing: Option<Addressing>,
}

impl Settings {
    /// Whether CPUs count.
    pub(crate) const fn cpus(&self) -> bool {
        self.types & DEVICE_TYPE_CPU != 0
    }
}

/// A variable, unless it is empty.
fn read(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

fn parse_types(value: &str) -> Option<u64> {
    value.split(',').try_fold(0, |types, name| {
        let one = match name.trim().to_ascii_lowercase().as_str() {
            "gpu" => DEVICE_TYPE_GPU,
            "accelerator" => DEVICE_TYPE_ACCELERATOR,
            "custom" => DEVICE_TYPE_CUSTOM,
            "cpu" => DEVICE_TYPE_CPU,
            "all" => DEVICE_TYPE_ALL,
            _ => return None,
        };
        Some(types | one)
    })
}

fn mask() -> Result<Option<Vec<u32>>, Absence> {
    // An empty mask is one that hides all devices, so it is read apart from an absent one.
    let Some(value) = env::var_os(DEVICES) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    parse_mask(&value).map(Some).ok_or(Absence::BadVariable {
        name: DEVICES,
        value,
        expected: "numbers of devices, separated by commas, each once",
    })
}

fn parse_mask(value: &str) -> Option<Vec<u32>> {
    if value.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut picked = Vec::new();
    for number in value.split(',') {
        let number = number.trim().parse().ok()?;
        if picked.contains(&number) {
            return None;
        }
        picked.push(number);
    }
    Some(picked)
}

fn addressing() -> Result<Option<Addressing>, Absence> {
    let Some(value) = read(MEMORY) else { return Ok(None) };
    let found = Addressing::ALL.into_iter().find(|addressing| addressing.name() == value);
    found.map(Some).ok_or(Absence::BadVariable { name: MEMORY, value, expected: "usm, address, svm or buffer" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_a_list() {
        assert_eq!(parse_types("gpu, CPU"), Some(DEVICE_TYPE_GPU | DEVICE_TYPE_CPU));
        assert_eq!(parse_types("all"), Some(DEVICE_TYPE_ALL));
        assert_eq!([parse_types("gpus"), parse_types("gpu,,cpu")], [None; 2]);
    }

    #[test]
    fn masks_pick_and_order() {
        assert_eq!(parse_mask("2, 0"), Some(vec![2, 0]));
        assert_eq!(parse_mask(" "), Some(vec![]));
        for bad in ["a", "-1", "0,0", "1,,2", "4294967296"] {
            assert_eq!(parse_mask(bad), None, "{bad:?}");
        }
    }
}
