//! What the doctor says of each layer. Starts nothing (H22): loading the loader starts no platform.

use crate::config::{DEVICES, MEMORY, Settings, TYPES};
use crate::discovery::{self, PlatformReport};
use crate::icd::{self, Icd, State};
use crate::sys::{Library, Missing};
use anyaccel_hal::{Absence, Check, Layer, Verdict};
use std::fs;
use std::path::{Path, PathBuf};

/// A driver that is named somewhere, in words.
pub(crate) fn describe(icd: &Icd) -> String {
    let state = match &icd.state {
        State::Found(path) => format!("{}", path.display()),
        State::Unsure(name) => format!("{name}, in none of the usual directories"),
        State::Gone(path) => format!("{path} is not there"),
        State::Forbidden(why) => why.clone(),
        State::Empty => "names no library".to_owned(),
    };
    format!("{}: {state}", icd.named_by)
}

fn check(layer: Layer, verdict: Verdict, subject: impl Into<String>, found: impl Into<String>) -> Check {
    Check { layer, verdict, subject: subject.into(), found: found.into() }
}

/// The layers, from the bottom up. `frozen` is what a started driver runs with, `now` what the environment says now.
pub(crate) fn checks(frozen: Option<&Settings>, now: &Result<Settings, Absence>) -> Vec<Check> {
    let library = Library::load();
    let mut checks = vec![loader(&library)];
    let search = icd::search();
    checks.extend(drivers(&search));
    checks.push(version(&library));
    checks.extend(nodes());
    checks.push(mask(frozen, now));
    match (library.is_ok() && search.possible(), discovery::seen()) {
        (false, _) => checks.push(check(Layer::Probe, Verdict::NotApplicable, "", "an earlier layer failed")),
        (true, None) => {
            let found = "only a start can count devices, which a later fork does not survive";
            checks.push(check(Layer::Probe, Verdict::NotApplicable, "platforms", found));
        }
        (true, Some(platforms)) => checks.extend(counts(platforms)),
    }
    checks
}

fn loader(library: &Result<&'static Library, Missing>) -> Check {
    match library {
        Ok(library) => check(Layer::Library, Verdict::Pass, &library.name, "loads"),
        Err(Missing::Library { library, reason, .. }) => check(Layer::Library, Verdict::Fail, library, reason),
        Err(Missing::Symbol { library, .. }) => check(Layer::Library, Verdict::Pass, library, "loads"),
    }
}

/// One check for each driver that is named. With one that is there, the others are a warning.
fn drivers(search: &icd::Search) -> Vec<Check> {
    let bad = if search.possible() { Verdict::Warn } else { Verdict::Fail };
    let mut checks = Vec::new();
    if let Some(trouble) = &search.trouble {
        checks.push(check(Layer::Library, bad, &search.places, trouble));
    } else if search.icds.is_empty() {
        let found = "no driver is named there; install one (pocl-opencl-icd, intel-opencl-icd, a vendor's)";
        checks.push(check(Layer::Library, bad, &search.places, found));
    }
    for icd in &search.icds {
        let verdict = match icd.state {
            State::Found(_) => Verdict::Pass,
            State::Unsure(_) => Verdict::Warn,
            State::Gone(_) | State::Forbidden(_) | State::Empty => bad,
        };
        let text = describe(icd);
        let found = text.strip_prefix(&format!("{}: ", icd.named_by)).unwrap_or(&text).to_owned();
        checks.push(check(Layer::Library, verdict, &icd.named_by, found));
    }
    checks
}

fn version(library: &Result<&'static Library, Missing>) -> Check {
    match library {
        Ok(library) => {
            let newest = if library.api.clCreateBufferWithProperties.is_some() {
                "3.0"
            } else if library.api.clCreateProgramWithIL.is_some() {
                "2.1"
            } else {
                "2.0"
            };
            check(Layer::Version, Verdict::Pass, "loader", format!("has the functions of OpenCL {newest}"))
        }
        Err(Missing::Symbol { symbol, .. }) => {
            let (major, minor) = symbol.since;
            let found = format!("no {} (OpenCL {major}.{minor}); 2.0 is needed", symbol.name);
            check(Layer::Version, Verdict::Fail, "loader", found)
        }
        Err(Missing::Library { library, .. }) => {
            let found = format!("{library} did not load");
            check(Layer::Version, Verdict::NotApplicable, "loader", found)
        }
    }
}

/// The nodes of GPUs, and whether this user may open them. CPUs have none.
fn nodes() -> Vec<Check> {
    nodes_of(Path::new("/dev"))
}

fn nodes_of(dev: &Path) -> Vec<Check> {
    let list = |directory: PathBuf, prefix: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        entries.filter(named).collect()
    };
    let mut nodes = list(dev.join("dri"), "renderD");
    nodes.extend(list(dev.to_owned(), "kfd"));
    nodes.extend(list(dev.to_owned(), "nvidia"));
    nodes.retain(|path| !path.is_dir());
    nodes.sort();
    if nodes.is_empty() {
        let (subject, found) = ("/dev/dri/renderD*, /dev/kfd, /dev/nvidia*", "none; only drivers for CPUs need none");
        let nothing = "no node to open";
        return vec![
            check(Layer::DeviceNodes, Verdict::NotApplicable, subject, found),
            check(Layer::Permissions, Verdict::NotApplicable, "", nothing),
        ];
    }
    let names: Vec<String> = nodes.iter().map(|path| path.display().to_string()).collect();
    let mut checks = vec![check(Layer::DeviceNodes, Verdict::Pass, "device nodes", names.join(", "))];
    for node in &nodes {
        if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(node)
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            let found = format!("{error}; its group (render or video) is needed");
            checks.push(check(Layer::Permissions, Verdict::Warn, node.display().to_string(), found));
        }
    }
    if checks.len() == 1 {
        checks.push(check(Layer::Permissions, Verdict::Pass, "device nodes", "can be opened"));
    }
    checks
}

