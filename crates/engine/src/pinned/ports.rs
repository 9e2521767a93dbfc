//! The ports: all that the pinned cache asks of the outside.

use std::fmt;
use std::sync::Arc;

use crate::alloc::{Marks, PortError};

/// A piece of pinned host memory, as a port handed it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawHost {
    /// The port's own name for it. The cache only hands it back.
    pub token: u64,
    /// Its host address, never dereferenced here, unique among what is live. Never 0.
    pub addr: u64,
    /// Its length in bytes, as asked for.
    pub len: u64,
}

/// Raw pinned memory.
///
/// Every method may be called from any thread, several at once, and the cache never holds its lock while it calls one.
/// An implementation must not call back into the cache.
pub trait HostSegments: Send + Sync {
    /// Pins `len` bytes, a multiple of [`HostPolicy::page`](super::HostPolicy::page).
    ///
    /// # Errors
    /// [`PortError::OutOfMemory`] if there is no room, else what the backend says.
    fn alloc(&self, len: u64) -> Result<RawHost, PortError>;

    /// Gives memory back. May wait for the device.
    ///
    /// # Errors
    /// What the backend says; the memory then stays cached.
    fn free(&self, memory: RawHost) -> Result<(), PortError>;
}

/// The ports of one pinned cache.
#[derive(Clone)]
pub struct HostPorts {
    /// Raw memory.
    pub segments: Arc<dyn HostSegments>,
    /// Order of work, by streams whose ids are unique within the cache. A stream that is gone has ended everything:
    /// `completed` then says `u64::MAX`.
    pub marks: Arc<dyn Marks>,
}

impl fmt::Debug for HostPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPorts").finish_non_exhaustive()
    }
}
