//! A model of stream order: random programs, what they may compute, and a run of them on any device of the hal.
//!
//! A [`Program`] is a list of steps over a few devices, streams and 8-byte cells of memory: writes, fills, copies, reads,
//! marks, waits. [`Program::outcomes`] says which values each cell and each read may hold in the end, from the order that
//! H6 to H8 and H10 demand and nothing else. [`Program::run`] runs it on devices; what it saw must be among the outcomes.
//! Where the order of execution is known, as on the simulated device, [`Program::replay`] checks it step by step.
//!
//! Each write has a value of its own, so that a wrong value tells where it came from.

mod outcomes;
mod run;

pub use outcomes::Outcomes;
pub use run::Observed;

/// How large a program's world is. Each number is at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Devices.
    pub devices: usize,
    /// Streams of each device.
    pub streams: usize,
    /// Cells of each device.
    pub cells: usize,
}

/// A step of a program. Streams are numbered through all devices: stream `s` is of device `s / shape.streams`. Cells are
/// those of the stream's device, unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Stores the step's value in a cell.
    Write {
        /// On which stream.
        stream: usize,
        /// The cell.
        cell: usize,
    },
    /// Stores the step's value in several cells.
    Fill {
        /// On which stream.
        stream: usize,
        /// The first of them.
        first: usize,
        /// How many, at least 1.
        count: usize,
    },
    /// Copies a cell within the device.
    Copy {
        /// On which stream.
        stream: usize,
        /// To.
        dst: usize,
        /// From, another one.
        src: usize,
    },
    /// Copies a cell of another device.
    Fetch {
        /// On which stream.
        stream: usize,
        /// To.
        dst: usize,
        /// From which device, another one.
        from: usize,
        /// From which cell of it.
        src: usize,
    },
    /// Copies a cell to the host.
    Read {
        /// On which stream.
        stream: usize,
        /// The cell.
        cell: usize,
    },
    /// Marks the stream.
    Mark {
        /// The stream.
        stream: usize,
    },
    /// Makes a stream wait.
    Wait {
        /// The stream.
        stream: usize,
        /// For which mark: its number among the program's marks.
        mark: usize,
    },
    /// The host waits.
    Sync {
        /// For which mark.
        mark: usize,
    },
    /// The host looks whether something has ended, and goes on.
    Poll {
        /// On which stream.
        stream: usize,
    },
}

impl Step {
    /// The stream that it is enqueued on; `None` for what the host does.
    pub const fn stream(&self) -> Option<usize> {
        match *self {
            Self::Write { stream, .. }
            | Self::Fill { stream, .. }
            | Self::Copy { stream, .. }
            | Self::Fetch { stream, .. }
            | Self::Read { stream, .. }
            | Self::Mark { stream }
            | Self::Wait { stream, .. } => Some(stream),
            Self::Sync { .. } | Self::Poll { .. } => None,
        }
    }

    /// Whether it touches a cell.
    pub const fn is_effect(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Fill { .. } | Self::Copy { .. } | Self::Fetch { .. } | Self::Read { .. }
        )
    }
}

/// A list of steps, each of which names only what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub(crate) shape: Shape,
    pub(crate) steps: Vec<Step>,
}

impl Program {
    /// Makes a program of arbitrary bytes, four a step, so that whatever makes and shrinks bytes does so for programs.
    /// Steps for which there is nothing (a wait before the first mark) are left out.
    pub fn decode(shape: Shape, bytes: &[[u8; 4]]) -> Self {
        let mut steps = Vec::with_capacity(bytes.len());
        let mut marks = 0;
        for &[kind, a, b, c] in bytes {
            let [a, b, c] = [a, b, c].map(usize::from);
            let stream = a % (shape.devices * shape.streams);
            let cell = b % shape.cells;
            let step = match kind % 16 {
                0..=2 => Step::Write { stream, cell },
                3 => Step::Fill { stream, first: cell, count: 1 + c % (shape.cells - cell) },
                4..=6 if shape.cells > 1 => Step::Copy { stream, dst: cell, src: other(cell, c, shape.cells) },
                7 if shape.devices > 1 => {
                    let from = other(stream / shape.streams, c, shape.devices);
                    Step::Fetch { stream, dst: cell, from, src: c / shape.devices % shape.cells }
                }
                8 | 9 => Step::Read { stream, cell },
                10 | 11 => Step::Mark { stream },
                12 | 13 if marks > 0 => Step::Wait { stream, mark: recent(b, marks) },
                14 if marks > 0 && c % 4 == 0 => Step::Sync { mark: recent(b, marks) },
                14 | 15 => Step::Poll { stream },
                _ => continue,
            };
            marks += usize::from(matches!(step, Step::Mark { .. }));
            steps.push(step);
        }
        Self { shape, steps }
    }

    /// Its world.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Its steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The cells of all devices, numbered through.
    pub const fn cells(&self) -> usize {
        self.shape.devices * self.shape.cells
    }

    /// The value that a step stores.
    pub const fn value(step: usize) -> u64 {
        step as u64 + 1
    }

    /// The value that a cell has at first.
    pub const fn initial(cell: usize) -> u64 {
        1 << 32 | cell as u64
    }

    /// The same without the steps that would race with an earlier one. What it computes is one value a cell; and on a
    /// device whose memory is that of this process a race would be undefined behaviour.
    #[must_use]
    pub fn without_races(&self) -> Self {
        let mut kept = Self { shape: self.shape, steps: Vec::new() };
        for &step in &self.steps {
            kept.steps.push(step);
            if step.is_effect() && outcomes::Order::of(&kept).last_races() {
                kept.steps.pop();
            }
        }
        kept
    }

    /// The same without its polls. What a poll tells the host, and so what is ordered behind it, depends on the run.
    #[must_use]
    pub fn without_polls(&self) -> Self {
        let steps = self.steps.iter().filter(|step| !matches!(step, Step::Poll { .. })).copied().collect();
        Self { shape: self.shape, steps }
    }

    /// The global number of a cell of the device of a stream.
    pub(crate) const fn cell(&self, stream: usize, cell: usize) -> usize {
        stream / self.shape.streams * self.shape.cells + cell
    }

    /// The cells that a step reads and those that it writes, numbered through.
    pub(crate) fn touches(&self, step: &Step) -> (Option<usize>, std::ops::Range<usize>) {
        let at = |stream, cell| self.cell(stream, cell)..self.cell(stream, cell) + 1;
        match *step {
            Step::Write { stream, cell } => (None, at(stream, cell)),
            Step::Fill { stream, first, count } => {
                let first = self.cell(stream, first);
                (None, first..first + count)
            }
            Step::Copy { stream, dst, src } => (Some(self.cell(stream, src)), at(stream, dst)),
            Step::Fetch { stream, dst, from, src } => (Some(from * self.shape.cells + src), at(stream, dst)),
            Step::Read { stream, cell } => (Some(self.cell(stream, cell)), 0..0),
            Step::Mark { .. } | Step::Wait { .. } | Step::Sync { .. } | Step::Poll { .. } => (None, 0..0),
        }
    }
}

/// One of `count` that is not `this`.
const fn other(this: usize, choice: usize, count: usize) -> usize {
    (this + 1 + choice % (count - 1)) % count
}

/// One of `count`, more likely a late one.
const fn recent(choice: usize, count: usize) -> usize {
    let back = if choice.is_multiple_of(2) { choice / 2 % 3 } else { choice / 2 };
    count - 1 - back % count
}
