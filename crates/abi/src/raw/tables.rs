//! The tables of functions.

use super::{
    Arg, Check, Device, DeviceInfo, Driver, End, Fault, GatesLimits, GraphsLimits, HostFn, HostKernel, KernelsLimits,
    Mark, MemoryInfo, NativeEventsLimits, Node, Op, PeersLimits, PinnedLimits, Place, Probe, Segment, TelemetryLimits,
    VirtualMemoryLimits, abi_struct, abi_table,
};
use std::ffi::{c_char, c_void};

/// What `checks` reports to.
pub type Report = unsafe extern "C" fn(*mut c_void, *const Check);

abi_table! {
    /// What a driver does.
    DriverTable = "anyaccel_driver_table", 72 bytes in 1.0 {
        required fn create(driver: *mut *mut Driver, fault: *mut Fault) -> u32;
        required fn destroy(driver: *mut Driver);
        required fn probe(driver: *mut Driver, probe: *mut Probe);
        optional fn describe(driver: *mut Driver, ordinal: u32, info: *mut DeviceInfo) -> u32;
        required fn start(driver: *mut Driver, count: *mut u32, fault: *mut Fault) -> u32;
        required fn open(driver: *mut Driver, ordinal: u32, device: *mut *mut Device, fault: *mut Fault) -> u32;
        required fn close(device: *mut Device);
        optional fn checks(driver: *mut Driver, context: *mut c_void, report: Report);
    }
}

abi_table! {
    /// Host memory that the device reaches directly.
    PinnedTable = "anyaccel_pinned_table", 40 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut PinnedLimits, fault: *mut Fault) -> u32;
        required fn alloc(device: *mut Device, len: u64, mem: *mut u64, pointer: *mut *mut c_void, fault: *mut Fault) -> u32;
        optional fn register_memory(device: *mut Device, pointer: *mut c_void, len: u64, mem: *mut u64, fault: *mut Fault) -> u32;
        required fn free(device: *mut Device, mem: u64, fault: *mut Fault) -> u32;
    }
}

abi_table! {
    /// Direct access to other devices of the driver.
    PeersTable = "anyaccel_peers_table", 32 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut PeersLimits, fault: *mut Fault) -> u32;
        required fn can_access(device: *mut Device, ordinal: u32) -> u32;
        required fn copy(device: *mut Device, stream: u64, dst: Place, from: u32, src: Place, len: u64, fault: *mut Fault) -> u32;
    }
}

abi_table! {
    /// Address ranges that are backed piece by piece.
    VirtualMemoryTable = "anyaccel_virtual_memory_table", 48 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut VirtualMemoryLimits, fault: *mut Fault) -> u32;
        required fn reserve(device: *mut Device, len: u64, range: *mut u64, segment: *mut Segment, fault: *mut Fault) -> u32;
        required fn map(device: *mut Device, range: u64, offset: u64, len: u64, fault: *mut Fault) -> u32;
        required fn unmap(device: *mut Device, range: u64, offset: u64, len: u64, fault: *mut Fault) -> u32;
        required fn release(device: *mut Device, range: u64, fault: *mut Fault) -> u32;
    }
}

abi_table! {
    /// Loading of kernels.
    KernelsTable = "anyaccel_kernels_table", 40 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut KernelsLimits, fault: *mut Fault) -> u32;
        optional fn load(device: *mut Device, format: u32, code: *const c_void, len: usize, entry: *const c_char, kernel: *mut u64, fault: *mut Fault) -> u32;
        optional fn load_host(device: *mut Device, function: HostKernel, kernel: *mut u64, fault: *mut Fault) -> u32;
        required fn unload(device: *mut Device, kernel: u64);
    }
}

abi_table! {
    /// Waits that the host ends.
    GatesTable = "anyaccel_gates_table", 48 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut GatesLimits, fault: *mut Fault) -> u32;
        required fn create(device: *mut Device, gate: *mut u64, fault: *mut Fault) -> u32;
        required fn wait(device: *mut Device, stream: u64, gate: u64, fault: *mut Fault) -> u32;
        required fn open(device: *mut Device, gate: u64, fault: *mut Fault) -> u32;
        required fn destroy(device: *mut Device, gate: u64);
    }
}

abi_table! {
    /// Native graphs.
    GraphsTable = "anyaccel_graphs_table", 80 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut GraphsLimits, fault: *mut Fault) -> u32;
        optional fn begin(device: *mut Device, stream: u64, mode: u32, capture: *mut u64, fault: *mut Fault) -> u32;
        optional fn capture_id(device: *mut Device, stream: u64, capturing: *mut u32, capture: *mut u64, fault: *mut Fault) -> u32;
        optional fn end(device: *mut Device, stream: u64, graph: *mut u64, fault: *mut Fault) -> u32;
        optional fn abort(device: *mut Device, stream: u64);
        optional fn build(device: *mut Device, nodes: *const Node, count: usize, graph: *mut u64, fault: *mut Fault) -> u32;
        required fn replay(device: *mut Device, graph: u64, stream: u64, fault: *mut Fault) -> u32;
        optional fn update(device: *mut Device, graph: u64, node: u32, op: *const Op, fault: *mut Fault) -> u32;
        required fn destroy(device: *mut Device, graph: u64);
    }
}

