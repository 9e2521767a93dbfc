//! Sensors, by Sysman, joined to the device by identity (H32).
//!
//! What the driver counts (time with work, energy, bytes) is read, kept and subtracted: an interval is the one since the last
//! call, the first one begins when the device is opened, and nobody sleeps to make one.
//!
//! A device that is a card takes what measures the card, or all of its tiles together where only those are measured: the busiest,
//! the hottest, the fastest, and the sum of their power. One that is a tile takes what measures that tile and has nothing else.
//!
//! # Protocol
//!
//! Which sensors there are is fixed when they are found. The last readings are behind one lock, which is held while a counter is
//! read, so that readings are kept in the order in which they were taken. Nothing else is locked meanwhile.

mod meter;

use crate::conv::Failed;
use crate::probe;
use crate::probe::inventory::{Unit, list};
use crate::sys::{self, *};
use anyaccel_hal::{Fault, FaultKind, MemoryInfo, Telemetry, TelemetryLimits};
use anyaccel_kit::Mutex;
use meter::{Meter, Reading};

/// Groups of engines, the best first: each stands for the whole device less well than the one before.
const GROUPS: [u32; 6] = [
    ZES_ENGINE_GROUP_ALL,
    ZES_ENGINE_GROUP_3D_RENDER_COMPUTE_ALL,
    ZES_ENGINE_GROUP_COMPUTE_ALL,
    ZES_ENGINE_GROUP_RENDER_ALL,
    ZES_ENGINE_GROUP_COMPUTE_SINGLE,
    ZES_ENGINE_GROUP_RENDER_SINGLE,
];
/// Of later headers than the bindings' are made of, or not among them.
const ZES_ENGINE_GROUP_RENDER_SINGLE: u32 = 5;
const ZES_ENGINE_GROUP_3D_RENDER_COMPUTE_ALL: u32 = 11;
const ZES_ENGINE_GROUP_RENDER_ALL: u32 = 12;

/// The sensors of a device.
#[derive(Debug)]
pub struct Sensors {
    /// Or why there are none.
    found: Result<Found, &'static str>,
}

const ELSEWHERE: &str = "the device is not on the management side";
const NOT_STARTED: &str = "this loader starts Sysman only if ZES_ENABLE_SYSMAN=1 was set before the runtime's start";

#[derive(Debug)]
struct Found {
    zes: &'static Zes,
    engines: Vec<ZesEngine>,
    domains: Vec<ZesPower>,
    temperatures: Vec<ZesTemp>,
    clocks: Vec<ZesFreq>,
    modules: Vec<ZesMem>,
    limits: TelemetryLimits,
    meters: Mutex<Meters>,
}

/// The last readings, each list as long as that of its sensors.
#[derive(Debug)]
struct Meters {
    engines: Vec<Meter>,
    domains: Vec<Meter>,
    modules: Vec<Meter>,
}

/// Where a sensor sits: on the card, or on one of its tiles.
type At = Option<u32>;

fn at(on_subdevice: u8, tile: u32) -> At {
    (on_subdevice != 0).then_some(tile)
}

/// The sensors that measure a device: those of its tile; of a card those of the card, else those of its tiles.
fn of_device<T: Copy>(all: &[(T, At)], tile: Option<u32>) -> Vec<T> {
    let of = |wanted: At| -> Vec<T> { all.iter().filter(|&&(_, at)| at == wanted).map(|&(one, _)| one).collect() };
    match (of(tile), tile) {
        (none, None) if none.is_empty() => all.iter().map(|&(one, _)| one).collect(),
        (some, _) => some,
    }
}

/// The sensors of the first kind that there is any of.
fn of_best<T: Copy>(all: &[(T, At, u32)], tile: Option<u32>, kinds: &[u32]) -> Vec<T> {
    let of = |kind: u32| -> Vec<T> {
        let of_kind: Vec<(T, At)> =
            all.iter().filter(|&&(_, _, one)| one == kind).map(|&(one, at, _)| (one, at)).collect();
        of_device(&of_kind, tile)
    };
    kinds.iter().map(|&kind| of(kind)).find(|found| !found.is_empty()).unwrap_or_default()
}

impl Sensors {
    /// Those of a device of the runtime. `unit` is what it is on the management side.
    pub(crate) fn find(unit: Option<&Unit>, device: ZeDevice) -> Self {
        let Ok(loader) = sys::loader() else { return Self { found: Err(ELSEWHERE) } };
        match unit {
            Some(unit) => Self::of(&loader.zes, unit.handle, unit.tile),
            // There the runtime's handles are those of Sysman, too.
            None if probe::old_style() => Self::of(&loader.zes, ZesDevice(device.0), None),
            None if !probe::fork_safe() => Self { found: Err(NOT_STARTED) },
            None => Self { found: Err(ELSEWHERE) },
        }
    }

