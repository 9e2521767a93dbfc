//! What masks and hierarchies leave: the count before the start is that after it, and names, identities and places stay.

use crate::Scenario;
use crate::lab::{DEVICES, HIERARCHY, MASK, ORDER, calls, check, driver, infos, names, runtime_call};
use anyaccel::{Error, Runtime};
use anyaccel_hal::{Absence, FaultKind, Kind, Layer, Verdict};

/// Cards that differ in all that a look may mistake.
const MIXED: &str = "Tiny:integrated,Big:tiles2,Small,Huge:tiles4";
const ALIKE: &str = "Max:tiles2,Max:tiles2";

const MASKS: [&str; 20] = [
    "",
    "default",
    "0",
    "1",
    "3,0",
    "0,0,0",
    "0.0",
    "0.1",
    "1.1,0",
    "1.0,1.1",
    "2.1,2.3",
    "7",
    "0x1,01",
    "-1",
    "0,99",
    // A comma or a point may be the last character; numbers are cut to 32 bits; there may be three levels.
    "0,",
    "1.,0.1,",
    "4294967297",
    "-4294967295",
    "0.1.0,1.0",
];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for hierarchy in ["FLAT", "COMPOSITE", "COMBINED", "none of them"] {
        for (at, mask) in MASKS.iter().enumerate() {
            for (devices, order) in [(ALIKE, "0"), (MIXED, "0"), (MIXED, "1")] {
                let (kind, hierarchy_name) =
                    (if devices == ALIKE { "alike" } else { "mixed" }, hierarchy.replace(' ', "_"));
                let name = format!("view_of_{kind}_{order}_{hierarchy_name}_{at}");
                let scenario = Scenario::named(name, the_same_before_and_after);
                let scenario = scenario.set(DEVICES, devices).set(HIERARCHY, hierarchy).set(ORDER, order);
                all.push(scenario.set(MASK, *mask));
            }
        }
    }
    for (at, junk) in ["gpu", "0,x", "0,,1", ",", " ", "0.x", "1..0", "99999999999999999999", "0;1", "0.0.0.0", "0,,"]
        .iter()
        .enumerate()
    {
        let run = if *junk == "0;1" { the_same_before_and_after } else { junk_is_refused };
        all.push(Scenario::named(format!("junk_{at}"), run).set(MASK, *junk));
    }
    all.extend([
        Scenario::new("junk_by_the_face", junk_by_the_face).set(MASK, "gpu"),
        Scenario::new("cards_hide_processors_gpus", cards_hide).set(DEVICES, MIXED).set(ORDER, "1"),
        Scenario::new("a_processors_gpu_alone_is_a_device", alone).set(DEVICES, "Iris:integrated"),
        Scenario::new("the_mask_can_choose_a_processors_gpu", chosen)
            .set(DEVICES, "Iris:integrated,Arc")
            .set(ORDER, "1")
            .set(MASK, "0"),
        Scenario::new("tiles_have_names_and_memory", tiles).set(DEVICES, ALIKE),
        Scenario::new("another_timer", the_same_before_and_after).set("ANYACCEL_FAKE_ZE_TIMER", "24000000:32:32:0"),
        Scenario::new("a_mask_that_hides_all", hidden).set(MASK, "9"),
        Scenario::new("items_that_name_nothing_are_told", idle).set(MASK, "1,9"),
        Scenario::new("variables_that_change_after_the_start", changed),
    ]);
    all
}

/// Whatever the variables say. Of cards that differ the order may be unknown before, and then nothing is told.
fn the_same_before_and_after() {
    let driver = driver();
    let before = driver.probe();
    let described = infos(&*driver, before.visible);
    assert!(!before.started && before.present >= Some(before.visible));
    assert_eq!(runtime_call(), None);
    assert_eq!(driver.start(), Ok(before.visible));
    let after = infos(&*driver, before.visible);
    for (ordinal, (before, after)) in described.iter().zip(&after).enumerate() {
        let after = after.as_ref().expect("a device that was started");
        if let Some(before) = before {
            assert_eq!((&before.name, &before.driver, &before.vendor), (&after.name, &after.driver, &after.vendor));
            assert_eq!((before.memory, before.integrated), (after.memory, after.integrated), "device {ordinal}");
            assert_eq!((&before.dtypes, before.priorities), (&after.dtypes, after.priorities));
            assert_eq!((before.alignment, before.cores), (after.alignment, after.cores));
            assert_eq!((before.stamp_ns, before.clock_mhz), (after.stamp_ns, after.clock_mhz));
            if std::env::var(ORDER).is_ok_and(|order| order == "1") {
                // Of a tile this driver does not tell it before.
                assert!(before.uuid.is_none() || before.uuid == after.uuid, "device {ordinal}");
                assert_eq!(before.pci, after.pci, "device {ordinal}");
            }
        }
    }
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.absence.is_none()), (before.visible, before.visible > 0));
    let alike = std::env::var(DEVICES).is_ok_and(|devices| devices == ALIKE);
    let ordered = std::env::var(ORDER).is_ok_and(|order| order == "1");
    if alike || ordered {
        assert!(described.iter().all(Option::is_some), "what can be known is told");
    }
    for ordinal in 0..before.visible {
        let device = driver.open(ordinal).expect("a device");
        assert_eq!(Some(device.info()), after[ordinal as usize].as_ref());
    }
}