abi_table! {
    /// Events that other processes or libraries can name.
    NativeEventsTable = "anyaccel_native_events_table", 72 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut NativeEventsLimits, fault: *mut Fault) -> u32;
        required fn create(device: *mut Device, interprocess: u32, event: *mut u64, fault: *mut Fault) -> u32;
        required fn record(device: *mut Device, event: u64, stream: u64, fault: *mut Fault) -> u32;
        required fn wait(device: *mut Device, event: u64, stream: u64, fault: *mut Fault) -> u32;
        optional fn export_handle(device: *mut Device, event: u64, handle: *mut c_void, len: usize, fault: *mut Fault) -> u32;
        optional fn import_handle(device: *mut Device, handle: *const c_void, len: usize, event: *mut u64, fault: *mut Fault) -> u32;
        optional fn native(device: *mut Device, event: u64) -> u64;
        required fn destroy(device: *mut Device, event: u64);
    }
}

abi_table! {
    /// Sensors.
    TelemetryTable = "anyaccel_telemetry_table", 24 bytes in 1.0 {
        required fn limits(device: *mut Device, limits: *mut TelemetryLimits, fault: *mut Fault) -> u32;
        required fn read(device: *mut Device, sensor: u32, value: *mut f32, fault: *mut Fault) -> u32;
    }
}

abi_table! {
    /// What a device does.
    DeviceTable = "anyaccel_device_table", 248 bytes in 1.0 {
        required fn info(device: *mut Device, info: *mut DeviceInfo, fault: *mut Fault) -> u32;
        required fn memory_info(device: *mut Device, info: *mut MemoryInfo, fault: *mut Fault) -> u32;
        required fn alloc(device: *mut Device, len: u64, segment: *mut Segment, fault: *mut Fault) -> u32;
        required fn free(device: *mut Device, mem: u64, fault: *mut Fault) -> u32;
        optional fn import(device: *mut Device, native: u64, len: u64, segment: *mut Segment, fault: *mut Fault) -> u32;
        optional fn native_mem(device: *mut Device, mem: u64) -> u64;
        required fn create_stream(device: *mut Device, priority: i32, stream: *mut u64, fault: *mut Fault) -> u32;
        required fn destroy_stream(device: *mut Device, stream: u64, fault: *mut Fault) -> u32;
        optional fn native_stream(device: *mut Device, stream: u64) -> u64;
        required fn mark(device: *mut Device, stream: u64, mark: *mut Mark, fault: *mut Fault) -> u32;
        required fn wait(device: *mut Device, stream: u64, of: u64, mark: Mark, fault: *mut Fault) -> u32;
        required fn wait_host(device: *mut Device, stream: u64, mark: u64, nanoseconds: u64, mode: u32, fault: *mut Fault) -> u32;
        required fn completed(device: *mut Device, stream: u64, mark: *mut u64, fault: *mut Fault) -> u32;
        required fn stamp(device: *mut Device, stream: u64, stamp: *mut u64, fault: *mut Fault) -> u32;
        required fn elapsed_ns(device: *mut Device, from: u64, to: u64, nanoseconds: *mut i64, fault: *mut Fault) -> u32;
        required fn drop_stamp(device: *mut Device, stamp: u64);
        required fn copy(device: *mut Device, stream: u64, dst: *const End, src: *const End, len: u64, fault: *mut Fault) -> u32;
        required fn fill(device: *mut Device, stream: u64, dst: Place, pattern: *const c_void, pattern_len: u32, len: u64, fault: *mut Fault) -> u32;
        required fn write(device: *mut Device, stream: u64, dst: Place, bytes: *const c_void, len: u32, fault: *mut Fault) -> u32;
        required fn host_call(device: *mut Device, stream: u64, function: *const HostFn, fault: *mut Fault) -> u32;
        optional fn builtin(device: *mut Device, number: u32, kernel: *mut u64) -> u32;
        optional fn launch(device: *mut Device, stream: u64, kernel: u64, launch: *const anyaccel_hal::Launch, args: *const Arg, arg_count: usize, fault: *mut Fault) -> u32;
    }
    {
        pinned: PinnedTable,
        peers: PeersTable,
        virtual_memory: VirtualMemoryTable,
        kernels: KernelsTable,
        gates: GatesTable,
        graphs: GraphsTable,
        native_events: NativeEventsTable,
        telemetry: TelemetryTable,
    }
}
