//! The tables of capabilities of an exported device. They are all there; `limits` says what the device lacks.

use super::device::{answers, of};
use super::{Constant, size};
use crate::convert;
use crate::fault::contained;
use crate::raw;
use anyaccel_hal::{
    Device, Fault, Format, Gate, Gates, HostKernel, HostPtr, Kernel, KernelSource, Kernels, Mem, NativeEvent,
    NativeEvents, Peers, Pinned, Range, StreamId, Telemetry, VirtualMemory,
};
use std::ffi::{CStr, c_char, c_void};

fn pinned_of(device: &dyn Device) -> Result<&dyn Pinned, Fault> {
    device.pinned().ok_or(Fault::unsupported("pinned"))
}

fn peers_of(device: &dyn Device) -> Result<&dyn Peers, Fault> {
    device.peers().ok_or(Fault::unsupported("peers"))
}

fn virtual_memory_of(device: &dyn Device) -> Result<&dyn VirtualMemory, Fault> {
    device.virtual_memory().ok_or(Fault::unsupported("virtual_memory"))
}

fn kernels_of(device: &dyn Device) -> Result<&dyn Kernels, Fault> {
    device.kernels().ok_or(Fault::unsupported("kernels"))
}

fn gates_of(device: &dyn Device) -> Result<&dyn Gates, Fault> {
    device.gates().ok_or(Fault::unsupported("gates"))
}

fn native_events_of(device: &dyn Device) -> Result<&dyn NativeEvents, Fault> {
    device.native_events().ok_or(Fault::unsupported("native_events"))
}

fn telemetry_of(device: &dyn Device) -> Result<&dyn Telemetry, Fault> {
    device.telemetry().ok_or(Fault::unsupported("telemetry"))
}

/// A set of flags.
fn flags<const N: usize>(list: [(bool, u32); N]) -> u32 {
    list.into_iter().fold(0, |all, (has, bit)| if has { all | bit } else { all })
}

pub(super) static PINNED: Constant<raw::PinnedTable> = Constant(raw::PinnedTable {
    struct_size: size::<raw::PinnedTable>(),
    reserved: 0,
    limits: Some(pinned_limits),
    alloc: Some(pinned_alloc),
    register_memory: Some(pinned_register),
    free: Some(pinned_free),
});

pub(super) static PEERS: Constant<raw::PeersTable> = Constant(raw::PeersTable {
    struct_size: size::<raw::PeersTable>(),
    reserved: 0,
    limits: Some(peers_limits),
    can_access: Some(can_access),
    copy: Some(peers_copy),
});

pub(super) static VIRTUAL_MEMORY: Constant<raw::VirtualMemoryTable> = Constant(raw::VirtualMemoryTable {
    struct_size: size::<raw::VirtualMemoryTable>(),
    reserved: 0,
    limits: Some(virtual_memory_limits),
    reserve: Some(reserve),
    map: Some(map),
    unmap: Some(unmap),
    release: Some(release),
});

pub(super) static KERNELS: Constant<raw::KernelsTable> = Constant(raw::KernelsTable {
    struct_size: size::<raw::KernelsTable>(),
    reserved: 0,
    limits: Some(kernels_limits),
    load: Some(load),
    load_host: Some(load_host),
    unload: Some(unload),
});

pub(super) static GATES: Constant<raw::GatesTable> = Constant(raw::GatesTable {
    struct_size: size::<raw::GatesTable>(),
    reserved: 0,
    limits: Some(gates_limits),
    create: Some(gate_create),
    wait: Some(gate_wait),
    open: Some(gate_open),
    destroy: Some(gate_destroy),
});

pub(super) static NATIVE_EVENTS: Constant<raw::NativeEventsTable> = Constant(raw::NativeEventsTable {
    struct_size: size::<raw::NativeEventsTable>(),
    reserved: 0,
    limits: Some(native_events_limits),
    create: Some(event_create),
    record: Some(event_record),
    wait: Some(event_wait),
    export_handle: Some(event_export),
    import_handle: Some(event_import),
    native: Some(event_native),
    destroy: Some(event_destroy),
});

pub(super) static TELEMETRY: Constant<raw::TelemetryTable> = Constant(raw::TelemetryTable {
    struct_size: size::<raw::TelemetryTable>(),
    reserved: 0,
    limits: Some(telemetry_limits),
    read: Some(telemetry_read),
});

