//! Searches the settings under which a recorded program would fit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use anyaccel_engine::alloc::Settings;

use crate::history::History;
use crate::replay::{Addresses, Conf, Outcome, replay, replay_while};

/// One setting and what it came to, on all devices together.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The string for the environment; empty for the defaults.
    pub settings: String,
    /// Whether the program got through.
    pub fits: bool,
    /// Where it ran out: device and event.
    pub oom: Option<(usize, usize)>,
    /// Share of the history done.
    pub done: f64,
    /// Peaks of the device that came closest to its memory.
    pub peak_allocated: u64,
    /// As above.
    pub peak_reserved: u64,
    /// Requests that had to free unused memory first, a stall each.
    pub retries: u64,
    /// Calls to the devices.
    pub device_calls: u64,
    /// Memory to spare at the peak of that device.
    pub margin: u64,
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Memory of each device that it was for.
    pub total: u64,
    /// All candidates, the best first.
    pub candidates: Vec<Candidate>,
    /// How the defaults did.
    pub default: Candidate,
    /// The least memory, to a hundredth, with which the best one gets through, if one does below `total`.
    pub least_memory: Option<u64>,
}

impl Tuning {
    /// The best candidate, if one gets through.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first().filter(|candidate| candidate.fits)
    }
}

/// How many settings are tried if nobody says.
pub const CANDIDATES: usize = 64;

/// Settings worth trying, the likeliest first: `most` of them.
pub fn candidates(most: usize) -> Vec<String> {
    let gc = |share: &str| format!("garbage_collection_threshold:{share},per_process_memory_fraction:0.95");
    let mut out = vec![String::new(), "expandable_segments:True".into()];
    let splits = [64, 128, 256, 512, 32, 96, 192, 384, 48, 1024];
    out.extend(splits.iter().map(|mib| format!("max_split_size_mb:{mib}")));
    out.extend([8, 4, 16, 2].iter().map(|n| format!("roundup_power2_divisions:{n}")));
    out.extend(["0.8", "0.6", "0.9"].map(gc));
    out.extend([64, 32, 128].iter().map(|mib| format!("large_segment_size_mb:{mib}")));
    out.extend([8, 16, 4].iter().map(|n| format!("expandable_segments:True,roundup_power2_divisions:{n}")));
    for mib in [64, 128, 256, 512, 32, 96] {
        out.extend([8, 16].iter().map(|n| format!("max_split_size_mb:{mib},roundup_power2_divisions:{n}")));
        out.push(format!("max_split_size_mb:{mib},{}", gc("0.8")));
    }
    out.extend([8, 16].iter().map(|n| format!("roundup_power2_divisions:{n},{}", gc("0.8"))));
    out.push("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]".into());
    out.extend([64, 32].iter().map(|mib| format!("large_segment_size_mb:{mib},roundup_power2_divisions:8")));
    out.extend([64, 128].iter().map(|mib| format!("max_split_size_mb:{mib},max_non_split_rounding_mb:64")));
    out.extend([128, 256, 512].iter().map(|mib| format!("large_segment_size_mb:64,max_split_size_mb:{mib}")));
    out.extend([768, 2048].iter().map(|mib| format!("max_split_size_mb:{mib}")));
    for mib in [192, 384, 1024, 48] {
        out.push(format!("max_split_size_mb:{mib},roundup_power2_divisions:8"));
        out.push(format!("max_split_size_mb:{mib},{}", gc("0.8")));
    }
    out.truncate(most.max(1));
    out
}

fn weigh(histories: &[History], settings: &str, outcomes: &[Outcome], totals: &[u64]) -> Candidate {
    let mut out = Candidate {
        settings: settings.to_owned(),
        fits: true,
        oom: None,
        done: 1.0,
        peak_allocated: 0,
        peak_reserved: 0,
        retries: 0,
        device_calls: 0,
        margin: u64::MAX,
    };
    let (mut done, mut all) = (0, 0);
    for ((history, outcome), total) in histories.iter().zip(outcomes).zip(totals) {
        if let Some(exhausted) = outcome.exhausted.as_ref() {
            out.fits = false;
            out.oom.get_or_insert((history.device(), exhausted.event));
        }
        out.retries += outcome.stats.num_alloc_retries;
        out.device_calls += outcome.stats.num_device_alloc + outcome.stats.num_device_free;
        let margin = total.saturating_sub(outcome.peak_reserved());
        if margin < out.margin {
            out.margin = margin;
            (out.peak_allocated, out.peak_reserved) = (outcome.peak_allocated(), outcome.peak_reserved());
        }
        done += outcome.done;
        all += history.ops.len();
    }
    out.done = if all > 0 { done as f64 / all as f64 } else { 1.0 };
    out
}

