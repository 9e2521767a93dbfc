//! What calls carry, from hal's types to the ABI's and back.

use crate::raw;
use crate::text::{self, Buffer};
use anyaccel_hal::{
    Arg, DType, DTypeSet, DeviceInfo, End, Fault, FaultKind, HostFn, HostPtr, Mark, Mem, PatternSizes, PciAddress,
    Place, PriorityRange, Segment, Uuid,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// What segments are aligned to at most.
const MOST_ALIGNMENT: u64 = 2 << 20;

#[inline]
pub(crate) const fn place(place: Place) -> raw::Place {
    raw::Place { mem: place.mem.0, offset: place.offset }
}

#[inline]
pub(crate) const fn to_place(place: raw::Place) -> Place {
    Place { mem: Mem(place.mem), offset: place.offset }
}

#[inline]
pub(crate) const fn mark(mark: Mark) -> raw::Mark {
    match mark {
        Mark::At(value) => raw::Mark { value, captured: 0, reserved: 0 },
        Mark::Captured(value) => raw::Mark { value, captured: 1, reserved: 0 },
    }
}

#[inline]
pub(crate) const fn to_mark(mark: raw::Mark) -> Mark {
    if mark.captured == 0 { Mark::At(mark.value) } else { Mark::Captured(mark.value) }
}

#[inline]
pub(crate) const fn segment(segment: Segment) -> raw::Segment {
    raw::Segment { mem: segment.mem.0, addr: segment.addr, len: segment.len }
}

#[inline]
pub(crate) const fn to_segment(segment: raw::Segment) -> Segment {
    Segment { mem: Mem(segment.mem), addr: segment.addr, len: segment.len }
}

const NO_PLACE: raw::Place = raw::Place { mem: 0, offset: 0 };

#[inline]
pub(crate) const fn end(end: End) -> raw::End {
    let (kind, at, host) = match end {
        End::Device(at) => (raw::END_DEVICE, place(at), std::ptr::null_mut()),
        End::Pinned(at) => (raw::END_PINNED, place(at), std::ptr::null_mut()),
        End::Host(HostPtr(pointer)) => (raw::END_HOST, NO_PLACE, pointer),
    };
    raw::End { kind, reserved: 0, place: at, host: host.cast() }
}

#[inline]
pub(crate) fn to_end(end: &raw::End, api: &'static str) -> Result<End, Fault> {
    match end.kind {
        raw::END_DEVICE => Ok(End::Device(to_place(end.place))),
        raw::END_PINNED => Ok(End::Pinned(to_place(end.place))),
        raw::END_HOST => Ok(End::Host(HostPtr(end.host.cast()))),
        other => Err(Fault::invalid(api, format!("an end of kind {other}"))),
    }
}

#[inline]
pub(crate) const fn arg(arg: Arg<'_>) -> raw::Arg {
    let (kind, at, bytes, len) = match arg {
        Arg::Place { place: at, len } => (raw::ARG_PLACE, place(at), std::ptr::null(), len),
        Arg::Bytes(bytes) => (raw::ARG_BYTES, NO_PLACE, bytes.as_ptr().cast::<c_void>(), bytes.len() as u64),
        Arg::Local(len) => (raw::ARG_LOCAL, NO_PLACE, std::ptr::null(), len as u64),
    };
    raw::Arg { kind, reserved: 0, place: at, bytes, len }
}

/// # Safety
/// H12: what the argument points to is valid for the call.
#[inline]
pub(crate) unsafe fn to_arg<'a>(arg: &raw::Arg, api: &'static str) -> Result<Arg<'a>, Fault> {
    match arg.kind {
        raw::ARG_PLACE => Ok(Arg::Place { place: to_place(arg.place), len: arg.len }),
        raw::ARG_BYTES => {
            let bytes = raw::ConstText { data: arg.bytes.cast(), length: arg.len as usize };
            // SAFETY: as this function.
            Ok(Arg::Bytes(unsafe { text::borrowed(bytes) }))
        }
        raw::ARG_LOCAL => Ok(Arg::Local(arg.len as usize)),
        other => Err(Fault::invalid(api, format!("an argument of kind {other}"))),
    }
}