answers! {
    fn pinned_limits(device, to: *mut raw::PinnedLimits) {
        let limits = pinned_of(device)?.limits();
        (*to).flags = flags([(limits.register, raw::PINNED_REGISTER), (limits.direct, raw::PINNED_DIRECT)]);
        (*to).granularity = limits.granularity;
        Ok(())
    }

    fn pinned_alloc(device, len: u64, mem: *mut u64, pointer: *mut *mut c_void) {
        let (taken, at) = pinned_of(device)?.alloc(len)?;
        mem.write(taken.0);
        pointer.write(at.0.cast());
        Ok(())
    }

    fn pinned_register(device, pointer: *mut c_void, len: u64, mem: *mut u64) {
        mem.write(pinned_of(device)?.register(HostPtr(pointer.cast()), len)?.0);
        Ok(())
    }

    fn pinned_free(device, mem: u64) {
        pinned_of(device)?.free(Mem(mem))
    }

    fn peers_limits(device, to: *mut raw::PeersLimits) {
        (*to).reachable = peers_of(device)?.limits().reachable;
        Ok(())
    }

    fn peers_copy(device, stream: u64, dst: raw::Place, from: u32, src: raw::Place, len: u64) {
        let (dst, src) = (convert::to_place(dst), convert::to_place(src));
        peers_of(device)?.copy(StreamId(stream), dst, from, src, len)
    }

    fn virtual_memory_limits(device, to: *mut raw::VirtualMemoryLimits) {
        (*to).granularity = virtual_memory_of(device)?.limits().granularity;
        Ok(())
    }

    fn reserve(device, len: u64, range: *mut u64, segment: *mut raw::Segment) {
        let (taken, whole) = virtual_memory_of(device)?.reserve(len)?;
        range.write(taken.0);
        segment.write(convert::segment(whole));
        Ok(())
    }

    fn map(device, range: u64, offset: u64, len: u64) {
        virtual_memory_of(device)?.map(Range(range), offset, len)
    }

    fn unmap(device, range: u64, offset: u64, len: u64) {
        virtual_memory_of(device)?.unmap(Range(range), offset, len)
    }

    fn release(device, range: u64) {
        virtual_memory_of(device)?.release(Range(range))
    }

    fn kernels_limits(device, to: *mut raw::KernelsLimits) {
        let kernels = kernels_of(device)?;
        let limits = kernels.limits();
        (*to).max_threads = limits.max_threads;
        (*to).max_groups = limits.max_groups;
        (*to).max_shared = limits.max_shared;
        let mut formats = [0; 9];
        let known = kernels.formats();
        for (slot, &format) in formats.iter_mut().zip(known) {
            *slot = format as u32;
        }
        (*to).formats = formats;
        (*to).format_count = known.len().min(formats.len()) as u32;
        Ok(())
    }

    fn load(device, form: u32, code: *const c_void, len: usize, entry: *const c_char, kernel: *mut u64) {
        let Some(format) = format(form) else { return Err(Fault::unsupported("load")) };
        let code = if len == 0 { &[] } else { std::slice::from_raw_parts(code.cast::<u8>(), len) };
        let Ok(entry) = CStr::from_ptr(entry).to_str() else {
            return Err(Fault::invalid("load", "the entry's name is not Unicode"));
        };
        kernel.write(kernels_of(device)?.load(KernelSource::Code { format, code, entry })?.0);
        Ok(())
    }

    fn load_host(device, function: raw::HostKernel, kernel: *mut u64) {
        let (Some(call), Some(drop)) = (function.call, function.drop) else {
            return Err(Fault::invalid("load_host", "a function that is NULL"));
        };
        // Owned from here on, also if the device has no kernels.
        let function = HostKernel::from_raw(call, drop, function.data);
        kernel.write(kernels_of(device)?.load(KernelSource::Host(function))?.0);
        Ok(())
    }

    fn gates_limits(device, to: *mut raw::GatesLimits) {
        (*to).closed = gates_of(device)?.limits().closed;
        Ok(())
    }

    fn gate_create(device, gate: *mut u64) {
        gate.write(gates_of(device)?.create()?.0);
        Ok(())
    }

    fn gate_wait(device, stream: u64, gate: u64) {
        gates_of(device)?.wait(StreamId(stream), Gate(gate))
    }

    fn gate_open(device, gate: u64) {
        gates_of(device)?.open(Gate(gate))
    }

    fn native_events_limits(device, to: *mut raw::NativeEventsLimits) {
        (*to).ipc_bytes = native_events_of(device)?.limits().ipc_bytes;
        Ok(())
    }

    fn event_create(device, interprocess: u32, event: *mut u64) {
        event.write(native_events_of(device)?.create(interprocess != 0)?.0);
        Ok(())
    }

    fn event_record(device, event: u64, stream: u64) {
        native_events_of(device)?.record(NativeEvent(event), StreamId(stream))
    }

    fn event_wait(device, event: u64, stream: u64) {
        native_events_of(device)?.wait(NativeEvent(event), StreamId(stream))
    }

    fn event_export(device, event: u64, handle: *mut c_void, len: usize) {
        let handle = if len == 0 { &mut [] } else { std::slice::from_raw_parts_mut(handle.cast::<u8>(), len) };
        native_events_of(device)?.export(NativeEvent(event), handle)
    }

    fn event_import(device, handle: *const c_void, len: usize, event: *mut u64) {
        let handle = if len == 0 { &[] } else { std::slice::from_raw_parts(handle.cast::<u8>(), len) };
        event.write(native_events_of(device)?.import(handle)?.0);
        Ok(())
    }

    fn telemetry_limits(device, to: *mut raw::TelemetryLimits) {
        let limits = telemetry_of(device)?.limits();
        (*to).sensors = flags([
            (limits.utilization, 1 << raw::SENSOR_UTILIZATION),
            (limits.memory_usage, 1 << raw::SENSOR_MEMORY_USAGE),
            (limits.temperature, 1 << raw::SENSOR_TEMPERATURE),
            (limits.power, 1 << raw::SENSOR_POWER),
            (limits.clock, 1 << raw::SENSOR_CLOCK),
        ]);
        Ok(())
    }

    fn telemetry_read(device, sensor: u32, value: *mut f32) {
        let telemetry = telemetry_of(device)?;
        value.write(match sensor {
            raw::SENSOR_UTILIZATION => telemetry.utilization()?,
            raw::SENSOR_MEMORY_USAGE => telemetry.memory_usage()?,
            raw::SENSOR_TEMPERATURE => telemetry.temperature()?,
            raw::SENSOR_POWER => telemetry.power_draw()?,
            raw::SENSOR_CLOCK => telemetry.clock_rate()?,
            _ => return Err(Fault::unsupported("read")),
        });
        Ok(())
    }
}

