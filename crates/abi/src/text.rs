//! Text across the ABI: buffers of the caller, and names that hal wants to be static.

use crate::raw;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A buffer that a plugin writes text into.
pub(crate) struct Buffer<const N: usize>([MaybeUninit<u8>; N]);

impl<const N: usize> Buffer<N> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self([MaybeUninit::uninit(); N])
    }

    /// The buffer as the plugin gets it.
    #[inline]
    pub(crate) fn text(&mut self) -> raw::Text {
        raw::Text { data: self.0.as_mut_ptr().cast(), capacity: N, length: 0 }
    }

    /// What the plugin wrote, by the length that it said. Text that did not fit ends in an ellipsis.
    ///
    /// # Safety
    /// The plugin wrote as much of `length` bytes as fits (CALLS in the header).
    pub(crate) unsafe fn read(&self, length: usize) -> String {
        // SAFETY: inside the buffer, and initialised as this function's caller promises.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), length.min(N)) };
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if length > N {
            while text.ends_with(char::REPLACEMENT_CHARACTER) {
                text.pop();
            }
            text.push('…');
        }
        text
    }
}

/// Writes text into a buffer of the caller, as much as fits.
///
/// # Safety
/// `text.data` may be written for `text.capacity` bytes.
pub(crate) unsafe fn put(text: &mut raw::Text, value: &str) {
    text.length = value.len();
    let fits = value.floor_char_boundary(text.capacity.min(value.len()));
    if fits > 0 {
        // SAFETY: as this function's caller promises; the buffer is the caller's own, so it does not overlap.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), text.data.cast(), fits) };
    }
}

/// The text that a plugin points to, while it is valid.
///
/// # Safety
/// The memory is readable for that long, for `'a`.
pub(crate) unsafe fn borrowed<'a>(text: raw::ConstText) -> &'a [u8] {
    if text.data.is_null() || text.length == 0 {
        return &[];
    }
    // SAFETY: as this function's caller promises.
    unsafe { std::slice::from_raw_parts(text.data.cast(), text.length) }
}

/// A text kept for good. Entries are leaked: a child of a fork reads them without any lock (H24).
struct Kept {
    text: Box<str>,
    next: *const Kept,
}

static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many different texts are kept for good: names of variables, and what they may hold.
const KEPT_LIMIT: usize = 1024;

/// The same text, for good; `instead` once a process has met too many different ones.
pub(crate) fn keep(text: &str, instead: &'static str) -> &'static str {
    let head = KEPT.load(Ordering::Acquire);
    let mut at: *const Kept = head;
    // SAFETY: null, or an entry: leaked, linked before it was published, and never freed.
    while let Some(kept) = unsafe { at.as_ref() } {
        if &*kept.text == text {
            return &kept.text;
        }
        at = kept.next;
    }
    if COUNT.fetch_add(1, Ordering::Relaxed) >= KEPT_LIMIT {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        return instead;
    }
    let entry = Box::into_raw(Box::new(Kept { text: text.into(), next: ptr::null() }));
    let mut head = head;
    loop {
        // SAFETY: made above and not yet shared, so writing through it is exclusive.
        unsafe { (*entry).next = head };
        match KEPT.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: published just now and never freed.
            Ok(_) => return unsafe { &(*entry).text },
            Err(now) => head = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_cut_at_a_character() {
        let mut buffer = Buffer::<5>::new();
        let mut text = buffer.text();
        // SAFETY: the buffer is that long.
        unsafe { put(&mut text, "abcdä") };
        assert_eq!(text.length, 6);
        let mut whole = Buffer::<6>::new();
        let mut fits = whole.text();
        // SAFETY: as above, and all of it was written.
        let read = unsafe {
            put(&mut fits, "abcdä");
            whole.read(fits.length)
        };
        assert_eq!(read, "abcdä");
    }

    #[test]
    fn kept_text_is_kept_once() {
        let first = keep("VENDOR_DEVICES", "?");
        assert!(std::ptr::eq(first, keep("VENDOR_DEVICES", "?")));
        assert_eq!(keep("VENDOR_MASK", "?"), "VENDOR_MASK");
    }
}
