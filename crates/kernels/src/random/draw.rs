//! Where random numbers come from and in which order.

/// Threads of a block in the torch-cuda layout.
pub(super) const BLOCK_THREADS: u64 = 256;

/// Which element takes which words. The [module](super) defines both to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Each element depends on seed, offset and its index alone.
    Portable,
    /// The order of PyTorch's CUDA kernels.
    TorchCuda {
        /// Blocks of the launch, at least 1. PyTorch starts one for each 256 elements, but no more than fit on the device at
        /// once: multiprocessors times (threads of a multiprocessor / 256).
        blocks: u32,
    },
}

impl Layout {
    /// `blocks`, or 0 for the portable layout.
    pub(super) const fn number(self) -> u32 {
        match self {
            Layout::Portable => 0,
            Layout::TorchCuda { blocks } => blocks,
        }
    }

    pub(super) const fn from_number(blocks: u32) -> Layout {
        if blocks == 0 { Layout::Portable } else { Layout::TorchCuda { blocks } }
    }
}

/// Where seed and offset are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Known when the kernel is launched.
    Value {
        /// The seed.
        seed: u64,
        /// The offset, a multiple of 4.
        offset: u64,
    },
    /// In device memory, read when the kernel runs: seed and offset lie in the cell, and `delta` is added to the offset.
    Cell {
        /// What is added to the cell's offset, a multiple of 4.
        delta: u64,
    },
}

/// Source and layout of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Where seed and offset are.
    pub source: Source,
    /// Which element takes which words.
    pub layout: Layout,
}

impl Draw {
    /// In the portable layout, from a known seed and offset.
    pub const fn portable(seed: u64, offset: u64) -> Draw {
        Draw { source: Source::Value { seed, offset }, layout: Layout::Portable }
    }

    /// In the torch-cuda layout, from a known seed and offset.
    pub const fn torch_cuda(seed: u64, offset: u64, blocks: u32) -> Draw {
        Draw { source: Source::Value { seed, offset }, layout: Layout::TorchCuda { blocks } }
    }
}
