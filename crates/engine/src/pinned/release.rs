//! Giving memory back to the port.

use std::time::{Duration, Instant};

use super::cache::{Guard, HostCache};
use super::ports::RawHost;
use super::state::{Life, NIL};
use crate::alloc::PortError;
use crate::history::Action;

/// What giving back came to.
#[derive(Debug, Default)]
pub(super) struct Released {
    pub(super) bytes: u64,
    pub(super) fault: Option<PortError>,
}

impl HostCache {
    /// Gives doomed blocks back; those that the port refuses are cached instead.
    pub(super) fn release_doomed<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Released) {
        let mut released = Released::default();
        if state.doomed == NIL || state.capturing() {
            return (state, released);
        }
        let mut leaving: Vec<(u32, RawHost, Result<Duration, PortError>)> = Vec::new();
        while state.doomed != NIL {
            let id = state.doomed;
            let block = state.block(id);
            block.life = Life::Busy;
            let raw = block.raw;
            state.doomed = block.next;
            state.note_segment(Action::SegmentFree, raw.addr, raw.len);
            // From here on the port may hand the same address out to another thread.
            state.addresses.remove(&raw.addr);
            leaving.push((id, raw, Ok(Duration::ZERO)));
        }
        let caller = state.caller;
        drop(state);
        for (_, raw, outcome) in &mut leaving {
            let start = Instant::now();
            *outcome = self.ports.segments.free(*raw).map(|()| start.elapsed());
        }
        let mut state = self.lock_as(caller);
        for (id, raw, outcome) in leaving {
            match outcome {
                Ok(took) => {
                    state.stats.returned(raw.len, took);
                    state.vacate(id);
                    released.bytes += raw.len;
                }
                Err(fault) => {
                    state.addresses.insert(raw.addr, id);
                    state.note_segment(Action::SegmentAlloc, raw.addr, raw.len);
                    state.shelve(id);
                    released.fault = released.fault.or(Some(fault));
                }
            }
        }
        (state, released)
    }

    /// Does what earlier calls left undone: marks of what host functions gave back, memory that is not to be cached.
    /// A failure here is nobody's: what it concerns stays held and is tried again by a later call.
    #[cold]
    pub(super) fn tidy<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        let mut state = self.settle(state);
        if state.pending_discards != 0 {
            (state, _) = self.ask(state);
        }
        self.release_doomed(state).0
    }

    /// Gives back all that is known to be unused.
    pub(super) fn release_unused<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Released) {
        if !state.capturing() {
            state.doom_unused();
        }
        self.release_doomed(state)
    }
}
