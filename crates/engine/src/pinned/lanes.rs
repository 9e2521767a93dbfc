//! Waiting for uses: a queue of marks for each stream.
//!
//! Marks come in any order (one recorded when work was enqueued may be given to the queue long after later ones), so a
//! queue is a heap by mark.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cache::{Guard, HostCache};
use super::state::{Life, NIL};
use crate::alloc::PortError;

/// As many streams may stay known with nothing to wait for; their queues keep their room.
const IDLE_LANES: usize = 64;

#[derive(Debug)]
struct Lane {
    stream: u64,
    marks: BinaryHeap<Reverse<(u64, u32)>>,
}

/// The queues, by stream.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<Lane>);

impl Lanes {
    fn find(&self, stream: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&stream, |lane| lane.stream)
    }

    /// Block `id` waits for `mark` of `stream`.
    pub(super) fn wait(&mut self, stream: u64, mark: u64, id: u32) {
        let at = self.find(stream).unwrap_or_else(|_| {
            if self.0.len() >= IDLE_LANES {
                self.0.retain(|lane| !lane.marks.is_empty());
            }
            let at = self.0.partition_point(|lane| lane.stream < stream);
            self.0.insert(at, Lane { stream, marks: BinaryHeap::new() });
            at
        });
        self.0[at].marks.push(Reverse((mark, id)));
    }

    /// Takes out a block that waits for a mark of `stream` up to `done`.
    pub(super) fn next_ended(&mut self, stream: u64, done: u64) -> Option<u32> {
        let at = self.find(stream).ok()?;
        let marks = &mut self.0[at].marks;
        match marks.peek() {
            Some(&Reverse((mark, id))) if mark <= done => {
                marks.pop();
                Some(id)
            }
            _ => None,
        }
    }

    /// The streams that something waits for.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|lane| !lane.marks.is_empty()).map(|lane| lane.stream)
    }

    /// Every wait: (stream, mark, block).
    pub(super) fn waits(&self) -> impl Iterator<Item = (u64, u64, u32)> {
        self.0.iter().flat_map(|lane| lane.marks.iter().map(|&Reverse((mark, id))| (lane.stream, mark, id)))
    }
}

/// What became of a use without a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Mark(u64),
    /// The device is lost: nothing is left to wait for.
    Ended,
    /// The mark failed; the next caller tries again.
    Failed,
}

/// A mark to be made for a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking {
    id: u32,
    stream: u64,
    made: Made,
}

impl HostCache {
    /// Makes the marks of parked blocks.
    pub(super) fn settle<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        if state.parked == NIL || state.capturing() {
            return state;
        }
        let mut markings = std::mem::take(&mut state.markings);
        markings.clear();
        while state.parked != NIL {
            let id = state.parked;
            let block = state.block(id);
            block.life = Life::Busy;
            let unmarked = block.uses.iter().filter(|u| u.mark.is_none());
            markings.extend(unmarked.map(|u| Marking { id, stream: u.stream, made: Made::Failed }));
            state.parked = block.next;
        }
        let caller = state.caller;
        drop(state);
        for marking in &mut markings {
            marking.made = match self.ports.marks.mark(marking.stream) {
                Ok(mark) => Made::Mark(mark),
                Err(PortError::DeviceLost(_)) => Made::Ended,
                Err(_) => Made::Failed,
            };
        }
        let mut state = self.lock_as(caller);
        for block in markings.chunk_by(|a, b| a.id == b.id) {
            let id = block[0].id;
            let uses = &mut state.block(id).uses;
            for &Marking { stream, made, .. } in block {
                match made {
                    Made::Mark(mark) => {
                        uses.iter_mut().filter(|u| u.stream == stream).for_each(|u| u.mark = Some(mark));
                    }
                    Made::Ended => uses.retain(|u| u.stream != stream),
                    Made::Failed => {}
                }
            }
            state.settle_one(id);
        }
        state.markings = markings;
        state
    }

    /// Finds out what is reusable by now.
    pub(super) fn look<'a>(&'a self, state: Guard<'a>) -> (Guard<'a>, Result<(), PortError>) {
        let state = self.settle(state);
        self.ask(state)
    }

    /// Asks the streams of pending blocks how far they are. The first call that failed is told; its stream's blocks
    /// stay pending.
    pub(super) fn ask<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Result<(), PortError>) {
        if state.pending == 0 || state.capturing() {
            return (state, Ok(()));
        }
        let mut answers = std::mem::take(&mut state.answers);
        answers.clear();
        answers.extend(state.lanes.waited_for().map(|stream| (stream, None)));
        let caller = state.caller;
        drop(state);
        let mut outcome = Ok(());
        for (stream, done) in &mut answers {
            match self.ports.marks.completed(*stream) {
                Ok(mark) => *done = Some(mark),
                Err(PortError::DeviceLost(_)) => *done = Some(u64::MAX),
                Err(fault) => outcome = outcome.and(Err(fault)),
            }
        }
        let mut state = self.lock_as(caller);
        for &(stream, done) in &answers {
            if let Some(done) = done {
                state.retire(stream, done);
            }
        }
        state.answers = answers;
        (state, outcome)
    }
}
