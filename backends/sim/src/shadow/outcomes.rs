//! What a program may compute: happens-before, and the values that it allows.

use super::{Observed, Program, Step};
use std::collections::BTreeSet;

/// Which steps are ordered behind which, as H6, H7, H8 and H10 demand.
pub(crate) struct Order<'a> {
    program: &'a Program,
    /// For each step and each stream: up to which operation of that stream it is ordered behind.
    knows: Vec<Vec<usize>>,
    /// The number of each step among the operations of its stream, from 1.
    number: Vec<usize>,
}

impl<'a> Order<'a> {
    pub(crate) fn of(program: &'a Program) -> Self {
        let streams = program.shape.devices * program.shape.streams;
        let mut host = vec![0; streams];
        let mut of_stream = vec![vec![0; streams]; streams];
        let mut marks: Vec<Vec<usize>> = Vec::new();
        let (mut knows, mut number) = (Vec::new(), Vec::new());
        for step in &program.steps {
            let Some(stream) = step.stream() else {
                if let Step::Sync { mark } = *step {
                    join(&mut host, &marks[mark]);
                }
                knows.push(Vec::new());
                number.push(0);
                continue;
            };
            // It is enqueued after what the host saw ended.
            join(&mut of_stream[stream], &host);
            if let Step::Wait { mark, .. } = *step {
                join(&mut of_stream[stream], &marks[mark]);
            }
            of_stream[stream][stream] += 1;
            if let Step::Mark { .. } = step {
                marks.push(of_stream[stream].clone());
            }
            knows.push(of_stream[stream].clone());
            number.push(of_stream[stream][stream]);
        }
        Self { program, knows, number }
    }

    /// Whether step `a` has ended before step `b` begins, in every run.
    fn before(&self, a: usize, b: usize) -> bool {
        match (self.program.steps[a].stream(), self.program.steps[b].stream()) {
            (Some(stream), Some(_)) => a != b && self.knows[b][stream] >= self.number[a],
            _ => false,
        }
    }

    /// Whether the last step touches a cell that an earlier one touches too, one of them writing, and without order.
    pub(crate) fn last_races(&self) -> bool {
        let steps = &self.program.steps;
        let Some(last) = steps.len().checked_sub(1) else { return false };
        let (read, written) = self.program.touches(&steps[last]);
        (0..last).any(|at| {
            let (other_read, other_written) = self.program.touches(&steps[at]);
            let conflict = read.is_some_and(|cell| other_written.contains(&cell))
                || other_read.is_some_and(|cell| written.contains(&cell))
                || (written.start < other_written.end && other_written.start < written.end);
            conflict && !self.before(at, last)
        })
    }

    /// The writes whose value a reader of `cell` may see; `None` among them stands for the first value. The reader is a
    /// step, or what comes after all.
    fn sources(&self, cell: usize, reader: Option<usize>) -> Vec<Option<usize>> {
        let steps = &self.program.steps;
        let before_reader = |at: usize| reader.is_none_or(|reader| self.before(at, reader));
        let writes: Vec<usize> =
            (0..steps.len()).filter(|&at| self.program.touches(&steps[at]).1.contains(&cell)).collect();
        let visible = |&write: &usize| {
            let later = reader.is_some_and(|reader| write == reader || self.before(reader, write));
            // Overwritten in every run, before the reader's turn.
            let hidden = writes.iter().any(|&by| self.before(write, by) && before_reader(by));
            !later && !hidden
        };
        let mut sources: Vec<_> = writes.iter().copied().filter(visible).map(Some).collect();
        if !writes.iter().any(|&write| before_reader(write)) {
            sources.push(None);
        }
        sources
    }
}

fn join(known: &mut [usize], other: &[usize]) {
    for (known, &other) in known.iter_mut().zip(other) {
        *known = other.max(*known);
    }
}

