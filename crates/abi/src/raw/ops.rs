//! What calls that enqueue are given, and operations, which graphs are lists of.

use super::{Place, abi_struct, abi_union};
use std::ffi::c_void;
use std::mem::MaybeUninit;

abi_struct! {
    /// One end of a copy.
    End = "anyaccel_end" {
        /// `END_...`.
        kind: u32,
        /// Padding.
        unset: MaybeUninit<u32>,
        /// The rest.
        data: EndData,
    }
}

abi_union! {
    /// What an end is, by its kind.
    EndData {
        /// Where in device or pinned memory.
        place: Place,
        /// Where in host memory.
        host: *mut c_void,
    }
}

abi_struct! {
    /// A function of the host.
    HostFn = "anyaccel_host_fn" {
        /// Calls it with `HOST_...`.
        call: Option<unsafe extern "C" fn(*mut c_void, u32)>,
        /// Drops its data.
        drop: Option<unsafe extern "C" fn(*mut c_void)>,
        /// Its data.
        data: *mut c_void,
    }
}

abi_struct! {
    /// An argument that is device memory.
    ArgPlace = "anyaccel_arg_place" {
        /// Where it begins.
        place: Place,
        /// Bytes.
        len: u64,
    }
}

abi_struct! {
    /// An argument that is a value.
    ArgBytes = "anyaccel_arg_bytes" {
        /// Where it is.
        data: *const c_void,
        /// Bytes.
        len: usize,
    }
}

abi_union! {
    /// What an argument is, by its kind.
    ArgData {
        /// Of `ARG_PLACE`.
        place: ArgPlace,
        /// Of `ARG_BYTES`.
        bytes: ArgBytes,
        /// Bytes of `ARG_LOCAL`.
        local: usize,
    }
}

abi_struct! {
    /// An argument of a kernel.
    Arg = "anyaccel_arg" {
        /// `ARG_...`.
        kind: u32,
        /// Padding.
        unset: MaybeUninit<u32>,
        /// The rest.
        data: ArgData,
    }
}

abi_struct! {
    /// A copy.
    OpCopy = "anyaccel_op_copy" {
        /// Where to.
        dst: End,
        /// Where from.
        src: End,
        /// Bytes.
        len: u64,
    }
}

abi_struct! {
    /// A fill.
    OpFill = "anyaccel_op_fill" {
        /// Where to.
        dst: Place,
        /// Bytes.
        len: u64,
        /// What.
        pattern: [u8; 16],
        /// Bytes of the pattern.
        pattern_len: u32,
        /// 0.
        reserved: u32,
    }
}

abi_struct! {
    /// A write.
    OpWrite = "anyaccel_op_write" {
        /// Where to.
        dst: Place,
        /// What.
        bytes: [u8; 64],
        /// Bytes.
        len: u32,
        /// 0.
        reserved: u32,
    }
}

abi_struct! {
    /// A launch.
    OpLaunch = "anyaccel_op_launch" {
        /// Which kernel.
        kernel: u64,
        /// Its size.
        launch: anyaccel_hal::Launch,
        /// Its arguments.
        args: *const Arg,
        /// How many.
        arg_count: usize,
    }
}

abi_union! {
    /// What an operation carries, by its kind.
    OpData {
        /// Of `OP_COPY`.
        copy: OpCopy,
        /// Of `OP_FILL`.
        fill: OpFill,
        /// Of `OP_WRITE`.
        write: OpWrite,
        /// Of `OP_HOST_CALL`.
        host_call: HostFn,
        /// Of `OP_LAUNCH`.
        launch: OpLaunch,
    }
}

abi_struct! {
    /// What streams carry and graphs are lists of.
    Op = "anyaccel_op" {
        /// `OP_...`.
        kind: u32,
        /// 0.
        reserved: u32,
        /// The rest.
        data: OpData,
    }
}

abi_struct! {
    /// A node of an explicit graph.
    Node = "anyaccel_node" {
        /// What it does.
        op: Op,
        /// Earlier nodes that end before it.
        after: *const u32,
        /// How many.
        after_count: usize,
    }
}
