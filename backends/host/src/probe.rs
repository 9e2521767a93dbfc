//! What this machine has, and what the doctor says of it. Starts nothing (H22).

use crate::config::{DEVICES, MEMORY, Settings};
use anyaccel_hal::{Absence, Check, DTypeSet, DeviceInfo, Layer, PatternSizes, PriorityRange, Probe, Verdict};
use std::fs;

/// The priorities of streams: as many as PyTorch knows.
pub(crate) const PRIORITIES: PriorityRange = PriorityRange { least: 0, greatest: -3 };

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of memory that this process may use: the machine's, or what its control group allows if that is less.
pub(crate) fn machine_memory() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let physical = match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) if pages > 0 => pages.saturating_mul(page),
        // A system that does not tell: a size that every machine has.
        _ => 1 << 30,
    };
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
        .fold(physical, u64::min)
}

/// The processor's name, as the system gives it.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// A device's properties.
pub(crate) fn describe(settings: &Settings) -> DeviceInfo {
    DeviceInfo {
        name: processor().unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH)),
        vendor: "anyaccel".to_owned(),
        driver: env!("CARGO_PKG_VERSION").to_owned(),
        uuid: None,
        pci: None,
        memory: settings.memory,
        max_alloc: settings.memory,
        alignment: crate::memory::PAGE,
        place_alignment: 1,
        host_ends: true,
        stamp_ns: 1,
        fill_patterns: PatternSizes::ALL,
        cores: Some(cores() as u32),
        clock_mhz: None,
        integrated: Some(true),
        priorities: PRIORITIES,
        dtypes: DTypeSet::ALL,
    }
}

/// What discovery says of a number of devices, or of their absence.
pub(crate) fn probe(count: &Result<u32, Absence>) -> Probe {
    match count {
        Ok(0) => Probe {
            present: Some(0),
            ..Probe::absent(Absence::Missing {
                layer: Layer::Probe,
                subject: "devices".to_owned(),
                found: "a driver built with none".to_owned(),
            })
        },
        Ok(count) => Probe::found(*count),
        // The machine is there whatever the variable says.
        Err(absence @ Absence::Masked { .. }) => Probe { present: Some(1), ..Probe::absent(absence.clone()) },
        Err(absence) => Probe::absent(absence.clone()),
    }
}

/// A count and its noun.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The layers for the doctor. `frozen` is what a started driver runs with, `now` what the environment says now.
pub(crate) fn checks(frozen: Option<&Settings>, now: &Result<Settings, Absence>) -> Vec<Check> {
    let check = |layer, verdict, subject: &str, found: String| Check { layer, verdict, subject: subject.into(), found };
    let none = |layer, found: &str| check(layer, Verdict::NotApplicable, "", found.to_owned());
    let set = |name: &str| match std::env::var_os(name) {
        Some(value) => format!("{name}={}", value.to_string_lossy()),
        None => format!("{name} not set"),
    };
    let variables = format!("{}, {}", set(DEVICES), set(MEMORY));
    let mask = match (frozen, now) {
        (Some(frozen), Ok(now)) if frozen == now => (Verdict::Pass, variables),
        (Some(frozen), _) => {
            let started = format!("{} of {} bytes", counted(frozen.devices as usize, "device"), frozen.memory);
            (Verdict::Warn, format!("{variables}: changed since the start, with {started}"))
        }
        (None, Ok(_)) => (Verdict::Pass, variables),
        (None, Err(Absence::BadVariable { name, value, expected })) => {
            (Verdict::Fail, format!("{name}={value}: expected {expected}"))
        }
        (None, Err(_)) => (Verdict::Fail, format!("{variables}: hides all devices")),
    };
    let probe = match frozen.or(now.as_ref().ok()) {
        Some(settings) if settings.devices > 0 => {
            let Settings { devices, memory, workers } = settings;
            let (devices, workers) = (counted(*devices as usize, "device"), counted(*workers, "worker"));
            (Verdict::Pass, format!("{devices} of {memory} bytes, up to {workers}"))
        }
        Some(_) => (Verdict::Fail, "0 devices".to_owned()),
        None => (Verdict::NotApplicable, String::new()),
    };
    vec![
        none(Layer::Library, "built in"),
        check(Layer::Version, Verdict::Pass, "anyaccel-host", env!("CARGO_PKG_VERSION").to_owned()),
        none(Layer::DeviceNodes, "needs none"),
        none(Layer::Permissions, "needs none"),
        check(Layer::Mask, mask.0, "environment", mask.1),
        check(Layer::Probe, probe.0, "devices", probe.1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_cores() {
        assert!(machine_memory() >= 64 << 20);
        assert!(cores() >= 1);
    }

    #[test]
    fn absence_is_told_from_masking() {
        let masked = Err(Absence::Masked { name: DEVICES, value: "0".to_owned() });
        assert_eq!((probe(&masked).visible, probe(&masked).present), (0, Some(1)));
        let bad = Absence::BadVariable { name: DEVICES, value: "x".to_owned(), expected: "a number" };
        let probed = probe(&Err(bad.clone()));
        assert_eq!((probed.visible, probed.present), (0, None));
        let checks = checks(None, &Err(bad));
        let mask = checks.iter().find(|check| check.layer == Layer::Mask).expect("a mask layer");
        assert_eq!((mask.verdict, mask.found.as_str()), (Verdict::Fail, "ANYACCEL_HOST_DEVICES=x: expected a number"));
        assert_eq!(checks.last().map(|check| check.verdict), Some(Verdict::NotApplicable));
    }

    #[test]
    fn the_doctor_notices_a_later_change() {
        let frozen = Settings { devices: 2, memory: 8192, workers: 2 };
        let verdict = |now| {
            let checks = checks(Some(&frozen), &now);
            checks.iter().find(|check| check.layer == Layer::Mask).map(|check| check.verdict)
        };
        assert_eq!(verdict(Ok(frozen)), Some(Verdict::Pass));
        assert_eq!(verdict(Ok(Settings { devices: 3, ..frozen })), Some(Verdict::Warn));
        assert_eq!(verdict(Err(Absence::Masked { name: DEVICES, value: "0".to_owned() })), Some(Verdict::Warn));
    }
}
