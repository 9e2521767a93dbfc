//! H22, H23, H26: what a driver says of its devices, before and after it starts.

use crate::case::{Case, Outcome, expect, refused, same, same_bytes, skip};
use crate::env::Env;
use crate::lab::Lab;
use crate::words::plain;
use anyaccel_hal::{
    Device, DeviceInfo, FaultKind, Format, GatesLimits, GraphsLimits, KernelsLimits, NativeEventsLimits, PeersLimits,
    PinnedLimits, TelemetryLimits, VirtualMemoryLimits,
};
use std::sync::Arc;

pub(super) const CASES: &[Case] = &[
    Case::hal("discovery.probe", &[22], probe),
    Case::hal("discovery.probe-and-start-agree", &[22], probe_and_start_agree),
    Case::hal("discovery.describe", &[22, 26], describe),
    Case::hal("discovery.checks", &[22], checks),
    Case::hal("discovery.open-out-of-range", &[19, 23], open_out_of_range),
    Case::hal("discovery.open-twice", &[23], open_twice),
    Case::hal("discovery.properties", &[26], properties),
    Case::hal("discovery.constant", &[26], constant),
    Case::hal("discovery.drivers-apart", &[2, 23], drivers_apart),
    Case::hal("discovery.devices-differ", &[23], devices_differ).devices(2),
];

fn probe(env: &Env) -> Outcome {
    let driver = env.driver()?;
    same("H22", "the kind", driver.kind(), env.kind())?;
    let first = driver.probe();
    same("H22", "the probe, twice", driver.probe(), first.clone())?;
    let counted = first.present.is_none_or(|present| present >= first.visible);
    expect("H22", counted, "no more visible devices than present ones", plain(&first))?;
    let quiet = !(driver.fork_safe_probe() && first.started);
    expect("H22", quiet, "a fork-safe probe not to start anything", plain(&first))?;
    expect("H22", first.absence.is_none() || first.visible == 0, "a reason only where none is visible", plain(&first))
}

fn probe_and_start_agree(env: &Env) -> Outcome {
    let driver = env.driver()?;
    let visible = driver.probe().visible;
    same("H22", "devices after start", driver.start()?, visible)?;
    same("H22", "devices after a second start", driver.start()?, visible)?;
    same("H22", "the probe after start", driver.probe().visible, visible)
}

fn describe(env: &Env) -> Outcome {
    let driver = env.driver()?;
    let count = driver.probe().visible;
    let described: Vec<Option<DeviceInfo>> = (0..count).map(|ordinal| driver.describe(ordinal)).collect();
    same("H22", "the description of a device out of range", driver.describe(count), None)?;
    driver.start()?;
    for (ordinal, before) in (0..count).zip(described) {
        let open = driver.open(ordinal)?;
        if let Some(before) = before {
            same("H26", "the properties before and after opening", open.info().clone(), before)?;
        }
    }
    Ok(())
}

fn checks(env: &Env) -> Outcome {
    let driver = env.driver()?;
    let checks = driver.checks();
    expect("H22", !checks.is_empty(), "at least one layer examined", "none")?;
    let sorted = checks.is_sorted_by_key(|check| check.layer);
    expect("H22", sorted, "layers from the bottom up", plain(&checks))?;
    driver.start()?;
    expect("H22", !driver.checks().is_empty(), "layers examined after start too", "none")
}

fn open_out_of_range(env: &Env) -> Outcome {
    let driver = env.driver()?;
    let count = driver.start()?;
    for ordinal in [count, count + 1, u32::MAX] {
        let opened = driver.open(ordinal).map(|device| device.info().name.clone());
        refused("H23", &format!("device {ordinal} of {count}"), opened, FaultKind::Invalid)?;
    }
    driver.open(0)?;
    Ok(())
}

fn open_twice(env: &Env) -> Outcome {
    let driver = env.driver()?;
    let lab = Lab::open(driver.clone(), 1, env.patience)?;
    let again = Lab::open(driver, 1, env.patience)?;
    let stream = lab.stream()?;
    let region = lab.memory_with(stream, &[6; 32])?;
    lab.finish(stream)?;
    // What one of them made, the other one knows.
    let other = again.stream()?;
    same_bytes("H23", "memory of the first, read through the second", &again.read(other, region)?, &[6; 32])
}

