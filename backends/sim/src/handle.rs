//! Handles of the simulated device: which driver and device one came from can be read off it.
//!
//! `driver's tag (16 bits) | ordinal (8 bits) | serial (40 bits)`. Serials are never used twice, so a stale handle is known
//! as one (H2), and a foreign one too.

use std::sync::atomic::{AtomicU16, Ordering};

const ORDINAL_SHIFT: u32 = 40;
const TAG_SHIFT: u32 = 48;
const SERIAL_MASK: u64 = (1 << ORDINAL_SHIFT) - 1;

/// The most devices of a driver: what the ordinal's bits hold.
pub(crate) const MAX_DEVICES: usize = 256;

/// Gives out the handles of one driver.
pub(crate) struct Handles {
    tag: u16,
    last: u64,
}

impl Handles {
    /// Handles unlike those of the drivers made before it.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let tag = match NEXT.fetch_add(1, Ordering::Relaxed) {
            // 0 is left out: small numbers written by hand are no handles.
            0 => NEXT.fetch_add(1, Ordering::Relaxed),
            tag => tag,
        };
        Self { tag, last: 0 }
    }

    /// A handle that no object had before.
    pub(crate) fn give(&mut self, ordinal: u32) -> u64 {
        self.last += 1;
        u64::from(self.tag) << TAG_SHIFT | u64::from(ordinal) << ORDINAL_SHIFT | self.last
    }

    /// Why a handle that names no live object of `ordinal` does not.
    pub(crate) fn explain(&self, what: &str, handle: u64, ordinal: u32) -> String {
        let serial = handle & SERIAL_MASK;
        if handle >> TAG_SHIFT != u64::from(self.tag) {
            return format!("{what} {handle:#x} is not of this driver");
        }
        let owner = device_of(handle);
        if owner != ordinal {
            return format!("{what} {} is of device {owner}, used on device {ordinal}", short(handle));
        }
        if serial > self.last {
            return format!("{what} {} was never given out", short(handle));
        }
        format!("{what} {} is stale, or names an object of another type", short(handle))
    }
}

/// The device that a handle was given out for.
pub(crate) fn device_of(handle: u64) -> u32 {
    ((handle >> ORDINAL_SHIFT) & 0xff) as u32
}

/// A handle as messages name it: its serial.
pub(crate) fn short(handle: u64) -> String {
    format!("#{}", handle & SERIAL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_handle_is_explained() {
        let (mut ours, mut theirs) = (Handles::new(), Handles::new());
        let (a, b) = (ours.give(0), ours.give(3));
        assert_ne!(a, b);
        assert_eq!(device_of(b), 3);
        assert!(ours.explain("memory", theirs.give(0), 0).contains("not of this driver"));
        assert!(ours.explain("memory", 7, 0).contains("not of this driver"));
        assert_eq!(ours.explain("memory", b, 0), "memory #2 is of device 3, used on device 0");
        assert!(ours.explain("memory", a, 0).contains("stale"));
        assert!(ours.explain("memory", a + 10, 0).contains("never given out"));
    }
}
