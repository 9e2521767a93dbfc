//! The settings string of the allocator.
//!
//! `key:value` pairs parted by commas, as PyTorch 2.14 reads them from `PYTORCH_ALLOC_CONF`. Unlike there, a string is
//! parsed whole before anything of it is applied: a rejected one leaves the old settings in force, and its error names
//! the key, the value and, where it came from one, the environment variable.

use std::fmt;

use super::policy::MIB;

/// Environment variables that may hold the settings, the one that wins first.
pub const VARIABLES: [&str; 3] = ["ANYACCEL_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Slots of `roundup_power2_divisions`: one for each power of two from 1 MiB to 32 GiB.
pub const ROUNDUP_SLOTS: usize = 16;

/// Everything that the settings string can say. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The string that these settings came from.
    pub text: String,
    /// `max_split_size_mb`: blocks of this size or more are not split and serve no smaller request; `None`: no limit.
    pub max_split_size: Option<u64>,
    /// `large_segment_size_mb`: what a request above 1 MiB and below 10 MiB asks the device for.
    pub large_segment_size: u64,
    /// `max_non_split_rounding_mb`: how much larger than an oversize request its block may be; `None`: the large segment size.
    pub max_non_split_rounding: Option<u64>,
    /// `garbage_collection_threshold`, a share of the memory limit in (0, 1); 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`, by slot; 0 and 1 are plain rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; ROUNDUP_SLOTS],
    /// `expandable_segments`: growable segments, where the backend can map memory into reserved address space.
    pub expandable_segments: bool,
    /// `per_process_memory_fraction`, the fraction in force at the start.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: refuse a segment beyond the fraction of the settings at once, freeing nothing.
    pub throw_on_cudamalloc_oom: bool,
    /// `release_lock_on_cudamalloc`: accepted; the lock is never held during a call to the device.
    pub release_lock_on_cudamalloc: bool,
    /// `graph_capture_record_stream_reuse`: accepted and kept.
    pub graph_capture_record_stream_reuse: bool,
    /// `pinned_use_background_threads`.
    pub pinned_use_background_threads: bool,
    /// `pinned_use_cuda_host_register`.
    pub pinned_use_cuda_host_register: bool,
    /// `pinned_free_catch_all`.
    pub pinned_free_catch_all: bool,
    /// `pinned_num_register_threads`.
    pub pinned_num_register_threads: u64,
    /// `pinned_max_round_threshold_mb`: pinned requests above it are rounded to a page only; `None`: no threshold.
    pub pinned_max_round_threshold: Option<u64>,
    /// `pinned_max_cached_size_mb`: larger pinned blocks are not cached; `None`: all are.
    pub pinned_max_cached_size: Option<u64>,
    /// `pinned_reserve_segment_size_mb`: pinned memory reserved in advance.
    pub pinned_reserve_segment_size: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            text: String::new(),
            max_split_size: None,
            large_segment_size: 20 * MIB,
            max_non_split_rounding: None,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; ROUNDUP_SLOTS],
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
            release_lock_on_cudamalloc: false,
            graph_capture_record_stream_reuse: false,
            pinned_use_background_threads: false,
            pinned_use_cuda_host_register: false,
            pinned_free_catch_all: false,
            pinned_num_register_threads: 1,
            pinned_max_round_threshold: None,
            pinned_max_cached_size: None,
            pinned_reserve_segment_size: 0,
        }
    }
}

