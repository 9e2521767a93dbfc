//! What a plugin's device can beyond the required.

use super::check::Tables;
use super::device::{NO_SEGMENT, Open, ask, sound};
use super::graphs::{self, GraphsOf};
use crate::fault::{call, call_at_length};
use crate::raw;
use anyaccel_hal::{
    Fault, FaultKind, Format, Gate, Gates, GatesLimits, HostPtr, Kernel, KernelSource, Kernels, KernelsLimits, Mem,
    NativeEvent, NativeEvents, NativeEventsLimits, Peers, PeersLimits, Pinned, PinnedLimits, Place, Range, Segment,
    StreamId, Telemetry, TelemetryLimits, VirtualMemory, VirtualMemoryLimits,
};
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

/// A capability: its table, the device, and its degrees, which are constant (H26).
pub(crate) struct Of<T: 'static, L> {
    pub(super) table: &'static T,
    pub(super) open: Arc<Open>,
    pub(super) limits: L,
}

impl<T, L> Of<T, L> {
    /// The capability, unless there is no table or the device lacks it.
    fn find(
        table: Option<&'static T>,
        open: &Arc<Open>,
        limits: impl FnOnce(&'static T) -> Result<L, Fault>,
    ) -> Result<Option<Self>, Fault> {
        let Some(table) = table else { return Ok(None) };
        match limits(table) {
            Ok(limits) => Ok(Some(Self { table, open: Arc::clone(open), limits })),
            Err(Fault { kind: FaultKind::Unsupported, .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// All capabilities of a device.
pub(crate) struct Capabilities {
    pub(super) pinned: Option<Of<raw::PinnedTable, PinnedLimits>>,
    pub(super) peers: Option<Of<raw::PeersTable, PeersLimits>>,
    pub(super) virtual_memory: Option<Of<raw::VirtualMemoryTable, VirtualMemoryLimits>>,
    pub(super) kernels: Option<KernelsOf>,
    pub(super) gates: Option<Of<raw::GatesTable, GatesLimits>>,
    pub(super) graphs: Option<GraphsOf>,
    pub(super) native_events: Option<Of<raw::NativeEventsTable, NativeEventsLimits>>,
    pub(super) telemetry: Option<Of<raw::TelemetryTable, TelemetryLimits>>,
}

/// The size of a struct that a plugin fills in.
pub(super) const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// Refuses a device whose limits promise a function that its table has not.
pub(super) fn promised(promised: bool, there: bool, api: &'static str, limit: &str) -> Result<(), Fault> {
    if !promised || there {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Driver, api).note(format!("it is NULL, and required with {limit}")))
}

/// Refuses a length or number of which no multiple makes sense.
fn power_of_two(api: &'static str, field: &str, value: u64) -> Result<u64, Fault> {
    if value.is_power_of_two() {
        return Ok(value);
    }
    Err(Fault::new(FaultKind::Driver, api).note(format!("{field} is {value}, it must be a power of two")))
}

impl Capabilities {
    pub(crate) fn of(tables: &'static Tables, open: &Arc<Open>) -> Result<Self, Fault> {
        Ok(Self {
            pinned: Of::find(tables.pinned.as_ref(), open, |table| {
                let mut limits =
                    raw::PinnedLimits { struct_size: size::<raw::PinnedLimits>(), flags: 0, granularity: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                let register = limits.flags & raw::PINNED_REGISTER != 0;
                promised(register, table.register_memory.is_some(), "register_memory", "ANYACCEL_PINNED_REGISTER")?;
                let direct = limits.flags & raw::PINNED_DIRECT != 0;
                Ok(PinnedLimits { granularity: limits.granularity.max(1), register, direct })
            })?,
            peers: Of::find(tables.peers.as_ref(), open, |table| {
                let mut limits = raw::PeersLimits { struct_size: size::<raw::PeersLimits>(), reachable: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                Ok(PeersLimits { reachable: limits.reachable })
            })?,
            virtual_memory: Of::find(tables.virtual_memory.as_ref(), open, |table| {
                let struct_size = size::<raw::VirtualMemoryLimits>();
                let mut limits = raw::VirtualMemoryLimits { struct_size, reserved: 0, granularity: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                let granularity = power_of_two("virtual_memory.limits", "granularity", limits.granularity)?;
                Ok(VirtualMemoryLimits { granularity })
            })?,
            kernels: KernelsOf::find(tables.kernels.as_ref(), open)?,
            gates: Of::find(tables.gates.as_ref(), open, |table| {
                let mut limits = raw::GatesLimits { struct_size: size::<raw::GatesLimits>(), closed: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                Ok(GatesLimits { closed: limits.closed })
            })?,
            graphs: Of::find(tables.graphs.as_ref(), open, |table| graphs::limits(table, open))?,
            native_events: Of::find(tables.native_events.as_ref(), open, |table| {
                let struct_size = size::<raw::NativeEventsLimits>();
                let mut limits = raw::NativeEventsLimits { struct_size, ipc_bytes: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                let there = table.export_handle.is_some() && table.import_handle.is_some();
                promised(limits.ipc_bytes > 0, there, "export_handle or import_handle", "ipc_bytes")?;
                Ok(NativeEventsLimits { ipc_bytes: limits.ipc_bytes })
            })?,
            telemetry: Of::find(tables.telemetry.as_ref(), open, |table| {
                let mut limits = raw::TelemetryLimits { struct_size: size::<raw::TelemetryLimits>(), sensors: 0 };
                ask!(table, open.raw(), limits(&raw mut limits))?;
                let has = |sensor: u32| limits.sensors & 1 << sensor != 0;
                Ok(TelemetryLimits {
                    utilization: has(raw::SENSOR_UTILIZATION),
                    memory_usage: has(raw::SENSOR_MEMORY_USAGE),
                    temperature: has(raw::SENSOR_TEMPERATURE),
                    power: has(raw::SENSOR_POWER),
                    clock: has(raw::SENSOR_CLOCK),
                })
            })?,
        })
    }
}

impl Pinned for Of<raw::PinnedTable, PinnedLimits> {
    fn limits(&self) -> PinnedLimits {
        self.limits
    }

    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        let (mut mem, mut pointer) = (0, ptr::null_mut());
        ask!(self.table, self.open.raw(), alloc(len, &raw mut mem, &raw mut pointer))?;
        if pointer.is_null() || pointer.addr().checked_add(len as usize).is_none() {
            // H27 can't hold for it, and it would be dereferenced.
            let note = format!("H27: the plugin gave {pointer:p} for {len} bytes");
            return Err(Fault::new(FaultKind::Driver, "pinned.alloc").note(note));
        }
        Ok((Mem(mem), HostPtr(pointer.cast())))
    }

    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        let mut mem = 0;
        ask!(self.table, self.open.raw(), register_memory(ptr.0.cast(), len, &raw mut mem))?;
        Ok(Mem(mem))
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), free(mem.0))
    }
}

impl Peers for Of<raw::PeersTable, PeersLimits> {
    fn limits(&self) -> PeersLimits {
        self.limits
    }

    fn can_access(&self, ordinal: u32) -> bool {
        // SAFETY: as in `ask`.
        self.table.can_access.is_some_and(|function| unsafe { function(self.open.raw(), ordinal) } != 0)
    }

    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        let (dst, src) = (crate::convert::place(dst), crate::convert::place(src));
        ask!(self.table, self.open.raw(), copy(stream.0, dst, from, src, len))
    }
}

impl VirtualMemory for Of<raw::VirtualMemoryTable, VirtualMemoryLimits> {
    fn limits(&self) -> VirtualMemoryLimits {
        self.limits
    }

    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        let (mut range, mut segment) = (0, NO_SEGMENT);
        ask!(self.table, self.open.raw(), reserve(len, &raw mut range, &raw mut segment))?;
        Ok((Range(range), sound("reserve", len, 1, segment)?))
    }

    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), map(range.0, offset, len))
    }

    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), unmap(range.0, offset, len))
    }

    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), release(range.0))
    }
}

