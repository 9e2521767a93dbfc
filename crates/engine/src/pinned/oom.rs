//! What a failed request says.

use std::fmt;

use super::policy::MAX_HOST_REQUEST;
use super::state::{Life, State};
use crate::alloc::PortError;

/// Why a request failed. Counters then say only what they count of failures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostAllocError {
    /// There is no room.
    #[error("{0}")]
    OutOfMemory(HostOutOfMemory),
    /// 2^60 bytes or more.
    #[error(
        "{0} bytes of pinned memory were requested, but a request must be below {MAX_HOST_REQUEST} (1 EiB): was a \
         negative size converted to an unsigned one?"
    )]
    TooLarge(u64),
    /// A call to a port failed, for another reason than lack of memory.
    #[error("pinned memory: {call} failed: {fault}")]
    Port {
        /// Which port method.
        call: &'static str,
        /// What it said.
        fault: PortError,
    },
    /// The cache has been closed.
    #[error("the pinned memory cache has been closed")]
    Closed,
}

/// What stood in the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes that were to be pinned for it.
    pub size: u64,
    /// Bytes that the cache holds.
    pub held: u64,
    /// Of these, in the hands of users.
    pub live: u64,
    /// Of these, given back but still used by streams.
    pub pending: u64,
    /// Of these, free but of other sizes, and not given back: a capture is under way, or the driver refused.
    pub unused: u64,
    /// Whether a capture was under way, which forbids giving memory back.
    pub capturing: bool,
}

impl fmt::Display for HostOutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostOutOfMemory { requested, size, held, live, pending, unused, capturing } = self;
        write!(
            f,
            "out of pinned memory: {requested} bytes were requested ({size} after rounding) and could not be pinned; \
             {held} are held: {live} in use, {pending} given back but still used by streams, {unused} unused"
        )?;
        if *pending > 0 {
            f.write_str("; synchronize the streams that use the pending blocks and try again")?;
        }
        if *capturing && *unused > 0 {
            f.write_str("; unused blocks can't be given back during a capture: empty the host cache before it begins")?;
        }
        if *size > 1 << 20 && *size - *requested > *size / 8 {
            f.write_str("; a smaller pinned_max_round_threshold_mb rounds such requests to a page only")?;
        }
        f.write_str("; the system may limit locked memory (ulimit -l)")
    }
}

impl State {
    /// The figures of a failed request.
    pub(super) fn out_of_memory(&self, requested: u64, size: u64) -> HostOutOfMemory {
        let sum = |lives: &[Life]| self.blocks.iter().filter(|b| lives.contains(&b.life)).map(|b| b.raw.len).sum();
        HostOutOfMemory {
            requested,
            size,
            held: self.stats.allocated_bytes.current,
            live: sum(&[Life::Live]),
            pending: sum(&[Life::Parked, Life::Pending]),
            unused: sum(&[Life::Free, Life::Doomed]),
            capturing: self.capturing(),
        }
    }
}
