//! What is known to have happened before what: finds races and memory freed too early, whatever the interleaving.
//!
//! Each stream carries a [`Knowledge`]: for each stream, up to which operation it is ordered behind it. A wait takes over
//! what the mark's stream knew at the mark; an operation takes over what the host knew when it enqueued it; the host takes
//! over what a stream knew when it sees a mark ended, a stamp passed or a host function called. Two accesses to the same
//! bytes, one of them a write, neither known to the other, are a race, even if the interleaving at hand did no harm. The
//! threads of the host are taken as one: what one thread saw counts as seen by all, so a race may go unseen, but none is
//! made up.

use crate::counters::Method;
use crate::memory::Span;
use crate::state::State;
use crate::stream::{Code, LaunchArg, Side, Work};
use anyaccel_hal::{Fault, Mem, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// For each stream the number of the last operation that is known to have ended. Streams that are gone are left out:
/// their work has ended, and the host knew it when it destroyed them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Knowledge(BTreeMap<StreamId, u64>);

impl Knowledge {
    fn knows(&self, stream: StreamId, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|&known| known >= number)
    }

    fn set(&mut self, stream: StreamId, number: u64) {
        self.0.insert(stream, number);
    }

    fn adds_to(&self, other: &Knowledge) -> bool {
        self.0.iter().any(|(&stream, &number)| !other.knows(stream, number))
    }

    fn join(&mut self, other: &Knowledge) {
        for (&stream, &number) in &other.0 {
            let known = self.0.entry(stream).or_default();
            *known = number.max(*known);
        }
    }
}

/// What a stream knew at its latest marks.
///
/// An older mark is taken for the oldest kept one, which knew at least as much.
#[derive(Default)]
pub(crate) struct AtMarks(VecDeque<(u64, Arc<Knowledge>)>);

impl AtMarks {
    const KEPT: usize = 1024;

    fn push(&mut self, mark: u64, knowledge: Arc<Knowledge>) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back((mark, knowledge));
    }

    fn of(&self, mark: u64) -> Option<Arc<Knowledge>> {
        let at = self.0.partition_point(|&(kept, _)| kept < mark);
        self.0.get(at).map(|(_, knowledge)| Arc::clone(knowledge))
    }
}

/// What an operation does with bytes that it names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    /// A kernel's argument: it may be either, and atomic.
    Unknown,
}

#[derive(Clone, Copy)]
struct Access {
    start: u64,
    end: u64,
    stream: StreamId,
    number: u64,
    does: Does,
}

/// The uses of one piece of memory.
#[derive(Default)]
pub(crate) struct Uses {
    /// Operations enqueued and not ended that name it.
    pub(crate) pending: u32,
    /// The last operation of each stream that named it.
    last: BTreeMap<StreamId, u64>,
    /// The accesses that a later one can still race with.
    accesses: Vec<Access>,
}

impl Uses {
    /// More are not remembered: the oldest go first.
    const KEPT: usize = 256;

    /// Enters an access; gives one that it races with.
    fn enter(&mut self, new: Access, known: &Knowledge, live: impl Fn(StreamId) -> bool) -> Option<Access> {
        self.last.insert(new.stream, new.number);
        if self.last.len() > Self::KEPT {
            self.last.retain(|&stream, _| live(stream));
        }
        if new.does == Does::Unknown {
            return None;
        }
        let mut race = None;
        self.accesses.retain(|old| {
            if old.start >= new.end || new.start >= old.end {
                return true;
            }
            let ordered = old.stream == new.stream || known.knows(old.stream, old.number) || !live(old.stream);
            let conflict = old.does == Does::Write || new.does == Does::Write;
            if conflict && !ordered {
                race = Some(*old);
            }
            // What races with the old one behind this one races with this one too, or is ordered behind both.
            let covered = new.start <= old.start && old.end <= new.end;
            !(ordered && covered && (new.does == Does::Write || old.does == Does::Read))
        });
        if self.accesses.len() == Self::KEPT {
            self.accesses.remove(0);
        }
        self.accesses.push(new);
        race
    }

