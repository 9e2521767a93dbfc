//! The golden histories: recordings of PyTorch 2.14's own caching allocator, replayed through the production cache.
//!
//! Every line must agree in placement, in the calls made to the device and in every counter, but for what the recorded
//! allocator itself leaves to chance: the order in which it visits the event queues of several streams (a hash order)
//! shows in some numbers of two histories, and what was asked for a block that is now free is stale.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyaccel_engine::alloc::Departures;
use anyaccel_engine::alloc::replay::{Conf, replay};
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/allocator")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data())
        .expect("the golden histories are in the repository")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".trace").map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn expected(name: &str) -> String {
    let file = std::fs::File::open(data().join(format!("{name}.expected.jsonl.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// Which of `[current, peak, allocated, freed]` of the two inactive-split statistics the history's queue order shows in.
fn left_to_chance(name: &str) -> &'static [usize] {
    match name {
        "streams2_record" => &[1],
        "streams5_record" => &[1, 2, 3],
        _ => &[],
    }
}

/// Removes from a line what is not to be compared.
fn comparable(line: &str, chance: &[usize]) -> Value {
    let mut value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let object = value.as_object_mut().unwrap();
    object.remove("msg");
    if let Some(calls) = object.get_mut("dev").and_then(Value::as_array_mut) {
        calls.retain(|call| !call.as_str().unwrap().starts_with(['E', 'Q', 'q', 'Z']));
        if calls.is_empty() {
            object.remove("dev");
        }
    }
    if let Some(stats) = object.get_mut("stats") {
        for key in ["inactive_split", "inactive_split_bytes"] {
            for pool in stats[key].as_array_mut().unwrap() {
                for &i in chance {
                    pool[i] = Value::Null;
                }
            }
        }
    }
    if let Some(segments) = object.get_mut("segments").and_then(Value::as_array_mut) {
        for segment in segments {
            for block in segment["blocks"].as_array_mut().unwrap() {
                if block[3] == 0 {
                    block[1] = Value::Null;
                }
            }
        }
    }
    value
}

fn check(name: &str, departures: Departures) -> Result<usize, String> {
    let conf = Conf::parse(&std::fs::read_to_string(data().join(format!("{name}.conf"))).unwrap()).unwrap();
    assert_eq!(conf.departures, Departures::NONE);
    let conf = Conf { departures, ..conf };
    let trace = std::fs::read_to_string(data().join(format!("{name}.trace"))).unwrap();
    let expected = expected(name);
    let mut lines = Vec::new();
    replay(&trace, &conf, &mut |line| lines.push(line.to_owned())).map_err(|e| format!("{name}: {e}"))?;
    let chance = left_to_chance(name);
    if lines.len() != expected.lines().count() {
        return Err(format!("{name}: {} lines, expected {}", lines.len(), expected.lines().count()));
    }
    for (ours, theirs) in lines.iter().zip(expected.lines()) {
        let (got, want) = (comparable(ours, chance), comparable(theirs, chance));
        if got != want {
            let keys = want.as_object().unwrap().keys().chain(got.as_object().unwrap().keys());
            let mut differences = String::new();
            for key in keys {
                if got.get(key) == want.get(key) {
                    continue;
                }
                match (&got[key], &want[key]) {
                    (Value::Object(g), Value::Object(w)) => {
                        for (k, w) in w.iter().filter(|(k, w)| g.get(*k) != Some(w)) {
                            differences +=
                                &format!("\n  {key}.{k}: {}, expected {w}", g.get(k).unwrap_or(&Value::Null));
                        }
                    }
                    (g, w) => differences += &format!("\n  {key}: {g}, expected {w}"),
                }
            }
            return Err(format!("{name}, line {} ({}):{differences}", want["i"], want["op"]));
        }
    }
    Ok(lines.len())
}

#[test]
fn every_history_agrees_on_every_line() {
    let names = names();
    assert_eq!(names.len(), 33, "{names:?}");
    let mut failures = Vec::new();
    let mut lines = 0;
    for name in &names {
        match check(name, Departures::NONE) {
            Ok(n) => lines += n,
            Err(failure) => failures.push(failure),
        }
    }
    assert!(failures.is_empty(), "{} of {} disagree:\n{}", failures.len(), names.len(), failures.join("\n"));
    assert!(lines > 20_000, "{lines}");
}

/// The departures only matter where the recorded allocator fails, or where settings and scopes meet that none of these
/// histories combines.
#[test]
fn the_departures_change_no_history() {
    let changed: Vec<String> = names().iter().filter_map(|name| check(name, Departures::ALL).err()).collect();
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}