fn properties(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let info = lab.device(0).info();
    let sizes = || format!("max_alloc {}, memory {}", info.max_alloc, info.memory);
    let patterns = || format!("fill_patterns {:#x}", info.fill_patterns.0);
    let range = info.priorities;
    let rules: [(bool, &str, String); 11] = [
        (!info.name.is_empty(), "a name", "none".into()),
        (info.memory > 0, "memory", "none".into()),
        (info.max_alloc > 0 && info.max_alloc <= info.memory, "a max_alloc above 0 and at most the memory", sizes()),
        (info.alignment.is_power_of_two(), "an alignment that is a power of two", info.alignment.to_string()),
        (info.fill_patterns.0 & !0b1_1111 == 0, "fill patterns of 1, 2, 4, 8 and 16 bytes only", patterns()),
        (info.fill_patterns.0 != 0, "at least one fill pattern", patterns()),
        (
            range.greatest <= range.least,
            "the greatest priority at most the least, as a number",
            format!("priority_greatest {}, priority_least {}", range.greatest, range.least),
        ),
        (info.cores != Some(0), "cores that are unknown or more than 0", "0".into()),
        (
            info.place_alignment.is_power_of_two(),
            "a place_alignment that is a power of two",
            info.place_alignment.to_string(),
        ),
        (info.stamp_ns > 0, "a resolution of stamps above 0", "stamp_ns 0".into()),
        (
            info.host_ends || lab.device(0).pinned().is_some(),
            "pinned memory where copies can't name any host memory",
            "neither".into(),
        ),
    ];
    rules.into_iter().try_for_each(|(held, expected, seen)| expect("H26", held, expected, seen))
}

/// Everything about a device that must not change.
#[derive(Clone, PartialEq, Debug)]
struct Facts {
    info: DeviceInfo,
    pinned: Option<PinnedLimits>,
    peers: Option<PeersLimits>,
    virtual_memory: Option<VirtualMemoryLimits>,
    graphs: Option<GraphsLimits>,
    kernels: Option<(KernelsLimits, Vec<Format>)>,
    native_events: Option<NativeEventsLimits>,
    gates: Option<GatesLimits>,
    telemetry: Option<TelemetryLimits>,
}

fn facts(device: &dyn Device) -> Facts {
    Facts {
        info: device.info().clone(),
        pinned: device.pinned().map(|it| it.limits()),
        peers: device.peers().map(|it| it.limits()),
        virtual_memory: device.virtual_memory().map(|it| it.limits()),
        graphs: device.graphs().map(|it| it.limits()),
        kernels: device.kernels().map(|it| (it.limits(), it.formats().to_vec())),
        native_events: device.native_events().map(|it| it.limits()),
        gates: device.gates().map(|it| it.limits()),
        telemetry: device.telemetry().map(|it| it.limits()),
    }
}

fn constant(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let before = facts(lab.device(0));
    let streams = lab.streams(3)?;
    for &stream in &streams {
        lab.fill(stream, lab.memory(1 << 20)?, 1)?;
        lab.call(stream, |_| ())?;
        same("H26", "properties and capabilities while work is under way", facts(lab.device(0)), before.clone())?;
        lab.finish(stream)?;
    }
    same("H26", "properties and capabilities after work", facts(lab.device(0)), before)
}

/// Two drivers of a kind in one process do not see each other's objects.
fn drivers_apart(env: &Env) -> Outcome {
    let (one, other) = (env.lab()?, env.lab()?);
    if Arc::ptr_eq(one.driver(), other.driver()) {
        return skip("the factory gives one driver for all");
    }
    let (a, b) = (one.stream()?, other.stream()?);
    let hold = one.hold(a)?;
    let first = other.memory_with(b, &[1; 64])?;
    same_bytes("H23", "work of one driver while another is held up", &other.read(b, first)?, &[1; 64])?;
    hold.release()?;
    one.finish(a)?;
    drop(one);
    other.fill(b, first, 2)?;
    same_bytes("H23", "work of one driver after another has gone", &other.read(b, first)?, &[2; 64])
}

fn devices_differ(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let (one, other) = (lab.device(0).info(), lab.device(1).info());
    if let (Some(one), Some(other)) = (one.uuid, other.uuid) {
        expect("H23", one != other, "a uuid for each device", one)?;
    }
    if let (Some(one), Some(other)) = (one.pci, other.pci) {
        expect("H23", one != other, "a place on the bus for each device", one)?;
    }
    Ok(())
}
