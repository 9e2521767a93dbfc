//! What devices are: counting, properties, capability, peers, telemetry.

use super::{Face, out_of_range};
use crate::case::{Case, Outcome, errs, expect, same};
use crate::env::Env;
use crate::words::plain;
use anyaccel::{DType, Device, Error};

pub(super) const CASES: &[Case] = &[
    Case::face(
        "devices.count",
        &["device.count", "device.available", "device.current-accelerator", "device.current-index"],
        count,
    ),
    Case::face("devices.properties", &["device.properties"], properties).devices(2),
    Case::face("devices.capability", &["device.capability"], capability),
    Case::face("devices.other-dtypes", &["device.capability"], other_dtypes),
    Case::face("devices.peers", &["device.peers"], peers).devices(2),
    Case::face("devices.telemetry", &["device.telemetry"], telemetry),
    Case::face("devices.memory-info", &["memory.info"], memory_info).devices(2),
];

fn count(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let visible = face.driver.probe().visible;
    let device = Some(Device::new(face.kind(), None));
    for _ in 0..2 {
        same("device.count", "device_count", runtime.device_count(), visible)?;
        same("device.available", "is_available", runtime.is_available(), visible > 0)?;
        same("device.current-accelerator", "current_accelerator(false)", runtime.current_accelerator(false), device)?;
        same("device.current-accelerator", "current_accelerator(true)", runtime.current_accelerator(true), device)?;
        same("device.current-index", "the device of a thread that never chose", runtime.current_device_index()?, 0)?;
        runtime.current_stream(())?;
    }
    Ok(())
}

fn properties(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let before = [runtime.get_device_properties(0)?, runtime.get_device_properties(1)?];
    runtime.current_stream(())?;
    for (index, before) in before.iter().enumerate() {
        let after = runtime.get_device_properties(index)?;
        same("device.properties", "properties after the start", &after, before)?;
        same("device.properties", "the name", runtime.get_device_name(index)?, after.name)?;
        runtime.set_device_index(index)?;
        same("device.properties", "properties of the current device", &runtime.get_device_properties(())?, before)?;
    }
    Ok(())
}

/// Each dtype listed converts to each other one.
fn capability(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let dtypes = runtime.get_device_capability(())?.supported_dtypes;
    let stream = runtime.current_stream(())?;
    let source = runtime.zeros(16 * 10)?;
    let target = runtime.alloc(16 * 10)?;
    for from in dtypes.iter() {
        for to in dtypes.iter() {
            let (src, dst) = (source.slice(..10 * from.size() as u64)?, target.slice(..10 * to.size() as u64)?);
            stream.convert(&dst, to, &src, from)?;
        }
    }
    face.finish(&stream)?;
    // Ten zeros of the first type are ten zeros of any but the one without a zero.
    if dtypes.contains(DType::F32) && dtypes.contains(DType::I64) {
        stream.convert(&target.slice(..80)?, DType::I64, &source.slice(..40)?, DType::F32)?;
        same("device.capability", "ten converted zeros", target.to_vec()?[..80].to_vec(), vec![0; 80])?;
    }
    same("device.capability", "the set, asked again", runtime.get_device_capability(0)?.supported_dtypes, dtypes)
}

fn other_dtypes(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let dtypes = runtime.get_device_capability(())?.supported_dtypes;
    let stream = runtime.current_stream(())?;
    let (source, target) = (runtime.zeros(16)?, runtime.alloc(16)?);
    let others: Vec<DType> = DType::ALL.iter().copied().filter(|&dtype| !dtypes.contains(dtype)).collect();
    if others.is_empty() {
        return crate::case::skip("it has every dtype");
    }
    for other in others {
        let (src, dst) = (source.slice(..other.size() as u64)?, target.slice(..other.size() as u64)?);
        let right = |error: &Error| matches!(error, Error::DTypeUnsupported { .. });
        let result = stream.convert(&dst, other, &src, other);
        errs("device.capability", &format!("a conversion of {other}"), "DTypeUnsupported", result, right)?;
    }
    Ok(())
}

fn peers(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    same("device.peers", "whether a device is its own peer", runtime.can_device_access_peer(0, 0)?, false)?;
    let reached = face.driver.open(0)?.peers().is_some_and(|peers| peers.can_access(1));
    same("device.peers", "whether device 0 reaches device 1", runtime.can_device_access_peer(0, 1)?, reached)?;
    let (beyond, range) = (face.beyond(), out_of_range(face.beyond()));
    errs("device.peers", "a peer out of range", "a range error", runtime.can_device_access_peer(0, beyond), range)
}

fn telemetry(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let sensors = [
        ("utilization", runtime.utilization(()), 100.0),
        ("memory_usage", runtime.memory_usage(()), 100.0),
        ("temperature", runtime.temperature(()), 200.0),
        ("power_draw", runtime.power_draw(()), 10_000.0),
        ("clock_rate", runtime.clock_rate(()), 100_000.0),
    ];
    let known = face.driver.open(0)?.telemetry().is_some();
    for (name, reading, most) in sensors {
        match reading {
            Ok(value) => {
                expect("device.telemetry", known, &format!("no {name} without a sensor"), value)?;
                expect("device.telemetry", (0.0..=most).contains(&value), &format!("{name} from 0 to {most}"), value)?;
            }
            Err(error) => {
                let named = matches!(error, Error::Unsupported { .. } | Error::Driver { .. });
                expect("device.telemetry", named, &format!("{name}, or an error that says why not"), plain(&error))?;
            }
        }
    }
    Ok(())
}

fn memory_info(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let before = [runtime.get_memory_info(0)?, runtime.get_memory_info(1)?];
    for (free, total) in before {
        expect("memory.info", free <= total && total > 0, "free at most total", format!("{free} of {total}"))?;
    }
    let taken = runtime.alloc_on(0, 64 << 20)?;
    let after = [runtime.get_memory_info(0)?, runtime.get_memory_info(1)?];
    let used = before[0].0.saturating_sub(after[0].0);
    expect(
        "memory.info",
        used >= 48 << 20,
        "64 MiB less on the device that they were taken on",
        format!("{used} less"),
    )?;
    let other = before[1].0.abs_diff(after[1].0);
    expect("memory.info", other < 48 << 20, "no change on the other device", format!("{other} bytes"))?;
    drop(taken);
    Ok(())
}