/// How many arguments are converted without an allocation.
const FEW: usize = 16;

/// Hands `body` the list with each element converted, on the stack if it is short.
#[inline]
pub(crate) fn each<T: Copy, U: Copy, R>(list: &[T], convert: impl Fn(T) -> U, body: impl FnOnce(&[U]) -> R) -> R {
    if list.is_empty() {
        return body(&[]);
    }
    if list.len() > FEW {
        return body(&list.iter().map(|&item| convert(item)).collect::<Vec<U>>());
    }
    let mut few = [const { MaybeUninit::<U>::uninit() }; FEW];
    for (to, &from) in few.iter_mut().zip(list) {
        to.write(convert(from));
    }
    // SAFETY: the first `list.len()` elements were just written.
    body(unsafe { std::slice::from_raw_parts(few.as_ptr().cast::<U>(), list.len()) })
}

/// A function of the host, which whoever gets it owns.
#[inline]
pub(crate) fn host_fn(function: HostFn) -> raw::HostFn {
    // SAFETY: both are repr(C), of the same three pointers; HostStatus is repr(u32), and the header has plugins pass no other
    // value than it has.
    unsafe { std::mem::transmute::<HostFn, raw::HostFn>(function) }
}

/// # Safety
/// H13: the host handed it over.
#[inline]
pub(crate) unsafe fn to_host_fn(function: raw::HostFn, api: &'static str) -> Result<HostFn, Fault> {
    if function.call.is_none() || function.drop.is_none() {
        return Err(Fault::invalid(api, "a function that is NULL"));
    }
    // SAFETY: as above, and neither function is null; H13: it may be called on any thread and does not unwind.
    Ok(unsafe { std::mem::transmute::<raw::HostFn, HostFn>(function) })
}

/// Room for each text of a device's properties, in bytes.
const INFO_TEXT: usize = 256;

/// A device's properties as `fill` writes them; `Ok(None)` if it returns false.
pub(crate) fn info(
    fill: impl FnOnce(*mut raw::DeviceInfo) -> Result<bool, Fault>,
) -> Result<Option<DeviceInfo>, Fault> {
    let (mut name, mut vendor, mut driver) =
        (Buffer::<INFO_TEXT>::new(), Buffer::<INFO_TEXT>::new(), Buffer::<INFO_TEXT>::new());
    let mut raw = raw::DeviceInfo {
        struct_size: size_of::<raw::DeviceInfo>() as u32,
        flags: 0,
        name: name.text(),
        vendor: vendor.text(),
        driver: driver.text(),
        uuid: [0; 16],
        pci_domain: 0,
        pci_bus: 0,
        pci_device: 0,
        pci_function: 0,
        reserved: 0,
        memory: 0,
        max_alloc: 0,
        alignment: 0,
        place_alignment: 0,
        dtypes: 0,
        stamp_ns: 0,
        fill_patterns: 0,
        cores: 0,
        clock_mhz: 0,
        priority_least: 0,
        priority_greatest: 0,
    };
    if !fill(&raw mut raw)? {
        return Ok(None);
    }
    check_info(&raw)?;
    let flag = |bit| raw.flags & bit != 0;
    let known = |value| if value == 0 { None } else { Some(value) };
    // SAFETY: the header asks for as much text as fits.
    let (name, vendor, driver) =
        unsafe { (name.read(raw.name.length), vendor.read(raw.vendor.length), driver.read(raw.driver.length)) };
    Ok(Some(DeviceInfo {
        name,
        vendor,
        driver,
        uuid: flag(raw::INFO_UUID).then_some(Uuid(raw.uuid)),
        pci: flag(raw::INFO_PCI).then_some(PciAddress {
            domain: raw.pci_domain,
            bus: raw.pci_bus,
            device: raw.pci_device,
            function: raw.pci_function,
        }),
        memory: raw.memory,
        max_alloc: raw.max_alloc,
        alignment: raw.alignment,
        place_alignment: raw.place_alignment,
        host_ends: flag(raw::INFO_HOST_ENDS),
        stamp_ns: raw.stamp_ns,
        fill_patterns: PatternSizes(raw.fill_patterns),
        cores: known(raw.cores),
        clock_mhz: known(raw.clock_mhz),
        integrated: flag(raw::INFO_INTEGRATED_KNOWN).then_some(flag(raw::INFO_INTEGRATED)),
        priorities: PriorityRange { least: raw.priority_least, greatest: raw.priority_greatest },
        dtypes: DType::ALL
            .iter()
            .filter(|dtype| raw.dtypes >> dtype.number() & 1 != 0)
            .fold(DTypeSet::EMPTY, |set, &dtype| set.with(dtype)),
    }))
}

