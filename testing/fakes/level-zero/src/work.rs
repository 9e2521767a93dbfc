//! What commands do.

use crate::abi::ze_copy_region_t;
use crate::clock;
use crate::config::config;
use crate::device::Device;
use crate::event::Event;
use crate::kernel;
use crate::memory::{self, Memory};
use crate::queue::Fence;
use anyaccel_fake::kernels::{Fault, Launch};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A function of a host's that a queue calls.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// One side of a copy of boxes: an address, a region, and the bytes of its rows and slices.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) at: u64,
    pub(crate) region: ze_copy_region_t,
    pub(crate) row: u32,
    pub(crate) slice: u32,
}

impl Side {
    /// Where a row of it begins.
    fn row_at(&self, y: u32, z: u32) -> u64 {
        let region = &self.region;
        let (y, z) = (u64::from(region.originY + y), u64::from(region.originZ + z));
        self.at + u64::from(region.originX) + y * u64::from(self.row) + z * u64::from(self.slice)
    }
}

#[derive(Clone)]
pub(crate) enum Work {
    /// Only its events count.
    Nothing,
    Copy {
        dst: u64,
        src: u64,
        len: u64,
    },
    CopyBox {
        dst: Side,
        src: Side,
    },
    Fill {
        dst: u64,
        pattern: Vec<u8>,
        len: u64,
    },
    Launch(Arc<Launch>),
    /// The number of groups is in memory.
    LaunchIndirect(Arc<Launch>, u64),
    /// Writes the time.
    Time {
        dst: u64,
    },
    /// Writes the times of events.
    Times {
        dst: u64,
        of: Vec<(Arc<Event>, u64)>,
    },
    Reset(Arc<Event>),
    Host {
        function: HostFunction,
        data: usize,
    },
    Signal(Arc<Fence>),
}

impl Work {
    /// Events that it names beside those it waits for and signals.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        let (one, many) = match self {
            Self::Reset(event) => (Some(event), &[][..]),
            Self::Times { of, .. } => (None, &of[..]),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().map(|(event, _)| event))
    }

    /// Whether an engine is busy with it.
    pub(crate) fn is_work(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Reset(_) | Self::Host { .. } | Self::Signal(_))
    }

    /// What is to be seen with its end, not before.
    pub(crate) fn finish(&self) {
        match self {
            Self::Signal(fence) => fence.signal(),
            Self::Reset(event) => event.reset(),
            _ => {}
        }
    }

    /// Does it, after a look whether the memory is there.
    pub(crate) fn perform(&self, device: &Device) -> Result<(), Fault> {
        match *self {
            Self::Nothing | Self::Reset(_) | Self::Signal(_) => Ok(()),
            Self::Copy { dst, src, len } => copy(&memory::read(), device, dst, src, len),
            Self::CopyBox { ref dst, ref src } => {
                let memory = memory::read();
                for z in 0..dst.region.depth.max(1) {
                    for y in 0..dst.region.height {
                        let len = dst.region.width.into();
                        copy(&memory, device, dst.row_at(y, z), src.row_at(y, z), len)?;
                    }
                }
                Ok(())
            }
            Self::Fill { dst, ref pattern, len } => {
                let memory = memory::read();
                if !memory.usable(dst, len, device, true, true) {
                    return Err(Fault::Address);
                }
                // SAFETY: memory that the registry knows, or a host's that the caller vouches for; callers order its use.
                let to = unsafe { std::slice::from_raw_parts_mut(dst as usize as *mut u8, len as usize) };
                // Doubles what is there, so that the machine's own copy does the work.
                let mut done = pattern.len().min(to.len());
                to[..done].copy_from_slice(&pattern[..done]);
                while done < to.len() {
                    let more = done.min(to.len() - done);
                    to.copy_within(..more, done);
                    done += more;
                }
                Ok(())
            }
            Self::Launch(ref launch) => kernel::run(launch, device),
            Self::LaunchIndirect(ref launch, at) => {
                let mut bytes = [0_u8; 12];
                copy(&memory::read(), device, bytes.as_mut_ptr() as u64, at, 12)?;
                let mut groups = [0; 3];
                for (group, bytes) in groups.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *group = u32::from_le_bytes(*bytes);
                }
                kernel::run(&Launch { groups, ..Launch::clone(launch) }, device)
            }
            Self::Time { dst } => {
                let ticks = clock::ticks(clock::now(), config().timer.bits).to_le_bytes();
                copy(&memory::read(), device, dst, ticks.as_ptr() as u64, 8)
            }
            Self::Times { dst, ref of } => {
                for (event, offset) in of {
                    let times = event.times().map_err(|_| Fault::Address)?;
                    let len = size_of_val(&times) as u64;
                    copy(&memory::read(), device, dst + offset, std::ptr::from_ref(&times) as u64, len)?;
                }
                Ok(())
            }
            Self::Host { function, data } => {
                // SAFETY: whoever appended it promised that it may be called with that data on any thread.
                unsafe { function(data as *mut c_void) };
                Ok(())
            }
        }
    }
}

fn copy(memory: &Memory, device: &Device, dst: u64, src: u64, len: u64) -> Result<(), Fault> {
    if !memory.usable(dst, len, device, true, true) || !memory.usable(src, len, device, false, true) {
        return Err(Fault::Address);
    }
    // SAFETY: both ranges are memory that the registry knows, or a host's that the caller vouches for; callers keep it until
    // the copy has ended. They may be the same range, so the copy is one that allows overlap.
    unsafe { std::ptr::copy(src as usize as *const u8, dst as usize as *mut u8, len as usize) };
    device.card.moved.fetch_add(len, Ordering::Relaxed);
    Ok(())
}
