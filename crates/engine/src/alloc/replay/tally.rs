//! What a replay adds up to. Resets of statistics in the history do not touch it.

use super::super::OutOfMemory;
use super::super::stats::Stats;

/// Requests that failed of which the report is kept: the first ones tell the story.
const KEPT: usize = 16;

/// What a device went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTally {
    /// Bytes in the hands of users: now, and at most.
    pub allocated: (u64, u64),
    /// Bytes taken from the device: now, and at most.
    pub reserved: (u64, u64),
    /// Segments taken, or units mapped.
    pub taken: u64,
    /// Segments given back, or units unmapped.
    pub returned: u64,
    /// Requests for a segment or a unit that the device refused.
    pub refused: u64,
    /// Requests that freed all unused memory and tried again.
    pub retries: u64,
    /// Requests that failed.
    pub out_of_memory: u64,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The line of the history, from 1.
    pub line: u64,
    /// The operation.
    pub op: String,
    /// What was there and what to try; `None` for a request that no device could serve.
    pub report: Option<Box<OutOfMemory>>,
}

/// What a replay has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub ops: u64,
    /// Of them, requests,
    pub allocs: u64,
    /// and frees.
    pub frees: u64,
    /// By device.
    pub devices: Vec<DeviceTally>,
    /// The first requests that failed.
    pub exhausted: Vec<Exhausted>,
}

impl DeviceTally {
    /// Notes what a device holds after an operation.
    pub(super) fn holds(&mut self, allocated: u64, reserved: u64) {
        self.allocated = (allocated, self.allocated.1.max(allocated));
        self.reserved = (reserved, self.reserved.1.max(reserved));
    }

    /// Notes counters that are about to be set to 0, or are the last.
    pub(super) fn counted(&mut self, stats: &Stats) {
        self.retries += stats.num_alloc_retries;
        self.out_of_memory += stats.num_ooms + stats.num_oom_rejections;
    }
}

impl Tally {
    /// Notes a call to a device, as the log writes it.
    pub(super) fn called(&mut self, call: &str) {
        let digits = call.get(1..).unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let Some(device) = digits[..end].parse().ok().and_then(|at: usize| self.devices.get_mut(at)) else { return };
        match call.as_bytes().first() {
            Some(b'M' | b'm') => device.taken += 1,
            Some(b'F' | b'u') => device.returned += 1,
            Some(b'X' | b'C') => device.refused += 1,
            _ => {}
        }
    }

    pub(super) fn exhausted(&mut self, line: u64, op: &str, report: Option<Box<OutOfMemory>>) {
        if self.exhausted.len() < KEPT {
            self.exhausted.push(Exhausted { line, op: op.to_owned(), report });
        }
    }
}