    /// Those of a device of the management side, or of a tile of it. Reads the counters for the first time. A sensor that does not
    /// answer is none.
    pub fn of(zes: &'static Zes, device: ZesDevice, tile: Option<u32>) -> Self {
        let mut found = Found {
            zes,
            engines: engines(zes, device, tile),
            domains: domains(zes, device, tile),
            temperatures: temperatures(zes, device, tile),
            clocks: clocks(zes, device, tile),
            modules: modules(zes, device, tile),
            limits: TelemetryLimits::default(),
            meters: Mutex::new(Meters { engines: Vec::new(), domains: Vec::new(), modules: Vec::new() }),
        };
        found.meters = Mutex::new(Meters {
            engines: vec![Meter::default(); found.engines.len()],
            domains: vec![Meter::default(); found.domains.len()],
            modules: vec![Meter::default(); found.modules.len()],
        });
        found.limits = found.ask_all();
        Self { found: Ok(found) }
    }

    /// How much memory the device has and has left, all processes together. `None` if the management side does not tell.
    pub fn memory(&self) -> Option<MemoryInfo> {
        let found = self.found.as_ref().ok()?;
        let mut info = MemoryInfo { free: Some(0), total: 0 };
        for &module in &found.modules {
            let mut state = ZesMemState::new();
            // SAFETY: a module that was listed, and a struct with its number in it.
            unsafe { found.zes.zesMemoryGetState(module, &raw mut state) }.ok()?;
            info.free = info.free.map(|free| free + state.free.min(state.size));
            info.total += state.size;
        }
        (info.total > 0).then_some(info)
    }

    fn found(&self, api: &'static str) -> Result<&Found, Fault> {
        self.found.as_ref().map_err(|&why| Fault::new(FaultKind::NotReady, api).note(why))
    }
}

/// The list of an enumeration, empty if it fails.
macro_rules! each {
    ($zes:ident.$enumerate:ident($device:ident) as $handle:ident) => {
        // SAFETY: a device that was listed, a count, and null or as many handles as it says.
        list($handle::NULL, |count, out| unsafe { $zes.$enumerate($device, count, out) }).unwrap_or_default()
    };
}

/// The properties of a sensor, if it tells them.
macro_rules! properties {
    ($zes:ident.$get:ident($sensor:ident) as $properties:ident) => {{
        let mut properties = $properties::new();
        // SAFETY: a sensor that was just listed, and a struct with its number in it.
        unsafe { $zes.$get($sensor, &raw mut properties) }.ok().map(|()| properties)
    }};
}

fn engines(zes: &Zes, device: ZesDevice, tile: Option<u32>) -> Vec<ZesEngine> {
    let told = each!(zes.zesDeviceEnumEngineGroups(device) as ZesEngine).into_iter().filter_map(|engine| {
        let told = properties!(zes.zesEngineGetProperties(engine) as ZesEngineProperties)?;
        Some((engine, at(told.on_subdevice, told.subdevice_id), told.kind))
    });
    of_best(&told.collect::<Vec<_>>(), tile, &GROUPS)
}

fn domains(zes: &Zes, device: ZesDevice, tile: Option<u32>) -> Vec<ZesPower> {
    let told = each!(zes.zesDeviceEnumPowerDomains(device) as ZesPower).into_iter().filter_map(|domain| {
        let told = properties!(zes.zesPowerGetProperties(domain) as ZesPowerProperties)?;
        Some((domain, at(told.on_subdevice, told.subdevice_id)))
    });
    of_device(&told.collect::<Vec<_>>(), tile)
}

fn temperatures(zes: &Zes, device: ZesDevice, tile: Option<u32>) -> Vec<ZesTemp> {
    let told = each!(zes.zesDeviceEnumTemperatureSensors(device) as ZesTemp).into_iter().filter_map(|sensor| {
        let told = properties!(zes.zesTemperatureGetProperties(sensor) as ZesTempProperties)?;
        Some((sensor, at(told.on_subdevice, told.subdevice_id), told.kind))
    });
    of_best(&told.collect::<Vec<_>>(), tile, &[ZES_TEMP_SENSORS_GPU, ZES_TEMP_SENSORS_GLOBAL])
}

fn clocks(zes: &Zes, device: ZesDevice, tile: Option<u32>) -> Vec<ZesFreq> {
    let told = each!(zes.zesDeviceEnumFrequencyDomains(device) as ZesFreq).into_iter().filter_map(|domain| {
        let told = properties!(zes.zesFrequencyGetProperties(domain) as ZesFreqProperties)?;
        Some((domain, at(told.on_subdevice, told.subdevice_id), told.kind))
    });
    of_best(&told.collect::<Vec<_>>(), tile, &[ZES_FREQ_DOMAIN_GPU])
}

