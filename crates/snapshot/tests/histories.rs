//! Histories that lack something, contradict themselves, or are small enough to be worked out by hand.
#![allow(missing_docs)]

mod pickle;

use std::path::Path;

use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::findings::findings;
use anyaccel_snapshot::replay::{Conf, Outcome, replay};
use anyaccel_snapshot::tune::{candidates, tune};
use anyaccel_snapshot::{Action, History, Snapshot, State, read_bytes, read_file};
use pickle::{Py, block, event, segment, snapshot};

const MIB: u64 = 1 << 20;

fn data(name: &str) -> Snapshot {
    read_file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots").join(name)).unwrap()
}

fn read(whole: &Py) -> Snapshot {
    read_bytes(&whole.pickle()).unwrap()
}

fn under(history: &History, settings: &str, total: u64) -> Outcome {
    replay(history, &Conf::new(Settings::parse(settings).unwrap(), total))
}

#[test]
fn a_recording_that_began_in_the_middle() {
    let ring = data("gpt_fixed_ring3000.pickle.gz");
    let history = History::of(&ring, 0).unwrap();
    let caveats = history.caveats();
    assert!(caveats.unseen_blocks > 0 && caveats.unseen_cached > 0, "{caveats:?}");
    let outcome = under(&history, "", 80 << 30);
    // The program really had 4475.4 and 4866 MiB; the steps are alike, so the last one nearly shows the peak.
    let (allocated, reserved) = (outcome.peak_allocated(), outcome.peak_reserved());
    assert!((4300 * MIB..=4476 * MIB).contains(&allocated), "{}", allocated / MIB);
    assert!((allocated..=4866 * MIB).contains(&reserved), "{}", reserved / MIB);
    let late = History::of(&data("edge/edge_late_start.pickle"), 0).unwrap();
    assert!(late.caveats().unseen_blocks > 0);
}

#[test]
fn frees_without_free_requested_are_enough() {
    let whole = History::of(&data("gpt_varlen.default.pickle.gz"), 0).unwrap();
    let skipped = History::of(&data("gpt_varlen_skip_frees.pickle.gz"), 0).unwrap();
    for settings in ["", "max_split_size_mb:64", "expandable_segments:True"] {
        let [a, b] = [&whole, &skipped].map(|history| under(history, settings, 8 << 30).stats);
        assert_eq!(a, b, "{settings}");
    }
}

#[test]
fn missing_frees_are_put_where_the_memory_was_used_again() {
    let mib = 1 << 20;
    let events = vec![
        event("segment_alloc", 64 * mib, 20 * mib),
        event("alloc", 64 * mib, 2 * mib),
        // Its free is missing: the next one takes its place.
        event("alloc", 64 * mib, 4 * mib),
        event("free_requested", 64 * mib, 4 * mib),
        event("free_completed", 64 * mib, 4 * mib),
    ];
    let segments = vec![segment(64 * mib, 20 * mib, vec![block(64 * mib, 20 * mib, "inactive")])];
    let history = History::of(&read(&snapshot(segments, events)), 0).unwrap();
    assert_eq!((history.caveats().missing_frees, history.caveats().missing_bytes), (1, 2 * MIB));
    assert_eq!(under(&history, "", 1 << 30).peak_allocated(), 4 * MIB);
}

#[test]
fn a_block_that_is_gone_without_a_free_is_told_of() {
    let events = vec![event("segment_alloc", 64 << 20, 20 << 20), event("alloc", 64 << 20, 2 << 20)];
    let segments = vec![segment(64 << 20, 20 << 20, vec![block(64 << 20, 20 << 20, "inactive")])];
    let history = History::of(&read(&snapshot(segments, events)), 0).unwrap();
    assert_eq!((history.caveats().lost_blocks, history.caveats().lost_bytes), (1, 2 * MIB));
}

#[test]
fn blocks_that_overlap_and_are_both_given_back_are_a_contradiction() {
    let events = vec![
        event("alloc", 4096, 4096),
        event("alloc", 6144, 4096),
        event("free_requested", 4096, 4096),
        event("free_completed", 4096, 4096),
        event("free_requested", 6144, 4096),
        event("free_completed", 6144, 4096),
    ];
    let error = History::of(&read(&snapshot(vec![], events)), 0).unwrap_err();
    assert_eq!(error.event, 1);
    assert!(error.to_string().contains("overlaps"), "{error}");
    let events =
        vec![event("alloc", 4096, 512), event("free_requested", 4096, 512), event("free_requested", 4096, 512)];
    assert!(History::of(&read(&snapshot(vec![], events)), 0).is_err());
}

#[test]
fn nothing_is_a_history_too() {
    for name in ["edge/edge_empty.pickle", "edge/edge_after_stop.pickle", "edge/edge_no_history.pickle"] {
        let snapshot = data(name);
        let history = History::of(&snapshot, 0).unwrap();
        assert_eq!(history.events(), 0);
        let outcome = under(&history, "", 1 << 30);
        let live = snapshot.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state.name() != "inactive");
        assert_eq!(outcome.stats.allocation.all.current, live.count() as u64, "{name}");
        assert_eq!(findings(&snapshot, 0).unwrap().events, 0);
    }
}

