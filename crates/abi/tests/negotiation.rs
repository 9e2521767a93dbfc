//! Negotiation with tables that are bent in any way: what is missing is named, and nothing crashes.
//!
//! The tables are the exported host device's, so that whatever is accepted can be called. Only where the system tells what
//! memory a process has: elsewhere pointers that lead nowhere are believed.
#![cfg(target_os = "linux")]

use anyaccel_abi::raw::{self, DeviceTable, DriverTable, Function, Table};
use anyaccel_abi::{LoadError, Plugin, Refusal};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::c_char;

/// The exported host device's tables, to be bent.
struct Bent {
    plugin: raw::Plugin,
    driver: DriverTable,
    device: DeviceTable,
}

anyaccel_abi::export!(anyaccel_host::driver);

fn bent() -> Box<Bent> {
    // SAFETY: the entry exported above, which takes any host; what it returns is constant.
    let mut bent = unsafe {
        let plugin = *anyaccel_plugin_entry(std::ptr::null());
        Box::new(Bent { plugin, driver: *plugin.driver, device: *plugin.device })
    };
    bent.plugin.driver = &raw const bent.driver;
    bent.plugin.device = &raw const bent.device;
    bent
}

/// Sets the word at an offset of a table to 0.
fn without<T: Table>(table: &mut T, offset: usize) {
    // SAFETY: the offset is that of a nullable function pointer in the table, by its trait.
    unsafe { (&raw mut *table).cast::<u8>().add(offset).cast::<usize>().write(0) };
}

#[test]
fn each_required_function_is_missed_by_its_name_and_no_optional_one_is() {
    fn each<T: Table>(table: impl Fn(&mut Bent) -> &mut T) {
        for function in T::FUNCTIONS {
            // Leaked, since a plugin's tables are constant for good.
            let bent = Box::leak(bent());
            without(table(bent), function.offset);
            let launches = function.name == "launch";
            // SAFETY: the tables are the exported ones, but for one function that is null.
            match unsafe { Plugin::linked(&raw const bent.plugin) } {
                Ok(_) => assert!(!function.required && !launches, "{}", function.name),
                Err(LoadError { reason: Refusal::NoFunction { table, function: missed, .. }, .. }) => {
                    assert_eq!((table, missed), (T::NAME, function.name));
                    assert!(function.required || launches);
                }
                Err(other) => panic!("{}: {other}", function.name),
            }
        }
    }
    each(|bent| &mut bent.driver);
    each(|bent| &mut bent.device);
}

/// What is done to a function of a table.
#[derive(Clone, Copy, Debug)]
enum Bend {
    Null,
    Data,
    Odd(usize),
}

/// How a set of tables is bent.
#[derive(Clone, Debug)]
struct Plan {
    plugin_size: u32,
    driver_size: u32,
    device_size: u32,
    version: (u32, u32),
    kind: u32,
    name: Vec<u8>,
    flags: u32,
    no_table: Option<bool>,
    bends: Vec<(u8, Bend)>,
    sub_tables: u8,
    far: bool,
}

fn sizes(right: usize) -> impl Strategy<Value = u32> {
    let right = right as u32;
    prop_oneof![8 => Just(right), 1 => 0..=right + 64, 1 => any::<u32>()]
}

fn plans() -> impl Strategy<Value = Plan> {
    let bend = prop_oneof![3 => Just(Bend::Null), 1 => Just(Bend::Data), 1 => any::<usize>().prop_map(Bend::Odd)];
    let names = prop_oneof![4 => Just(b"npu\0".to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..80)];
    let versions = prop_oneof![6 => (Just(1), any::<u32>()), 1 => any::<(u32, u32)>()];
    let kinds = prop_oneof![4 => Just(raw::KIND_PRIVATE), 1 => any::<u32>()];
    let size = (sizes(size_of::<raw::Plugin>()), sizes(size_of::<DriverTable>()), sizes(size_of::<DeviceTable>()));
    let bends = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec((any::<u8>(), bend), 0..4)];
    let no_table = prop_oneof![9 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (size, versions, kinds, names, any::<u32>(), no_table, bends, any::<u8>(), prop::bool::weighted(0.02)).prop_map(
        |(size, version, kind, name, flags, no_table, bends, sub_tables, far)| Plan {
            plugin_size: size.0,
            driver_size: size.1,
            device_size: size.2,
            version,
            kind,
            name,
            flags,
            no_table,
            bends,
            sub_tables,
            far,
        },
    )
}