fn format(number: u32) -> Option<Format> {
    match number {
        raw::FORMAT_PTX => Some(Format::Ptx),
        raw::FORMAT_CUBIN => Some(Format::Cubin),
        raw::FORMAT_SPIRV => Some(Format::SpirV),
        raw::FORMAT_OPENCL_C => Some(Format::OpenClC),
        raw::FORMAT_MSL => Some(Format::Msl),
        raw::FORMAT_CUDA_C => Some(Format::CudaC),
        _ => None,
    }
}

unsafe extern "C" fn can_access(device: *mut raw::Device, ordinal: u32) -> u32 {
    // SAFETY: as in `answers`.
    contained(0, || unsafe { of(device).peers().is_some_and(|peers| peers.can_access(ordinal)).into() })
}

unsafe extern "C" fn unload(device: *mut raw::Device, kernel: u64) {
    contained((), || {
        // SAFETY: as in `answers`.
        unsafe {
            if let Some(kernels) = of(device).kernels() {
                kernels.unload(Kernel(kernel));
            }
        }
    });
}

unsafe extern "C" fn gate_destroy(device: *mut raw::Device, gate: u64) {
    contained((), || {
        // SAFETY: as in `answers`.
        unsafe {
            if let Some(gates) = of(device).gates() {
                gates.destroy(Gate(gate));
            }
        }
    });
}

unsafe extern "C" fn event_native(device: *mut raw::Device, event: u64) -> u64 {
    // SAFETY: as in `answers`.
    contained(0, || unsafe { of(device).native_events().map_or(0, |events| events.native(NativeEvent(event))) })
}

unsafe extern "C" fn event_destroy(device: *mut raw::Device, event: u64) {
    contained((), || {
        // SAFETY: as in `answers`.
        unsafe {
            if let Some(events) = of(device).native_events() {
                events.destroy(NativeEvent(event));
            }
        }
    });
}
