//! How fast a memory history of a million events is read, replayed and tuned, and how much memory it takes. The history
//! is a recorded one of training, run on and on.
#![allow(missing_docs)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::findings::findings;
use anyaccel_snapshot::replay::{Conf, replay};
use anyaccel_snapshot::tune::{CANDIDATES, candidates, tune};
use anyaccel_snapshot::{Action, Event, History, Snapshot, read_bytes, read_file};

const EVENTS: usize = 1_000_000;

/// The history again and again, everything given back in between, until there are enough events.
fn repeated(mut snapshot: Snapshot, events: usize) -> Snapshot {
    let once = std::mem::take(&mut snapshot.traces[0].events);
    let mut live: std::collections::BTreeMap<u64, Event> = std::collections::BTreeMap::new();
    for event in &once {
        match event.action {
            Action::Alloc => drop(live.insert(event.addr, *event)),
            Action::FreeRequested | Action::FreeCompleted => drop(live.remove(&event.addr)),
            _ => {}
        }
    }
    let mut all: Vec<Event> = Vec::with_capacity(events + once.len());
    let mut first = true;
    while all.len() < events {
        // Segments stay: they are taken once.
        all.extend(once.iter().filter(|event| first || !matches!(event.action, Action::SegmentAlloc)));
        for event in live.values() {
            for action in [Action::FreeRequested, Action::FreeCompleted] {
                all.push(Event { action, ..*event });
            }
        }
        first = false;
    }
    snapshot.traces[0].events = all;
    for segment in &mut snapshot.segments {
        segment.blocks.clear();
    }
    snapshot
}

/// The median of some runs, in seconds.
fn median<T>(runs: usize, mut work: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

fn main() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots/gpt_varlen.default.pickle.gz");
    let snapshot = match read_file(&path) {
        Ok(snapshot) => repeated(snapshot, EVENTS),
        Err(error) => return eprintln!("{}: {error}", path.display()),
    };
    let pickle = snapshot.to_pickle();
    let events = snapshot.traces[0].events.len();
    println!("{events} events, {} MiB as a pickle", pickle.len() >> 20);

    let load = median(5, || read_bytes(&pickle).map(|snapshot| snapshot.events()));
    println!("load         {load:.3} s, {:.0} MB/s (goal: 1 s)", pickle.len() as f64 / load / 1e6);
    println!("memory       {:.0} bytes an event (goal: 200)", snapshot.footprint() as f64 / events as f64);
    let prepare = median(3, || History::of(&snapshot, 0).map(|history| history.events()));
    println!("prepare      {prepare:.3} s");
    let found = median(3, || findings(&snapshot, 0).map(|found| found.peak));
    println!("findings     {found:.3} s");
    let history = match History::of(&snapshot, 0) {
        Ok(history) => history,
        Err(error) => return eprintln!("{error}"),
    };
    for text in ["", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"] {
        let Ok(settings) = Settings::parse(text) else { continue };
        let took = median(5, || replay(&history, &Conf::new(settings.clone(), 80 << 30)).done);
        println!("replay       {:.1} M events/s, '{text}' (goal: 5)", events as f64 / took / 1e6);
    }
    let histories = [history];
    let start = Instant::now();
    let tried = tune(&histories, 6 << 30, &candidates(CANDIDATES), 2, &mut |_| true).map_or(0, |t| t.candidates.len());
    println!("tune         {:.1} s for {tried} settings, 2 threads (goal: 20 s)", start.elapsed().as_secs_f64());
}
