//! A request that failed, in words.

use crate::findings::{FreeMemory, free_memory};
use crate::state::{LiveBlock, State};
use crate::words::{bytes, counted, stack_line};
use crate::{Event, Snapshot, StackId};

/// A request that failed: what was asked, what was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemoryStory {
    /// The event, an index into the trace.
    pub event: usize,
    /// Bytes asked for.
    pub requested: u64,
    /// Who asked.
    pub stack: StackId,
    /// Bytes that the device had left.
    pub device_free: u64,
    /// What was free then.
    pub memory: FreeMemory,
}

impl OutOfMemoryStory {
    /// The story of the event at `at`, with the state before it.
    pub(crate) fn of(event: &Event, at: usize, state: &State<'_>) -> Self {
        OutOfMemoryStory {
            event: at,
            requested: event.size,
            stack: event.stack,
            device_free: event.addr,
            memory: free_memory(state),
        }
    }

    /// Whether there was enough unused memory, in pieces.
    pub fn is_fragmentation(&self) -> bool {
        self.memory.free + self.device_free >= self.requested
    }

    /// What happened, a sentence or two each.
    pub fn words(&self, snapshot: &Snapshot) -> Vec<String> {
        let FreeMemory { allocated, pending, reserved, gaps, free, idle, .. } = self.memory;
        let mut out = vec![format!(
            "Event {}: a request of {} failed. The device had {} left; {} were reserved, of which {} were in use.",
            self.event,
            bytes(self.requested),
            bytes(self.device_free),
            bytes(reserved),
            bytes(allocated),
        )];
        if self.stack != StackId::ABSENT {
            out.push(format!("Who asked: {}.", stack_line(snapshot, self.stack)));
        }
        if pending > 0 {
            out.push(format!("{} had been given back, but streams still used them.", bytes(pending)));
        }
        if !self.is_fragmentation() {
            let all = free + self.device_free;
            out.push(format!(
                "No setting would have helped: even all that was unused, {}, is less than what was asked for.",
                bytes(all)
            ));
            return out;
        }
        if let Some(largest) = self.memory.largest {
            out.push(format!(
                "{} were reserved and unused, but in {}, the largest of {}{}.",
                bytes(free),
                counted(gaps, "piece", "pieces"),
                bytes(largest.size),
                if idle > 0 { format!("; {} of it were whole segments", bytes(idle)) } else { String::new() },
            ));
            let side = |side: Option<(u64, LiveBlock)>, word: &str| {
                side.map(|(_, block)| {
                    format!("{word} it lie {} of {}", bytes(block.size), stack_line(snapshot, block.stack))
                })
            };
            let sides = [side(largest.below, "below"), side(largest.above, "above")];
            let sides: Vec<String> = sides.into_iter().flatten().collect();
            if !sides.is_empty() {
                out.push(format!("The largest piece can't grow: {}.", sides.join("; ")));
            }
        }
        for pins in self.memory.pins.iter().take(3) {
            out.push(format!(
                "Blocks of {} pin {} of free memory in {}.",
                stack_line(snapshot, pins.stack),
                bytes(pins.bytes),
                counted(pins.gaps, "piece", "pieces")
            ));
        }
        out
    }
}