fn modules(zes: &Zes, device: ZesDevice, tile: Option<u32>) -> Vec<ZesMem> {
    let told = each!(zes.zesDeviceEnumMemoryModules(device) as ZesMem).into_iter().filter_map(|module| {
        let told = properties!(zes.zesMemoryGetProperties(module) as ZesMemProperties)?;
        Some((module, at(told.on_subdevice, told.subdevice_id), told.location))
    });
    // What it shares with the host counts where it has none of its own.
    of_best(&told.collect::<Vec<_>>(), tile, &[ZES_MEM_LOC_DEVICE, ZES_MEM_LOC_SYSTEM])
}

/// A code of the management side.
fn told(failed: Failed) -> Fault {
    let fault = failed.fault();
    match failed.code {
        ZE_RESULT_ERROR_NOT_AVAILABLE | ZE_RESULT_ERROR_UNINITIALIZED | ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE => {
            Fault { kind: FaultKind::NotReady, ..fault }
        }
        _ => fault,
    }
}

/// Rates of counters, all of them or none.
fn rates<T: Copy>(
    api: &'static str,
    sensors: &[T],
    meters: &mut [Meter],
    mut read: impl FnMut(T) -> Result<Reading, Failed>,
) -> Result<Vec<f64>, Fault> {
    if sensors.is_empty() {
        return Err(Fault::unsupported(api).note("this device has no such sensor"));
    }
    let mut rates = Vec::new();
    for (&sensor, meter) in sensors.iter().zip(meters) {
        // Every counter is read, so that all have one interval.
        rates.push(meter.read(read(sensor).map_err(told)?));
    }
    let all: Option<Vec<f64>> = rates.into_iter().collect();
    all.ok_or_else(|| Fault::new(FaultKind::NotReady, api).note("an interval has only just begun"))
}

/// The greatest of some values, which are at least one.
fn greatest<T: Copy>(
    api: &'static str,
    sensors: &[T],
    read: impl FnMut(T) -> Result<f64, Fault>,
) -> Result<f32, Fault> {
    if sensors.is_empty() {
        return Err(Fault::unsupported(api).note("this device has no such sensor"));
    }
    let values = sensors.iter().copied().map(read).collect::<Result<Vec<f64>, Fault>>()?;
    Ok(values.into_iter().fold(f64::NEG_INFINITY, f64::max) as f32)
}

impl Found {
    /// Which of them answer. What can't be read for want of rights answers: whoever asks is told that.
    fn ask_all(&self) -> TelemetryLimits {
        let answers = |asked: Result<f32, Fault>| !asked.is_err_and(|fault| fault.kind == FaultKind::Unsupported);
        TelemetryLimits {
            utilization: answers(self.utilization()),
            memory_usage: answers(self.memory_usage()),
            temperature: answers(self.temperature()),
            power: answers(self.power_draw()),
            clock: answers(self.clock_rate()),
        }
    }

    fn utilization(&self) -> Result<f32, Fault> {
        let mut meters = self.meters.lock();
        let rates = rates("zesEngineGetActivity", &self.engines, &mut meters.engines, |engine| {
            let mut stats = ZesEngineStats::default();
            // SAFETY: an engine that was listed, and a place for the answer.
            unsafe { self.zes.zesEngineGetActivity(engine, &raw mut stats) }?;
            Ok(Reading { count: stats.active_time, at: stats.timestamp })
        })?;
        Ok((rates.into_iter().fold(0.0, f64::max) * 100.0).min(100.0) as f32)
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        const API: &str = "zesMemoryGetBandwidth";
        let mut meters = self.meters.lock();
        let mut most = 0.0;
        let rates = rates(API, &self.modules, &mut meters.modules, |module| {
            let mut bandwidth = ZesMemBandwidth::default();
            // SAFETY: a module that was listed, and a place for the answer.
            unsafe { self.zes.zesMemoryGetBandwidth(module, &raw mut bandwidth) }?;
            // It says bytes a second, and counts bytes and microseconds.
            most += bandwidth.max_bandwidth as f64 / 1e6;
            let count = bandwidth.read_counter.wrapping_add(bandwidth.write_counter);
            Ok(Reading { count, at: bandwidth.timestamp })
        });
        let read = rates.as_ref().map_or_else(|fault| fault.kind == FaultKind::NotReady, |_| true);
        if read && most == 0.0 {
            return Err(Fault::unsupported(API).note("the driver does not know the most that there can be"));
        }
        let rates = rates?;
        Ok((rates.into_iter().sum::<f64>() / most * 100.0).min(100.0) as f32)
    }

