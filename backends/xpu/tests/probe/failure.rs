//! Calls of the management side that fail: each has an answer, and none takes the runtime or another kind along.

use crate::Scenario;
use crate::lab::{FAIL, WITHOUT, calls, check, driver, infos, runtime_call};
use anyaccel_hal::{Absence, FaultKind, Layer, Verdict};
use anyaccel_xpu::sys::{
    SymbolTable, ZE_RESULT_ERROR_DEVICE_LOST, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, ZE_RESULT_ERROR_NOT_AVAILABLE,
    ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ZE_RESULT_ERROR_UNINITIALIZED, ZE_RESULT_ERROR_UNKNOWN,
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, Zes,
};

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    let codes = [
        ZE_RESULT_ERROR_UNKNOWN,
        ZE_RESULT_ERROR_DEVICE_LOST,
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS,
        ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        ZE_RESULT_ERROR_NOT_AVAILABLE,
        ZE_RESULT_ERROR_UNINITIALIZED,
    ];
    for symbol in Zes::SYMBOLS {
        for code in codes {
            let scenario = Scenario::named(format!("failing_{}_{code:x}", symbol.name), a_call_fails);
            all.push(scenario.set(FAIL, format!("{}:all:{code:#x}", symbol.name)));
        }
    }
    all.push(Scenario::new("failing_everything", everything_fails).set(FAIL, format!("*:all:{:#x}", codes[0])));
    all.push(Scenario::new("a_driver_without_sysman", without_sysman).set(WITHOUT, "sysman"));
    all.push(
        Scenario::new("a_driver_that_is_too_old", too_old)
            .set(FAIL, format!("zesInit:all:{ZE_RESULT_ERROR_UNSUPPORTED_FEATURE:#x}")),
    );
    all.push(
        Scenario::new("a_look_that_failed_is_not_kept", not_kept)
            .set(FAIL, format!("zesDriverGet:1:{ZE_RESULT_ERROR_UNKNOWN:#x}")),
    );
    all
}

/// Calls without which no number of devices is sure.
const NEEDED: [&str; 4] = ["zesInit", "zesDriverGet", "zesDeviceGet", "zesDeviceGetProperties"];

fn failing() -> String {
    let order = std::env::var(FAIL).expect("an order");
    order.split(':').next().unwrap_or_default().to_owned()
}

/// One call fails, always.
fn a_call_fails() {
    let (driver, name) = (driver(), failing());
    let probe = driver.probe();
    let described = infos(&*driver, probe.visible);
    let checks = driver.checks();
    assert_eq!(runtime_call(), None, "a look starts nothing, whatever fails");
    if NEEDED.contains(&name.as_str()) {
        let Some(Absence::Missing { layer, subject, found }) = probe.absence else { panic!("{probe:?}") };
        assert_eq!(probe.visible, 0);
        // On a machine without cards a driver that does not come up is told by the missing nodes.
        assert!(found.contains(&name) || layer == Layer::Permissions, "{layer:?} {subject}: {found}");
        assert!(checks.iter().any(|check| check.verdict == Verdict::Fail), "{checks:?}");
    } else {
        assert_eq!((probe.visible, probe.absence), (2, None));
        assert!(described.iter().all(Option::is_some));
        check(&checks, Layer::Probe, Verdict::Pass);
    }
    // The runtime goes on without its management side.
    assert_eq!(driver.start(), Ok(2));
    let device = driver.open(1).expect("a device");
    let sensors = device.telemetry().expect("sensors");
    let answers = [
        sensors.utilization(),
        sensors.memory_usage(),
        sensors.temperature(),
        sensors.power_draw(),
        sensors.clock_rate(),
    ];
    let limits = sensors.limits();
    let known = [limits.utilization, limits.memory_usage, limits.temperature, limits.power, limits.clock];
    for (answer, known) in answers.into_iter().zip(known) {
        match answer {
            Ok(value) => assert!(known && value.is_finite()),
            Err(fault) => {
                assert!(known || fault.kind == FaultKind::Unsupported, "{fault}");
                assert!(fault.api.starts_with("zes"), "{fault}");
            }
        }
    }
    assert!(device.memory_info().is_ok());
}

fn everything_fails() {
    let driver = driver();
    assert!(matches!(driver.probe().absence, Some(Absence::Missing { .. })));
    assert_eq!(driver.describe(0), None);
    assert!(!driver.checks().is_empty());
    let fault = driver.start().expect_err("a runtime that fails");
    assert!(fault.api.starts_with("zeInit"), "{fault}");
    assert_eq!(driver.start(), Err(fault), "and again");
    assert!(driver.open(0).is_err());
}

fn without_sysman() {
    let driver = driver();
    let absence = driver.probe().absence;
    let Some(Absence::Missing { layer, .. }) = &absence else { panic!("{absence:?}") };
    // Which of them depends on this machine's nodes.
    assert!([Layer::Library, Layer::DeviceNodes, Layer::Permissions].contains(layer), "{absence:?}");
    let checks = driver.checks();
    check(&checks, Layer::Probe, Verdict::Fail);
    assert_eq!(runtime_call(), None);
}

fn too_old() {
    let driver = driver();
    let absence = driver.probe().absence;
    assert!(matches!(absence, Some(Absence::Missing { layer: Layer::Version, .. })), "{absence:?}");
    let checks = driver.checks();
    let told = check(&checks, Layer::Version, Verdict::Fail);
    assert!(told.found.contains("zesInit says ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"), "{told:?}");
}

fn not_kept() {
    let driver = driver();
    assert_eq!(driver.probe().visible, 0);
    assert_eq!(driver.probe().visible, 2);
    let looks = calls().iter().filter(|call| *call == "zesDeviceGetProperties").count();
    assert_eq!(driver.probe().visible, 2);
    assert_eq!(calls().iter().filter(|call| *call == "zesDeviceGetProperties").count(), looks, "read once");
}
