//! Statistics of memory, trims, sizes that are nothing or too much, settings.
//!
//! What depends on the policy runs twice: with the settings as they are, and with segments that grow.

use super::Face;
use crate::case::{Capability, Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::words::plain;
use anyaccel::{Error, Runtime};

pub(super) const MIB: u64 = 1 << 20;
const GROWS: &[Capability] = &[Capability::VirtualMemory];

pub(super) const CASES: &[Case] = &[
    Case::face("statistics.fresh", &["memory.fresh", "start.nothing-else", "argument.fresh"], fresh),
    Case::face("statistics.keys", &["memory.stats-keys"], keys),
    Case::face("statistics.count", &["memory.stats-count", "memory.four-values"], |env| count(env, FIXED)),
    Case::face("statistics.count/growable", &["memory.stats-count", "memory.four-values"], |env| count(env, GROWING))
        .needs(GROWS),
    Case::face("statistics.resets", &["memory.resets"], |env| resets(env, FIXED)),
    Case::face("statistics.resets/growable", &["memory.resets"], |env| resets(env, GROWING)).needs(GROWS),
    Case::face("statistics.devices-apart", &["memory.stats-count"], devices_apart).devices(2),
    Case::face("statistics.summary", &["memory.summary"], summary),
    Case::face("caching.trims", &["memory.trims", "scenario.18"], |env| trims(env, FIXED)),
    Case::face("caching.trims/growable", &["memory.trims", "scenario.18"], |env| trims(env, GROWING)).needs(GROWS),
    Case::face("caching.nothing", &["memory.zero-bytes"], nothing),
    Case::face("caching.too-much", &["memory.too-much"], too_much),
    Case::face("caching.settings", &["memory.settings", "scenario.20"], settings),
    Case::face("caching.bad-settings", &["memory.settings"], bad_settings),
];

/// Settings: segments of fixed size, as they are by default.
pub(super) const FIXED: &str = "";
/// Segments that grow.
pub(super) const GROWING: &str = "expandable_segments:True";

impl Face {
    /// A fresh runtime with these settings of the allocator.
    pub(super) fn set_up(env: &Env, settings: &str) -> Outcome<Face> {
        let face = Face::new(env)?;
        face.runtime.set_allocator_settings(settings)?;
        Ok(face)
    }

    /// A value of the statistics of the current device.
    pub(super) fn stat(&self, key: &str) -> Outcome<u64> {
        match self.runtime.memory_stats(())?.get(key) {
            Some(value) => Ok(value as u64),
            None => crate::case::fail("memory.stats-keys", format!("the key {key}"), "no such key"),
        }
    }

    /// A value of the statistics of pinned memory for the current device.
    pub(super) fn host_stat(&self, key: &str) -> Outcome<u64> {
        match self.runtime.host_memory_stats(())?.get(key) {
            Some(value) => Ok(value as u64),
            None => crate::case::fail("memory.host-stats", format!("the key {key}"), "no such key"),
        }
    }
}

type Call = (&'static str, fn(&Runtime, i64) -> anyaccel::Result<bool>);

/// Each says whether it told of nothing.
const QUIET: &[Call] = &[
    ("memory_stats", |runtime, device| runtime.memory_stats(device).map(|stats| stats.flat().is_empty())),
    ("memory_allocated", |runtime, device| runtime.memory_allocated(device).map(|bytes| bytes == 0)),
    ("max_memory_allocated", |runtime, device| runtime.max_memory_allocated(device).map(|bytes| bytes == 0)),
    ("memory_reserved", |runtime, device| runtime.memory_reserved(device).map(|bytes| bytes == 0)),
    ("max_memory_reserved", |runtime, device| runtime.max_memory_reserved(device).map(|bytes| bytes == 0)),
    ("host_memory_stats", |runtime, device| runtime.host_memory_stats(device).map(|stats| stats.is_empty())),
    ("memory_summary", |runtime, device| runtime.memory_summary(device, false).map(|_| true)),
    ("reset_peak_memory_stats", |runtime, device| runtime.reset_peak_memory_stats(device).map(|()| true)),
    ("reset_accumulated_memory_stats", |runtime, device| runtime.reset_accumulated_memory_stats(device).map(|()| true)),
    ("reset_peak_host_memory_stats", |runtime, device| runtime.reset_peak_host_memory_stats(device).map(|()| true)),
    ("reset_accumulated_host_memory_stats", |runtime, device| {
        runtime.reset_accumulated_host_memory_stats(device).map(|()| true)
    }),
    ("set_per_process_memory_fraction", |runtime, device| {
        runtime.set_per_process_memory_fraction(1.0, device).map(|()| true)
    }),
    ("set_memory_budget", |runtime, device| runtime.set_memory_budget(None, device).map(|()| true)),
];

/// Before the start there is nothing to tell, and arguments are checked all the same. Afterwards too.
fn fresh(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let count = i64::from(runtime.device_count());
    let range = |error: &Error| matches!(error, Error::IndexOutOfRange { .. });
    for started in [false, true] {
        for &(name, call) in QUIET {
            let told = call(runtime, 0)?;
            if !started {
                same("memory.fresh", &format!("whether {name} of a fresh runtime tells of nothing"), told, true)?;
            }
            let counted = started || face.driver.fork_safe_probe();
            for wrong in [-1, count, i64::MAX].into_iter().filter(|&wrong| wrong < 0 || counted) {
                let what = format!("{name} of device {wrong}");
                errs("memory.fresh", &what, "IndexOutOfRange", call(runtime, wrong), range)?;
            }
            same("start.nothing-else", &format!("whether {name} started it"), runtime.is_started(), started)?;
        }
        if !started {
            runtime.empty_cache()?;
            runtime.empty_host_cache()?;
            same("memory.fresh", "whether trims started it", runtime.is_started(), false)?;
            runtime.current_stream(())?;
        }
    }
    same("memory.fresh", "memory of a runtime that only started", runtime.memory_reserved(())?, 0)?;
    let empty = runtime.memory_stats(())?.is_empty();
    same("memory.fresh", "whether its statistics are empty", empty, false)
}

fn keys(env: &Env) -> Outcome {
    const BY_POOL: [&str; 10] = [
        "allocated",
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    ];
    const PLAIN: [&str; 6] = [
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ];
    let face = Face::new(env)?;
    let _buffers = [face.runtime.alloc(64)?, face.runtime.alloc(3 * MIB)?];
    let stats = face.runtime.memory_stats(())?;
    let flat = stats.flat();
    let sorted = flat.windows(2).all(|pair| pair[0].0 < pair[1].0);
    expect("memory.stats-keys", sorted, "keys in order, each once", plain(&flat))?;
    let parts = ["current", "peak", "allocated", "freed"];
    let mut wanted: Vec<String> = PLAIN.iter().map(ToString::to_string).collect();
    for part in parts {
        for pool in ["all", "small_pool", "large_pool"] {
            wanted.extend(BY_POOL.iter().map(|name| format!("{name}.{pool}.{part}")));
            let spellings = ["allocated", "allocation"].map(|name| stats.get(&format!("{name}.{pool}.{part}")));
            same("memory.stats-keys", &format!("allocated.{pool}.{part}, twice"), spellings[0], spellings[1])?;
        }
        wanted.extend(["oversize_allocations", "oversize_segments"].map(|name| format!("{name}.{part}")));
    }
    for key in wanted {
        let there = flat.iter().any(|(known, _)| *known == key);
        expect("memory.stats-keys", there, &format!("the key {key}"), "no such key")?;
    }
    same("memory.stats-keys", "max_split_size without a limit", stats.get("max_split_size"), Some(-1))?;
    face.runtime.set_allocator_settings("max_split_size_mb:64")?;
    same("memory.stats-keys", "max_split_size of 64 MiB", face.stat("max_split_size")?, 64 * MIB)
}

/// What the statistics say, and that the four functions say the same.
fn agree(face: &Face, allocated: u64, reserved: u64) -> Outcome {
    let runtime = &face.runtime;
    same("memory.stats-count", "memory_allocated", runtime.memory_allocated(())?, allocated)?;
    same("memory.stats-count", "memory_reserved", runtime.memory_reserved(())?, reserved)?;
    for (key, value) in [
        ("allocated_bytes.all.current", runtime.memory_allocated(())?),
        ("allocated_bytes.all.peak", runtime.max_memory_allocated(())?),
        ("reserved_bytes.all.current", runtime.memory_reserved(())?),
        ("reserved_bytes.all.peak", runtime.max_memory_reserved(())?),
    ] {
        same("memory.four-values", &format!("the function of {key}"), value, face.stat(key)?)?;
    }
    Ok(())
}

fn count(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    let small = runtime.alloc(1000)?;
    agree(&face, 1024, 2 * MIB)?;
    let large = runtime.alloc(3 * MIB)?;
    agree(&face, 1024 + 3 * MIB, 22 * MIB)?;
    // Segments that grow are no segments.
    let segments = if settings == GROWING { 0 } else { 1 };
    let expected = [
        ("allocation.all.current", 2),
        ("allocation.small_pool.current", 1),
        ("allocation.large_pool.current", 1),
        ("active.all.current", 2),
        ("segment.small_pool.current", segments),
        ("segment.large_pool.current", segments),
        ("active_bytes.small_pool.current", 1024),
        ("requested_bytes.small_pool.current", 1000),
        ("requested_bytes.large_pool.current", 3 * MIB),
        ("reserved_bytes.large_pool.current", 20 * MIB),
        ("inactive_split.all.current", 2 * segments),
        ("num_device_alloc", 2),
        ("num_ooms", 0),
    ];
    for (key, value) in expected {
        same("memory.stats-count", key, face.stat(key)?, value)?;
    }
    same("memory.stats-count", "capacity of 1000 bytes", small.capacity(), 1024)?;
    drop((small, large));
    agree(&face, 0, 22 * MIB)?;
    for (key, value) in [
        ("allocation.all.freed", 2),
        ("allocation.all.allocated", 2),
        ("allocated_bytes.all.peak", 1024 + 3 * MIB),
        ("requested_bytes.all.current", 0),
        ("num_device_free", 0),
    ] {
        same("memory.stats-count", &format!("{key} after all is dropped"), face.stat(key)?, value)?;
    }
    // What is kept is used again.
    let _again = [runtime.alloc(1000)?, runtime.alloc(3 * MIB)?];
    same("memory.stats-count", "calls to the driver for what is kept", face.stat("num_device_alloc")?, 2)
}

fn resets(env: &Env, settings: &str) -> Outcome {
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    let kept = runtime.alloc(4096)?;
    drop(runtime.alloc(4 * MIB)?);
    runtime.reset_peak_memory_stats(())?;
    let flat = runtime.memory_stats(())?.flat();
    for (key, value) in &flat {
        let Some(group) = key.strip_suffix(".peak") else { continue };
        let current = face.stat(&format!("{group}.current"))?;
        same("memory.resets", &format!("{key} after a reset"), *value as u64, current)?;
    }
    same("memory.resets", "what the reset of peaks leaves", face.stat("allocation.all.allocated")?, 2)?;
    drop(runtime.alloc(4 * MIB)?);
    runtime.reset_accumulated_memory_stats(())?;
    for (key, value) in runtime.memory_stats(())?.flat() {
        if key.ends_with(".allocated") || key.ends_with(".freed") || key.starts_with("num_") {
            same("memory.resets", &format!("{key} after a reset"), value, 0)?;
        }
    }
    same("memory.resets", "a peak after the other reset", runtime.max_memory_allocated(())?, 4096 + 4 * MIB)?;
    same("memory.resets", "what is in use after both", runtime.memory_allocated(())?, 4096)?;
    drop(kept);
    same("memory.resets", "frees after a reset", face.stat("allocation.all.freed")?, 1)
}

fn devices_apart(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let _one = runtime.alloc_on(1, 5000)?;
    let seen = [runtime.memory_allocated(0)?, runtime.memory_allocated(1)?];
    same("memory.stats-count", "memory of 5000 bytes on device 1", seen, [0, 5120])?;
    runtime.reset_peak_memory_stats(0)?;
    runtime.set_device_index(1)?;
    same("memory.stats-count", "the current device's", runtime.memory_allocated(())?, 5120)?;
    same("memory.stats-count", "device 0's while 1 is current", runtime.memory_allocated(0)?, 0)
}

fn summary(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let _buffer = face.runtime.alloc(3 * MIB)?;
    for abbreviated in [false, true] {
        let table = face.runtime.memory_summary((), abbreviated)?;
        let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        let even = widths.iter().all(|&width| width == 80);
        expect("memory.summary", widths.len() > 5 && even, "a table with lines of 80 characters", &table)?;
        for said in ["3.00 MiB", "20.00 MiB", "peak", "allocated", "reserved"] {
            expect("memory.summary", table.contains(said), &format!("a table with {said:?}"), &table)?;
        }
        let pools = table.contains("small pool");
        same("memory.summary", "whether the pools are told apart", pools, !abbreviated)?;
    }
    Ok(())
}

/// Trims give back what is unused and nothing else: what is in use stays as it is, where it is, through many rounds.
fn trims(env: &Env, settings: &str) -> Outcome {
    const PAGE: u64 = 10 * MIB;
    const ROUNDS: usize = 20;
    let face = Face::set_up(env, settings)?;
    let runtime = &face.runtime;
    let stream = runtime.current_stream(())?;
    let mut held = Vec::new();
    for _ in 0..ROUNDS {
        let mut pages = Vec::new();
        for number in 1..=5_u8 {
            let page = runtime.alloc(PAGE)?;
            stream.fill(&page.slice(..4096)?, &[number])?;
            stream.fill(&page.slice(PAGE - 4096..)?, &[number])?;
            pages.push(page);
        }
        let kept = [pages.swap_remove(4), pages.swap_remove(1)];
        drop(pages);
        runtime.empty_cache()?;
        let fresh = [runtime.alloc(PAGE)?, runtime.alloc(PAGE)?, runtime.alloc(PAGE)?];
        for page in &fresh {
            stream.fill(&page.slice(..4096)?, &[0xEE])?;
            stream.fill(&page.slice(PAGE - 4096..)?, &[0xEE])?;
        }
        for (page, number) in kept.iter().zip([5, 2]) {
            for part in [page.slice(..4096)?, page.slice(PAGE - 4096..)?] {
                let mut seen = vec![0; 4096];
                stream.download(&mut seen, &part)?;
                let what = format!("page {number} after a trim");
                crate::case::same_bytes("scenario.18", &what, &seen, &vec![number; 4096])?;
            }
        }
        drop((kept, fresh));
        runtime.empty_cache()?;
        held.push(runtime.memory_reserved(())?);
    }
    same("memory.trims", "what is held with nothing in use", held[0], 0)?;
    same("scenario.18", "what is held after many rounds and after the first", held[ROUNDS - 1], held[0])?;
    drop(runtime.pinned(5000)?);
    same("memory.trims", "pinned memory that is kept", face.host_stat("allocated_bytes.current")?, 8192)?;
    runtime.empty_host_cache()?;
    same("memory.trims", "pinned memory after its trim", face.host_stat("allocated_bytes.current")?, 0)
}

fn nothing(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (nothing, pinned) = (runtime.alloc(0)?, runtime.pinned(0)?);
    same("memory.zero-bytes", "address and length of nothing", (nothing.address(), nothing.len()), (0, 0))?;
    same("memory.zero-bytes", "its content", nothing.to_vec()?, Vec::new())?;
    runtime.current_stream(())?.fill(&nothing.all(), &[1])?;
    same("memory.zero-bytes", "pinned memory of nothing", pinned.as_slice()?.len(), 0)?;
    drop(nothing);
    let (key, host) = ("allocation.all.allocated", "active_requests.allocated");
    same("memory.zero-bytes", "what was counted", (face.stat(key)?, face.host_stat(host)?), (0, 0))
}

fn too_much(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let refused = |error: &Error| matches!(error, Error::Argument { .. });
    for bytes in [1 << 60, 1 << 63, u64::MAX - 511, u64::MAX] {
        errs("memory.too-much", &format!("{bytes} bytes"), "Argument", runtime.alloc(bytes), refused)?;
        errs("memory.too-much", &format!("{bytes} numbers"), "Argument", runtime.array::<u64>(bytes), refused)?;
    }
    errs("memory.too-much", "pinned memory of 2^64 - 1", "Argument", runtime.pinned(usize::MAX), refused)?;
    let kept = ["num_ooms", "num_device_alloc", "allocation.all.allocated", "num_alloc_retries"];
    for key in kept {
        same("memory.too-much", &format!("{key} after all that"), face.stat(key)?, 0)?;
    }
    Ok(())
}

/// A setting has an effect: 2 MiB come from one segment of 32.
fn settings(env: &Env) -> Outcome {
    let face = Face::set_up(env, "large_segment_size_mb:32")?;
    let runtime = &face.runtime;
    same("memory.settings", "whether settings start it", runtime.is_started(), false)?;
    let _buffer = runtime.alloc(2 * MIB)?;
    same("scenario.20", "what is held for 2 MiB", runtime.memory_reserved(())?, 32 * MIB)?;
    same("scenario.20", "calls to the driver", face.stat("num_device_alloc")?, 1)?;
    // They can change later, for what comes then.
    runtime.set_allocator_settings("large_segment_size_mb:20,roundup_power2_divisions:4")?;
    let rounded = runtime.alloc(5 * MIB + 1)?;
    same("memory.settings", "5 MiB and a byte in quarters of 4 MiB", rounded.capacity(), 6 * MIB)
}

/// A bad string is refused by key and value, whole: nothing of it is in force.
fn bad_settings(env: &Env) -> Outcome {
    let face = Face::set_up(env, "large_segment_size_mb:32")?;
    let runtime = &face.runtime;
    for start in [false, true] {
        if start {
            runtime.current_stream(())?;
        }
        for (key, value) in [
            ("max_split_size_mb", "1"),
            ("expandable_segments", "yes"),
            ("garbage_collection_threshold", "1.5"),
            ("roundup_power2_divisions", "3"),
            ("no_such_setting", "1"),
        ] {
            let text = format!("large_segment_size_mb:64,{key}:{value}");
            let named = |error: &Error| {
                let said = error.to_string();
                matches!(error, Error::Settings(_)) && said.contains(key) && said.contains(value)
            };
            let expected = format!("an error that names {key} and {value}");
            errs("memory.settings", &text, &expected, runtime.set_allocator_settings(&text), named)?;
        }
        let in_force = runtime.allocator_settings()?.large_segment_size;
        same("memory.settings", "the setting in force afterwards", in_force, 32 * MIB)?;
    }
    let _buffer = runtime.alloc(2 * MIB)?;
    same("memory.settings", "what it does", runtime.memory_reserved(())?, 32 * MIB)
}
