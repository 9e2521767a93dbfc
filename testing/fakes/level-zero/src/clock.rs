//! The timers of the devices: one clock of this process, counted in ticks, of which so many bits are kept.

use crate::config::config;
use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds of this process.
pub(crate) fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// A time as a host's clock has it.
pub(crate) fn host(nanos: u64) -> u64 {
    nanos + 1_000_000_000
}

/// A time as a device's timer has it.
pub(crate) fn ticks(nanos: u64, bits: u32) -> u64 {
    let timer = &config().timer;
    let ticks = u128::from(nanos) * u128::from(timer.frequency) / 1_000_000_000;
    let ticks = (ticks as u64).wrapping_add(timer.start);
    ticks & (u64::MAX >> (64 - bits))
}
