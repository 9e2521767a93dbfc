//! Ways of running one case: at once, captured into the device's own graphs, or captured and replayed by the engine.
//!
//! A case is written once and knows nothing of this. What it is given is a driver whose devices put work off: copies,
//! fills, writes, launches and host functions go onto a [`tape`] together with the marks and waits between them. When
//! somebody looks (a wait of the host, `completed`, anything that no graph can hold), what hangs together on the tape is
//! captured by the engine's recorder and replayed:
//!
//! - [`Way::Captured`]: as a graph that the device makes of the list;
//! - [`Way::Recorded`]: node by node on lanes of the graph's own, as the engine's plan says, whatever the device can.
//!
//! So the suite's table multiplies by itself: `order.transitive` is also `order.transitive@captured` and
//! `order.transitive@recorded`. Which tables do is said in [`cases`](crate::all); which of their cases do not, and why,
//! in [`never`].
//!
//! Cases of the public functions capture by themselves. For them [`Way::Recorded`] is a driver that hides its graphs.

mod device;
mod driver;
mod never;
mod run;
mod tape;

pub(crate) use driver::over;
pub(crate) use never::reason as not_captured_because;
pub use never::{NotCaptured, not_captured};

use std::fmt;

/// How a case's work gets to the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// At once, by the calls themselves.
    #[default]
    Eager,
    /// Captured, and replayed by the device's own graphs.
    Captured,
    /// Captured, and replayed by the engine.
    Recorded,
}

impl Way {
    /// What a case's id ends in.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Eager => "",
            Self::Captured => "@captured",
            Self::Recorded => "@recorded",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eager => "eager",
            Self::Captured => "captured",
            Self::Recorded => "recorded",
        })
    }
}