/// The values that a program allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcomes {
    /// For each cell, numbered through all devices, the values that it may hold in the end.
    pub cells: Vec<BTreeSet<u64>>,
    /// For each read of the program in its order, the values that it may see.
    pub reads: Vec<BTreeSet<u64>>,
}

impl Outcomes {
    /// Whether what was seen is allowed.
    ///
    /// # Errors
    /// The first value that is not, with what would have been.
    pub fn check(&self, observed: &Observed) -> Result<(), String> {
        for (what, allowed, seen) in [("cell", &self.cells, &observed.cells), ("read", &self.reads, &observed.reads)] {
            if allowed.len() != seen.len() {
                return Err(format!("{} {what}s seen, {} there", seen.len(), allowed.len()));
            }
            for (at, (allowed, seen)) in allowed.iter().zip(seen).enumerate() {
                if !allowed.contains(seen) {
                    return Err(format!("{what} {at} is {seen:#x}, allowed are {allowed:#x?}"));
                }
            }
        }
        Ok(())
    }
}

impl Program {
    /// What it may compute. Each value by itself: whether several can occur together is not asked, so with races this is
    /// more than what can happen; without races it is exactly that.
    pub fn outcomes(&self) -> Outcomes {
        let order = Order::of(self);
        let sources_of = |at: usize, step: &Step| {
            let read = self.touches(step).0;
            read.map(|cell| (cell, order.sources(cell, Some(at))))
        };
        let sources: Vec<_> = self.steps.iter().enumerate().map(|(at, step)| sources_of(at, step)).collect();
        // What each step stores: a value of its own, or one of what it reads. Copies can feed each other, hence the loop.
        let mut stored: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); self.steps.len()];
        let gather = |cell: usize, sources: &[Option<usize>], stored: &[BTreeSet<u64>]| {
            let mut values = BTreeSet::new();
            for source in sources {
                match source {
                    None => values.extend([Self::initial(cell)]),
                    Some(write) => values.extend(&stored[*write]),
                }
            }
            values
        };
        loop {
            let mut changed = false;
            for at in 0..self.steps.len() {
                let values = match &sources[at] {
                    Some((cell, sources)) => gather(*cell, sources, &stored),
                    None => BTreeSet::from([Self::value(at)]),
                };
                changed |= values.len() > stored[at].len();
                stored[at] = values;
            }
            if !changed {
                break;
            }
        }
        let is_read = |at: &usize| matches!(self.steps[*at], Step::Read { .. });
        let reads = (0..self.steps.len()).filter(is_read).map(|at| stored[at].clone()).collect();
        let cells = (0..self.cells()).map(|cell| gather(cell, &order.sources(cell, None), &stored)).collect();
        Outcomes { cells, reads }
    }

    /// Runs the model along a known order of execution: the stream of each effect (write, fill, copy, fetch, read), in
    /// the order in which they ran.
    ///
    /// # Errors
    /// In words, where the order is not one that the program demands, or not complete.
    pub fn replay(&self, ran: impl IntoIterator<Item = usize>) -> Result<Observed, String> {
        let order = Order::of(self);
        let effects_of = |stream: usize| {
            let is_its = move |step: &Step| step.is_effect() && step.stream() == Some(stream);
            (0..self.steps.len()).filter(move |&at| is_its(&self.steps[at]))
        };
        let streams = self.shape.devices * self.shape.streams;
        let mut next: Vec<_> = (0..streams).map(|stream| effects_of(stream).peekable()).collect();
        let mut cells: Vec<u64> = (0..self.cells()).map(Self::initial).collect();
        let mut reads = vec![None; self.steps.len()];
        for stream in ran {
            let at = next.get_mut(stream).and_then(Iterator::next);
            let at = at.ok_or_else(|| format!("stream {stream} ran more than it has"))?;
            let early = next.iter_mut().filter_map(|rest| rest.peek().copied()).find(|&rest| order.before(rest, at));
            if let Some(missing) = early {
                return Err(format!("step {at} ran before step {missing}, which it is ordered behind"));
            }
            let (read, written) = self.touches(&self.steps[at]);
            let value = read.map_or(Self::value(at), |cell| cells[cell]);
            reads[at] = matches!(self.steps[at], Step::Read { .. }).then_some(value);
            cells[written].fill(value);
        }
        match next.iter_mut().find_map(Iterator::next) {
            Some(at) => Err(format!("step {at} did not run")),
            None => Ok(Observed { cells, reads: reads.into_iter().flatten().collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::*;

    const SHAPE: Shape = Shape { devices: 1, streams: 2, cells: 2 };

    fn program(steps: &[Step]) -> Program {
        Program { shape: SHAPE, steps: steps.to_vec() }
    }

    fn cell(program: &Program, cell: usize) -> Vec<u64> {
        program.outcomes().cells[cell].iter().copied().collect()
    }

    #[test]
    fn the_last_write_of_a_stream_wins_and_unordered_ones_may() {
        let writes = [Step::Write { stream: 0, cell: 0 }, Step::Write { stream: 0, cell: 0 }];
        assert_eq!(cell(&program(&writes), 0), [2]);
        assert_eq!(cell(&program(&writes), 1), [Program::initial(1)]);
        let both = [writes[0], writes[1], Step::Write { stream: 1, cell: 0 }];
        assert_eq!(cell(&program(&both), 0), [2, 3]);
    }

    #[test]
    fn waits_and_syncs_order() {
        let (write, mark) = (Step::Write { stream: 0, cell: 0 }, Step::Mark { stream: 0 });
        let other = Step::Write { stream: 1, cell: 0 };
        let waiting = [write, mark, Step::Wait { stream: 1, mark: 0 }, other];
        assert_eq!(cell(&program(&waiting), 0), [4]);
        assert_eq!(cell(&program(&[write, mark, Step::Sync { mark: 0 }, other]), 0), [4]);
        // Too late: the wait holds up only what is behind it.
        assert_eq!(cell(&program(&[write, mark, other, Step::Wait { stream: 1, mark: 0 }]), 0), [1, 3]);
        // Too early: the mark holds only what was before it.
        assert_eq!(cell(&program(&[mark, write, Step::Wait { stream: 1, mark: 0 }, other]), 0), [2, 4]);
    }

    #[test]
    fn copies_carry_what_they_may_have_seen() {
        let steps = [
            Step::Write { stream: 0, cell: 0 },
            Step::Copy { stream: 1, dst: 1, src: 0 },
            Step::Copy { stream: 0, dst: 0, src: 1 },
            Step::Read { stream: 1, cell: 0 },
        ];
        let outcomes = program(&steps).outcomes();
        let all = [1, Program::initial(0), Program::initial(1)];
        assert_eq!(outcomes.reads, [BTreeSet::from(all)]);
        assert_eq!(outcomes.cells[1], BTreeSet::from(all));
        assert!(program(&steps).without_races().steps.len() == 2);
    }

    #[test]
    fn a_replay_computes_and_refuses_a_wrong_order() {
        let steps = [
            Step::Write { stream: 0, cell: 0 },
            Step::Mark { stream: 0 },
            Step::Wait { stream: 1, mark: 0 },
            Step::Copy { stream: 1, dst: 1, src: 0 },
            Step::Write { stream: 0, cell: 0 },
        ];
        let program = program(&steps);
        assert_eq!(program.replay([0, 1, 0]).map(|observed| observed.cells), Ok(vec![5, 1]));
        assert_eq!(program.replay([0, 0, 1]).map(|observed| observed.cells), Ok(vec![5, 5]));
        assert!(program.replay([1, 0, 0]).is_err_and(|why| why.contains("step 3 ran before step 0")));
        assert!(program.replay([0, 1]).is_err_and(|why| why.contains("step 4 did not run")));
        assert!(program.replay([0, 1, 1]).is_err_and(|why| why.contains("more than it has")));
    }
}
