//! Pointers of the caller: checked for NULL, read and written as C1, C3 and C4 allow.

use crate::result::{Failure, Result};
use crate::types::*;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Where a result goes.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// C1: null, or valid for a write of a `T` during the call.
    #[inline]
    pub(crate) unsafe fn new(to: *mut T, name: &str) -> Result<Self> {
        NonNull::new(to).map(Self).ok_or_else(|| null(name))
    }

    /// # Safety
    /// As [`Out::new`].
    #[inline]
    pub(crate) unsafe fn optional(to: *mut T) -> Option<Self> {
        NonNull::new(to).map(Self)
    }

    #[inline]
    pub(crate) fn put(self, value: T) {
        // SAFETY: C1: valid for the write, by the condition of the constructors.
        unsafe { self.0.write_unaligned(value) }
    }
}

#[cold]
fn null(name: &str) -> Failure {
    Failure::argument(format!("{name}: NULL"))
}

/// A struct of the API that begins with its size.
///
/// # Safety
/// The type is `repr(C)`, begins with `struct_size: u32`, and all zeros are a value of it.
pub(crate) unsafe trait Sized32: Copy {
    /// Its size in the first minor of this major.
    const LEAST: usize;
}

macro_rules! sized {
    ($($name:ident: $least:literal),* $(,)?) => {
        $(
            // SAFETY: repr(C) with struct_size first; integers, floats, nullable pointers and arrays of them.
            unsafe impl Sized32 for $name {
                const LEAST: usize = $least;
            }
            const _: () = assert!(size_of::<$name>() >= $least);
        )*
    };
}
sized!(
    anyaccel_device_info: 584,
    anyaccel_pointer_info: 40,
    anyaccel_host_function: 32,
    anyaccel_random: 56,
    anyaccel_memory_stats: 984,
    anyaccel_host_memory_stats: 264,
    anyaccel_history_options: 32,
    anyaccel_stack_source: 48,
);

fn check_size<T: Sized32>(size: u32, name: &str) -> Result<usize> {
    let size = size as usize;
    if size < T::LEAST {
        return Err(Failure::argument(format!(
            "{name}: struct_size is {size}, but it is {} at least; set it to sizeof",
            T::LEAST
        )));
    }
    Ok(size)
}

/// A struct of the caller's, maybe of another minor: what it lacks is 0.
///
/// # Safety
/// C1, C3: null, or valid for reads of as many bytes as its `struct_size` says.
pub(crate) unsafe fn get_struct<T: Sized32>(from: *const T, name: &str) -> Result<T> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: C1: the size comes first.
    let size = check_size::<T>(unsafe { from.cast::<u32>().read_unaligned() }, name)?;
    if size >= size_of::<T>() {
        // SAFETY: C3: all of it is there.
        return Ok(unsafe { from.read_unaligned() });
    }
    // SAFETY: all zeros are a value of it.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: C3: as many bytes are there, and fewer than fit.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), size);
    }
    Ok(value)
}

/// Where a struct of results goes.
pub(crate) struct StructOut<T> {
    to: NonNull<u8>,
    size: usize,
    of: PhantomData<T>,
}

/// # Safety
/// C1, C3: null, or valid for as many bytes as its `struct_size` says, during the call.
pub(crate) unsafe fn put_struct<T: Sized32>(to: *mut T, name: &str) -> Result<StructOut<T>> {
    let Some(to) = NonNull::new(to.cast::<u8>()) else { return Err(null(name)) };
    // SAFETY: C1: the size comes first.
    let size = check_size::<T>(unsafe { to.cast::<u32>().read_unaligned() }, name)?;
    Ok(StructOut { to, size, of: PhantomData })
}

impl<T: Sized32> StructOut<T> {
    /// Writes all but the size; what only the caller knows becomes 0.
    pub(crate) fn put(self, value: T) {
        const HEAD: usize = size_of::<u32>();
        let known = self.size.min(size_of::<T>());
        // SAFETY: C3: `size` bytes are the caller's; both parts stay within, and within `value`.
        unsafe {
            let from = (&raw const value).cast::<u8>();
            ptr::copy_nonoverlapping(from.add(HEAD), self.to.as_ptr().add(HEAD), known - HEAD);
            self.to.as_ptr().add(known).write_bytes(0, self.size - known);
        }
    }
}

/// Text of the caller's.
///
/// # Safety
/// C1: null, or terminated; it lives for the call.
pub(crate) unsafe fn text<'a>(from: *const c_char, name: &str) -> Result<&'a str> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: C1: terminated.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| Failure::argument(format!("{name}: is not UTF-8: {text:?}")))
}

/// Bytes of the caller's.
///
/// # Safety
/// C1: null, or `len` bytes that live for the call.
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize, name: &str) -> Result<&'a [u8]> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: C1: as many bytes.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) })
}

/// Writes text into a buffer, cut at a character and terminated.
///
/// # Safety
/// C1: null, or valid for a write of `len` bytes.
pub(crate) unsafe fn put_text(to: *mut c_char, len: usize, text: &str) {
    if to.is_null() || len == 0 {
        return;
    }
    let kept = text.floor_char_boundary(len - 1);
    // SAFETY: C1: `kept` is below `len`, so the terminator fits too.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, kept);
        to.add(kept).write(0);
    }
}

/// Hands text to a function of the caller's.
///
/// # Safety
/// C4.
pub(crate) unsafe fn write_text(write: anyaccel_write_text, data: *mut c_void, text: &str) -> Result {
    let Some(write) = write else { return Err(null("write")) };
    // SAFETY: C4; the text lives for the call.
    unsafe { write(data, text.as_ptr().cast(), text.len()) };
    Ok(())
}