/// Where a function of the tables stands, and the functions of both in one row.
fn function(bent: &mut Bent, at: usize) -> (*mut usize, Function) {
    let (driver, device) = (DriverTable::FUNCTIONS, DeviceTable::FUNCTIONS);
    let (table, function) = match at.checked_sub(driver.len()) {
        None => ((&raw mut bent.driver).cast::<u8>(), driver[at]),
        Some(at) => ((&raw mut bent.device).cast::<u8>(), device[at]),
    };
    (table.wrapping_add(function.offset).cast(), function)
}

/// The bent tables, leaked, since a plugin's are constant for good; and whether a function is null that must not be, or is
/// no code.
fn bend(plan: &Plan) -> (&'static Bent, bool, bool) {
    let bent = Box::leak(bent());
    let (mut missing, mut strange) = (false, false);
    // The last one counts where a function is bent twice.
    let functions = DriverTable::FUNCTIONS.len() + DeviceTable::FUNCTIONS.len();
    let bends: BTreeMap<usize, Bend> =
        plan.bends.iter().map(|&(number, bend)| (usize::from(number) % functions, bend)).collect();
    for (at, bend) in bends {
        let (at, function) = function(bent, at);
        let value = match bend {
            Bend::Null => 0,
            Bend::Data => Box::leak(Box::new(7_u64)) as *const u64 as usize,
            // Beyond what a process can have, so that it is surely no code.
            Bend::Odd(bits) => bits | 1 << (usize::BITS - 1),
        };
        // SAFETY: the place of a function in a table that is nobody else's.
        unsafe { at.write(value) };
        missing |= value == 0 && function.required;
        strange |= value != 0;
    }
    let mut bit = 0;
    let mut sub = |keep: &mut dyn FnMut()| {
        if plan.sub_tables >> bit & 1 != 0 {
            keep();
        }
        bit += 1;
    };
    let device = &mut bent.device;
    sub(&mut || device.pinned = std::ptr::null());
    sub(&mut || device.peers = std::ptr::null());
    sub(&mut || device.virtual_memory = std::ptr::null());
    sub(&mut || device.kernels = std::ptr::null());
    sub(&mut || device.gates = std::ptr::null());
    sub(&mut || device.graphs = std::ptr::null());
    sub(&mut || device.native_events = std::ptr::null());
    sub(&mut || device.telemetry = std::ptr::null());
    missing |= device.launch.is_none() && (device.builtin.is_some() || !device.kernels.is_null());
    bent.driver.struct_size = plan.driver_size;
    bent.device.struct_size = plan.device_size;
    let mut name = plan.name.clone();
    name.push(0);
    let plugin = &mut bent.plugin;
    plugin.struct_size = plan.plugin_size;
    (plugin.abi_major, plugin.abi_minor) = plan.version;
    plugin.kind = plan.kind;
    plugin.name = Box::leak(name.into_boxed_slice()).as_ptr().cast::<c_char>();
    plugin.flags = plan.flags;
    match plan.no_table {
        Some(true) => plugin.driver = std::ptr::null(),
        Some(false) => plugin.device = std::ptr::null(),
        None if plan.far => plugin.device = std::ptr::without_provenance(0xdead_0000),
        None => {}
    }
    (bent, missing, strange)
}

proptest! {
    #[test]
    fn bent_tables_are_refused_by_name_or_work(plan in plans()) {
        let (bent, missing, strange) = bend(&plan);
        // SAFETY: what pointers lead nowhere is noticed where the system tells, and what is code is the exported device's
        // own under its type.
        let accepted = unsafe { Plugin::linked(&raw const bent.plugin) };
        match accepted {
            Err(LoadError { reason, .. }) => {
                let text = reason.to_string();
                prop_assert!(text.lines().count() == 1 && !text.is_empty(), "{text:?}");
            }
            Ok(plugin) => {
                prop_assert!(!missing && !strange && plan.version.0 == 1 && plan.no_table.is_none(), "{plan:?}");
                let driver = plugin.driver();
                prop_assert!(driver.probe().visible > 0 && driver.start().is_ok_and(|count| count > 0));
                let device = driver.open(0).expect("the exported device opens");
                let segment = device.alloc(4096).expect("memory");
                // SAFETY: H1, H4: taken just now, and no work names it.
                prop_assert_eq!(unsafe { device.free(segment.mem) }, Ok(()));
                prop_assert!(!driver.checks().is_empty());
            }
        }
    }
}
