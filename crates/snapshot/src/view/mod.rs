//! One page that shows a memory history: no network, no other file. The events are in it as packed columns; its scripts
//! draw them, and its words and tables are the findings'.

mod columns;
mod words;

use std::io::{self, Write};
use std::path::Path;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::findings::findings;
use crate::words::stack_line;
use crate::{FrameId, Snapshot, StackId, Stage, WriteError};
use columns::Track;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In the order in which they build on each other.
const SCRIPTS: [&str; 7] = [
    include_str!("page/data.js"),
    include_str!("page/layout.js"),
    include_str!("page/timeline.js"),
    include_str!("page/flame.js"),
    include_str!("page/map.js"),
    include_str!("page/summary.js"),
    include_str!("page/page.js"),
];

/// What the page may load and run: what is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// What the page tells its scripts.
#[derive(Serialize)]
struct Meta<'s> {
    title: &'s str,
    subtitle: String,
    notes: &'s [String],
    settings: Vec<(&'static str, String)>,
    tracks: Vec<TrackMeta>,
    pools: &'s [(u64, u64)],
    frames: Vec<String>,
    stacks: Vec<Vec<u32>>,
    /// What to call each stack in one line.
    lines: Vec<String>,
    annotations: Vec<(&'s str, i32, bool, f64)>,
}

#[derive(Serialize)]
struct TrackMeta {
    name: String,
    /// The device's number; -1 for pinned memory.
    device: i64,
    /// When the first event was, in microseconds since 1970: the columns count from there.
    first: i64,
    length: usize,
    /// Events of ours in front: what was there before the recording.
    before: usize,
    /// Whether the trace tells when a block is free again, not only when it is given back.
    completions: bool,
    streams: Vec<u64>,
    dropped: u64,
    total: Option<u64>,
    /// As `anyaccel memory --json` prints them, or `{"error": ...}` for a history that contradicts itself.
    findings: Value,
}

/// Writes the page of a history to a file. A file that is there is replaced, at once.
///
/// # Errors
/// [`WriteError`], naming the path; what was there before is still there.
pub fn save(snapshot: &Snapshot, title: &str, path: impl AsRef<Path>) -> Result<(), WriteError> {
    crate::write::save("the page", path.as_ref(), |out| write(snapshot, title, out))
}

/// Writes the page of a history.
///
/// # Errors
/// What the writer says.
pub fn write(snapshot: &Snapshot, title: &str, out: &mut dyn Write) -> io::Result<()> {
    let pinned = columns::pinned(snapshot);
    let tracks = columns::tracks(snapshot, pinned.as_ref());
    let meta = Meta {
        title,
        subtitle: words::subtitle(snapshot),
        notes: &snapshot.notes,
        settings: words::settings(snapshot),
        tracks: tracks.iter().map(|track| about(snapshot, track)).collect(),
        pools: &snapshot.pools,
        frames: (0..snapshot.frames.len() as u32).map(|id| snapshot.frame_text(FrameId(id))).collect(),
        stacks: (0..snapshot.stacks.count() as u32)
            .map(|id| snapshot.stacks.get(StackId(id)).iter().map(|frame| frame.0).collect())
            .collect(),
        lines: (0..snapshot.stacks.count() as u32).map(|id| stack_line(snapshot, StackId(id))).collect(),
        annotations: snapshot
            .annotations
            .iter()
            .map(|a| (snapshot.names.get(a.name), a.device, a.stage == Stage::Start, a.time_us as f64))
            .collect(),
    };
    // In a script element only `</` and `<!--` end or change what is read.
    let meta = serde_json::to_string(&meta)?.replace('<', "\\u003c");
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    for track in &tracks {
        track.write(&mut packed)?;
    }
    let packed = packed.finish()?;
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Memory history</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n{PAGE}"
    )?;
    writeln!(out, "<script id=\"meta\" type=\"application/json\">{meta}</script>")?;
    let columns = Base64Display::new(&packed, &STANDARD);
    writeln!(out, "<script id=\"columns\" type=\"application/octet-stream\">{columns}</script>")?;
    out.write_all(b"<script>\n")?;
    for script in SCRIPTS {
        // Each says that it is strict; one after the other they are one script, which says so once.
        out.write_all(script.strip_prefix("\"use strict\";\n").map_or(script.to_owned(), str::to_owned).as_bytes())?;
    }
    out.write_all(b"</script>\n</body>\n</html>\n")
}

fn about(snapshot: &Snapshot, track: &Track<'_>) -> TrackMeta {
    let is_device = std::ptr::eq(track.history, snapshot);
    let origin = snapshot.origin.as_ref();
    let note = origin.filter(|_| is_device).and_then(|origin| origin.devices.get(track.device));
    TrackMeta {
        name: track.name.clone(),
        device: if is_device { track.device as i64 } else { -1 },
        first: track.events.first().map_or(0, |event| event.time_us),
        length: track.length(),
        before: track.before.len(),
        completions: track.completions(),
        streams: track.streams.clone(),
        dropped: if is_device { note.map_or(0, |note| note.dropped) } else { origin.map_or(0, |it| it.host_dropped) },
        total: note.and_then(|note| note.total_memory),
        findings: match findings(track.history, track.device) {
            Ok(found) => found.to_json(snapshot),
            Err(error) => json!({ "error": error.to_string() }),
        },
    }
}
