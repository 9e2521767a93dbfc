//! Virtual time: what operations cost, and how costs add up.
//!
//! Each stream is a lane of its own. An operation begins when the one before it has ended, not before it was enqueued,
//! and not before what it waits for; it ends its cost later. The host has a time too: it moves when the host waits, when
//! it sees a mark ended, and when a test advances it. So virtual times never contradict the order that waits demand.

/// What operations cost in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Every copy, fill, write, launch and host function, in nanoseconds.
    pub op_ns: u64,
    /// A byte copied between host and device, or between devices, in picoseconds.
    pub transfer_ps: u64,
    /// A byte copied within a device, in picoseconds.
    pub local_ps: u64,
    /// A byte filled, in picoseconds.
    pub fill_ps: u64,
    /// A group of a kernel, in nanoseconds.
    pub group_ns: u64,
    /// What a look at [`completed`](anyaccel_hal::Device::completed) takes of the host under
    /// [`Interleaving::ByTime`](crate::Interleaving::ByTime), in nanoseconds. At least 1, so that polling gets somewhere.
    pub poll_ns: u64,
}

impl Default for Costs {
    /// About a card of today: 1 us an operation, 20 GB/s to the host, 1 TB/s inside.
    fn default() -> Self {
        Self { op_ns: 1_000, transfer_ps: 50, local_ps: 1, fill_ps: 1, group_ns: 10, poll_ns: 100 }
    }
}

impl Costs {
    /// Everything takes no time.
    pub const FREE: Costs = Costs { op_ns: 0, transfer_ps: 0, local_ps: 0, fill_ps: 0, group_ns: 0, poll_ns: 1 };

    /// The same with transfers that take `factor` times as long.
    #[must_use]
    pub const fn slow_copies(mut self, factor: u64) -> Self {
        self.transfer_ps = self.transfer_ps.saturating_mul(factor);
        self.local_ps = self.local_ps.saturating_mul(factor);
        self
    }

    pub(crate) fn transfer(&self, len: u64) -> u64 {
        self.bytes(len, self.transfer_ps)
    }

    pub(crate) fn local(&self, len: u64) -> u64 {
        self.bytes(len, self.local_ps)
    }

    pub(crate) fn fill(&self, len: u64) -> u64 {
        self.bytes(len, self.fill_ps)
    }

    pub(crate) fn launch(&self, groups: u64) -> u64 {
        self.op_ns.saturating_add(groups.saturating_mul(self.group_ns))
    }

    fn bytes(&self, len: u64, ps: u64) -> u64 {
        let ns = u128::from(len) * u128::from(ps) / 1000;
        self.op_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// When marks of a stream ended: later waits must not begin before.
///
/// Only the latest marks are kept. An older one is taken to have ended when the oldest kept one did: later than it was,
/// which is allowed, as any delay is.
#[derive(Default)]
pub(crate) struct MarkTimes(std::collections::VecDeque<(u64, u64)>);

impl MarkTimes {
    const KEPT: usize = 4096;

    pub(crate) fn ended(&mut self, mark: u64, at: u64) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back((mark, at));
    }

    /// When the mark ended, at the latest. 0 for one that has not (a lost device).
    pub(crate) fn of(&self, mark: u64) -> u64 {
        let at = self.0.partition_point(|&(kept, _)| kept < mark);
        self.0.get(at).map_or(0, |&(_, time)| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_per_operation_and_per_byte() {
        let costs = Costs { op_ns: 10, transfer_ps: 500, ..Costs::FREE };
        assert_eq!(costs.transfer(4000), 10 + 2000);
        assert_eq!(costs.slow_copies(3).transfer(4000), 10 + 6000);
        assert_eq!(costs.transfer(u64::MAX), 10 + (u128::from(u64::MAX) / 2) as u64);
    }

    #[test]
    fn forgotten_marks_ended_with_the_oldest_kept_one() {
        let mut times = MarkTimes::default();
        for mark in 1..=5000 {
            times.ended(mark, mark * 10);
        }
        assert_eq!(times.of(5000), 50_000);
        assert_eq!(times.of(905), 9050);
        assert_eq!(times.of(1), 9050);
        assert_eq!(times.of(5001), 0);
    }
}
