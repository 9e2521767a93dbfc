//! Sensors: those of the device that is meant, without waiting for an interval.

use crate::Scenario;
use crate::lab::{DEVICES, HIERARCHY, MASK, calls, control, driver};
use anyaccel_hal::{Device, Fault, FaultKind, Pattern, Place, Telemetry, TelemetryLimits, Until, WaitMode, Waited};
use anyaccel_xpu::sys::{ZE_RESULT_ERROR_DEVICE_LOST, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn all() -> Vec<Scenario> {
    vec![
        // The management side lists the small one first, the runtime the big one.
        Scenario::new("sensors_are_those_of_the_card", of_the_card)
            .set(DEVICES, "Small:integrated,Big,Big")
            .set(MASK, "1"),
        Scenario::new("a_tile_has_no_sensors_of_its_card", of_a_tile).set(DEVICES, "Max:tiles2"),
        Scenario::new("a_card_of_tiles_has_sensors", of_tiles_together)
            .set(DEVICES, "Max:tiles2")
            .set(HIERARCHY, "COMPOSITE"),
        Scenario::new("readings_are_kept_and_subtracted", readings),
        Scenario::new("threads_read_at_once", threads),
        Scenario::new("a_sensor_that_fails_says_how", failing_sensor),
        Scenario::new("an_old_loader_without_sysman", old_without).with(crate::OLD),
        Scenario::new("an_old_loader_with_sysman", old_with).with(crate::OLD).set("ZES_ENABLE_SYSMAN", "1"),
        Scenario::new("the_real_loader_with_sysman", real_with)
            .with(crate::REAL_WITH_DRIVER)
            .set("ZES_ENABLE_SYSMAN", "1"),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);

fn opened(ordinal: u32) -> Arc<dyn Device> {
    let driver = driver();
    driver.start().expect("a start");
    driver.open(ordinal).expect("a device")
}

/// The first answer that is one: the driver's clock has to move on.
fn soon(mut ask: impl FnMut() -> Result<f32, Fault>) -> f32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(value) => return value,
            Err(fault) => assert!(fault.kind == FaultKind::NotReady && Instant::now() < deadline, "{fault}"),
        }
        std::hint::spin_loop();
    }
}

/// The fake's cards say in degrees how far down the bus they are.
fn of_the_card() {
    let device = opened(0);
    assert_eq!(device.info().name, "Big");
    let place = device.info().pci.expect("a place").bus;
    let sensors = device.telemetry().expect("sensors");
    let celsius = sensors.temperature().expect("a temperature");
    assert_eq!(celsius, 45.0 + 2.0, "that of the GPU of the third card, at bus {place}");
    assert_eq!(sensors.clock_rate(), Ok(1500.0));
}

fn of_a_tile() {
    let device = opened(1);
    let memory = device.memory_info().expect("memory");
    assert_eq!((memory.total, memory.free), (64 << 20, Some(64 << 20)));
    let sensors = device.telemetry().expect("sensors");
    let limits = TelemetryLimits { memory_usage: false, ..sensors.limits() };
    assert_eq!(limits, TelemetryLimits::default(), "the fake measures cards, and memory alone by tiles");
    let fault = sensors.power_draw().expect_err("none");
    assert_eq!((fault.kind, fault.api), (FaultKind::Unsupported, "zesPowerGetEnergyCounter"));
}

fn of_tiles_together() {
    let device = opened(0);
    let memory = device.memory_info().expect("memory");
    assert_eq!((memory.total, memory.free), (128 << 20, Some(128 << 20)));
    let segment = device.alloc(1 << 20).expect("memory");
    let now = device.memory_info().expect("memory");
    assert!(now.free < memory.free && now.total == memory.total, "{now:?}");
    // SAFETY: H1, H4: nothing uses it.
    unsafe { device.free(segment.mem) }.expect("a free");
    assert!(device.telemetry().is_some_and(|sensors| sensors.limits().temperature));
}

