//! Operations as a stream holds them: addresses instead of handles, inline but for code of the user.
//!
//! Addresses are resolved when an operation is enqueued. H4 keeps device memory until the operation has ended and H5
//! keeps host memory, so they are good at its turn.

use crate::bulk::{self, BULK};
use crate::crew::Crew;
use crate::gate::GateState;
use crate::graph::Replay;
use crate::kernel::UserLaunch;
use crate::stamp::StampCell;
use crate::stream::Stream;
use anyaccel_hal::{DType, HostFn, Written};
use anyaccel_kernels::{convert, fill_pattern, histogram, noop, random};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Up to this effort a host thread that waits does the work itself: some tens of microseconds, like waking and finding
/// another thread for it.
const SMALL: usize = 1 << 20;
/// How much longer than copying a byte it takes to convert or count one, roughly.
const COMPUTED: usize = 4;

/// One operation of a stream.
pub(crate) enum Op {
    Copy {
        dst: *mut u8,
        src: *const u8,
        len: usize,
    },
    Fill {
        dst: *mut u8,
        pattern: fill_pattern::Pattern,
        len: usize,
    },
    Write {
        dst: *mut u8,
        bytes: Written,
    },
    Convert {
        dst: *mut u8,
        to: DType,
        src: *const u8,
        from: DType,
        count: usize,
    },
    Histogram {
        counts: *mut u64,
        src: *const u8,
        len: usize,
    },
    Random(Box<RandomFill>),
    Noop,
    Launch(Box<UserLaunch>),
    Call(HostFn),
    Mark(u64),
    Stamp(Arc<StampCell>),
    Wait {
        of: Arc<Stream>,
        mark: u64,
    },
    Gate(Arc<GateState>),
    /// A replay of a graph.
    Replay(Box<Replay>),
    /// Whatever a model wants to know.
    #[cfg(loom)]
    Probe(Box<dyn FnOnce() + Send>),
}

/// A fill with random numbers, too long to be held inline.
pub(crate) struct RandomFill {
    pub(crate) fill: random::Fill,
    pub(crate) dst: *mut u8,
    /// The generator's state, if the fill reads it.
    pub(crate) cell: *const u8,
}

// SAFETY: the addresses may be used from any thread at the operation's turn by H4 and H5; everything else is Send.
unsafe impl Send for Op {}

/// Which threads may run an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Any, also one that waits for the stream.
    Small,
    /// Workers: it takes long, or is a kernel of the user.
    Work,
    /// Callback threads: it is a function of the user and may block.
    Call,
}