/// Why a settings string was rejected. Nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The environment variable that held the string, if one did.
    pub variable: Option<&'static str>,
    /// The key at fault.
    pub key: String,
    /// Its value, as written.
    pub value: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variable {
            Some(variable) => write!(f, "allocator settings in {variable}: ")?,
            None => f.write_str("allocator settings: ")?,
        }
        match (self.key.as_str(), self.value.as_str()) {
            (key, "") => write!(f, "'{key}'")?,
            (key, value) => write!(f, "'{key}:{value}'")?,
        }
        write!(f, ": {}; the settings in force stay as they were", self.reason)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Parses a settings string. The empty string is the defaults; empty entries and a trailing comma are accepted.
    ///
    /// # Errors
    /// The first entry at fault, by key and value.
    pub fn parse(text: &str) -> Result<Settings, SettingsError> {
        let mut out = Settings { text: text.to_owned(), ..Settings::default() };
        for entry in entries(text) {
            let entry = entry.trim();
            if entry.is_empty() {
                continue;
            }
            let Some((key, value)) = entry.split_once(':') else {
                return Err(fault(entry, "", "a key needs a value: write key:value"));
            };
            out.set(key.trim(), value.trim()).map_err(|reason| fault(key.trim(), value.trim(), &reason))?;
        }
        out.check()?;
        Ok(out)
    }

    /// The settings that the environment asks for, read through `lookup`: the first of [`VARIABLES`] that is set wins,
    /// even if it is empty.
    ///
    /// # Errors
    /// As [`parse`](Settings::parse), with the name of the variable.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        for variable in VARIABLES {
            if let Some(text) = lookup(variable) {
                return Settings::parse(&text).map_err(|e| SettingsError { variable: Some(variable), ..e });
            }
        }
        Ok(Settings::default())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "max_split_size_mb" => self.max_split_size = Some(mebibytes(value)?),
            "large_segment_size_mb" => self.large_segment_size = mebibytes(value)?,
            "max_non_split_rounding_mb" => self.max_non_split_rounding = Some(mebibytes(value)?),
            "garbage_collection_threshold" => {
                let share = number(value)?;
                if !(share > 0.0 && share < 1.0) {
                    return Err("must lie between 0.0 and 1.0, both excluded".into());
                }
                self.garbage_collection_threshold = share;
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "expandable_segments" => self.expandable_segments = boolean(value)?,
            "per_process_memory_fraction" => {
                let share = number(value)?;
                if !(0.0..=1.0).contains(&share) {
                    return Err("must lie in [0.0, 1.0]".into());
                }
                self.per_process_memory_fraction = share;
            }
            "throw_on_cudamalloc_oom" => self.throw_on_cudamalloc_oom = boolean(value)?,
            "release_lock_on_cudamalloc" => self.release_lock_on_cudamalloc = boolean(value)?,
            "graph_capture_record_stream_reuse" => self.graph_capture_record_stream_reuse = boolean(value)?,
            "pinned_use_background_threads" => self.pinned_use_background_threads = boolean(value)?,
            "pinned_use_cuda_host_register" => self.pinned_use_cuda_host_register = boolean(value)?,
            "pinned_free_catch_all" => self.pinned_free_catch_all = boolean(value)?,
            "pinned_num_register_threads" => {
                let threads = integer(value)?;
                if !threads.is_power_of_two() || threads > 128 {
                    return Err("must be a power of two up to 128".into());
                }
                self.pinned_num_register_threads = threads;
            }
            "pinned_max_round_threshold_mb" => self.pinned_max_round_threshold = Some(mebibytes(value)?),
            "pinned_max_cached_size_mb" => self.pinned_max_cached_size = Some(mebibytes(value)?),
            "pinned_reserve_segment_size_mb" => self.pinned_reserve_segment_size = mebibytes(value)?,
            "backend" if value == "native" => {}
            "backend" => return Err("only the native allocator exists: write backend:native".into()),
            _ => return Err(format!("unrecognized key '{key}'")),
        }
        Ok(())
    }

    /// The rules that tie keys together, whatever order they came in.
    fn check(&self) -> Result<(), SettingsError> {
        let large = self.large_segment_size;
        if large <= 10 * MIB {
            return Err(too_small("large_segment_size_mb", large, "must be > 10"));
        }
        let least = format!("too small, must be >= {}, the large segment size", large / MIB);
        if let Some(size) = self.max_split_size.filter(|&s| s < large) {
            return Err(too_small("max_split_size_mb", size, &least));
        }
        if let Some(size) = self.max_non_split_rounding.filter(|&s| s < large) {
            return Err(too_small("max_non_split_rounding_mb", size, &least));
        }
        Ok(())
    }
}

