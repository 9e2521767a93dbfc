//! A run of a program on devices of the hal.

use super::{Program, Step};
use anyaccel_hal::{
    Device, End, Fault, FaultKind, HostPtr, Mark, Mem, Pattern, Place, StreamId, Until, WaitMode, Waited,
};
use std::cell::Cell;
use std::sync::Arc;

/// Bytes of a cell.
const CELL: u64 = 8;

/// What a run saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Each cell in the end, numbered through all devices.
    pub cells: Vec<u64>,
    /// What each read saw, in the order of the program.
    pub reads: Vec<u64>,
}

/// A program's objects on real devices.
struct Stage<'a> {
    program: &'a Program,
    devices: &'a [Arc<dyn Device>],
    mems: Vec<Mem>,
    streams: Vec<StreamId>,
    /// Stream and mark of each mark of the program.
    marks: Vec<(usize, u64)>,
    /// The highest mark that polls saw on each stream.
    polled: Vec<u64>,
    /// Where reads go. As long as the program from the start: work enqueued has its addresses.
    slots: Box<[Cell<u64>]>,
    reads: usize,
}

impl Program {
    /// Runs on devices whose memory has contents, one for each of its own. Its streams are numbered in the order in which
    /// they are created, device by device. Everything is given back at the end, unless a fault ends it earlier.
    ///
    /// # Errors
    /// A device's fault, and `Invalid` for marks that don't rise, or that are seen ended before they were given out.
    pub fn run(&self, devices: &[Arc<dyn Device>]) -> Result<Observed, Fault> {
        if devices.len() != self.shape.devices {
            let note = format!("{} devices given, {} needed", devices.len(), self.shape.devices);
            return Err(Fault::invalid("shadow", note));
        }
        let mut stage = Stage::new(self, devices)?;
        for (at, step) in self.steps.iter().enumerate() {
            stage.enqueue(at, step)?;
        }
        let mut observed = Observed { cells: stage.cells()?, reads: Vec::new() };
        observed.reads = stage.slots[..stage.reads].iter().map(|read| u64::from_le(read.get())).collect();
        stage.give_back()?;
        Ok(observed)
    }
}

impl Drop for Stage<'_> {
    /// A fault in the middle leaves work behind that still writes to the slots.
    fn drop(&mut self) {
        for stream in 0..self.streams.len() {
            let waited = self.sync(stream, Until::Now);
            if waited.is_err_and(|fault| fault.kind != FaultKind::DeviceLost) {
                // Nobody knows when it ends, so they stay for good.
                std::mem::forget(std::mem::take(&mut self.slots));
            }
        }
    }
}

impl<'a> Stage<'a> {
    fn new(program: &'a Program, devices: &'a [Arc<dyn Device>]) -> Result<Self, Fault> {
        let shape = program.shape;
        let mut stage = Self {
            program,
            devices,
            mems: Vec::new(),
            streams: Vec::new(),
            marks: Vec::new(),
            polled: vec![0; shape.devices * shape.streams],
            slots: vec![Cell::new(0); program.steps.len()].into(),
            reads: 0,
        };
        for (ordinal, device) in devices.iter().enumerate() {
            stage.mems.push(device.alloc(shape.cells as u64 * CELL)?.mem);
            for _ in 0..shape.streams {
                stage.streams.push(device.create_stream(0)?);
            }
            let stream = ordinal * shape.streams;
            for cell in 0..shape.cells {
                stage.write(stream, cell, Program::initial(ordinal * shape.cells + cell))?;
            }
            stage.sync(stream, Until::Now)?;
        }
        Ok(stage)
    }

