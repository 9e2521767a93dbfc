//! Snapshots as JSON, with the keys of PyTorch's.

use face::Snapshot;
use serde_json::{Value, json};

pub(crate) fn snapshot(snapshot: &Snapshot) -> String {
    let frames = |stack| -> Value {
        let frame = |id: &face::SnapshotFrame| {
            let frame = snapshot.frames.get(id.0 as usize);
            frame.map(|frame| {
                let (name, file) = (snapshot.names.get(frame.name), snapshot.names.get(frame.file));
                json!({"name": name, "filename": file, "line": frame.line})
            })
        };
        snapshot.stacks.get(stack).iter().filter_map(frame).collect()
    };
    let pool = |at: u16| snapshot.pools.get(usize::from(at)).map_or([0, 0], |&(first, second)| [first, second]);
    let segments: Value = snapshot
        .segments
        .iter()
        .map(|segment| {
            let blocks: Value = segment
                .blocks
                .iter()
                .map(|block| {
                    json!({
                        "address": block.addr,
                        "size": block.size,
                        "requested_size": block.requested,
                        "state": block.state.name(),
                        "frames": frames(block.stack),
                    })
                })
                .collect();
            json!({
                "device": segment.device,
                "address": segment.addr,
                "total_size": segment.total,
                "allocated_size": segment.allocated,
                "active_size": segment.active,
                "requested_size": segment.requested,
                "stream": segment.stream,
                "segment_type": if segment.large { "large" } else { "small" },
                "segment_pool_id": pool(segment.pool),
                "is_expandable": segment.growable,
                "frames": frames(segment.stack),
                "blocks": blocks,
            })
        })
        .collect();
    let traces: Value = snapshot
        .traces
        .iter()
        .map(|trace| -> Value {
            let event = |event: &face::SnapshotEvent| {
                json!({
                    "action": event.action.name(),
                    "addr": event.addr,
                    "size": event.size,
                    "stream": event.stream,
                    "time_us": event.time_us,
                    "pool_id": pool(event.pool),
                    "user_metadata": snapshot.names.get(event.user_metadata),
                    "frames": frames(event.stack),
                })
            };
            trace.events.iter().map(event).collect()
        })
        .collect();
    json!({"segments": segments, "device_traces": traces}).to_string()
}
