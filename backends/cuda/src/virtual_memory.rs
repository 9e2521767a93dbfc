//! Address ranges that are backed piece by piece (H29).
//!
//! The driver takes a mapping away only as it was made, while callers unmap any part. So every granule is a mapping of its
//! own. What a call has done is undone if it can't do the rest (H19).

use crate::conv::Failed;
use crate::device::{CudaDevice, unknown};
use crate::memory::{Holder, Memory};
use crate::returns;
use crate::sys::*;
use anyaccel_hal::{Fault, Mem, Range, Segment, VirtualMemory, VirtualMemoryLimits};
use anyaccel_kit::Mutex;
use std::sync::Arc;

/// A range of addresses.
#[derive(Debug)]
pub(crate) struct Reservation {
    addr: CUdeviceptr,
    len: u64,
    /// Bytes of a granule.
    step: u64,
    backing: Mutex<Backing>,
}

/// How far a granule is. Who makes one busy is alone with it until it is something else, so that calls which may wait for
/// the device run without the lock: unmapping is one of those, and is done by [`returns`](crate::returns).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Granule {
    Empty,
    Busy,
    Backed,
}

#[derive(Debug)]
struct Backing {
    granules: Vec<Granule>,
    /// Which devices may use them: its own, and peers from their first copy on.
    allowed: Vec<CUdevice>,
}

impl Reservation {
    /// Makes granules of a state busy, all or none of them.
    fn claim(&self, api: &'static str, granules: std::ops::Range<usize>, from: Granule) -> Result<(), Fault> {
        let mut backing = self.backing.lock();
        if let Some(other) = backing.granules[granules.clone()].iter().find(|&&granule| granule != from) {
            return Err(Fault::invalid(api, format!("part of granules {granules:?} is {other:?}")));
        }
        backing.granules[granules].fill(Granule::Busy);
        Ok(())
    }

    /// Takes away what is mapped, and then the addresses. Nobody uses them any more.
    pub(crate) fn dismantle(&self, cuda: &Cuda) -> Result<(), Failed> {
        let granules = std::mem::take(&mut self.backing.lock().granules);
        for (at, _) in granules.into_iter().enumerate().filter(|&(_, granule)| granule == Granule::Backed) {
            unback(cuda, self.addr, self.step, at..at + 1)?;
        }
        // SAFETY: reserved with that length, and nothing is mapped there any more.
        unsafe { cuda.cuMemAddressFree(self.addr, self.len as usize) }
    }

    /// Lets another device use what is mapped, and what will be. That device's context is current.
    pub(crate) fn admit(&self, peer: &CudaDevice) -> Result<(), Fault> {
        let device = peer.context.device;
        let mut backing = self.backing.lock();
        if backing.allowed.contains(&device) {
            return Ok(());
        }
        let access = allow(device);
        let step = peer.limits.granularity;
        for (at, _) in backing.granules.iter().enumerate().filter(|&(_, &granule)| granule == Granule::Backed) {
            let at = self.addr + at as u64 * step;
            // SAFETY: the granule is mapped.
            peer.context.check(unsafe { peer.context.cuda.cuMemSetAccess(at, step as usize, &raw const access, 1) })?;
        }
        backing.allowed.push(device);
        Ok(())
    }
}

const fn allow(device: CUdevice) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

const fn prop(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: 0,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        win32HandleMetaData: 0,
        allocFlags: [0; 8],
    }
}

/// Takes the backing of whole granules away.
fn unback(cuda: &Cuda, addr: CUdeviceptr, step: u64, granules: std::ops::Range<usize>) -> Result<(), Failed> {
    for at in granules {
        // SAFETY: a mapping of its own, which no work uses any more (H4).
        unsafe { cuda.cuMemUnmap(addr + at as u64 * step, step as usize) }?;
    }
    Ok(())
}

impl CudaDevice {
    /// The granularity of mappings, if the device has them at all. Asked when it is opened.
    pub(crate) fn granularity(cuda: &Cuda, device: CUdevice) -> Option<u64> {
        let prop = prop(device);
        let mut granularity = 0;
        // SAFETY: valid places for the question and the answer.
        unsafe {
            cuda.cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
        }
        .ok()?;
        Some(granularity as u64).filter(|granularity| granularity.is_power_of_two())
    }

    /// Backs one granule.
    fn back(&self, at: CUdeviceptr, len: u64) -> Result<(), Failed> {
        let (cuda, prop) = (self.context.cuda, prop(self.context.device));
        let mut handle = 0;
        // SAFETY: valid places for the question and the answer.
        unsafe { cuda.cuMemCreate(&raw mut handle, len as usize, &raw const prop, 0) }?;
        // SAFETY: the granule is reserved and not backed; the mapping keeps the memory, so its handle can go.
        unsafe {
            let mapped = cuda.cuMemMap(at, len as usize, 0, handle, 0);
            let _released = cuda.cuMemRelease(handle);
            mapped
        }
    }

