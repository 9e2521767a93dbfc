//! Reserved address ranges, backed piece by piece (H29).
//!
//! Which granules of a range are backed is a bitmap under the range's lock; pages change under it too, so mapping and
//! unmapping of one range from several threads happen one after the other.

use crate::device::HostDevice;
use crate::memory::{Access, Charge, Holder, LARGE_PAGE, Mapping, Memory, refused};
use crate::sync::Mutex;
use anyaccel_hal::{Fault, Mem, Range, Segment, VirtualMemory, VirtualMemoryLimits};

/// A reserved range.
#[derive(Debug)]
pub(crate) struct Reservation {
    mapping: Mapping,
    mem: Mem,
    backing: Mutex<Backing>,
}

#[derive(Debug)]
struct Backing {
    granules: Vec<bool>,
    charge: Charge,
}

impl Reservation {
    /// The granules of a part that lies inside.
    fn granules(&self, offset: u64, len: u64, api: &'static str) -> Result<std::ops::Range<usize>, Fault> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.mapping.len());
        if len == 0 || !inside || !offset.is_multiple_of(LARGE_PAGE) || !len.is_multiple_of(LARGE_PAGE) {
            let note = format!("{len} bytes at {offset} of a range of {} bytes", self.mapping.len());
            return Err(Fault::invalid(api, note));
        }
        Ok((offset / LARGE_PAGE) as usize..((offset + len) / LARGE_PAGE) as usize)
    }

    /// Changes the backing of a part that has to be as it was `before`.
    fn change(&self, offset: u64, len: u64, change: Change<'_>) -> Result<(), Fault> {
        let (api, before) = match change {
            Change::Back(_) => ("map", false),
            Change::Unback => ("unmap", true),
        };
        let granules = self.granules(offset, len, api)?;
        let mut backing = self.backing.lock();
        if let Some(other) = granules.clone().find(|&at| backing.granules[at] != before) {
            let is = if before { "not backed" } else { "backed already" };
            return Err(Fault::invalid(api, format!("the bytes at {} are {is}", other as u64 * LARGE_PAGE)));
        }
        match change {
            Change::Back(charge) => {
                let charge = charge()?;
                // SAFETY: whole granules inside the mapping, checked above.
                unsafe { self.mapping.back(offset, len) }.map_err(|error| refused(api, &error))?;
                backing.charge.merge(charge);
            }
            Change::Unback => {
                // SAFETY: as above, and unused by H4.
                unsafe { self.mapping.unback(offset, len) }.map_err(|error| refused(api, &error))?;
                backing.charge.give_back(len);
            }
        }
        backing.granules[granules].fill(!before);
        Ok(())
    }
}

enum Change<'a> {
    Back(&'a dyn Fn() -> Result<Charge, Fault>),
    Unback,
}

impl HostDevice {
    /// # Safety
    /// H1.
    unsafe fn reservation(&self, range: Range, api: &'static str) -> Result<&Reservation, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let found = unsafe { self.machine().ranges().get(range.0) };
        found.ok_or_else(|| Fault::invalid(api, "an unknown range"))
    }
}

impl VirtualMemory for HostDevice {
    fn limits(&self) -> VirtualMemoryLimits {
        VirtualMemoryLimits { granularity: LARGE_PAGE }
    }

    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        if len == 0 || !len.is_multiple_of(LARGE_PAGE) {
            return Err(Fault::invalid("reserve", format!("{len} bytes")));
        }
        let mapping = Mapping::new(len, Access::None).map_err(|error| refused("reserve", &error))?;
        let base = mapping.base();
        let mem = Mem(self.machine().memory().insert(Memory { base, len, holder: Holder::Range }));
        let granules = vec![false; (len / LARGE_PAGE) as usize];
        let backing = Mutex::new(Backing { granules, charge: Charge::none(self.budget()) });
        let range = Range(self.machine().ranges().insert(Reservation { mapping, mem, backing }));
        Ok((range, Segment { mem, addr: base as u64, len }))
    }

    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let reservation = unsafe { self.reservation(range, "map")? };
        reservation.change(offset, len, Change::Back(&|| self.budget().charge(len, "map")))
    }

    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.reservation(range, "unmap")? }.change(offset, len, Change::Unback)
    }

    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        let Some(reservation) = self.machine().ranges().remove(range.0) else {
            return Err(Fault::invalid("release", "an unknown range"));
        };
        drop(self.machine().memory().remove(reservation.mem.0));
        Ok(())
    }
}
