//! The definition of the result.

/// Byte `i` of the range becomes byte `i % pattern.len()` of the pattern; an empty pattern writes nothing.
pub fn fill(range: &mut [u8], pattern: &[u8]) {
    for (byte, &value) in range.iter_mut().zip(pattern.iter().cycle()) {
        *byte = value;
    }
}
