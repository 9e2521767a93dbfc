//! Address ranges that are backed piece by piece (H29).
//!
//! A mapping is taken away as it was made, while callers unmap any part. So every granule is a mapping of its own, with physical
//! memory of its own, which lives until it is unmapped. What a call has done is undone if it can't do the rest (H19).

use crate::context::Context;
use crate::conv::Failed;
use crate::device::{XpuDevice, unknown};
use crate::memory::{Holder, Memory, pointer};
use crate::sys::*;
use anyaccel_hal::{Fault, Mem, Range, Segment, VirtualMemory, VirtualMemoryLimits};
use anyaccel_kit::Mutex;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// The least granule: smaller pages would only cost more calls.
const LEAST: usize = 2 << 20;

/// How far a granule is. Who makes one busy is alone with it until it is something else, so that calls which may wait for
/// the device run without the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Granule {
    Empty,
    Busy,
    Backed(ZePhysicalMem),
}

impl fmt::Debug for Granule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::Busy => "busy",
            Self::Backed(_) => "backed",
        })
    }
}

/// A range of addresses.
#[derive(Debug)]
pub(crate) struct Reservation {
    context: Arc<Context>,
    addr: u64,
    len: u64,
    step: u64,
    granules: Mutex<Vec<Granule>>,
}

impl Reservation {
    fn at(&self, granule: usize) -> *mut c_void {
        pointer(self.addr + granule as u64 * self.step)
    }

    /// The granules of a part, if it is one of whole granules.
    fn part(&self, api: &'static str, offset: u64, len: u64) -> Result<std::ops::Range<usize>, Fault> {
        let step = self.step;
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if len == 0 || !offset.is_multiple_of(step) || !len.is_multiple_of(step) || !inside {
            let note = format!("{len} bytes at {offset} of {}, in steps of {step}", self.len);
            return Err(Fault::invalid(api, note));
        }
        Ok((offset / step) as usize..((offset + len) / step) as usize)
    }

    /// Makes granules busy, all or none of them, and says what they were.
    fn claim(
        &self,
        api: &'static str,
        part: std::ops::Range<usize>,
        fits: impl Fn(Granule) -> bool,
    ) -> Result<Vec<Granule>, Fault> {
        let mut granules = self.granules.lock();
        if let Some(other) = granules[part.clone()].iter().find(|&&granule| !fits(granule)) {
            return Err(Fault::invalid(api, format!("part of granules {part:?} is {other:?}")));
        }
        let before = granules[part.clone()].to_vec();
        granules[part].fill(Granule::Busy);
        Ok(before)
    }

    fn settle(&self, from: usize, now: &[Granule]) {
        self.granules.lock()[from..from + now.len()].copy_from_slice(now);
    }

    /// Backs one granule that this thread made busy.
    fn back(&self, granule: usize) -> Result<ZePhysicalMem, Failed> {
        let (platform, device) = (&self.context.platform, self.context.device);
        let (ze, context, step) = (platform.ze, platform.context, self.step as usize);
        let mut desc = ZePhysicalMemDesc::new();
        desc.size = step;
        let mut memory = ZePhysicalMem::NULL;
        // SAFETY: valid places for the question and the answer.
        unsafe { ze.zePhysicalMemCreate(context, device, &raw mut desc, &raw mut memory) }?;
        // SAFETY: the granule is reserved and not backed.
        let mapped = unsafe {
            ze.zeVirtualMemMap(context, self.at(granule), step, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE)
        };
        if let Err(failed) = mapped {
            // SAFETY: made just now, mapped nowhere.
            let _destroyed = unsafe { ze.zePhysicalMemDestroy(context, memory) };
            return Err(failed);
        }
        Ok(memory)
    }

    /// Takes the backing of a granule away.
    fn unback(&self, granule: usize, memory: ZePhysicalMem) -> Result<(), Failed> {
        let platform = &self.context.platform;
        // SAFETY: a mapping of its own, which no work uses any more (H4), and whose memory nothing else maps.
        unsafe {
            platform.ze.zeVirtualMemUnmap(platform.context, self.at(granule), self.step as usize)?;
            platform.ze.zePhysicalMemDestroy(platform.context, memory)
        }
    }

    /// Gives everything back.
    fn release(&self) -> Result<(), Failed> {
        let granules = std::mem::take(&mut *self.granules.lock());
        if granules.is_empty() {
            return Ok(());
        }
        for (at, granule) in granules.into_iter().enumerate() {
            if let Granule::Backed(memory) = granule {
                self.unback(at, memory)?;
            }
        }
        let platform = &self.context.platform;
        // SAFETY: reserved with that length, and nothing is mapped there any more.
        unsafe { platform.ze.zeVirtualMemFree(platform.context, pointer(self.addr), self.len as usize) }
    }
}

