//! What is to be recorded.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::record::{Action, StackSource};

/// A bit of a cache's notice: calls that take memory have their stacks captured.
pub(crate) const TAKERS: u64 = 2;
/// So have calls that give memory back.
pub(crate) const GIVERS: u64 = 4;

/// For which calls the caller's stack is taken. [`torch.cuda.memory._record_memory_history`](https://pytorch.org/docs/stable/torch_cuda_memory.html)
/// calls it `context`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContextLevel {
    /// For none.
    Never,
    /// For those that take memory; only the blocks of a snapshot show it.
    State,
    /// For those that take memory; blocks and events show it, and a free shows who took the block.
    Alloc,
    /// For those that take memory and those that give it back.
    #[default]
    All,
}

/// The time of events: microseconds since 1970, never going back. All caches of a recording share one clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall_us: i64,
}

impl Clock {
    /// A clock that reads the present time.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), wall_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX) }
    }

    /// The time now.
    #[inline]
    pub fn now_us(&self) -> i64 {
        // The seconds of an uptime fit 40 bits: neither sum nor product can overflow.
        let since = self.start.elapsed();
        self.wall_us.saturating_add(since.as_secs() as i64 * 1_000_000 + i64::from(since.subsec_micros()))
    }
}

/// What a cache is to record.
#[derive(Clone)]
pub struct HistoryOptions {
    /// How many events are kept; of more, the oldest go. 0: none, only who holds each block.
    pub max_entries: usize,
    /// Whose stacks are shown.
    pub level: ContextLevel,
    /// Where stacks come from; `None`: they are all empty, and an event costs no more than its place in the ring.
    pub source: Option<Arc<dyn StackSource>>,
    /// Events that are not kept.
    pub skip: Vec<Action>,
    /// The clock.
    pub clock: Clock,
}

impl fmt::Debug for HistoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryOptions")
            .field("max_entries", &self.max_entries)
            .field("level", &self.level)
            .field("source", &self.source.is_some())
            .field("skip", &self.skip)
            .finish_non_exhaustive()
    }
}

impl HistoryOptions {
    /// Which calls have their stacks captured, as bits of a cache's notice.
    pub(crate) fn captured(&self) -> u64 {
        match self.level {
            _ if self.source.is_none() => 0,
            ContextLevel::Never => 0,
            ContextLevel::State | ContextLevel::Alloc => TAKERS,
            ContextLevel::All => TAKERS | GIVERS,
        }
    }

    /// Whether these options take stacks from where `before` came from.
    pub(crate) fn same_source(&self, before: &Option<Arc<dyn StackSource>>) -> bool {
        match (before, &self.source) {
            (None, None) => true,
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        }
    }

    /// At most `max_entries` events, without stacks.
    pub fn new(max_entries: usize) -> Self {
        HistoryOptions { max_entries, level: ContextLevel::All, source: None, skip: Vec::new(), clock: Clock::start() }
    }
}