    /// Backs granules that this thread made busy, and lets devices use them. The context is current.
    fn map_granules(&self, range: &Reservation, granules: std::ops::Range<usize>) -> Result<(), Failed> {
        let step = self.limits.granularity;
        for at in granules.clone() {
            if let Err(failed) = self.back(range.addr + at as u64 * step, step) {
                // What a lost device does not take back it has lost as well.
                let _undone = unback(self.context.cuda, range.addr, step, granules.start..at);
                return Err(failed);
            }
        }
        // Under the lock, so that a peer that is admitted now finds them backed or in this list; it waits for nothing.
        let mut backing = range.backing.lock();
        let access: Vec<_> = backing.allowed.iter().map(|&device| allow(device)).collect();
        let (start, len) = (range.addr + granules.start as u64 * step, granules.len() * step as usize);
        // SAFETY: all of the part is mapped now.
        match unsafe { self.context.cuda.cuMemSetAccess(start, len, access.as_ptr(), access.len()) } {
            Ok(()) => {
                backing.granules[granules].fill(Granule::Backed);
                Ok(())
            }
            Err(failed) => {
                drop(backing);
                let _undone = unback(self.context.cuda, range.addr, step, granules);
                Err(failed)
            }
        }
    }

    /// The granules of a part, if it is one of whole granules.
    fn granules(
        &self,
        api: &'static str,
        range: &Reservation,
        offset: u64,
        len: u64,
    ) -> Result<std::ops::Range<usize>, Fault> {
        let step = self.limits.granularity;
        let inside = offset.checked_add(len).is_some_and(|end| end <= range.len);
        if len == 0 || !offset.is_multiple_of(step) || !len.is_multiple_of(step) || !inside {
            let note = format!("{len} bytes at {offset} of {}, in steps of {step}", range.len);
            return Err(Fault::invalid(api, note));
        }
        Ok((offset / step) as usize..((offset + len) / step) as usize)
    }
}

impl VirtualMemory for CudaDevice {
    fn limits(&self) -> VirtualMemoryLimits {
        VirtualMemoryLimits { granularity: self.limits.granularity }
    }

    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        let step = self.limits.granularity;
        if len == 0 || !len.is_multiple_of(step) {
            return Err(Fault::invalid("cuMemAddressReserve", format!("{len} bytes, in steps of {step}")));
        }
        let _current = self.context.enter()?;
        let mut addr = 0;
        // SAFETY: a valid place for the answer.
        let reserved = unsafe { self.context.cuda.cuMemAddressReserve(&raw mut addr, len as usize, 0, 0, 0) };
        self.context.check(reserved)?;
        let context = Arc::clone(&self.context);
        let granules = vec![Granule::Empty; (len / step) as usize];
        let backing = Mutex::new(Backing { granules, allowed: vec![self.context.device] });
        let range = Arc::new(Reservation { addr, len, step, backing });
        let memory = Memory { addr, host: 0, len, holder: Holder::Reserved, range: Some(Arc::clone(&range)), context };
        let mem = Mem(self.machine.memory.insert(memory));
        let range = Range(self.machine.ranges.insert((range, mem)));
        Ok((range, Segment { mem, addr, len }))
    }

    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (range, _) = unsafe { self.machine.ranges.get(range.0) }.ok_or_else(|| unknown("cuMemMap", "range"))?;
        let granules = self.granules("cuMemMap", range, offset, len)?;
        let _current = self.context.enter()?;
        let _relaxed = self.context.relaxed();
        range.claim("cuMemMap", granules.clone(), Granule::Empty).or_else(|fault| {
            // They may still be on their way from an earlier mapping.
            if !returns::relieved(self.context.raw) {
                return Err(fault);
            }
            range.claim("cuMemMap", granules.clone(), Granule::Empty)
        })?;
        self.context.relieve(|| self.map_granules(range, granules.clone())).inspect_err(|_| {
            range.backing.lock().granules[granules.clone()].fill(Granule::Empty);
        })
    }

    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (range, _) = unsafe { self.machine.ranges.get(range.0) }.ok_or_else(|| unknown("cuMemUnmap", "range"))?;
        let granules = self.granules("cuMemUnmap", range, offset, len)?;
        range.claim("cuMemUnmap", granules.clone(), Granule::Backed)?;
        if self.context.is_lost() {
            // It has let go of it (H20).
            range.backing.lock().granules[granules].fill(Granule::Empty);
            return Ok(());
        }
        let (range, step) = (Arc::clone(range), self.limits.granularity);
        let unbacked = self.context.returns.ask(move |cuda| {
            let unbacked = unback(cuda, range.addr, step, granules.clone());
            let now = if unbacked.is_ok() { Granule::Empty } else { Granule::Backed };
            range.backing.lock().granules[granules].fill(now);
            unbacked
        });
        match self.context.check(unbacked) {
            Err(fault) if !self.context.is_lost() => Err(fault),
            _ => Ok(()),
        }
    }

    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        let Some((range, mem)) = self.machine.ranges.remove(range.0) else {
            return Err(unknown("cuMemAddressFree", "range"));
        };
        if let Some(mut memory) = self.machine.memory.remove(mem.0) {
            memory.holder = Holder::Imported;
        }
        if self.context.is_lost() {
            return Ok(());
        }
        let released = self.context.returns.ask(move |cuda| range.dismantle(cuda));
        self.context.check(released)
    }
}