impl Op {
    /// The class.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Call(_) => Class::Call,
            Self::Launch(_) => Class::Work,
            Self::Replay(replay) => replay.class(),
            other if other.effort() > SMALL => Class::Work,
            _ => Class::Small,
        }
    }

    /// The same work once more; `None` for what is no work on memory, or a launch.
    pub(crate) fn again(&self) -> Option<Self> {
        Some(match *self {
            Self::Copy { dst, src, len } => Self::Copy { dst, src, len },
            Self::Fill { dst, pattern, len } => Self::Fill { dst, pattern, len },
            Self::Write { dst, bytes } => Self::Write { dst, bytes },
            Self::Convert { dst, to, src, from, count } => Self::Convert { dst, to, src, from, count },
            Self::Histogram { counts, src, len } => Self::Histogram { counts, src, len },
            Self::Random(ref random) => {
                Self::Random(Box::new(RandomFill { fill: random.fill, dst: random.dst, cell: random.cell }))
            }
            Self::Noop => Self::Noop,
            _ => return None,
        })
    }

    /// About how long it takes, in bytes of a copy.
    pub(crate) fn effort(&self) -> usize {
        match self {
            Self::Copy { len, .. } | Self::Fill { len, .. } => *len,
            Self::Histogram { len, .. } => len.saturating_mul(COMPUTED),
            Self::Convert { count, from, to, .. } => count.saturating_mul(COMPUTED * from.size().max(to.size())),
            Self::Random(random) => (random.fill.destination_len() as usize).saturating_mul(COMPUTED),
            Self::Launch(_) => 64 << 10,
            Self::Replay(replay) => replay.effort(),
            _ => 0,
        }
    }

    /// Does the work of an operation that only touches memory. Large ones are shared with idle workers.
    ///
    /// # Safety
    /// It is the operation's turn, so H4, H5 and H15 allow the accesses.
    pub(crate) unsafe fn work(&self, crew: &Arc<Crew>) {
        match *self {
            Self::Copy { dst, src, len } => {
                if dst.cast_const() == src {
                    return;
                }
                let (dst, src, all) = (Address(dst), Address(src.cast_mut()), len);
                crew.share(len, COPY_CHUNK, &|at, len| {
                    // SAFETY: at + len is within the copy's length, and the ends don't overlap (Device::copy).
                    unsafe {
                        if all < BULK {
                            std::ptr::copy_nonoverlapping(src.at(at), dst.at(at), len);
                        } else {
                            bulk::copy(dst.at(at), src.at(at), len);
                        }
                    }
                });
            }
            Self::Fill { dst, pattern, len } => {
                let (dst, all) = (Address(dst), len);
                crew.share(len, FILL_CHUNK, &|at, len| {
                    // SAFETY: at + len is within the fill's length, and chunks don't overlap. A chunk begins at a
                    // multiple of 16 bytes, where the pattern begins anew.
                    unsafe {
                        if all < BULK {
                            fill_pattern::fill(dst.slice_mut(at, len), pattern);
                        } else {
                            bulk::fill(dst.at(at), len, pattern.bytes());
                        }
                    }
                });
            }
            Self::Write { dst, ref bytes } => {
                let bytes = bytes.bytes();
                // SAFETY: the place holds the bytes (H4).
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
            }
            Self::Convert { dst, to, src, from, count } => {
                let (dst, src) = (Address(dst), Address(src.cast_mut()));
                crew.share(count, CONVERT_CHUNK, &|at, count| {
                    // SAFETY: at + count elements are within both places (H15), which don't overlap.
                    let (dst, src) = unsafe {
                        (
                            dst.slice_mut(at * to.size(), count * to.size()),
                            src.slice(at * from.size(), count * from.size()),
                        )
                    };
                    let converted = convert::convert(to, dst, from, src);
                    debug_assert_eq!(converted, Ok(()), "lengths were made from the count");
                });
            }
            Self::Histogram { counts, src, len } => {
                // SAFETY: 2048 aligned bytes (checked at the launch) that nobody else uses at this turn but atomically.
                let counts = unsafe { &*counts.cast::<[AtomicU64; 256]>() };
                let src = Address(src.cast_mut());
                crew.share(len, HISTOGRAM_CHUNK, &|at, len| {
                    // SAFETY: at + len is within the data's length (H15).
                    histogram::count_shared(unsafe { src.slice(at, len) }, counts);
                });
            }
            Self::Random(ref work) => {
                let RandomFill { fill, dst, cell } = &**work;
                let (dst, cell) = (*dst, *cell);
                let cell_len = fill.cell_len() as usize;
                // SAFETY: the cell is that long (H15), and nobody writes it at this turn.
                let cell = if cell_len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(cell, cell_len) } };
                let (split, size, dst) = (fill.split(), fill.dtype().size(), Address(dst));
                let cell = &cell;
                crew.share(split.chunks() as usize, 1, &|first, count| {
                    for chunk in first..first + count {
                        let range = split.range(chunk as u32);
                        let (at, len) = (range.start as usize * size, (range.end - range.start) as usize * size);
                        // SAFETY: the chunks of a split are apart and inside the destination (H15).
                        let filled = fill.run(range, unsafe { dst.slice_mut(at, len) }, cell);
                        debug_assert_eq!(filled, Ok(()), "lengths were made from the fill");
                    }
                });
            }
            Self::Noop => noop::noop(),
            // SAFETY: it is the launch's turn.
            Self::Launch(ref launch) => unsafe { launch.run(crew) },
            Self::Call(_) | Self::Mark(_) | Self::Stamp(_) | Self::Wait { .. } | Self::Gate(_) | Self::Replay(_) => {}
            #[cfg(loom)]
            Self::Probe(_) => {}
        }
    }
}

/// Chunks large enough that sharing them costs nothing, in bytes or elements.
const COPY_CHUNK: usize = 4 << 20;
const FILL_CHUNK: usize = 4 << 20;
const CONVERT_CHUNK: usize = 256 << 10;
const HISTOGRAM_CHUNK: usize = 512 << 10;

/// Memory that chunks of one operation go through on several threads.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: each chunk touches its own part (or only reads), see the accesses above.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// # Safety
    /// `at` is inside the memory.
    unsafe fn at(self, at: usize) -> *mut u8 {
        // SAFETY: the promise of this function's caller.
        unsafe { self.0.add(at) }
    }

    /// # Safety
    /// The bytes are inside the memory and nobody writes them meanwhile.
    unsafe fn slice<'a>(self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: the promise of this function's caller.
        unsafe { std::slice::from_raw_parts(self.0.add(at), len) }
    }

    /// # Safety
    /// The bytes are inside the memory and nobody else uses them meanwhile.
    unsafe fn slice_mut<'a>(self, at: usize, len: usize) -> &'a mut [u8] {
        // SAFETY: the promise of this function's caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at), len) }
    }
}

const _: () = assert!(size_of::<Op>() <= 80, "operations stay small");
