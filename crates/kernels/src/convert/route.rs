//! From any type to any other by at most three loops.
//!
//! The stops in between are what the rules of conversion demand anyway: types narrower than `float32` are entered and left
//! by way of it, and complex types by way of their parts. Which loops a pair takes is decided at compile time, so that a
//! missing one is a build error. Between loops the elements pass through a tile that stays in the first-level cache.

use super::loops::{self, Loop};
use crate::cpu::Isa;
use anyaccel_hal::DType;

/// Elements in a tile.
const TILE: usize = 512;

/// The widest element that is ever a stop between two loops: `float64` and `int64`.
const STOP_SIZE: usize = 8;

/// The most loops that a pair takes.
const MOST: usize = 3;

const TYPES: usize = DType::ALL.len();

/// The loops of one pair and the sizes of the elements at their ends. Between complex types the elements are the parts.
#[derive(Clone, Copy)]
struct Route {
    loops: [Option<Loop>; MOST],
    /// Bytes of an element before loop `i`; after the last loop, of the destination.
    sizes: [usize; MOST + 1],
}

type Table = [[Route; TYPES]; TYPES];

static PORTABLE: Table = table(Isa::Portable);
#[cfg(target_arch = "x86_64")]
static AVX2: Table = table(Isa::Avx2);
#[cfg(target_arch = "x86_64")]
static AVX512: Table = table(Isa::Avx512);

const fn table(isa: Isa) -> Table {
    let none = Route { loops: [None; MOST], sizes: [0; MOST + 1] };
    let mut table = [[none; TYPES]; TYPES];
    let mut src = 0;
    while src < TYPES {
        let mut dst = 0;
        while dst < TYPES {
            if src != dst {
                table[src][dst] = route(isa, DType::ALL[src], DType::ALL[dst]);
            }
            dst += 1;
        }
        src += 1;
    }
    table
}

/// Index of a type in the tables, by its number.
const INDEX: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < TYPES {
        index[DType::ALL[i].number() as usize] = i as u8;
        i += 1;
    }
    index
};

const fn route(isa: Isa, src: DType, dst: DType) -> Route {
    let (mut src, dst) = match (src.component(), dst.component()) {
        (Some(src), Some(dst)) => (src, dst),
        _ => (src, dst),
    };
    let mut route = Route { loops: [None; MOST], sizes: [dst.size(); MOST + 1] };
    let mut i = 0;
    while src.number() != dst.number() {
        let next = next_stop(isa, src, dst);
        assert!(next.size() <= STOP_SIZE || next.number() == dst.number());
        route.loops[i] = loops::find(isa, src, next);
        assert!(route.loops[i].is_some());
        route.sizes[i] = src.size();
        src = next;
        i += 1;
    }
    route
}

const fn next_stop(isa: Isa, src: DType, dst: DType) -> DType {
    if loops::find(isa, src, dst).is_some() {
        return dst;
    }
    match (src.component(), dst.component()) {
        (Some(part), _) => part,
        (None, Some(part)) => next_stop(isa, src, part),
        (None, None) => DType::F32,
    }
}

/// Converts all elements. The caller has checked that the lengths fit together.
pub(super) fn run(isa: Isa, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    if src_dtype == dst_dtype {
        let len = dst.len().min(src.len());
        dst[..len].copy_from_slice(&src[..len]);
        return;
    }
    let table = match isa {
        Isa::Portable => &PORTABLE,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512,
    };
    let index = |dtype: DType| usize::from(INDEX[usize::from(dtype.number())]);
    table[index(src_dtype)][index(dst_dtype)].run(dst, src);
}

/// Bytes that elements rest in between two loops.
#[repr(align(64))]
struct Tile([u8; TILE * STOP_SIZE]);

impl Route {
    fn run(&self, dst: &mut [u8], src: &[u8]) {
        // SAFETY: K1, `run` took this route from the table of a level that the CPU has.
        let step = |step: Loop, src: &[u8], dst: &mut [u8]| unsafe { step(src, dst) };
        let (first, second, third) = match self.loops {
            // Parts of one complex type are those of another only if the types are equal, which `run` has handled.
            [None, ..] => return,
            [Some(only), None, _] => return step(only, src, dst),
            [Some(first), Some(second), third] => (first, second, third),
        };
        let last_size = if third.is_some() { self.sizes[3] } else { self.sizes[2] };
        let mut a = Tile([0; TILE * STOP_SIZE]);
        let mut b = Tile([0; TILE * STOP_SIZE]);
        let pieces = src.chunks(TILE * self.sizes[0]).zip(dst.chunks_mut(TILE * last_size));
        for (src, dst) in pieces {
            let count = src.len() / self.sizes[0];
            let a = &mut a.0[..count * self.sizes[1]];
            step(first, src, a);
            match third {
                None => step(second, a, dst),
                Some(third) => {
                    let b = &mut b.0[..count * self.sizes[2]];
                    step(second, a, b);
                    step(third, b, dst);
                }
            }
        }
    }
}
