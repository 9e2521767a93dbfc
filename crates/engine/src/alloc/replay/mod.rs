//! Replays a recorded history of allocator calls through the production cache, over devices that are only numbers.
//!
//! A history is a text: one operation a line (`stats_every N` first), as in `testing/data/allocator`. For each the replay
//! gives one line of JSON: where the block lies, which calls were made to the device, what the counters read. The
//! recordings there come from PyTorch 2.14's own allocator; the golden test compares every line.
//!
//! ```
//! use anyaccel_engine::alloc::replay::{Conf, replay};
//!
//! let conf = Conf::parse("FAKE_CUDA_TOTAL_MB=64\nPYTORCH_ALLOC_CONF=large_segment_size_mb:32\n")?;
//! let mut lines = Vec::new();
//! replay("stats_every 0\nalloc a 2097152 0\nfree a\n", &conf, &mut |line| lines.push(line.to_owned()))?;
//! assert_eq!(lines[0], r#"{"i":0,"op":"alloc a 2097152 0","r":"ok","seg":0,"off":0,"dev":["M0.0:33554432"]}"#);
//! # Ok::<(), anyaccel_engine::alloc::replay::ReplayError>(())
//! ```

mod fake;
mod json;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::policy::{Departures, MIB};
use super::{AllocError, DeviceCache, Handle, PoolId, Ports, Scope, Settings, SettingsError};
pub use fake::FakeDevice;
use json::Line;

/// The circumstances of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Conf {
    /// Memory of each device, in bytes.
    pub total: u64,
    /// How many devices there are.
    pub devices: u32,
    /// Settings of the allocator.
    pub settings: Settings,
    /// Departures from the recorded allocator; a history of that one wants none.
    pub departures: Departures,
}

impl Default for Conf {
    /// One device of 80 GiB, default settings, no departures.
    fn default() -> Self {
        Conf { total: 81920 * MIB, devices: 1, settings: Settings::default(), departures: Departures::NONE }
    }
}

/// Why a history could not be replayed.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayError {
    /// A line that makes no sense: its number (from 1), its text and what is wrong.
    Line(usize, String, String),
    /// The settings.
    Settings(SettingsError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Line(number, text, reason) => write!(f, "line {number}: '{text}': {reason}"),
            ReplayError::Settings(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl Conf {
    /// Parses `KEY=VALUE` lines: `FAKE_CUDA_TOTAL_MB`, `FAKE_CUDA_DEVICES`, and the settings in any of their environment
    /// variables. Other keys are passed over: they belong to the recording.
    ///
    /// # Errors
    /// A line without `=`, a number that is none, settings that are wrong.
    pub fn parse(text: &str) -> Result<Conf, ReplayError> {
        let mut conf = Conf::default();
        let mut env: HashMap<&str, &str> = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| ReplayError::Line(i + 1, line.to_owned(), reason.to_owned());
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("expected KEY=VALUE"))?;
            match key {
                "FAKE_CUDA_TOTAL_MB" => {
                    let mib: u64 = value.parse().map_err(|_| wrong("expected a whole number of MiB"))?;
                    conf.total = mib.saturating_mul(MIB);
                }
                "FAKE_CUDA_DEVICES" => {
                    conf.devices = value.parse().map_err(|_| wrong("expected a number of devices"))?;
                }
                _ => {
                    env.insert(key, value);
                }
            }
        }
        conf.settings =
            Settings::from_env(|name| env.get(name).map(|v| (*v).to_owned())).map_err(ReplayError::Settings)?;
        Ok(conf)
    }
}

/// What became of an `alloc`.
#[derive(Clone, Copy)]
enum Fate {
    Live(Handle, usize),
    Null,
    Failed,
}

struct Replayer<'c> {
    conf: &'c Conf,
    fakes: Vec<Arc<FakeDevice>>,
    caches: Vec<DeviceCache>,
    fates: HashMap<String, Fate>,
    current: usize,
    every: u64,
    index: u64,
}

/// Replays a history and gives each line of the answer to `out`.
///
/// # Errors
/// A line that can't be parsed. The lines before it have been replayed and given out.
pub fn replay(trace: &str, conf: &Conf, out: &mut dyn FnMut(&str)) -> Result<(), ReplayError> {
    let log = Arc::new(fake::Log::default());
    let fakes: Vec<_> =
        (0..conf.devices).map(|index| Arc::new(FakeDevice::new(index, conf.total, Some(log.clone())))).collect();
    let caches = fakes
        .iter()
        .zip(0..)
        .map(|(fake, index)| DeviceCache::new(index, fake.clone().ports(), conf.settings.clone(), conf.departures));
    let caches = caches.collect();
    let mut replayer = Replayer { conf, fakes, caches, fates: HashMap::new(), current: 0, every: 0, index: 0 };
    for (number, text) in trace.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |reason: String| ReplayError::Line(number + 1, text.to_owned(), reason);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words[0] == "stats_every" {
            replayer.every = parse(&words, 1).map_err(wrong)?;
            continue;
        }
        let mut line = Line::new(replayer.index, text);
        let always = replayer.step(&words, &mut line).map_err(wrong)?;
        line.calls(&log.take());
        if words[0] == "snapshot" {
            line.segments(&replayer.caches[replayer.current].snapshot());
        }
        if always || (replayer.every > 0 && replayer.index.is_multiple_of(replayer.every)) {
            line.stats(&replayer.caches[replayer.current].stats());
        }
        out(&line.end());
        replayer.index += 1;
    }
    Ok(())
}

