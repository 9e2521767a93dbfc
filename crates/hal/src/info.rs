//! What a device says of itself: the same fields and units on every backend, and unknown is explicit.

use crate::dtype::DTypeSet;
use std::fmt;

/// 16 bytes that identify a card for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where on the PCI bus a card sits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PciAddress {
    /// The domain (segment).
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device on the bus.
    pub device: u8,
    /// The function of the device.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

/// The priorities of a device's streams. Lower numbers are more urgent, as in CUDA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriorityRange {
    /// The least urgent priority, 0 on every known device.
    pub least: i32,
    /// The most urgent one, at most `least`.
    pub greatest: i32,
}

impl PriorityRange {
    /// The nearest priority that the device has.
    pub const fn clamp(self, priority: i32) -> i32 {
        if priority > self.least {
            self.least
        } else if priority < self.greatest {
            self.greatest
        } else {
            priority
        }
    }

    /// How many priorities there are.
    pub const fn levels(self) -> usize {
        (self.least - self.greatest + 1) as usize
    }
}

/// The sizes of pattern that a device fills with natively, in bytes: a set of 1, 2, 4, 8 and 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatternSizes(pub u32);

impl PatternSizes {
    /// 1, 2, 4, 8 and 16.
    pub const ALL: PatternSizes = PatternSizes(0b1_1111);

    /// Whether patterns of `bytes` bytes are in the set.
    pub const fn has(self, bytes: usize) -> bool {
        bytes.is_power_of_two() && bytes <= 16 && self.0 & (1 << bytes.trailing_zeros()) != 0
    }
}

/// A device's properties. Constant for its life.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceInfo {
    /// The marketing name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// The version of the native driver, as it writes it itself.
    pub driver: String,
    /// Its identity, if it has one.
    pub uuid: Option<Uuid>,
    /// Its place on the bus, if it is on one.
    pub pci: Option<PciAddress>,
    /// Memory in bytes.
    pub memory: u64,
    /// The largest single allocation in bytes.
    pub max_alloc: u64,
    /// What addresses of segments are multiples of, in bytes; a power of two.
    pub alignment: u64,
    /// What offsets of places in kernel arguments are multiples of, in bytes: 1 where memory has addresses.
    pub place_alignment: u64,
    /// Whether copies may name any host memory; else the engine stages through [`Pinned`](crate::Pinned).
    pub host_ends: bool,
    /// Resolution of stamps in nanoseconds.
    pub stamp_ns: u32,
    /// Native sizes of fill patterns.
    pub fill_patterns: PatternSizes,
    /// Compute units (multiprocessors, cores), if known.
    pub cores: Option<u32>,
    /// The highest clock in MHz, if known.
    pub clock_mhz: Option<u32>,
    /// Whether it shares the host's memory, if known.
    pub integrated: Option<bool>,
    /// Stream priorities.
    pub priorities: PriorityRange,
    /// Element types that its built-in conversion knows. Empty if it has none: the engine then converts on the host,
    /// all types.
    pub dtypes: DTypeSet,
}

/// How much memory a device has left, all processes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// Free bytes; `None` where the driver can't tell (OpenCL, Metal).
    pub free: Option<u64>,
    /// All bytes.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_clamp_to_the_range() {
        let range = PriorityRange { least: 0, greatest: -3 };
        assert_eq!([5, 0, -1, -3, -9].map(|p| range.clamp(p)), [0, 0, -1, -3, -3]);
        assert_eq!(range.levels(), 4);
    }

    #[test]
    fn pattern_sizes_are_powers_of_two_up_to_16() {
        let sizes: Vec<usize> = (0..=40).filter(|&n| PatternSizes::ALL.has(n)).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16]);
    }

    #[test]
    fn identities_print_as_their_vendors_print_them() {
        let uuid = Uuid([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(uuid.to_string(), "12345678-9abc-def0-0102-030405060708");
        let pci = PciAddress { domain: 0, bus: 0x3b, device: 0, function: 1 };
        assert_eq!(pci.to_string(), "0000:3b:00.1");
    }
}
