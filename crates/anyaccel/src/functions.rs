//! The functions of `torch.accelerator`, on the process-wide runtime.

use crate::device::{Device, DeviceArg};
use crate::error::Result;
use crate::guard::DeviceIndexGuard;
use crate::memory::MemoryStats;
use crate::properties::DeviceCapability;
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::DeviceInfo;

/// [`Runtime::is_available`] of [`Runtime::global`].
#[inline]
pub fn is_available() -> bool {
    Runtime::global().is_available()
}

/// [`Runtime::device_count`] of [`Runtime::global`].
#[inline]
pub fn device_count() -> u32 {
    Runtime::global().device_count()
}

/// [`Runtime::current_accelerator`] of [`Runtime::global`].
#[inline]
pub fn current_accelerator(check_available: bool) -> Option<Device> {
    Runtime::global().current_accelerator(check_available)
}

/// [`Runtime::current_device_index`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn current_device_index() -> Result<u32> {
    Runtime::global().current_device_index()
}

/// [`Runtime::set_device_index`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn set_device_index<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<()> {
    Runtime::global().set_device_index(device)
}

/// [`Runtime::device_index`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn device_index(index: impl Into<Option<i64>>) -> Result<DeviceIndexGuard> {
    Runtime::global().device_index(index)
}

/// [`Runtime::get_device_capability`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn get_device_capability<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<DeviceCapability> {
    Runtime::global().get_device_capability(device)
}

/// [`Runtime::get_device_name`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn get_device_name<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<String> {
    Runtime::global().get_device_name(device)
}

/// [`Runtime::get_device_properties`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn get_device_properties<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<DeviceInfo> {
    Runtime::global().get_device_properties(device)
}

/// [`Runtime::can_device_access_peer`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn can_device_access_peer<'a, D: Into<DeviceArg<'a>>>(device: D, peer: D) -> Result<bool> {
    Runtime::global().can_device_access_peer(device, peer)
}

/// [`Runtime::get_memory_info`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn get_memory_info<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<(u64, u64)> {
    Runtime::global().get_memory_info(device)
}

/// [`Runtime::empty_cache`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn empty_cache() -> Result<()> {
    Runtime::global().empty_cache()
}

/// [`Runtime::empty_host_cache`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn empty_host_cache() -> Result<()> {
    Runtime::global().empty_host_cache()
}

/// [`Runtime::current_stream`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn current_stream<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<Stream> {
    Runtime::global().current_stream(device)
}

/// [`Runtime::set_stream`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn set_stream(stream: &Stream) -> Result<()> {
    Runtime::global().set_stream(stream)
}

/// [`Runtime::synchronize`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn synchronize<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<()> {
    Runtime::global().synchronize(device)
}

/// [`Runtime::utilization`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn utilization<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<f32> {
    Runtime::global().utilization(device)
}

/// [`Runtime::memory_usage`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn memory_usage<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<f32> {
    Runtime::global().memory_usage(device)
}

/// [`Runtime::temperature`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn temperature<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<f32> {
    Runtime::global().temperature(device)
}

/// [`Runtime::power_draw`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn power_draw<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<f32> {
    Runtime::global().power_draw(device)
}

/// [`Runtime::clock_rate`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn clock_rate<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<f32> {
    Runtime::global().clock_rate(device)
}

/// The old name of [`set_device_index`].
///
/// # Errors
/// As there.
#[deprecated(note = "Use `set_device_index` instead.")]
pub fn set_device_idx<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<()> {
    set_device_index(device)
}

/// The old name of [`current_device_index`].
///
/// # Errors
/// As there.
#[deprecated(note = "Use `current_device_index` instead.")]
pub fn current_device_idx() -> Result<u32> {
    current_device_index()
}

/// [`Runtime::memory_stats`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn memory_stats<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<MemoryStats> {
    Runtime::global().memory_stats(device)
}

/// [`Runtime::memory_allocated`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn memory_allocated<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().memory_allocated(device)
}

/// [`Runtime::max_memory_allocated`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn max_memory_allocated<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().max_memory_allocated(device)
}

/// [`Runtime::memory_reserved`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn memory_reserved<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().memory_reserved(device)
}

/// [`Runtime::max_memory_reserved`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn max_memory_reserved<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<u64> {
    Runtime::global().max_memory_reserved(device)
}

/// [`Runtime::reset_peak_memory_stats`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn reset_peak_memory_stats<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<()> {
    Runtime::global().reset_peak_memory_stats(device)
}

/// [`Runtime::reset_accumulated_memory_stats`] of [`Runtime::global`].
///
/// # Errors
/// As there.
#[inline]
pub fn reset_accumulated_memory_stats<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<()> {
    Runtime::global().reset_accumulated_memory_stats(device)
}

/// [`Runtime::get_memory_info`] of [`Runtime::global`], under its other name.
///
/// # Errors
/// As there.
#[inline]
pub fn mem_get_info<'a, D: Into<DeviceArg<'a>>>(device: D) -> Result<(u64, u64)> {
    get_memory_info(device)
}
