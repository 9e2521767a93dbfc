//! Real files with bytes changed: whatever is in them, nothing panics and every error is one line. The same every time;
//! `fuzz/` goes on from here.
#![allow(missing_docs)]

use std::path::Path;

use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::findings::findings;
use anyaccel_snapshot::replay::{Conf, replay};
use anyaccel_snapshot::{History, Limits, read_within};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

/// Reads it and, if that goes well, does everything else with it. Says whether it went well.
fn examined(bytes: &[u8]) -> bool {
    let snapshot = match read_within(bytes, Limits { memory: 64 << 20 }) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            return false;
        }
    };
    let _again = snapshot.to_pickle();
    match History::all(&snapshot) {
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            false
        }
        Ok(histories) => {
            for history in histories {
                for text in ["", "expandable_segments:True"] {
                    let settings = Settings::parse(text).unwrap();
                    replay(&history, &Conf::new(settings, 1 << 30));
                }
                let found = findings(&snapshot, history.device()).unwrap();
                found.to_json(&snapshot);
                for story in &found.out_of_memory {
                    story.words(&snapshot);
                }
            }
            true
        }
    }
}

#[test]
fn nothing_panics_whatever_is_in_a_file() {
    let edge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots/edge");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut good, mut bad) = (0, 0);
    let mut files: Vec<_> = std::fs::read_dir(edge).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let rounds = std::env::var("ANYACCEL_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    for path in files {
        let whole = std::fs::read(&path).unwrap();
        assert!(examined(&whole), "{}", path.display());
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(5) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes[at] = random.below(256) as u8,
                    2 => {
                        bytes.remove(at);
                    }
                    3 => bytes.insert(at, random.below(256) as u8),
                    _ => {
                        let len = random.below(64).min(bytes.len() - at);
                        let part = bytes[at..at + len].to_vec();
                        let to = random.below(bytes.len());
                        bytes.splice(to..to, part);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            if examined(&bytes) { good += 1 } else { bad += 1 }
        }
    }
    // Both kinds were met, or the test would prove nothing.
    assert!(good > 50 && bad > 500, "{good} {bad}");
}
