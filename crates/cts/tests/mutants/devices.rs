//! Defects of discovery, and of devices as a whole.

use crate::frame::{Defect, locked, nothing};
use crate::mutants;
use anyaccel_hal::{Device, DeviceInfo, Driver, Fault, FaultKind, Mem, Probe, StreamId};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

mutants! {
    every_device_is_the_first: WrongDevice on sim => "discovery.devices-differ", "memory.devices-apart";
    a_device_too_many: ExtraDevice on host => "discovery.probe-and-start-agree", "discovery.describe";
    a_probe_changes: FickleProbe on host => "discovery.probe";
    a_probe_starts_the_runtime: StartingProbe on host => "discovery.probe";
    properties_change_on_opening: OtherProperties on host => "discovery.describe";
    any_ordinal_opens: AnyOrdinal on host => "discovery.open-out-of-range";
    a_capability_goes_away: FickleTelemetry on sim => "discovery.constant";
    a_lost_device_comes_back: Revived on sim => "failure.lost-for-good";
    a_lost_device_keeps_its_marks: PendingMarks on sim => "failure.lost-ends-marks-and-waits";
    a_lost_device_keeps_its_memory: StubbornMemory on sim => "failure.lost-gives-back";
}

#[derive(Default)]
struct WrongDevice;

impl Defect for WrongDevice {
    fn open(&self, good: &dyn Driver, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        // A fault for an ordinal out of range stays one.
        good.open(ordinal)?;
        good.open(0)
    }
}

#[derive(Default)]
struct ExtraDevice;

impl Defect for ExtraDevice {
    fn probe(&self, good: &dyn Driver) -> Probe {
        let probe = good.probe();
        Probe { visible: probe.visible + 1, present: probe.present.map(|present| present + 1), ..probe }
    }
}

/// Every second probe finds nothing.
#[derive(Default)]
struct FickleProbe(AtomicU32);

impl Defect for FickleProbe {
    fn probe(&self, good: &dyn Driver) -> Probe {
        if self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1 { nothing() } else { good.probe() }
    }
}

#[derive(Default)]
struct StartingProbe;

impl Defect for StartingProbe {
    fn probe(&self, good: &dyn Driver) -> Probe {
        Probe { started: true, ..good.probe() }
    }
}

#[derive(Default)]
struct OtherProperties;

impl Defect for OtherProperties {
    fn describe(&self, good: &dyn Driver, ordinal: u32) -> Option<DeviceInfo> {
        good.describe(ordinal).map(|info| DeviceInfo { memory: info.memory / 2, ..info })
    }
}

#[derive(Default)]
struct AnyOrdinal;

impl Defect for AnyOrdinal {
    fn open(&self, good: &dyn Driver, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        good.open(ordinal).or_else(|_| good.open(0))
    }
}

#[derive(Default)]
struct FickleTelemetry(AtomicU32);

impl Defect for FickleTelemetry {
    fn has_telemetry(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < 2
    }
}

fn is_lost<T>(result: &Result<T, Fault>) -> bool {
    result.as_ref().is_err_and(|fault| fault.kind == FaultKind::DeviceLost)
}

/// The loss is told as something that may pass.
#[derive(Default)]
struct Revived;

impl Defect for Revived {
    fn alloc(&self, good: &dyn Device, len: u64) -> Result<anyaccel_hal::Segment, Fault> {
        let taken = good.alloc(len);
        if is_lost(&taken) { Err(Fault::new(FaultKind::OutOfMemory, "alloc")) } else { taken }
    }
}

/// The mark that had ended last stays the last.
#[derive(Default)]
struct PendingMarks(Mutex<u64>);

impl Defect for PendingMarks {
    unsafe fn completed(&self, good: &dyn Device, stream: StreamId) -> Result<u64, Fault> {
        let lost = is_lost(&good.memory_info());
        // SAFETY: forwarded.
        let ended = unsafe { good.completed(stream) }?;
        let mut last = locked(&self.0);
        if !lost {
            *last = ended;
        }
        Ok(*last)
    }
}

#[derive(Default)]
struct StubbornMemory;

impl Defect for StubbornMemory {
    unsafe fn free(&self, good: &dyn Device, mem: Mem) -> Result<(), Fault> {
        good.memory_info()?;
        // SAFETY: forwarded.
        unsafe { good.free(mem) }
    }
}