/// Refuses properties that the engine can't work with, by the field's name.
fn check_info(info: &raw::DeviceInfo) -> Result<(), Fault> {
    let wrong = |field: &str, value: &dyn std::fmt::Display, right: &str| {
        let note = format!("device_info.{field} is {value}, it must be {right}");
        Err(Fault::new(FaultKind::Driver, "info").note(note))
    };
    let power = |value: u64| value.is_power_of_two() && value <= MOST_ALIGNMENT;
    if info.memory == 0 {
        return wrong("memory", &info.memory, "more than 0");
    }
    if info.max_alloc == 0 {
        return wrong("max_alloc", &info.max_alloc, "more than 0");
    }
    if !power(info.alignment) {
        return wrong("alignment", &info.alignment, "a power of two, at most 2 MiB");
    }
    if !power(info.place_alignment) {
        return wrong("place_alignment", &info.place_alignment, "a power of two, at most 2 MiB");
    }
    if info.fill_patterns & raw::FILL_1 == 0 {
        return wrong("fill_patterns", &info.fill_patterns, "a set with ANYACCEL_FILL_1");
    }
    let (least, greatest) = (info.priority_least, info.priority_greatest);
    if greatest > least || least.checked_sub(greatest).is_none_or(|levels| levels > 255) {
        return wrong("priority_greatest", &greatest, &format!("at most priority_least, {least}, and 256 in all"));
    }
    Ok(())
}

/// Writes a device's properties for the host.
///
/// # Safety
/// `raw` is what the host passed.
pub(crate) unsafe fn put_info(raw: *mut raw::DeviceInfo, info: &DeviceInfo) {
    // SAFETY: valid for the call, and this version's at least.
    let raw = unsafe { &mut *raw };
    // SAFETY: the buffers are the host's own.
    unsafe {
        text::put(&mut raw.name, &info.name);
        text::put(&mut raw.vendor, &info.vendor);
        text::put(&mut raw.driver, &info.driver);
    }
    let mut flags = 0;
    if let Some(Uuid(uuid)) = info.uuid {
        flags |= raw::INFO_UUID;
        raw.uuid = uuid;
    }
    if let Some(pci) = info.pci {
        flags |= raw::INFO_PCI;
        (raw.pci_domain, raw.pci_bus, raw.pci_device, raw.pci_function) =
            (pci.domain, pci.bus, pci.device, pci.function);
    }
    if info.host_ends {
        flags |= raw::INFO_HOST_ENDS;
    }
    if let Some(integrated) = info.integrated {
        flags |= raw::INFO_INTEGRATED_KNOWN | if integrated { raw::INFO_INTEGRATED } else { 0 };
    }
    raw.flags = flags;
    raw.memory = info.memory;
    raw.max_alloc = info.max_alloc;
    raw.alignment = info.alignment;
    raw.place_alignment = info.place_alignment;
    raw.dtypes = DType::ALL
        .iter()
        .filter(|&&dtype| info.dtypes.contains(dtype))
        .fold(0, |bits, dtype| bits | 1 << dtype.number());
    raw.stamp_ns = info.stamp_ns;
    raw.fill_patterns = info.fill_patterns.0;
    raw.cores = info.cores.unwrap_or(0);
    raw.clock_mhz = info.clock_mhz.unwrap_or(0);
    raw.priority_least = info.priorities.least;
    raw.priority_greatest = info.priorities.greatest;
}