    /// A use that the host does not know to have ended.
    fn unknown_to(&self, host: &Knowledge, live: impl Fn(StreamId) -> bool) -> Option<(StreamId, u64)> {
        let unknown = |&(&stream, &number): &(&StreamId, &u64)| live(stream) && !host.knows(stream, number);
        self.last.iter().find(unknown).map(|(&stream, &number)| (stream, number))
    }
}

impl State {
    /// The host comes to know what a stream, a gate or a stamp knew.
    pub(crate) fn host_learns(&mut self, knowledge: &Knowledge) {
        if !self.strict || !knowledge.adds_to(&self.host) {
            return;
        }
        let host = Arc::make_mut(&mut self.host);
        host.join(knowledge);
        host.0.retain(|stream, _| self.streams.contains_key(stream));
    }

    /// The host saw a mark ended.
    pub(crate) fn host_sees_mark(&mut self, id: StreamId, mark: u64) {
        if let Some(knowledge) = self.streams.get(&id).and_then(|stream| stream.at_marks.of(mark)) {
            self.host_learns(&knowledge);
        }
    }

    /// The host saw everything of a stream ended that has.
    pub(crate) fn host_sees_all(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let knowledge = std::mem::take(&mut stream.knows);
            self.host_learns(&knowledge);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.knows = knowledge;
            }
        }
    }

    /// A stream is gone: its work has ended, and the host knew.
    pub(crate) fn forget_stream(&mut self, id: StreamId) {
        self.streams.remove(&id);
        if self.host.0.contains_key(&id) {
            Arc::make_mut(&mut self.host).0.remove(&id);
        }
        for stream in self.streams.values_mut() {
            stream.knows.0.remove(&id);
        }
    }

    /// The turn of an operation of a stream has come: what it is ordered behind, and whether it races.
    pub(crate) fn orders(&mut self, id: StreamId, enqueued_with: &Knowledge, work: &Work) {
        if !self.strict {
            return;
        }
        let extra = match work {
            Work::Wait { of, mark } => self.streams.get(of).and_then(|other| other.at_marks.of(*mark)),
            Work::Gate(gate) => self.gates.get(gate).map(|gate| Arc::clone(&gate.knows)),
            _ => None,
        };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let number = stream.done + 1;
        let mut knows = std::mem::take(&mut stream.knows);
        knows.join(enqueued_with);
        if let Some(extra) = extra {
            knows.join(&extra);
        }
        knows.set(id, number);
        match work {
            Work::Mark(mark) => stream.at_marks.push(*mark, Arc::new(knows.clone())),
            Work::Stamp(stamp) => {
                if let Some(stamp) = self.stamps.get_mut(stamp) {
                    stamp.knows = Arc::new(knows.clone());
                }
            }
            work => {
                accesses(work, |span, does| self.access(id, number, &knows, span, does));
                if work.is_user_code() {
                    // It can tell the host that all before it has ended.
                    self.host_learns(&knows);
                }
            }
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.knows = knows;
        }
    }

    fn access(&mut self, stream: StreamId, number: u64, knows: &Knowledge, span: &Span, does: Does) {
        let new = Access { start: span.offset, end: span.offset + span.len, stream, number, does };
        let streams = &self.streams;
        let device = &mut self.devices[crate::handle::device_of(span.mem.0) as usize];
        let Some(uses) = device.space.uses(span.mem).or_else(|| device.pinned.uses(span.mem)) else { return };
        let Some(old) = uses.enter(new, knows, |id| streams.contains_key(&id)) else { return };
        let name = |access: &Access| {
            let what = if access.does == Does::Write { "write" } else { "read" };
            let (start, end) = (access.start, access.end);
            format!("{what} of {start}..{end} by operation {} of stream {}", access.number, self.named(access.stream.0))
        };
        let note = format!("memory {}: {} is not ordered with {}", self.named(span.mem.0), name(&new), name(&old));
        self.violations.note("race", "a device's work", note);
    }

    /// Refuses to give memory back that work still to come names, or that the host can't know to be unused.
    pub(crate) fn unused(&mut self, rule: &'static str, method: Method, mem: Mem, ordinal: u32) -> Result<(), Fault> {
        if self.device(ordinal).lost {
            return Ok(());
        }
        let (strict, host, streams) = (self.strict, Arc::clone(&self.host), &self.streams);
        let device = &mut self.devices[ordinal as usize];
        let Some(uses) = device.space.uses(mem).or_else(|| device.pinned.uses(mem)) else { return Ok(()) };
        let pending = uses.pending;
        let unknown = uses.unknown_to(&host, |id| streams.contains_key(&id)).filter(|_| strict);
        let why = match (pending, unknown) {
            (0, None) => return Ok(()),
            (0, Some((stream, number))) => {
                let by = self.named(stream.0);
                format!("the host has not seen the end of operation {number} of stream {by}, which names it")
            }
            (pending, _) => format!("{pending} operations that name it are pending"),
        };
        let note = format!("memory {} given back while {why}", self.named(mem.0));
        Err(self.violations.refuse(rule, method, note))
    }
}

