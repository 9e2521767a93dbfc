//! Copies between devices of one platform, which share a context.

use crate::device::OpenClDevice;
use anyaccel_hal::{Fault, Peers, PeersLimits, Place, StreamId};

impl OpenClDevice {
    fn reaches(&self, ordinal: usize) -> bool {
        let Some(other) = self.machine.parts.get(ordinal) else { return false };
        ordinal != self.ordinal
            && other.group == self.part.group
            && other.facts.addressing == self.part.facts.addressing
            && other.facts.shares
            && self.part.facts.shares
    }

    /// How many other devices can be reached.
    pub(crate) fn reachable(&self) -> u32 {
        (0..self.machine.parts.len()).filter(|&ordinal| self.reaches(ordinal)).count() as u32
    }
}

impl Peers for OpenClDevice {
    fn limits(&self) -> PeersLimits {
        PeersLimits { reachable: self.reachable() }
    }

    fn can_access(&self, ordinal: u32) -> bool {
        self.reaches(ordinal as usize)
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        if !self.can_access(from) {
            return Err(Fault::unsupported("peer copy"));
        }
        // SAFETY: H1: handles of memory are unique to the driver, so the source is found as any other.
        unsafe {
            let stream = self.stream(stream)?;
            let (dst, src) = (self.block(dst.mem)?.spot(dst.offset), self.block(src.mem)?.spot(src.offset));
            self.enqueue_copy(stream, dst, src, len)
        }
    }
}
