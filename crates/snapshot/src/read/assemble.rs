//! From the top of a pickle to a snapshot.

use super::ReadError;
use super::error::shown;
use super::keys::Key;
use super::objects::{DictSlot, Objects, Value};
use crate::{AllocatorSettings, DeviceNote, Event, Origin, Segment, Snapshot, Trace};

fn corrupt<T>(offset: u64, reason: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Corrupt { offset, reason: reason.into() })
}

/// Makes a snapshot of the object at the top. `offset` is the end of the pickle.
pub(super) fn snapshot(mut objects: Objects, top: Value, offset: u64) -> Result<Snapshot, ReadError> {
    let mut found = 0u64;
    let mut parts: Vec<(Key, Value)> = Vec::new();
    match (objects.plain(top), objects.items(top)) {
        (Some(pairs), _) => {
            let pairs = pairs.to_vec();
            for (id, value) in pairs {
                match Key::of(id) {
                    Some(
                        key @ (Key::Segments
                        | Key::DeviceTraces
                        | Key::AllocatorSettings
                        | Key::ExternalAnnotations
                        | Key::HostSegments
                        | Key::HostTraces
                        | Key::Anyaccel),
                    ) => {
                        found |= key.bit();
                        parts.retain(|&(known, _)| known != key);
                        parts.push((key, value));
                    }
                    _ => {
                        let key = shown(objects.text(id));
                        objects.records.unknown.insert(("the snapshot", key));
                    }
                }
            }
        }
        // What memory_snapshot() gives: the segments alone.
        (None, Some(items)) if is_segments(&objects, items) => {
            found |= Key::Segments.bit();
            parts.push((Key::Segments, top));
        }
        _ => {
            if let Value::Dict(id) = top
                && let DictSlot::Broken(fault) = objects.dicts[id as usize]
            {
                return Err(broken(&objects, fault));
            }
            return Err(ReadError::Unrelated(format!(
                "it is a pickle of {}; a snapshot is a dictionary with 'segments' and 'device_traces'",
                top.kind()
            )));
        }
    }
    if found & (Key::Segments.bit() | Key::DeviceTraces.bit()) == 0 {
        return Err(ReadError::Unrelated(
            "it is a pickle of a dictionary without 'segments' and 'device_traces'; a snapshot has both".into(),
        ));
    }
    let mut out = Snapshot::default();
    // Host traces come last, so that the events of the devices are mostly taken as they lie.
    for &(key, value) in &parts {
        match key {
            Key::Segments => out.segments = segments(&mut objects, value, "segments", offset)?,
            Key::HostSegments => out.host_segments = segments(&mut objects, value, "host_segments", offset)?,
            Key::DeviceTraces => out.traces = traces(&mut objects, value, offset)?,
            Key::HostTraces => out.host_trace = trace(&mut objects, value, "host_traces", offset)?,
            Key::AllocatorSettings => out.settings = Some(settings(&mut objects, value, offset)?),
            Key::ExternalAnnotations => {
                let Some(items) = objects.items(value) else {
                    return corrupt(offset, "'external_annotations' is no list of annotations");
                };
                for &item in items {
                    match slot(&objects, item) {
                        Some(DictSlot::Annotation(at)) => {
                            out.annotations.push(objects.records.annotations[at as usize]);
                        }
                        Some(DictSlot::Broken(fault)) => return Err(broken(&objects, fault)),
                        _ => return corrupt(offset, "an item of 'external_annotations' is no annotation"),
                    }
                }
            }
            _ => out.origin = Some(origin(&objects, value, offset)?),
        }
    }
    for (key, missing) in [(Key::Segments, "segments"), (Key::DeviceTraces, "device_traces")] {
        if found & key.bit() == 0 {
            out.notes.push(format!("the file has no '{missing}'"));
        }
    }
    let unknown = std::mem::take(&mut objects.records.unknown);
    out.notes.extend(
        unknown
            .into_iter()
            .map(|(context, key)| format!("{context} has a key '{key}' that is not known; it was passed over")),
    );
    let out = Snapshot {
        segments: out.segments,
        traces: out.traces,
        settings: out.settings,
        annotations: out.annotations,
        host_segments: out.host_segments,
        host_trace: out.host_trace,
        origin: out.origin,
        notes: out.notes,
        ..objects.records.out
    };
    crate::check::segments(&out)?;
    Ok(out)
}

fn slot(objects: &Objects, value: Value) -> Option<DictSlot> {
    if let Value::Dict(id) = value { Some(objects.dicts[id as usize]) } else { None }
}

fn is_segments(objects: &Objects, items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|&item| matches!(slot(objects, item), Some(DictSlot::Segment(_))))
}

fn broken(objects: &Objects, fault: u32) -> ReadError {
    let (offset, reason) = objects.faults[fault as usize].clone();
    ReadError::Corrupt { offset, reason }
}

fn segments(objects: &mut Objects, value: Value, what: &str, offset: u64) -> Result<Vec<Segment>, ReadError> {
    let Some(items) = objects.items(value).map(<[Value]>::to_vec) else {
        return corrupt(offset, format!("'{what}' is no list of segments"));
    };
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        match slot(objects, item) {
            Some(DictSlot::Segment(at)) => {
                let segment = &mut objects.records.segments[at as usize];
                // Named twice it has no blocks the second time, and overlaps itself.
                let blocks = std::mem::take(&mut segment.blocks);
                out.push(Segment { blocks, ..segment.clone() });
            }
            Some(DictSlot::Broken(fault)) => return Err(broken(objects, fault)),
            _ => return corrupt(offset, format!("an item of '{what}' is no segment")),
        }
    }
    Ok(out)
}

