//! Any bytes as a snapshot: read, written again, replayed, examined.
//!
//! ```text
//! cargo +nightly fuzz run snapshot -- -max_len=65536 testing/data/snapshots/edge
//! ```
#![no_main]

use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::findings::findings;
use anyaccel_snapshot::replay::{Conf, replay};
use anyaccel_snapshot::{History, Limits, read_bytes, read_within};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(snapshot) = read_within(bytes, Limits { memory: 64 << 20 }) else { return };
    let pickle = snapshot.to_pickle();
    let again = read_bytes(&pickle).expect("what was written is read");
    assert_eq!(again.to_pickle(), pickle);
    let Ok(histories) = History::all(&snapshot) else { return };
    for history in histories {
        replay(&history, &Conf::new(Settings::default(), 1 << 30));
        let found = findings(&snapshot, history.device()).expect("a history that can be replayed");
        found.to_json(&snapshot);
    }
});