fn parse<T: std::str::FromStr>(words: &[&str], at: usize) -> Result<T, String> {
    let word = words.get(at).ok_or_else(|| format!("'{}' needs {at} or more arguments", words[0]))?;
    word.parse().map_err(|_| format!("'{word}' is not what '{}' takes as argument {at}", words[0]))
}

fn result<E: fmt::Display>(line: &mut Line, result: Result<(), E>) {
    match result {
        Ok(()) => line.result("ok"),
        Err(error) => line.error(&error.to_string()),
    }
}

impl Replayer<'_> {
    fn cache(&self) -> &DeviceCache {
        &self.caches[self.current]
    }

    /// Does one operation. Says whether its line has statistics in any case.
    fn step(&mut self, words: &[&str], line: &mut Line) -> Result<bool, String> {
        let pool = || Ok::<_, String>(PoolId(parse(words, 1)?, parse(words, 2)?));
        match words[0] {
            "alloc" => {
                let id: String = parse(words, 1)?;
                return self.alloc(id, parse(words, 2)?, parse(words, 3)?, line);
            }
            "free" => match self.fates.remove(words.get(1).copied().unwrap_or_default()) {
                None => line.error("no such allocation"),
                Some(Fate::Failed) => line.result("skip"),
                Some(Fate::Null) => line.result("ok"),
                Some(Fate::Live(handle, device)) => result(line, self.caches[device].free(handle)),
            },
            "record" => {
                let stream = parse(words, 2)?;
                match self.fates.get(words[1]) {
                    None => line.error("no such allocation"),
                    Some(Fate::Failed) => line.result("skip"),
                    Some(Fate::Null) => line.result("ok"),
                    Some(Fate::Live(handle, device)) => result(line, self.caches[*device].record(*handle, stream)),
                }
            }
            "hold" => {
                let held = parse::<u8>(words, 1)? != 0;
                self.fakes.iter().for_each(|fake| fake.hold(held));
                line.result("ok");
            }
            "empty_cache" => result(line, self.caches.iter().try_for_each(DeviceCache::empty_cache)),
            "stats" => {
                line.result("ok");
                return Ok(true);
            }
            "snapshot" => line.result("ok"),
            "reset_peak" => {
                self.cache().reset_peak_stats();
                line.result("ok");
            }
            "reset_accumulated" => {
                self.cache().reset_accumulated_stats();
                line.result("ok");
            }
            "fraction" => result(line, self.cache().set_fraction(parse(words, 1)?)),
            "device" => {
                let device: usize = parse(words, 1)?;
                if device >= self.caches.len() {
                    return Err(format!("there are {} devices", self.conf.devices));
                }
                self.current = device;
                line.result("ok");
            }
            "current" => {
                parse::<u64>(words, 1)?;
                line.result("ok");
            }
            "pool_begin" => {
                let scope = if words.get(3) == Some(&"*") { Scope::All } else { Scope::Stream(parse(words, 3)?) };
                result(line, self.cache().begin_pool(pool()?, scope));
            }
            "pool_end" => result(line, self.cache().end_pool(pool()?)),
            "pool_release" => result(line, self.cache().release_pool(pool()?)),
            "capture" => {
                let stream = parse(words, 1)?;
                if parse::<u8>(words, 2)? != 0 {
                    self.cache().capture_begin(stream);
                } else {
                    self.cache().capture_end(stream);
                }
                line.result("ok");
            }
            other => return Err(format!("'{other}' is no operation")),
        }
        Ok(false)
    }

    fn alloc(&mut self, id: String, size: u64, stream: u64, line: &mut Line) -> Result<bool, String> {
        let (fate, always) = match self.cache().alloc(size, stream) {
            Ok(Some(block)) => {
                line.result("ok");
                line.place(block.segment, block.offset);
                (Fate::Live(block.handle, self.current), false)
            }
            Ok(None) => {
                line.result("null");
                (Fate::Null, false)
            }
            Err(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }) => {
                line.result("oom");
                (Fate::Failed, true)
            }
            Err(error) => {
                line.error(&error.to_string());
                (Fate::Failed, false)
            }
        };
        if let Some(Fate::Live(..)) = self.fates.insert(id, fate) {
            return Err("that name is still in use".into());
        }
        Ok(always)
    }
}

impl FakeDevice {
    /// The ports of a cache over this device.
    pub fn ports(self: Arc<Self>) -> Ports {
        Ports { segments: self.clone(), growable: Some(self.clone()), marks: self }
    }
}
