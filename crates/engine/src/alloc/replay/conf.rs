//! The circumstances of a history, and why one can't be replayed.

use std::collections::HashMap;
use std::fmt;

use super::super::policy::{Departures, MIB};
use super::super::{Settings, SettingsError};

/// The most devices of a replay.
const MOST_DEVICES: u32 = 64;

/// The most memory of a device in a replay, in MiB: 16 TiB.
const MOST_MEMORY: u64 = 1 << 24;

/// The circumstances of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Conf {
    /// Memory of each device, in bytes.
    pub total: u64,
    /// How many devices there are; at least one is made.
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
    Line(u64, String, String),
    /// The settings.
    Settings(SettingsError),
}

/// What an error shows of a line.
const SHOWN: usize = 80;

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Line(number, text, reason) => {
                let shown: String = text.chars().take(SHOWN).collect();
                let rest = if shown.len() < text.len() { "..." } else { "" };
                write!(f, "line {number}: '{shown}{rest}': {reason}")
            }
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
    /// A line without `=`, a number that is none or out of range, settings that are wrong.
    pub fn parse(text: &str) -> Result<Conf, ReplayError> {
        let mut conf = Conf::default();
        let mut env: HashMap<&str, &str> = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: String| ReplayError::Line(i as u64 + 1, line.to_owned(), reason);
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("expected KEY=VALUE".into()))?;
            match key {
                "FAKE_CUDA_TOTAL_MB" => {
                    let mib = value.parse().ok().filter(|mib| (1..=MOST_MEMORY).contains(mib));
                    conf.total = mib.ok_or_else(|| wrong(format!("expected 1 to {MOST_MEMORY} MiB")))? * MIB;
                }
                "FAKE_CUDA_DEVICES" => {
                    let devices = value.parse().ok().filter(|devices| (1..=MOST_DEVICES).contains(devices));
                    conf.devices = devices.ok_or_else(|| wrong(format!("expected 1 to {MOST_DEVICES} devices")))?;
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
