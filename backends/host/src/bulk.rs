//! Copies and fills that are larger than the caches: their destination is written past them.
//!
//! An ordinary store first reads the line that it writes into the cache. Past the caches that read is a third of a copy's
//! traffic and half of a fill's, and nothing gains by it, since the line is evicted before anybody uses it. Four pages
//! are copied side by side, which keeps more of the memory's banks busy than one run does.

/// From this size on caches are bypassed: several times what the caches of one core hold.
pub(crate) const BULK: usize = 16 << 20;

/// Copies bytes past the caches.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm_sfence};
    const PAGE: usize = 4096;
    const PAGES: usize = 4;
    let head = dst.align_offset(LINE).min(len);
    let blocks = (len - head) / (PAGES * PAGE);
    // SAFETY: head + blocks + tail are the caller's bytes, in order; a line is written at a multiple of its size.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        for block in 0..blocks {
            let at = head + block * PAGES * PAGE;
            for line in (0..PAGE).step_by(2 * LINE) {
                for page in 0..PAGES {
                    let at = at + page * PAGE + line;
                    let ahead = src.wrapping_add(at + PAGES * PAGE);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(LINE).cast());
                    copy_line(dst.add(at), src.add(at));
                    copy_line(dst.add(at + LINE), src.add(at + LINE));
                }
            }
        }
        let done = head + blocks * PAGES * PAGE;
        std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), len - done);
        // Streaming stores are ordered by nothing else: without it a mark could end before them (H7).
        _mm_sfence();
    }
}

/// Fills bytes past the caches with a pattern of 16 bytes.
///
/// # Safety
/// The bytes may be written.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn fill(dst: *mut u8, len: usize, pattern: &[u8; 16]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let head = dst.align_offset(LINE).min(len);
    let lines = (len - head) / LINE;
    let mut turned = *pattern;
    turned.rotate_left(head % 16);
    // SAFETY: head + lines + tail are the caller's bytes, in order; vectors are written at multiples of their size.
    unsafe {
        repeat(dst, head, pattern);
        let vector = _mm_loadu_si128(turned.as_ptr().cast());
        for line in 0..lines {
            let at = dst.add(head + line * LINE);
            for quarter in 0..4 {
                _mm_stream_si128(at.add(16 * quarter).cast(), vector);
            }
        }
        let done = head + lines * LINE;
        repeat(dst.add(done), len - done, &turned);
        // As in `copy`.
        _mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// # Safety
/// A line may be read at `src` and written at `dst`, a multiple of a line.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    // SAFETY: the promise of this function's caller.
    unsafe {
        let vectors: [_; 4] = std::array::from_fn(|quarter| _mm_loadu_si128(src.add(16 * quarter).cast()));
        for (quarter, vector) in vectors.into_iter().enumerate() {
            _mm_stream_si128(dst.add(16 * quarter).cast(), vector);
        }
    }
}

/// # Safety
/// The bytes may be written; they are fewer than a line.
#[cfg(target_arch = "x86_64")]
unsafe fn repeat(dst: *mut u8, len: usize, pattern: &[u8; 16]) {
    for at in 0..len {
        // SAFETY: the promise of this function's caller.
        unsafe { dst.add(at).write(pattern[at % 16]) };
    }
}

/// Copies bytes.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the promise of this function's caller.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
}

/// Fills bytes with a pattern of 16 bytes.
///
/// # Safety
/// The bytes may be written.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn fill(dst: *mut u8, len: usize, pattern: &[u8; 16]) {
    use anyaccel_kernels::fill_pattern;
    if let Ok(pattern) = fill_pattern::Pattern::new(pattern) {
        // SAFETY: the promise of this function's caller.
        fill_pattern::fill(unsafe { std::slice::from_raw_parts_mut(dst, len) }, pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 12] = [0, 1, 15, 63, 64, 65, 4095, 16_383, 16_384, 16_385, 16_447, 100_003];

    #[test]
    fn copies_have_every_byte_and_no_other() {
        let source: Vec<u8> = (0..100_200).map(|at: u32| (at * 31 % 253) as u8).collect();
        for len in LENGTHS {
            for (to, from) in [(0, 0), (1, 0), (0, 7), (17, 63), (63, 64)] {
                let mut target = vec![0xee_u8; to + len + 70];
                // SAFETY: both are longer than that.
                unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                assert!(target[to..to + len] == source[from..from + len], "{len} bytes to {to} from {from}");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|&byte| byte == 0xee));
            }
        }
    }

    #[test]
    fn fills_begin_with_the_pattern_wherever_they_begin() {
        let pattern: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        for len in LENGTHS {
            for to in [0, 1, 8, 17, 63] {
                let mut target = vec![0xee_u8; to + len + 70];
                // SAFETY: it is longer than that.
                unsafe { fill(target.as_mut_ptr().add(to), len, &pattern) };
                let mut want = (0..len).map(|at| pattern[at % 16]);
                assert!(target[to..to + len].iter().all(|&byte| Some(byte) == want.next()), "{len} bytes at {to}");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|&byte| byte == 0xee));
            }
        }
    }
}
