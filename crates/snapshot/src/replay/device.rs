//! A device that is only numbers: so many bytes, an address space, and streams that end when the recording says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyaccel_engine::alloc::{DeviceMemory, Marks, PortError, Ports, RawSegment, Segments, Virtual};

const ALIGN: u64 = 2 << 20;
const BASE: u64 = 1 << 45;
/// Above it nothing is put while there are gaps: a device has less than 2^60 bytes.
const LAST: u64 = 1 << 62;

/// Where a device puts a segment. It decides which of several equal free blocks the allocator takes, since that is the one
/// at the lowest address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Above all earlier ones. This is what the peaks measured with PyTorch agree with, all of them
    /// (`docs/snapshots.md`), so it is the default.
    #[default]
    Rise,
    /// In the lowest gap that fits, a multiple of 2 MiB. So PyTorch's traces have it where the driver uses addresses again.
    Reuse,
}

/// Memory and address space of a device.
#[derive(Debug)]
pub(super) struct Space {
    total: u64,
    addresses: Addresses,
    used: AtomicU64,
    /// Calls that changed `used`.
    changes: AtomicU64,
    refused: AtomicU64,
    /// Live ranges: address and length.
    ranges: Mutex<BTreeMap<u64, u64>>,
    /// No range has ended above it.
    top: AtomicU64,
    /// Blocks that streams used: how many have come free, and the place of the next one given back.
    completed: AtomicU64,
    next_mark: AtomicU64,
}

impl Space {
    pub(super) fn new(total: u64, addresses: Addresses) -> Self {
        Space {
            total,
            addresses,
            used: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            ranges: Mutex::default(),
            top: AtomicU64::new(BASE),
            completed: AtomicU64::new(0),
            next_mark: AtomicU64::new(0),
        }
    }

    pub(super) fn ports(self: &Arc<Self>) -> Ports {
        Ports { segments: self.clone(), growable: Some(self.clone()), marks: self.clone() }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn complete(&self, place: u64) {
        self.completed.store(place, Ordering::Relaxed);
    }

    /// The place of the block that is given back next.
    pub(super) fn next_mark(&self, place: u64) {
        self.next_mark.store(place, Ordering::Relaxed);
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, len: u64) -> Result<(), PortError> {
        if len > self.total - self.used() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(PortError::OutOfMemory);
        }
        self.used.fetch_add(len, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give(&self, len: u64) {
        self.used.fetch_sub(len, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, len: u64) -> RawSegment {
        let mut ranges = self.ranges();
        let top = self.top.load(Ordering::Relaxed);
        let mut addr = top;
        // Once the addresses are used up, they are used again.
        if self.addresses == Addresses::Reuse || top > LAST {
            addr = BASE;
            for (&start, &taken) in ranges.iter() {
                if start - addr >= len {
                    break;
                }
                addr = (start + taken).next_multiple_of(ALIGN);
            }
        }
        ranges.insert(addr, len);
        self.top.store(top.max((addr + len).next_multiple_of(ALIGN)), Ordering::Relaxed);
        RawSegment { token: addr, addr, len }
    }
}

impl Segments for Space {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        self.take(len)?;
        Ok(self.place(len))
    }

    fn free(&self, segment: RawSegment) -> Result<(), PortError> {
        self.ranges().remove(&segment.addr);
        self.give(segment.len);
        Ok(())
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { total: self.total, free: Some(self.total - self.used()) }
    }
}

impl Virtual for Space {
    fn reserve(&self, len: u64, _unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        Ok(self.place(len))
    }

    fn release(&self, range: RawSegment) -> Result<(), PortError> {
        self.ranges().remove(&range.addr);
        Ok(())
    }

    fn map(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        self.take(len)
    }

    fn unmap(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        self.give(len);
        Ok(())
    }
}

/// Marks are places among the ends of blocks that streams used, whatever the stream: the recording has them in one order.
impl Marks for Space {
    fn mark(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(self.next_mark.load(Ordering::Relaxed))
    }

    fn completed(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(self.completed.load(Ordering::Relaxed))
    }

    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_lowest_gap_that_fits_comes_first() {
        let space = Space::new(100 * MIB, Addresses::Reuse);
        let at = |len: u64| space.alloc(len, 0).unwrap();
        let (a, b, c) = (at(4 * MIB), at(20 * MIB), at(2 * MIB));
        assert_eq!((a.addr, b.addr, c.addr), (BASE, BASE + 4 * MIB, BASE + 24 * MIB));
        space.free(a).unwrap();
        space.free(b).unwrap();
        assert_eq!(at(24 * MIB).addr, BASE);
        assert_eq!(at(2 * MIB + 512).addr, BASE + 26 * MIB);
        assert_eq!(at(2 * MIB).addr, BASE + 30 * MIB);
        assert_eq!(space.alloc(100 * MIB, 0), Err(PortError::OutOfMemory));
        assert_eq!((space.refused(), space.memory().free), (1, Some(70 * MIB - 512)));
    }

    #[test]
    fn addresses_rise() {
        let space = Space::new(100 * MIB, Addresses::Rise);
        let a = space.alloc(3 * MIB, 0).unwrap();
        space.free(a).unwrap();
        assert_eq!(space.alloc(MIB, 0).unwrap().addr, BASE + 4 * MIB);
    }
}