fn traces(objects: &mut Objects, value: Value, offset: u64) -> Result<Vec<Trace>, ReadError> {
    let Some(items) = objects.items(value).map(<[Value]>::to_vec) else {
        return corrupt(offset, "'device_traces' is no list");
    };
    let mut out: Vec<Trace> = Vec::new();
    let mut left = objects.records.events.len();
    for item in items {
        let trace = trace(objects, item, "device_traces", offset)?;
        left = match left.checked_sub(trace.events.len()) {
            Some(left) => left,
            None => return corrupt(offset, "'device_traces' names a list of events twice"),
        };
        out.push(trace);
    }
    Ok(out)
}

/// A list of events. Where they lie one behind the other, as they do, they are taken without a copy of each.
fn trace(objects: &mut Objects, value: Value, what: &str, offset: u64) -> Result<Trace, ReadError> {
    let Some(items) = objects.items(value) else {
        return corrupt(offset, format!("'{what}' is no list of events"));
    };
    if items.is_empty() {
        return Ok(Trace::default());
    }
    let mut numbers = Vec::new();
    let mut run: Option<(u32, u32)> = None;
    for (at, &item) in items.iter().enumerate() {
        let number = match slot(objects, item) {
            Some(DictSlot::Event(number)) => number,
            Some(DictSlot::Broken(fault)) => return Err(broken(objects, fault)),
            _ => return corrupt(offset, format!("item {at} of '{what}' is no event")),
        };
        match &mut run {
            Some((from, len)) if *from + *len == number => *len += 1,
            None if numbers.is_empty() => run = Some((number, 1)),
            _ => {
                if let Some((from, len)) = run.take() {
                    numbers.extend(from..from + len);
                }
                numbers.push(number);
            }
        }
    }
    let all = &mut objects.records.events;
    let events: Vec<Event> = match run {
        Some((0, len)) if len as usize == all.len() => {
            let events = std::mem::take(all);
            // Whoever names them again finds them gone only if the file uses a list of events twice.
            objects.taken = true;
            events
        }
        _ if objects.taken => return corrupt(offset, format!("'{what}' has events that are another list's too")),
        Some((from, len)) => all[from as usize..(from + len) as usize].to_vec(),
        None => numbers.iter().map(|&number| all[number as usize]).collect(),
    };
    let mut events = events;
    events.shrink_to_fit();
    Ok(Trace { events })
}

fn count(value: Value) -> Option<u64> {
    if let Value::Int(n) = value { u64::try_from(n).ok() } else { None }
}

fn settings(objects: &mut Objects, value: Value, offset: u64) -> Result<AllocatorSettings, ReadError> {
    let Some(pairs) = objects.plain(value).map(<[(u32, Value)]>::to_vec) else {
        return corrupt(offset, "'allocator_settings' is no dictionary");
    };
    let mut out = AllocatorSettings::default();
    for (id, value) in pairs {
        let name = objects.text(id);
        match (name, value) {
            ("PYTORCH_CUDA_ALLOC_CONF", Value::Text(text)) => out.text = objects.text(text).to_owned(),
            ("max_split_size", v) => out.max_split_size = count(v),
            ("garbage_collection_threshold", Value::Float(share)) => out.garbage_collection_threshold = share,
            ("garbage_collection_threshold", Value::Int(share)) => out.garbage_collection_threshold = share as f64,
            ("expandable_segments", Value::Bool(on)) => out.expandable_segments = on,
            ("pinned_num_register_threads", Value::Int(n)) => out.pinned_num_register_threads = n.max(0) as u64,
            ("release_lock_on_cudamalloc", Value::Bool(on)) => out.release_lock_on_cudamalloc = on,
            ("pinned_use_cuda_host_register", Value::Bool(on)) => out.pinned_use_cuda_host_register = on,
            ("graph_capture_record_stream_reuse", Value::Bool(on)) => out.graph_capture_record_stream_reuse = on,
            ("max_round_threshold", v) => out.max_round_threshold = count(v),
            ("max_cached_size", v) => out.max_cached_size = count(v),
            ("roundup_power2_divisions", v) => {
                for &(size, divisions) in objects.plain(v).unwrap_or_default() {
                    let slot = objects.text(size).parse::<u64>().ok().filter(|size| size.is_power_of_two());
                    if let Some(slot) = slot
                        && let Some(divisions) = count(divisions)
                        && let Some(place) = out.roundup_power2_divisions.get_mut(slot.ilog2() as usize)
                    {
                        *place = divisions;
                    }
                }
            }
            _ => {
                let key = shown(name);
                objects.records.unknown.insert(("allocator_settings", key));
            }
        }
    }
    Ok(out)
}

/// What our own recorder adds.
fn origin(objects: &Objects, value: Value, offset: u64) -> Result<Origin, ReadError> {
    let Some(pairs) = objects.plain(value) else {
        return corrupt(offset, "'anyaccel' is no dictionary");
    };
    let mut out = Origin::default();
    for &(id, value) in pairs {
        match (objects.text(id), value) {
            ("writer", Value::Text(text)) => out.writer = objects.text(text).to_owned(),
            ("host_dropped", v) => out.host_dropped = count(v).unwrap_or(0),
            ("devices", v) => {
                for &device in objects.items(v).unwrap_or_default() {
                    let mut note = DeviceNote::default();
                    for &(id, value) in objects.plain(device).unwrap_or_default() {
                        match (objects.text(id), value) {
                            ("name", Value::Text(text)) => note.name = objects.text(text).to_owned(),
                            ("total_memory", v) => note.total_memory = count(v),
                            ("limit", v) => note.limit = count(v),
                            ("dropped", v) => note.dropped = count(v).unwrap_or(0),
                            _ => {}
                        }
                    }
                    out.devices.push(note);
                }
            }
            _ => {}
        }
    }
    Ok(out)
}
