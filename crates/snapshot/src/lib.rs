//! Memory histories: what an allocator did, call by call, and what it held in the end.
//!
//! [`Snapshot`] is the data, in the shape in which PyTorch writes it, made compact: names, frames and stacks are stored
//! once each. Nothing in this crate touches a device.

#![forbid(unsafe_code)]

mod check;
pub mod findings;
mod findings_json;
mod findings_oom;
mod history;
mod intern;
mod model;
mod read;
pub mod replay;
mod state;
pub mod tune;
pub mod view;
pub mod words;
mod write;

pub use history::{Caveats, History, HistoryError};
pub use intern::{FrameId, NameId, Names, StackId, Stacks};
pub use model::{
    Action, AllocatorSettings, Annotation, Block, BlockState, DeviceNote, Event, Frame, Origin, PoolKey, Segment,
    Snapshot, Stage, Trace,
};
pub use read::{Limits, ReadError, read, read_bytes, read_file, read_within};
pub use state::{Gap, LiveBlock, Span, State};
pub use write::{WriteError, write};
