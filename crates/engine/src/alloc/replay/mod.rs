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

mod conf;
mod fake;
mod json;
mod tally;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{AllocError, DeviceCache, Handle, PoolId, Ports, Scope};
pub use conf::{Conf, ReplayError};
pub use fake::FakeDevice;
use json::Line;
pub use tally::{DeviceTally, Exhausted, Tally};

/// What the first line of a history begins with.
pub const HEADER: &str = "stats_every";

/// The operations: name, and how they are written.
const OPERATIONS: [(&str, &str); 15] = [
    ("alloc", "alloc ID SIZE STREAM"),
    ("free", "free ID"),
    ("record", "record ID STREAM"),
    ("hold", "hold 0|1"),
    ("empty_cache", "empty_cache"),
    ("stats", "stats"),
    ("reset_peak", "reset_peak"),
    ("reset_accumulated", "reset_accumulated"),
    ("fraction", "fraction F"),
    ("snapshot", "snapshot"),
    ("device", "device N"),
    ("current", "current STREAM"),
    ("pool_end", "pool_end A B"),
    ("pool_release", "pool_release A B"),
    ("capture", "capture STREAM 0|1"),
];

/// One more, whose last word may be `*`.
const POOL_BEGIN: &str = "pool_begin A B STREAM|*";

/// What became of an `alloc`.
#[derive(Clone, Copy)]
enum Fate {
    Live(Handle, usize),
    Null,
    Failed,
}

/// A history under way: takes line after line, and keeps only what is live.
pub struct Replay {
    log: Arc<fake::Log>,
    fakes: Vec<Arc<FakeDevice>>,
    caches: Vec<DeviceCache>,
    fates: HashMap<String, Fate>,
    current: usize,
    every: Option<u64>,
    /// Lines taken, all of them.
    lines: u64,
    tally: Tally,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("lines", &self.lines).field("tally", &self.tally).finish_non_exhaustive()
    }
}

/// Replays a history and gives each line of the answer to `out`.
///
/// # Errors
/// A line that can't be parsed or makes no sense. The lines before it have been replayed and given out.
pub fn replay(trace: &str, conf: &Conf, out: &mut dyn FnMut(&str)) -> Result<(), ReplayError> {
    let mut replay = Replay::new(conf);
    for text in trace.lines() {
        if let Some(line) = replay.line(text)? {
            out(&line);
        }
    }
    Ok(())
}

/// The arguments of an operation.
struct Words<'t> {
    usage: &'static str,
    words: Vec<&'t str>,
}

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let known = |name: &str| OPERATIONS.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage);
        let usage = match words[0] {
            HEADER => return Err(format!("{HEADER} is the first line of a history, and only that")),
            "pool_begin" => POOL_BEGIN,
            name => known(name).ok_or_else(|| {
                let names: Vec<&str> = OPERATIONS.iter().map(|(name, _)| *name).chain(["pool_begin"]).collect();
                format!("'{name}' is no operation; known are {}", names.join(", "))
            })?,
        };
        if words.len() != usage.split(' ').count() {
            return Err(format!("expected '{usage}'"));
        }
        Ok(Words { usage, words })
    }

    fn get<T: std::str::FromStr>(&self, at: usize, what: &str) -> Result<T, String> {
        let word = self.words[at];
        word.parse().map_err(|_| format!("'{word}' is no {what}; expected '{}'", self.usage))
    }

    fn size(&self, at: usize) -> Result<u64, String> {
        self.get(at, "number of bytes below 2^64")
    }

    fn stream(&self, at: usize) -> Result<u64, String> {
        self.get(at, "stream")
    }

    fn switch(&self, at: usize) -> Result<bool, String> {
        match self.words[at] {
            "0" => Ok(false),
            "1" => Ok(true),
            word => Err(format!("'{word}' is neither 0 nor 1; expected '{}'", self.usage)),
        }
    }

    fn pool(&self) -> Result<PoolId, String> {
        Ok(PoolId(self.get(1, "part of a pool's name")?, self.get(2, "part of a pool's name")?))
    }
}

fn result<E: fmt::Display>(line: &mut Line, result: Result<(), E>) {
    match result {
        Ok(()) => line.result("ok"),
        Err(error) => line.error(&error.to_string()),
    }
}

impl Replay {
    /// Devices and caches as the circumstances say, with nothing allocated.
    pub fn new(conf: &Conf) -> Self {
        let log = Arc::new(fake::Log::default());
        let devices = conf.devices.max(1);
        let fakes: Vec<_> =
            (0..devices).map(|index| Arc::new(FakeDevice::new(index, conf.total, Some(log.clone())))).collect();
        let caches = fakes
            .iter()
            .zip(0..)
            .map(|(fake, index)| DeviceCache::new(index, fake.clone().ports(), conf.settings.clone(), conf.departures));
        let caches = caches.collect();
        let tally = Tally { devices: vec![DeviceTally::default(); fakes.len()], ..Tally::default() };
        Replay { log, fakes, caches, fates: HashMap::new(), current: 0, every: None, lines: 0, tally }
    }

    /// Replays the next line. Gives the line of the answer; an empty line and the first one have none.
    ///
    /// # Errors
    /// The line can't be parsed or makes no sense. Nothing more should be replayed then.
    pub fn line(&mut self, text: &str) -> Result<Option<String>, ReplayError> {
        self.lines += 1;
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        self.operation(text).map_err(|reason| ReplayError::Line(self.lines, text.to_owned(), reason))
    }