impl Gates for Of<raw::GatesTable, GatesLimits> {
    fn limits(&self) -> GatesLimits {
        self.limits
    }

    fn create(&self) -> Result<Gate, Fault> {
        let mut gate = 0;
        ask!(self.table, self.open.raw(), create(&raw mut gate))?;
        Ok(Gate(gate))
    }

    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), wait(stream.0, gate.0))
    }

    unsafe fn open(&self, gate: Gate) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), open(gate.0))
    }

    unsafe fn destroy(&self, gate: Gate) {
        if let Some(function) = self.table.destroy {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), gate.0) }
        }
    }
}

impl NativeEvents for Of<raw::NativeEventsTable, NativeEventsLimits> {
    fn limits(&self) -> NativeEventsLimits {
        self.limits
    }

    fn create(&self, interprocess: bool) -> Result<NativeEvent, Fault> {
        let mut event = 0;
        ask!(self.table, self.open.raw(), create(interprocess.into(), &raw mut event))?;
        Ok(NativeEvent(event))
    }

    unsafe fn record(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), record(event.0, stream.0))
    }

    unsafe fn wait(&self, event: NativeEvent, stream: StreamId) -> Result<(), Fault> {
        ask!(self.table, self.open.raw(), wait(event.0, stream.0))
    }

    unsafe fn export(&self, event: NativeEvent, handle: &mut [u8]) -> Result<(), Fault> {
        let (pointer, len) = (handle.as_mut_ptr().cast(), handle.len());
        ask!(self.table, self.open.raw(), export_handle(event.0, pointer, len))
    }

    fn import(&self, handle: &[u8]) -> Result<NativeEvent, Fault> {
        let mut event = 0;
        ask!(self.table, self.open.raw(), import_handle(handle.as_ptr().cast(), handle.len(), &raw mut event))?;
        Ok(NativeEvent(event))
    }

    unsafe fn native(&self, event: NativeEvent) -> u64 {
        // SAFETY: as in `ask`.
        self.table.native.map_or(0, |function| unsafe { function(self.open.raw(), event.0) })
    }

    unsafe fn destroy(&self, event: NativeEvent) {
        if let Some(function) = self.table.destroy {
            // SAFETY: as in `ask`.
            unsafe { function(self.open.raw(), event.0) }
        }
    }
}

