//! The memory of a device: addresses, accounts, and the bytes behind them.

use crate::config::{DeviceConfig, Reuse};
use crate::intervals::Intervals;
use crate::order::Uses;
use anyaccel_hal::{HostPtr, Mem, Segment};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What fresh memory holds: nobody may rely on zeros.
const JUNK: u8 = 0xa5;
/// Addresses from here on are made up: no host memory lies there. Each device has as many of its own.
const SYNTHETIC: u64 = 1 << 48;
/// Larger memory is left zeroed, so that its pages are touched only if they are used.
const JUNK_UP_TO: u64 = 64 << 20;

/// Host memory that stands for device memory or is pinned.
pub(crate) struct Backing {
    ptr: *mut u8,
    owned: Option<Layout>,
}

// SAFETY: a Backing only keeps memory alive and hands its address out; who may access it when is ruled by H4, H5 and H6.
unsafe impl Send for Backing {}
// SAFETY: as above.
unsafe impl Sync for Backing {}

impl Backing {
    /// Fresh memory, or `None` if this machine has none left.
    pub(crate) fn new(len: u64, align: usize) -> Option<Arc<Self>> {
        let size = usize::try_from(len).ok().filter(|&size| size > 0)?;
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the layout's size is not 0.
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            return None;
        }
        let backing = Self { ptr, owned: Some(layout) };
        if len <= JUNK_UP_TO {
            backing.soil(0, size);
        }
        Some(Arc::new(backing))
    }

    /// Memory of somebody else's.
    pub(crate) fn borrowed(ptr: HostPtr) -> Arc<Self> {
        Arc::new(Self { ptr: ptr.0, owned: None })
    }

    /// A byte's address. The offset was checked when the span that carries it was made.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        self.ptr.wrapping_add(offset as usize)
    }

    /// Makes a part's contents junk, if the memory is ours.
    fn soil(&self, offset: usize, len: usize) {
        if self.owned.is_some_and(|layout| offset.checked_add(len).is_some_and(|end| end <= layout.size())) {
            // SAFETY: in bounds, just checked; nobody uses memory that is being allocated or mapped (H3, H4).
            unsafe { self.ptr.add(offset).write_bytes(JUNK, len) };
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: allocated in `new` with this layout, freed once.
            unsafe { dealloc(self.ptr, layout) };
        }
    }
}

/// A checked part of a device's memory, kept alive.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) mem: Mem,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Its first byte.
    start: Option<(Arc<Backing>, u64)>,
}

impl Span {
    pub(crate) fn new(mem: Mem, offset: u64, len: u64, backing: Arc<Backing>) -> Self {
        Self { mem, offset, len, start: Some((backing, offset)) }
    }

    /// Its first byte; `None` on a device without contents.
    pub(crate) fn ptr(&self) -> Option<*mut u8> {
        self.start.as_ref().map(|(backing, offset)| backing.at(*offset))
    }
}

enum Owner {
    Allocated,
    Imported,
    Reserved(Intervals),
}

struct Region {
    addr: u64,
    len: u64,
    owner: Owner,
    backing: Option<Arc<Backing>>,
    /// Where in the backing it begins: not 0 for an import of what is ours.
    begin: u64,
    uses: Uses,
}

/// Why memory could not be had.
#[derive(Debug)]
pub(crate) enum Shortage {
    /// The device's memory.
    Device(String),
    /// This machine's, for the bytes behind it.
    Host,
}