fn too_small(key: &str, size: u64, reason: &str) -> SettingsError {
    fault(key, &(size / MIB).to_string(), reason)
}

fn fault(key: &str, value: &str, reason: &str) -> SettingsError {
    SettingsError { variable: None, key: key.to_owned(), value: value.to_owned(), reason: reason.to_owned() }
}

/// Parts a string at the commas outside brackets.
fn entries(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth <= 0 => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn integer(value: &str) -> Result<u64, String> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err("expected a whole number".into());
    }
    value.parse().map_err(|_| "the number does not fit 64 bits".into())
}

fn mebibytes(value: &str) -> Result<u64, String> {
    Ok(integer(value)?.saturating_mul(MIB))
}

fn number(value: &str) -> Result<f64, String> {
    value.parse().map_err(|_| "expected a number".into())
}

fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err("expected 'True' or 'False'".into()),
    }
}

fn divisions(value: &str) -> Result<[u64; ROUNDUP_SLOTS], String> {
    let power = |v: u64| {
        if v.is_power_of_two() { Ok(v) } else { Err(format!("{v}: the divisions must be a power of two")) }
    };
    let Some(list) = value.strip_prefix('[') else {
        return Ok([power(integer(value)?)?; ROUNDUP_SLOTS]);
    };
    let list = list.strip_suffix(']').ok_or("the list lacks its closing bracket")?;
    let mut out = [0; ROUNDUP_SLOTS];
    let mut last = None;
    for pair in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (key, divisions) = pair.split_once(':').ok_or_else(|| format!("{pair}: write size:divisions"))?;
        let divisions = power(integer(divisions.trim())?)?;
        if key.trim() == ">" {
            let above = last.map_or(0, |slot: usize| slot + 1);
            out[above..].fill(divisions);
            continue;
        }
        let size = integer(key.trim())?;
        if !size.is_power_of_two() {
            return Err(format!("{size}: the sizes must be powers of two, in MiB"));
        }
        let slot = (size.ilog2() as usize).min(ROUNDUP_SLOTS - 1);
        if last.is_none() {
            out[..slot].fill(divisions);
        }
        out[slot] = divisions;
        last = Some(slot);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_key() {
        let text = "max_split_size_mb:48, large_segment_size_mb:32,max_non_split_rounding_mb:64,\
            garbage_collection_threshold:0.6,roundup_power2_divisions:[1:8,16:2,256:1,512:2,1024:4,>:8],\
            expandable_segments:True,per_process_memory_fraction:0.25,throw_on_cudamalloc_oom:True,\
            release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,pinned_use_background_threads:True,\
            pinned_use_cuda_host_register:True,pinned_free_catch_all:True,pinned_num_register_threads:8,\
            pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:128,pinned_reserve_segment_size_mb:4,\
            backend:native,";
        let s = Settings::parse(text).unwrap();
        assert_eq!(s.max_split_size, Some(48 * MIB));
        assert_eq!(s.large_segment_size, 32 * MIB);
        assert_eq!(s.max_non_split_rounding, Some(64 * MIB));
        assert_eq!(s.roundup_power2_divisions, [8, 0, 0, 0, 2, 0, 0, 0, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!((s.garbage_collection_threshold, s.per_process_memory_fraction), (0.6, 0.25));
        assert!(s.expandable_segments && s.throw_on_cudamalloc_oom && s.pinned_free_catch_all);
        assert_eq!(s.pinned_max_round_threshold, Some(64 * MIB));
        assert_eq!(s.text, text);
    }

    #[test]
    fn one_number_fills_all_slots_and_a_first_key_fills_those_below() {
        assert_eq!(Settings::parse("roundup_power2_divisions:4").unwrap().roundup_power2_divisions, [4; 16]);
        let s = Settings::parse("roundup_power2_divisions:[256:1,512:2,>:4]").unwrap();
        assert_eq!(s.roundup_power2_divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4]);
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let a = Settings::parse("large_segment_size_mb:32,max_split_size_mb:32").unwrap();
        let b = Settings::parse("max_split_size_mb:32,large_segment_size_mb:32").unwrap();
        assert_eq!(a.max_split_size, b.max_split_size);
        let e = Settings::parse("max_split_size_mb:24,large_segment_size_mb:32").unwrap_err();
        assert_eq!((e.key.as_str(), e.value.as_str()), ("max_split_size_mb", "24"));
    }

    #[test]
    fn bad_strings_name_key_and_value() {
        for (text, key, value) in [
            ("max_split_size_mb:19", "max_split_size_mb", "19"),
            ("max_split_size_mb:-5", "max_split_size_mb", "-5"),
            ("max_split_size_mb:", "max_split_size_mb", ""),
            ("max_split_size_mb:99999999999999999999", "max_split_size_mb", "99999999999999999999"),
            ("max_non_split_rounding_mb:4", "max_non_split_rounding_mb", "4"),
            ("large_segment_size_mb:10", "large_segment_size_mb", "10"),
            ("garbage_collection_threshold:0", "garbage_collection_threshold", "0"),
            ("garbage_collection_threshold:1.0", "garbage_collection_threshold", "1.0"),
            ("garbage_collection_threshold:NaN", "garbage_collection_threshold", "NaN"),
            ("roundup_power2_divisions:3", "roundup_power2_divisions", "3"),
            ("roundup_power2_divisions:[3:4]", "roundup_power2_divisions", "[3:4]"),
            ("roundup_power2_divisions:[4:3]", "roundup_power2_divisions", "[4:3]"),
            ("roundup_power2_divisions:[4:4", "roundup_power2_divisions", "[4:4"),
            ("expandable_segments:true", "expandable_segments", "true"),
            ("per_process_memory_fraction:1.5", "per_process_memory_fraction", "1.5"),
            ("foo:1", "foo", "1"),
            ("expandable_segments", "expandable_segments", ""),
            ("backend:cudaMallocAsync", "backend", "cudaMallocAsync"),
        ] {
            let e = Settings::parse(text).unwrap_err();
            assert_eq!((e.key.as_str(), e.value.as_str()), (key, value), "{text}");
            assert!(e.to_string().contains(key), "{e}");
        }
    }

    #[test]
    fn the_environment_has_an_order() {
        let env = |set: &'static [(&'static str, &'static str)]| {
            Settings::from_env(move |name| set.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
        };
        let size = |s: Result<Settings, SettingsError>| s.unwrap().large_segment_size / MIB;
        let own = ("ANYACCEL_ALLOC_CONF", "large_segment_size_mb:30");
        let cuda = ("PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:40");
        let plain = ("PYTORCH_ALLOC_CONF", "large_segment_size_mb:50");
        static ALL: &[(&str, &str)] = &[
            ("PYTORCH_ALLOC_CONF", "large_segment_size_mb:50"),
            ("PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:40"),
            ("ANYACCEL_ALLOC_CONF", "large_segment_size_mb:30"),
        ];
        assert_eq!((own.0, cuda.0, plain.0), (VARIABLES[0], VARIABLES[1], VARIABLES[2]));
        assert_eq!(size(env(ALL)), 30);
        assert_eq!(size(env(&ALL[..2])), 40);
        assert_eq!(size(env(&ALL[..1])), 50);
        assert_eq!(size(env(&[])), 20);
        let e = env(&[("PYTORCH_ALLOC_CONF", "foo:1")]).unwrap_err();
        assert_eq!(e.variable, Some("PYTORCH_ALLOC_CONF"));
        assert!(e.to_string().contains("PYTORCH_ALLOC_CONF") && e.to_string().contains("foo"), "{e}");
    }
}
