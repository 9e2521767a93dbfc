//! What the driver finds, and the management side.

use crate::support::{MIB, rig, small};
use anyaccel_hal::{Absence, Driver, FaultKind, Kind, Layer, Probe, Telemetry, TelemetryLimits, Uuid, Verdict};
use anyaccel_sim::{Card, DeviceConfig, Method, Sensors, SimConfig, uuid_of};

#[test]
fn counting_and_describing_start_nothing() {
    let sim = SimConfig::new().memories([MIB, 2 * MIB]).build();
    let driver = sim.driver();
    assert_eq!((driver.kind(), driver.restartable(), driver.fork_safe_probe()), (Kind::SIM, true, true));
    assert_eq!(driver.probe(), Probe::found(2));
    let info = driver.describe(1).unwrap();
    assert_eq!((info.memory, info.uuid, info.pci.unwrap().bus), (2 * MIB, Some(uuid_of(1)), 1));
    assert_eq!(driver.describe(2), None);
    assert_eq!((sim.calls(Method::Start), sim.calls(Method::Open), sim.calls(Method::Describe)), (0, 0, 2));
    assert_eq!(driver.start(), Ok(2));
    let device = driver.open(1).unwrap();
    assert_eq!(*device.info(), info);
    assert_eq!(driver.open(2).map(drop).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    // The same device: what one reference sees, the other does.
    let memory = driver.open(1).unwrap().alloc(MIB).unwrap();
    assert_eq!(device.memory_info().unwrap().free, Some(MIB));
    // SAFETY: H1, H4.
    unsafe { device.free(memory.mem) }.unwrap();
    let quiet = SimConfig::new().describes(false).fork_safe_probe(false).build().driver();
    assert_eq!((quiet.describe(0), quiet.fork_safe_probe()), (None, false));
}

#[test]
fn a_probe_can_say_anything_until_the_start_freezes_it() {
    let sim = SimConfig::new().memories([MIB; 3]).build();
    let driver = sim.driver();
    let missing = Absence::Missing { layer: Layer::Library, subject: "libsim.so".into(), found: "nothing".into() };
    sim.set_probe(Probe::absent(missing.clone()));
    assert_eq!((driver.probe().visible, driver.probe().absence), (0, Some(missing)));
    assert_eq!(driver.describe(0), None);
    let masked = Absence::Masked { name: "SIM_VISIBLE_DEVICES", value: String::new() };
    sim.set_probe(Probe { visible: 0, present: Some(3), absence: Some(masked), started: false });
    assert_eq!(driver.probe().present, Some(3));
    let checks = driver.checks();
    let layers = [Layer::Library, Layer::Version, Layer::DeviceNodes, Layer::Permissions, Layer::Mask, Layer::Probe];
    assert!(checks.iter().map(|check| check.layer).eq(layers));
    assert_eq!((checks[4].verdict, checks[5].verdict), (Verdict::Fail, Verdict::NotApplicable));
    let bad = Absence::BadVariable { name: "SIM_DEVICES", value: "abc".into(), expected: "a number" };
    sim.set_probe(Probe::absent(bad));
    let fault = driver.start().unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert!(fault.note.unwrap().contains("SIM_DEVICES=abc"));
    sim.set_probe(Probe { started: true, ..Probe::found(2) });
    assert!(driver.probe().started);
    assert_eq!(driver.start(), Ok(2));
    sim.set_probe(Probe::found(1));
    assert_eq!(driver.start(), Ok(2));
    assert_eq!(driver.checks()[5].verdict, Verdict::Pass);
}

#[test]
fn devices_that_cannot_be_are_refused_at_the_start() {
    for change in [
        |d: &mut DeviceConfig| d.alignment = 3,
        |d: &mut DeviceConfig| d.granularity = 0,
        |d: &mut DeviceConfig| d.memory = u64::MAX,
    ] {
        let driver = small().each_device(change).build().driver();
        assert_eq!(driver.start().map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    }
    assert_eq!(SimConfig::new().memories([]).build().driver().start(), Ok(0));
}

#[test]
fn sensors_are_joined_by_identity() {
    let rig = rig(SimConfig::new().memories([MIB; 3]));
    let read = |ordinal: usize| rig.devices[ordinal].telemetry().map(Telemetry::temperature).unwrap();
    let cards = rig.sim.cards();
    rig.sim.set_cards([2, 0, 1].map(|at| cards[at]));
    assert_eq!([0, 1, 2].map(read), [Ok(40.0), Ok(41.0), Ok(42.0)]);
    let integrated = Card { uuid: Uuid([7; 16]), sensors: Sensors::distinct(9) };
    rig.sim.set_cards([integrated, cards[2], cards[1]]);
    assert_eq!(read(0).map_err(|fault| fault.kind), Err(FaultKind::NotReady));
    assert_eq!([1, 2].map(read), [Ok(41.0), Ok(42.0)]);
    rig.sim.set_sensors(uuid_of(2), Sensors { temperature: 99.0, ..Sensors::distinct(2) });
    assert_eq!(read(2), Ok(99.0));
    let telemetry = rig.devices[1].telemetry().unwrap();
    let others = [telemetry.utilization(), telemetry.memory_usage(), telemetry.power_draw(), telemetry.clock_rate()];
    assert_eq!(others, [Ok(11.0), Ok(21.0), Ok(101.0), Ok(1001.0)]);
}

#[test]
fn a_sensor_can_be_missing() {
    let limits = TelemetryLimits { power: true, ..TelemetryLimits::default() };
    let rig = rig(small().each_device(|device| device.sensors = limits));
    let telemetry = rig.devices[0].telemetry().unwrap();
    assert_eq!(telemetry.limits(), limits);
    assert_eq!(telemetry.power_draw(), Ok(100.0));
    assert_eq!(telemetry.clock_rate().map_err(|fault| fault.kind), Err(FaultKind::Unsupported));
}

#[test]
fn a_simulation_can_be_made_anew() {
    let rig = rig(small());
    rig.d().alloc(MIB);
    let anew = rig.sim.anew();
    assert_eq!((anew.used(0), anew.counts().total()), (0, 0));
    assert_eq!(anew.driver().start(), Ok(1));
    assert_eq!(rig.driver.start(), Ok(1));
}
