//! Handles: opaque numbers that a backend gives out. The same numbers cross the C ABI.

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub u64);
    };
}

handle!(
    /// A piece of device memory: what [`Segment::mem`] names. Not an address.
    Mem
);
handle!(
    /// A stream, unique per driver.
    StreamId
);
handle!(
    /// A point in a stream whose time is kept until it is dropped.
    Stamp
);
handle!(
    /// A kernel that can be launched: a built-in or a loaded one.
    Kernel
);
handle!(
    /// A gate that holds up streams until the host opens it.
    Gate
);
handle!(
    /// An executable graph.
    GraphExec
);
handle!(
    /// One capture, from its begin to its end.
    CaptureId
);
handle!(
    /// A backend's own event, which other processes or libraries can name.
    NativeEvent
);
handle!(
    /// A reserved range of device addresses.
    Range
);

/// Backed device memory, as [`Device::alloc`](crate::Device::alloc) returns it (H3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The handle that copies, fills and kernels name.
    pub mem: Mem,
    /// The device address, or a synthetic one on devices without addresses.
    pub addr: u64,
    /// Usable bytes, at least what was asked.
    pub len: u64,
}

/// Where in device memory an operation begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Place {
    /// The memory.
    pub mem: Mem,
    /// Bytes from its start.
    pub offset: u64,
}

impl Place {
    /// The place `bytes` further on.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self { mem: self.mem, offset: self.offset + bytes }
    }
}

/// A point in the order of a stream: everything enqueued before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// A point that can be waited for and asked about; rises per stream (H7).
    At(u64),
    /// A point inside a capture, by its number in that capture. It serves only waits of that capture.
    Captured(u64),
}
