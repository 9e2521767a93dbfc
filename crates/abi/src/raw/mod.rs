//! The ABI as `include/anyaccel/plugin.h` has it: the same structs, tables and numbers, under Rust's names.
//!
//! What each means stands in the header, once. The layouts are compared with a C compiler's in `tests/layout.rs`, by the
//! lists that the macros here make along the way.

mod numbers;
mod ops;
mod structs;
mod tables;

pub use numbers::*;
pub use ops::*;
pub use structs::*;
pub use tables::*;

use std::mem::offset_of;

/// A struct of the ABI, for comparison with C.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name in C.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields by their names in C, with their offsets in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// A function of a table.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Where in the table it stands, in bytes.
    pub offset: usize,
    /// Whether a table without it is refused.
    pub required: bool,
}

/// A table of functions of the ABI.
///
/// # Safety
/// The type is `repr(C)`, begins with `struct_size: u32`, all zeros are a value of it, and each of [`Table::FUNCTIONS`] is a
/// nullable function pointer at its offset.
pub unsafe trait Table: Copy + 'static {
    /// Its name in C.
    const NAME: &'static str;
    /// Its size in the first minor version of this major, in bytes: what every plugin's has at least.
    const LEAST: usize;
    /// Its functions.
    const FUNCTIONS: &'static [Function];
}

/// A struct of the ABI and its layout.
macro_rules! abi_struct {
    ($(#[$doc:meta])* $name:ident = $c:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type),*
        }

        impl $name {
            /// As C has it.
            pub const LAYOUT: $crate::raw::Layout = $crate::raw::Layout {
                name: $c,
                size: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!(Self, $field))),*],
            };
        }
    };
}
use abi_struct;

/// A union of the ABI, inside one of its structs: which field counts, a number beside it says.
macro_rules! abi_union {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub union $name {
            $($(#[$field_doc])* pub $field: $type),*
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
use abi_union;

/// A table of the ABI: functions, each `required` or `optional`, and behind them tables of capabilities.
macro_rules! abi_table {
    (
        $(#[$doc:meta])*
        $name:ident = $c:literal, $least:literal bytes in 1.0 {
            $($need:ident fn $field:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
        }
        $({ $($sub:ident: $table:ty),* $(,)? })?
    ) => {
        abi_struct! {
            $(#[$doc])*
            $name = $c {
                #[doc = "Its size in bytes."]
                struct_size: u32,
                #[doc = "0."]
                reserved: u32,
                $(
                    #[doc = concat!("`", stringify!($field), "` of the header.")]
                    $field: Option<unsafe extern "C" fn($($arg: $type),*) $(-> $result)?>,
                )*
                $($(
                    #[doc = concat!("`", stringify!($sub), "` of the header.")]
                    $sub: *const $table,
                )*)?
            }
        }

        // SAFETY: repr(C) by abi_struct, with struct_size first; integers, nullable function pointers and raw pointers
        // may all be zero; the offsets are the fields' own.
        unsafe impl $crate::raw::Table for $name {
            const NAME: &'static str = $c;
            const LEAST: usize = $least;
            const FUNCTIONS: &'static [$crate::raw::Function] = &[
                $($crate::raw::Function {
                    name: stringify!($field),
                    offset: std::mem::offset_of!($name, $field),
                    required: abi_table!(@need $need),
                }),*
            ];
        }
    };
    (@need required) => { true };
    (@need optional) => { false };
}
use abi_table;

/// Every struct of the ABI.
pub const LAYOUTS: &[Layout] = &[
    ConstText::LAYOUT,
    Text::LAYOUT,
    Fault::LAYOUT,
    Probe::LAYOUT,
    Check::LAYOUT,
    DeviceInfo::LAYOUT,
    Segment::LAYOUT,
    Place::LAYOUT,
    Mark::LAYOUT,
    End::LAYOUT,
    HostFn::LAYOUT,
    LAUNCH,
    ArgPlace::LAYOUT,
    ArgBytes::LAYOUT,
    Arg::LAYOUT,
    PinnedLimits::LAYOUT,
    PeersLimits::LAYOUT,
    VirtualMemoryLimits::LAYOUT,
    KernelsLimits::LAYOUT,
    WORK_GROUP,
    KERNEL_ARG,
    HostKernel::LAYOUT,
    GatesLimits::LAYOUT,
    OpCopy::LAYOUT,
    OpFill::LAYOUT,
    OpWrite::LAYOUT,
    OpLaunch::LAYOUT,
    Op::LAYOUT,
    Node::LAYOUT,
    GraphsLimits::LAYOUT,
    NativeEventsLimits::LAYOUT,
    TelemetryLimits::LAYOUT,
    MemoryInfo::LAYOUT,
    DriverTable::LAYOUT,
    PinnedTable::LAYOUT,
    PeersTable::LAYOUT,
    VirtualMemoryTable::LAYOUT,
    KernelsTable::LAYOUT,
    GatesTable::LAYOUT,
    GraphsTable::LAYOUT,
    NativeEventsTable::LAYOUT,
    TelemetryTable::LAYOUT,
    DeviceTable::LAYOUT,
    Plugin::LAYOUT,
    Host::LAYOUT,
];

/// What launches and host kernels are called with is hal's own.
const WORK_GROUP: Layout = Layout {
    name: "anyaccel_work_group",
    size: size_of::<anyaccel_hal::WorkGroup>(),
    fields: &[
        ("index", offset_of!(anyaccel_hal::WorkGroup, index)),
        ("groups", offset_of!(anyaccel_hal::WorkGroup, groups)),
        ("threads", offset_of!(anyaccel_hal::WorkGroup, threads)),
        ("shared", offset_of!(anyaccel_hal::WorkGroup, shared)),
    ],
};

const LAUNCH: Layout = Layout {
    name: "anyaccel_launch",
    size: size_of::<anyaccel_hal::Launch>(),
    fields: &[
        ("groups", offset_of!(anyaccel_hal::Launch, groups)),
        ("threads", offset_of!(anyaccel_hal::Launch, threads)),
        ("shared", offset_of!(anyaccel_hal::Launch, shared)),
    ],
};

const KERNEL_ARG: Layout = Layout {
    name: "anyaccel_kernel_arg",
    size: size_of::<anyaccel_hal::KernelArg>(),
    fields: &[("pointer", offset_of!(anyaccel_hal::KernelArg, ptr)), ("len", offset_of!(anyaccel_hal::KernelArg, len))],
};
