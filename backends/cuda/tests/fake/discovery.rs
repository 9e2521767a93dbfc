//! Counting, naming and joining.

use crate::Scenario;
use crate::lab::{Lab, calls, driver, eventually};
use anyaccel_cuda::sys::{Cuda, SymbolTable};
use anyaccel_hal::{Absence, Layer, Verdict};

const DEVICES: &str = "ANYACCEL_FAKE_CUDA_DEVICES";
const MASK: &str = "CUDA_VISIBLE_DEVICES";
/// A slow card before a fast one on the bus.
const MIXED: &str = "Old:7.0,New:9.0";

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("looking_starts_nothing", looking_starts_nothing),
    Scenario::new("opening_retains_one_context", opening_retains_one_context),
    Scenario::new("the_fastest_comes_first", the_fastest_comes_first).with(&[(DEVICES, MIXED)]),
    Scenario::new("the_bus_orders_if_it_is_told_to", the_bus_orders)
        .with(&[(DEVICES, MIXED), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]),
    Scenario::new("identities_name_cards_in_any_order", identities_name_cards)
        .with(&[(DEVICES, MIXED), (MASK, "GPU-face11,GPU-face10")]),
    Scenario::new("sensors_are_those_of_the_card", sensors_are_those_of_the_card).with(&[(DEVICES, MIXED)]),
    Scenario::new("a_mask_ends_at_what_it_does_not_know", a_mask_ends).with(&[(MASK, "1,7,0")]),
    Scenario::new("a_mask_that_hides_all", a_mask_that_hides_all).with(&[(MASK, "-1")]),
    Scenario::new("a_mask_with_a_device_twice", a_mask_that_hides_all).with(&[(MASK, "0,1,0")]),
    Scenario::new("one_instance_of_a_card", one_instance).with(&[(DEVICES, "A:8.0:mig2,A:8.0")]),
    Scenario::new("an_instance_by_its_identity", an_instance_by_identity)
        .with(&[(DEVICES, "A:8.0:mig2,B:8.0"), (MASK, "MIG-face1000-0000-4000-8000-000000000002")]),
    Scenario::new("no_library_has_a_reason", no_library)
        .with(&[("ANYACCEL_CUDA_LIBRARY", "/nonexistent/libcuda.so.1")]),
    Scenario::new("a_library_that_is_no_driver", no_driver).with(&[("ANYACCEL_CUDA_LIBRARY", "libc.so.6")]),
    Scenario::new("no_card_has_a_reason", no_card).with(&[(DEVICES, "")]),
    Scenario::new("a_driver_that_is_too_old", too_old).with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "11.4")]),
    Scenario::new("a_start_that_fails_can_be_tried_again", failed_start)
        .with(&[("ANYACCEL_FAKE_CUDA_FAIL", "cuInit:1:999")]),
    Scenario::new("a_child_of_a_started_parent_is_refused", forked_child),
    Scenario::new("what_a_driver_lacks_is_known", what_a_driver_lacks).with(&[("ANYACCEL_FAKE_CUDA_DRIVER", "11.8")]),
    Scenario::new("an_old_card_has_no_builtins", old_card).with(&[(DEVICES, "Ancient:5.2")]),
];

/// Calls of the management library and the driver's version are no start.
fn looking_starts_nothing() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 2);
    assert_eq!(driver.describe(1).map(|info| info.name), Some("Fake GPU".to_owned()));
    assert!(!driver.checks().is_empty());
    let calls = calls();
    assert!(calls.iter().any(|call| call == "nvmlInit_v2"));
    let opened = calls.iter().filter(|call| *call == "nvmlInit_v2").count();
    assert_eq!(
        opened,
        calls.iter().filter(|call| *call == "nvmlShutdown").count(),
        "the management library stays open"
    );
    let started = calls.iter().find(|call| call.starts_with("cu") && *call != "cuDriverGetVersion");
    assert_eq!(started, None);
}

/// By the table's own years.
fn what_a_driver_lacks() {
    let cuda = anyaccel_cuda::sys::cuda().expect("a driver");
    for symbol in Cuda::SYMBOLS {
        assert_eq!(cuda.has(symbol.name), symbol.since <= (11, 8), "{symbol:?}");
    }
}

fn opening_retains_one_context() {
    let driver = driver();
    assert_eq!(driver.start(), Ok(2));
    assert!(!calls().iter().any(|call| call == "cuDevicePrimaryCtxRetain"), "a context before it was asked for");
    let lab = Lab::of(driver.clone(), 1);
    let stream = lab.stream();
    lab.memory(1 << 20);
    lab.finish(stream).expect("an end");
    assert_eq!(calls().iter().filter(|call| *call == "cuDevicePrimaryCtxRetain").count(), 1);
    drop(lab);
    drop(driver);
    let ended = |name: &str| calls().iter().filter(|call| *call == name).count();
    eventually("it is released in the end", || ended("cuDevicePrimaryCtxRelease_v2") == 1);
    assert_eq!((ended("cuMemAlloc_v2"), ended("cuMemFree_v2")), (1, 1), "with what was left");
}

fn the_fastest_comes_first() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 2);
    assert_eq!(driver.describe(0), None, "only the driver knows its order");
    assert_eq!(driver.start(), Ok(2));
    let names = [0, 1].map(|ordinal| driver.describe(ordinal).map(|info| info.name).unwrap_or_default());
    assert_eq!(names, ["New", "Old"]);
}