fn mask(frozen: Option<&Settings>, now: &Result<Settings, Absence>) -> Check {
    let set = |name: &str| match std::env::var_os(name) {
        Some(value) => format!("{name}={}", value.to_string_lossy()),
        None => format!("{name} not set"),
    };
    let variables = [TYPES, DEVICES, MEMORY].map(set).join(", ");
    let types = |settings: &Settings| if settings.cpus() { "CPUs count" } else { "CPUs don't count" };
    match (frozen, now) {
        (Some(frozen), Ok(now)) if frozen != now => {
            check(Layer::Mask, Verdict::Warn, "environment", format!("{variables}: changed since the start"))
        }
        (_, Ok(settings)) if settings.mask.as_ref().is_some_and(Vec::is_empty) => {
            check(Layer::Mask, Verdict::Fail, "environment", format!("{variables}: hides all devices"))
        }
        (_, Ok(settings)) => {
            check(Layer::Mask, Verdict::Pass, "environment", format!("{variables}; {}", types(settings)))
        }
        (_, Err(Absence::BadVariable { name, value, expected })) => {
            check(Layer::Mask, Verdict::Fail, "environment", format!("{name}={value}: expected {expected}"))
        }
        (_, Err(other)) => check(Layer::Mask, Verdict::Fail, "environment", format!("{other:?}")),
    }
}

fn counts(platforms: &[PlatformReport]) -> Vec<Check> {
    let any = platforms.iter().any(|platform| platform.counted > 0);
    if platforms.is_empty() {
        return vec![check(
            Layer::Probe,
            Verdict::Fail,
            "platforms",
            "the loader found none: its drivers did not load",
        )];
    }
    platforms
        .iter()
        .map(|platform| {
            let verdict = match platform.counted {
                0 if any => Verdict::Warn,
                0 => Verdict::Fail,
                _ => Verdict::Pass,
            };
            let found = match platform.devices.as_slice() {
                [] => "a platform without devices".to_owned(),
                devices => format!("{} of {} devices count: {}", platform.counted, devices.len(), devices.join(", ")),
            };
            check(Layer::Probe, verdict, platform.name.as_str(), found)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_without_devices_is_named() {
        let empty = PlatformReport { name: "Empty".into(), devices: Vec::new(), counted: 0 };
        let full = PlatformReport { name: "Full".into(), devices: vec!["one".into()], counted: 1 };
        let verdicts = |platforms: &[PlatformReport]| -> Vec<(Verdict, String)> {
            counts(platforms).into_iter().map(|check| (check.verdict, check.found)).collect()
        };
        assert_eq!(verdicts(std::slice::from_ref(&empty)), [(Verdict::Fail, "a platform without devices".into())]);
        let both = verdicts(&[empty, full]);
        assert_eq!(both[0].0, Verdict::Warn);
        assert_eq!(both[1], (Verdict::Pass, "1 of 1 devices count: one".into()));
        assert_eq!(verdicts(&[])[0].0, Verdict::Fail);
    }

    #[test]
    fn drivers_that_are_not_there_fail_unless_another_is() {
        let gone = Icd { named_by: "a.icd".into(), state: State::Gone("/x.so".into()) };
        let there = Icd { named_by: "b.icd".into(), state: State::Found("/y.so".into()) };
        let verdicts = |icds: Vec<Icd>| -> Vec<Verdict> {
            let search = icd::Search { places: "here".into(), icds, trouble: None };
            drivers(&search).into_iter().map(|check| check.verdict).collect()
        };
        assert_eq!(verdicts(vec![gone.clone()]), [Verdict::Fail]);
        assert_eq!(verdicts(vec![gone, there]), [Verdict::Warn, Verdict::Pass]);
        assert_eq!(verdicts(vec![]), [Verdict::Fail]);
    }

    #[test]
    fn nodes_that_may_not_be_opened_are_named() {
        use std::os::unix::fs::PermissionsExt;
        let dev = std::env::temp_dir().join(format!("anyaccel-dev-{}", std::process::id()));
        fs::create_dir_all(dev.join("dri")).expect("a directory");
        assert_eq!(nodes_of(&dev)[0].verdict, Verdict::NotApplicable);
        let node = dev.join("dri/renderD128");
        fs::write(&node, "").expect("a file");
        fs::set_permissions(&node, fs::Permissions::from_mode(0o0)).expect("its permissions to change");
        let checks = nodes_of(&dev);
        // Root opens everything.
        let barred = fs::File::open(&node).is_err();
        let expected = if barred { Verdict::Warn } else { Verdict::Pass };
        assert_eq!((checks[1].layer, checks[1].verdict), (Layer::Permissions, expected), "{checks:?}");
        fs::remove_dir_all(&dev).expect("the directory to go");
    }
}
