//! Pinned host memory: accounts and addresses of one device, and the capability.

use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::memory::{Backing, Broken, Span};
use crate::order::Uses;
use crate::state::Debris;
use anyaccel_hal::{Fault, FaultKind, HostPtr, Mem, Pinned, PinnedLimits, Place};
use std::collections::BTreeMap;
use std::sync::Arc;

/// H27: a page.
const GRANULARITY: u64 = 4096;

struct Block {
    addr: usize,
    len: u64,
    backing: Option<Arc<Backing>>,
    uses: Uses,
}

/// The pinned memory of one device.
pub(crate) struct PinnedSpace {
    total: u64,
    used: u64,
    blocks: BTreeMap<Mem, Block>,
    by_address: BTreeMap<usize, Mem>,
}

impl PinnedSpace {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, used: 0, blocks: BTreeMap::new(), by_address: BTreeMap::new() }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn live(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn has(&self, mem: Mem) -> bool {
        self.blocks.contains_key(&mem)
    }

    /// Who uses it.
    pub(crate) fn uses(&mut self, mem: Mem) -> Option<&mut Uses> {
        self.blocks.get_mut(&mem).map(|block| &mut block.uses)
    }

    /// A part of a block (H4).
    pub(crate) fn span(&self, mem: Mem, offset: u64, len: u64) -> Result<Span, Broken> {
        let block = self.blocks.get(&mem).ok_or(("H1", String::from("no such pinned memory")))?;
        if offset.checked_add(len).is_none_or(|end| end > block.len) {
            let note = format!("{len} bytes at offset {offset} pass the end of the block, {} bytes", block.len);
            return Err(("H4", note));
        }
        let backing = block.backing.clone().unwrap_or_else(|| Backing::borrowed(HostPtr(block.addr as *mut u8)));
        Ok(Span::new(mem, offset, len, backing))
    }

    /// The place of a stretch of host memory, if one block holds the whole of it.
    pub(crate) fn holding(&self, ptr: HostPtr, len: u64) -> Option<Place> {
        let (&start, &mem) = self.by_address.range(..=ptr.0 as usize).next_back()?;
        let offset = (ptr.0 as usize - start) as u64;
        let end = offset.checked_add(len)?;
        (end <= self.blocks[&mem].len).then_some(Place { mem, offset })
    }

    /// Whether a stretch of host memory begins in a block and ends behind it, or the other way round. Registered memory
    /// does not count: what is around it is its owner's too.
    pub(crate) fn passes_an_end(&self, ptr: HostPtr, len: u64) -> bool {
        let end = (ptr.0 as usize).saturating_add(len as usize);
        let before = self.by_address.range(..end).next_back().map(|(&start, mem)| (start, &self.blocks[mem]));
        before.is_some_and(|(start, block)| {
            let block_end = start + block.len as usize;
            block.backing.is_some() && block_end > ptr.0 as usize && (start > ptr.0 as usize || block_end < end)
        })
    }

    fn alloc(&mut self, mem: Mem, len: u64) -> Result<HostPtr, String> {
        let (total, used) = (self.total, self.used);
        let full = || format!("{len} bytes asked, {} free of {total} pinned", total - used);
        let rounded = len.checked_next_multiple_of(GRANULARITY).ok_or_else(full)?;
        if rounded > total - used {
            return Err(full());
        }
        let backing = Backing::new(rounded, GRANULARITY as usize).ok_or("this machine has no memory left")?;
        let ptr = HostPtr(backing.at(0));
        self.used += rounded;
        self.insert(mem, ptr, rounded, Some(backing));
        Ok(ptr)
    }

    fn insert(&mut self, mem: Mem, ptr: HostPtr, len: u64, backing: Option<Arc<Backing>>) {
        let addr = ptr.0 as usize;
        self.blocks.insert(mem, Block { addr, len, backing, uses: Uses::default() });
        self.by_address.insert(addr, mem);
    }

    /// Whether part of the stretch is pinned already.
    fn meets(&self, ptr: HostPtr, len: u64) -> bool {
        let end = (ptr.0 as usize).saturating_add(len as usize);
        let before = self.by_address.range(..end).next_back();
        before.is_some_and(|(&start, mem)| start + self.blocks[mem].len as usize > ptr.0 as usize)
    }

    fn free(&mut self, mem: Mem) -> Option<Arc<Backing>> {
        let block = self.blocks.remove(&mem)?;
        self.by_address.remove(&block.addr);
        if block.backing.is_some() {
            self.used -= block.len;
        }
        block.backing
    }
}

impl Pinned for SimDevice {
    fn limits(&self) -> PinnedLimits {
        PinnedLimits { granularity: GRANULARITY, register: true, direct: self.config().direct }
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        let call = Call::new(Method::PinnedAlloc).amount(len);
        self.call(call, |state, ordinal| {
            if len == 0 {
                return Err(Fault::invalid(Method::PinnedAlloc.name(), "0 bytes"));
            }
            let mem = Mem(state.handles.give(ordinal));
            let ptr = state.device(ordinal).pinned.alloc(mem, len);
            let ptr = ptr.map_err(|note| Fault::new(FaultKind::OutOfMemory, Method::PinnedAlloc.name()).note(note))?;
            Ok((mem, ptr))
        })
    }

    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        let call = Call::new(Method::PinnedRegister).amount(len);
        self.call(call, |state, ordinal| {
            if ptr.0.is_null() || len == 0 {
                return Err(Fault::invalid(Method::PinnedRegister.name(), "null, or 0 bytes"));
            }
            if state.device(ordinal).pinned.meets(ptr, len) {
                return Err(Fault::invalid(Method::PinnedRegister.name(), "part of it is pinned already"));
            }
            let mem = Mem(state.handles.give(ordinal));
            state.device(ordinal).pinned.insert(mem, ptr, len, None);
            Ok(mem)
        })
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        self.call_even_lost(Call::new(Method::PinnedFree).mem(mem), |state, ordinal| {
            let pinned = &state.device(ordinal).pinned;
            if !pinned.has(mem) {
                return Err(state.unknown(Method::PinnedFree, "pinned memory", mem.0, ordinal));
            }
            state.unused("H5", Method::PinnedFree, mem, ordinal)?;
            let backing = state.device(ordinal).pinned.free(mem);
            if let Some(backing) = backing {
                state.debris.push(Debris::Backing(backing));
            }
            Ok(())
        })
    }
}