fn the_bus_orders() {
    let driver = driver();
    let before = [0, 1].map(|ordinal| driver.describe(ordinal));
    assert_eq!(before.each_ref().map(|info| info.as_ref().map(|info| info.name.as_str())), [Some("Old"), Some("New")]);
    assert_eq!(driver.start(), Ok(2));
    assert_eq!([0, 1].map(|ordinal| driver.describe(ordinal)), before);
}

fn identities_name_cards() {
    let driver = driver();
    let before = [0, 1].map(|ordinal| driver.describe(ordinal).map(|info| info.name).unwrap_or_default());
    assert_eq!(before, ["New", "Old"]);
    assert_eq!(driver.start(), Ok(2));
    for ordinal in [0, 1] {
        let opened = driver.open(ordinal).expect("a device");
        assert_eq!(opened.info().name, before[ordinal as usize]);
    }
}

/// The fake's cards say how far down the bus they are: the new one is second there, and first for the driver.
fn sensors_are_those_of_the_card() {
    let lab = Lab::new();
    assert_eq!(lab.device.info().name, "New");
    let sensors = lab.device.telemetry().expect("telemetry");
    assert_eq!(sensors.temperature(), Ok(41.0));
    assert_eq!(sensors.utilization(), Ok(31.0));
    assert_eq!(sensors.memory_usage(), Ok(11.0));
    assert_eq!(sensors.power_draw(), Ok(101.5));
    assert_eq!(sensors.clock_rate(), Ok(1201.0));
}

fn a_mask_ends() {
    let driver = driver();
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.present), (1, Some(2)));
    let checks = driver.checks();
    let mask = checks.iter().find(|check| check.layer == Layer::Mask).expect("a mask layer");
    assert_eq!(mask.verdict, Verdict::Warn);
    assert!(mask.found.contains("\"7\" is out of range"), "{}", mask.found);
    assert_eq!(driver.start(), Ok(1));
    assert_eq!(driver.describe(0).and_then(|info| info.pci).map(|pci| pci.bus), Some(0x11));
}

fn a_mask_that_hides_all() {
    let driver = driver();
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.present), (0, Some(2)));
    assert!(matches!(probe.absence, Some(Absence::Masked { name: MASK, .. })), "{probe:?}");
    assert_eq!(driver.start(), Ok(0));
    assert!(!calls().iter().any(|call| call == "cuInit"), "it started for nothing");
}

fn one_instance() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 1, "an instance, and no card beside it");
    let described = driver.describe(0).expect("it is known");
    assert_eq!(driver.start(), Ok(1));
    let lab = Lab::of(driver, 0);
    assert_eq!(*lab.device.info(), described);
    assert!(!lab.device.telemetry().expect("telemetry").limits().temperature, "sensors are the card's");
}

fn an_instance_by_identity() {
    let driver = driver();
    let described = driver.describe(0).expect("it is known");
    assert!(described.uuid.is_some_and(|uuid| uuid.0[15] == 2), "{described:?}");
    assert_eq!(driver.start(), Ok(1));
    assert_eq!(driver.open(0).expect("a device").info().uuid, described.uuid);
}

fn missing(layer: Layer) -> (String, String) {
    let driver = driver();
    let probe = driver.probe();
    assert_eq!(probe.visible, 0);
    assert_eq!(driver.start(), Ok(0));
    assert!(driver.checks().iter().any(|check| check.verdict == Verdict::Fail), "{:?}", driver.checks());
    match probe.absence {
        Some(Absence::Missing { layer: found, subject, found: reason }) if found == layer => (subject, reason),
        other => panic!("{other:?}"),
    }
}

fn no_library() {
    let (subject, reason) = missing(Layer::Library);
    assert!(subject.contains("/nonexistent/libcuda.so.1"));
    assert!(reason.contains("No such file"), "{reason}");
}

fn no_driver() {
    let (subject, reason) = missing(Layer::Library);
    assert_eq!((subject.as_str(), reason.as_str()), ("libc.so.6", "a library without cuInit"));
}

fn no_card() {
    missing(Layer::DeviceNodes);
}

fn too_old() {
    let (_, found) = missing(Layer::Version);
    assert_eq!(found, "one of CUDA 11.4");
}

fn failed_start() {
    let driver = driver();
    let fault = driver.start().expect_err("the first start fails");
    assert_eq!((fault.api, fault.code), ("cuInit", 999));
    assert_eq!(driver.start(), Ok(2));
}

fn forked_child() {
    let lab = Lab::new();
    let stream = lab.stream();
    // SAFETY: the child makes calls that fail at once and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = lab.device.memory_info().is_err_and(|fault| fault.code == 3)
            && lab.mark(stream).is_err()
            && driver().probe().visible == 2;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child was not refused as it should be");
    lab.finish(stream).expect("the parent goes on");
}

fn old_card() {
    let lab = Lab::new();
    assert!(lab.device.info().dtypes.is_empty());
    assert!((0..40).all(|number| lab.device.builtin(number).is_none()));
    // What the backend needs itself is there.
    let stream = lab.stream();
    let place = lab.memory(64);
    lab.write(stream, place, &[7; 64]).expect("a write");
    assert_eq!(lab.read(stream, place, 64), [7; 64]);
}
