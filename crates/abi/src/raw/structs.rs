//! The structs of the ABI that carry data.

use super::{DeviceTable, DriverTable, abi_struct};
use std::ffi::{c_char, c_void};

/// A driver of a plugin: what is behind its pointer is the plugin's own.
#[derive(Debug)]
#[repr(C)]
pub struct Driver {
    _of_the_plugin: [u8; 0],
}

/// An open device of a plugin: what is behind its pointer is the plugin's own.
#[derive(Debug)]
#[repr(C)]
pub struct Device {
    _of_the_plugin: [u8; 0],
}

abi_struct! {
    /// Text to read.
    ConstText = "anyaccel_string" {
        /// UTF-8.
        data: *const c_char,
        /// Bytes.
        length: usize,
    }
}

impl ConstText {
    /// No text.
    pub const NONE: Self = Self { data: std::ptr::null(), length: 0 };

    /// That text, for as long as it lives.
    pub const fn of(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), length: text.len() }
    }
}

abi_struct! {
    /// A buffer of the caller for text.
    Text = "anyaccel_text" {
        /// Where it goes.
        data: *mut c_char,
        /// Bytes that may be written.
        capacity: usize,
        /// How long the text is, even if only its beginning was written.
        length: usize,
    }
}

abi_struct! {
    /// Facts about a failed call.
    Fault = "anyaccel_fault" {
        /// Its size in bytes.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// The native error code.
        code: i64,
        /// The native function that failed; static.
        api: ConstText,
        /// A fact that the code does not hold.
        note: Text,
    }
}

abi_struct! {
    /// What discovery found.
    Probe = "anyaccel_probe" {
        /// Its size in bytes.
        struct_size: u32,
        /// Devices, masks applied.
        visible: u32,
        /// Devices before masks.
        present: u32,
        /// Whether `present` counts.
        present_known: u32,
        /// Whether the native runtime had to be started.
        started: u32,
        /// `ABSENCE_...`.
        absence: u32,
        /// `LAYER_...`.
        layer: u32,
        /// 0.
        reserved: u32,
        /// What was looked for, or a variable's name.
        subject: Text,
        /// What was found, or a variable's value.
        found: Text,
        /// What a variable may hold.
        expected: Text,
    }
}

abi_struct! {
    /// One layer examined.
    Check = "anyaccel_check" {
        /// Its size in bytes.
        struct_size: u32,
        /// `LAYER_...`.
        layer: u32,
        /// `VERDICT_...`.
        verdict: u32,
        /// 0.
        reserved: u32,
        /// What was examined.
        subject: ConstText,
        /// What was found.
        found: ConstText,
    }
}

abi_struct! {
    /// A device's properties.
    DeviceInfo = "anyaccel_device_info" {
        /// Its size in bytes.
        struct_size: u32,
        /// `INFO_...`.
        flags: u32,
        /// The marketing name.
        name: Text,
        /// Who makes it.
        vendor: Text,
        /// The version of the native driver.
        driver: Text,
        /// Its identity.
        uuid: [u8; 16],
        /// Its PCI domain.
        pci_domain: u32,
        /// Its PCI bus.
        pci_bus: u8,
        /// Its device number on the bus.
        pci_device: u8,
        /// Its function.
        pci_function: u8,
        /// 0.
        reserved: u8,
        /// Memory in bytes.
        memory: u64,
        /// The largest single allocation in bytes.
        max_alloc: u64,
        /// What addresses of segments are multiples of.
        alignment: u64,
        /// What offsets of places in kernel arguments are multiples of.
        place_alignment: u64,
        /// Bit n: the built-in conversion knows element type n.
        dtypes: u64,
        /// Resolution of stamps in nanoseconds.
        stamp_ns: u32,
        /// `FILL_...`.
        fill_patterns: u32,
        /// Compute units, 0 if unknown.
        cores: u32,
        /// The highest clock, 0 if unknown.
        clock_mhz: u32,
        /// The least urgent priority.
        priority_least: i32,
        /// The most urgent priority.
        priority_greatest: i32,
    }
}

abi_struct! {
    /// Backed device memory.
    Segment = "anyaccel_segment" {
        /// Its handle.
        mem: u64,
        /// Its address.
        addr: u64,
        /// Its length in bytes.
        len: u64,
    }
}

abi_struct! {
    /// Where in memory an operation begins.
    Place = "anyaccel_place" {
        /// The memory.
        mem: u64,
        /// Bytes from its start.
        offset: u64,
    }
}

