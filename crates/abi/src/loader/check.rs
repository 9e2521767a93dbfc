//! Negotiation: from what a plugin returned to tables that can be called without looking again.
//!
//! Every pointer is looked at before it is followed, every table copied as far as both sides know it, every function
//! that must be there found. What comes out is constant for good.

use super::error::Refusal;
use super::maps::Maps;
use crate::kind;
use crate::raw::{self, Table};
use anyaccel_hal::Kind;
use std::ffi::c_char;
use std::mem::{MaybeUninit, offset_of};

/// The version of the ABI that this crate speaks.
pub(crate) const OURS: (u32, u32) = (raw::ABI_MAJOR, raw::ABI_MINOR);

/// Bytes of `anyaccel_plugin` in 1.0.
const PLUGIN_LEAST: usize = 56;
const _: () = assert!(PLUGIN_LEAST <= size_of::<raw::Plugin>());

/// Bytes of the beginning of `anyaccel_plugin` that every major has.
const EVERY_MAJOR: usize = offset_of!(raw::Plugin, name);

/// What a plugin can, examined.
pub(crate) struct Tables {
    pub(crate) kind: Kind,
    pub(crate) version: Option<String>,
    pub(crate) abi: (u32, u32),
    pub(crate) flags: u32,
    pub(crate) driver: raw::DriverTable,
    /// Its pointers to the tables of capabilities are not followed again: those are below.
    pub(crate) device: raw::DeviceTable,
    pub(crate) pinned: Option<raw::PinnedTable>,
    pub(crate) peers: Option<raw::PeersTable>,
    pub(crate) virtual_memory: Option<raw::VirtualMemoryTable>,
    pub(crate) kernels: Option<raw::KernelsTable>,
    pub(crate) gates: Option<raw::GatesTable>,
    pub(crate) graphs: Option<raw::GraphsTable>,
    pub(crate) native_events: Option<raw::NativeEventsTable>,
    pub(crate) telemetry: Option<raw::TelemetryTable>,
}

// SAFETY: constant from its making on; the functions in it may be called from any thread (H18).
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

/// Examines what a plugin's entry returned.
///
/// # Safety
/// What is readable there stays as it is: a plugin's tables are constant.
pub(crate) unsafe fn examine(plugin: *const raw::Plugin) -> Result<Tables, Refusal> {
    if plugin.is_null() {
        return Err(Refusal::Declined { ours: OURS });
    }
    let maps = Maps::now();
    // SAFETY: as this function, here and below.
    unsafe {
        let (plugin, abi) = header(plugin, &maps)?;
        let name = string(plugin.name, 40, &maps).unwrap_or_default();
        let kind = kind::of(plugin.kind, &name)?;
        let version = if plugin.version.is_null() { None } else { string(plugin.version, 256, &maps) };
        let driver = required::<raw::DriverTable>(plugin.driver, &maps)?;
        let device = required::<raw::DeviceTable>(plugin.device, &maps)?;
        let tables = Tables {
            kind,
            version: version.map(|text| text.chars().filter(|char| !char.is_control()).collect()),
            abi,
            flags: plugin.flags,
            pinned: optional(device.pinned, &maps)?,
            peers: optional(device.peers, &maps)?,
            virtual_memory: optional(device.virtual_memory, &maps)?,
            kernels: optional(device.kernels, &maps)?,
            gates: optional(device.gates, &maps)?,
            graphs: optional(device.graphs, &maps)?,
            native_events: optional(device.native_events, &maps)?,
            telemetry: optional(device.telemetry, &maps)?,
            driver,
            device,
        };
        let launches = tables.device.builtin.is_some() || tables.kernels.is_some();
        if launches && tables.device.launch.is_none() {
            let why = "with builtin or kernels";
            return Err(Refusal::NoFunction { table: raw::DeviceTable::NAME, function: "launch", why });
        }
        Ok(tables)
    }
}

/// The plugin's own struct, once its version is one that can be understood.
unsafe fn header(plugin: *const raw::Plugin, maps: &Maps) -> Result<(raw::Plugin, (u32, u32)), Refusal> {
    let table = raw::Plugin::LAYOUT.name;
    if !maps.readable(plugin.addr(), EVERY_MAJOR) || !plugin.is_aligned() {
        return Err(Refusal::Beyond { table, size: EVERY_MAJOR });
    }
    // SAFETY: readable, as just seen; integers, of which any value will do.
    let (size, theirs) = unsafe {
        ((&raw const (*plugin).struct_size).read(), {
            let major = (&raw const (*plugin).abi_major).read();
            (major, (&raw const (*plugin).abi_minor).read())
        })
    };
    if theirs.0 != OURS.0 {
        return Err(Refusal::Version { theirs, ours: OURS });
    }
    // SAFETY: as this function; all zeros are a raw::Plugin.
    let plugin = unsafe { copied::<raw::Plugin>(plugin, size, table, PLUGIN_LEAST, maps)? };
    Ok((plugin, theirs))
}

/// Copies a struct as far as both sides know it; the rest is zero.
///
/// # Safety
/// All zeros are a `T`, and what is readable there stays as it is.
unsafe fn copied<T>(from: *const T, size: u32, table: &'static str, least: usize, maps: &Maps) -> Result<T, Refusal> {
    let bytes = size as usize;
    if bytes < least {
        return Err(Refusal::TooShort { table, size, least });
    }
    if !maps.readable(from.addr(), bytes) {
        return Err(Refusal::Beyond { table, size: bytes });
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: readable, as just seen, and no more than a T is written.
    unsafe {
        let known = bytes.min(size_of::<T>());
        from.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr().cast(), known);
        Ok(copy.assume_init())
    }
}

