//! What streams were given and has not been submitted: work, marks and waits, in the order of the calls.
//!
//! A mark that is put off has a number of the tape's own, which rises by one. Once it is submitted it stands for a mark of
//! the good device, its *place*. Streams that wait for each other's marks on the tape hang together: they are submitted as
//! one graph, whose end is the place of all their marks. So a mark may end later than its work, never earlier.
//!
//! One lock holds all of it. It is held while the good device enqueues, which never waits (H5), and never while anybody
//! waits or runs host functions. Copies with unpinned host memory may block their caller; so may the lock then.

use super::Way;
use super::run::{self, Lane};
use crate::lab::locked;
use anyaccel_hal::{Device, Fault, FaultKind, GraphExec, HostStatus, Mark, Op, StreamId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// One call that was put off.
pub(super) enum Entry {
    Work {
        on: StreamId,
        op: Op,
    },
    Mark {
        on: StreamId,
        number: u64,
    },
    /// For a mark that is on the tape too.
    Wait {
        on: StreamId,
        of: StreamId,
        number: u64,
    },
}

impl Entry {
    pub(super) fn on(&self) -> StreamId {
        match *self {
            Self::Work { on, .. } | Self::Mark { on, .. } | Self::Wait { on, .. } => on,
        }
    }
}

/// What is known of a stream.
struct Track {
    device: Arc<dyn Device>,
    /// The last number that a mark was given.
    given: u64,
    /// The place of each number that was submitted, in their order.
    places: Vec<(u64, u64)>,
    /// How many entries it has on the tape.
    pending: usize,
}

/// A graph that was replayed: it ends where that stream's mark does.
pub(super) struct Spent {
    pub(super) device: Arc<dyn Device>,
    pub(super) on: StreamId,
    pub(super) until: u64,
    /// The device's own.
    pub(super) graph: Option<GraphExec>,
    /// What the engine replayed it on, beside that stream.
    pub(super) lanes: Vec<Lane>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    tracks: HashMap<StreamId, Track>,
    spent: Vec<Spent>,
    /// Lanes that no graph uses.
    idle: Vec<Lane>,
}

/// The tape of a driver.
pub(super) struct Tape {
    way: Way,
    state: Mutex<State>,
}

impl Tape {
    pub(super) fn new(way: Way) -> Arc<Self> {
        Arc::new(Self { way, state: Mutex::default() })
    }

    /// Puts an operation off.
    pub(super) fn record(&self, device: &Arc<dyn Device>, on: StreamId, op: Op) {
        locked(&self.state).push(device, Entry::Work { on, op });
    }

    /// A mark of a stream: on the tape behind what is there, else of the good device at once.
    pub(super) fn mark(&self, device: &Arc<dyn Device>, on: StreamId) -> Result<u64, Fault> {
        let mut state = locked(&self.state);
        let track = state.track(device, on);
        let number = track.given + 1;
        if track.pending == 0 {
            let place = run::mark(&**device, on)?;
            track.places.push((number, place));
        } else {
            state.push(device, Entry::Mark { on, number });
        }
        state.track(device, on).given = number;
        Ok(number)
    }

    /// Makes a stream wait for a mark, on the tape if the mark is there.
    pub(super) fn wait(&self, device: &Arc<dyn Device>, on: StreamId, of: StreamId, number: u64) -> Result<(), Fault> {
        let mut state = locked(&self.state);
        state.track(device, on);
        let of_track = state.tracks.get(&of).ok_or(UNKNOWN)?;
        let one_device = std::ptr::addr_eq(Arc::as_ptr(device), Arc::as_ptr(&of_track.device));
        if of_track.place_of(number).is_none() && one_device {
            state.push(device, Entry::Wait { on, of, number });
            return Ok(());
        }
        state.submit(of, self.way)?;
        state.submit(on, self.way)?;
        let place = state.tracks.get(&of).and_then(|track| track.place_of(number)).ok_or(UNKNOWN)?;
        // SAFETY: H1, both streams are live; the place is a mark of `of`.
        unsafe { device.wait(on, of, Mark::At(place)) }
    }

    /// Submits what hangs together with a stream.
    pub(super) fn submit(&self, stream: StreamId) -> Result<(), Fault> {
        locked(&self.state).submit(stream, self.way)
    }

    /// Submits, and tells which mark of the good device a number stands for.
    pub(super) fn place_of(&self, stream: StreamId, number: u64) -> Result<u64, Fault> {
        let mut state = locked(&self.state);
        state.submit(stream, self.way)?;
        state.tracks.get(&stream).and_then(|track| track.place_of(number)).ok_or(UNKNOWN)
    }

    /// The highest number whose place is at most that one.
    pub(super) fn number_at(&self, stream: StreamId, place: u64) -> u64 {
        let state = locked(&self.state);
        let Some(track) = state.tracks.get(&stream) else { return 0 };
        let ended = track.places.partition_point(|&(_, at)| at <= place);
        ended.checked_sub(1).map_or(0, |last| track.places[last].0)
    }

    /// Destroys graphs whose replays have ended.
    pub(super) fn sweep(&self) {
        locked(&self.state).sweep();
    }

    /// A stream goes, all its work has ended.
    pub(super) fn forget(&self, stream: StreamId) {
        let mut state = locked(&self.state);
        state.tracks.remove(&stream);
        state.give_back(|spent| spent.on == stream);
    }
}

/// A mark that was never made.
const UNKNOWN: Fault = Fault::new(FaultKind::Invalid, "a mark of another stream");

impl Track {
    fn place_of(&self, number: u64) -> Option<u64> {
        let at = self.places.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        Some(self.places[at].1)
    }
}

impl State {
    fn track(&mut self, device: &Arc<dyn Device>, stream: StreamId) -> &mut Track {
        self.tracks.entry(stream).or_insert_with(|| Track {
            device: Arc::clone(device),
            given: 0,
            places: Vec::new(),
            pending: 0,
        })
    }

    fn push(&mut self, device: &Arc<dyn Device>, entry: Entry) {
        self.track(device, entry.on()).pending += 1;
        self.entries.push(entry);
    }

    /// The streams that hang together with one.
    fn together(&self, stream: StreamId) -> HashSet<StreamId> {
        let mut found = HashSet::from([stream]);
        loop {
            let before = found.len();
            for entry in &self.entries {
                if let Entry::Wait { on, of, .. } = *entry
                    && (found.contains(&on) || found.contains(&of))
                {
                    found.extend([on, of]);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    fn submit(&mut self, stream: StreamId, way: Way) -> Result<(), Fault> {
        let device = match self.tracks.get(&stream) {
            Some(track) if track.pending > 0 => Arc::clone(&track.device),
            _ => return Ok(()),
        };
        let streams = self.together(stream);
        let taken: Vec<Entry> = self.entries.extract_if(.., |entry| streams.contains(&entry.on())).collect();
        let mut numbers: Vec<(StreamId, u64)> = Vec::new();
        for entry in &taken {
            if let Entry::Mark { on, number } = *entry {
                numbers.push((on, number));
            }
        }
        for (_, track) in self.tracks.iter_mut().filter(|(stream, _)| streams.contains(stream)) {
            track.pending = 0;
        }
        self.sweep();
        let graph = run::Graph { device: &device, way, idle: &mut self.idle };
        let (places, spent) = graph.run(taken.first().map_or(stream, Entry::on), taken)?;
        self.spent.push(spent);
        for (on, number) in numbers {
            if let (Some(track), Some(&place)) = (self.tracks.get_mut(&on), places.get(&on)) {
                track.places.push((number, place));
            }
        }
        Ok(())
    }

    fn sweep(&mut self) {
        self.give_back(|spent| run::ended(&*spent.device, spent.on, spent.until));
    }

    fn give_back(&mut self, which: impl FnMut(&mut Spent) -> bool) {
        for spent in self.spent.extract_if(.., which) {
            if let Some(graph) = spent.graph {
                run::destroy(&*spent.device, graph);
            }
            self.idle.extend(spent.lanes);
        }
    }
}

impl Drop for State {
    /// Cancels what was never submitted (H13), and gives back what has ended. The rest goes with the driver.
    fn drop(&mut self) {
        for entry in self.entries.drain(..) {
            if let Entry::Work { op: Op::HostCall(mut function), .. } = entry {
                function.call(HostStatus::Cancelled);
            }
        }
        self.sweep();
        self.idle.drain(..).for_each(Lane::destroy);
    }
}
