//! The device caching allocator.
//!
//! A best-fit cache over per-stream pools with PyTorch 2.14's policy to the byte: for a given history of calls it places
//! every block where PyTorch would, makes the same calls to the device and counts the same numbers (the golden tests
//! replay recordings of the real one). Where it departs, it does so because the original fails there; see [`Departures`].
//!
//! # Protocol
//!
//! One [`DeviceCache`] per device. Its state, the heap, is behind one mutex. The rule that makes it safe to use from a
//! host function on a stream, or while another thread waits for the device:
//!
//! > No call to a port is made under the lock: decide, unlock, call, relock, revalidate.
//!
//! A block is in one state at a time:
//!
//! ```text
//!             hand out                 give back, no foreign uses
//!   Free  ───────────────▶  Active  ─────────────────────────────────▶  Free (merged with free neighbours)
//!    ▲ │                       │ give back, foreign uses
//!    │ │ taken off its shelf   ▼
//!    │ ▼                    Pending ──── all its marks have ended ───▶  Free
//!   Busy ──▶ gone, or back on the shelf if the device refused
//!    ▲
//!    │ being mapped
//!  Unmapped (address space of a growable segment)
//! ```
//!
//! - Free and Unmapped blocks belong to the heap: any thread that holds the lock may move them.
//! - An Active block belongs to its user; a handle is good for it only as long as index and generation agree.
//! - A Pending block waits in one queue per stream that uses it, or is *parked* until its marks can be made (after a
//!   capture, or after a mark that failed).
//! - A Busy block belongs to the one thread that is calling the device about it. Neighbours do not merge with it.
//!
//! Observers run without the lock, and one that panics is contained.

mod address;
mod arena;
mod audit;
mod cache;
mod close;
mod counters;
mod growable;
mod heap;
mod miss;
mod oom;
mod pending;
mod policy;
mod pools;
mod ports;
mod recording;
pub mod replay;
mod settings;
mod shelf;
mod slots;
mod snapshot;
mod stats;
mod summary;
mod trim;

pub use cache::{DeviceCache, FractionError, FreeError, Leak};
pub use oom::{AllocError, Cause, OutOfMemory, Pin};
pub use policy::{Departures, MAX_REQUEST};
pub use pools::{PoolError, PoolId, Scope};
pub use ports::{DeviceMemory, Marks, PortError, Ports, RawSegment, Segments, Virtual};
pub use recording::{DeviceHistory, HistoryCounts};
pub use settings::{ROUNDUP_SLOTS, Settings, SettingsError, VARIABLES};
pub use snapshot::{BlockView, SegmentView};
pub use stats::{FLAT_KEYS, FLAT_LEN, PoolStat, Stat, Stats};

/// Names a block while its user has it. Once the block is given back the handle is stale: it is refused, even if the
/// memory has been handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

impl Handle {
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        Handle(u64::from(generation) << 32 | u64::from(index))
    }

    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The handle as a number, for a C API. Never 0.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The handle that [`to_bits`](Handle::to_bits) gave. Any other number is refused where it is used.
    pub fn from_bits(bits: u64) -> Self {
        Handle(bits)
    }
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its name.
    pub handle: Handle,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes: the request, rounded, or all of a block that is not worth splitting.
    pub size: u64,
    /// The token of its segment.
    pub segment: u64,
    /// Its place in the segment, in bytes.
    pub offset: u64,
}

/// Which streams used a block, besides the one that it was allocated for: a set of bits that
/// [`DeviceCache::use_of`] gives and that may be or-ed together, for instance in an atomic beside a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses(pub u64);

impl std::ops::BitOr for Uses {
    type Output = Uses;

    fn bitor(self, other: Uses) -> Uses {
        Uses(self.0 | other.0)
    }
}
