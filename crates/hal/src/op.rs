//! Operations: what streams carry and graphs are lists of.

use crate::handle::{Kernel, Place};
use crate::host_fn::HostFn;

/// A pointer to host memory that crosses threads with an operation. Who may touch what it points to is rule H5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct HostPtr(pub *mut u8);

// SAFETY: H5 puts the duty on the caller: the memory is valid and left alone until a later mark, whichever thread the
// backend uses for the access.
unsafe impl Send for HostPtr {}
// SAFETY: a shared HostPtr only lets its value be copied; accesses are ruled by H5 as above.
unsafe impl Sync for HostPtr {}

/// One end of a copy. In memory it is what crosses the C ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, u32)]
pub enum End {
    /// Device memory.
    Device(Place) = 1,
    /// Host memory of [`Pinned`](crate::Pinned), by its handle.
    Pinned(Place) = 2,
    /// Any host memory (H5). Only where [`DeviceInfo::host_ends`](crate::DeviceInfo::host_ends) is true.
    Host(HostPtr) = 3,
}

/// What [`Device::fill`](crate::Device::fill) repeats: 1, 2, 4, 8 or 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    bytes: [u8; 16],
    len: u8,
}

impl Pattern {
    /// The pattern made of `bytes`; `None` unless there are 1, 2, 4, 8 or 16 of them.
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        // By value, not by a copy of a length that the compiler can't know: this is on the way of every small fill.
        let kept = match *bytes {
            [a] => u128::from(a),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            _ => match (<[u8; 8]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok(eight), _) => u64::from_le_bytes(eight).into(),
                (_, Ok(sixteen)) => u128::from_le_bytes(sixteen),
                _ => return None,
            },
        };
        Some(Self { bytes: kept.to_le_bytes(), len: bytes.len() as u8 })
    }

    /// One repeated byte.
    pub const fn byte(value: u8) -> Self {
        let mut bytes = [0; 16];
        bytes[0] = value;
        Self { bytes, len: 1 }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The shortest pattern that fills the same.
    #[must_use]
    pub fn reduced(self) -> Self {
        let mut len = usize::from(self.len);
        while len > 1 && self.bytes[..len / 2] == self.bytes[len / 2..len] {
            len /= 2;
        }
        let mut kept = [0; 16];
        kept[..len].copy_from_slice(&self.bytes[..len]);
        Self { bytes: kept, len: len as u8 }
    }
}

/// Up to 64 bytes held inline: what [`Device::write`](crate::Device::write) stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Written {
    /// The most bytes that one write carries.
    pub const MAX: usize = 64;

    /// Holds `bytes`; `None` if there are more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::MAX {
            return None;
        }
        let mut kept = [0; Self::MAX];
        kept[..bytes.len()].copy_from_slice(bytes);
        Some(Self { bytes: kept, len: bytes.len() as u8 })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The size of a launch.
///
/// As it crosses the C ABI. The alignment makes it 32 bytes, which are copied in two halves; 28 would be copied in two
/// parts that overlap, and reading those back at once costs several nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub struct Launch {
    /// Groups along x, y, z (CUDA: grid). None is 0.
    pub groups: [u32; 3],
    /// Threads of a group along x, y, z (CUDA: block). None is 0.
    pub threads: [u32; 3],
    /// Dynamic group-local memory in bytes, beside [`Arg::Local`]. 0 unless the kernel is PTX, CUBIN or a host function.
    pub shared: u32,
}

impl Launch {
    /// A one-dimensional launch.
    pub const fn linear(groups: u32, threads: u32) -> Self {
        Self { groups: [groups, 1, 1], threads: [threads, 1, 1], shared: 0 }
    }
}

/// An argument of a kernel. In memory it is what crosses the C ABI, so that a list of them is passed as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, u32)]
pub enum Arg<'a> {
    /// Device memory: `len` bytes from a place on. `place.offset` is a multiple of
    /// [`DeviceInfo::place_alignment`](crate::DeviceInfo::place_alignment).
    Place {
        /// Where it begins.
        place: Place,
        /// How much of it the kernel may touch, in bytes.
        len: u64,
    } = 1,
    /// A value.
    Bytes(&'a [u8]) = 2,
    /// Group-local memory of that many bytes (OpenCL's `__local` arguments). Not for PTX and CUBIN.
    Local(usize) = 3,
}

/// An [`Arg`] that owns its bytes, for lists that outlive the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedArg {
    /// Device memory: `len` bytes from a place on.
    Place {
        /// Where it begins.
        place: Place,
        /// How much of it the kernel may touch, in bytes.
        len: u64,
    },
    /// A value.
    Bytes(Box<[u8]>),
    /// Group-local memory of that many bytes.
    Local(usize),
}

impl OwnedArg {
    /// The argument as a launch takes it.
    pub fn as_arg(&self) -> Arg<'_> {
        match self {
            &Self::Place { place, len } => Arg::Place { place, len },
            Self::Bytes(bytes) => Arg::Bytes(bytes),
            Self::Local(len) => Arg::Local(*len),
        }
    }
}

impl From<Arg<'_>> for OwnedArg {
    fn from(arg: Arg<'_>) -> Self {
        match arg {
            Arg::Place { place, len } => Self::Place { place, len },
            Arg::Bytes(bytes) => Self::Bytes(bytes.into()),
            Arg::Local(len) => Self::Local(len),
        }
    }
}

/// Forms in which a kernel's code can come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Format {
    /// NVIDIA's virtual assembly.
    Ptx = 1,
    /// NVIDIA's binaries.
    Cubin = 2,
    /// Khronos' intermediate language, OpenCL flavour.
    SpirV = 3,
    /// OpenCL C source.
    OpenClC = 4,
    /// Metal source.
    Msl = 5,
    /// A function of this process.
    HostFn = 6,
    /// CUDA C++ source, whose functions are declared `extern "C"`.
    CudaC = 7,
}

/// One operation, owned: what a recorded list is made of.
#[derive(Debug)]
pub enum Op {
    /// `len` bytes from `src` to `dst`.
    Copy {
        /// Where to.
        dst: End,
        /// Where from.
        src: End,
        /// Bytes.
        len: u64,
    },
    /// `len` bytes of a pattern.
    Fill {
        /// Where to.
        dst: Place,
        /// What.
        pattern: Pattern,
        /// Bytes.
        len: u64,
    },
    /// A few bytes that travel with the operation.
    Write {
        /// Where to.
        dst: Place,
        /// What.
        bytes: Written,
    },
    /// A function of the host.
    HostCall(HostFn),
    /// A kernel.
    Launch {
        /// Which.
        kernel: Kernel,
        /// Its size.
        launch: Launch,
        /// Its arguments.
        args: Box<[OwnedArg]>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_reduce_to_their_period() {
        let pattern = |bytes: &[u8]| Pattern::new(bytes).map(Pattern::reduced);
        assert_eq!(pattern(&[7; 16]), Some(Pattern::byte(7)));
        assert_eq!(pattern(&[1, 2, 1, 2]).as_ref().map(Pattern::bytes), Some(&[1, 2][..]));
        assert_eq!(pattern(&[1, 2, 3, 4]).as_ref().map(Pattern::bytes), Some(&[1, 2, 3, 4][..]));
        assert_eq!(pattern(&[1, 2, 3]), None);
        assert_eq!(pattern(&[]), None);
    }

    #[test]
    fn writes_hold_at_most_64_bytes() {
        assert_eq!(Written::new(&[9; 64]).as_ref().map(Written::bytes), Some(&[9; 64][..]));
        assert_eq!(Written::new(&[9; 65]), None);
    }
}
