//! Counts how often each byte value occurs.
//!
//! - Number: [`Builtin::Histogram`], 4.
//! - Arguments: the counts, the data, then [`Params`]. The counts are 256 x u64 (2048 bytes, little endian), aligned to 8
//!   bytes. The kernel adds to them and never clears them, so several launches accumulate; they wrap at 2^64.
//! - Split: chunks of [`CHUNK`] bytes. All of them add into the same counts: each counts in private and adds its result
//!   atomically at its end. Sums commute, so the result does not depend on order.

pub mod reference;

use crate::{Builtin, KernelError, Split};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes in a chunk: large enough that the 256 atomic additions at its end do not count.
pub const CHUNK: u64 = 1 << 19;

/// Tables counted in turn. Adjacent bytes of data go to different tables, so that equal ones do not wait for each other's
/// increment to come back from the store buffer.
const TABLES: usize = 8;

/// Bytes tested at once for being all the same.
const RUN: usize = 128;

/// Bytes counted before the 32-bit tables are added up.
const FLUSH: usize = 1 << 31;

// No counter may overflow before it is added up, even if all bytes are equal and go to one table.
const _: () = assert!(FLUSH as u64 <= u32::MAX as u64);

/// The parameters: 8 bytes, alignment 8.
///
/// | bytes | content |
/// |---|---|
/// | 0..8 | length of the data in bytes, u64 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// Length of the data in bytes.
    pub len: u64,
}

const _: () = assert!(size_of::<Params>() == 8 && align_of::<Params>() == 8);

impl Params {
    /// The parameters of a count over `len` bytes.
    pub const fn new(len: u64) -> Params {
        Params { len }
    }

    /// The bytes as they are passed to the kernel.
    pub fn to_bytes(&self) -> [u8; 8] {
        self.len.to_le_bytes()
    }

    /// Reads what [`to_bytes`](Params::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Params, KernelError> {
        let wrong_size = KernelError::ParamsSize { kernel: Builtin::Histogram, given: bytes.len() };
        let bytes = bytes.try_into().map_err(|_| wrong_size)?;
        Ok(Params { len: u64::from_le_bytes(bytes) })
    }
}

/// The chunks of `len` bytes of data.
pub const fn split(len: u64) -> Split {
    Split::new(len, CHUNK)
}

/// Adds to `counts[v]` the number of bytes with the value `v`. Counts of parts of the data add up to those of the whole.
pub fn count(data: &[u8], counts: &mut [u64; 256]) {
    count_in_parts(data, FLUSH, counts);
}

fn count_in_parts(data: &[u8], part: usize, counts: &mut [u64; 256]) {
    for part in data.chunks(part) {
        count_part(part, counts);
    }
}

/// [`count`] into counters that other threads add to at the same time: counts in private, then [`merge`]s.
pub fn count_shared(data: &[u8], counts: &[AtomicU64; 256]) {
    let mut partial = [0; 256];
    count(data, &mut partial);
    merge(&partial, counts);
}

/// Adds a partial result to counters that other threads add to at the same time. The additions are relaxed: whoever reads
/// the total has to be ordered after all of them by other means, such as the end of the launch.
pub fn merge(partial: &[u64; 256], counts: &[AtomicU64; 256]) {
    for (total, &n) in counts.iter().zip(partial) {
        if n != 0 {
            total.fetch_add(n, Relaxed);
        }
    }
}

/// At most [`FLUSH`] bytes.
///
/// One increment of a byte costs one store, and a core completes about one a cycle; nothing below saves stores except the
/// test for runs, which costs random data nothing measurable and takes a block of zeros at the speed of memory.
fn count_part(data: &[u8], counts: &mut [u64; 256]) {
    let mut tables = [[0_u32; 256]; TABLES];
    let (blocks, tail) = data.as_chunks::<RUN>();
    for block in blocks {
        let words = block.as_chunks::<TABLES>().0;
        let first = u64::from_le_bytes(words[0]);
        let uniform = first == first.rotate_left(8);
        if uniform && words.iter().all(|&word| u64::from_le_bytes(word) == first) {
            tables[0][usize::from(block[0])] += RUN as u32;
            continue;
        }
        for word in words {
            for (table, &byte) in tables.iter_mut().zip(word) {
                table[usize::from(byte)] += 1;
            }
        }
    }
    for &byte in tail {
        tables[0][usize::from(byte)] += 1;
    }
    for (value, count) in counts.iter_mut().enumerate() {
        let sum: u64 = tables.iter().map(|table| u64::from(table[value])).sum();
        *count = count.wrapping_add(sum);
    }
}

#[cfg(test)]
mod tests;