fn accesses(work: &Work, mut see: impl FnMut(&Span, Does)) {
    match work {
        Work::Copy { dst, src, .. } => {
            for (side, does) in [(src, Does::Read), (dst, Does::Write)] {
                if let Side::Span(span) = side {
                    see(span, does);
                }
            }
        }
        Work::Fill { dst, .. } | Work::Write { dst, .. } => see(dst, Does::Write),
        Work::Launch { code, args, .. } => {
            for (at, arg) in args.iter().enumerate() {
                let LaunchArg::Span(span) = arg else { continue };
                let writes = if let Code::Builtin(number) = code { crate::builtins::writes(*number, at) } else { None };
                let does = |writes| if writes { Does::Write } else { Does::Read };
                see(span, writes.map_or(Does::Unknown, does));
            }
        }
        Work::HostCall(_) | Work::Wait { .. } | Work::Gate(_) | Work::Mark(_) | Work::Stamp(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StreamId = StreamId(1);
    const B: StreamId = StreamId(2);

    fn access(start: u64, end: u64, stream: StreamId, number: u64, does: Does) -> Access {
        Access { start, end, stream, number, does }
    }

    fn races(uses: &mut Uses, new: Access, known: &Knowledge) -> bool {
        uses.enter(new, known, |_| true).is_some()
    }

    #[test]
    fn an_unordered_write_races_with_what_it_meets() {
        let (mut uses, nothing) = (Uses::default(), Knowledge::default());
        assert!(!races(&mut uses, access(0, 10, A, 1, Does::Read), &nothing));
        assert!(!races(&mut uses, access(0, 10, B, 1, Does::Read), &nothing));
        assert!(!races(&mut uses, access(10, 20, B, 2, Does::Write), &nothing));
        assert!(races(&mut uses, access(9, 10, B, 3, Does::Write), &nothing));
        let mut known = Knowledge::default();
        known.set(B, 3);
        assert!(!races(&mut uses, access(0, 20, A, 2, Does::Write), &known));
        assert_eq!(uses.accesses.len(), 1);
    }

    #[test]
    fn a_read_does_not_hide_an_earlier_write() {
        let (mut uses, nothing) = (Uses::default(), Knowledge::default());
        assert!(!races(&mut uses, access(0, 10, A, 1, Does::Write), &nothing));
        assert!(!races(&mut uses, access(0, 10, A, 2, Does::Read), &nothing));
        assert!(races(&mut uses, access(0, 10, B, 1, Does::Read), &nothing));
    }

    #[test]
    fn knowledge_joins_to_the_later_of_both() {
        let (mut a, mut b) = (Knowledge::default(), Knowledge::default());
        a.set(A, 5);
        b.set(A, 3);
        b.set(B, 1);
        assert!(b.adds_to(&a));
        a.join(&b);
        assert!(a.knows(A, 5) && a.knows(B, 1) && !a.knows(B, 2));
        assert!(!b.adds_to(&a));
    }

    #[test]
    fn old_marks_knew_at_most_what_the_oldest_kept_one_did() {
        let mut marks = AtMarks::default();
        for mark in 1..=2000 {
            let mut knowledge = Knowledge::default();
            knowledge.set(A, mark);
            marks.push(mark, Arc::new(knowledge));
        }
        assert!(marks.of(2001).is_none());
        assert!(marks.of(1).is_some_and(|knowledge| knowledge.knows(A, 977) && !knowledge.knows(A, 978)));
    }
}
