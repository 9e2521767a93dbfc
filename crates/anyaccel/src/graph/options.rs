//! How a graph is made.

use super::error::GraphError;
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// What a capture forbids to threads other than its own. The capturing thread is refused every wait of the host in every
/// mode; see [`Graph`](crate::Graph).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CaptureErrorMode {
    /// As `thread_local`.
    #[default]
    Default,
    /// No thread may synchronize with a stream or a device of the runtime.
    Global,
    /// Other threads are not restricted.
    ThreadLocal,
    /// The same; kept apart for backends that ask their driver.
    Relaxed,
}

impl CaptureErrorMode {
    /// Its name, as `capture_error_mode` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Global => "global",
            Self::ThreadLocal => "thread_local",
            Self::Relaxed => "relaxed",
        }
    }
}

impl fmt::Display for CaptureErrorMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CaptureErrorMode {
    type Err = Error;

    /// Reads a name.
    fn from_str(text: &str) -> Result<Self, Error> {
        let modes = [Self::Default, Self::Global, Self::ThreadLocal, Self::Relaxed];
        let named = modes.into_iter().find(|mode| mode.name() == text);
        named.ok_or_else(|| GraphError::UnknownMode { got: text.to_owned() }.into())
    }
}

/// How a [`Graph`](crate::Graph) is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GraphOptions {
    /// Make it executable when asked or first replayed, instead of when its capture ends.
    pub keep_graph: bool,
    /// The memory pool that the capture allocates from: that of another graph ([`Graph::pool`](crate::Graph::pool)) or a
    /// [`MemPool`](crate::MemPool)'s id. `None` and `(0, 0)`: one of its own.
    pub pool: Option<(u64, u64)>,
    /// What the capture forbids to other threads.
    pub capture_error_mode: CaptureErrorMode,
}
