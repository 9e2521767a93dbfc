//! A device that is only numbers: so many bytes, an address space, and streams that end when the recording says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyaccel_engine::alloc::{DeviceMemory, Marks, PortError, Ports, RawSegment, Segments, Virtual};

const ALIGN: u64 = 2 << 20;
const BASE: u64 = 1 << 45;

/// Address space, in steps of 2 MiB: what is free below the top, by address.
#[derive(Debug)]
struct Room {
    gaps: BTreeMap<u64, u64>,
    top: u64,
}

impl Room {
    fn take(&mut self, len: u64) -> u64 {
        let len = len.next_multiple_of(ALIGN);
        match self.gaps.iter().find(|&(_, &gap)| gap >= len) {
            Some((&addr, &gap)) => {
                self.gaps.remove(&addr);
                if gap > len {
                    self.gaps.insert(addr + len, gap - len);
                }
                addr
            }
            None => {
                self.top += len;
                self.top - len
            }
        }
    }

    fn give(&mut self, addr: u64, len: u64) {
        let (mut from, mut to) = (addr, addr + len.next_multiple_of(ALIGN));
        if let Some((&below, &gap)) = self.gaps.range(..from).next_back()
            && below + gap == from
        {
            self.gaps.remove(&below);
            from = below;
        }
        if let Some(gap) = self.gaps.remove(&to) {
            to += gap;
        }
        if to == self.top {
            self.top = from;
        } else {
            self.gaps.insert(from, to - from);
        }
    }
}

/// Memory and address space of a device. Addresses given back are used again, the lowest gap that fits first.
#[derive(Debug)]
pub(super) struct Space {
    total: u64,
    used: AtomicU64,
    refused: AtomicU64,
    room: Mutex<Room>,
    /// Blocks that streams used: how many have come free, and the place of the next one given back.
    completed: AtomicU64,
    next_mark: AtomicU64,
}

impl Space {
    pub(super) fn new(total: u64) -> Self {
        Space {
            total,
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            room: Mutex::new(Room { gaps: BTreeMap::new(), top: BASE }),
            completed: AtomicU64::new(0),
            next_mark: AtomicU64::new(0),
        }
    }

    pub(super) fn ports(self: &Arc<Self>) -> Ports {
        Ports { segments: self.clone(), growable: Some(self.clone()), marks: self.clone() }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, len: u64) -> Result<(), PortError> {
        if len > self.total - self.used() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(PortError::OutOfMemory);
        }
        self.used.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn give(&self, len: u64) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }

    fn place(&self, len: u64) -> RawSegment {
        let addr = self.room().take(len);
        RawSegment { token: addr, addr, len }
    }
}

impl Segments for Space {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        self.take(len)?;
        Ok(self.place(len))
    }

    fn free(&self, segment: RawSegment, _stream: u64) -> Result<(), PortError> {
        self.room().give(segment.addr, segment.len);
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
        self.room().give(range.addr, range.len);
        Ok(())
    }

    fn map(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        self.take(len)
    }

    fn unmap(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64, _stream: u64) -> Result<(), PortError> {
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
        let space = Space::new(100 * MIB);
        let at = |len: u64| space.alloc(len, 0).unwrap();
        let (a, b, c) = (at(4 * MIB), at(20 * MIB), at(2 * MIB));
        assert_eq!((a.addr, b.addr, c.addr), (BASE, BASE + 4 * MIB, BASE + 24 * MIB));
        space.free(a, 0).unwrap();
        space.free(b, 0).unwrap();
        assert_eq!(at(24 * MIB).addr, BASE);
        assert_eq!(at(2 * MIB + 512).addr, BASE + 26 * MIB);
        assert_eq!(at(2 * MIB).addr, BASE + 30 * MIB);
        assert_eq!(space.alloc(100 * MIB, 0), Err(PortError::OutOfMemory));
        assert_eq!((space.refused(), space.memory().free), (1, Some(70 * MIB - 512)));
    }
}