    fn device(&self, stream: usize) -> &'a dyn Device {
        &*self.devices[stream / self.program.shape.streams]
    }

    fn place(&self, device: usize, cell: usize) -> Place {
        Place { mem: self.mems[device], offset: cell as u64 * CELL }
    }

    /// A cell of the device of a stream.
    fn here(&self, stream: usize, cell: usize) -> Place {
        self.place(stream / self.program.shape.streams, cell)
    }

    fn write(&self, stream: usize, cell: usize, value: u64) -> Result<(), Fault> {
        let place = self.here(stream, cell);
        // SAFETY: H1: stream and memory live until `give_back`; H4: the cell lies inside.
        unsafe { self.device(stream).write(self.streams[stream], place, &value.to_le_bytes()) }
    }

    fn sync(&self, stream: usize, until: Until) -> Result<(), Fault> {
        // SAFETY: H1: the stream lives until `give_back`, and marks in `until` are its own.
        match unsafe { self.device(stream).wait_host(self.streams[stream], until, None, WaitMode::Auto)? } {
            Waited::Ended => Ok(()),
            Waited::TimedOut => Err(Fault::invalid("wait_host", "timed out without a deadline")),
        }
    }

    /// Copies a cell to 8 bytes that outlive the work and are not touched before it was waited for.
    fn read(&self, stream: usize, cell: usize, to: HostPtr) -> Result<(), Fault> {
        let (dst, src) = (End::Host(to), End::Device(self.here(stream, cell)));
        // SAFETY: H1, H4 as above; H5: this function's.
        unsafe { self.device(stream).copy(self.streams[stream], dst, src, CELL) }
    }

    fn enqueue(&mut self, at: usize, step: &Step) -> Result<(), Fault> {
        match *step {
            Step::Write { stream, cell } => self.write(stream, cell, Program::value(at)),
            Step::Fill { stream, first, count } => self.fill(stream, first, count, Program::value(at)),
            Step::Copy { stream, dst, src } => {
                let (dst, src) = (End::Device(self.here(stream, dst)), End::Device(self.here(stream, src)));
                // SAFETY: H1, H4 as above; they are different cells.
                unsafe { self.device(stream).copy(self.streams[stream], dst, src, CELL) }
            }
            Step::Fetch { stream, dst, from, src } => {
                let Some(peers) = self.device(stream).peers() else {
                    return Err(Fault::unsupported("peers"));
                };
                let (dst, src) = (self.here(stream, dst), self.place(from, src));
                // SAFETY: H1, H4 as above, `src` being of the device `from`.
                unsafe { peers.copy(self.streams[stream], dst, from as u32, src, CELL) }
            }
            Step::Read { stream, cell } => {
                let slot = HostPtr(self.slots[self.reads].as_ptr().cast());
                self.reads += 1;
                self.read(stream, cell, slot)
            }
            Step::Mark { stream } => {
                // SAFETY: H1 as above.
                let mark = unsafe { self.device(stream).mark(self.streams[stream])? };
                let Mark::At(mark) = mark else { return Err(Fault::invalid("mark", "captured, without a capture")) };
                if self.last_mark(stream) >= mark {
                    return Err(Fault::invalid("mark", format!("{mark} after {}", self.last_mark(stream))));
                }
                self.marks.push((stream, mark));
                Ok(())
            }
            Step::Wait { stream, mark } => {
                let (of, mark) = self.marks[mark];
                // SAFETY: H1 as above; the mark came from that stream.
                unsafe { self.device(stream).wait(self.streams[stream], self.streams[of], Mark::At(mark)) }
            }
            Step::Sync { mark } => {
                let (stream, mark) = self.marks[mark];
                self.sync(stream, Until::Mark(mark))
            }
            Step::Poll { stream } => {
                // SAFETY: H1 as above.
                let seen = unsafe { self.device(stream).completed(self.streams[stream])? };
                let (before, given) = (self.polled[stream], self.last_mark(stream));
                if seen < before || seen > given {
                    let note = format!("{seen} ended after {before}, {given} was the last given out");
                    return Err(Fault::invalid("completed", note));
                }
                self.polled[stream] = seen;
                Ok(())
            }
        }
    }

    fn fill(&self, stream: usize, first: usize, count: usize, value: u64) -> Result<(), Fault> {
        let device = self.device(stream);
        let pattern = Pattern::new(&value.to_le_bytes()).filter(|_| device.info().fill_patterns.has(CELL as usize));
        match pattern {
            Some(pattern) => {
                let (place, len) = (self.here(stream, first), count as u64 * CELL);
                // SAFETY: H1, H4 as above; H14: 8 divides offset and length.
                unsafe { device.fill(self.streams[stream], place, pattern, len) }
            }
            None => (first..first + count).try_for_each(|cell| self.write(stream, cell, value)),
        }
    }

    fn last_mark(&self, stream: usize) -> u64 {
        self.marks.iter().rev().find(|&&(of, _)| of == stream).map_or(0, |&(_, mark)| mark)
    }

    /// The cells once all work has ended.
    fn cells(&self) -> Result<Vec<u64>, Fault> {
        (0..self.streams.len()).try_for_each(|stream| self.sync(stream, Until::Now))?;
        let mut cells = Vec::new();
        for device in 0..self.devices.len() {
            let stream = device * self.program.shape.streams;
            for cell in 0..self.program.shape.cells {
                let mut value = 0u64;
                let to = HostPtr((&raw mut value).cast());
                self.read(stream, cell, to)?;
                self.sync(stream, Until::Now)?;
                cells.push(u64::from_le(value));
            }
        }
        Ok(cells)
    }

    fn give_back(&mut self) -> Result<(), Fault> {
        let streams = std::mem::take(&mut self.streams);
        for (ordinal, device) in self.devices.iter().enumerate() {
            let of_device = ordinal * self.program.shape.streams..(ordinal + 1) * self.program.shape.streams;
            // SAFETY: H1; H4: all streams were synced, and none is used after this.
            unsafe {
                device.free(self.mems[ordinal])?;
                streams[of_device].iter().try_for_each(|&stream| device.destroy_stream(stream))?;
            }
        }
        Ok(())
    }
}
