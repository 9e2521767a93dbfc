//! What the page says in words about the file itself.

use crate::words::counted;
use crate::{AllocatorSettings, Snapshot};

/// Who recorded how much.
pub(super) fn subtitle(snapshot: &Snapshot) -> String {
    let writer = snapshot.origin.as_ref().map(|origin| origin.writer.as_str()).filter(|writer| !writer.is_empty());
    let device: usize = snapshot.traces.iter().map(|trace| trace.events.len()).sum();
    let events = |count: usize| counted(count as u64, "event", "events");
    let mut parts = vec![
        format!("Recorded by {}", writer.unwrap_or("PyTorch")),
        format!("{} on {}", events(device), counted(snapshot.traces.len() as u64, "device", "devices")),
        counted(snapshot.segments.len() as u64, "segment", "segments"),
    ];
    if !snapshot.host_trace.events.is_empty() {
        parts.push(format!("{} of pinned memory", events(snapshot.host_trace.events.len())));
    }
    parts.join(", ")
}

/// The settings that differ from the defaults, and the string that was in force.
pub(super) fn settings(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let Some(now) = &snapshot.settings else { return Vec::new() };
    let usual = AllocatorSettings::default();
    let size = |bytes: Option<u64>| bytes.map_or("no limit".to_owned(), |n| format!("{n} bytes"));
    let mut out = vec![("string in force", if now.text.is_empty() { "none".to_owned() } else { now.text.clone() })];
    let mut add = |name, differs: bool, value: String| {
        if differs {
            out.push((name, value));
        }
    };
    add("max_split_size", now.max_split_size != usual.max_split_size, size(now.max_split_size));
    add(
        "garbage_collection_threshold",
        now.garbage_collection_threshold != usual.garbage_collection_threshold,
        now.garbage_collection_threshold.to_string(),
    );
    add("expandable_segments", now.expandable_segments, "True".to_owned());
    add("max_cached_size", now.max_cached_size != usual.max_cached_size, size(now.max_cached_size));
    let divisions = now.roundup_power2_divisions;
    if divisions != usual.roundup_power2_divisions {
        let all: Vec<String> = divisions.iter().enumerate().map(|(at, n)| format!("{}:{n}", 1u32 << at)).collect();
        out.push(("roundup_power2_divisions", all.join(" ")));
    }
    out
}
