//! Numbers that nobody can foretell.

use std::time::{SystemTime, UNIX_EPOCH};

/// 64 random bits.
pub(super) fn bits() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: POSIX getentropy writes as many bytes as it is told, at most 256, and the array has them.
    let status = unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) };
    if status == 0 { u64::from_le_bytes(bytes) } else { makeshift() }
}

/// Where the system has no entropy to give (a kernel older than 2014, a sandbox): time, process and address, mixed.
#[cold]
fn makeshift() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let here = 0_u8;
    let parts = [since.as_nanos() as u64, u64::from(std::process::id()), (&raw const here).addr() as u64];
    parts.into_iter().fold(0, |mixed, part| {
        let mixed = (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_use_all_bits_and_differ() {
        let numbers: Vec<u64> = (0..64).map(|_| bits()).collect();
        assert_eq!(numbers.iter().fold(0, |any, bits| any | bits), u64::MAX);
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        assert_ne!(makeshift(), 0);
    }
}
