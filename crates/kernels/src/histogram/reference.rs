//! The definition of the result.

/// Adds to `counts[v]` the number of bytes with the value `v`.
pub fn count(data: &[u8], counts: &mut [u64; 256]) {
    for &byte in data {
        counts[usize::from(byte)] = counts[usize::from(byte)].wrapping_add(1);
    }
}
