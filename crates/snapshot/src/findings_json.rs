//! Findings as JSON, with stacks as lists of frames.

use serde_json::{Value, json};

use crate::findings::{Findings, FreeMemory, OutOfMemoryStory};
use crate::state::{Gap, LiveBlock};
use crate::words::stack_lines;
use crate::{Snapshot, StackId};

/// Frames of a stack that are written, innermost first.
const FRAMES: usize = 64;

fn stack(snapshot: &Snapshot, id: StackId) -> Value {
    if id == StackId::ABSENT { Value::Null } else { json!(stack_lines(snapshot, id, FRAMES)) }
}

fn neighbour(snapshot: &Snapshot, side: Option<(u64, LiveBlock)>) -> Value {
    side.map_or(
        Value::Null,
        |(addr, block)| json!({"addr": addr, "size": block.size, "pending": block.pending, "stack": stack(snapshot, block.stack)}),
    )
}

fn gap(snapshot: &Snapshot, gap: &Gap) -> Value {
    json!({
        "addr": gap.addr,
        "size": gap.size,
        "segment": gap.segment,
        "below": neighbour(snapshot, gap.below),
        "above": neighbour(snapshot, gap.above),
    })
}

fn free(snapshot: &Snapshot, memory: &FreeMemory) -> Value {
    let pins = memory.pins.iter();
    json!({
        "allocated": memory.allocated,
        "pending": memory.pending,
        "reserved": memory.reserved,
        "gaps": memory.gaps,
        "free": memory.free,
        "idle": memory.idle,
        "largest": memory.largest.as_ref().map(|largest| gap(snapshot, largest)),
        "pins": pins.map(|pin| json!({"bytes": pin.bytes, "gaps": pin.gaps, "stack": stack(snapshot, pin.stack)})).collect::<Vec<_>>(),
    })
}

fn story(snapshot: &Snapshot, story: &OutOfMemoryStory) -> Value {
    json!({
        "event": story.event,
        "requested": story.requested,
        "device_free": story.device_free,
        "fragmentation": story.is_fragmentation(),
        "stack": stack(snapshot, story.stack),
        "memory": free(snapshot, &story.memory),
        "words": story.words(snapshot),
    })
}

impl Findings {
    /// All of it as JSON. Sizes in bytes, stacks as lists of frames, innermost first; `null` for a stack that was not
    /// recorded.
    pub fn to_json(&self, snapshot: &Snapshot) -> Value {
        let holders = self.holders.iter();
        let kept = self.kept.iter();
        let churn = self.churn.iter();
        json!({
            "device": self.device,
            "events": self.events,
            "span_us": self.span_us,
            "peak_allocated": self.peak,
            "peak_event": self.peak_event,
            "peak_reserved": self.peak_reserved,
            "holders": holders.map(|share| json!({"bytes": share.bytes, "blocks": share.blocks, "stack": stack(snapshot, share.stack)})).collect::<Vec<_>>(),
            "never_freed": {
                "bytes": self.kept_total.0,
                "blocks": self.kept_total.1,
                "stacks": kept.map(|kept| json!({
                    "bytes": kept.bytes,
                    "blocks": kept.blocks,
                    "quarters": kept.quarters,
                    "grows": kept.grows(),
                    "stack": stack(snapshot, kept.stack),
                })).collect::<Vec<_>>(),
            },
            "churn": {
                "requests": self.requests.0,
                "bytes": self.requests.1,
                "device_allocs": self.device_calls.0,
                "device_frees": self.device_calls.1,
                "stacks": churn.map(|churn| json!({
                    "requests": churn.allocs,
                    "bytes": churn.bytes,
                    "lifetime_events": churn.lifetime,
                    "stack": stack(snapshot, churn.stack),
                })).collect::<Vec<_>>(),
            },
            "end": free(snapshot, &self.end),
            "ooms": self.failed,
            "out_of_memory": self.out_of_memory.iter().map(|it| story(snapshot, it)).collect::<Vec<_>>(),
            "caveats": self.caveats,
        })
    }
}
