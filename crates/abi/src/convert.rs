//! What calls carry, from hal's types to the ABI's and back.

use crate::raw;
use crate::text::{self, Buffer};
use anyaccel_hal::{
    Arg, DType, DTypeSet, DeviceInfo, End, Fault, FaultKind, HostFn, HostPtr, Launch, Mark, Mem, PatternSizes,
    PciAddress, Place, PriorityRange, Segment, Uuid,
};

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

/// Reads one field of what the other side has just written. Volatile, so that neighbours are not read at once: a wide read of two
/// narrow writes waits until both have left the store buffer, several nanoseconds.
///
/// # Safety
/// `field` may be read.
#[inline(always)]
pub(crate) unsafe fn alone<T: Copy>(field: *const T) -> T {
    // SAFETY: as this function.
    unsafe { field.read_volatile() }
}

/// # Safety
/// `place` may be read.
#[inline(always)]
unsafe fn place_at(place: *const raw::Place) -> Place {
    // SAFETY: as this function.
    unsafe { Place { mem: Mem(alone(&raw const (*place).mem)), offset: alone(&raw const (*place).offset) } }
}

/// An end of a copy as the plugin sees it: the same memory.
#[inline]
pub(crate) const fn end(end: &End) -> *const raw::End {
    std::ptr::from_ref(end).cast()
}

/// Whether there is an end of that kind.
///
/// # Safety
/// `end` may be read.
#[inline]
pub(crate) unsafe fn check_end(end: *const raw::End, api: &'static str) -> Result<(), Fault> {
    // SAFETY: as this function.
    match unsafe { (*end).kind } {
        raw::END_DEVICE | raw::END_PINNED | raw::END_HOST => Ok(()),
        other => Err(strange(api, "an end", other)),
    }
}

/// An end that was checked.
///
/// # Safety
/// As for [`check_end`]; its data is that of its kind.
#[inline]
pub(crate) unsafe fn to_end(end: *const raw::End) -> End {
    // SAFETY: as this function.
    unsafe {
        let data = &raw const (*end).data;
        match (*end).kind {
            raw::END_HOST => End::Host(HostPtr(alone(&raw const (*data).host).cast())),
            raw::END_PINNED => End::Pinned(place_at(&raw const (*data).place)),
            _ => End::Device(place_at(&raw const (*data).place)),
        }
    }
}

/// # Safety
/// `launch` may be read.
#[inline]
pub(crate) unsafe fn to_launch(launch: *const Launch) -> Launch {
    // SAFETY: as this function.
    unsafe {
        let axes = |axes: *const [u32; 3]| {
            let first: *const u32 = axes.cast();
            [alone(first), alone(first.add(1)), alone(first.add(2))]
        };
        Launch {
            groups: axes(&raw const (*launch).groups),
            threads: axes(&raw const (*launch).threads),
            shared: alone(&raw const (*launch).shared),
        }
    }
}

// What a slice is in memory is not promised, so it is looked at: were it another way round, this would not compile.
const _: () = {
    union Parts {
        slice: &'static [u8],
        parts: raw::ArgBytes,
    }
    // SAFETY: a slice is a pointer and a length; which is where is the question.
    assert!(unsafe { Parts { slice: b"abc" }.parts.len } == 3);
    assert!(size_of::<Arg<'_>>() == size_of::<raw::Arg>() && align_of::<Arg<'_>>() == align_of::<raw::Arg>());
    assert!(size_of::<End>() == size_of::<raw::End>() && align_of::<End>() == align_of::<raw::End>());
};

/// Arguments as the plugin sees them: the same memory.
#[inline]
pub(crate) const fn args(args: &[Arg<'_>]) -> *const raw::Arg {
    args.as_ptr().cast()
}

/// Arguments as the host passed them, once their kinds were looked at: the same memory.
///
/// # Safety
/// There are `count`, valid for `'a` as is what they point to (H12).
#[inline]
pub(crate) unsafe fn to_args<'a>(
    args: *const raw::Arg,
    count: usize,
    api: &'static str,
) -> Result<&'a [Arg<'a>], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: as this function.
    for arg in unsafe { std::slice::from_raw_parts(args, count) } {
        let known = matches!(arg.kind, raw::ARG_PLACE..=raw::ARG_LOCAL);
        // SAFETY: the field of this kind.
        if !known || arg.kind == raw::ARG_BYTES && unsafe { arg.data.bytes.data.is_null() } {
            return Err(strange(api, "an argument", arg.kind));
        }
    }
    // SAFETY: as this function. Arg is repr(C, u32) with the numbers and the fields of raw::Arg, as far as they go by the
    // kinds just looked at; what a slice is was compared above, and its pointer is not null.
    Ok(unsafe { std::slice::from_raw_parts(args.cast(), count) })
}

