//! Pinned memory: ordinary page-aligned memory, as the device is this machine (H27).

use crate::device::HostDevice;
use crate::memory::{Access, Holder, Mapping, Memory, PAGE, refused};
use anyaccel_hal::{Fault, HostPtr, Mem, Pinned, PinnedLimits};

impl Pinned for HostDevice {
    fn limits(&self) -> PinnedLimits {
        PinnedLimits { granularity: PAGE, register: true, direct: true }
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        if len == 0 {
            return Err(Fault::invalid("pinned_alloc", "0 bytes"));
        }
        let len = len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let mapping = Mapping::new(len, Access::Backed).map_err(|error| refused("pinned_alloc", &error))?;
        let base = mapping.base();
        let memory = Memory { base, len, holder: Holder::Pinned { _mapping: mapping } };
        Ok((Mem(self.machine().memory().insert(memory)), HostPtr(base)))
    }

    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        let begin = ptr.0 as u64;
        let Some(end) = begin.checked_add(len).filter(|_| begin > 0 && len > 0) else {
            return Err(Fault::invalid("pinned_register", format!("{len} bytes at {begin:#x}")));
        };
        let mut registered = self.machine().registered.lock();
        // The last range that begins before this one's end is the only one that can reach into it.
        if let Some((&at, &other)) = registered.range(..end).next_back()
            && at + other > begin
        {
            return Err(Fault::invalid("pinned_register", format!("{other} bytes at {at:#x} are registered")));
        }
        registered.insert(begin, len);
        drop(registered);
        Ok(Mem(self.machine().memory().insert(Memory { base: ptr.0, len, holder: Holder::Registered })))
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let memory = unsafe { self.memory(mem, "pinned_free")? };
        match memory.holder {
            Holder::Pinned { .. } => {}
            Holder::Registered => {
                self.machine().registered.lock().remove(&(memory.base as u64));
            }
            _ => return Err(Fault::invalid("pinned_free", "memory that is not pinned")),
        }
        drop(self.machine().memory().remove(mem.0));
        Ok(())
    }
}