#[test]
fn a_request_that_failed_and_was_caught_is_no_end() {
    let snapshot = data("edge/edge_oom_caught_twice.pickle");
    let history = History::of(&snapshot, 0).unwrap();
    assert_eq!(history.total_memory(), Some(80 << 30));
    let outcome = under(&history, "", 80 << 30);
    assert_eq!((outcome.stats.num_ooms, outcome.survived.len()), (2, 0));
    assert!(outcome.exhausted.is_some_and(|exhausted| exhausted.recorded));
    let roomy = under(&history, "", 1 << 50);
    assert_eq!((roomy.stats.num_ooms, roomy.survived.len()), (0, 2));
}

#[test]
fn the_state_at_the_end_is_that_of_the_snapshot() {
    for name in ["oom_varlen.default", "gpt_varlen.exp", "accumulate", "decode_tight.default", "graph", "streams"] {
        let snapshot = data(&format!("{name}.pickle.gz"));
        let mut state = State::before(&snapshot, 0);
        state.run_to(usize::MAX);
        let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total).sum();
        assert_eq!(state.reserved(), reserved, "{name}");
        let spans: Vec<(u64, u64)> = state.spans().iter().map(|(&addr, span)| (addr, span.size)).collect();
        let segments: Vec<(u64, u64)> = snapshot.segments.iter().map(|s| (s.addr, s.total)).collect();
        assert_eq!(spans, segments, "{name}");
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let active: Vec<u64> = blocks.filter(|b| b.state.name() != "inactive").map(|b| b.addr).collect();
        assert_eq!(state.live().keys().copied().collect::<Vec<_>>(), active, "{name}");
        let gaps: u64 = state.gaps().iter().map(|gap| gap.size).sum();
        let live: u64 = state.live().values().map(|block| block.size.next_multiple_of(512)).sum();
        assert_eq!(gaps + live, reserved, "{name}");
    }
}

#[test]
fn findings_agree_with_a_count_by_hand() {
    let snapshot = data("oom_varlen.default.pickle.gz");
    let found = findings(&snapshot, 0).unwrap();
    let events = &snapshot.traces[0].events;
    let (mut now, mut peak, mut at) = (0u64, 0, 0);
    for (index, event) in events.iter().enumerate() {
        match event.action {
            Action::Alloc => now += event.size,
            Action::FreeRequested => now -= event.size,
            _ => {}
        }
        if now > peak {
            (peak, at) = (now, index);
        }
    }
    assert_eq!((found.peak, found.peak_event), (peak, Some(at)));
    // What PyTorch counted.
    assert_eq!((found.peak, found.peak_reserved), (3_853_034_672, 4_448_059_392));
    assert!(found.holders.iter().map(|share| share.bytes).sum::<u64>() <= peak);
    assert!(found.holders.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
    let story = &found.out_of_memory[0];
    assert_eq!((story.requested, found.failed), (365_166_592, 1));
    assert!(story.is_fragmentation());
    assert_eq!(
        story.memory.reserved,
        events.iter().fold(0, |sum, event| match event.action {
            Action::SegmentAlloc => sum + event.size,
            Action::SegmentFree => sum - event.size,
            _ => sum,
        })
    );
    let words = story.words(&snapshot).join(" ");
    assert!(words.contains("348.25 MiB") && words.contains("pin "), "{words}");
    let json = found.to_json(&snapshot);
    assert_eq!(json["peak_allocated"], peak);
}

#[test]
fn what_piles_up_is_found() {
    let mut events = Vec::new();
    for step in 0..40 {
        // One block a step stays.
        events.push(event("alloc", (1 << 30) + step * 4096, 1000));
        events.push(event("alloc", 1 << 40, 500));
        events.push(event("free_requested", 1 << 40, 500));
        events.push(event("free_completed", 1 << 40, 500));
    }
    let blocks = (0..40).map(|step| block((1 << 30) + step * 4096, 4096, "active_allocated")).collect();
    let found = findings(&read(&snapshot(vec![segment(1 << 30, 40 * 4096, blocks)], events)), 0).unwrap();
    assert_eq!(found.kept_total, (40_000, 40));
    assert!(found.kept[0].grows() && found.kept[0].quarters == [10; 4], "{:?}", found.kept);
    assert_eq!(found.requests, (80, 60_000));
}

#[test]
fn tuning_finds_what_gets_through() {
    let histories = [History::of(&data("oom_varlen.exp.pickle.gz"), 0).unwrap()];
    let mut told = 0;
    let tuning = tune(&histories, 4400 * MIB, &candidates(24), 2, &mut |done| {
        told = done;
        true
    })
    .unwrap();
    assert_eq!((told, tuning.candidates.len()), (24, 24));
    let best = tuning.best().unwrap();
    assert!(best.settings.contains("expandable_segments:True"), "{best:?}");
    assert_eq!(best.margin, 4400 * MIB - best.peak_reserved);
    assert!(!tuning.default.fits && tuning.default.oom.is_some());
    let least = tuning.least_memory.unwrap();
    assert!(least < 4400 * MIB && least >= best.peak_allocated, "{least}");
    let settings = Settings::parse(&best.settings).unwrap();
    assert!(replay(&histories[0], &Conf::new(settings, least)).exhausted.is_none());
    // Each candidate is what a replay says.
    for candidate in &tuning.candidates {
        let outcome = under(&histories[0], &candidate.settings, 4400 * MIB);
        assert_eq!((candidate.fits, candidate.peak_reserved), (outcome.exhausted.is_none(), outcome.peak_reserved()));
    }
    let none = tune(&histories, 1000 * MIB, &candidates(4), 1, &mut |_| true).unwrap();
    assert!(none.best().is_none() && none.least_memory.is_none());
    assert!(tune(&histories, 4400 * MIB, &candidates(4), 1, &mut |_| false).is_none());
}