impl Of<raw::TelemetryTable, TelemetryLimits> {
    fn read(&self, sensor: u32) -> Result<f32, Fault> {
        let mut value = 0.0;
        ask!(self.table, self.open.raw(), read(sensor, &raw mut value))?;
        if value.is_finite() { Ok(value) } else { Err(Fault::new(FaultKind::NotReady, "telemetry.read")) }
    }
}

impl Telemetry for Of<raw::TelemetryTable, TelemetryLimits> {
    fn limits(&self) -> TelemetryLimits {
        self.limits
    }

    fn utilization(&self) -> Result<f32, Fault> {
        self.read(raw::SENSOR_UTILIZATION)
    }

    fn memory_usage(&self) -> Result<f32, Fault> {
        self.read(raw::SENSOR_MEMORY_USAGE)
    }

    fn temperature(&self) -> Result<f32, Fault> {
        self.read(raw::SENSOR_TEMPERATURE)
    }

    fn power_draw(&self) -> Result<f32, Fault> {
        self.read(raw::SENSOR_POWER)
    }

    fn clock_rate(&self) -> Result<f32, Fault> {
        self.read(raw::SENSOR_CLOCK)
    }
}

/// Loading of kernels, with the forms that can be.
pub(crate) struct KernelsOf {
    of: Of<raw::KernelsTable, KernelsLimits>,
    formats: Vec<Format>,
}

impl KernelsOf {
    fn find(table: Option<&'static raw::KernelsTable>, open: &Arc<Open>) -> Result<Option<Self>, Fault> {
        let mut formats = Vec::new();
        let of = Of::find(table, open, |table| {
            let mut limits = raw::KernelsLimits {
                struct_size: size::<raw::KernelsLimits>(),
                max_threads: 0,
                max_groups: [0; 3],
                max_shared: 0,
                format_count: 0,
                formats: [0; 9],
            };
            ask!(table, open.raw(), limits(&raw mut limits))?;
            // Forms of a later minor are left out: nobody here can name them.
            formats = limits.formats.iter().take(limits.format_count as usize).filter_map(|&n| format(n)).collect();
            let host = formats.contains(&Format::HostFn);
            promised(host, table.load_host.is_some(), "load_host", "ANYACCEL_FORMAT_HOST_FN")?;
            promised(formats.len() > usize::from(host), table.load.is_some(), "load", "formats of code")?;
            let raw::KernelsLimits { max_threads, max_groups, max_shared, .. } = limits;
            Ok(KernelsLimits { max_threads, max_groups, max_shared })
        })?;
        Ok(of.map(|of| Self { of, formats }))
    }
}

fn format(number: u32) -> Option<Format> {
    match number {
        raw::FORMAT_PTX => Some(Format::Ptx),
        raw::FORMAT_CUBIN => Some(Format::Cubin),
        raw::FORMAT_SPIRV => Some(Format::SpirV),
        raw::FORMAT_OPENCL_C => Some(Format::OpenClC),
        raw::FORMAT_MSL => Some(Format::Msl),
        raw::FORMAT_HOST_FN => Some(Format::HostFn),
        raw::FORMAT_CUDA_C => Some(Format::CudaC),
        _ => None,
    }
}

impl Kernels for KernelsOf {
    fn limits(&self) -> KernelsLimits {
        self.of.limits
    }

    fn formats(&self) -> &[Format] {
        &self.formats
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        let (table, device) = (self.of.table, self.of.open.raw());
        let mut kernel = 0;
        match source {
            KernelSource::Code { format, code, entry } => {
                let Ok(entry) = CString::new(entry) else {
                    return Err(Fault::invalid("load", "the entry's name holds a zero byte"));
                };
                let Some(load) = table.load else { return Err(Fault::unsupported("load")) };
                let (code, len) = (code.as_ptr().cast(), code.len());
                call_at_length("load", |fault| {
                    // SAFETY: as in `ask`; the code is sound to launch, as this function's caller promises.
                    unsafe { load(device, format as u32, code, len, entry.as_ptr(), &raw mut kernel, fault) }
                })?;
            }
            KernelSource::Host(function) => {
                if table.load_host.is_none() {
                    return Err(Fault::unsupported("load_host"));
                }
                let (call_it, drop_it, data) = function.into_raw();
                let function = raw::HostKernel { call: Some(call_it), drop: Some(drop_it), data };
                ask!(table, device, load_host(function, &raw mut kernel))?;
            }
        }
        Ok(Kernel(kernel))
    }

    unsafe fn unload(&self, kernel: Kernel) {
        if let Some(function) = self.of.table.unload {
            // SAFETY: as in `ask`.
            unsafe { function(self.of.open.raw(), kernel.0) }
        }
    }
}