/// Why a place can't be used: the rule that it breaks, and how.
pub(crate) type Broken = (&'static str, String);

/// All memory of a device.
pub(crate) struct Space {
    total: u64,
    used: u64,
    foreign: u64,
    alignment: u64,
    granularity: u64,
    reuse: Reuse,
    backed: bool,
    base: u64,
    next: u64,
    regions: BTreeMap<Mem, Region>,
    /// Addresses of allocated and reserved regions: start to end.
    addresses: BTreeMap<u64, u64>,
}

impl Space {
    pub(crate) fn new(ordinal: u32, config: &DeviceConfig) -> Self {
        let base = (u64::from(ordinal) + 1) * SYNTHETIC;
        Self {
            total: config.memory,
            used: 0,
            foreign: 0,
            alignment: config.alignment,
            granularity: config.granularity,
            reuse: config.reuse,
            backed: config.backed,
            base,
            next: base,
            regions: BTreeMap::new(),
            addresses: BTreeMap::new(),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.foreign)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// What other processes hold.
    pub(crate) fn set_foreign(&mut self, bytes: u64) {
        self.foreign = bytes;
    }

    pub(crate) fn live(&self) -> usize {
        self.regions.len()
    }

    /// Live memory, in the order of the addresses.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let segment = |(&mem, region): (&Mem, &Region)| Segment { mem, addr: region.addr, len: region.len };
        let mut all: Vec<_> = self.regions.iter().map(segment).collect();
        all.sort_by_key(|segment| segment.addr);
        all
    }

    pub(crate) fn alloc(&mut self, mem: Mem, len: u64) -> Result<Segment, Shortage> {
        self.charge(len)?;
        let backing = match self.backing(len) {
            Ok(backing) => backing,
            Err(shortage) => {
                self.used -= len;
                return Err(shortage);
            }
        };
        let addr = self.take_addresses(len, self.alignment);
        self.regions
            .insert(mem, Region { addr, len, owner: Owner::Allocated, backing, begin: 0, uses: Uses::default() });
        Ok(Segment { mem, addr, len })
    }

    /// Names memory by its address: one that this device gave out, or host memory.
    pub(crate) fn import(&mut self, mem: Mem, addr: u64, len: u64) -> Result<Segment, String> {
        let end = addr.checked_add(len).ok_or("the end of it is beyond all addresses")?;
        let owner = |region: &&Region| region.addr <= addr && end <= region.addr + region.len;
        let (backing, begin) = match self.regions.values().find(owner) {
            Some(region) => (region.backing.clone(), region.begin + (addr - region.addr)),
            None if addr >= SYNTHETIC => return Err(format!("no live memory has {len} bytes at {addr:#x}")),
            None => (self.backed.then(|| Backing::borrowed(HostPtr(addr as *mut u8))), 0),
        };
        self.regions.insert(mem, Region { addr, len, owner: Owner::Imported, backing, begin, uses: Uses::default() });
        Ok(Segment { mem, addr, len })
    }

    /// The address of live memory.
    pub(crate) fn addr(&self, mem: Mem) -> Option<u64> {
        self.regions.get(&mem).map(|region| region.addr)
    }

    pub(crate) fn reserve(&mut self, mem: Mem, len: u64) -> Result<Segment, Shortage> {
        let backing = self.backing(len)?;
        let addr = self.take_addresses(len, self.alignment.max(self.granularity));
        let owner = Owner::Reserved(Intervals::default());
        self.regions.insert(mem, Region { addr, len, owner, backing, begin: 0, uses: Uses::default() });
        Ok(Segment { mem, addr, len })
    }

    pub(crate) fn has(&self, mem: Mem) -> bool {
        self.regions.contains_key(&mem)
    }

    /// Who uses it.
    pub(crate) fn uses(&mut self, mem: Mem) -> Option<&mut Uses> {
        self.regions.get_mut(&mem).map(|region| &mut region.uses)
    }

    pub(crate) fn is_reserved(&self, mem: Mem) -> bool {
        self.regions.get(&mem).is_some_and(|region| matches!(region.owner, Owner::Reserved(_)))
    }

    /// Takes memory back. What it returns is dropped without the lock: unmapping is slow.
    pub(crate) fn free(&mut self, mem: Mem) -> Option<Arc<Backing>> {
        let region = self.regions.remove(&mem)?;
        match &region.owner {
            Owner::Allocated => self.used -= region.len,
            Owner::Reserved(mapped) => self.used -= mapped.total(),
            Owner::Imported => return region.backing,
        }
        self.addresses.remove(&region.addr);
        region.backing
    }

    /// Whether offset and length are such as can be mapped.
    fn granules(&self, region: &Region, offset: u64, len: u64) -> Result<std::ops::Range<u64>, String> {
        if len == 0 || !offset.is_multiple_of(self.granularity) || !len.is_multiple_of(self.granularity) {
            return Err(format!("offset {offset} and length {len} are not multiples of {}", self.granularity));
        }
        match offset.checked_add(len) {
            Some(end) if end <= region.len => Ok(offset..end),
            _ => Err(format!("{len} bytes at offset {offset} pass the end of the range, {} bytes", region.len)),
        }
    }

    /// Backs a part of a reservation. The outer error is the caller's, the inner one a shortage.
    pub(crate) fn map(&mut self, mem: Mem, offset: u64, len: u64) -> Result<Result<(), Shortage>, String> {
        let region = self.regions.get(&mem).ok_or("no such range")?;
        let range = self.granules(region, offset, len)?;
        let Owner::Reserved(mapped) = &region.owner else { return Err("not a reserved range".into()) };
        if mapped.meets(&range) {
            return Err(format!("part of {len} bytes at offset {offset} is backed already"));
        }
        if let Err(shortage) = self.charge(len) {
            return Ok(Err(shortage));
        }
        if let Some(Region { owner: Owner::Reserved(mapped), backing, .. }) = self.regions.get_mut(&mem) {
            mapped.insert(range);
            if let Some(backing) = backing.as_ref().filter(|_| len <= JUNK_UP_TO) {
                backing.soil(offset as usize, len as usize);
            }
        }
        Ok(Ok(()))
    }

    /// Takes the backing of a part of a reservation away.
    pub(crate) fn unmap(&mut self, mem: Mem, offset: u64, len: u64) -> Result<(), String> {
        let region = self.regions.get(&mem).ok_or("no such range")?;
        let range = self.granules(region, offset, len)?;
        let Some(Region { owner: Owner::Reserved(mapped), .. }) = self.regions.get_mut(&mem) else {
            return Err("not a reserved range".into());
        };
        if !mapped.covers(&range) {
            return Err(format!("part of {len} bytes at offset {offset} is not backed"));
        }
        mapped.remove(range);
        self.used -= len;
        Ok(())
    }

    /// A part of live memory, checked (H1 is checked by the caller of this; here H4).
    pub(crate) fn span(&self, mem: Mem, offset: u64, len: u64) -> Result<Span, Broken> {
        let region = self.regions.get(&mem).ok_or(("H1", String::from("no such memory")))?;
        let end = offset.checked_add(len).filter(|&end| end <= region.len).ok_or_else(|| {
            let note = format!("{len} bytes at offset {offset} pass the end of the memory, {} bytes", region.len);
            ("H4", note)
        })?;
        if let Owner::Reserved(mapped) = &region.owner
            && !mapped.covers(&(offset..end))
        {
            return Err(("H4", format!("{len} bytes at offset {offset} are not all backed")));
        }
        let start = region.backing.clone().map(|backing| (backing, region.begin + offset));
        Ok(Span { mem, offset, len, start })
    }

    fn charge(&mut self, len: u64) -> Result<(), Shortage> {
        let free = self.free_bytes();
        if len > free {
            let (total, used, foreign) = (self.total, self.used, self.foreign);
            let note = format!("{len} bytes asked, {free} free of {total}: {used} used here, {foreign} by others");
            return Err(Shortage::Device(note));
        }
        self.used += len;
        Ok(())
    }

    fn backing(&self, len: u64) -> Result<Option<Arc<Backing>>, Shortage> {
        if !self.backed {
            return Ok(None);
        }
        // 16 is what the allocator gives without touching all pages.
        Backing::new(len, 16).map(Some).ok_or(Shortage::Host)
    }

    fn take_addresses(&mut self, len: u64, alignment: u64) -> u64 {
        let up = |addr: u64| addr.next_multiple_of(alignment);
        let mut addr = up(self.next);
        if self.reuse == Reuse::LowestFit {
            addr = up(self.base);
            for (&start, &end) in &self.addresses {
                if addr + len <= start {
                    break;
                }
                addr = up(end);
            }
        }
        self.next = self.next.max(addr + len);
        self.addresses.insert(addr, addr + len);
        addr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(change: impl FnOnce(&mut DeviceConfig)) -> Space {
        let mut config = DeviceConfig::new(16 * MIB);
        change(&mut config);
        Space::new(0, &config)
    }

    #[test]
    fn addresses_only_go_up_or_fill_the_lowest_gap() {
        for (reuse, expected) in [(Reuse::Never, [0, 2, 4, 6]), (Reuse::LowestFit, [0, 2, 4, 2])] {
            let mut space = space(|config| config.reuse = reuse);
            let mut take = |n| space.alloc(Mem(n), MIB).unwrap().addr;
            let mut addrs = vec![take(1), take(2), take(3)];
            space.free(Mem(2));
            addrs.push(space.alloc(Mem(4), MIB).unwrap().addr);
            let base = addrs[0];
            assert_eq!(addrs.iter().map(|addr| (addr - base) / MIB).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn lowest_fit_leaves_out_gaps_that_are_too_small() {
        let mut space = space(|config| config.reuse = Reuse::LowestFit);
        let first = space.alloc(Mem(1), 2 * MIB).unwrap().addr;
        space.alloc(Mem(2), 2 * MIB).unwrap();
        space.free(Mem(1));
        assert_eq!(space.alloc(Mem(3), 3 * MIB).unwrap().addr, first + 4 * MIB);
        assert_eq!(space.alloc(Mem(4), 2 * MIB).unwrap().addr, first);
    }

    #[test]
    fn memory_ends_at_the_byte_and_others_take_their_share() {
        let mut space = space(|_| {});
        space.alloc(Mem(1), 10 * MIB).unwrap();
        assert!(matches!(space.alloc(Mem(2), 6 * MIB + 1), Err(Shortage::Device(_))));
        space.set_foreign(MIB);
        assert!(matches!(space.alloc(Mem(2), 6 * MIB), Err(Shortage::Device(_))));
        space.set_foreign(0);
        space.alloc(Mem(2), 6 * MIB).unwrap();
        assert_eq!(space.free_bytes(), 0);
        space.free(Mem(1));
        assert_eq!(space.free_bytes(), 10 * MIB);
    }

    #[test]
    fn spans_lie_inside_of_their_memory() {
        let mut space = space(|_| {});
        space.alloc(Mem(1), 1000).unwrap();
        let byte = space.span(Mem(1), 999, 1).unwrap();
        assert!(byte.ptr().is_some());
        assert!(space.span(Mem(1), 1000, 0).is_ok());
        for (offset, len) in [(999, 2), (1001, 0), (u64::MAX, 2)] {
            assert_eq!(space.span(Mem(1), offset, len).err().map(|broken| broken.0), Some("H4"));
        }
        assert_eq!(space.span(Mem(2), 0, 1).err().map(|broken| broken.0), Some("H1"));
    }

    #[test]
    fn reservations_are_backed_piece_by_piece() {
        let mut space = space(|_| {});
        space.reserve(Mem(1), 18 * MIB).unwrap();
        assert_eq!(space.used(), 0);
        assert!(space.span(Mem(1), 0, 1).is_err());
        space.map(Mem(1), 2 * MIB, 4 * MIB).unwrap().unwrap();
        assert!(space.map(Mem(1), 4 * MIB, 4 * MIB).unwrap_err().contains("backed already"));
        assert!(space.map(Mem(1), 1, 2 * MIB).unwrap_err().contains("multiples"));
        assert!(space.map(Mem(1), 18 * MIB, 2 * MIB).unwrap_err().contains("pass the end"));
        assert!(space.map(Mem(1), 6 * MIB, 12 * MIB).unwrap().is_ok());
        assert_eq!(space.used(), 16 * MIB);
        assert!(matches!(space.map(Mem(1), 0, 2 * MIB).unwrap(), Err(Shortage::Device(_))));
        assert!(space.span(Mem(1), 3 * MIB, 15 * MIB).is_ok());
        space.unmap(Mem(1), 4 * MIB, 4 * MIB).unwrap();
        assert!(space.unmap(Mem(1), 2 * MIB, 4 * MIB).unwrap_err().contains("not backed"));
        assert!(space.span(Mem(1), 3 * MIB, MIB).is_ok());
        assert!(space.span(Mem(1), 3 * MIB, MIB + 1).is_err());
        space.free(Mem(1));
        assert_eq!((space.used(), space.live()), (0, 0));
    }

    #[test]
    fn fresh_memory_holds_junk_and_address_only_memory_nothing() {
        let mut backed = space(|_| {});
        backed.alloc(Mem(1), 8).unwrap();
        let ptr = backed.span(Mem(1), 0, 8).unwrap().ptr().unwrap();
        // SAFETY: H3: backed memory, nobody else uses it.
        assert_eq!(unsafe { *ptr.add(7) }, JUNK);
        let mut bare = space(|config| config.backed = false);
        bare.alloc(Mem(1), 8).unwrap();
        assert!(bare.span(Mem(1), 0, 8).unwrap().ptr().is_none());
    }
}
