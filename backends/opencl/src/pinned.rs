//! Host memory that devices reach directly: USM of the host, fine-grained SVM, or a buffer that stays mapped.

use crate::config::Addressing;
use crate::device::OpenClDevice;
use crate::memory::{Block, PAGE, pinned_form};
use anyaccel_hal::{Fault, HostPtr, Mem, Pinned, PinnedLimits};

impl Pinned for OpenClDevice {
    fn limits(&self) -> PinnedLimits {
        // A buffer can't be used by a device while it is mapped.
        let direct = pinned_form(&self.part) != Addressing::Buffer;
        PinnedLimits { granularity: PAGE, register: false, direct }
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        if len == 0 {
            return Err(Fault::invalid("alloc", "0 bytes of pinned memory"));
        }
        let block = Block::pinned(&self.part, len, &self.machine.addresses)?;
        let host = block.host().ok_or(Fault::unsupported("alloc"))?;
        Ok((Mem(self.machine.memory.insert(block)), host))
    }

    unsafe fn register(&self, _ptr: HostPtr, _len: u64) -> Result<Mem, Fault> {
        Err(Fault::unsupported("register"))
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        drop(self.machine.memory.remove(mem.0));
        Ok(())
    }
}
