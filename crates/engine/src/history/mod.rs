//! Memory history: what the caches did, event by event, in the words of PyTorch 2.14's snapshots.
//!
//! # Protocol
//!
//! A [`Recorder`] belongs to the locked state of one cache, device or pinned, and is touched only under that cache's
//! lock: an event is noted in the same critical section as the change that it tells of, so events and blocks never
//! contradict each other. Without a recorder a cache pays one predictable branch where a block is handed out and one
//! where it becomes free.
//!
//! Stacks are captured before the lock is taken, by a [`StackSource`] of the caller's: it may take its time and locks of
//! its own, and must not call the cache. The lock's owner notes whose call it works for; see [`Recorder`]'s users.
//!
//! The events are in a ring that grows up to its limit. Full pieces of it are immutable and shared with whoever asked
//! for them, so taking a snapshot of a million events copies none of them under the lock.

mod options;
mod record;
mod recorder;
mod ring;
mod scope;

pub use options::{Clock, ContextLevel, HistoryOptions};
pub(crate) use options::{GIVERS, TAKERS};
pub(crate) use record::captured;
pub use record::{Action, Record, StackFrame, StackId, StackSource};
pub(crate) use recorder::Recorder;
pub use ring::Records;
pub use scope::{ScopeGuard, enter_scope, scope};
