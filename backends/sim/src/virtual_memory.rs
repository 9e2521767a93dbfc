//! Address ranges that are backed piece by piece. A range has the number of the memory that it is.

use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::memory::Span;
use crate::state::{Debris, State};
use anyaccel_hal::{Fault, Mem, Range, Segment, VirtualMemory, VirtualMemoryLimits};

impl State {
    fn range(&mut self, method: Method, range: Range, ordinal: u32) -> Result<Mem, Fault> {
        let mem = Mem(range.0);
        if self.device(ordinal).space.is_reserved(mem) {
            return Ok(mem);
        }
        Err(self.unknown(method, "range", range.0, ordinal))
    }

    /// Operations still to come that name some of these bytes.
    fn pending_on(&self, mem: Mem, bytes: &std::ops::Range<u64>) -> usize {
        let meets = |span: &Span| span.mem == mem && span.offset < bytes.end && bytes.start < span.offset + span.len;
        let items = self.streams.values().flat_map(|stream| stream.queue.iter());
        items.filter(|item| item.work.spans().any(meets)).count()
    }

    /// Takes live memory back.
    pub(crate) fn release(&mut self, method: Method, mem: Mem, ordinal: u32) -> Result<(), Fault> {
        self.unused("H4", method, mem, ordinal)?;
        if let Some(backing) = self.device(ordinal).space.free(mem) {
            self.debris.push(Debris::Backing(backing));
        }
        Ok(())
    }
}

impl VirtualMemory for SimDevice {
    fn limits(&self) -> VirtualMemoryLimits {
        VirtualMemoryLimits { granularity: self.config().granularity }
    }

    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        self.call(Call::new(Method::Reserve).amount(len), |state, ordinal| {
            let granularity = state.device(ordinal).config.granularity;
            if len == 0 || !len.is_multiple_of(granularity) {
                let note = format!("{len} bytes asked, granularity {granularity}");
                return Err(Fault::invalid(Method::Reserve.name(), note));
            }
            let mem = Mem(state.handles.give(ordinal));
            let segment = state.device(ordinal).space.reserve(mem, len);
            let segment = segment.map_err(|shortage| State::shortage(Method::Reserve, shortage))?;
            Ok((Range(mem.0), segment))
        })
    }

    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        self.call(Call::new(Method::Map).mem(Mem(range.0)).amount(len), |state, ordinal| {
            let mem = state.range(Method::Map, range, ordinal)?;
            match state.device(ordinal).space.map(mem, offset, len) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(shortage)) => Err(State::shortage(Method::Map, shortage)),
                Err(note) => Err(Fault::invalid(Method::Map.name(), note)),
            }
        })
    }

    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        self.call_even_lost(Call::new(Method::Unmap).mem(Mem(range.0)).amount(len), |state, ordinal| {
            let mem = state.range(Method::Unmap, range, ordinal)?;
            let pending = state.pending_on(mem, &(offset..offset.saturating_add(len)));
            if pending > 0 {
                let named = state.named(mem.0);
                let note =
                    format!("{len} bytes at offset {offset} of memory {named} unmapped under {pending} operations");
                return Err(state.violations.refuse("H4", Method::Unmap, note));
            }
            let unmapped = state.device(ordinal).space.unmap(mem, offset, len);
            unmapped.map_err(|note| Fault::invalid(Method::Unmap.name(), note))
        })
    }

    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        self.call_even_lost(Call::new(Method::Release).mem(Mem(range.0)), |state, ordinal| {
            let mem = state.range(Method::Release, range, ordinal)?;
            state.release(Method::Release, mem, ordinal)
        })
    }
}
