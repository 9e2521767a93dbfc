//! Memory: ranges of this process that stand for a device's, a host's or both's, and who may touch them.
//!
//! Commands touch memory under a read lock of the registry, and what goes away goes under its write lock. So a range that a
//! command has found stays until the command is done with it, even where a caller breaks the rules; the next command finds
//! that it is gone, and loses the device.

use crate::abi::*;
use crate::call::Result;
use crate::config::{Card, config};
use crate::device::Device;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What memory is counted in.
pub(crate) const PAGE: u64 = 4096;

/// Whose a range is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A device's.
    Device(&'static Device),
    /// The host's, pinned.
    Host,
    /// Either's, in turn; with the device it was allocated for, if any.
    Shared(Option<&'static Device>),
    /// Addresses with memory of a device behind them, and what may be done with it.
    Mapped(&'static Device, u32),
}

impl Kind {
    pub(crate) fn device(self) -> Option<&'static Device> {
        match self {
            Self::Device(device) | Self::Mapped(device, _) => Some(device),
            Self::Shared(device) => device,
            Self::Host => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) len: u64,
    pub(crate) kind: Kind,
    pub(crate) context: Handle,
    pub(crate) id: u64,
    /// The tile that it is counted on.
    tile: usize,
}

static BLOCKS: RwLock<BTreeMap<u64, Block>> = RwLock::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);
static HOST_USED: AtomicU64 = AtomicU64::new(0);

/// All of memory, while nothing of it goes away.
pub(crate) struct Memory(RwLockReadGuard<'static, BTreeMap<u64, Block>>);

/// A look at memory.
pub(crate) fn read() -> Memory {
    Memory(BLOCKS.read().unwrap_or_else(PoisonError::into_inner))
}

fn write() -> RwLockWriteGuard<'static, BTreeMap<u64, Block>> {
    BLOCKS.write().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// The block around an address, and its start.
    pub(crate) fn find(&self, at: u64) -> Option<(u64, Block)> {
        let (&start, &block) = self.0.range(..=at).next_back()?;
        (at < start + block.len).then_some((start, block))
    }

    /// Whether all of a range is known, and fit for a use; neighbours that touch count as one, as mapped pieces do.
    pub(crate) fn covers(&self, at: u64, len: u64, fits: impl Fn(&Block) -> bool) -> bool {
        let end = at.saturating_add(len);
        let mut at = at;
        while at < end {
            match self.find(at) {
                Some((start, block)) if fits(&block) => at = start + block.len,
                _ => return false,
            }
        }
        true
    }

    /// Whether a device may touch all of a range: memory of the driver's that it reaches, or of a host's that the driver
    /// does not know, where a command takes that.
    pub(crate) fn usable(&self, at: u64, len: u64, by: &Device, writes: bool, any_host: bool) -> bool {
        if any_host && self.find(at).is_none() {
            return true;
        }
        self.covers(at, len, |block| match block.kind {
            Kind::Host => true,
            Kind::Shared(device) => device.is_none_or(|device| by.reaches(device)),
            Kind::Device(device) => by.reaches(device),
            Kind::Mapped(device, access) => {
                let allowed = match access {
                    ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => true,
                    ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => !writes,
                    _ => false,
                };
                allowed && by.reaches(device)
            }
        })
    }
}

/// Counts bytes of a tile as taken.
pub(crate) fn take(card: &Card, tile: usize, len: u64) -> Result {
    let fits = |used: u64| used.checked_add(len).filter(|&used| used <= card.memory);
    let taken = card.used[tile].fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
    taken.map(drop).map_err(|_| ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
}

pub(crate) fn give(card: &Card, tile: usize, len: u64) {
    card.used[tile].fetch_sub(len, Ordering::SeqCst);
}

/// Takes bytes of a device, on the first tile that has them; says which.
pub(crate) fn take_of(device: &Device, len: u64) -> Result<usize> {
    let mut tiles = device.tiles.iter().map(|&tile| tile as usize);
    let found = tiles.find(|&tile| take(device.card, tile, len).is_ok());
    found.ok_or(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
}

fn take_host(len: u64) -> Result {
    let fits = |used: u64| used.checked_add(len).filter(|&used| used <= config().host_memory);
    let taken = HOST_USED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
    taken.map(drop).map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
}

/// Fresh pages of this process.
pub(crate) fn pages(len: u64, align: u64, protection: i32) -> Result<u64> {
    let spare = if align > PAGE { align } else { 0 };
    let all = len.checked_add(spare).ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
    // SAFETY: a private anonymous mapping where the system likes.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), all as usize, protection, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    let start = at as u64;
    if spare == 0 {
        return Ok(start);
    }
    let aligned = start.next_multiple_of(align);
    unmap(start, aligned - start);
    unmap(aligned + len, spare - (aligned - start));
    Ok(aligned)
}

/// Gives pages back.
pub(crate) fn unmap(at: u64, len: u64) {
    if len > 0 {
        // SAFETY: made by `pages`, and nobody uses them, as the interface asks of callers.
        unsafe { libc::munmap(at as usize as *mut libc::c_void, len as usize) };
    }
}

/// Allocates.
pub(crate) fn alloc(context: Handle, kind: Kind, len: usize, align: usize) -> Result<u64> {
    let most = kind.device().map_or(u64::MAX >> 1, |device| device.card.memory);
    if len == 0 || len as u64 > most {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    }
    if align != 0 && !align.is_power_of_two() {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    }
    let len = (len as u64).next_multiple_of(PAGE);
    let tile = match kind.device() {
        Some(device) => take_of(device, len)?,
        None => take_host(len).map(|()| 0)?,
    };
    let block = Block { len, kind, context, id: NEXT.fetch_add(1, Ordering::Relaxed), tile };
    match pages(len, align as u64, libc::PROT_READ | libc::PROT_WRITE) {
        Ok(at) => {
            write().insert(at, block);
            Ok(at)
        }
        Err(code) => {
            give_back(&block);
            Err(code)
        }
    }
}

fn give_back(block: &Block) {
    match block.kind.device() {
        Some(device) => give(device.card, block.tile, block.len),
        None => {
            HOST_USED.fetch_sub(block.len, Ordering::SeqCst);
        }
    }
}

/// What ranges of a host's own memory belong to: any context.
pub(crate) const ANY: Handle = 0;

/// Knows a range of a host's own memory.
pub(crate) fn import(at: u64, len: u64) -> Result {
    let mut blocks = write();
    let before = blocks.range(..at.saturating_add(len)).next_back();
    if at == 0 || len == 0 || before.is_some_and(|(&start, block)| start + block.len > at) {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    blocks.insert(at, Block { len, kind: Kind::Host, context: ANY, id, tile: 0 });
    Ok(())
}

/// Forgets a range of a host's own memory.
pub(crate) fn release(at: u64) -> Result {
    let mut blocks = write();
    if blocks.get(&at).is_none_or(|block| block.context != ANY) {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    blocks.remove(&at);
    Ok(())
}

/// Frees what `alloc` made.
pub(crate) fn free(context: Handle, at: u64) -> Result {
    let mut blocks = write();
    match blocks.get(&at) {
        Some(block) if block.context == context && !matches!(block.kind, Kind::Mapped(..)) => {
            let block = *block;
            blocks.remove(&at);
            unmap(at, block.len);
            give_back(&block);
            Ok(())
        }
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// Knows a mapped range.
pub(crate) fn insert_mapped(context: Handle, at: u64, len: u64, device: &'static Device, access: u32) {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    write().insert(at, Block { len, kind: Kind::Mapped(device, access), context, id, tile: 0 });
}

/// Changes what may be done with mapped ranges that lie in a range; fails where others do.
pub(crate) fn set_access(at: u64, len: u64, access: u32) -> Result {
    let mut blocks = write();
    for (&start, block) in blocks.range_mut(at..at.saturating_add(len)) {
        match &mut block.kind {
            Kind::Mapped(_, old) if start + block.len <= at + len => *old = access,
            _ => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }
    Ok(())
}

/// Forgets a mapped range, which `gone` takes away.
pub(crate) fn remove_mapped(at: u64, len: u64, gone: impl FnOnce() -> Result) -> Result {
    let mut blocks = write();
    match blocks.get(&at) {
        Some(block) if block.len == len && matches!(block.kind, Kind::Mapped(..)) => {
            blocks.remove(&at);
            gone()
        }
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// Whether a context has memory.
pub(crate) fn any_of(context: Handle) -> bool {
    read().0.values().any(|block| block.context == context)
}

/// Fails unless all of a range is memory of that context.
pub(crate) fn of_context(context: Handle, at: u64, len: usize) -> Result {
    let known = read().covers(at, len as u64, |block| block.context == context);
    if known { Ok(()) } else { Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) }
}