impl Drop for Reservation {
    /// What nobody gave back goes with its driver, unless work may still use it.
    fn drop(&mut self) {
        if !self.context.platform.is_busy() && !self.context.is_lost() {
            // It fails only where there is nobody left to tell.
            let _released = self.release();
        }
    }
}

/// What mappings are multiples of; 0 where the device has none. Asked when it is opened.
pub(crate) fn granularity(ze: &Ze, context: ZeContext, device: ZeDevice) -> u64 {
    let mut page = 0;
    // SAFETY: a valid place for the answer.
    let asked = unsafe { ze.zeVirtualMemQueryPageSize(context, device, LEAST, &raw mut page) };
    if asked.is_err() || page == 0 {
        return 0;
    }
    let step = LEAST.next_multiple_of(page);
    let mut at: *mut c_void = ptr::null_mut();
    // Drivers that only answer the question are found out by a reservation.
    // SAFETY: a valid place for the answer; given back at once.
    unsafe {
        if ze.zeVirtualMemReserve(context, ptr::null(), step, &raw mut at).is_err() {
            return 0;
        }
        let _freed = ze.zeVirtualMemFree(context, at, step);
    }
    step as u64
}

impl VirtualMemory for XpuDevice {
    fn limits(&self) -> VirtualMemoryLimits {
        VirtualMemoryLimits { granularity: self.limits.granularity }
    }

    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        let step = self.limits.granularity;
        if len == 0 || !len.is_multiple_of(step) {
            return Err(Fault::invalid("zeVirtualMemReserve", format!("{len} bytes, in steps of {step}")));
        }
        self.context.alive()?;
        let platform = &self.context.platform;
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: a valid place for the answer.
        let reserved =
            unsafe { platform.ze.zeVirtualMemReserve(platform.context, ptr::null(), len as usize, &raw mut at) };
        self.context.check(reserved)?;
        let addr = at.expose_provenance() as u64;
        let granules = Mutex::new(vec![Granule::Empty; (len / step) as usize]);
        let range = Arc::new(Reservation { context: Arc::clone(&self.context), addr, len, step, granules });
        let memory = Memory { addr, len, holder: Holder::Reserved, context: Arc::clone(&self.context) };
        let mem = Mem(self.machine.memory.insert(memory));
        let range = Range(self.machine.ranges.insert((range, mem)));
        Ok((range, Segment { mem, addr, len }))
    }

    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        const API: &str = "zeVirtualMemMap";
        // SAFETY: H1, as this function's caller promises.
        let (range, _) = unsafe { self.machine.ranges.get(range.0) }.ok_or_else(|| unknown(API, "range"))?;
        let part = range.part(API, offset, len)?;
        self.context.alive()?;
        let before = range.claim(API, part.clone(), |granule| granule == Granule::Empty)?;
        let mut backed = Vec::with_capacity(before.len());
        for at in part.clone() {
            match range.back(at) {
                Ok(memory) => backed.push(Granule::Backed(memory)),
                Err(failed) => {
                    for (at, granule) in part.clone().zip(backed) {
                        if let Granule::Backed(memory) = granule {
                            // What a lost device does not take back it has lost as well.
                            let _undone = range.unback(at, memory);
                        }
                    }
                    range.settle(part.start, &before);
                    return Err(self.context.fault(failed));
                }
            }
        }
        range.settle(part.start, &backed);
        Ok(())
    }

    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        const API: &str = "zeVirtualMemUnmap";
        // SAFETY: H1, as this function's caller promises.
        let (range, _) = unsafe { self.machine.ranges.get(range.0) }.ok_or_else(|| unknown(API, "range"))?;
        let part = range.part(API, offset, len)?;
        let mut granules = range.claim(API, part.clone(), |granule| matches!(granule, Granule::Backed(_)))?;
        let mut first = Ok(());
        for (at, granule) in part.clone().zip(&mut granules) {
            if let Granule::Backed(memory) = *granule
                && !self.context.is_lost()
                && let Err(failed) = range.unback(at, memory)
            {
                let fault = self.context.fault(failed);
                // A device that is lost has let go of it anyway (H20).
                if !self.context.is_lost() {
                    first = Err(fault);
                    break;
                }
            }
            *granule = Granule::Empty;
        }
        range.settle(part.start, &granules);
        first
    }

    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        let Some((range, mem)) = self.machine.ranges.remove(range.0) else {
            return Err(unknown("zeVirtualMemFree", "range"));
        };
        drop(self.machine.memory.remove(mem.0));
        if self.context.is_lost() {
            return Ok(());
        }
        self.context.check(range.release())
    }
}
