//! What kernels see of memory.

use crate::device::Device;
use crate::memory::{self, Memory};
use anyaccel_fake::kernels::{self, Fault, Launch};
use std::sync::atomic::Ordering;

/// All of memory, for a kernel on a device.
struct Seen<'a> {
    device: &'a Device,
    memory: &'a Memory,
}

impl Seen<'_> {
    fn checked(&self, at: u64, len: u64, writes: bool) -> Result<usize, Fault> {
        let good = self.memory.usable(at, len, self.device, writes, false);
        if good { usize::try_from(len).map_err(|_| Fault::Address) } else { Err(Fault::Address) }
    }
}

impl<'a> kernels::Memory<'a> for Seen<'a> {
    fn target(&self, at: u64, len: u64) -> Result<&'a mut [u8], Fault> {
        match self.checked(at, len, true)? {
            0 => Ok(&mut []),
            // SAFETY: memory of this process that the registry knows, and that stays while it is read; callers order all
            // use of it by lists and events.
            len => Ok(unsafe { std::slice::from_raw_parts_mut(at as usize as *mut u8, len) }),
        }
    }

    fn source(&self, at: u64, len: u64) -> Result<&'a [u8], Fault> {
        match self.checked(at, len, false)? {
            0 => Ok(&[]),
            // SAFETY: as for `target`.
            len => Ok(unsafe { std::slice::from_raw_parts(at as usize as *const u8, len) }),
        }
    }
}

/// Runs all of a launch.
pub(crate) fn run(launch: &Launch, device: &Device) -> Result<(), Fault> {
    if launch.groups.contains(&0) {
        return Ok(());
    }
    launch.spin(|| device.card.lost.load(Ordering::Acquire))?;
    launch.run(&Seen { device, memory: &memory::read() })
}
