//! Handles, structs and numbers of Sysman, the management side, laid out as the published headers say.

#![allow(missing_docs, reason = "the names are the interface's own, its documentation describes them")]

use super::types::{Layout, ZeDeviceProperties, constants, structs};
use anyaccel_kit::handles;
use std::ffi::{c_char, c_void};
use std::ptr;

handles!(ZesDriver, ZesDevice, ZesEngine, ZesPower, ZesTemp, ZesFreq, ZesMem);

structs! {
    zes_layouts;
    ZesDeviceProperties as zes_device_properties_t = 0x1 => {
        core as core: ZeDeviceProperties,
        subdevices as numSubdevices: u32,
        serial_number as serialNumber: [c_char; 64],
        board_number as boardNumber: [c_char; 64],
        brand_name as brandName: [c_char; 64],
        model_name as modelName: [c_char; 64],
        vendor_name as vendorName: [c_char; 64],
        driver_version as driverVersion: [c_char; 64],
    }
    ZesPciProperties as zes_pci_properties_t = 0x2 => {
        address as address: [u32; 4],
        gen_version as maxSpeed.gen: i32,
        width as maxSpeed.width: i32,
        max_bandwidth as maxSpeed.maxBandwidth: i64,
        bandwidth_counters as haveBandwidthCounters: u8,
        packet_counters as havePacketCounters: u8,
        replay_counters as haveReplayCounters: u8,
    }
    ZesEngineProperties as zes_engine_properties_t = 0x5 => {
        kind as type: u32,
        on_subdevice as onSubdevice: u8,
        subdevice_id as subdeviceId: u32,
    }
    ZesFreqProperties as zes_freq_properties_t = 0x9 => {
        kind as type: u32,
        on_subdevice as onSubdevice: u8,
        subdevice_id as subdeviceId: u32,
        can_control as canControl: u8,
        throttle_event_supported as isThrottleEventSupported: u8,
        min as min: f64,
        max as max: f64,
    }
    ZesMemProperties as zes_mem_properties_t = 0xb => {
        kind as type: u32,
        on_subdevice as onSubdevice: u8,
        subdevice_id as subdeviceId: u32,
        location as location: u32,
        physical_size as physicalSize: u64,
        bus_width as busWidth: i32,
        channels as numChannels: i32,
    }
    ZesPowerProperties as zes_power_properties_t = 0xd => {
        on_subdevice as onSubdevice: u8,
        subdevice_id as subdeviceId: u32,
        can_control as canControl: u8,
        energy_threshold_supported as isEnergyThresholdSupported: u8,
        default_limit as defaultLimit: i32,
        min_limit as minLimit: i32,
        max_limit as maxLimit: i32,
    }
    ZesTempProperties as zes_temp_properties_t = 0x14 => {
        kind as type: u32,
        on_subdevice as onSubdevice: u8,
        subdevice_id as subdeviceId: u32,
        max_temperature as maxTemperature: f64,
        critical_supported as isCriticalTempSupported: u8,
        threshold1_supported as isThreshold1Supported: u8,
        threshold2_supported as isThreshold2Supported: u8,
    }
    ZesFreqState as zes_freq_state_t = 0x1b => {
        current_voltage as currentVoltage: f64,
        request as request: f64,
        tdp as tdp: f64,
        efficient as efficient: f64,
        actual as actual: f64,
        throttle_reasons as throttleReasons: u32,
    }
    ZesMemState as zes_mem_state_t = 0x1e => { health as health: u32, free as free: u64, size as size: u64 }
    /// Of version 1.7 and later: which Sysman device, and which of its tiles, a compute device is.
    ZesSubdeviceExpProperties as zes_subdevice_exp_properties_t = 0x2_0004 => {
        subdevice_id as subdeviceId: u32,
        uuid as uuid: [u8; 16],
    }
}

/// `zes_engine_stats_t`: microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ZesEngineStats {
    pub active_time: u64,
    pub timestamp: u64,
}

/// `zes_power_energy_counter_t`: microjoules and microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ZesPowerEnergyCounter {
    pub energy: u64,
    pub timestamp: u64,
}

/// `zes_mem_bandwidth_t`: bytes, bytes a second and microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ZesMemBandwidth {
    pub read_counter: u64,
    pub write_counter: u64,
    pub max_bandwidth: u64,
    pub timestamp: u64,
}

constants! {
    ZES_CONSTANTS;
    ZES_ENGINE_GROUP_ALL: u32 = 0;
    ZES_ENGINE_GROUP_COMPUTE_ALL: u32 = 1;
    ZES_ENGINE_GROUP_COMPUTE_SINGLE: u32 = 4;
    ZES_TEMP_SENSORS_GLOBAL: u32 = 0;
    ZES_TEMP_SENSORS_GPU: u32 = 1;
    ZES_TEMP_SENSORS_MEMORY: u32 = 2;
    ZES_FREQ_DOMAIN_GPU: u32 = 0;
    ZES_FREQ_DOMAIN_MEMORY: u32 = 1;
    ZES_MEM_LOC_SYSTEM: u32 = 0;
    ZES_MEM_LOC_DEVICE: u32 = 1;
}