fn junk_is_refused() {
    let driver = driver();
    let probe = driver.probe();
    let Some(Absence::BadVariable { name: MASK, value, expected }) = &probe.absence else { panic!("{probe:?}") };
    assert_eq!(*value, std::env::var(MASK).expect("a mask"));
    assert_eq!(probe.visible, 0);
    let fault = driver.start().expect_err("a mask that ends the driver");
    assert_eq!(fault.kind, FaultKind::Invalid);
    let text = fault.to_string();
    assert!(text.contains(value.as_str()) && text.contains(expected), "{text}");
    let checks = driver.checks();
    let told = check(&checks, Layer::Mask, Verdict::Fail);
    assert!(told.found.contains(expected), "{told:?}");
    check(&checks, Layer::Probe, Verdict::NotApplicable);
    assert_eq!(calls(), [""; 0], "a driver that reads it would end this process");
}

/// Through the face: the kind says what is wrong, and another one goes on.
fn junk_by_the_face() {
    let named = Runtime::builder().backend("xpu").build().expect("a runtime");
    assert!(!named.is_available());
    assert_eq!(named.device_count(), 0);
    let error = named.get_device_properties("xpu:0").expect_err("a bad mask");
    assert!(matches!(&error, Error::BadVariable { name: MASK, value, .. } if value == "gpu"), "{error:?}");
    assert!(error.to_string().contains("ZE_AFFINITY_MASK"), "{error}");
    let host = Runtime::builder().backend("host").build().expect("a runtime");
    host.synchronize("host:0").expect("an end");
    assert_eq!(host.kind(), Some(Kind::HOST));
    assert_eq!(calls(), [""; 0]);
}

fn cards_hide() {
    let driver = driver();
    let names = names(&*driver, driver.probe().visible);
    let names: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("")).collect();
    assert_eq!(names, ["Big", "Big", "Small", "Huge", "Huge", "Huge", "Huge"]);
}

fn alone() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 1);
    assert_eq!(driver.describe(0).and_then(|info| info.integrated), Some(true));
    assert_eq!(driver.start(), Ok(1));
}

fn chosen() {
    let driver = driver();
    assert_eq!(names(&*driver, driver.probe().visible), [Some("Iris".to_owned())]);
    assert_eq!(driver.start(), Ok(1));
}

fn tiles() {
    let driver = driver();
    let infos = infos(&*driver, driver.probe().visible);
    assert_eq!(infos.len(), 4);
    for info in infos.iter().flatten() {
        assert_eq!((info.name.as_str(), info.memory), ("Max", 64 << 20));
    }
    let checks = driver.checks();
    let told = &check(&checks, Layer::Probe, Verdict::Pass).found;
    assert_eq!(told, "4: Max (tile 0), Max (tile 1), Max (tile 0), Max (tile 1)");
}

fn hidden() {
    let driver = driver();
    let probe = driver.probe();
    assert_eq!((probe.visible, probe.present), (0, Some(2)));
    assert!(matches!(probe.absence, Some(Absence::Masked { name: MASK, value }) if value == "9"));
    assert_eq!(driver.start(), Ok(0));
    assert_eq!(runtime_call(), None, "there is nothing to start");
    let checks = driver.checks();
    assert!(check(&checks, Layer::Mask, Verdict::Fail).found.contains("hides all devices"));
}

fn idle() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 1);
    assert!(check(&driver.checks(), Layer::Mask, Verdict::Warn).found.ends_with("names nothing by 9"));
}

/// The driver reads them once, so the look does too, and the doctor tells.
fn changed() {
    let driver = driver();
    assert_eq!(driver.start(), Ok(2));
    // SAFETY: this process has no other thread that reads the environment: no device is open.
    unsafe { std::env::set_var(MASK, "1") };
    assert_eq!(driver.probe().visible, 2);
    let checks = driver.checks();
    assert!(check(&checks, Layer::Mask, Verdict::Warn).found.ends_with("changed since the start"));
    assert_eq!(check(&checks, Layer::Probe, Verdict::Pass).found, "2, since the start");
}