abi_struct! {
    /// A point in the order of a stream.
    Mark = "anyaccel_mark" {
        /// Rises per stream.
        value: u64,
        /// Whether it is a point inside a capture.
        captured: u32,
        /// 0.
        reserved: u32,
    }
}

abi_struct! {
    /// Degrees of pinned memory.
    PinnedLimits = "anyaccel_pinned_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// `PINNED_...`.
        flags: u32,
        /// What lengths are rounded up to.
        granularity: u64,
    }
}

abi_struct! {
    /// Degrees of access to other devices.
    PeersLimits = "anyaccel_peers_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// How many can be reached at a time.
        reachable: u32,
    }
}

abi_struct! {
    /// Degrees of virtual memory.
    VirtualMemoryLimits = "anyaccel_virtual_memory_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// What offsets and lengths of mappings are multiples of.
        granularity: u64,
    }
}

abi_struct! {
    /// Degrees of loading kernels.
    KernelsLimits = "anyaccel_kernels_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// Threads of a group.
        max_threads: u32,
        /// Groups along x, y, z.
        max_groups: [u32; 3],
        /// Group-local memory in bytes.
        max_shared: u32,
        /// How many of `formats` count.
        format_count: u32,
        /// `FORMAT_...`, the best first.
        formats: [u32; 9],
    }
}

abi_struct! {
    /// A kernel that is a function of this process.
    HostKernel = "anyaccel_host_kernel" {
        /// Calls it for one group.
        call: Option<
            unsafe extern "C" fn(*const c_void, *const anyaccel_hal::WorkGroup, *const anyaccel_hal::KernelArg, usize),
        >,
        /// Drops its data.
        drop: Option<unsafe extern "C" fn(*mut c_void)>,
        /// Its data.
        data: *mut c_void,
    }
}

abi_struct! {
    /// Degrees of gates.
    GatesLimits = "anyaccel_gates_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// How many may be closed at a time.
        closed: u32,
    }
}

abi_struct! {
    /// Degrees of native graphs.
    GraphsLimits = "anyaccel_graphs_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// `GRAPHS_...`.
        flags: u32,
    }
}

abi_struct! {
    /// Degrees of native events.
    NativeEventsLimits = "anyaccel_native_events_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// Bytes of an interprocess handle.
        ipc_bytes: u32,
    }
}

abi_struct! {
    /// Degrees of telemetry.
    TelemetryLimits = "anyaccel_telemetry_limits" {
        /// Its size in bytes.
        struct_size: u32,
        /// `1 << SENSOR_...`.
        sensors: u32,
    }
}

abi_struct! {
    /// Free and total memory.
    MemoryInfo = "anyaccel_memory_info" {
        /// Its size in bytes.
        struct_size: u32,
        /// Whether `free` counts.
        free_known: u32,
        /// Free bytes.
        free: u64,
        /// All bytes.
        total: u64,
    }
}

abi_struct! {
    /// What a plugin is.
    Plugin = "anyaccel_plugin" {
        /// Its size in bytes.
        struct_size: u32,
        /// The major version that it was built with.
        abi_major: u32,
        /// The minor version that it was built with.
        abi_minor: u32,
        /// `KIND_...`.
        kind: u32,
        /// The kind's name, terminated by 0.
        name: *const c_char,
        /// The plugin's version, terminated by 0; may be null.
        version: *const c_char,
        /// `FORK_SAFE_PROBE`, `RESTARTABLE`.
        flags: u32,
        /// 0.
        reserved: u32,
        /// What a driver does.
        driver: *const DriverTable,
        /// What a device does.
        device: *const DeviceTable,
    }
}

// SAFETY: a plugin's tables are constant, by the rule of anyaccel_plugin_entry that every call gives the same.
unsafe impl Sync for Plugin {}

abi_struct! {
    /// Who loads a plugin.
    Host = "anyaccel_host" {
        /// Its size in bytes.
        struct_size: u32,
        /// Its major version.
        abi_major: u32,
        /// Its minor version.
        abi_minor: u32,
        /// 0.
        reserved: u32,
    }
}

/// What a library exports under the name [`ENTRY`].
pub type Entry = unsafe extern "C" fn(*const Host) -> *const Plugin;

/// The name of the function that a plugin exports.
pub const ENTRY: &str = "anyaccel_plugin_entry";
