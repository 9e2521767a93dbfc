//! What the demo took of the device's memory and of pinned memory, by the runtime's own statistics.

use crate::layout::{bytes, table};
use crate::output::Failure;
use anyaccel::Runtime;
use serde::Serialize;

/// The memory that was needed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct MemoryDocument {
    /// The device's cache.
    pub(crate) device: CacheDocument,
    /// The cache of pinned host memory.
    pub(crate) pinned: CacheDocument,
}

/// What went through a cache.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CacheDocument {
    /// Most bytes that were asked for and in use.
    pub(crate) requested_bytes_peak: u64,
    /// The same, rounded as the cache does.
    pub(crate) allocated_bytes_peak: u64,
    /// Most bytes that were held, used or not.
    pub(crate) reserved_bytes_peak: u64,
    /// Requests.
    pub(crate) requests: u64,
    /// Segments held in the end.
    pub(crate) segments: u64,
    /// Calls to the driver for memory, and to give it back.
    pub(crate) driver_calls: u64,
}

impl MemoryDocument {
    /// Reads the statistics of the current device.
    pub(crate) fn read(runtime: &Runtime) -> Result<Self, Failure> {
        let (device, pinned) = (runtime.memory_stats(())?, runtime.host_memory_stats(())?);
        let device = device.counters().map(|stats| CacheDocument {
            requested_bytes_peak: stats.requested_bytes.all.peak,
            allocated_bytes_peak: stats.allocated_bytes.all.peak,
            reserved_bytes_peak: stats.reserved_bytes.all.peak,
            requests: stats.allocation.all.allocated,
            segments: stats.segment.all.current,
            driver_calls: stats.num_device_alloc + stats.num_device_free,
        });
        let pinned = pinned.counters().map(|stats| CacheDocument {
            requested_bytes_peak: stats.requested_bytes.peak,
            allocated_bytes_peak: stats.active_bytes.peak,
            reserved_bytes_peak: stats.allocated_bytes.peak,
            requests: stats.active_requests.allocated,
            segments: stats.allocations.current,
            driver_calls: stats.num_host_alloc + stats.num_host_free,
        });
        Ok(Self { device: device.unwrap_or_default(), pinned: pinned.unwrap_or_default() })
    }

    /// The same as a table.
    pub(crate) fn table(&self) -> String {
        let row = |name: &str, cache: &CacheDocument| {
            [
                name.to_owned(),
                bytes(cache.requested_bytes_peak),
                bytes(cache.allocated_bytes_peak),
                bytes(cache.reserved_bytes_peak),
                cache.requests.to_string(),
                cache.segments.to_string(),
                cache.driver_calls.to_string(),
            ]
        };
        let rows = [row("device", &self.device), row("pinned", &self.pinned)];
        table(["memory", "requested", "allocated", "held", "requests", "segments", "driver calls"], &rows)
    }
}
