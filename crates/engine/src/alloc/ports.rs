//! The ports: all that the device cache asks of the outside.
//!
//! Every method may be called from any thread, several at once, and the cache never holds its lock while it calls one.
//! An implementation must not call back into the cache.

use std::fmt;
use std::sync::Arc;

/// A piece of device memory, or of device address space, as a port handed it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawSegment {
    /// The port's own name for it (a `hal` memory handle, an ordinal). The cache only hands it back.
    pub token: u64,
    /// Its address: real or synthetic, never dereferenced, unique among what is live on the device. Never 0.
    pub addr: u64,
    /// Its length in bytes, as asked for.
    pub len: u64,
}

/// What the device says of its memory, for all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that the device has.
    pub total: u64,
    /// Bytes that nobody uses; `None` where the backend can't tell.
    pub free: Option<u64>,
}

/// Why a port could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortError {
    /// The device has no room. The cache then frees what it can and asks again.
    OutOfMemory,
    /// The device is gone; all marks on it count as ended.
    DeviceLost(String),
    /// The caller gave up waiting.
    Interrupted,
    /// Anything else, in the backend's words.
    Failed(String),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::OutOfMemory => f.write_str("the device is out of memory"),
            PortError::DeviceLost(text) => write!(f, "the device is lost: {text}"),
            PortError::Interrupted => f.write_str("the wait was interrupted"),
            PortError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for PortError {}

/// Raw memory of one device.
pub trait Segments: Send + Sync {
    /// Takes `len` bytes for blocks of `stream`. `Ok` means that the memory is backed.
    ///
    /// # Errors
    /// [`PortError::OutOfMemory`] if there is no room, else what the backend says.
    fn alloc(&self, len: u64, stream: u64) -> Result<RawSegment, PortError>;

    /// Gives a segment back, whose blocks are those of `stream` by now: the one that it was taken for, or one that took the
    /// place of that after it was [forgotten](super::DeviceCache::forget). May wait for the device.
    ///
    /// Blocks are reused in the order of their stream without any mark, so its work may still use the segment: the port
    /// waits for that stream. Uses by others were waited for.
    ///
    /// # Errors
    /// What the backend says; the segment then stays cached.
    fn free(&self, segment: RawSegment, stream: u64) -> Result<(), PortError>;

    /// Total and free memory of the device.
    fn memory(&self) -> DeviceMemory;
}

/// Address space that is mapped piece by piece: what growable segments are made of.
pub trait Virtual: Send + Sync {
    /// Reserves `len` bytes of address space, a multiple of `unit`, for blocks of `stream`; nothing is mapped yet.
    ///
    /// # Errors
    /// What the backend says.
    fn reserve(&self, len: u64, unit: u64, stream: u64) -> Result<RawSegment, PortError>;

    /// Gives a range back, of which nothing is mapped any more.
    ///
    /// # Errors
    /// What the backend says.
    fn release(&self, range: RawSegment) -> Result<(), PortError>;

    /// Maps `[offset, offset + len)` of the range, in pieces of `unit` bytes: all of it or nothing.
    ///
    /// # Errors
    /// [`PortError::OutOfMemory`] if the device can't back all of it, else what the backend says.
    fn map(&self, range: RawSegment, offset: u64, len: u64, unit: u64) -> Result<(), PortError>;

    /// Unmaps `[offset, offset + len)`, whole units that are all mapped, of blocks of `stream`. May wait for the device, and
    /// waits for that stream as [`Segments::free`] does.
    ///
    /// # Errors
    /// What the backend says; the units then stay mapped.
    fn unmap(&self, range: RawSegment, offset: u64, len: u64, unit: u64, stream: u64) -> Result<(), PortError>;
}

/// Points in the order of a stream. Marks of one stream rise; `completed` says up to where it has come.
pub trait Marks: Send + Sync {
    /// A mark behind everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// What the backend says.
    fn mark(&self, stream: u64) -> Result<u64, PortError>;

    /// The greatest mark of `stream` that has ended; all lesser ones have ended too. Never waits.
    ///
    /// # Errors
    /// What the backend says; [`PortError::DeviceLost`] counts as «all have ended».
    fn completed(&self, stream: u64) -> Result<u64, PortError>;

    /// Waits until `mark` of `stream` has ended.
    ///
    /// # Errors
    /// What the backend says; [`PortError::DeviceLost`] counts as «has ended».
    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError>;
}

/// The ports of one device.
#[derive(Clone)]
pub struct Ports {
    /// Raw memory.
    pub segments: Arc<dyn Segments>,
    /// Mappable address space, where the backend has it; without it `expandable_segments` has no effect.
    pub growable: Option<Arc<dyn Virtual>>,
    /// Order of work.
    pub marks: Arc<dyn Marks>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("growable", &self.growable.is_some()).finish_non_exhaustive()
    }
}
