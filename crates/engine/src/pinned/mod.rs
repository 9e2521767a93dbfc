//! The cache of pinned host memory.
//!
//! Pinning a page costs far more than taking it, so what was pinned once is kept and handed out again. Two kinds of
//! block, never mixed: up to [`HostPolicy::round_threshold`] a request is rounded up to a power of two and served from
//! that size class; above it the request is rounded to a page only, and its block later serves requests of almost its
//! own size alone. Blocks are never split.
//!
//! # Protocol
//!
//! One [`HostCache`] for the streams of one [`Marks`](crate::alloc::Marks) port. All state is behind one mutex; nothing
//! is lock-free. As in [`alloc`](crate::alloc):
//!
//! > No call to a port is made under the lock: decide, unlock, call, relock, revalidate.
//!
//! So a thread inside the lock never waits for a device, and a host function on a stream may take the lock
//! ([`HostCache::free_quietly`]). A block is in one state at a time:
//!
//! ```text
//!            hand out            give back, no uses
//!   Free ───────────────▶ Live ─────────────────────────────────────▶ Free, or Doomed if it is not to be cached
//!                          │ give back, uses
//!                          ├───────────▶ Parked ── every use got its mark ──┐
//!                          │             (a use without a mark)             ▼
//!                          └──── every use has its mark ───────────────▶ Pending ── all marks ended ──▶ Free or Doomed
//!
//!   Free or Doomed ──▶ Busy ──▶ gone, or Free again if the port refused
//!   Parked ──▶ Busy (its marks are being made) ──▶ Parked or Pending
//! ```
//!
//! - A Live block belongs to its user; a handle is good only as long as index and generation agree.
//! - A Busy block belongs to the one thread that is calling a port about it. One that is being given back to the port
//!   can't be found by address, since the port may hand the same address out to another thread before it returns.
//! - All others belong to whoever holds the lock.
//!
//! **Uses.** Work that reads or writes a block through a stream is a *use* of it: a stream and a mark behind that work.
//! The mark is given when the work is enqueued ([`HostCache::record`]) or made when the block is given back
//! ([`HostCache::record_stream`], [`HostCache::free_used`]). Each block waits for the marks of its own uses, which end
//! in any order: a block behind a slow stream holds up no other.
//!
//! **When it looks.** A hit makes no call to a port. The streams of pending blocks are asked how far they are when a
//! request finds no free block, by a trim, by [`HostCache::poll`], and by any call while a pending block is one that
//! won't be cached.
//!
//! **Capture.** While a capture is under way ([`HostCache::capture_begin`]) no mark is made, no stream is asked and
//! nothing is given back: blocks with uses wait for its end. Requests and frees go on.

mod audit;
mod cache;
mod lanes;
mod oom;
mod policy;
mod ports;
mod recording;
mod release;
mod state;
mod stats;

pub use cache::HostCache;
pub use oom::{HostAllocError, HostOutOfMemory};
pub use policy::{DEFAULT_ROUND_THRESHOLD, HostPolicy, MAX_HOST_REQUEST, PAGE, Placement};
pub use ports::{HostPorts, HostSegments, RawHost};
pub use recording::{HostBlockView, HostHistory};
pub use stats::{HOST_FLAT_LEN, HostStats, TimeStat};

/// Names a block of pinned memory while its user has it. Once the block is given back the handle is stale: it is
/// refused, even if the memory has been handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostHandle {
    index: u32,
    generation: u32,
}

impl HostHandle {
    /// The handle as a number, for a C API. Never 0.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The handle that [`to_bits`](HostHandle::to_bits) gave. Any other number is refused where it is used.
    pub fn from_bits(bits: u64) -> Self {
        HostHandle { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAllocation {
    /// Its name.
    pub handle: HostHandle,
    /// The port's name for its memory.
    pub token: u64,
    /// Its host address.
    pub addr: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What is held for it, in bytes.
    pub size: u64,
}

/// Why a block could not be given back, recorded or found. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostUseError {
    /// The handle names no block in its user's hands.
    #[error("handle {0:#x} names no live pinned block: it was freed already, or never handed out by this cache")]
    Stale(u64),
    /// The address lies in no live block.
    #[error("address {0:#x} lies in no live pinned block: it was freed already, or never handed out by this cache")]
    Unknown(u64),
    /// The address lies inside a live block, but a block is given back by its first address.
    #[error("address {addr:#x} lies inside the pinned block that starts at {start:#x}: free it by that address")]
    Interior {
        /// The address given.
        addr: u64,
        /// Where its block starts.
        start: u64,
    },
}
