//! Graph capture: what is recorded, when a call is legal, and how a recording is replayed.
//!
//! One state machine for every backend. A capture is recorded here, whatever the device can: nodes with a payload of the
//! caller's ([`Work`]), in the order of the calls, with the dependencies that streams and events give them. What comes
//! out, a [`Program`], is a list in topological order. A device with native graphs takes that list; for others [`Plan`]
//! says which lane each node goes to and which waits are needed.
//!
//! # Protocol
//!
//! A graph is in one [`Phase`]; [`Phase::after`] has all transitions. While it is *Capturing* it has a [`Recorder`]:
//!
//! - *lanes* take part: the origin, where the capture began, and those that joined by waiting for a [`Point`] of it. A
//!   lane takes part in at most one capture, which its owner sees to; any number of captures may be under way.
//! - Each lane has *heads*: the nodes that its next node comes after. Recording a node makes it the only head; waiting for
//!   a point adds the heads of that point. Of nodes that were recorded on one lane only the latest is kept, since it comes
//!   after the others.
//! - A point is a snapshot of a lane's heads ([`Mark::Captured`](https://docs.rs/anyaccel-hal)). It serves waits of its own
//!   capture; elsewhere it is refused, and nothing changes.
//! - The first error that invalidates a capture is kept, and told by everything recorded after it and by the end.
//!
//! A capture ends well only if all its work was joined: each node is an ancestor of the origin's heads.

mod dot;
mod merge;
mod phase;
mod plan;
mod program;
mod recorder;

pub use dot::Dot;
pub use merge::Stretch;
pub use phase::{Call, Illegal, Phase};
pub use plan::{Plan, Step};
pub use program::{Node, Program, Work};
pub use recorder::{Point, Recorder, Refusal};