    fn temperature(&self) -> Result<f32, Fault> {
        greatest("zesTemperatureGetState", &self.temperatures, |sensor| {
            let mut celsius = 0.0;
            // SAFETY: a sensor that was listed, and a place for the answer.
            unsafe { self.zes.zesTemperatureGetState(sensor, &raw mut celsius) }.map_err(told)?;
            Ok(celsius)
        })
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        let mut meters = self.meters.lock();
        let rates = rates("zesPowerGetEnergyCounter", &self.domains, &mut meters.domains, |domain| {
            let mut counter = ZesPowerEnergyCounter::default();
            // SAFETY: a domain that was listed, and a place for the answer.
            unsafe { self.zes.zesPowerGetEnergyCounter(domain, &raw mut counter) }?;
            Ok(Reading { count: counter.energy, at: counter.timestamp })
        })?;
        // Microjoules a microsecond.
        Ok(rates.into_iter().sum::<f64>() as f32)
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        const API: &str = "zesFrequencyGetState";
        greatest(API, &self.clocks, |domain| {
            let mut state = ZesFreqState::new();
            // SAFETY: a domain that was listed, and a struct with its number in it.
            unsafe { self.zes.zesFrequencyGetState(domain, &raw mut state) }.map_err(told)?;
            if state.actual < 0.0 {
                return Err(Fault::new(FaultKind::NotReady, API).note("the driver does not know it now"));
            }
            Ok(state.actual)
        })
    }
}

/// `Unsupported` where the limits say so, whatever the sensor says by now (H26).
fn limited(known: bool, api: &'static str, ask: impl FnOnce() -> Result<f32, Fault>) -> Result<f32, Fault> {
    if known { ask() } else { Err(Fault::unsupported(api).note("this device has no such sensor")) }
}

impl Telemetry for Sensors {
    fn limits(&self) -> TelemetryLimits {
        const ALL: TelemetryLimits =
            TelemetryLimits { utilization: true, memory_usage: true, temperature: true, power: true, clock: true };
        self.found.as_ref().map_or(ALL, |found| found.limits)
    }

    fn utilization(&self) -> Result<f32, Fault> {
        const API: &str = "zesEngineGetActivity";
        let found = self.found(API)?;
        limited(found.limits.utilization, API, || found.utilization())
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        const API: &str = "zesMemoryGetBandwidth";
        let found = self.found(API)?;
        limited(found.limits.memory_usage, API, || found.memory_usage())
    }

    fn temperature(&self) -> Result<f32, Fault> {
        const API: &str = "zesTemperatureGetState";
        let found = self.found(API)?;
        limited(found.limits.temperature, API, || found.temperature())
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        const API: &str = "zesPowerGetEnergyCounter";
        let found = self.found(API)?;
        limited(found.limits.power, API, || found.power_draw())
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        const API: &str = "zesFrequencyGetState";
        let found = self.found(API)?;
        limited(found.limits.clock, API, || found.clock_rate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_has_its_own_sensors_and_a_card_those_of_the_card_or_of_all_tiles() {
        let mixed = [('c', None), ('0', Some(0)), ('1', Some(1))];
        assert_eq!(of_device(&mixed, None), ['c']);
        assert_eq!(of_device(&mixed, Some(1)), ['1']);
        assert_eq!(of_device(&mixed[1..], None), ['0', '1']);
        assert_eq!(of_device(&mixed[..1], Some(0)), []);
        assert_eq!(of_device::<char>(&[], None), []);
    }

    #[test]
    fn the_best_kind_that_measures_the_device_counts() {
        let all = [('a', None, ZES_ENGINE_GROUP_COMPUTE_SINGLE), ('b', Some(1), ZES_ENGINE_GROUP_ALL)];
        assert_eq!(of_best(&all, None, &GROUPS), ['b']);
        assert_eq!(of_best(&all, Some(1), &GROUPS), ['b']);
        assert_eq!(of_best(&all, Some(0), &GROUPS), []);
        assert_eq!(of_best(&all[..1], None, &GROUPS), ['a']);
        assert_eq!(of_best(&all, None, &[99]), []);
    }

    #[test]
    fn a_device_without_a_management_side_is_not_ready() {
        let sensors = Sensors { found: Err(ELSEWHERE) };
        assert!(sensors.limits().power);
        let answers = [
            sensors.utilization(),
            sensors.memory_usage(),
            sensors.temperature(),
            sensors.power_draw(),
            sensors.clock_rate(),
        ];
        for answer in answers {
            assert_eq!(answer.map_err(|fault| fault.kind), Err(FaultKind::NotReady));
        }
        assert_eq!(sensors.memory(), None);
    }
}
