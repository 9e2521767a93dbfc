//! What a look does and does not do.

use crate::Scenario;
use crate::lab::{DEVICES, MASK, calls, check, driver, infos, names, runtime_call};
use anyaccel::Runtime;
use anyaccel_hal::{Absence, Kind, Layer, Verdict};
use std::time::Instant;

pub(crate) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("looking_starts_nothing", looking_starts_nothing),
        Scenario::new("asking_the_face_starts_nothing", asking_the_face_starts_nothing),
        Scenario::new("looking_leaves_nothing_behind", looking_leaves_nothing_behind).set(crate::LOG, ""),
        Scenario::new("a_child_looks_like_its_parent", a_child_looks).set(crate::LOG, ""),
        Scenario::new("sysman_comes_before_the_runtime", sysman_comes_first),
        Scenario::new("an_old_loader_is_counted_by_a_start", counted_by_a_start).with(crate::OLD),
        Scenario::new("an_old_loader_that_hides_all", old_and_hidden).with(crate::OLD).set(MASK, "9"),
        Scenario::new("an_old_loader_is_not_asked_with_junk", old_and_junk).with(crate::OLD).set(MASK, "gpu"),
        Scenario::new("the_real_loader_without_a_driver", real_without_driver).with(crate::REAL),
        Scenario::new("the_real_loader_with_a_driver", real_with_driver).with(crate::REAL_WITH_DRIVER),
        Scenario::new("no_loader_has_a_reason", no_loader).set(crate::LIBRARY, "/nonexistent/libze_loader.so.1"),
        Scenario::new("a_library_that_is_no_loader", no_loader).set(crate::LIBRARY, "libc.so.6"),
        Scenario::new("no_card_has_a_reason", no_card).set(DEVICES, ""),
    ]
}

fn looking_starts_nothing() {
    let driver = driver();
    assert!(driver.fork_safe_probe());
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.present, probe.started), (2, Some(2), false));
    assert_eq!(names(&*driver, 2), [Some("Fake XPU".to_owned()), Some("Fake XPU".to_owned())]);
    assert_eq!(driver.describe(2), None);
    let info = driver.describe(1).expect("a device");
    assert_eq!((info.memory, info.integrated), (64 << 20, Some(false)));
    assert!(info.uuid.is_some() && info.pci.is_some());
    let checks = driver.checks();
    assert_eq!(check(&checks, Layer::Probe, Verdict::Pass).found, "2: Fake XPU, Fake XPU");
    assert_eq!(check(&checks, Layer::Version, Verdict::Pass).subject, "loader");
    assert!(calls().iter().any(|call| call == "zesInit"));
    assert_eq!(runtime_call(), None);
}

/// The four questions that a program may ask before it forks.
fn asking_the_face_starts_nothing() {
    let runtime = Runtime::builder().backend("xpu").build().expect("a runtime");
    assert!(runtime.is_available());
    assert_eq!(runtime.device_count(), 2);
    assert_eq!(runtime.get_device_name("xpu:1").expect("a name"), "Fake XPU");
    let capability = runtime.get_device_capability("xpu:0").expect("a capability");
    assert!(!capability.supported_dtypes.is_empty());
    assert_eq!(runtime_call(), None);
}

/// Threads of this process, and files that it has open.
fn held() -> (usize, usize) {
    let count = |path| std::fs::read_dir(path).map_or(0, Iterator::count);
    (count("/proc/self/task"), count("/proc/self/fd"))
}

fn looking_leaves_nothing_behind() {
    let before = held();
    let mut took = Vec::new();
    for _ in 0..101 {
        let driver = driver();
        let began = Instant::now();
        assert_eq!(driver.probe().visible, 2);
        assert!(driver.describe(0).is_some());
        took.push(began.elapsed());
        assert!(!driver.checks().is_empty());
    }
    assert_eq!(held(), before, "threads and open files");
    took[1..].sort_unstable();
    println!("the first look took {:?}, a later one {:?}", took[0], took[51]);
}

/// Runs a piece in a child, and tells whether it returned.
fn in_child(piece: impl FnOnce()) -> bool {
    // SAFETY: fork's own contract; this process has one thread, and the child ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(piece)).is_ok();
        // SAFETY: ends the child without what the parent registered for its end.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let mut status = 0;
    // SAFETY: the child made above, and a valid place for its status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn a_child_looks() {
    let driver = driver();
    let seen = infos(&*driver, 2);
    assert_eq!(seen.len(), driver.probe().visible as usize);
    assert!(in_child(|| {
        assert_eq!(infos(&*driver, 2), seen);
        let own = crate::lab::driver();
        assert_eq!(own.probe().visible, 2);
        // Nothing was started before the fork, so a child can start.
        assert_eq!(own.start(), Ok(2));
    }));
    assert_eq!(driver.start(), Ok(2), "and so can the parent");
}