/// A table that must be there, with its functions found.
///
/// # Safety
/// What is readable there stays as it is.
unsafe fn required<T: Table>(from: *const T, maps: &Maps) -> Result<T, Refusal> {
    if from.is_null() {
        return Err(Refusal::NoTable { table: T::NAME });
    }
    if !maps.readable(from.addr(), size_of::<u32>()) || !from.is_aligned() {
        return Err(Refusal::Beyond { table: T::NAME, size: T::LEAST });
    }
    // SAFETY: readable, as just seen; a table begins with its size.
    let size = unsafe { from.cast::<u32>().read() };
    // SAFETY: all zeros are a table, by its trait; the rest as this function.
    let table = unsafe { copied::<T>(from, size, T::NAME, T::LEAST, maps)? };
    for function in T::FUNCTIONS {
        // SAFETY: the offset is that of a nullable function pointer in the table, by its trait.
        let address = unsafe { (&raw const table).cast::<u8>().add(function.offset).cast::<usize>().read() };
        if address == 0 && function.required {
            return Err(Refusal::NoFunction { table: T::NAME, function: function.name, why: "" });
        }
        if address != 0 && !maps.executable(address) {
            return Err(Refusal::NoCode { table: T::NAME, function: function.name, address });
        }
    }
    Ok(table)
}

/// A table that may be missing.
///
/// # Safety
/// As for [`required`].
unsafe fn optional<T: Table>(from: *const T, maps: &Maps) -> Result<Option<T>, Refusal> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: as this function.
    unsafe { required(from, maps) }.map(Some)
}

/// A terminated text of at most `most` bytes; cut there if it is longer. `None` if it is not readable.
///
/// # Safety
/// What is readable there stays as it is.
unsafe fn string(from: *const c_char, most: usize, maps: &Maps) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < most {
        let at = from.cast::<u8>().wrapping_add(bytes.len());
        if !maps.readable(at.addr(), 1) {
            return None;
        }
        // SAFETY: readable, as just seen.
        match unsafe { at.read() } {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Function;
    use std::ptr;

    /// A table of a later minor: one more function behind those of 1.0.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Later {
        struct_size: u32,
        reserved: u32,
        old: Option<unsafe extern "C" fn()>,
        new: Option<unsafe extern "C" fn()>,
    }

    // SAFETY: repr(C), the size first, nullable functions at their offsets.
    unsafe impl Table for Later {
        const NAME: &'static str = "later";
        const LEAST: usize = 16;
        const FUNCTIONS: &'static [Function] = &[
            Function { name: "old", offset: offset_of!(Later, old), required: true },
            Function { name: "new", offset: offset_of!(Later, new), required: false },
        ];
    }

    unsafe extern "C" fn some() {}

    fn check(table: &Later) -> Result<Later, Refusal> {
        // SAFETY: the table lives and stays as it is.
        unsafe { required::<Later>(ptr::from_ref(table), &Maps::now()) }
    }

    #[test]
    fn what_an_older_minor_has_not_counts_as_null() {
        let older = Later { struct_size: 16, reserved: 0, old: Some(some), new: Some(some) };
        let seen = check(&older).expect("an older minor works");
        assert!(seen.old.is_some() && seen.new.is_none(), "what is beyond its size is not looked at");
        let ours = Later { struct_size: 24, ..older };
        assert!(check(&ours).expect("this minor works").new.is_some());
    }

    #[test]
    fn what_a_newer_minor_has_beyond_is_not_read() {
        #[repr(C)]
        struct Newer(Later, usize);
        let newer = Newer(Later { struct_size: 32, reserved: 0, old: Some(some), new: None }, 7);
        // SAFETY: as in `check`.
        let seen = unsafe { required::<Later>(ptr::from_ref(&newer).cast(), &Maps::now()) };
        assert!(seen.is_ok_and(|table| table.old.is_some()));
        assert_eq!(newer.1, 7);
    }

    #[test]
    fn a_short_table_a_missing_function_and_data_for_code_are_named() {
        let table = Later { struct_size: 12, reserved: 0, old: Some(some), new: None };
        let refused = |table: &Later| check(table).err().expect("refused");
        assert_eq!(refused(&table), Refusal::TooShort { table: "later", size: 12, least: 16 });
        let table = Later { struct_size: 24, reserved: 0, old: None, new: None };
        assert_eq!(refused(&table), Refusal::NoFunction { table: "later", function: "old", why: "" });
        if cfg!(target_os = "linux") {
            let data = Box::new(7_u64);
            let address = ptr::from_ref(&*data).addr();
            // SAFETY: never called, only looked at.
            let old = unsafe { std::mem::transmute::<usize, Option<unsafe extern "C" fn()>>(address) };
            let table = Later { struct_size: 24, reserved: 0, old, new: None };
            assert_eq!(refused(&table), Refusal::NoCode { table: "later", function: "old", address });
            let table = Later { struct_size: u32::MAX, reserved: 0, old: Some(some), new: None };
            assert!(matches!(refused(&table), Refusal::Beyond { table: "later", size: 0xffff_ffff }));
        }
    }
}
