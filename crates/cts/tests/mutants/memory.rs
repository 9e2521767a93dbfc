//! Defects of memory.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{
    Device, Fault, FaultKind, Gate, Gates, HostPtr, Mem, Pinned, Range, Segment, StreamId, VirtualMemory,
};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

mutants! {
    addresses_overlap: OverlappingAddresses on host => "memory.segments-lie-apart";
    alignment_is_ignored: Misaligned on host => "memory.segments-lie-apart", "memory.at-least-what-was-asked";
    segments_are_too_short: ShortSegments on host => "memory.at-least-what-was-asked";
    memory_is_not_backed: UnbackedMemory on host => "memory.runs-out-and-recovers", "memory.full-memory-is-backed";
    out_of_memory_lasts: OutOfMemoryForEver on host => "memory.runs-out-and-recovers";
    out_of_memory_has_another_name: OutOfMemoryIsDriver on host => "memory.runs-out-and-recovers";
    frees_do_nothing: LeakingFree on host => "memory.frees-give-back";
    nothing_can_be_allocated: EmptyAlloc on host => "memory.refuses-nothing-and-too-much";
    pinned_memory_is_off_its_page: UnalignedPinned on host => "pinned.page-aligned";
    a_mapping_covers_another: MappedTwice on host => "virtual_memory.refuses";
    an_open_gate_closes_again: ClosingGate on host => "gates.open-stay-open";
    a_destroyed_gate_stays_closed: KeptGate on host => "gates.destroyed-when-closed";
}

macro_rules! alloc {
    ($defect:ident, |$self:ident, $good:ident, $len:ident| $body:expr) => {
        impl Defect for $defect {
            fn alloc(&$self, $good: &dyn Device, $len: u64) -> Result<Segment, Fault> {
                $body
            }
        }
    };
}

/// Each second segment claims the address of the one before.
#[derive(Default)]
struct OverlappingAddresses(Mutex<Option<u64>>);

alloc!(OverlappingAddresses, |self, good, len| {
    let segment = good.alloc(len)?;
    let mut last = locked(&self.0);
    match last.take() {
        Some(addr) => Ok(Segment { addr, ..segment }),
        None => {
            *last = Some(segment.addr);
            Ok(segment)
        }
    }
});

#[derive(Default)]
struct Misaligned;

alloc!(Misaligned, |self, good, len| good.alloc(len).map(|segment| Segment { addr: segment.addr + 8, ..segment }));

#[derive(Default)]
struct ShortSegments;

alloc!(ShortSegments, |self, good, len| good.alloc(len).map(|segment| Segment { len: len - 1, ..segment }));

/// When memory has run out, an earlier segment is given out once more.
#[derive(Default)]
struct UnbackedMemory(Mutex<Vec<Segment>>, Mutex<HashSet<Mem>>);

impl Defect for UnbackedMemory {
    fn alloc(&self, good: &dyn Device, len: u64) -> Result<Segment, Fault> {
        match good.alloc(len) {
            Ok(segment) => {
                locked(&self.0).push(segment);
                Ok(segment)
            }
            Err(fault) if fault.kind == FaultKind::OutOfMemory => {
                let twice = locked(&self.0).iter().copied().find(|segment| segment.len >= len);
                twice.ok_or(fault)
            }
            Err(fault) => Err(fault),
        }
    }

    unsafe fn free(&self, good: &dyn Device, mem: Mem) -> Result<(), Fault> {
        // Given out twice, it comes back twice.
        if !locked(&self.1).insert(mem) {
            return Ok(());
        }
        // SAFETY: forwarded, the first time.
        unsafe { good.free(mem) }
    }
}

#[derive(Default)]
struct OutOfMemoryForEver(AtomicBool);

alloc!(OutOfMemoryForEver, |self, good, len| {
    if self.0.load(Ordering::Relaxed) {
        return Err(Fault::new(FaultKind::OutOfMemory, "alloc"));
    }
    let taken = good.alloc(len);
    if taken.as_ref().is_err_and(|fault| fault.kind == FaultKind::OutOfMemory) {
        self.0.store(true, Ordering::Relaxed);
    }
    taken
});

#[derive(Default)]
struct OutOfMemoryIsDriver;

alloc!(OutOfMemoryIsDriver, |self, good, len| {
    good.alloc(len).map_err(|fault| match fault.kind {
        FaultKind::OutOfMemory => Fault::new(FaultKind::Driver, "alloc"),
        _ => fault,
    })
});

#[derive(Default)]
struct LeakingFree;

impl Defect for LeakingFree {
    unsafe fn free(&self, _: &dyn Device, _: Mem) -> Result<(), Fault> {
        Ok(())
    }
}

#[derive(Default)]
struct EmptyAlloc;

alloc!(EmptyAlloc, |self, good, len| good.alloc(len.max(1)));

#[derive(Default)]
struct UnalignedPinned;

impl Defect for UnalignedPinned {
    fn pinned_alloc(&self, good: &dyn Pinned, len: u64) -> Result<(Mem, HostPtr), Fault> {
        good.alloc(len + 64).map(|(mem, HostPtr(at))| (mem, HostPtr(at.wrapping_add(64))))
    }
}

/// A part that is mapped already is no fault.
#[derive(Default)]
struct MappedTwice;

impl Defect for MappedTwice {
    unsafe fn map(&self, good: &dyn VirtualMemory, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        match unsafe { good.map(range, offset, len) } {
            Err(fault) if fault.kind == FaultKind::Invalid => Ok(()),
            other => other,
        }
    }
}

/// Whoever waits for a gate the second time finds it closed.
#[derive(Default)]
struct ClosingGate(Mutex<HashSet<Gate>>, Mutex<Vec<Gate>>);

impl Defect for ClosingGate {
    unsafe fn gate_wait(&self, good: &dyn Gates, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        let again = !locked(&self.0).insert(gate);
        let gate = if again { good.create()? } else { gate };
        if again {
            locked(&self.1).push(gate);
        }
        // SAFETY: forwarded.
        unsafe { good.wait(stream, gate) }
    }

    fn gone(&self, good: &dyn Device) {
        for gate in locked(&self.1).drain(..) {
            // SAFETY: made by gate_wait, destroyed once.
            good.gates().into_iter().for_each(|gates| unsafe { gates.destroy(gate) });
        }
    }
}

/// A gate that is destroyed while it is closed holds up its streams for good.
#[derive(Default)]
struct KeptGate;

impl Defect for KeptGate {
    unsafe fn gate_destroy(&self, _: &dyn Gates, _: Gate) {}
}
