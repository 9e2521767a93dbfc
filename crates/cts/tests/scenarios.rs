//! Reports from the field that steer a simulation by hand, told through the public functions.

use anyaccel::{Error, Runtime};
use anyaccel_sim::{Card, DeviceConfig, Sensors, Sim, SimConfig, uuid_of};

const GIB: u64 = 1 << 30;

fn three_devices() -> (Sim, Runtime) {
    let sim = SimConfig::new().devices((0..3).map(|_| DeviceConfig::new(4 * GIB))).address_only().build();
    let runtime = Runtime::builder().driver(std::sync::Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

fn card(ordinal: u8) -> Card {
    Card { uuid: uuid_of(ordinal.into()), sensors: Sensors::distinct(ordinal) }
}

fn used(runtime: &Runtime, index: u32) -> u64 {
    let (free, total) = runtime.get_memory_info(index).expect("the index is in range");
    total - free
}

/// The management side lists the cards in another order: readings are joined by identity.
#[test]
fn telemetry_is_of_the_card_that_was_asked_about() {
    let (sim, runtime) = three_devices();
    sim.set_cards([2, 0, 1].map(card));

    let before = [0, 1, 2].map(|index| used(&runtime, index));
    let taken = runtime.alloc_on(0, 2 * GIB).expect("4 GiB are free");
    let rise: Vec<u64> = (0..3).map(|index| used(&runtime, index) - before[index as usize]).collect();
    assert_eq!(rise, [2 * GIB, 0, 0]);
    drop(taken);

    let right = |index: u8| {
        let sensors = Sensors::distinct(index);
        assert_eq!(runtime.utilization(index), Ok(sensors.utilization), "device {index}");
        assert_eq!(runtime.memory_usage(index), Ok(sensors.memory_usage), "device {index}");
        assert_eq!(runtime.temperature(index), Ok(sensors.temperature), "device {index}");
        assert_eq!(runtime.power_draw(index), Ok(sensors.power), "device {index}");
        assert_eq!(runtime.clock_rate(index), Ok(sensors.clock), "device {index}");
    };
    (0..3).for_each(right);

    // A card that is not listed has no readings; above all not another card's.
    sim.set_cards([2, 1].map(card));
    for reading in [runtime.utilization(0), runtime.temperature(0), runtime.power_draw(0)] {
        assert!(matches!(reading, Err(Error::Driver { .. } | Error::Unsupported { .. })), "{reading:?}");
    }
    (1..3).for_each(right);

    // A card that only the management side knows moves nobody.
    sim.set_cards([card(9), card(2), card(0), card(1)]);
    (0..3).for_each(right);
    assert_eq!(runtime.device_count(), 3);
    assert_eq!(sim.violations(), []);
}
