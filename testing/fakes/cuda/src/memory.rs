//! Memory: ranges of this process that stand for a card's, pinned ranges of the host, and who may touch them.

use crate::call::{Result, lock};
use crate::config::Card;
use anyaccel_cuda::sys::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// What a card's memory is counted in.
const GRAIN: u64 = 512;

/// Whose a range is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A card's.
    Device(&'static Card),
    /// Pinned memory of the driver's.
    Pinned,
    /// Memory of others that was registered.
    Registered,
    /// Addresses that are backed piece by piece.
    Mapped,
}

#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) len: u64,
    pub(crate) kind: Kind,
}

static BLOCKS: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());
static PEERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

pub(crate) fn enable_peer(here: usize, there: usize) -> Result {
    let mut peers = lock(&PEERS);
    if peers.contains(&(here, there)) {
        return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    peers.push((here, there));
    Ok(())
}

/// Counts bytes of a card as taken.
pub(crate) fn take(card: &Card, len: u64) -> Result {
    let fits = |used: u64| used.checked_add(len).filter(|&used| used <= card.memory);
    card.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).map(drop).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

pub(crate) fn give(card: &Card, len: u64) {
    card.used.fetch_sub(len, Ordering::SeqCst);
}

/// Fresh pages of this process.
pub(crate) fn pages(len: u64, protection: i32) -> Result<u64> {
    // SAFETY: a private anonymous mapping where the system likes.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), len as usize, protection, flags, -1, 0)
    };
    if at == libc::MAP_FAILED { Err(CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(at as usize as u64) }
}

/// Gives pages back.
pub(crate) fn unmap(at: u64, len: u64) {
    // SAFETY: made by `pages`, and callers no longer use them, as the interface asks.
    unsafe { libc::munmap(at as usize as *mut libc::c_void, len as usize) };
}

pub(crate) fn insert(at: u64, block: Block) {
    lock(&BLOCKS).insert(at, block);
}

pub(crate) fn remove(at: u64, fits: impl Fn(Kind) -> bool) -> Result<Block> {
    let mut blocks = lock(&BLOCKS);
    match blocks.get(&at) {
        Some(block) if fits(block.kind) => {
            let block = *block;
            blocks.remove(&at);
            Ok(block)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The block around an address, and its start.
pub(crate) fn find(at: u64) -> Option<(u64, Block)> {
    let blocks = lock(&BLOCKS);
    let (&start, &block) = blocks.range(..=at).next_back()?;
    (at < start + block.len).then_some((start, block))
}

pub(crate) fn alloc(card: &'static Card, len: u64) -> Result<u64> {
    if len == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let counted = len.checked_next_multiple_of(GRAIN).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    take(card, counted)?;
    match pages(counted, libc::PROT_READ | libc::PROT_WRITE) {
        Ok(at) => {
            insert(at, Block { len: counted, kind: Kind::Device(card) });
            Ok(at)
        }
        Err(code) => {
            give(card, counted);
            Err(code)
        }
    }
}

pub(crate) fn free(at: u64) -> Result {
    let block = remove(at, |kind| matches!(kind, Kind::Device(_)))?;
    if let Kind::Device(card) = block.kind {
        give(card, block.len);
    }
    unmap(at, block.len);
    Ok(())
}

/// A context goes, and its memory with it.
pub(crate) fn free_all(card: &'static Card) {
    let blocks = lock(&BLOCKS);
    let of_card = |block: &Block| matches!(block.kind, Kind::Device(owner) if std::ptr::eq(owner, card));
    let gone: Vec<u64> = blocks.iter().filter(|(_, block)| of_card(block)).map(|(&at, _)| at).collect();
    drop(blocks);
    for at in gone {
        // Nobody else frees the memory of a context that goes.
        let _freed = free(at);
    }
}

/// Whether the driver knows all of a range; neighbours that touch count as one, as mapped pieces do.
pub(crate) fn known(at: u64, len: usize) -> bool {
    let end = at.saturating_add(len as u64);
    let mut at = at;
    while at < end {
        match find(at) {
            Some((start, block)) => at = start + block.len,
            None => return false,
        }
    }
    true
}

/// Ranges of a host that the driver does not know may be anything; those that begin in its own must end there.
pub(crate) fn check(at: u64, len: usize) -> Result {
    if len > 0 && find(at).is_some() && !known(at, len) { Err(CUDA_ERROR_ILLEGAL_ADDRESS) } else { Ok(()) }
}

/// A range that must be memory of a card, or pinned.
pub(crate) fn device(at: u64, len: usize) -> Result {
    if len > 0 && !known(at, len) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}