fn sysman_comes_first() {
    let driver = driver();
    assert_eq!(driver.start(), Ok(2));
    let calls = calls();
    let first = |name: &str| calls.iter().position(|call| call.starts_with(name));
    let (sysman, runtime) = (first("zesInit"), first("zeInit"));
    assert!(sysman.is_some() && sysman < runtime, "{calls:?}");
}

fn counted_by_a_start() {
    let driver = driver();
    assert!(!driver.fork_safe_probe(), "{:?}", anyaccel_xpu::sys::loader());
    assert_eq!(driver.describe(0), None);
    let checks = driver.checks();
    check(&checks, Layer::Version, Verdict::Warn);
    check(&checks, Layer::Probe, Verdict::NotApplicable);
    assert_eq!(runtime_call(), None, "neither naming nor the doctor starts it");
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.present, probe.started), (2, Some(2), true));
    assert!(calls().iter().any(|call| call == "zeInit"));
    assert_eq!(driver.probe(), probe);
    assert_eq!(driver.start(), Ok(2));
    assert_eq!(driver.probe(), probe);
    assert_eq!(driver.describe(0).map(|info| info.name), Some("Fake XPU".to_owned()));
}

fn old_and_hidden() {
    let probe = driver().probe();
    assert_eq!((probe.visible, probe.started), (0, true));
    assert!(matches!(probe.absence, Some(Absence::Masked { name: MASK, value }) if value == "9"));
}

fn old_and_junk() {
    let driver = driver();
    assert!(matches!(driver.probe().absence, Some(Absence::BadVariable { name: MASK, .. })));
    assert!(driver.start().is_err());
    assert_eq!(calls(), [""; 0], "a driver that reads it would end this process");
}

/// Where there is such a loader. Its 1.8 has no `zesInit`, a newer one finds no driver either.
fn real_without_driver() {
    let driver = driver();
    match anyaccel_xpu::sys::loader() {
        Err(missing) => println!("skipped: {missing}"),
        Ok(_) => {
            let probe = driver.probe();
            assert_eq!(probe.visible, 0);
            assert!(matches!(probe.absence, Some(Absence::Missing { .. })), "{probe:?}");
            let nodes = std::path::Path::new("/dev/dri").exists() || std::path::Path::new("/dev/dxg").exists();
            assert!(nodes || !probe.started, "without a node there is nothing to start");
            assert_eq!(driver.start(), Ok(0));
            let layers: Vec<Layer> = driver.checks().iter().map(|check| check.layer).collect();
            assert!(layers.contains(&Layer::DeviceNodes) && layers.contains(&Layer::Probe));
        }
    }
}

/// As a loader of that age does: 1.8 counts by a start, which a newer one need not.
fn real_with_driver() {
    let driver = driver();
    match anyaccel_xpu::sys::loader() {
        Err(missing) => println!("skipped: {missing}"),
        Ok(_) => {
            let probe = driver.probe();
            assert_eq!((probe.visible, probe.started), (2, !driver.fork_safe_probe()), "{probe:?}");
            assert_eq!(driver.start(), Ok(2));
        }
    }
}

fn no_loader() {
    let driver = driver();
    assert_eq!(driver.kind(), Kind::XPU);
    assert!(driver.fork_safe_probe());
    let probe = driver.probe();
    assert!(matches!(&probe.absence, Some(Absence::Missing { layer: Layer::Library, .. })), "{probe:?}");
    assert_eq!(driver.start(), Ok(0));
    let checks = driver.checks();
    check(&checks, Layer::Library, Verdict::Fail);
    assert!(checks[1..].iter().all(|check| check.verdict == Verdict::NotApplicable));
}

fn no_card() {
    let driver = driver();
    let probe = driver.probe();
    let absence = probe.absence.expect("a reason");
    assert!(matches!(absence, Absence::Missing { layer: Layer::Probe, .. }), "{absence:?}");
    assert_eq!(driver.start(), Ok(0));
    check(&driver.checks(), Layer::Probe, Verdict::Fail);
}