/// Some work on a device.
fn work(device: &dyn Device) {
    let stream = device.create_stream(0).expect("a stream");
    let segment = device.alloc(16 << 20).expect("memory");
    let place = Place { mem: segment.mem, offset: 0 };
    for round in 0..8 {
        // SAFETY: H1, H4, H14: a live stream, a place inside of its segment.
        unsafe { device.fill(stream, place, Pattern::byte(round), segment.len.min(16 << 20)) }.expect("a fill");
    }
    // SAFETY: H1.
    let waited = unsafe { device.wait_host(stream, Until::Now, Some(Instant::now() + PATIENCE), WaitMode::Auto) };
    assert_eq!(waited, Ok(Waited::Ended));
    // SAFETY: H1, H4: its work has ended.
    unsafe {
        device.free(segment.mem).expect("a free");
        device.destroy_stream(stream).expect("an end");
    }
}

fn readings() {
    let device = opened(0);
    let sensors = device.telemetry().expect("sensors");
    let limits = sensors.limits();
    assert!(limits.utilization && limits.power && limits.temperature && limits.clock);
    // 150 watts, whatever the interval.
    for _ in 0..3 {
        let watts = soon(|| sensors.power_draw());
        assert!((watts - 150.0).abs() < 1.0, "{watts}");
    }
    soon(|| sensors.utilization());
    work(&*device);
    let busy = soon(|| sensors.utilization());
    assert!(busy > 0.0 && busy <= 100.0, "{busy}");
    if limits.memory_usage {
        let traffic = soon(|| sensors.memory_usage());
        assert!((0.0..=100.0).contains(&traffic), "{traffic}");
    }
    let deadline = Instant::now() + PATIENCE;
    while soon(|| sensors.utilization()) > 0.0 {
        assert!(Instant::now() < deadline, "idle");
    }
    let reads = |name: &str| calls().iter().filter(|call| *call == name).count();
    let before = reads("zesPowerGetEnergyCounter");
    soon(|| sensors.power_draw());
    assert!(reads("zesPowerGetEnergyCounter") > before);
    // Nobody makes an interval by sleeping: a call is far shorter than the shortest one that would do.
    let began = Instant::now();
    for _ in 0..1000 {
        let _either = (sensors.power_draw(), sensors.utilization(), sensors.temperature(), sensors.clock_rate());
    }
    println!("four readings take {:?}", began.elapsed() / 1000);
}

/// Readings are kept in the order in which they were taken: no thread sees a rate of another interval than one that was.
fn threads() {
    let device = opened(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let sensors = device.telemetry().expect("sensors");
                for _ in 0..1000 {
                    match sensors.power_draw() {
                        Ok(watts) => assert!((watts - 150.0).abs() < 1.0, "{watts}"),
                        Err(fault) => assert_eq!(fault.kind, FaultKind::NotReady, "{fault}"),
                    }
                    match sensors.utilization() {
                        Ok(percent) => assert!((0.0..=100.0).contains(&percent), "{percent}"),
                        Err(fault) => assert_eq!(fault.kind, FaultKind::NotReady, "{fault}"),
                    }
                }
            });
        }
    });
}

fn failing_sensor() {
    let device = opened(0);
    let sensors = device.telemetry().expect("sensors");
    control().fail("zesTemperatureGetState", 1, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
    let fault = sensors.temperature().expect_err("not allowed");
    assert_eq!((fault.kind, fault.api), (FaultKind::Driver, "zesTemperatureGetState"));
    assert!(fault.to_string().contains("ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS"), "{fault}");
    assert!(sensors.temperature().is_ok(), "once");
    control().fail("zesEngineGetActivity", 1, ZE_RESULT_ERROR_DEVICE_LOST);
    assert_eq!(sensors.utilization().map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    soon(|| sensors.utilization());
    assert!(sensors.limits().utilization, "limits stay");
}

fn old_without() {
    let device = opened(0);
    let sensors = device.telemetry().expect("sensors");
    let fault = sensors.temperature().expect_err("no Sysman");
    assert_eq!(fault.kind, FaultKind::NotReady);
    assert!(fault.to_string().contains("ZES_ENABLE_SYSMAN=1"), "{fault}");
    assert_eq!(device.memory_info().map(|memory| memory.free), Ok(None));
}

fn real_with() {
    match anyaccel_xpu::sys::loader() {
        Err(missing) => println!("skipped: {missing}"),
        Ok(_) => old_with(),
    }
}

fn old_with() {
    let device = opened(1);
    let sensors = device.telemetry().expect("sensors");
    assert_eq!(sensors.temperature(), Ok(46.0));
    let memory = device.memory_info().expect("memory");
    assert_eq!((memory.total, memory.free), (64 << 20, Some(64 << 20)));
    let _unused: &dyn Telemetry = sensors;
}
