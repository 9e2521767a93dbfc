//! Copies between devices.

use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::stream::{Side, Work};
use anyaccel_hal::{Fault, Peers, PeersLimits, Place, StreamId};

impl Peers for SimDevice {
    fn limits(&self) -> PeersLimits {
        let reachable = (0..self.devices().len() as u32).filter(|&ordinal| self.can_access(ordinal)).count();
        PeersLimits { reachable: reachable as u32 }
    }

    fn can_access(&self, ordinal: u32) -> bool {
        let other = self.devices().get(ordinal as usize);
        ordinal != self.ordinal() && other.is_some_and(|other| other.capabilities.peers)
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        self.call(Call::new(Method::PeersCopy).stream(stream).mem(dst.mem).amount(len), |state, ordinal| {
            state.stream(Method::PeersCopy, stream, ordinal)?;
            if !self.can_access(from) {
                let note = format!("device {from} is out of reach of device {ordinal}");
                return Err(Fault::unsupported(Method::PeersCopy.name()).note(note));
            }
            let dst = Side::Span(state.place(Method::PeersCopy, ordinal, dst, len)?);
            let src = Side::Span(state.place(Method::PeersCopy, from, src, len)?);
            state.enqueue(stream, Work::Copy { dst, src, len });
            Ok(())
        })
    }
}
