//! Devices of one driver reach each other's memory directly: it is all this machine's (H28).

use crate::device::HostDevice;
use crate::op::Op;
use anyaccel_hal::{Fault, Peers, PeersLimits, Place, StreamId};

impl Peers for HostDevice {
    fn limits(&self) -> PeersLimits {
        PeersLimits { reachable: self.machine().devices() - 1 }
    }

    fn can_access(&self, ordinal: u32) -> bool {
        ordinal != self.ordinal() && ordinal < self.machine().devices()
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        if !self.can_access(from) {
            return Err(Fault::unsupported("peer_copy"));
        }
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            let dst = self.place(dst, len, "peer_copy")?;
            let src = self.place(src, len, "peer_copy")?;
            self.stream(stream, "peer_copy")?.push(Op::Copy { dst, src, len: len as usize });
        }
        Ok(())
    }
}
