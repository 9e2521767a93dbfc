//! What is to be recorded.

use anyaccel_engine::history::{Action, ContextLevel, StackSource};
use std::fmt;
use std::sync::Arc;

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing; what was recorded is forgotten.
    Nothing,
    /// Who holds each block, no events.
    State,
    /// Every event too.
    #[default]
    All,
}

/// Whose stacks events show.
#[derive(Clone, Default)]
pub enum HistoryStacks {
    /// None: every stack is empty.
    None,
    /// Rust backtraces, with names and lines as far as the program has debug information. A forked child has none. Without
    /// the crate's feature `backtrace` every stack is empty.
    #[default]
    Rust,
    /// Those of another language.
    From(Arc<dyn StackSource>),
}

impl fmt::Debug for HistoryStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HistoryStacks::None => "None",
            HistoryStacks::Rust => "Rust",
            HistoryStacks::From(_) => "From(..)",
        })
    }
}

/// What [`Runtime::record_memory_history`](crate::Runtime::record_memory_history) records.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// What is kept.
    pub enabled: Recorded,
    /// For which calls stacks are captured and where they are shown.
    pub context: ContextLevel,
    /// Whose stacks.
    pub stacks: HistoryStacks,
    /// Events that are kept of each device, and of its pinned memory: of more, the oldest go, and are counted. An event
    /// takes 56 bytes. The default is 2^20.
    pub max_entries: usize,
    /// Events that are not kept.
    pub skip: Vec<Action>,
    /// Pinned host memory too.
    pub pinned: bool,
    /// Forget what was recorded before.
    pub clear: bool,
}

impl Default for HistoryOptions {
    /// Everything, with Rust backtraces.
    fn default() -> Self {
        HistoryOptions {
            enabled: Recorded::All,
            context: ContextLevel::All,
            stacks: HistoryStacks::default(),
            max_entries: 1 << 20,
            skip: Vec::new(),
            pinned: true,
            clear: false,
        }
    }
}

impl HistoryOptions {
    /// Stops the recording and forgets it.
    pub fn off() -> Self {
        HistoryOptions { enabled: Recorded::Nothing, ..HistoryOptions::default() }
    }

    /// Everything, without stacks: the cheapest recording.
    pub fn without_stacks() -> Self {
        HistoryOptions { stacks: HistoryStacks::None, ..HistoryOptions::default() }
    }
}