/// What orders candidates: those that get through, the fewest stalls, the most memory to spare, the fewest calls. Of
/// those that don't, the ones that came farthest.
fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    let fits = b.fits.cmp(&a.fits);
    if !a.fits && !b.fits {
        return fits.then(b.done.total_cmp(&a.done)).then(a.settings.len().cmp(&b.settings.len()));
    }
    fits.then(a.retries.cmp(&b.retries))
        .then(b.margin.cmp(&a.margin))
        .then(a.device_calls.cmp(&b.device_calls))
        .then(a.settings.len().cmp(&b.settings.len()))
        .then(a.settings.cmp(&b.settings))
}

fn run(histories: &[History], settings: &Settings, total: u64, go_on: &AtomicBool) -> Option<Vec<Outcome>> {
    let conf = Conf { settings: settings.clone(), total, addresses: Addresses::Rise };
    let one = |history| replay_while(history, &conf, &mut |_| go_on.load(Ordering::Relaxed));
    histories.iter().map(one).collect()
}

fn fits(histories: &[History], settings: &Settings, total: u64) -> bool {
    let conf = Conf { settings: settings.clone(), total, addresses: Addresses::Rise };
    histories.iter().all(|history| replay(history, &conf).exhausted.is_none())
}

/// The least memory, to a hundredth, with which these settings get through.
fn least(histories: &[History], settings: &Settings, total: u64) -> u64 {
    let (mut low, mut high) = (0, total);
    while high - low > (high / 100).max(2 << 20) {
        let middle = (low + (high - low) / 2) >> 20 << 20;
        if middle <= low || middle == 0 {
            break;
        }
        if fits(histories, settings, middle) { high = middle } else { low = middle }
    }
    high
}

/// Tries settings on devices of `total` bytes each, on `threads` threads, and says after each how many are done.
/// `None` if `progress` says `false`. Strings that are no settings are passed over.
pub fn tune(
    histories: &[History],
    total: u64,
    settings: &[String],
    threads: usize,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Option<Tuning> {
    let mut texts: Vec<&str> = vec![""];
    texts.extend(settings.iter().map(String::as_str).filter(|text| !text.is_empty()));
    let parsed: Vec<(&str, Settings)> =
        texts.into_iter().filter_map(|text| Settings::parse(text).ok().map(|settings| (text, settings))).collect();
    let totals = vec![total; histories.len()];
    let (next, go_on) = (AtomicUsize::new(0), AtomicBool::new(true));
    let (sender, receiver) = mpsc::channel();
    let found = std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, parsed.len().max(1)) {
            let (sender, parsed, next, go_on, totals) = (sender.clone(), &parsed, &next, &go_on, &totals);
            scope.spawn(move || {
                while let Some((text, settings)) = parsed.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(outcomes) = run(histories, settings, total, go_on) else { return };
                    if sender.send(weigh(histories, text, &outcomes, totals)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut found: Vec<Candidate> = Vec::new();
        while let Ok(candidate) = receiver.recv() {
            found.push(candidate);
            if !progress(found.len()) {
                go_on.store(false, Ordering::Relaxed);
                return None;
            }
        }
        Some(found)
    })?;
    let mut candidates = found;
    candidates.sort_by(order);
    let default = candidates.iter().find(|candidate| candidate.settings.is_empty())?.clone();
    let least_memory = match candidates.first().filter(|best| best.fits) {
        None => None,
        Some(best) => Settings::parse(&best.settings).ok().map(|settings| least(histories, &settings, total)),
    };
    Some(Tuning { total, candidates, default, least_memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_candidates_and_all_make_sense() {
        let all = candidates(usize::MAX);
        assert!(all.len() >= CANDIDATES, "{}", all.len());
        for text in &all {
            assert!(Settings::parse(text).is_ok(), "{text}");
        }
        let mut once = all.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), all.len());
        assert_eq!(candidates(5).len(), 5);
    }
}