#[cold]
fn strange(api: &'static str, what: &str, kind: u32) -> Fault {
    let null = if kind == raw::ARG_BYTES { " that is NULL" } else { "" };
    Fault::invalid(api, format!("{what} of kind {kind}{null}"))
}

/// A function of the host as the plugin sees it: the same memory. Whoever passes it on forgets it.
#[inline]
pub(crate) const fn host_fn(function: &HostFn) -> *const raw::HostFn {
    // Both are repr(C), of the same three pointers; HostStatus is repr(u32), and the header has plugins pass no other value
    // than it has.
    std::ptr::from_ref(function).cast()
}

/// # Safety
/// `function` may be read; H13: the host handed it over.
#[inline]
pub(crate) unsafe fn to_host_fn(function: *const raw::HostFn, api: &'static str) -> Result<HostFn, Fault> {
    // SAFETY: as this function.
    if unsafe { (*function).call.is_none() || (*function).drop.is_none() } {
        return Err(Fault::invalid(api, "a function that is NULL"));
    }
    // SAFETY: as above, and neither function is null; H13: it may be called on any thread and does not unwind.
    Ok(unsafe { function.cast::<HostFn>().read() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    const PLACE: Place = Place { mem: Mem(7), offset: 9 };

    #[test]
    fn ends_are_in_memory_what_the_header_says() {
        let mut byte = 0_u8;
        let host = HostPtr(&raw mut byte);
        for (given, kind) in [
            (End::Device(PLACE), raw::END_DEVICE),
            (End::Pinned(PLACE), raw::END_PINNED),
            (End::Host(host), raw::END_HOST),
        ] {
            let raw = end(&given);
            // SAFETY: it is that end, and the field is that of its kind.
            unsafe {
                assert_eq!((*raw).kind, kind);
                if kind == raw::END_HOST {
                    assert_eq!((*raw).data.host.cast::<u8>(), host.0);
                } else {
                    assert_eq!(((*raw).data.place.mem, (*raw).data.place.offset), (7, 9));
                }
                check_end(raw, "copy").expect("a kind that there is");
                assert_eq!(to_end(raw), given);
            }
        }
        let strange = raw::End { kind: 4, unset: MaybeUninit::uninit(), data: raw::EndData { place: place(PLACE) } };
        // SAFETY: an end; its kind is what is looked at.
        let refused = unsafe { check_end(&raw const strange, "copy") }.expect_err("no such kind");
        assert_eq!(refused.note.as_deref(), Some("an end of kind 4"));
    }

    #[test]
    fn arguments_are_in_memory_what_the_header_says() {
        let given = [Arg::Place { place: PLACE, len: 11 }, Arg::Bytes(b"value"), Arg::Bytes(&[]), Arg::Local(13)];
        let raw = args(&given);
        // SAFETY: it is that list, and each field is that of its kind.
        unsafe {
            let [place, bytes, empty, local] = *raw.cast::<[raw::Arg; 4]>();
            assert_eq!((place.kind, place.data.place.place.mem, place.data.place.place.offset), (raw::ARG_PLACE, 7, 9));
            assert_eq!(place.data.place.len, 11);
            assert_eq!((bytes.kind, bytes.data.bytes.len, empty.data.bytes.len), (raw::ARG_BYTES, 5, 0));
            assert_eq!(std::slice::from_raw_parts(bytes.data.bytes.data.cast::<u8>(), 5), b"value");
            assert_eq!((local.kind, local.data.local), (raw::ARG_LOCAL, 13));
            assert_eq!(to_args(raw, 4, "launch").expect("kinds that there are"), given);
            assert_eq!(to_args(std::ptr::null(), 0, "launch").expect("nothing"), []);
        }
    }

    #[test]
    fn arguments_that_can_not_be_are_refused() {
        let null = raw::ArgData { bytes: raw::ArgBytes { data: std::ptr::null(), len: 0 } };
        for (kind, said) in [
            (0, "an argument of kind 0"),
            (4, "an argument of kind 4"),
            (raw::ARG_BYTES, "an argument of kind 2 that is NULL"),
        ] {
            let strange = raw::Arg { kind, unset: MaybeUninit::uninit(), data: null };
            // SAFETY: one argument, of which the kind and the pointer are looked at.
            let refused = unsafe { to_args(&raw const strange, 1, "launch") }.expect_err("no such argument");
            assert_eq!((refused.kind, refused.note.as_deref()), (FaultKind::Invalid, Some(said)));
        }
    }
}
