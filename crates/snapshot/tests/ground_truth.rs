//! What real programs did under other settings than those they were recorded under, and whether a replay says the same.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::path::PathBuf;

use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::replay::{Addresses, Conf, Outcome, replay};
use anyaccel_snapshot::{History, Snapshot, read_file};
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots").join(name)
}

fn snapshot(name: &str) -> Snapshot {
    let path = data(name);
    read_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const COUNTED: [&str; 8] = [
    "peak_allocated",
    "peak_reserved",
    "peak_requested",
    "peak_active",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
];

fn counted(outcome: &Outcome) -> [u64; 8] {
    let stats = &outcome.stats;
    [
        outcome.peak_allocated(),
        outcome.peak_reserved(),
        stats.requested_bytes.all.peak,
        stats.active_bytes.all.peak,
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.num_device_alloc,
        stats.num_device_free,
    ]
}

fn expected(row: &Value) -> [u64; 8] {
    COUNTED.map(|key| row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}")))
}

/// The complete traces of each program, whatever setting each was recorded under.
const TRACES: [(&str, &[&str]); 6] = [
    ("oom_varlen", &["oom_varlen.exp"]),
    ("gpt_varlen", &["gpt_varlen.default", "gpt_varlen.exp", "gpt_varlen_skip_frees"]),
    ("decode", &["decode.default", "decode_tight.default"]),
    ("moe", &["moe.default"]),
    ("accumulate", &["accumulate"]),
    ("streams", &["streams"]),
];

#[test]
fn every_row_of_the_sweep_is_predicted_exactly() {
    let rows = lines("sweep.jsonl");
    let mut proven: HashMap<&str, usize> = HashMap::new();
    let mut wrong = Vec::new();
    for (workload, traces) in TRACES {
        for trace in traces {
            let history = History::of(&snapshot(&format!("{trace}.pickle.gz")), 0).unwrap();
            for row in rows.iter().filter(|row| row["workload"] == workload) {
                let text = row["config"].as_str().unwrap();
                let total = row["total_mb"].as_u64().unwrap() << 20;
                let outcome = replay(&history, &Conf::new(Settings::parse(text).unwrap(), total));
                let (got, want) = (counted(&outcome), expected(row));
                let failed = outcome.exhausted.is_some();
                if got != want || failed == row["oom_step"].is_null() {
                    wrong.push(format!("{trace}, {} MiB, '{text}': {got:?}, really {want:?}", total >> 20));
                }
                *proven.entry(workload).or_default() += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "of {COUNTED:?}:\n{}", wrong.join("\n"));
    let rows_of = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    for (workload, traces) in TRACES {
        assert_eq!(proven[workload], rows_of(workload) * traces.len());
    }
    assert_eq!(TRACES.iter().map(|(workload, _)| rows_of(workload)).sum::<usize>(), rows.len());
}

#[test]
fn a_replay_under_the_recorded_setting_counts_what_was_counted() {
    let mut wrong = Vec::new();
    let mut proven = 0;
    for row in lines("recorded.jsonl") {
        let file = row["file"].as_str().unwrap();
        // These began in the middle, or not at all; what they can't tell is tested below.
        if ["gpt_fixed_ring3000", "edge/edge_after_stop", "edge/edge_no_history"].contains(&file) {
            continue;
        }
        let packed = if file.starts_with("edge/") { "pickle" } else { "pickle.gz" };
        let snapshot = snapshot(&format!("{file}.{packed}"));
        for (device, want) in row["devices"].as_array().unwrap().iter().enumerate() {
            let history = History::of(&snapshot, device).unwrap();
            let mut conf =
                Conf::new(Settings::parse(row["config"].as_str().unwrap()).unwrap(), row["total"].as_u64().unwrap());
            if row["addresses"] == "firstfit" {
                conf.addresses = Addresses::Reuse;
            }
            let got = counted(&replay(&history, &conf));
            proven += 1;
            if got != expected(want) {
                wrong.push(format!("{file}, device {device}: {got:?}, really {:?}", expected(want)));
            }
        }
    }
    assert!(wrong.is_empty(), "of {COUNTED:?}:\n{}", wrong.join("\n"));
    assert!(proven >= 20, "{proven}");
}
