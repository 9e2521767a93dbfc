//! Questions with answers of unknown size, which OpenCL answers in two calls.

use crate::sys::{Api, Raw, SUCCESS, Status};
use std::ffi::c_void;
use std::ptr;

/// The bytes of an answer; `None` if there is none. `ask(size, value, needed)` is a `clGet...Info` with all but its last
/// three arguments given.
pub(crate) fn bytes(mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> Status) -> Option<Vec<u8>> {
    let mut needed = 0;
    if ask(0, ptr::null_mut(), &mut needed) != SUCCESS {
        return None;
    }
    let mut value = vec![0_u8; needed];
    (needed == 0 || ask(needed, value.as_mut_ptr().cast(), ptr::null_mut()) == SUCCESS).then_some(value)
}

/// An answer that is a C string.
pub(crate) fn text(ask: impl FnMut(usize, *mut c_void, *mut usize) -> Status) -> Option<String> {
    let bytes = bytes(ask)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// A device of a platform. Neither is ever released.
#[derive(Clone, Copy)]
pub(crate) struct DeviceId {
    pub(crate) api: &'static Api,
    pub(crate) platform: Raw,
    pub(crate) raw: Raw,
}

// SAFETY: C3, and the runtime keeps platforms and devices for good.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

impl DeviceId {
    pub(crate) fn bytes(&self, name: u32) -> Option<Vec<u8>> {
        // SAFETY: C1: devices are never released. C2, by `bytes`.
        bytes(|size, value, needed| unsafe { (self.api.clGetDeviceInfo)(self.raw, name, size, value, needed) })
    }

    pub(crate) fn text(&self, name: u32) -> Option<String> {
        // SAFETY: as above.
        text(|size, value, needed| unsafe { (self.api.clGetDeviceInfo)(self.raw, name, size, value, needed) })
            .map(|text| text.trim().to_owned())
    }

    /// An answer that is one number of 4 or 8 bytes.
    pub(crate) fn number(&self, name: u32) -> Option<u64> {
        let bytes = self.bytes(name)?;
        if let Ok(eight) = <[u8; 8]>::try_from(&bytes[..]) {
            return Some(u64::from_ne_bytes(eight));
        }
        <[u8; 4]>::try_from(&bytes[..]).ok().map(|four| u32::from_ne_bytes(four).into())
    }

    /// An answer that is a list of sizes.
    pub(crate) fn sizes(&self, name: u32) -> Option<Vec<u64>> {
        let bytes = self.bytes(name)?;
        let sizes = bytes.chunks_exact(size_of::<usize>());
        Some(sizes.filter_map(|size| Some(usize::from_ne_bytes(size.try_into().ok()?) as u64)).collect())
    }

    /// The address of a function of an extension, null if the platform has none of that name.
    pub(crate) fn extension(&self, name: &std::ffi::CStr) -> *mut c_void {
        // SAFETY: C1: platforms are never released. C2.
        unsafe { (self.api.clGetExtensionFunctionAddressForPlatform)(self.platform, name.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static [u8]) -> impl FnMut(usize, *mut c_void, *mut usize) -> Status {
        move |size, value, needed| {
            // SAFETY: C2, as `bytes` promises.
            unsafe {
                if !needed.is_null() {
                    *needed = text.len();
                }
                if !value.is_null() {
                    assert!(size >= text.len());
                    ptr::copy_nonoverlapping(text.as_ptr(), value.cast(), text.len());
                }
            }
            SUCCESS
        }
    }

    #[test]
    fn strings_end_at_their_zero_or_their_end() {
        assert_eq!(text(answer(b"name\0")).as_deref(), Some("name"));
        assert_eq!(text(answer(b"name")).as_deref(), Some("name"));
        assert_eq!(text(answer(b"")).as_deref(), Some(""));
        assert_eq!(text(|_, _, _| -30), None);
    }
}