    /// What has happened so far.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally.clone();
        for (device, cache) in tally.devices.iter_mut().zip(&self.caches) {
            device.counted(&cache.stats());
        }
        tally
    }

    fn operation(&mut self, text: &str) -> Result<Option<String>, String> {
        let Some(every) = self.every else {
            let mut words = text.split_ascii_whitespace();
            let number = if words.next() == Some(HEADER) { words.next() } else { None };
            let every = number.and_then(|number| number.parse().ok()).filter(|_| words.next().is_none());
            self.every = Some(every.ok_or_else(|| format!("a history begins with '{HEADER} N', N a whole number"))?);
            return Ok(None);
        };
        let words = Words::of(text)?;
        let index = self.tally.ops;
        let mut line = Line::new(index, text);
        let always = self.step(&words, text, &mut line)?;
        let calls = self.log.take();
        calls.iter().for_each(|call| self.tally.called(call));
        for (tally, cache) in self.tally.devices.iter_mut().zip(&self.caches) {
            tally.holds(cache.allocated(), cache.reserved());
        }
        line.calls(&calls);
        if words.words[0] == "snapshot" {
            line.segments(&self.cache().snapshot());
        }
        if always || (every > 0 && index.is_multiple_of(every)) {
            line.stats(&self.cache().stats());
        }
        self.tally.ops += 1;
        Ok(Some(line.end()))
    }

    /// The caches of the devices, for looking at what they hold or for recording what they do.
    pub fn caches(&self) -> &[DeviceCache] {
        &self.caches
    }

    fn cache(&self) -> &DeviceCache {
        &self.caches[self.current]
    }

    fn fate(&self, id: &str) -> Result<Fate, String> {
        self.fates.get(id).copied().ok_or_else(|| format!("nothing is allocated under the name '{id}'"))
    }

    /// Does one operation. Says whether its line has statistics in any case.
    fn step(&mut self, words: &Words<'_>, text: &str, line: &mut Line) -> Result<bool, String> {
        match words.words[0] {
            "alloc" => return self.alloc(words, text, line),
            "free" => {
                let fate = self.fate(words.words[1])?;
                self.fates.remove(words.words[1]);
                self.tally.frees += 1;
                match fate {
                    Fate::Failed => line.result("skip"),
                    Fate::Null => line.result("ok"),
                    Fate::Live(handle, device) => result(line, self.caches[device].free(handle)),
                }
            }
            "record" => {
                let stream = words.stream(2)?;
                match self.fate(words.words[1])? {
                    Fate::Failed => line.result("skip"),
                    Fate::Null => line.result("ok"),
                    Fate::Live(handle, device) => result(line, self.caches[device].record(handle, stream)),
                }
            }
            "hold" => {
                let held = words.switch(1)?;
                self.fakes.iter().for_each(|fake| fake.hold(held));
                line.result("ok");
            }
            "empty_cache" => result(line, self.caches.iter().try_for_each(DeviceCache::empty_cache)),
            "stats" => {
                line.result("ok");
                return Ok(true);
            }
            "reset_peak" => {
                self.cache().reset_peak_stats();
                line.result("ok");
            }
            "reset_accumulated" => {
                let stats = self.cache().stats();
                self.tally.devices[self.current].counted(&stats);
                self.cache().reset_accumulated_stats();
                line.result("ok");
            }
            "fraction" => result(line, self.cache().set_fraction(words.get(1, "number")?)),
            "device" => {
                let device: usize = words.get(1, "device")?;
                if device >= self.caches.len() {
                    return Err(format!("there is no device {device}: the configuration has {}", self.caches.len()));
                }
                self.current = device;
                line.result("ok");
            }
            "current" => {
                words.stream(1)?;
                line.result("ok");
            }
            "pool_begin" => {
                let scope = if words.words[3] == "*" { Scope::All } else { Scope::Stream(words.stream(3)?) };
                result(line, self.cache().begin_pool(words.pool()?, scope));
            }
            "pool_end" => result(line, self.cache().end_pool(words.pool()?)),
            "pool_release" => result(line, self.cache().release_pool(words.pool()?)),
            "capture" => {
                let stream = words.stream(1)?;
                if words.switch(2)? {
                    self.cache().capture_begin(stream);
                } else {
                    self.cache().capture_end(stream);
                }
                line.result("ok");
            }
            // Only the snapshot is left: names were checked.
            _ => line.result("ok"),
        }
        Ok(false)
    }

    fn alloc(&mut self, words: &Words<'_>, text: &str, line: &mut Line) -> Result<bool, String> {
        let (id, size, stream) = (words.words[1], words.size(2)?, words.stream(3)?);
        if let Some(Fate::Live(..)) = self.fates.get(id) {
            return Err(format!("the name '{id}' is still in use"));
        }
        self.tally.allocs += 1;
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
            Err(error @ (AllocError::OutOfMemory(_) | AllocError::TooLarge { .. })) => {
                line.result("oom");
                let report = if let AllocError::OutOfMemory(report) = error { Some(report) } else { None };
                self.tally.exhausted(self.lines, text, report);
                (Fate::Failed, true)
            }
            Err(error) => {
                line.error(&error.to_string());
                (Fate::Failed, false)
            }
        };
        self.fates.insert(id.to_owned(), fate);
        Ok(always)
    }
}

impl FakeDevice {
    /// The ports of a cache over this device.
    pub fn ports(self: Arc<Self>) -> Ports {
        Ports { segments: self.clone(), growable: Some(self.clone()), marks: self }
    }
}
