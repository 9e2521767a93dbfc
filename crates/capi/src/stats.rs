//! What the caches count and hold.

use crate::pointer::{put_struct, text, write_text};
use crate::result::{Failure, call};
use crate::runtime::device;
use crate::types::*;
use face::allocator::{HostStats, PoolStat, Stat, Stats, TimeStat};
use face::{Device, OutOfMemory, Runtime};
use std::ffi::{c_char, c_void};

impl From<Stat> for anyaccel_stat {
    fn from(stat: Stat) -> Self {
        let [current, peak, allocated, freed] =
            [stat.current, stat.peak, stat.allocated, stat.freed].map(|number| number as i64);
        Self { current, peak, allocated, freed }
    }
}

impl From<&PoolStat> for anyaccel_pool_stat {
    fn from(stat: &PoolStat) -> Self {
        Self { all: stat.all.into(), small: stat.small.into(), large: stat.large.into() }
    }
}

impl From<TimeStat> for anyaccel_time_stat {
    fn from(stat: TimeStat) -> Self {
        let [total, max, min] = [stat.total, stat.max, stat.min].map(|time| time.as_micros() as i64);
        Self { total, max, min, count: stat.count as i64 }
    }
}

fn device_stats(stats: &Stats) -> anyaccel_memory_stats {
    anyaccel_memory_stats {
        struct_size: 0,
        reserved: 0,
        allocation: (&stats.allocation).into(),
        segment: (&stats.segment).into(),
        active: (&stats.active).into(),
        inactive_split: (&stats.inactive_split).into(),
        allocated_bytes: (&stats.allocated_bytes).into(),
        reserved_bytes: (&stats.reserved_bytes).into(),
        active_bytes: (&stats.active_bytes).into(),
        inactive_split_bytes: (&stats.inactive_split_bytes).into(),
        requested_bytes: (&stats.requested_bytes).into(),
        oversize_allocations: stats.oversize_allocations.into(),
        oversize_segments: stats.oversize_segments.into(),
        num_alloc_retries: stats.num_alloc_retries as i64,
        num_ooms: stats.num_ooms as i64,
        num_sync_all_streams: stats.num_sync_all_streams as i64,
        num_device_alloc: stats.num_device_alloc as i64,
        num_device_free: stats.num_device_free as i64,
        max_split_size: stats.max_split_size,
    }
}

fn host_stats(stats: &HostStats) -> anyaccel_host_memory_stats {
    anyaccel_host_memory_stats {
        struct_size: 0,
        reserved: 0,
        allocations: stats.allocations.into(),
        allocated_bytes: stats.allocated_bytes.into(),
        active_requests: stats.active_requests.into(),
        active_bytes: stats.active_bytes.into(),
        requested_bytes: stats.requested_bytes.into(),
        host_alloc_time: stats.host_alloc_time.into(),
        host_free_time: stats.host_free_time.into(),
        num_host_alloc: stats.num_host_alloc as i64,
        num_host_free: stats.num_host_free as i64,
        num_alloc_retries: stats.num_alloc_retries as i64,
        num_ooms: stats.num_ooms as i64,
    }
}

/// The counters of a device's memory; all 0 while the runtime has not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_get_memory_stats(
    device_or_current: i32,
    stats: *mut anyaccel_memory_stats,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let out = unsafe { put_struct(stats, "stats")? };
        let found = Runtime::global().memory_stats(device(device_or_current))?;
        out.put(found.counters().map_or_else(Default::default, device_stats));
        Ok(())
    })
}

/// Sets every peak of a device's memory to its current value.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_reset_peak_memory_stats(device_or_current: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().reset_peak_memory_stats(device(device_or_current))?))
}

/// Sets the accumulated counters of a device's memory to 0.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_reset_accumulated_memory_stats(device_or_current: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().reset_accumulated_memory_stats(device(device_or_current))?))
}

/// The counters of the memory pinned for a device; all 0 while the runtime has not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_get_host_memory_stats(
    device_or_current: i32,
    stats: *mut anyaccel_host_memory_stats,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let out = unsafe { put_struct(stats, "stats")? };
        let found = Runtime::global().host_memory_stats(device(device_or_current))?;
        out.put(found.counters().map_or_else(Default::default, host_stats));
        Ok(())
    })
}

/// Sets every peak of pinned memory to its current value.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_reset_peak_host_memory_stats(device_or_current: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().reset_peak_host_memory_stats(device(device_or_current))?))
}

/// Sets the accumulated counters of pinned memory to 0.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_reset_accumulated_host_memory_stats(device_or_current: i32) -> anyaccel_result {
    call(|| Ok(Runtime::global().reset_accumulated_host_memory_stats(device(device_or_current))?))
}

/// The statistics of a device's memory as a table for people.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_memory_summary(
    device_or_current: i32,
    write: anyaccel_write_text,
    data: *mut c_void,
) -> anyaccel_result {
    call(|| {
        let summary = Runtime::global().memory_summary(device(device_or_current), false)?;
        // SAFETY: C4 is this function's condition.
        unsafe { write_text(write, data, &summary) }
    })
}

/// Tells a function of every request for device memory that fails, as long as the process lives. May come before the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_observe_out_of_memory(
    observer: anyaccel_out_of_memory_observer,
    data: *mut c_void,
) -> anyaccel_result {
    call(|| {
        let Some(observer) = observer else { return Err(Failure::argument("observer: NULL")) };
        let told = Observer { observer, data };
        Runtime::global().attach_out_of_memory_observer(move |device, report| told.tell(device, report));
        Ok(())
    })
}

struct Observer {
    observer: unsafe extern "C" fn(*mut c_void, i32, u64, u64, u64),
    data: *mut c_void,
}

// SAFETY: C4: it can be called from any thread with its data.
unsafe impl Send for Observer {}
// SAFETY: as above.
unsafe impl Sync for Observer {}

impl Observer {
    fn tell(&self, device: Device, report: &OutOfMemory) {
        let index = device.index().map_or(ANYACCEL_HOST, |index| index as i32);
        // SAFETY: C4.
        unsafe { (self.observer)(self.data, index, report.requested, report.total, report.free.unwrap_or(u64::MAX)) }
    }
}

/// Puts allocator settings in force on all devices, "max_split_size_mb:128,expandable_segments:True" say: all of them or none.
/// Without this, those of ANYACCEL_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_set_allocator_settings(settings: *const c_char) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let settings = unsafe { text(settings, "settings")? };
        Ok(Runtime::global().set_allocator_settings(settings)?)
    })
}
